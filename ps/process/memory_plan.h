/* The memory plan divides the limit of a ps (--memory-limit) among its pools. A server has pools
 * for requests, replies, control messages and connections. The size of a pool grows with the limit,
 * from its required minimum to its default, the size without a limit. Tables get the rest. Every
 * server of a process (one per reactor, two with replicas) gets the same sizes. Any thread, no
 * allocation.
 *
 * Counted: the program itself, the pools below, tables, BSP staging, snapshots for backups and
 * checkpoints, the coordinator. Not counted: memory that local workers share with the ps, huge
 * pages of DPDK, and the memory of a request handler. */
#ifndef SL_PS_PROCESS_MEMORY_PLAN_H
#define SL_PS_PROCESS_MEMORY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct sl_memory_plan_options {
    size_t limit_bytes; /* memory limit of the process; 0: none */
    uint32_t reactors;  /* 1 to SL_LIMIT_REACTORS */
    uint32_t replicas;  /* 0 or 1 */
    bool has_shm;       /* local workers may connect over shared memory */
    bool has_bypass;    /* RDMA or DPDK */
    bool has_tls;
    bool has_metastore; /* a cluster store: the coordinator has a ledger */
    bool has_checkpoints;
    uint32_t checkpoint_level; /* of zstd */
};

/* Sizes are per server unless a comment says otherwise. Without a limit every field is 0, and each
 * component uses its default. */
struct sl_memory_plan {
    size_t tables_bytes;  /* tables, including BSP staging */
    size_t staging_bytes; /* the part of tables_bytes that BSP staging may take */
    size_t
        buffer_bytes;  /* requests and replies; shared memory needs 1.5 times this, in the limit */
    size_t kept_bytes; /* control messages that wait for room in the outbox */
    size_t log_bytes;  /* outbox of the replication log */
    size_t unplaced_bytes; /* received parts of long TCP frames whose buffer is not available yet */
    size_t snapshot_bytes; /* blocks of a snapshot for a backup or a checkpoint */
    size_t coordinator_log_bytes; /* of the process: messages that wait for the cluster store */
    uint32_t connections;         /* per transport */
    uint32_t receive;             /* receive buffers per transport; a power of two */
    uint32_t waiting;             /* queued requests */
};

/* The smallest limit_bytes that works with these options, whose own limit_bytes is ignored. */
size_t sl_memory_plan_least(const struct sl_memory_plan_options *options);

/* Divides the limit. Errors: INVALID: the limit is too small; the reason names the least one. */
int sl_memory_plan_make(const struct sl_memory_plan_options *options, struct sl_memory_plan *out,
                        char *reason, size_t reason_bytes);

#endif
