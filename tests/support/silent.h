/* A listener on loopback that answers nothing: connections to it are neither refused nor welcomed.
 */
#ifndef SL_TESTS_SUPPORT_SILENT_H
#define SL_TESTS_SUPPORT_SILENT_H

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/unit.h"

#define SILENT_NAME_BYTES 32

/* Returns the socket, which the caller closes, and its "host:port". */
static inline int silent_open(char name[SILENT_NAME_BYTES])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    (void)snprintf(name, SILENT_NAME_BYTES, "127.0.0.1:%u", ntohs(address.sin_port));
    return listener;
}

#endif
