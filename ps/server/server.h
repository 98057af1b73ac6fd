/* The server of one ps reactor: wire -> shard -> wire. Accepts connections (on the reactor that
 * listens), reads the hello, hands the connection to the reactor that owns the shard it names, and
 * from then on serves its requests there: in order, except that a parked pull lets later requests
 * pass. Reactor 0 of ps task 0 also hosts the coordinator.
 *
 * A request that can be answered at once is, in the upcall that received it, straight into the
 * outgoing block. Others (too long for what is left of the turn, behind others of its connection,
 * or waiting for clocks) are queued; a source of the reactor goes round the connections, a slice
 * each. A queued or parked request whose deadline passes is answered DEADLINE; one that has begun
 * is finished. A parked request lets later ones pass, but if it writes, no later one that writes.
 *
 * Sessions: what a client has done outlives its connection by a lease. A client that connects again
 * with its client_id takes its old connection's place; requests that had begun to write go on and
 * are answered on the new connection when their id comes again; requests that were carried out are
 * not carried out twice (server_session.h).
 *
 * Memory: half of buffer_bytes_max for replies (the outbox), half for requests that wait and
 * replies that take several turns (server_buffers.h). When that is short, long requests are not
 * read until there is room; short ones, and more parked ones than half of it holds, are answered
 * NO_MEMORY; of those parked, clients that are away may have a quarter. A long request finds room
 * while a quarter is free, in the order in which connections asked; but only while half is, for a
 * connection that has another in memory. Half of the outbox is left to connections that have no
 * unsent replies. Control messages have an outbox of their own, and wait for room there.
 *
 * Shared memory: connections of the local transport have an outbox and reply buffers of their own,
 * half as much again, which their peers read without a copy. A long push that is carried out at
 * once is read where the client has it; only what is checked of it, all but its values, is copied
 * before. Where the client says where its answer shall lie, it is made there.
 *
 * RDMA, DPDK: connections of the fast transport use the outbox and the buffers of the first one's,
 * which are registered with it.
 *
 * Backups: where the process has them, what is acknowledged to a client is on two servers of two
 * processes: server_replica.h.
 *
 * Peers that stop: a connection with unsent frames, of which nothing was taken for 10 s, is closed;
 * after 4 s while others wait for the memory. One of whose frame nothing more comes for 10 s is
 * closed by the transport. A frame may take longer in total, as on a crowded link: 10 minutes at
 * most, which count from when it found room. A frame that waits for room is given all the time. The
 * peer connects again, and goes on. Owner reactor, unless said otherwise. */
#ifndef SL_PS_SERVER_SERVER_H
#define SL_PS_SERVER_SERVER_H

#include "core/clock.h"
#include "core/endpoint.h"
#include "core/secret.h"
#include "net/control/message.h"
#include "net/transport.h"
#include "ps/shard/shard.h"

#define SL_SERVER_LEASE_DEFAULT_NS (10 * SL_CLOCK_NS_PER_S)

/* What one frame may take that gets on: to be received once it has memory, or to be sent. All the
 * memory that 16 reactors have for such frames is filled in half of that by a link of 50 Mbit/s. */
#define SL_SERVER_FRAME_NS         (600 * SL_CLOCK_NS_PER_S)

struct sl_server;
struct sl_coordinator;

/* The coordinator, as the server on its reactor calls it. The server passes members' messages on
 * and keeps the coordinator's clock going; `peer` is the server's name of a connection. Each
 * function is the one of that name in ps/coordinator/coordinator.h. */
struct sl_server_coordinator_ops {
    int (*hello)(struct sl_coordinator *coordinator, uint64_t peer,
                 const struct sl_message_hello *hello, uint64_t now_ns, char *reason,
                 size_t reason_bytes);
    uint32_t (*task_index)(const struct sl_coordinator *coordinator, uint64_t peer);
    void (*message)(struct sl_coordinator *coordinator, uint64_t peer,
                    const struct sl_message *message, uint64_t now_ns);
    void (*gone)(struct sl_coordinator *coordinator, uint64_t peer, bool expected, uint64_t now_ns);
    void (*tell)(struct sl_coordinator *coordinator, uint64_t peer,
                 const struct sl_message *message);
    void (*tick)(struct sl_coordinator *coordinator, uint64_t now_ns);
    uint64_t (*lease_ns)(const struct sl_coordinator *coordinator);
};

/* What the coordinator has said of a shard and its backup, for one of the two servers that have it.
 */
struct sl_replica_config {
    uint64_t epoch;  /* what it says is so until a later one */
    bool is_primary; /* this server serves the shard; else it has the backup, or neither */
    bool has_backup; /* of a primary; with it: */
    uint32_t backup_task;
    uint32_t backup_shard; /* among the shards of that process */
    struct sl_endpoint backup;
};

