#include "bench/frames.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/fork.h"
#include "bench/now.h"
#include "core/assert.h"
#include "core/endpoint.h"
#include "core/log.h"
#include "net/transport.h"
#include "reactor/reactor.h"

#define START_MS        30000
#define SLACK_MS        30000 /* how much longer than asked a run may take */
#define REASON_BYTES    256
#define LINE_BYTES      64U

/* A frame's memory is the transport's until `sent`, which may come after the answer. */
#define SLOTS_OF(depth) (2 * (uint64_t)(depth))

/* A slot has the header at the end of its first line, so that the payload begins a line. */
#define HEADER_AT       (LINE_BYTES - SL_FRAME_HEADER_BYTES)

/* One of the two, in its process. */
struct side {
    const struct sl_bench_frames *frames;
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct sl_conn *conn;
    uint32_t sends, receives; /* bytes of payload */
    uint8_t *slots;           /* [SLOTS_OF(depth)][slot_bytes()] */
    uint8_t *sink;            /* of a long frame */
    uint64_t taken, reported; /* frames of ours that the transport has, or had */
    uint64_t due;             /* that are to be sent in all */
    uint64_t received;
    uint32_t each; /* so many frames have one answer */
    bool closed;
    int err;

    /* The client's. */
    uint64_t warm_ns, end_ns; /* 0: it has not begun */
    uint64_t first_ns, last_ns;
    uint64_t counted;   /* answered between the two */
    uint64_t *since_ns; /* [SLOTS_OF(depth)] */
    struct sl_metric_histogram latency;
};

/* Report of the server when it listens, and of the client at its end. */
struct word {
    int err;
    struct sl_endpoint bound;
    struct sl_bench_frames_result result;
};

/* ---- Sending --------------------------------------------------------------------------------- */

static size_t slot_bytes(const struct side *side)
{
    const size_t line = LINE_BYTES;
    return line + (side->sends + line - 1) / line * line;
}

static bool is_long(uint32_t payload_bytes)
{
    return payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES;
}

void sl_bench_frames_touch(uint8_t *payload, uint32_t bytes, uint64_t index)
{
    for (uint32_t at = 0; at < bytes; at += LINE_BYTES) {
        const uint64_t word = (index << 32) + at;
        memcpy(payload + at, &word, sizeof word);
    }
}

bool sl_bench_frames_is_touched(const uint8_t *payload, uint32_t bytes, uint64_t index)
{
    const uint64_t lines = (bytes + LINE_BYTES - 1) / LINE_BYTES;
    uint64_t sum = lines * (index << 32) + LINE_BYTES * (lines * (lines - 1) / 2);
    for (uint32_t at = 0; at < bytes; at += (uint32_t)sizeof sum) {
        uint64_t word;
        memcpy(&word, payload + at, sizeof word);
        sum -= word;
    }
    return sum == 0;
}

static bool send_one(struct side *side, bool is_client)
{
    const uint64_t slot = side->taken % SLOTS_OF(side->frames->depth);
    uint8_t *head = side->slots + slot * slot_bytes(side) + HEADER_AT;
    uint8_t *payload = head + SL_FRAME_HEADER_BYTES;
    const struct sl_frame header = {
        .payload_bytes = side->sends,
        .type = is_client ? SL_FRAME_REQUEST : SL_FRAME_REPLY,
        .request_id = side->taken + 1,
        .budget_us = is_client,
    };
    struct sl_transport_frame frame = {
        .head = head, .head_bytes = SL_FRAME_HEADER_BYTES + side->sends, .cookie = side};
    if (is_long(side->sends)) {
        frame.head_bytes = SL_FRAME_HEADER_BYTES;
        frame.payload = payload;
        frame.payload_bytes = side->sends;
    }
    sl_frame_encode(&header, head);
    if (side->frames->touched) {
        sl_bench_frames_touch(payload, side->sends, side->taken);
    }
    if (is_client) {
        side->since_ns[slot] = side->last_ns;
    }
    if (sl_transport_send_burst(side->conn, &frame, 1) == 0) {
        return false;
    }
    side->taken++;
    return true;
}

/* Whether it is what was written, where that is looked at. */
static bool is_sound(const struct side *side, const struct sl_transport_message *message)
{
    return !side->frames->touched || (message->header.payload_bytes == side->receives &&
                                      sl_bench_frames_is_touched(message->payload, side->receives,
                                                                 message->header.request_id - 1));
}

static void send_due(struct side *side, bool is_client)
{
    while (side->taken < side->due &&
           side->taken - side->reported < SLOTS_OF(side->frames->depth) &&
           send_one(side, is_client)) {
    }
}

static bool is_client(const struct side *side)
{
    return side->since_ns != NULL;
}

