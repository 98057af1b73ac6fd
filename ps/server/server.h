/* A server serves one shard on one reactor: it accepts connections, checks their hello, and answers
 * their requests. Start reading here. The servers of a reactor share transports, memory and
 * connections (host.h). The listening reactor reads the hello and migrates the connection to the
 * reactor that owns the requested shard. Reactor 0 of the process that hosts the
 * coordinator also serves control connections.
 *
 * Requests of a connection run in order, except that later requests may overtake a parked one; a
 * write never overtakes a write. A client's session outlives its connection by one lease
 * (session.h). Order: scheduler.c, turn.c. Memory limits and stalled peers: admission.c. Shared
 * memory: shm.c. Backups: ps/replication/replication.h. Owner reactor, unless stated otherwise. */
#ifndef SL_PS_SERVER_SERVER_H
#define SL_PS_SERVER_SERVER_H

#include "core/clock.h"
#include "core/endpoint.h"
#include "core/reason.h"
#include "core/secret.h"
#include "net/session/message.h"
#include "net/transport.h"
#include "ps/shard/shard.h"

#define SL_SERVER_LEASE_DEFAULT_NS (10 * SL_CLOCK_NS_PER_S)

/* Maximum time to receive a frame once it has memory, or to send it. At 50 Mbit/s, the memory of 16
 * reactors for such frames fills in half of this time. */
#define SL_SERVER_FRAME_NS         (600 * SL_CLOCK_NS_PER_S)

struct sl_server;
struct sl_coordinator;
struct sl_replication_options;
struct sl_server_cells;
struct sl_server_hooks;

/* The coordinator, as the server on its reactor calls it. The server passes members' messages on
 * and keeps the coordinator's clock going; `peer` is the server's name of a connection. Each
 * function is the one of that name in ps/coordinator/coordinator.h. */
struct sl_server_coordinator_ops {
    int (*hello)(struct sl_coordinator *coordinator, uint64_t peer,
                 const struct sl_message_hello *hello, uint64_t now_ns, struct sl_reason *reason);
    uint32_t (*task_index)(const struct sl_coordinator *coordinator, uint64_t peer);
    void (*message)(struct sl_coordinator *coordinator, uint64_t peer,
                    const struct sl_message *message, uint64_t now_ns);
    void (*gone)(struct sl_coordinator *coordinator, uint64_t peer, bool expected, uint64_t now_ns);
    void (*tell)(struct sl_coordinator *coordinator, uint64_t peer,
                 const struct sl_message *message);
    void (*tick)(struct sl_coordinator *coordinator, uint64_t now_ns);
    uint64_t (*lease_ns)(const struct sl_coordinator *coordinator);
    void (*welcome)(const struct sl_coordinator *coordinator, struct sl_message_welcome *welcome);
};

struct sl_server_options {
    struct sl_reactor *reactor;
    struct {
        const struct sl_transport_ops *first;
        const struct sl_transport_ops *shm;    /* endpoints shm:// (shared memory); NULL: none */
        const struct sl_transport_ops *bypass; /* rdma:// or dpdk://; NULL: none */
        bool needs_bypass;                     /* fail if it cannot be opened */
        bool only; /* the server has nothing else: no shard, but servers beside it have */
        struct sl_transport_options options; /* for all three; TLS applies to the first only */
    } transports;
    struct sl_shard_options shard; /* without index and count: sl_server_set_shard */
    uint32_t task_index;           /* of this process */
    uint32_t local_index;          /* in the process, for names; first of a reactor: its index */
    /* [server_count]: the first server of each reactor; filled before start. Shard s is on reactor
     * s modulo server_count. */
    struct sl_server *const *servers;
    uint32_t server_count;              /* 0: a scheduler, which has no shards */
    struct sl_coordinator *coordinator; /* on the reactor that hosts it, else NULL */
    const struct sl_server_coordinator_ops *coordinator_ops; /* needed if it may be here */
    /* The coordinator is elected: it may start and stop here later (sl_server_set_coordinator). A
     * peer that asks for it meanwhile gets AGAIN and may retry. */
    bool elects;
    /* A control connection has closed; called before the coordinator is notified. May be NULL. */
    void (*control_gone)(void *ctx, uint64_t peer);
    void *control_gone_ctx;
    size_t buffer_bytes_max; /* requests and replies in memory; 0: 256 MiB */
    size_t kept_bytes_max;   /* control messages that wait for room; 0: 256 MiB */
    uint32_t waiting_max;    /* requests that wait, in total; 0: 65536 */
    uint64_t
        slow_request_ns; /* ps/server/slow_requests.h keeps requests that take as long; 0: none */
    bool checksum;       /* add checksums to replies even if the client did not ask */
    const struct sl_secret *secret; /* outlives the server; NULL: none required */
    /* Clients that prove it instead may change tables by hand; NULL: all may. */
    const struct sl_secret *operator_secret;
    uint64_t incarnation; /* of the process: random at its start */
    bool restores;        /* welcome no client before sl_server_start_serving (restore.h) */

