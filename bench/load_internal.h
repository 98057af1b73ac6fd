/* What load.c (its life, and what its caller asks for), load_table.c (the cluster, the rows, the
 * keys; and whether the answers are right), load_connection.c (connections up to their welcome, and
 * their end) and load_traffic.c (requests and replies) share.
 *
 * The caller's thread and the load's reactor hand each other mail, one question at a time: between
 * a question and its answer everything in the load but `mailbox` and the fields above it is the
 * reactor's, else the caller's. */
#ifndef SL_BENCH_LOAD_INTERNAL_H
#define SL_BENCH_LOAD_INTERNAL_H

#include "bench/load.h"
#include "net/credit.h"
#include "net/transport.h"
#include "net/wire/request.h"
#include "reactor/reactor.h"

#define SL_BENCH_LOAD_DEPTH_MAX 128
#define SL_BENCH_LOAD_KEYS_MAX  8192
#define SL_BENCH_LOAD_WHY_BYTES 512

/* A frame's header, a request's prefix and its section: what comes before the keys. */
#define SL_BENCH_LOAD_FIXED_BYTES                                                                  \
    (SL_FRAME_HEADER_BYTES + sizeof(struct sl_request_prefix) + sizeof(struct sl_request_section))

struct sl_client;

enum sl_bench_load_phase {
    SL_BENCH_LOAD_IDLE,
    SL_BENCH_LOAD_CONNECTING,
    SL_BENCH_LOAD_CHECKING, /* one request is under way, whose reply is wanted */
    SL_BENCH_LOAD_WARMING,
    SL_BENCH_LOAD_MEASURING,
    SL_BENCH_LOAD_DRAINING, /* nothing more is sent */
    SL_BENCH_LOAD_CLOSING,
    SL_BENCH_LOAD_FAILED /* for good */
};

/* One shard, and what is asked of it. */
struct sl_bench_load_shard {
    struct sl_endpoint endpoint;
    uint32_t reactor;         /* of its ps */
    uint64_t *keys;           /* sparse: [key_count], drawn beforehand, used round and round */
    uint64_t key_count;       /* a multiple of the keys of one request */
    uint64_t first, elements; /* dense: the range that it holds */
};

/* Requests are numbered through by id; request id uses slot id modulo slot_count: a whole frame,
 * but for a long body, in which only the id and the keys are new from one request to the next. */
struct sl_bench_load_connection {
    struct sl_conn *conn; /* NULL: none */
    struct sl_bench_load *load;
    const struct sl_bench_load_shard *shard;
    struct sl_credit credit;
    uint64_t next_id;      /* to be written */
    uint64_t offered_id;   /* the first that the transport has not taken */
    uint64_t sent_id;      /* the first whose slot is still the transport's */
    uint64_t at;           /* in the shard's keys, or in its range */
    uint64_t arrival;      /* open loop: the next that is for this connection */
    uint64_t *since_ns;    /* [slot_count]: sent, or due, then; 0: not under way */
    uint8_t *slots;        /* [slot_count][slot_bytes] */
    uint8_t *reply_buffer; /* [reply_bytes] where replies are long */
    uint32_t under_way;
    bool welcomed;
    bool waiting;         /* in the list of those that may have something to send */
    uint8_t control[256]; /* the hello, later the goodbye */
};

struct sl_bench_load {
    struct sl_bench_load_options options;
    struct sl_reactor *reactor;
    struct sl_mailbox *mailbox;       /* the caller's */
    struct sl_mailbox_lane *to_load;  /* the caller's */
    struct sl_mailbox_lane *to_owner; /* the reactor's */
    bool answered;
    bool started; /* it is on its reactor, whose thread runs */

    /* Properties of every request. */
    uint16_t table_id;
    struct sl_bench_load_shard *shards;
    uint32_t shard_count;
    float *gradients;        /* of one request; NULL: it has none */
    uint32_t gradient_bytes; /* padded */
    bool gradients_apart;    /* sent from where they are; else each slot has them */
    uint32_t slot_count, slot_bytes;
    uint64_t request_bytes, reply_bytes, credit_bytes;

    struct sl_transport *transport;
    struct sl_reactor_source source;
    struct sl_timer timer; /* the end of a phase, or of our patience */
    struct sl_bench_load_connection *connections;
    struct sl_bench_load_connection **waiting; /* [connection_count] */
    uint8_t *memory;                           /* slots of all connections */
    uint32_t connection_count, waiting_count;
    uint32_t begun_count, welcomed_count, open_count;

    enum sl_bench_load_phase phase;
    bool owed; /* the caller waits for an answer */
    int err;
    char why[SL_BENCH_LOAD_WHY_BYTES];
    float *captured; /* CHECKING: [reply_bytes / 4] */

    uint64_t now_ns;         /* read every so many replies, and once before sending */
    uint32_t replies_at_now; /* since then */
    uint64_t under_way;
    uint64_t arrival; /* open loop: of all connections, the next */
    double interval_ns;
    uint64_t begun_ns; /* the first arrival's due time */
    uint64_t warm_up_ns, measure_ns;
    uint64_t window_ns; /* when measuring began; before, NEVER */
    uint64_t window_cpu_ns;
    uint64_t replies; /* of this run, all */
    struct sl_bench_load_result result;
};

/* ---- load.c */

/* Answers the caller. */
void sl_bench_load_answer(struct sl_bench_load *load);

/* The load is at its end, for this reason, which the caller will log. The first one counts. */
void sl_bench_load_fail(struct sl_bench_load *load, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Has `run(load, a, 0)` run on the reactor, and waits for the answer. Errors: the load's. */
int sl_bench_load_ask(struct sl_bench_load *load, sl_mail_fn *run, uint64_t a, uint64_t timeout_ns);

/* ---- load_table.c */

/* Opens the table, creates its rows, learns where the shards are, draws the keys. *client is then
 * the caller's. Errors, logged. */
int sl_bench_load_prepare(struct sl_bench_load *load, struct sl_client **client);

/* Sends one request on a connection to each shard, and compares what it does to the table with what
 * the client library says of it. Errors, logged: CORRUPT. */
int sl_bench_load_verify(struct sl_bench_load *load, struct sl_client *client);

/* ---- load_connection.c */

/* Begins to connect them all; answers when all are welcomed. Mail. */
void sl_bench_load_connect(void *ctx, uint64_t a, uint64_t b);

/* Says goodbye on all; answers when all are closed. Mail. */
void sl_bench_load_disconnect(void *ctx, uint64_t a, uint64_t b);

/* ---- load_traffic.c */

/* What requests are like, and memory for all that are under way. Errors, logged: NO_MEMORY,
 * TOO_LARGE. */
int sl_bench_load_shape(struct sl_bench_load *load);

/* Sends one request on connection a; answers with its reply in `captured`. Mail. */
void sl_bench_load_check(void *ctx, uint64_t a, uint64_t b);

/* Begins a run, whose warm_up_ns and measure_ns are set; answers at its end. Mail. */
void sl_bench_load_begin_run(void *ctx, uint64_t a, uint64_t b);

/* The reactor's source: sends, before the transport flushes, what has become possible. */
extern const struct sl_reactor_source sl_bench_load_source;

/* A frame of the data plane on a welcomed connection. */
void sl_bench_load_received(struct sl_bench_load_connection *connection,
                            const struct sl_transport_message *message);

/* The connection may have something to send. */
void sl_bench_load_wake(struct sl_bench_load_connection *connection);

#endif
