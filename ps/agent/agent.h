/* Agent is a server's client of the coordinator: it registers the process, renews its lease with
 * heartbeats, reconnects, and passes the coordinator's messages to the process. The process that
 * hosts the coordinator connects in the same way, through its own address. Owner reactor: reactor
 * 0, or the one that a simulation steps. Allocates in open, and for messages. */
#ifndef SL_PS_AGENT_AGENT_H
#define SL_PS_AGENT_AGENT_H

#include "core/endpoint.h"
#include "core/secret.h"
#include "net/session/message.h"
#include "net/session/session.h"
#include "net/transport.h"

struct sl_agent;

/* Calls to the owner, with its ctx. */
struct sl_agent_events {
    /* The coordinator has accepted this process, which may wait for others; called once. May be
     * NULL. */
    void (*registered)(void *ctx, uint32_t task_index);
    /* The cluster is known; called once. The home shards of this process are first_shard and
     * following of shard_count. */
    void (*joined)(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns);
    /* The cluster, before `joined` and whenever the coordinator sends a new one. May be NULL. */
    void (*cluster)(void *ctx, const struct sl_message_cluster *cluster);
    /* The process could not join, or was refused later; already logged. */
    void (*failed)(void *ctx, int err);
    /* Returns true if the shards have tables. NULL: they have none. */
    bool (*has_tables)(void *ctx);
    /* A worker expired: call sl_server_on_expired on every shard. */
    void (*expired)(void *ctx, const struct sl_message_expired *expired);
    /* The job has ended, and this process should stop. May be NULL. */
    void (*ended)(void *ctx, const char *why);
    /* After `joined`, there was no connection to the coordinator for start_timeout_ns. Called every
     * second until there is one. May be NULL. */
    void (*absent)(void *ctx);
    /* A checkpoint begins: answer with sl_agent_checkpoint_part or _fail, now or later. The
     * checkpoint that it is based on is complete on this process. Earlier unfinished ones are
     * aborted. Both NULL: this process has no checkpoint directory, and the agent reports that. */
    void (*checkpoint)(void *ctx, const struct sl_message_checkpoint *begun);
    /* All servers have written their files: write the manifest, then call sl_agent_checkpoint_done
     * or _fail. `complete` is valid during the call. */
    void (*checkpoint_publish)(void *ctx, const struct sl_message_checkpoint_publish *complete);
    /* All servers have written the manifest. Not called if the connection was lost then. May be
     * NULL. */
    void (*checkpoint_completed)(void *ctx, uint64_t number);
};

struct sl_agent_options {
    struct sl_reactor *reactor;
    const struct sl_transport_ops *transport;
    struct sl_transport_options transport_options; /* connections and buffers are set here */
    struct sl_endpoint coordinator;
    const char *peer_name; /* the coordinator in messages; NULL: it is on ps/0 */
    uint32_t task_index;
    bool any_task; /* the coordinator assigns it; task_index is 0 */
    /* Of this process: its home shards; 0: it joins a running job, and gets shards of others. */
    uint32_t shard_count, reactor_count;
    uint32_t ps_count, worker_count;
    uint32_t replicas;         /* of each shard: 0 or 1 */
    struct sl_endpoint data;   /* endpoint of its shards */
    struct sl_endpoint bypass; /* their RDMA or DPDK endpoint */
    bool has_bypass;
    const char *host; /* net/shm/shm.h, if its shards are reachable over shared memory; else NULL or
                         "". Outlives the agent */
    uint64_t incarnation;           /* the client_id of this process */
    const struct sl_secret *secret; /* outlives the agent; NULL: none */
    bool checksum;
    uint64_t heartbeat_ns;     /* between two; 0, or not below the lease: a quarter of the lease */
    uint64_t start_timeout_ns; /* for joining; later for each registration attempt */
    struct {
        uint64_t restore;                     /* newest one that it can restore; 0: none */
        uint64_t newest;                      /* greatest number it knows, complete or not */
        uint64_t unclaimed;                   /* as in struct sl_message_register */
        struct sl_message_numbers complete;   /* other complete ones; restorable too */
        struct sl_message_numbers unfinished; /* with files but without a manifest */
    } checkpoints;
    struct sl_agent_events events;
    void *ctx;
    struct sl_cell *losses; /* counts connections that broke; outlives the agent; NULL: none */
};

