/* Declarations shared by the files of the server, and called by ps/replication. Owner reactor. */
#ifndef SL_PS_SERVER_INTERNAL_H
#define SL_PS_SERVER_INTERNAL_H

#include "core/log.h"
#include "core/pool.h"
#include "net/credit.h"
#include "net/outbox.h"
#include "ps/server/buffers.h"
#include "ps/server/hooks.h"
#include "ps/server/server.h"
#include "ps/server/session.h"

/* Cost that one request may spend before the next connection runs, and that all sliced requests
 * together may spend in a turn. Bounds the wait of small requests. */
#define SL_SERVER_SLICE_KEYS    512
#define SL_SERVER_SLICED_KEYS   1024

/* A turn that answered small requests of at most this cost leaves the slices to the next turn, so
 * that the replies leave first. A turn that answered more is long in any case. */
#define SL_SERVER_YIELD_KEYS    512

/* Speed of a pull of a dense array, which only copies, relative to other work of the same cost. */
#define SL_SERVER_DENSE_PULL    4

/* A request with a higher push cost is sliced even if it fits into the turn: a push takes three
 * times as long as a pull of the same cost. */
#define SL_SERVER_PUSH_KEYS     2048

/* The same limit over shared memory, without a copy: the size that clients send in one piece. */
#define SL_SERVER_SHM_PUSH_KEYS 4608
#define SL_SERVER_SHM_BYTES     ((1U << 20) + (64U << 10))

/* Part of a turn that is reserved for runnable requests. */
#define SL_SERVER_BACKLOG_COST  (SL_LIMIT_TURN_COST / 2)

/* A queued request of at most this cost runs unsliced even if less is left of the turn. */
#define SL_SERVER_OVERDRAW_KEYS 512

/* A connection that has not sent its hello and proved the secret by then is closed. */
#define SL_SERVER_HELLO_NS      (10 * SL_CLOCK_NS_PER_S)

struct sl_server_request;

struct sl_server_request_list {
    struct sl_server_request *first, *last;
};

/* A request that was not answered in the upcall that received it. Until it is answered, exactly one
 * list holds it: its connection's queue, or the server's parked or resumed requests. On a backup:
 * an entry of the primary's log. */
struct sl_server_request {
    struct sl_server_request *prev, *next;
    struct sl_server_request_list *list; /* NULL: being sent, or held by the log */
    struct sl_server *server;
    /* NULL: ended (a push in progress completes), or held by the log */
    struct sl_server_session *session;
    /* Connection of the session. NULL: closed; the request has begun to write and continues as the
     * session's orphan. */
    struct sl_server_conn *conn;
    struct sl_timer deadline;
    uint64_t id, half_ns; /* half_ns: when half of its time is over */
    uint64_t credit_bytes;
    uint8_t *payload;
    uint32_t payload_bytes;
    uint8_t *reply;        /* made over several turns */
    uint8_t *reply_buffer; /* direct reply buffer, used instead while connected; NULL: none */
    bool started;
    bool streams;     /* the first chunk of the reply was sent */
    bool done;        /* the reply is complete and waits for room in the outbox */
    bool overtaken;   /* was parked or orphaned: later requests may have run first */
    bool is_long;     /* the payload arrived in a sink */
    bool is_runnable; /* waits only for its turn */
    struct sl_shard_exec work;
    /* Sections that took effect before the session ended, without those in the backup's
     * snapshot. */
    uint32_t effect_first, effect_end;
};

/* A received request before it runs or is queued. */
struct sl_server_incoming {
    const struct sl_transport_message *message;
    const uint8_t *payload; /* in memory that no peer can write */
    uint32_t payload_bytes;
    uint32_t values_bytes;
    const uint8_t *values; /* in the sender's memory or copied; NULL: part of the payload */
    uint8_t *reply_buffer; /* direct reply buffer of the sender; NULL: none */
};

/* Returns true for a write that was not applied before. */
static inline bool sl_server_request_writes(const struct sl_shard_exec *work)
{
    return work->writes && !work->replayed;
}

/* A small pull that is answered together with others of the same turn. */
struct sl_server_pull {
    struct sl_server_conn *conn;         /* NULL: closed since */
    struct sl_transport_message message; /* owned until answered */
    uint32_t reply_bytes;
    uint16_t key_count;
    uint16_t table_id;
};
static_assert(sizeof(struct sl_server_pull) == 64, "a pull is a cache line");

