/* The socket between this process and the driver of one memif device, which nobody else can reach:
 * a server's driver listens in a folder that is gone at once, a client's dials a name that we
 * listen at, where we look who comes. One thread's, at a time. */
#ifndef SL_NET_DPDK_MODULE_MEMIF_PRIVATE_H
#define SL_NET_DPDK_MODULE_MEMIF_PRIVATE_H

#include "net/dpdk/module/memif_socket.h"

struct sl_module_memif_private {
    struct sl_module_memif_address address; /* what the driver is told */
    int listening;                          /* a client's; -1: none */
    int file;                               /* a server's: what it listens at; -1: none yet */
    char directory[32];                     /* "": none, or no more */
};

/* Returns 0, or an errno. */
int sl_module_memif_private_make(struct sl_module_memif_private *out, bool is_server);
/* The driver knows it: takes the folder away. */
int sl_module_memif_private_seal(struct sl_module_memif_private *private);
void sl_module_memif_private_discard(struct sl_module_memif_private *private);

/* To a server's driver, or from a client's, which has dialled: a descriptor, or -1. */
int sl_module_memif_private_dial(const struct sl_module_memif_private *private);
int sl_module_memif_private_accept(const struct sl_module_memif_private *private);

#endif
