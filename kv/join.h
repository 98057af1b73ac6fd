/* How a process that uses the key-value interface finds its cluster: by its environment, as
 * starling-worker does without flags. */
#ifndef SL_KV_JOIN_H
#define SL_KV_JOIN_H

#include <starling_kv.h>

#include "config/cluster.h"
#include "config/dpdk_settings.h"
#include "config/rdma_settings.h"
#include "config/security.h"

struct sl_join {
    struct sl_client_options client; /* points into the others */
    struct sl_cluster cluster;
    struct sl_security security;
    char *coordinator; /* owned */
    char congestion_control[16];
    struct sl_rdma_settings rdma;
    struct sl_dpdk_settings dpdk;
};

/* Reads the environment, sets up the log; a caller-driven client. The reason of a failure is
 * logged. Errors: INVALID, NOT_FOUND, IO, TOO_LARGE, NO_MEMORY. */
int sl_join_read(struct sl_join *join);

/* Forgets the secret, frees; after the client was created, too. */
void sl_join_fini(struct sl_join *join);

#endif