#define SL_SERVER_PULLS SL_OUTBOX_RUN_FRAMES_MAX

/* Pulls in order of arrival; their keys are contiguous. */
struct sl_server_pull_batch {
    uint32_t count, key_count;
    uint32_t cost; /* of all pulls */
    struct sl_server_pull pulls[SL_SERVER_PULLS];
    uint64_t keys[SL_SHARD_PULLS_KEYS];
};

/* Returns how many times faster the request's section runs than others of its cost: dense and KV
 * pulls only copy. */
static inline uint32_t sl_server_request_speed(const struct sl_server_request *request)
{
    const struct sl_shard_exec *work = &request->work;
    const uint8_t op = work->view.section.op;
    bool copies = work->in_section && (op == SL_REQUEST_DENSE_PULL || op == SL_REQUEST_KV_PULL);
    return copies ? SL_SERVER_DENSE_PULL : 1;
}

enum sl_server_conn_kind {
    SL_SERVER_CONN_NEW,        /* no hello yet */
    SL_SERVER_CONN_CHALLENGED, /* hello received, must prove the secret */
    SL_SERVER_CONN_WAITING,    /* admitted to a shard that is being restored */
    SL_SERVER_CONN_REFUSED,    /* refused or dismissed, being closed */
    SL_SERVER_CONN_CONTROL,    /* member of the coordinator */
    SL_SERVER_CONN_DATA,       /* client of the shard */
    SL_SERVER_CONN_PRIMARY,    /* primary of the backup here */
};

/* Control messages that wait for room in the outbox. */
struct sl_server_pending_message;
struct sl_server_shared_payload;

struct sl_server_conn {
    struct sl_server_conn *prev, *next; /* all of the server */
    struct sl_server *server;           /* NULL while migrating */
    struct sl_conn *conn;
    struct sl_outbox *outbox; /* the server's, for replies or for control messages */
    bool uses_shm;            /* connected over shared memory */
    struct sl_outbox_queue out;
    enum sl_server_conn_kind kind;
    struct sl_message_hello hello;
    uint64_t hello_id;
    char name[SL_MESSAGE_NAME_BYTES]; /* for logs and errors: "worker/3", "client" */
    bool welcomed;
    bool said_goodbye;
    struct sl_timer hello_timer;
    uint64_t hello_until_ns;
    uint8_t challenge[SL_MESSAGE_NONCE_BYTES];
    struct sl_server_pending_message *later_first, *later_last;
    uint32_t pending_count;
    /* Connections of the same outbox with pending messages. */
    struct sl_server_conn *later_prev, *later_next;

    /* For admission.c: */
    bool progressed;        /* a frame was sent since the last check */
    uint64_t taken_bytes;   /* of the transport's connection, at the last check */
    uint8_t unsent_checks;  /* in a row: unsent output, no byte taken */
    uint16_t frame_looks;   /* in a row: unsent output, no frame sent */
    uint16_t sink_checks;   /* since the sink was allocated */
    uint8_t *sink;          /* of a long payload that is being received */
    uint32_t long_requests; /* in memory, whose payload came in a sink */
    bool waits_for_sink;
    struct sl_server_conn *sink_prev, *sink_next; /* connections that wait for a sink */

    /* Kind DATA: */
    bool has_pulls;                    /* in the server's batch */
    struct sl_server_session *session; /* NULL: before the hello, or replaced */
    bool resumed;
    struct sl_credit credit; /* left to the peer */
    uint64_t request_id_last;
    struct sl_server_request_list queue; /* only the first may have started */
    bool is_ready;                       /* in the server's ready ring */
    struct sl_server_conn *ready_next;   /* in that ring */
};

struct sl_server_line {
    struct sl_server_conn *first, *last;
};

