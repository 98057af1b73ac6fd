/* What the files of the server share; nobody else includes it. Owner reactor. */
#ifndef SL_PS_SERVER_INTERNAL_H
#define SL_PS_SERVER_INTERNAL_H

#include "core/log.h"
#include "core/pool.h"
#include "net/credit.h"
#include "net/outbox.h"
#include "ps/replication/entry.h"
#include "ps/server/buffers.h"
#include "ps/server/server.h"
#include "ps/server/session.h"

/* What one request may spend of a turn before the next connection has its go, and what all those
 * that are done in slices may spend of it: small requests wait for no longer than that. */
#define SL_SERVER_SLICE_KEYS    512
#define SL_SERVER_SLICED_KEYS   1024

/* A turn that has answered so many keys of small requests, or fewer, leaves the slices to the next,
 * so that the answers go out first; one that has answered more is long in any case. */
#define SL_SERVER_YIELD_KEYS    512

/* The keys of a pull of a dense array, which only copies, are done so many times as fast as others.
 */
#define SL_SERVER_DENSE_PULL    4

/* A request that pushes more is done in slices, also when it would fit into the turn: a push takes
 * three times as long as a pull of the same cost. */
#define SL_SERVER_PUSH_KEYS     2048

/* Of one that shares memory, which then need not be copied: what clients send in one piece. */
#define SL_SERVER_SHM_PUSH_KEYS 4608
#define SL_SERVER_SHM_BYTES     ((1U << 20) + (64U << 10))

/* The part of a turn that is theirs while requests wait for their turn only. */
#define SL_SERVER_BACKLOG_COST  (SL_LIMIT_TURN_COST / 2)

/* A request that was queued may use up more than is left of the turn by so much, rather than be
 * cut.
 */
#define SL_SERVER_OVERDRAW_KEYS 512

/* A connection that has not said hello by then, and proved that it has the secret, is closed. */
#define SL_SERVER_HELLO_NS      (10 * SL_CLOCK_NS_PER_S)

struct sl_server_request;

struct sl_server_request_list {
    struct sl_server_request *first, *last;
};

/* A request that was not answered in the upcall that received it. Exactly one list holds it until
 * it is answered: its connection's queue, the server's parked or its resumed ones. */
struct sl_server_request {
    struct sl_server_request *prev, *next;
    struct sl_server_request_list
        *list; /* that holds it; NULL: it is answered, the reply is on its way */
    struct sl_server *server;
    struct sl_server_session *session; /* NULL: it has ended, but a push is not left by half */
    struct sl_server_conn *conn; /* of the session; NULL: closed, but the request has begun to write
                                  * and goes on, as the session's orphan */
    struct sl_timer deadline;
    uint64_t id, half_ns; /* half_ns: when half of its time is over */
    uint64_t credit_bytes;
    uint8_t *payload;
    uint32_t payload_bytes;
    uint8_t *reply;        /* where it takes several turns to make */
    uint8_t *reply_buffer; /* where it is made instead, while there is the connection; or NULL */
    bool started;
    bool streams;     /* the reply has begun to be sent, part by part */
    bool done;        /* the reply is complete; the outbox had no room */
    bool overtaken;   /* it was parked, or orphaned: later requests may have run before it */
    bool is_long;     /* its payload came in a sink */
    bool is_runnable; /* it waits for nothing but its turn */
    struct sl_shard_exec work;
    /* Where there is a log: */
    uint32_t effect_first, effect_end; /* sections that have had an effect when its session ended,
                                        * since the image */
    struct sl_replication_entry entry; /* done, or failed: it waits for the backup */
};

/* A request as it has come: before it runs, or is queued. */
struct sl_server_incoming {
    const struct sl_transport_message *message;
    const uint8_t *payload; /* in memory that nobody else writes */
    uint32_t payload_bytes;
    uint32_t values_bytes;
    const uint8_t *values; /* the rest, where its sender has it, or copied; NULL: there is none */
    uint8_t *reply_buffer; /* where the sender wants the reply; NULL: anywhere */
};