struct sl_server_options {
    struct sl_reactor *reactor;
    const struct sl_transport_ops *transport;
    /* A second one, for endpoints shm://, whose connections share memory; NULL: none. */
    const struct sl_transport_ops *shm;
    /* A third one, for endpoints rdma:// or dpdk://, by which a device fetches and delivers; NULL:
     * none. */
    const struct sl_transport_ops *bypass;
    bool needs_bypass;                             /* it is an error if that cannot be opened */
    struct sl_transport_options transport_options; /* of all; TLS is the first one's */
    struct sl_shard_options shard;    /* index and count come with sl_server_set_shard */
    uint32_t task_index;              /* of the ps process */
    uint32_t local_index;             /* of the shard within this process = of the reactor */
    struct sl_server *const *servers; /* all of the process, by local_index; filled before start */
    uint32_t server_count;            /* 0: a scheduler, which has no shards */
    struct sl_coordinator *coordinator; /* on the reactor that hosts it, else NULL */
    const struct sl_server_coordinator_ops
        *coordinator_ops; /* needed with `coordinator`, `elects` */
    bool elects; /* it may come later, and go: sl_server_set_coordinator. Who looks for it while it
                  * is not here may try again */
    /* A connection of a member of the coordinator's is gone; before the coordinator hears of it.
     * May be NULL. */
    void (*control_gone)(void *ctx, uint64_t peer);
    void *control_gone_ctx;
    size_t buffer_bytes_max;        /* requests and replies in memory; 0: 256 MiB */
    size_t kept_bytes_max;          /* control messages that wait for room; 0: 256 MiB */
    size_t log_bytes_max;           /* outbox of the log for the backup; 0: 16 MiB */
    uint32_t waiting_max;           /* requests that wait, of all; 0: 65536 */
    bool checksum;                  /* checksum replies even when the client did not ask */
    const struct sl_secret *secret; /* outlives the server; NULL: none is asked for */
    uint64_t incarnation;           /* of the process: random at its start */
    bool restores; /* nobody is welcomed before sl_server_start_serving (ps/server/restore.h) */

    /* With backups (ps/replication/replication.h). `servers` has as many again behind the process's
     * own: the backups of another's, which begin as such. */
    bool has_replica;
    uint32_t
        catch_up_budget; /* that a turn spends on the image for a backup; 0: as many as on others */
    /* As a primary: the backup is in step, and acknowledges what this one does, from before the
     * call until another epoch; or it will not be in this epoch, and the coordinator shall begin
     * another. From inside a turn. */
    void (*replica_state_changed)(void *ctx, uint32_t local_index, uint64_t epoch, bool in_sync);
    /* The coordinator has given to another what is here, or the reverse, and this process must not
     * go on; logged. */
    void (*replica_failed)(void *ctx, int err);
    void *replica_ctx;
};

/* On the reactor's thread. A local transport that cannot be opened is logged: the server does
 * without; so is a fast one, unless it is needed. Errors: NO_MEMORY, UNSUPPORTED; those of opening
 * a transport. */
int sl_server_create(const struct sl_server_options *options, struct sl_server **out);

/* It has a fast transport. */
bool sl_server_has_bypass(const struct sl_server *server);

/* Listens; several endpoints are possible (control, data, shm, rdma or dpdk). *bound: the port
 * chosen. Errors: those of sl_transport_listen, UNSUPPORTED (shm:// without a local transport,
 * rdma:// without a fast one), NO_MEMORY. */
int sl_server_listen(struct sl_server *server, const struct sl_endpoint *endpoint,
                     struct sl_endpoint *bound);

/* The cluster's numbering is known now: this shard is `index` of `count`. Until then data
 * connections wait for their welcome. Once. Errors: NO_MEMORY. */
int sl_server_set_shard(struct sl_server *server, uint32_t index, uint32_t count);

/* This process has learnt which task it is. Before sl_server_set_shard. */
void sl_server_set_task(struct sl_server *server, uint32_t task_index);

/* How long a client may be without a connection and still go on where it was; its worker's clock
 * counts meanwhile. Before sl_server_set_shard; SL_SERVER_LEASE_DEFAULT_NS without. */
void sl_server_set_lease(struct sl_server *server, uint64_t lease_ns);

/* With `elects`. The coordinator is here from now on; or, NULL, not any more: its members are
 * disconnected, and it is not called again. The reactor that has the control connections. */
void sl_server_set_coordinator(struct sl_server *server, struct sl_coordinator *coordinator);

/* With `elects`: who hosts it, and where, for those who look for it here; "": nobody. Copied. */
void sl_server_set_leader(struct sl_server *server, const char *name, const char *endpoint);

/* Whether its shard is known and has tables. */
bool sl_server_has_tables(const struct sl_server *server);

/* The coordinator says that a worker is lost, or was replaced: forgets what it knows of that
 * client, closes its connection, and its clock counts no more. */
void sl_server_on_expired(struct sl_server *server, const struct sl_message_expired *expired);

/* Likewise from another reactor, `from`, which is the caller's; `to_index` is the server's. It
 * never fails: without memory the report goes without its reason. */
void sl_server_post_expired(struct sl_server *server, struct sl_reactor *from, uint32_t to_index,
                            const struct sl_message_expired *expired);

/* Some worker has a connection, or may still come back to what it has done: it has neither left nor
 * been away for a lease. */
bool sl_server_has_worker(const struct sl_server *server);

/* The job is not over: it has a worker, or workers that are gone had not finished. What a
 * checkpoint says of it. */
bool sl_server_job_continues(const struct sl_server *server);

/* The coordinator's `send` and `close` (their ctx is ignored): peers are connections of the server
 * that hosts it. */
void sl_server_send_to_peer(void *ctx, uint64_t peer, const struct sl_message *message);
void sl_server_close_peer(void *ctx, uint64_t peer, const char *why);

/* Counters of the server, its shard and, with replicas, its backup; *out needs sl_message_fini's
 * freeing of `tables`. Errors: NO_MEMORY. */
int sl_server_stats(const struct sl_server *server, struct sl_message_stats *out);

/* Stops accepting, answers what was received, says goodbye; requests that wait for clocks and those
 * that still come are answered CANCELLED. `drained(ctx)` is called, in a later turn, when the last
 * connection is closed or timeout_ns has passed. Once. */
void sl_server_drain(struct sl_server *server, uint64_t timeout_ns, void (*drained)(void *ctx),
                     void *ctx);

/* Closes what is still open. Nulls *server. */
void sl_server_destroy(struct sl_server **server);

#endif
