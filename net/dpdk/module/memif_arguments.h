/* memif_arguments parses the arguments of a memif device. Pure; any thread. */
#ifndef SL_NET_DPDK_MODULE_MEMIF_ARGUMENTS_H
#define SL_NET_DPDK_MODULE_MEMIF_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

struct sl_module_memif_arguments {
    bool is_server;        /* else a client */
    bool is_abstract;      /* `path` is an abstract socket name, not a file */
    uint32_t buffer_bytes; /* of one packet: bsize=, at most 65535 */
    char path[108];        /* of the socket */
};

/* Parses `text` (NULL: empty) as DPDK's driver does. Returns NULL, or what is wrong with it; then
 * *out has what was parsed so far. */
const char *sl_module_memif_arguments_read(const char *text, struct sl_module_memif_arguments *out);

#endif