/* It writes, and not for the second time. */
static inline bool sl_server_request_writes(const struct sl_shard_exec *work)
{
    return work->writes && !work->replayed;
}

/* A small pull that has been received, and is answered with the others of its turn. */
struct sl_server_pull {
    struct sl_server_conn *conn;         /* NULL: closed meanwhile */
    struct sl_transport_message message; /* ours until it is answered */
    uint32_t reply_bytes;
    uint16_t key_count;
    uint16_t table_id;
};
static_assert(sizeof(struct sl_server_pull) == 64, "a pull is a cache line");

#define SL_SERVER_PULLS SL_OUTBOX_RUN_FRAMES_MAX

/* In the order of arrival; their keys lie one behind the other. */
struct sl_server_pull_batch {
    uint32_t count, key_count;
    uint32_t cost; /* of all, in keys of the turn */
    struct sl_server_pull pulls[SL_SERVER_PULLS];
    uint64_t keys[SL_SHARD_PULLS_KEYS];
};

/* How many keys' worth of it are done in the time of one of another request: it only copies. */
static inline uint32_t sl_server_request_speed(const struct sl_server_request *request)
{
    const struct sl_shard_exec *work = &request->work;
    const uint8_t op = work->view.section.op;
    bool copies = work->in_section && (op == SL_REQUEST_DENSE_PULL || op == SL_REQUEST_KV_PULL);
    return copies ? SL_SERVER_DENSE_PULL : 1;
}

enum sl_server_conn_kind {
    SL_SERVER_CONN_NEW,        /* has not said hello */
    SL_SERVER_CONN_CHALLENGED, /* has, and must prove that it has the secret */
    SL_SERVER_CONN_WAITING,    /* has, to a shard that is being restored: it waits */
    SL_SERVER_CONN_REFUSED,    /* told why, and being closed */
    SL_SERVER_CONN_CONTROL,    /* a member of the coordinator's */
    SL_SERVER_CONN_DATA,       /* asks the shard */
    SL_SERVER_CONN_PRIMARY,    /* the primary, of the backup that is here */
};

/* Control messages that wait for room in the outbox. */
struct sl_server_pending_message;
struct sl_server_shared_payload;

struct sl_server_conn {
    struct sl_server_conn *prev, *next; /* among all of the server */
    struct sl_server *server;           /* NULL while it is being handed over */
    struct sl_conn *conn;
    struct sl_outbox *outbox; /* of the server: for replies or for control messages */
    bool uses_shm;            /* it is the local transport's */
    struct sl_outbox_queue out;
    enum sl_server_conn_kind kind;
    struct sl_message_hello hello;
    uint64_t hello_id;
    char name[SL_MESSAGE_NAME_BYTES]; /* "worker/3", "client": in messages */
    bool welcomed;
    bool said_goodbye;
    struct sl_timer hello_timer;
    uint64_t hello_until_ns;
    uint8_t challenge[SL_MESSAGE_NONCE_BYTES];
    struct sl_server_pending_message *later_first, *later_last;
    uint32_t pending_count;
    struct sl_server_conn *later_prev, *later_next; /* among those of its outbox that have some */

    /* For server_watch.c: */
    bool progressed;        /* a frame was sent since the last look */
    uint64_t taken_bytes;   /* of the transport's connection, at the last look */
    uint8_t unsent_checks;  /* in a row that found it with output, and nothing taken */
    uint16_t frame_looks;   /* likewise, and no frame sent */
    uint16_t sink_checks;   /* since its sink was given */
    uint8_t *sink;          /* for a long payload that is being received */
    uint32_t long_requests; /* that came in a sink, and are in memory still */
    bool waits_for_sink;
    struct sl_server_conn *sink_prev, *sink_next; /* among those that wait */

