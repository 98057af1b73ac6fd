/* A ps process as a member of its cluster: registers with the coordinator, keeps its lease by
 * heartbeats, comes back after a broken connection, and passes on who is lost. The ps that hosts
 * the coordinator goes the same way, through its own address; so do all of them where it is in a
 * scheduler. Owner reactor: reactor 0, or one that
 * a simulation steps. */
#ifndef SL_PS_AGENT_AGENT_H
#define SL_PS_AGENT_AGENT_H

#include "core/endpoint.h"
#include "core/secret.h"
#include "net/control/message.h"
#include "net/control/session.h"
#include "net/transport.h"

struct sl_agent;

struct sl_agent_options {
    struct sl_reactor *reactor;
    const struct sl_transport_ops *transport;
    struct sl_transport_options transport_options; /* connections and buffers are set here */
    struct sl_endpoint coordinator;
    const char *peer_name; /* of it, for messages; NULL: it is on ps 0 */
    uint32_t task_index;
    bool any_task;        /* the coordinator chooses it; task_index is 0 */
    uint32_t shard_count; /* of this process */
    uint32_t ps_count, worker_count;
    uint32_t replicas;         /* backups of each shard: 0 or 1 */
    struct sl_endpoint data;   /* where its shards are reached */
    struct sl_endpoint bypass; /* where they are reached by RDMA or DPDK too */
    bool has_bypass;
    const char *host;               /* net/shm/shm.h, when they are reached through shared memory
                                     * too; NULL or "": they are not. Outlives the member */
    uint64_t incarnation;           /* of the process: its client_id */
    const struct sl_secret *secret; /* outlives the member; NULL: none */
    bool checksum;
    uint64_t heartbeat_ns;      /* between two; 0, or not below the lease: a quarter of that */
    uint64_t start_timeout_ns;  /* to join; later, to register anew before that is tried again */
    uint64_t restore;           /* the checkpoint that it shall begin from; 0: none */
    uint64_t checkpoint_newest; /* the greatest number of one that it knows of, complete or not */
    struct sl_message_numbers complete;   /* those that it has whole: it can begin from them too */
    struct sl_message_numbers unfinished; /* of which it has files, and no manifest */

    /* The cluster is known, once: this process has its shards first_shard and on of shard_count. */
    void (*joined)(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns);
    /* What the cluster is: before `joined`, and whenever the coordinator tells it anew. May be
     * NULL.
     */
    void (*cluster)(void *ctx, const struct sl_message_cluster *cluster);
    /* It could not join, or was refused later; logged. */
    void (*failed)(void *ctx, int err);
    /* Whether the shards have tables; NULL: they have none. */
    bool (*has_tables)(void *ctx);
    /* A worker is lost: for sl_server_on_expired of every shard. */
    void (*expired)(void *ctx, const struct sl_message_expired *expired);
    /* The job has ended, and so shall this process; may be NULL. */
    void (*ended)(void *ctx, const char *why);
    /* Since it has joined, there has been no connection to the coordinator for start_timeout_ns;
     * comes again every second until there is one. May be NULL. */
    void (*absent)(void *ctx);
    /* A checkpoint begins: sl_agent_checkpoint_part or _fail is called, then or later. What it
     * adds to, this process has completed. What was begun before is given up. Both NULL: this
     * process has no place for checkpoints, and the coordinator is told so. */
    void (*checkpoint)(void *ctx, const struct sl_message_checkpoint *begun);
    /* All ps have their files: the manifest is to be written, then sl_agent_checkpoint_done or
     * _fail called. Valid during the call. */
    void (*checkpoint_complete)(void *ctx, const struct sl_message_checkpoint_complete *complete);
    void *ctx;
};

/* Begins to join; `joined` or `failed` follows. Errors: NO_MEMORY, UNSUPPORTED. */
int sl_agent_open(const struct sl_agent_options *options, struct sl_agent **out);

/* Since `joined`; the one that was chosen. */
uint32_t sl_agent_task_index(const struct sl_agent *member);

/* Since `joined`: the checkpoint that this process begins from, at most the one that it can; 0:
 * none, it begins with nothing. */
uint64_t sl_agent_restore(const struct sl_agent *member);

/* Likewise: the job does not go on from checkpoints above *above and up to *to that may be there.
 */
void sl_agent_abandoned(const struct sl_agent *member, uint64_t *above, uint64_t *to);

/* To the coordinator, of a checkpoint that `checkpoint` has begun: its files are on disk, one for
 * each shard, by ascending index in the cluster; copied. has_worker: one of the shards knew one.
 * They are said again as often as the connection breaks. Without effect for one that is not the
 * last begun. */
void sl_agent_checkpoint_part(struct sl_agent *member, uint64_t number,
                              const struct sl_message_checkpoint_file *files, uint32_t file_count,
                              bool has_worker);
/* Likewise: it cannot be made; why: for people. */
void sl_agent_checkpoint_fail(struct sl_agent *member, uint64_t number, int err, const char *why);
/* Likewise, after `checkpoint_complete`: the manifest is written. */
void sl_agent_checkpoint_done(struct sl_agent *member, uint64_t number);

/* Asks the coordinator for a checkpoint, as a client may: the answer is a CheckpointDone, or an
 * error as in sl_session_request. Before sl_agent_leave. */
void sl_agent_checkpoint_ask(struct sl_agent *member, uint64_t timeout_ns,
                             sl_session_answer_fn *answered, void *ctx);

/* Makes known a table that this process has from a checkpoint, under the id that it has there. To
 * be answered before anyone is welcomed to the shards: clients then find the id at the coordinator.
 * The answer is a TableOpened, or an error as in sl_session_request: EXISTS (it, or its id, is in
 * use otherwise). Before sl_agent_leave. */
void sl_agent_table_keep(struct sl_agent *member, uint32_t table_id,
                         const struct sl_table_spec *spec, uint64_t timeout_ns,
                         sl_session_answer_fn *answered, void *ctx);

/* How often it has lost its connection to the coordinator, which may be another one since. */
uint32_t sl_agent_losses(const struct sl_agent *member);

/* What the coordinator is told of backups whenever it is registered with; is_news: now, too. */
void sl_agent_report(struct sl_agent *member, const struct sl_message_replica_report *pairs,
                     uint32_t pair_count, bool is_news);

/* There is news that has not been sent to the coordinator. */
bool sl_agent_has_news(const struct sl_agent *member);

/* The coordinator is there now: a connection to another place is given up. */
void sl_agent_set_coordinator(struct sl_agent *member, const struct sl_endpoint *coordinator);

/* Says goodbye. No upcall follows. */
void sl_agent_leave(struct sl_agent *member);

/* Leaves, and frees it. Nulls *member; NULL is fine. */
void sl_agent_close(struct sl_agent **member);

#endif