/* Starts joining; `joined` or `failed` follows. Errors: NO_MEMORY, UNSUPPORTED. */
int sl_agent_open(const struct sl_agent_options *options, struct sl_agent **out);

/* Returns the assigned task index. After `joined`. */
uint32_t sl_agent_task_index(const struct sl_agent *agent);

/* Returns the checkpoint to restore, at most options.restore; 0: none, the process starts empty.
 * After `joined`. */
uint64_t sl_agent_restore(const struct sl_agent *agent);

/* Returns the range of abandoned checkpoints: above *above, up to *to. After `joined`. */
void sl_agent_abandoned(const struct sl_agent *agent, uint64_t *above, uint64_t *to);

/* Returns the newest number that checkpoints of earlier jobs have, which are kept; 0: none. After
 * `joined`. */
uint64_t sl_agent_kept(const struct sl_agent *agent);

/* Reports that the files of the current checkpoint are on disk: one per shard, by ascending index
 * in the cluster; copied. has_worker: some shard has served a worker. Repeated after each
 * reconnect. No effect unless `number` is the last checkpoint begun. */
void sl_agent_checkpoint_part(struct sl_agent *agent, uint64_t number,
                              const struct sl_message_checkpoint_file *files, uint32_t file_count,
                              bool has_worker);
/* The same for a failed checkpoint; why: for the log. */
void sl_agent_checkpoint_fail(struct sl_agent *agent, uint64_t number, int err, const char *why);
/* The same for a written manifest, after `checkpoint_publish`. */
void sl_agent_checkpoint_done(struct sl_agent *agent, uint64_t number);

/* Requests a checkpoint, as a client would. The answer is a CheckpointDone, or an error as in
 * sl_session_request. Before sl_agent_leave. */
void sl_agent_checkpoint_ask(struct sl_agent *agent, uint64_t timeout_ns,
                             sl_session_answer_fn *answered, void *ctx);

/* Registers a table restored from a checkpoint, under its id there. Wait for the answer before
 * welcoming clients to the shards, so that they find the id at the coordinator. The answer is a
 * TableOpened, or an error as in sl_session_request: EXISTS (the name or the id is in use). Before
 * sl_agent_leave. */
void sl_agent_table_keep(struct sl_agent *agent, uint32_t table_id,
                         const struct sl_table_spec *spec, uint64_t timeout_ns,
                         sl_session_answer_fn *answered, void *ctx);

/* Number of lost connections to the coordinator. After one, another process may host it. */
uint32_t sl_agent_expirations(const struct sl_agent *agent);

/* Returns the tables that were dropped, as of the last cluster. */
const struct sl_message_dropped *sl_agent_dropped(const struct sl_agent *agent);

/* Sets the reports about shards that each registration carries; at most SL_LIMIT_SHARDS. is_news:
 * sends them at once. */
void sl_agent_report(struct sl_agent *agent, const struct sl_message_replica_report *reports,
                     uint32_t report_count, bool is_news);

/* Returns true if new reports are not sent yet. */
bool sl_agent_has_news(const struct sl_agent *agent);

/* Sends a report to the coordinator, unless it wants none or an earlier message is unsent. */
void sl_agent_send_report(struct sl_agent *agent, struct sl_message_report *report);

/* HOST:PORT of the coordinator's HTTP server; "": unknown. */
const char *sl_agent_coordinator_http(const struct sl_agent *agent);

/* Returns whether the process is not a connected member of the cluster, and writes why, such as
 * "waits for ps/1"; else "". */
bool sl_agent_explain(const struct sl_agent *agent, char *text, size_t text_bytes);

/* Changes the coordinator's endpoint, and reconnects if it differs. */
void sl_agent_set_coordinator(struct sl_agent *agent, const struct sl_endpoint *coordinator);

/* Leaves the cluster with a Goodbye. No callback follows. */
void sl_agent_leave(struct sl_agent *agent);

/* Leaves, and frees the agent. Nulls *agent; NULL is allowed. */
void sl_agent_close(struct sl_agent **agent);

#endif
