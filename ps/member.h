/* A ps process as a member of its cluster: registers with the coordinator, keeps its lease by
 * heartbeats, comes back after a broken connection, and passes on who is lost. The ps that hosts
 * the coordinator goes the same way, through its own address; so do all of them where it is in a
 * scheduler. Owner reactor: reactor 0, or one that
 * a simulation steps. */
#ifndef SL_PS_MEMBER_H
#define SL_PS_MEMBER_H

#include "core/endpoint.h"
#include "core/secret.h"
#include "net/control/message.h"
#include "net/transport.h"

struct sl_member;

struct sl_member_options {
    struct sl_reactor *reactor;
    const struct sl_transport_ops *transport;
    struct sl_transport_options transport_options; /* connections and buffers are set here */
    struct sl_endpoint coordinator;
    const char *peer_name; /* of it, for messages; NULL: it is on ps 0 */
    uint32_t task_index;
    bool any_task;        /* the coordinator chooses it; task_index is 0 */
    uint32_t shard_count; /* of this process */
    uint32_t ps_count, worker_count;
    struct sl_endpoint data; /* where its shards are reached */
    struct sl_endpoint fast; /* where they are reached by RDMA or DPDK too */
    bool has_fast;
    const char *host;               /* net/shm/shm.h, when they are reached through shared memory
                                     * too; NULL or "": they are not. Outlives the member */
    uint64_t incarnation;           /* of the process: its client_id */
    const struct sl_secret *secret; /* outlives the member; NULL: none */
    bool checksum;
    uint64_t heartbeat_ns;     /* between two; 0, or not below the lease: a quarter of that */
    uint64_t start_timeout_ns; /* to join; later, to register anew before that is tried again */

    /* The cluster is known, once: this process has its shards first_shard and on of shard_count. */
    void (*joined)(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns);
    /* It could not join, or was refused later; logged. */
    void (*failed)(void *ctx, int err);
    /* A worker is lost: for sl_server_lost of every shard. */
    void (*lost)(void *ctx, const struct sl_message_lost *lost);
    /* The job has ended, and so shall this process; may be NULL. */
    void (*ended)(void *ctx, const char *why);
    /* Since it has joined, there has been no connection to the coordinator for start_timeout_ns;
     * comes again every second until there is one. May be NULL. */
    void (*absent)(void *ctx);
    void *ctx;
};

/* Begins to join; `joined` or `failed` follows. Errors: NO_MEMORY, UNSUPPORTED. */
int sl_member_open(const struct sl_member_options *options, struct sl_member **out);

/* Since `joined`; the one that was chosen. */
uint32_t sl_member_task_index(const struct sl_member *member);

/* Says goodbye. No upcall follows. */
void sl_member_leave(struct sl_member *member);

/* Leaves, and frees it. Nulls *member; NULL is fine. */
void sl_member_close(struct sl_member **member);

#endif
