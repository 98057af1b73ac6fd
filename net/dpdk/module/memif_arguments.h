/* What the arguments of a memif device say to us, and what remains for the driver. */
#ifndef SL_NET_DPDK_MODULE_MEMIF_ARGUMENTS_H
#define SL_NET_DPDK_MODULE_MEMIF_ARGUMENTS_H

#include "net/dpdk/module/memif_socket.h"

struct sl_module_memif_arguments {
    bool is_server;
    uint32_t id;
    struct sl_module_memif_address address;
    char tail[512]; /* all but the socket's, each with a comma behind it */
};

/* As the driver would understand them. NULL, or what cannot be. */
const char *sl_module_memif_arguments_read(const char *text, struct sl_module_memif_arguments *out);

#endif