    /* DATA: */
    bool has_pulls;                    /* in the server's pulls */
    struct sl_server_session *session; /* NULL: before its hello, and when it was replaced */
    bool resumed;
    struct sl_credit credit; /* that the peer may still spend */
    uint64_t request_id_last;
    struct sl_server_request_list queue; /* not begun, but perhaps the first */
    bool is_ready;                       /* in the server's ring of those with something to run */
    struct sl_server_conn *ready_next;   /* there */
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
    /* Those of the local transport's connections, when it has had one: */
    bool has_shm_memory;
    struct sl_outbox shm_replies;
    struct sl_server_buffers shm_buffers; /* only replies */
    struct sl_pool requests;              /* of struct sl_server_request */
    struct sl_shard *shard;               /* NULL until the cluster's numbering is known */
    struct sl_replication *replica;       /* NULL: without backups */
    struct sl_reactor_source source;
    struct sl_timer coordinator_timer;
    char leader_name[SL_MESSAGE_NAME_BYTES]; /* who hosts it elsewhere; "": nobody is known */
    char leader_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    struct sl_server_conn *conns;
    uint32_t conn_count;
    struct sl_server_sessions sessions;

    /* Connections that have control messages waiting for room in an outbox. */
    struct sl_server_line later_control, later_replies, later_shm;
    uint32_t pending_count; /* of those connections */
    struct sl_server_shared_payload
        *text_last; /* the last that was kept: the next is often the same */
    size_t later_bytes;

    struct sl_timer watch_timer; /* armed while there are connections */
    struct sl_server_conn *watch_next;
    struct sl_server_line sink_waiters;
    size_t reply_bytes; /* of `buffers`: replies in the making, and being sent */
    bool is_short;      /* one found no room for his first reply or long payload */

    struct sl_server_pull_batch pulls;
    struct sl_server_conn *ready_first, *ready_last;
    struct sl_server_request_list parked, resumed;
    uint32_t runnable_count; /* in the ready ring, and resumed */
    uint32_t crowded_count;  /* queued requests that are crowded: who comes now comes after them */
    size_t parked_bytes;     /* of buffers */
    size_t orphan_bytes;     /* of those, of clients that are away */
    bool blocked;            /* all that could run wait for memory: until some is given back */
    uint32_t budget_left;    /* left of this turn's budget */
    bool resume_next;        /* whose turn it is: resumed ones or the ring */
    bool yielded;            /* slices were left to this turn by the one before */

    struct sl_server_checkpoint *checkpoint; /* NULL: it makes none */
    struct sl_server_restore *restore;       /* NULL: nothing is being restored */
    bool is_restored;                        /* the shard has begun from a checkpoint */
    bool is_open;                            /* clients are welcomed as soon as there is a shard */
    bool writes_fenced;                      /* nothing is written any more */
    uint64_t write_count; /* of what may have changed a table but for rows that a pull makes */

    bool draining;
    bool goodbye_said;
    struct sl_timer drain_timer;
    void (*drained)(void *ctx);
    void *drained_ctx;

    struct sl_log_limit log_limit;
    uint64_t lease_ns;
    uint64_t request_count, failure_count;
};

extern const struct sl_transport_events sl_server_events;

/* ---- server.c ---- */

