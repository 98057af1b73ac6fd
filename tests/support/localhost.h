/* For tests that connect to this machine by its name: some systems (a chroot without /etc/hosts)
 * do not know it. */
#ifndef SL_TESTS_SUPPORT_LOCALHOST_H
#define SL_TESTS_SUPPORT_LOCALHOST_H

#include <stdbool.h>

#include "core/endpoint.h"

static inline bool localhost_is_known(void)
{
    const struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_TCP, .host = "localhost"};
    struct sockaddr_storage address;
    socklen_t address_bytes;
    return sl_endpoint_resolve(&endpoint, false, &address, &address_bytes, NULL) == 0;
}

/* In a CMocka test: skips the case, with the reason. */
#define SKIP_WITHOUT_LOCALHOST()                                                                   \
    do {                                                                                           \
        if (!localhost_is_known()) {                                                               \
            print_message("this system does not know the host \"localhost\"\n");                   \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

#endif
