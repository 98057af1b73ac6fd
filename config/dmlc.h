/* The variables of ps-lite and BytePS, as their cluster scripts set them. One that is empty says
 * nothing. What they mean for a process together with its other sources: config/cluster.h. Before
 * start. */
#ifndef SL_CONFIG_DMLC_H
#define SL_CONFIG_DMLC_H

#include <net/if.h>
#include <stdbool.h>

#include "core/endpoint.h"
#include "core/err.h"

enum sl_dmlc_role { SL_DMLC_ROLE_UNSET, SL_DMLC_SCHEDULER, SL_DMLC_SERVER, SL_DMLC_WORKER };

struct sl_dmlc {
    /* DMLC_ROLE or DMLC_PS_ROOT_URI is set: the process is one of a job with a scheduler, and
     * worker_count, server_count and root are set too. */
    bool in_use;
    enum sl_dmlc_role role;   /* DMLC_ROLE */
    uint32_t worker_count;    /* DMLC_NUM_WORKER */
    uint32_t server_count;    /* DMLC_NUM_SERVER: processes */
    struct sl_endpoint root;  /* DMLC_PS_ROOT_URI, a host, and DMLC_PS_ROOT_PORT: the scheduler */
    char interface[IFNAMSIZ]; /* DMLC_INTERFACE; "": none, or "auto" */
    char node_host[SL_LIMIT_ENDPOINT_BYTES]; /* DMLC_NODE_HOST; "": none */
    uint16_t port;                           /* DMLC_PORT, of a server's data endpoint; 0: any */
    const char *rdma;          /* DMLC_ENABLE_RDMA: 1, ibverbs or rdma; NULL: 0, or unset */
    int64_t rank;              /* DMLC_RANK, or a worker's DMLC_WORKER_ID; -1: the scheduler's */
    const char *rank_variable; /* which of the two said it; NULL: none */
    uint32_t group_size; /* DMLC_GROUP_SIZE: servers, that is shards, of a process; 0: unset */

    /* These count without a scheduler too. */
    uint32_t trace;                /* PS_VERBOSE, 0 to 2: connections, messages */
    uint32_t heartbeat_interval_s; /* PS_HEARTBEAT_INTERVAL; 0: a quarter of the lease */
    uint32_t heartbeat_timeout_s;  /* PS_HEARTBEAT_TIMEOUT: the lease; 0: unset */
};

/* Reads the environment. On error, reason is "NAME=value: accepts ...", or names the variable that
 * is missing, or both of two that contradict each other. Errors: INVALID. */
int sl_dmlc_read(struct sl_dmlc *out, char *reason, size_t reason_bytes);

/* "scheduler", "server", "worker". */
const char *sl_dmlc_role_name(enum sl_dmlc_role role);

/* Where the processes of the job reach this one: DMLC_NODE_HOST, else the address of
 * DMLC_INTERFACE, else the address from which this machine would talk to the scheduler. Looks names
 * up, and blocks for it. Errors: INVALID (the interface, with those that there are), NOT_FOUND (the
 * scheduler's name has no address, or there is no way to it: that may change), IO; with reason. */
int sl_dmlc_find_host(const struct sl_dmlc *dmlc, char host[SL_LIMIT_ENDPOINT_BYTES], char *reason,
                      size_t reason_bytes);

#endif