/* Logs why, then closes the connection. */
void sl_server_drop(struct sl_server_conn *conn, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Logs about a peer, rate-limited. */
void sl_server_log(struct sl_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Gives a frame's memory back, wherever it lies, unless a request has taken it over. */
void sl_server_release(struct sl_server_conn *conn, const struct sl_transport_message *message);

/* Gives the connection to another reactor's server; on error `closed` follows here. */
int sl_server_migrate(struct sl_server_conn *conn, struct sl_server *to);

/* Memory came back: what waits for it may try again. */
static inline void sl_server_unblock(struct sl_server *server)
{
    server->blocked = false;
}

/* ---- server_send.c ---- */

/* Sends a control message, now or when there is room; closes a connection that has too many answers
 * waiting already. */
void sl_server_send(struct sl_server_conn *conn, const struct sl_message *message);

/* Sends an Error. */
void sl_server_send_error(struct sl_server_conn *conn, uint64_t id, int err, const char *text);

/* There is room in the outbox again: sends what waits for it. */
void sl_server_send_later(struct sl_server *server, struct sl_outbox *outbox);

static inline bool sl_server_send_waits(const struct sl_server *server)
{
    return server->pending_count > 0;
}

/* The connection has closed: forgets what it has yet to be sent. */
void sl_server_send_drop(struct sl_server_conn *conn);

/* Of the server. */
void sl_server_send_fini(struct sl_server *server);

/* ---- server_transports.c ---- */

/* Errors: those of the first transport, and of one that is needed. */
int sl_server_transports_open(struct sl_server *server);
void sl_server_transports_close(struct sl_server *server);

/* The server's transport of the connection's kind; NULL: it has none. The ops of all servers of a
 * process are the same, and each is of another kind. Any reactor of the process. */
struct sl_transport *sl_server_transports_like(const struct sl_server *server,
                                               const struct sl_conn *conn);

/* What all of them have received and sent. */
void sl_server_transports_count(const struct sl_server *server, uint64_t *bytes_in,
                                uint64_t *bytes_out);

/* ---- server_local.c: connections that share memory ---- */

void sl_server_shm_fini(struct sl_server *server);

/* Makes the memory for their replies, unless it is there. Errors: NO_MEMORY, IO. */
int sl_server_shm_begin(struct sl_server *server);

/* What the request consists of. What its sender may still write is copied to the connection's sink,
 * all of it or all but the values, which stay where they are. */
void sl_server_shm_read(struct sl_server_conn *conn, const struct sl_transport_message *message,
                        struct sl_server_incoming *out);

/* What it costs of a turn that begins it: an array that is only copied, and not to where the
 * system has to take it up, is done as fast as sl_server_request_speed says. */
static inline uint64_t sl_server_shm_cost(const struct sl_shard_exec *work)
{
    const uint8_t op = work->view.section.op;
    const bool copies = work->in_section && work->prefix.section_count == 1 &&
                        (op == SL_REQUEST_DENSE_PULL || op == SL_REQUEST_DENSE_PUSH_PULL ||
                         op == SL_REQUEST_KV_PULL || op == SL_REQUEST_KV_PUSH_PULL);
    const uint64_t pull_cost = work->cost - work->push_cost;
    return work->push_cost + (copies ? pull_cost / SL_SERVER_DENSE_PULL : pull_cost);
}

/* True when it is better to leave a long request with its sender until the next turn. */
bool sl_server_shm_is_late(const struct sl_server_conn *conn, uint32_t bytes);

/* The request is to wait: its values are copied too, behind the rest. Its sender may take his
 * memory back when the connection ends, and then nobody would know what they were. They still count
 * as standing apart: what has not been looked at there, the padding, is not looked at now. */
void sl_server_shm_take(struct sl_server_conn *conn, struct sl_server_incoming *incoming);

/* Where replies to the connection are made, when that takes several turns; NULL: an orphan's. */
static inline struct sl_server_buffers *sl_server_shm_buffers(struct sl_server *server,
                                                              const struct sl_server_conn *conn)
{
    return conn != NULL && conn->uses_shm ? &server->shm_buffers : &server->buffers;
}

/* Of which of the two the buffer is. */
static inline struct sl_server_buffers *sl_server_shm_owner(struct sl_server *server,
                                                            const uint8_t *buffer)
{
    return sl_server_buffers_hold(&server->buffers, buffer) ? &server->buffers
                                                            : &server->shm_buffers;
}

/* The connection is about to be lost to the request: what has been made where that wanted it is
 * kept, if anybody may still ask for it. */
void sl_server_shm_take_off(struct sl_server_request *request, bool goes_on);

/* ---- server_auth.c ---- */

/* Its hello has come: admits it, at once or when it has proved that it has the secret. */
void sl_server_authenticate(struct sl_server_conn *conn);

/* A message of a connection that was challenged. */
void sl_server_auth_message(struct sl_server_conn *conn, const struct sl_message *message);

/* ---- server_watch.c ---- */

/* A connection has come: it is looked at from now on. */
void sl_server_admission(struct sl_server *server);

/* One look at all connections, or as many as there is time for. */
void sl_server_admission_check(struct sl_server *server);

/* The connection is about to leave the list. */
void sl_server_admission_forget(struct sl_server_conn *conn);

/* Memory for a long payload; NULL: none now. */
uint8_t *sl_server_admission_sink(struct sl_server_conn *conn, uint32_t bytes);

/* Room for a reply in the outbox; NULL: none now. */
uint8_t *sl_server_admission_reserve(struct sl_server_conn *conn, uint32_t bytes);

/* Likewise for several replies, with their headers. */
uint8_t *sl_server_admission_reserve_run(struct sl_server_conn *conn, uint32_t run_bytes,
                                         uint32_t frame_count);

/* Likewise for the next part of a reply, whose connection may have memory waiting behind it. */
uint8_t *sl_server_admission_reserve_part(struct sl_server_conn *conn, uint32_t bytes);

/* Room for a reply that takes several turns; false: none now. */
bool sl_server_admission_reply(struct sl_server_request *request);

/* Gives it back, if there is one. */
void sl_server_admission_put_reply(struct sl_server_request *request);

/* ---- server_control.c ---- */

/* A control frame: the hello, or what follows it. */
void sl_server_control(struct sl_server_conn *conn, const struct sl_transport_message *message);

/* Tells the peer which versions both sides speak, and closes. */
void sl_server_refuse_version(struct sl_server_conn *conn, uint32_t version);

/* Tells the peer why it is not welcome, or no longer so, and closes. */
void sl_server_refuse(struct sl_server_conn *conn, int err, const char *text);

/* Its hello is read, on the reactor that it is for. */
void sl_server_greet(struct sl_server_conn *conn);

/* The peer is who it says it is. */
void sl_server_admit(struct sl_server_conn *conn);

/* The shard's number is known. */
void sl_server_welcome(struct sl_server_conn *conn);

/* ---- server_request.c ---- */

/* A request frame arrived. */
void sl_server_request_arrive(struct sl_server_conn *conn,
                              const struct sl_transport_message *message);

/* A request whose credit is spent runs now, or is queued. */
void sl_server_request_serve(struct sl_server_conn *conn, struct sl_server_incoming *incoming,
                             struct sl_shard_exec *work, uint64_t credit_bytes);

/* Who asks on the connection. */
static inline struct sl_shard_client sl_server_request_client(const struct sl_server_conn *conn)
{
    return (struct sl_shard_client){
        .has_clock = conn->hello.role == SL_MESSAGE_ROLE_WORKER,
        .worker = conn->hello.task_index,
    };
}

/* The header of a reply, with the credit that the request cost given back. */
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
    SL_SERVER_ANSWERED,  /* the request is gone from its list */
    SL_SERVER_CONTINUES, /* it is to be run again; it made no progress when nothing was spent */
    SL_SERVER_WAITS,     /* for clocks */
};

/* Runs the request, if it fits into `keys`, else a slice of it; *spent of them. */
enum sl_server_outcome sl_server_request_run(struct sl_server_request *request, uint32_t keys,
                                             uint32_t *spent);

/* The session's orphan comes again, as the request with this header: the connection gets its
 * answer. */
void sl_server_request_adopt(struct sl_server_request *request, struct sl_server_conn *conn,
                             uint32_t budget_us, uint64_t credit_bytes);

/* Answers with an error, which the session remembers if it writes, and frees the request. */
void sl_server_request_fail(struct sl_server_request *request, int err, const char *text);

/* Likewise with DEADLINE, and what it waited for: clocks, or its turn. */
void sl_server_request_fail_late(struct sl_server_request *request, bool waits);

/* Nobody wants the request, whose session has ended: what it has done is logged, and it is freed.
 */
void sl_server_request_end(struct sl_server_request *request);

/* Frees a request that nobody waits for. */
void sl_server_request_free(struct sl_server_request *request);

/* ---- server_stream.c: long replies that are made as they are sent ---- */

/* Whether the reply to this request, which has not begun, is sent part by part. */
bool sl_server_reply_chunks_fits(const struct sl_server_conn *conn,
                                 const struct sl_shard_exec *work);

/* Whether it may begin now: no request that came later may have it see a part of a step. */
bool sl_server_reply_chunks_may_begin(const struct sl_server_request *request);

/* Makes and sends what the connection may have under way, as far as the keys go. */
enum sl_server_outcome sl_server_reply_chunks_run(struct sl_server_request *request, uint32_t keys,
                                                  uint32_t *spent);

/* ---- server_pulls.c: small pulls that arrive in one turn are answered together ---- */

/* Takes the request over, if it is one and may run at once; false: it is to be looked at by itself,
 * after sl_server_pull_batch_before. */
bool sl_server_pull_batch_take(struct sl_server_conn *conn,
                               const struct sl_transport_message *message);

/* Answers all. */
void sl_server_pull_batch_answer(struct sl_server *server);

/* Something else is about to happen on the connection: what came before it is answered before. */
static inline void sl_server_pull_batch_before(struct sl_server_conn *conn)
{
    if (conn->has_pulls) {
        sl_server_pull_batch_answer(conn->server);
    }
}

/* The connection has closed: forgets its own. */
void sl_server_pull_batch_drop(struct sl_server_conn *conn);

/* ---- server_queue.c ---- */

void sl_server_scheduler_init(struct sl_server *server);
void sl_server_scheduler_fini(struct sl_server *server);

/* True when a request of the connection may run at once: none of it is queued. */
static inline bool sl_server_scheduler_is_free(const struct sl_server_conn *conn)
{
    return conn->queue.first == NULL;
}

/* Queues a request behind the others of its connection; park: it waits for clocks already. */
void sl_server_scheduler_add(struct sl_server_request *request, bool park);

/* Takes the request out of its list. */
void sl_server_scheduler_remove(struct sl_server_request *request);

/* The connection is no longer its session's: drops its requests, but for one that has begun to
 * write, which becomes the session's orphan. */
void sl_server_scheduler_drop(struct sl_server_conn *conn);

/* The orphan has a connection again. */
void sl_server_scheduler_adopt(struct sl_server_request *request, struct sl_server_conn *conn);

/* The session ends: drops its orphan, but for a push in its middle. */
void sl_server_scheduler_abandon(struct sl_server_session *session);

/* Answers all parked requests with the error. */
void sl_server_scheduler_cancel_parked(struct sl_server *server, int err, const char *text);

/* The request is forgotten without a word: it is to come again, elsewhere. */
void sl_server_scheduler_discard(struct sl_server_request *request);

/* For the log: takes a request that is done off its connection; puts it where it is answered, and
 * freed. */
void sl_server_scheduler_leave(struct sl_server_request *request);
void sl_server_scheduler_answer(struct sl_server_request *request);

/* The log has room again: requests that write may go on. */
void sl_server_scheduler_wake(struct sl_server *server);

/* No request waits or is in progress. */
bool sl_server_scheduler_is_empty(const struct sl_server *server);

/* ---- server_checkpoint.c ---- */

struct sl_server_checkpoint;

/* A turn's part of the checkpoint that is in the making, if there is one; `keys` are left of the
 * turn. Returns how many were spent. */
uint32_t sl_server_checkpoint_run(struct sl_server *server, uint32_t keys);

/* It has nothing to do until something happens. */
bool sl_server_checkpoint_is_idle(const struct sl_server *server);

/* Before the shard goes. */
void sl_server_checkpoint_fini(struct sl_server *server);

/* ---- server_restore.c ---- */

struct sl_server_restore;

/* Loads a slice of what has been read; returns how much it did. */
uint32_t sl_server_restore_run(struct sl_server *server);

/* It has nothing to do until something happens. */
bool sl_server_restore_is_idle(const struct sl_server *server);

/* What is being restored is given up; does nothing without. */
void sl_server_restore_fini(struct sl_server *server);

/* ---- server_drain.c ---- */

/* Something ended: perhaps that was the last. */
void sl_server_drain_update(struct sl_server *server);

/* After the goodbyes: closes the connection once everything was sent on it. */
void sl_server_drain_conn(struct sl_server_conn *conn);
/* A write comes too late: it fails, or, where a backup goes on, is to come again there. */
void sl_server_drain_refuse(struct sl_server_request *request);

#endif