/* ---- Upcalls --------------------------------------------------------------------------------- */

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct side *side = ctx;
    conn->is_welcome = true;
    side->conn = conn;
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    struct side *side = ctx;
    side->conn = conn;
    side->last_ns = sl_bench_now_ns();
    side->warm_ns += side->last_ns;
    side->end_ns += side->last_ns;
    side->due = side->frames->depth;
    send_due(side, true);
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    const struct side *side = ctx;
    return header->payload_bytes == side->receives ? side->sink : NULL;
}

/* An answer: what it answers has been received, and as many may follow. The first one behind the
 * warm-up begins the time that counts, and the first one behind the end ends it. */
static void take_answer(struct side *side)
{
    const uint64_t slot = (side->received - 1) * side->each % SLOTS_OF(side->frames->depth);
    const bool timed = !side->frames->rate_only;
    side->due += side->each;
    if (!timed && side->received % SL_BENCH_FRAMES_RATE_READS != 0) {
        side->counted += side->first_ns != 0 ? side->each : 0;
        return;
    }
    side->last_ns = sl_bench_now_ns();
    if (side->first_ns != 0) {
        side->counted += side->each;
        if (timed) {
            sl_metric_record(&side->latency, side->last_ns - side->since_ns[slot]);
        }
        if (side->last_ns >= side->end_ns) {
            sl_transport_disconnect(side->conn);
            return;
        }
    } else if (side->last_ns >= side->warm_ns) {
        side->first_ns = side->last_ns;
    }
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct side *side = ctx;
    if (!is_sound(side, message)) {
        side->err = SL_ERR_PROTOCOL;
        side->closed = true;
    }
    sl_transport_release(conn, message);
    side->received++;
    if (is_client(side)) {
        take_answer(side);
    } else if (side->received % side->each == 0) {
        side->due++;
    }
    if (conn->state == SL_CONN_OPEN) {
        send_due(side, is_client(side));
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct side *side = ctx;
    side->reported++;
    if (conn->state == SL_CONN_OPEN) {
        send_due(side, is_client(side));
    }
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct side *side = ctx;
    send_due(side, is_client(side));
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct side *side = ctx;
    side->closed = true;
    side->conn = NULL;
    side->err = side->err != 0 || err == SL_ERR_CLOSED ? side->err : err;
}

static const struct sl_transport_events EVENTS = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

/* ---- A process ------------------------------------------------------------------------------- */

static bool is_closed(void *ctx)
{
    return ((const struct side *)ctx)->closed;
}

int sl_bench_frames_allocate(size_t bytes, uint8_t **out)
{
    *out = aligned_alloc(LINE_BYTES, bytes);
    if (*out == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(*out, 0, bytes);
    return 0;
}

/* The answer to a long frame is short. */
static int allocate_side(struct side *side)
{
    const uint32_t request = side->frames->bytes - SL_FRAME_HEADER_BYTES;
    const uint32_t answer = is_long(request) ? SL_BENCH_FRAMES_ANSWER_BYTES : request;
    side->sends = is_client(side) ? request : answer;
    side->receives = is_client(side) ? answer : request;
    const int err =
        sl_bench_frames_allocate(SLOTS_OF(side->frames->depth) * slot_bytes(side), &side->slots);
    return err != 0 || !is_long(side->receives)
               ? err
               : sl_bench_frames_allocate(side->receives, &side->sink);
}

static int open_side(struct side *side, enum sl_endpoint_scheme scheme)
{
    const struct sl_bench_frames *frames = side->frames;
    const struct sl_transport_ops *ops = sl_builtin_find(scheme);
    if (ops == NULL) {
        sl_log_error("%s: %s", frames->endpoint, sl_builtin_missing(scheme));
        return SL_ERR_UNSUPPORTED;
    }
    const uint32_t quarter = frames->depth / 4;
    side->each = frames->answers || quarter == 0 ? 1 : quarter;
    const struct sl_reactor_options options = {
        .name = "frames", .core = -1, .polling = frames->polling};
    const struct sl_transport_options of_transport = {.rdma_device = frames->rdma_device,
                                                      .dpdk = is_client(side) ? frames->of_client
                                                                              : frames->of_server};
    int err = allocate_side(side);
    err = err != 0 ? err : sl_reactor_create(&options, &side->reactor);
    err = err != 0 ? err : sl_reactor_attach(side->reactor);
    err = err != 0 ? err : sl_transport_open(ops, side->reactor, &of_transport, &side->transport);
    return err != 0 || !is_long(side->sends)
               ? err
               : sl_transport_memory_register(side->transport, side->slots,
                                              SLOTS_OF(frames->depth) * slot_bytes(side));
}

/* Until the connection is closed. The transport stays open: DPDK's memif driver crashes when the
 * peer closes its device while this process polls. */
static int run_side(struct side *side)
{
    sl_reactor_drive_until(side->reactor, is_closed, side);
    return side->err;
}

/* The parent kills both processes when it has the result. */
static _Noreturn void await_kill(void)
{
    for (;;) {
        (void)pause();
    }
}

static _Noreturn void serve(const struct sl_bench_frames *frames,
                            const struct sl_endpoint *endpoint, int to)
{
    struct side side = {.frames = frames};
    struct word word = {.err = open_side(&side, endpoint->scheme)};
    if (word.err == 0) {
        word.err = sl_transport_listen(side.transport, endpoint, &EVENTS, &side, &word.bound);
    }
    sl_bench_fork_tell(to, &word, sizeof word);
    if (word.err != 0 || run_side(&side) != 0) {
        _exit(1);
    }
    await_kill();
}

static int ask(struct side *side, const struct sl_endpoint *server)
{
    struct sl_conn *conn;
    side->since_ns = calloc(SLOTS_OF(side->frames->depth), sizeof *side->since_ns);
    sl_metric_init(&side->latency);
    int err = side->since_ns == NULL ? SL_ERR_NO_MEMORY : open_side(side, server->scheme);
    if (err == 0) {
        err = sl_transport_connect(side->transport, server, 0, &EVENTS, side, NULL, &conn);
    }
    err = err != 0 ? err : run_side(side);
    return err != 0 || side->counted > 0 ? err : SL_ERR_CLOSED; /* the server has ended */
}

static _Noreturn void request(const struct sl_bench_frames *frames,
                              const struct sl_endpoint *server,
                              const struct sl_bench_common *common, int to)
{
    struct side side = {
        .frames = frames,
        .warm_ns = sl_bench_ns(common->warm_up),
        .end_ns = sl_bench_ns(common->warm_up + common->seconds),
    };
    struct word word = {.err = ask(&side, server)};
    if (word.err == 0) {
        word.result = (struct sl_bench_frames_result){
            .frames_per_s = (double)side.counted * (double)SL_CLOCK_NS_PER_S /
                            (double)(side.last_ns - side.first_ns),
            .latency = side.latency,
        };
    }
    sl_bench_fork_tell(to, &word, sizeof word);
    await_kill();
}

/* ---- Both ------------------------------------------------------------------------------------ */

/* The report, or the error. */
static int hear(struct sl_bench_fork *process, uint64_t timeout_ms, struct word *word)
{
    const int err = sl_bench_fork_hear(process, timeout_ms, word, sizeof *word);
    return err != 0 ? err : word->err;
}

static int run_both(const struct sl_bench_frames *frames, const struct sl_endpoint *endpoint,
                    const struct sl_bench_common *common, struct word *word)
{
    struct sl_bench_fork server = {.from = -1}, client = {.from = -1};
    const uint64_t lasts_ms = (uint64_t)((common->warm_up + common->seconds) * 1000);
    int to = -1;
    int err = sl_bench_fork_start(&server, common->server_core, &to);
    if (err == 0 && server.pid == 0) {
        serve(frames, endpoint, to);
    }
    err = err != 0 ? err : hear(&server, START_MS, word);
    if (err == 0) {
        const struct sl_endpoint bound = word->bound;
        err = sl_bench_fork_start(&client, common->client_core, &to);
        if (err == 0 && client.pid == 0) {
            request(frames, &bound, common, to);
        }
        err = err != 0 ? err : hear(&client, lasts_ms + SLACK_MS, word);
    }
    sl_bench_fork_end(&client);
    sl_bench_fork_end(&server);
    return err;
}

int sl_bench_frames_run(const struct sl_bench_frames *frames, const struct sl_bench_common *common,
                        struct sl_bench_frames_result *out)
{
    sl_assert(frames->bytes >= SL_FRAME_HEADER_BYTES);
    sl_assert(frames->bytes <= SL_BENCH_FRAMES_BYTES_MAX);
    sl_assert(frames->bytes % SL_FRAME_HEADER_BYTES == 0);
    sl_assert(frames->depth >= 1);
    sl_assert(frames->depth <= SL_BENCH_FRAMES_DEPTH_MAX);
    static struct word word;
    struct sl_endpoint endpoint;
    struct sl_reason reason;
    int err = sl_endpoint_parse(frames->endpoint, &endpoint, &reason);
    if (err != 0) {
        sl_log_error("%s", reason.text);
        return err;
    }
    err = run_both(frames, &endpoint, common, &word);
    if (err != 0) {
        sl_log_error("frames over %s: %s", frames->endpoint, sl_err_name(err));
    } else {
        *out = word.result;
    }
    return err;
}