struct sl_server {
    struct sl_server_options options;
    struct sl_transport *transport;
    struct sl_transport *shm, *bypass; /* NULL: none */
    struct sl_outbox replies, control;
    struct sl_server_buffers buffers;
    /* For replies over shared memory, created on first use: */
    bool has_shm_memory;
    struct sl_outbox shm_replies;
    struct sl_server_buffers shm_buffers; /* replies only */
    struct sl_pool requests;              /* of struct sl_server_request */
    struct sl_shard *shard;               /* NULL until the cluster's numbering is known */
    struct sl_server_role role;
    struct sl_replication *replica; /* of ps/replication; NULL: no replicas */
    uint32_t payload_bytes_max;     /* of a request */
    struct sl_reactor_source source;
    struct sl_timer coordinator_timer;
    /* Host of the coordinator, if elsewhere; "": unknown. */
    char leader_name[SL_MESSAGE_NAME_BYTES];
    char leader_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    struct sl_server_conn *conns;
    uint32_t conn_count;
    struct sl_server_sessions sessions;

    /* Connections with control messages that wait for room in an outbox. */
    struct sl_server_line later_control, later_replies, later_shm;
    uint32_t pending_count;                     /* of these connections */
    struct sl_server_shared_payload *text_last; /* the last payload kept: the next is often equal */
    size_t later_bytes;

    struct sl_timer watch_timer; /* armed while there are connections or memory to return */
    struct sl_server_conn *watch_next;
    struct sl_server_line sink_waiters;
    size_t reply_bytes; /* of `buffers`: replies being made or sent */
    bool is_short;      /* a first reply or a long payload found no room */

    struct sl_server_pull_batch pulls;
    struct sl_server_conn *ready_first, *ready_last;
    struct sl_server_request_list parked, resumed;
    uint32_t runnable_count; /* in the ready ring, and resumed */
    uint32_t crowded_count;  /* queued requests that are runnable: new ones run after them */
    size_t parked_bytes;     /* of buffers */
    size_t orphan_bytes;     /* those of disconnected clients */
    bool blocked;            /* all runnable requests wait for memory */
    uint32_t budget_left;    /* of this turn */
    bool resume_next;        /* take a resumed request next, else one of the ring */
    bool yielded;            /* the previous turn left its slices to this one */

    struct sl_server_checkpoint *checkpoint; /* NULL: no checkpoints */
    struct sl_server_restore *restore;       /* NULL: no restore in progress */
    bool is_restored;                        /* the shard started from a checkpoint */
    bool is_open;                            /* clients are welcomed once there is a shard */
    bool writes_fenced;                      /* no more writes */
    /* Operations that may have changed a table, except rows created by pulls. */
    uint64_t write_count;

    bool draining;
    bool goodbye_said;
    struct sl_timer drain_timer;
    void (*drained)(void *ctx);
    void *drained_ctx;

    struct sl_log_limit log_limit;
    uint64_t lease_ns;
    uint64_t request_count, failure_count;
};

/* Returns true when the request waits for room in the log. */
static inline bool sl_server_request_waits_for_log(const struct sl_server_request *request)
{
    return request->server->role.log_room != SL_SERVER_LOG_HAS_ROOM && !request->started &&
           sl_server_request_writes(&request->work);
}

extern const struct sl_transport_events sl_server_events;

/* server.c */

