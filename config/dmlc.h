/* The variables of ps-lite and BytePS, as their cluster scripts set them. An empty variable counts
 * as unset. Their meaning next to other sources: config/cluster.h. Before start. */
#ifndef SL_CONFIG_DMLC_H
#define SL_CONFIG_DMLC_H

#include <net/if.h>
#include <stdbool.h>

#include "core/endpoint.h"
#include "core/reason.h"

enum sl_dmlc_role {
    SL_DMLC_ROLE_UNSET,
    SL_DMLC_SCHEDULER,
    SL_DMLC_SERVER,
    SL_DMLC_WORKER,
    SL_DMLC_JOINT, /* a server and a worker: each takes its own part */
};

struct sl_dmlc {
    /* DMLC_ROLE or DMLC_PS_ROOT_URI is set: the job has a scheduler. worker_count, server_count and
     * root are set too. */
    bool in_use;
    enum sl_dmlc_role role;   /* DMLC_ROLE */
    uint32_t worker_count;    /* DMLC_NUM_WORKER */
    uint32_t server_count;    /* DMLC_NUM_SERVER: processes */
    struct sl_endpoint root;  /* DMLC_PS_ROOT_URI (a host) and root_port: the scheduler */
    uint32_t root_port;       /* DMLC_PS_ROOT_PORT */
    char interface[IFNAMSIZ]; /* DMLC_INTERFACE; "": none or "auto" */
    char node_host[SL_LIMIT_ENDPOINT_BYTES]; /* DMLC_NODE_HOST; "": none */
    uint32_t port;                           /* DMLC_PORT: of a server's data endpoint; 0: any */
    const char *rdma;  /* DMLC_ENABLE_RDMA or DMLC_PS_VAN_TYPE: 1, ibverbs or rdma; NULL: others */
    int64_t rank;      /* DMLC_RANK, or a worker's DMLC_WORKER_ID; -1: chosen by the coordinator */
    int64_t worker_id; /* DMLC_WORKER_ID; -1: unset */
    const char *rank_variable; /* the one that is set; NULL: none */
    uint32_t group_size;       /* DMLC_GROUP_SIZE: shards per server; 0: unset */

    /* Used without a scheduler too. */
    uint32_t trace;                /* PS_VERBOSE, 0 to 2: 1 connections, 2 messages */
    uint32_t heartbeat_interval_s; /* PS_HEARTBEAT_INTERVAL; 0: a quarter of the lease */
    uint32_t heartbeat_timeout_s;  /* PS_HEARTBEAT_TIMEOUT: the lease; 0: unset */

    /* Variables that are set, but have no effect here, with the reason: "NAME=VALUE: ..." */
    char unheeded[256];
};

/* Parsers for the table of options: config/cli.h, SL_CLI_PARSED. */
bool sl_dmlc_parse_role(const char *text, void *role);
#define SL_DMLC_HOST_ACCEPTS "the name or the address of a host, without a port"
bool sl_dmlc_parse_host(const char *text, void *host);
bool sl_dmlc_parse_interface(const char *text, void *interface);
#define SL_DMLC_RDMA_ACCEPTS "0 or zmq: TCP; 1, ibverbs or rdma; p3, multivan, ucx, fabric: TCP"
bool sl_dmlc_parse_rdma(const char *text, void *rdma);

/* Resolves: checks the values together and sets in_use, rank and rank_variable. reason: the missing
 * variable, or two that contradict each other. variables: as in struct sl_cli. Errors: INVALID. */
int sl_dmlc_resolve(struct sl_dmlc *dmlc, const char *const *variables, struct sl_reason *reason);

/* "scheduler", "server", "worker", "joint". */
const char *sl_dmlc_role_name(enum sl_dmlc_role role);

/* Finds the host by which other processes of the job reach this one: DMLC_NODE_HOST, else the
 * address of DMLC_INTERFACE, else the local address of the route to the scheduler. Blocks for name
 * resolution. Errors, with reason: INVALID (no such interface, lists the existing ones), NOT_FOUND
 * (no address of or route to the scheduler; may be temporary), IO. */
int sl_dmlc_find_host(const struct sl_dmlc *dmlc, char host[SL_LIMIT_ENDPOINT_BYTES],
                      struct sl_reason *reason);

#endif