    struct sl_server_cells *cells; /* zeroed, outlive the server; NULL: a block of its own */

    /* A server of the same reactor whose transports, memory and connections this one shares
     * (host.h); NULL: it creates them, as these options say. */
    struct sl_server *beside;

    /* Of shards with backups, or that may move: sl_replication_hooks of
     * ps/replication/replication.h; NULL: none. */
    const struct sl_server_hooks *hooks;
    const struct sl_replication_options *replication; /* for the hooks; read during creation */
};

/* Call on the reactor's thread. If the shm transport cannot be opened, the server logs this and
 * works without it; likewise the bypass transport, unless needs_bypass. Errors: NO_MEMORY,
 * UNSUPPORTED; those of opening a transport. */
int sl_server_create(const struct sl_server_options *options, struct sl_server **out);

/* Returns true when a bypass transport is open. */
bool sl_server_has_bypass(const struct sl_server *server);

/* Listens on an endpoint; may be called for several (control, data, shm, rdma or dpdk). *bound: the
 * endpoint with the chosen port. Errors: those of sl_transport_listen, UNSUPPORTED (shm:// or
 * rdma:// without such a transport), NO_MEMORY. */
int sl_server_listen(struct sl_server *server, const struct sl_endpoint *endpoint,
                     struct sl_endpoint *bound);

/* Sets the cluster's numbering: this shard is `index` of `count`. Until then data connections wait
 * for their welcome. Once. Errors: NO_MEMORY. */
int sl_server_set_shard(struct sl_server *server, uint32_t index, uint32_t count);

/* Sets the task index of this process. Before sl_server_set_shard. */
void sl_server_set_task(struct sl_server *server, uint32_t task_index);

/* Sets how long a session survives without a connection; its worker's clock counts meanwhile.
 * Before sl_server_set_shard; default SL_SERVER_LEASE_DEFAULT_NS. */
void sl_server_set_lease(struct sl_server *server, uint64_t lease_ns);

/* Starts to use a coordinator on this reactor, which has the control connections. NULL: stops,
 * disconnects the members, and never calls it again. With option `elects`. */
void sl_server_set_coordinator(struct sl_server *server, struct sl_coordinator *coordinator);

/* Sets the name and endpoint of the coordinator's host, for peers that look for it here; "":
 * unknown. Copied. With option `elects`. */
void sl_server_set_leader(struct sl_server *server, const char *name, const char *endpoint);

/* Changes the limit of the memory of the tables; rows beyond a lower one stay. */
void sl_server_set_memory_limit(struct sl_server *server, size_t bytes_max);

/* Replaces a handler without `handle`, for which requests wait; NULL: the tables add pushes up. */
void sl_server_set_handler(struct sl_server *server, const struct sl_kv_handler *handler);

/* Returns true when the shard exists and has tables. */
bool sl_server_has_tables(const struct sl_server *server);

/* The coordinator reports that a worker expired or was replaced: discards that client's session,
 * closes its connection, and stops counting its clock. */
void sl_server_on_expired(struct sl_server *server, const struct sl_message_expired *expired);

/* The same from another reactor: `from` is the caller's, to_index the server's. *server is read
 * there; NULL: it has ended. Never fails: without memory the report lacks its reason. */
void sl_server_post_expired(struct sl_server *const *server, struct sl_reactor *from,
                            uint32_t to_index, const struct sl_message_expired *expired);

/* Returns true when some worker is connected or may still resume its session: it has neither left
 * nor expired. */
bool sl_server_has_worker(const struct sl_server *server);

/* Returns true when the job is not over: there is a worker, or departed workers had not finished.
 * Recorded in checkpoints. */
bool sl_server_job_continues(const struct sl_server *server);

/* The coordinator's `send` and `close` (ctx is ignored): peers are connections of the server that
 * hosts it. */
void sl_server_send_to_peer(void *ctx, uint64_t peer, const struct sl_message *message);
void sl_server_close_peer(void *ctx, uint64_t peer, const char *why);

/* Returns counters of the server, its shard and its backup. Free *out's `tables` as sl_message_fini
 * does. Errors: NO_MEMORY. */
int sl_server_stats(const struct sl_server *server, struct sl_message_stats *out);

/* Stops accepting, answers what was received, and says goodbye. Requests that wait for clocks, and
 * later ones, are answered CANCELLED. Calls drained(ctx) in a later turn, when the last connection
 * is closed or timeout_ns has passed. Once. */
void sl_server_drain(struct sl_server *server, uint64_t timeout_ns, void (*drained)(void *ctx),
                     void *ctx);

/* Another server serves the shard now: stops executing and answering, and closes the connections.
 * Then calls retired(ctx) in a later turn, which may destroy the server. Once, not with
 * sl_server_drain. */
void sl_server_retire(struct sl_server *server, void (*retired)(void *ctx), void *ctx);

/* Frees the server, and sets *server to NULL. The first server of a reactor closes all connections
 * of the reactor before. Another one must have retired, or be destroyed after the first. */
void sl_server_destroy(struct sl_server **server);

#endif