/* Logs the reason, then closes the connection. */
void sl_server_drop(struct sl_server_conn *conn, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Logs a line about a peer, rate-limited. */
void sl_server_log(struct sl_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Releases a frame's memory in the transport and the sink, unless a request has taken the sink. */
void sl_server_release(struct sl_server_conn *conn, const struct sl_transport_message *message);

/* Migrates the connection to another reactor's server. On error the transport then reports `closed`
 * here. */
int sl_server_migrate(struct sl_server_conn *conn, struct sl_server *to);

/* Memory was freed: requests that wait for it may try again. */
static inline void sl_server_unblock(struct sl_server *server)
{
    server->blocked = false;
}

/* control_out.c */

/* Sends a control message, now or when there is room. Closes a connection with too many unsent
 * answers. */
void sl_server_send(struct sl_server_conn *conn, const struct sl_message *message);

/* Sends an Error message. */
void sl_server_send_error(struct sl_server_conn *conn, uint64_t id, int err, const char *text);

/* The outbox has room again: sends pending messages. */
void sl_server_send_later(struct sl_server *server, struct sl_outbox *outbox);

static inline bool sl_server_send_waits(const struct sl_server *server)
{
    return server->pending_count > 0;
}

/* The connection has closed: discards its pending messages. */
void sl_server_send_drop(struct sl_server_conn *conn);

void sl_server_send_fini(struct sl_server *server);

/* transports.c */

/* Errors: those of the first transport, and of the bypass transport if it is required. */
int sl_server_transports_open(struct sl_server *server);
void sl_server_transports_close(struct sl_server *server);

/* Returns the server's transport of the connection's kind; NULL: none. All servers of a process
 * use the same three ops tables, one per kind. Any reactor of the process. */
struct sl_transport *sl_server_transports_like(const struct sl_server *server,
                                               const struct sl_conn *conn);

/* Sums up the bytes that all transports have received and sent. */
void sl_server_transports_count(const struct sl_server *server, uint64_t *bytes_in,
                                uint64_t *bytes_out);

/* shm.c */

void sl_server_shm_fini(struct sl_server *server);

/* Creates the memory for replies, unless it exists. Errors: NO_MEMORY, IO. */
int sl_server_shm_begin(struct sl_server *server);

/* Describes a received request. Copies into the connection's sink what the peer could still change:
 * the whole request, or all but the values, which stay in place. */
void sl_server_shm_read(struct sl_server_conn *conn, const struct sl_transport_message *message,
                        struct sl_server_incoming *out);

/* Returns the cost for a turn that starts the request. An array that is only copied, and not into
 * memory that the kernel must then read, runs at the speed of sl_server_request_speed. */
static inline uint64_t sl_server_shm_cost(const struct sl_shard_exec *work)
{
    const uint8_t op = work->view.section.op;
    const bool copies = work->in_section && work->prefix.section_count == 1 &&
                        (op == SL_REQUEST_DENSE_PULL || op == SL_REQUEST_DENSE_PUSH_PULL ||
                         op == SL_REQUEST_KV_PULL || op == SL_REQUEST_KV_PUSH_PULL);
    const uint64_t pull_cost = work->cost - work->push_cost;
    return work->push_cost + (copies ? pull_cost / SL_SERVER_DENSE_PULL : pull_cost);
}

/* Returns true when a long request should stay with its sender until the next turn. */
bool sl_server_shm_is_late(const struct sl_server_conn *conn, uint32_t bytes);

/* The request must wait: appends its values to the copied structure, since the sender may reuse its
 * memory when the connection ends. They still count as out of line: their padding was not checked,
 * and is not checked now. */
void sl_server_shm_take(struct sl_server_conn *conn, struct sl_server_incoming *incoming);

/* Returns the buffers for multi-turn replies to the connection; conn NULL: for an orphan. */
static inline struct sl_server_buffers *sl_server_shm_buffers(struct sl_server *server,
                                                              const struct sl_server_conn *conn)
{
    return conn != NULL && conn->uses_shm ? &server->shm_buffers : &server->buffers;
}

/* Returns the buffers that the buffer belongs to. */
static inline struct sl_server_buffers *sl_server_shm_owner(struct sl_server *server,
                                                            const uint8_t *buffer)
{
    return sl_server_buffers_hold(&server->buffers, buffer) ? &server->buffers
                                                            : &server->shm_buffers;
}

/* The request is about to lose its connection: if it continues (goes_on), copies the reply so far
 * from the direct reply buffer. */
void sl_server_shm_take_off(struct sl_server_request *request, bool goes_on);

/* auth.c */

/* The hello was received: admits the connection, at once or after it has proved the secret. */
void sl_server_authenticate(struct sl_server_conn *conn);

/* Handles a message of a challenged connection. */
void sl_server_auth_message(struct sl_server_conn *conn, const struct sl_message *message);

/* admission.c */

/* A connection was added: starts the checks. */
void sl_server_admission(struct sl_server *server);

/* Checks all connections, or as many as one turn allows. */
void sl_server_admission_check(struct sl_server *server);

/* The connection is about to leave the list. */
void sl_server_admission_forget(struct sl_server_conn *conn);

/* Returns memory for a long payload; NULL: none now. */
uint8_t *sl_server_admission_sink(struct sl_server_conn *conn, uint32_t bytes);

/* Reserves outbox room for a reply; NULL: none now. */
uint8_t *sl_server_admission_reserve(struct sl_server_conn *conn, uint32_t bytes);

/* The same for several replies with their headers. */
uint8_t *sl_server_admission_reserve_run(struct sl_server_conn *conn, uint32_t run_bytes,
                                         uint32_t frame_count);

/* The same for the next chunk of a reply; frames that wait behind that reply do not count. */
uint8_t *sl_server_admission_reserve_part(struct sl_server_conn *conn, uint32_t bytes);

/* Allocates memory for a multi-turn reply; false: none now. */
bool sl_server_admission_reply(struct sl_server_request *request);

/* Frees it, if any. */
void sl_server_admission_put_reply(struct sl_server_request *request);

/* control.c */

/* Handles a control frame: the hello, or a later one. */
void sl_server_control(struct sl_server_conn *conn, const struct sl_transport_message *message);

/* Sends both sides' protocol versions to the peer, and closes. */
void sl_server_refuse_version(struct sl_server_conn *conn, uint32_t version);

/* Sends the reason to the peer, and closes. */
void sl_server_refuse(struct sl_server_conn *conn, int err, const char *text);

/* The hello was read; runs on the reactor that the connection is for. */
void sl_server_greet(struct sl_server_conn *conn);

/* The peer is authenticated. */
void sl_server_admit(struct sl_server_conn *conn);

/* The shard's index is known: welcomes the client. */
void sl_server_welcome(struct sl_server_conn *conn);

/* request.c */

/* Handles a request frame. */
void sl_server_request_arrive(struct sl_server_conn *conn,
                              const struct sl_transport_message *message);

/* Runs or queues a request whose credit is spent. */
void sl_server_request_serve(struct sl_server_conn *conn, struct sl_server_incoming *incoming,
                             struct sl_shard_exec *work, uint64_t credit_bytes);

/* Returns the client that sends requests on the connection. */
static inline struct sl_shard_client sl_server_request_client(const struct sl_server_conn *conn)
{
    return (struct sl_shard_client){
        .has_clock = conn->hello.role == SL_MESSAGE_ROLE_WORKER,
        .worker = conn->hello.task_index,
    };
}

/* Returns the header of a reply, which returns the request's credit to the client. */
static inline struct sl_frame sl_server_reply_header(struct sl_server_conn *conn, uint64_t id,
                                                     uint64_t credit_bytes, uint32_t payload_bytes)
{
    sl_credit_grant(&conn->credit, credit_bytes, 1);
    return (struct sl_frame){
        .payload_bytes = payload_bytes,
        .type = SL_FRAME_REPLY,
        .request_id = id,
        .budget_us = sl_shard_clock_min(conn->server->shard),
        .credit_bytes = (uint32_t)credit_bytes,
        .credit_requests = 1,
        .flags = conn->hello.checksum ? SL_FRAME_CHECKSUM : 0,
    };
}

enum sl_server_outcome {
    SL_SERVER_ANSWERED,  /* the request was removed from its list */
    SL_SERVER_CONTINUES, /* run it again; no progress if nothing was spent */
    SL_SERVER_WAITS,     /* for clocks */
};

/* Runs the request if it fits into a cost of `keys`, else a slice of it. *spent: the cost. */
enum sl_server_outcome sl_server_request_run(struct sl_server_request *request, uint32_t keys,
                                             uint32_t *spent);

/* The session's orphan was retried: the connection will get its reply. budget_us and credit_bytes
 * are those of the retry. */
void sl_server_request_adopt(struct sl_server_request *request, struct sl_server_conn *conn,
                             uint32_t budget_us, uint64_t credit_bytes);

/* Answers with an error, which the session records if the request writes, and frees the request. */
void sl_server_request_fail(struct sl_server_request *request, int err, const char *text);

/* The same with DEADLINE. The text says what the request waited for: clocks, or its turn. */
void sl_server_request_fail_late(struct sl_server_request *request, bool waits);

/* The request's session has ended: logs the request's effect and frees the request. */
void sl_server_request_end(struct sl_server_request *request);

/* Frees a request that needs no answer. */
void sl_server_request_free(struct sl_server_request *request);

/* reply_chunks.c: long replies that are made while they are sent */

/* Returns true when the reply to this request, which has not started, is sent in chunks. */
bool sl_server_reply_chunks_fits(const struct sl_server_conn *conn,
                                 const struct sl_shard_exec *work);

/* Returns true when it may start now: a later request must not make part of a step visible in
 * it. */
bool sl_server_reply_chunks_may_begin(const struct sl_server_request *request);

/* Makes and sends the chunks that the connection may have in flight, at a cost of about `keys`. */
enum sl_server_outcome sl_server_reply_chunks_run(struct sl_server_request *request, uint32_t keys,
                                                  uint32_t *spent);

/* pull_batch.c: small pulls that arrive in one turn are answered together */

/* Takes the request if it is a small pull that may run at once. False: handle it separately, after
 * sl_server_pull_batch_before. */
bool sl_server_pull_batch_take(struct sl_server_conn *conn,
                               const struct sl_transport_message *message);

/* Answers all pulls of the batch. */
void sl_server_pull_batch_answer(struct sl_server *server);

/* Call before anything else happens on the connection: answers its earlier pulls. */
static inline void sl_server_pull_batch_before(struct sl_server_conn *conn)
{
    if (conn->has_pulls) {
        sl_server_pull_batch_answer(conn->server);
    }
}

/* The connection has closed: discards its pulls. */
void sl_server_pull_batch_drop(struct sl_server_conn *conn);

/* scheduler.c */

void sl_server_scheduler_init(struct sl_server *server);
void sl_server_scheduler_fini(struct sl_server *server);

/* Returns true when a request of the connection may run at once: none is queued. */
static inline bool sl_server_scheduler_is_free(const struct sl_server_conn *conn)
{
    return conn->queue.first == NULL;
}

/* Queues a request behind the others of its connection; park: the request already waits for
 * clocks. */
void sl_server_scheduler_add(struct sl_server_request *request, bool park);

/* Removes the request from its list. */
void sl_server_scheduler_remove(struct sl_server_request *request);

/* The connection leaves its session: drops its requests, except a write in progress, which becomes
 * the session's orphan. */
void sl_server_scheduler_drop(struct sl_server_conn *conn);

/* Gives an orphan a connection again. */
void sl_server_scheduler_adopt(struct sl_server_request *request, struct sl_server_conn *conn);

/* The session ends: drops its orphan, except that a push in progress completes. */
void sl_server_scheduler_abandon(struct sl_server_session *session);

/* Answers all parked requests with the error. */
void sl_server_scheduler_cancel_parked(struct sl_server *server, int err, const char *text);

/* Drops the request without an answer: the client retries it at the backup. */
void sl_server_scheduler_discard(struct sl_server_request *request);

/* For the log: leave detaches a completed request from its connection; answer queues it to be
 * answered and freed. */
void sl_server_scheduler_leave(struct sl_server_request *request);
void sl_server_scheduler_answer(struct sl_server_request *request);

/* The log has room again: requests that write may continue. */
void sl_server_scheduler_wake(struct sl_server *server);

/* Returns true when no request waits or is in progress. */
bool sl_server_scheduler_is_empty(const struct sl_server *server);

/* checkpoint.c */

struct sl_server_checkpoint;

/* Runs this turn's part of a checkpoint; `keys` are left of the turn. Returns the cost. */
uint32_t sl_server_checkpoint_run(struct sl_server *server, uint32_t keys);

/* Returns true when nothing can be done until an event. */
bool sl_server_checkpoint_is_idle(const struct sl_server *server);

/* Before the shard is destroyed. */
void sl_server_checkpoint_fini(struct sl_server *server);

/* restore.c */

struct sl_server_restore;

/* Loads a slice of what was read. Returns the work done. */
uint32_t sl_server_restore_run(struct sl_server *server);

/* Returns true when nothing can be done until an event. */
bool sl_server_restore_is_idle(const struct sl_server *server);

/* Aborts the restore; otherwise no effect. */
void sl_server_restore_fini(struct sl_server *server);

/* drain.c */

/* Call when a request or connection has ended: continues or completes the drain. */
void sl_server_drain_update(struct sl_server *server);

/* After the goodbyes: closes the connection once all is sent. */
void sl_server_drain_conn(struct sl_server_conn *conn);
/* Refuses a write that arrived too late: CANCELLED, or no answer if the backup will be promoted. */
void sl_server_drain_refuse(struct sl_server_request *request);

#endif
