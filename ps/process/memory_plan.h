/* The memory plan divides the memory limit of a process (--memory-limit) among its reactors and its
 * servers (one for each shard; with replicas another for the backup of another server's shard). A
 * reactor has pools for requests, replies, control messages and connections. A server has pools for
 * its replication log and for snapshots. A higher limit gives larger pools, from the required
 * minimum up to the default. Without a limit the default applies. Tables get the rest. Any thread;
 * allocates nothing.
 *
 * Counted: the program itself, the pools below, tables, BSP push buffers, snapshots for backups and
 * checkpoints, the coordinator. Not counted: shared memory of local workers, huge pages of DPDK,
 * memory of a request handler. */
#ifndef SL_PS_PROCESS_MEMORY_PLAN_H
#define SL_PS_PROCESS_MEMORY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/reason.h"

struct sl_memory_plan_options {
    size_t limit_bytes; /* of the process; 0: no limit */
    uint32_t reactors;  /* 1 to `shards` */
    uint32_t shards;    /* 1 to SL_LIMIT_REACTORS */
    uint32_t replicas;  /* 0 or 1 */
    struct {
        bool has_shm;    /* local workers may connect over shared memory */
        bool has_bypass; /* RDMA or DPDK */
        bool has_tls;
    } transports;
    bool has_metastore; /* the coordinator keeps a log in the metastore */
    bool has_checkpoints, has_snapshots;
    uint32_t checkpoint_level; /* of zstd */
};

/* Without a limit all fields are 0, and every component uses its default. */
struct sl_memory_plan {
    /* Per server: */
    size_t tables_bytes;   /* tables, including BSP push buffers */
    size_t staging_bytes;  /* the part of tables_bytes that BSP push buffers may take */
    size_t log_bytes;      /* outbox of the replication log */
    size_t snapshot_bytes; /* snapshot blocks for a backup or a checkpoint */
    size_t rest_bytes;     /* everything but the tables */
    /* Per reactor: */
    size_t buffer_bytes;   /* requests and replies; shared memory takes half as much again */
    size_t kept_bytes;     /* control messages that wait for room in the outbox */
    size_t unplaced_bytes; /* received parts of long TCP frames whose buffer is not available yet */
    uint32_t connections;  /* per transport */
    uint32_t receive;      /* receive buffers per transport; a power of two */
    uint32_t waiting;      /* queued requests */
    /* Per process: */
    size_t coordinator_log_bytes; /* messages held by the coordinator log */
};

/* Returns the least limit_bytes for these options; their own limit_bytes is ignored. */
size_t sl_memory_plan_least(const struct sl_memory_plan_options *options);

/* Returns the limit of the tables of each server when `count` servers share what the plan has for
 * `planned`. 0: no limit, or if the plan has one, `count` are too many. */
size_t sl_memory_plan_tables(const struct sl_memory_plan *plan, uint32_t planned, uint32_t count);

/* Divides the limit. Errors: INVALID: the limit is too small; the reason names the least one. */
int sl_memory_plan_make(const struct sl_memory_plan_options *options, struct sl_memory_plan *out,
                        struct sl_reason *reason);

#endif
