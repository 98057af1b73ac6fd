#include "bench/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/fork.h"
#include "bench/touch.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/endpoint.h"
#include "core/log.h"
#include "net/transport.h"
#include "reactor/reactor.h"

#define START_MS     30000
#define SLACK_MS     30000
#define REASON_BYTES 256

/* What a process tells. */
struct word {
    int err;
    struct sl_endpoint bound;
    struct sl_bench_stream_result result;
};

/* One that sends. */
struct sender {
    const struct sl_bench_stream *stream;
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    uint8_t *slots; /* [depth][slot_bytes]: a frame header at the end of a line, the payload */
    uint32_t taken, reported;
    int err; /* of its connection's end */
};

/* A connection of who receives. */
struct source {
    struct receiver *receiver;
    uint8_t *sink;
    uint64_t frames; /* received */
    uint64_t before; /* the time that counts */
};

struct receiver {
    const struct sl_bench_stream *stream;
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct source sources[SL_BENCH_STREAM_SENDERS_MAX];
    uint32_t source_count;
    uint32_t began;                 /* sources with a frame */
    uint64_t warm_up_ns, counts_ns; /* how long */
    uint64_t warm_ns;               /* when it is warm; 0: not all have begun */
    uint64_t begin_ns, end_ns;      /* of the time that counts; 0: not yet known */
    uint64_t now_ns;                /* at the last frame */
    int err;
};

static uint64_t now_ns(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * (double)SL_CLOCK_NS_PER_S);
}

/* ---- A transport ----------------------------------------------------------------------------- */

static int open_transport(const struct sl_bench_stream *stream, enum sl_endpoint_scheme scheme,
                          uint32_t index, bool receives, struct sl_reactor **reactor,
                          struct sl_transport **transport)
{
    const struct sl_transport_ops *ops = sl_builtin_find(scheme);
    if (ops == NULL) {
        sl_log_error("%s: %s", stream->endpoint, sl_builtin_missing(scheme));
        return SL_ERR_UNSUPPORTED;
    }
    const struct sl_reactor_options options = {
        .name = "stream", .core = -1, .index = index, .polling = true};
    const struct sl_transport_options of_transport = {
        .dpdk = receives ? stream->of_receiver : stream->of_senders,
        .medium = receives ? (void *)(uintptr_t)stream->medium : NULL};
    int err = sl_reactor_create(&options, reactor);
    err = err != 0 ? err : sl_reactor_attach(*reactor);
    return err != 0 ? err : sl_transport_open(ops, *reactor, &of_transport, transport);
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* The payload begins a line. */
static size_t slot_bytes(const struct sl_bench_stream *stream)
{
    return stream->bytes + SL_BENCH_LINE_BYTES;
}

static bool send_one(struct sender *sender, struct sl_conn *conn)
{
    const struct sl_bench_stream *stream = sender->stream;
    uint8_t *payload =
        sender->slots + sender->taken % stream->depth * slot_bytes(stream) + SL_BENCH_LINE_BYTES;
    const struct sl_frame header = {
        .payload_bytes = stream->bytes,
        .type = SL_FRAME_REQUEST,
        .request_id = (uint64_t)sender->taken + 1,
        .budget_us = 1,
    };
    const struct sl_transport_frame frame = {
        .head = payload - SL_FRAME_HEADER_BYTES,
        .head_bytes = SL_FRAME_HEADER_BYTES,
        .payload = payload,
        .payload_bytes = stream->bytes,
        .cookie = sender,
    };
    sl_frame_encode(&header, payload - SL_FRAME_HEADER_BYTES);
    sl_bench_touch_write(payload, stream->bytes, sender->taken);
    if (sl_transport_send_burst(conn, &frame, 1) == 0) {
        return false;
    }
    sender->taken++;
    return true;
}

static void send_due(struct sender *sender, struct sl_conn *conn)
{
    while (conn->state == SL_CONN_OPEN &&
           sender->taken - sender->reported < sender->stream->depth && send_one(sender, conn)) {
    }
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    send_due(ctx, conn);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    (void)cookie;
    ((struct sender *)ctx)->reported++;
    send_due(ctx, conn);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    send_due(ctx, conn);
}

/* Nobody answers. */
static void on_received_by_sender(void *ctx, struct sl_conn *conn,
                                  const struct sl_transport_message *message)
{
    (void)ctx;
    sl_transport_release(conn, message);
}

static void *no_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    (void)ctx;
    (void)conn;
    (void)header;
    return NULL;
}

static void on_sender_closed(void *ctx, struct sl_conn *conn, int err)
{
    (void)conn;
    ((struct sender *)ctx)->err = err != 0 ? err : SL_ERR_CLOSED;
}

static const struct sl_transport_events SENDER_EVENTS = {
    .connected = on_connected,
    .sink = no_sink,
    .received = on_received_by_sender,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_sender_closed,
};

static int open_sender(struct sender *sender, const struct sl_endpoint *server, uint32_t index)
{
    const struct sl_bench_stream *stream = sender->stream;
    const size_t bytes = stream->depth * slot_bytes(stream);
    struct sl_conn *conn;
    sender->slots = aligned_alloc(SL_BENCH_LINE_BYTES, bytes);
    if (sender->slots == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(sender->slots, 0, bytes);
    int err =
        open_transport(stream, server->scheme, index, false, &sender->reactor, &sender->transport);
    err = err != 0 ? err : sl_transport_memory_register(sender->transport, sender->slots, bytes);
    return err != 0 ? err
                    : sl_transport_connect(sender->transport, server, &SENDER_EVENTS, sender, NULL,
                                           &conn);
}

/* Until it is killed, or a connection ends. */
static int drive(struct sender *senders, uint32_t count)
{
    for (;;) {
        for (uint32_t i = 0; i < count; i++) {
            (void)sl_reactor_drive_once(senders[i].reactor);
            if (senders[i].err != 0) {
                return senders[i].err;
            }
        }
    }
}

static void run_senders(const struct sl_bench_stream *stream, const struct sl_endpoint *server,
                        int to)
{
    static struct sender senders[SL_BENCH_STREAM_SENDERS_MAX];
    struct word word = {0};
    for (uint32_t i = 0; word.err == 0 && i < stream->senders; i++) {
        senders[i].stream = stream;
        word.err = open_sender(&senders[i], server, i);
    }
    word.err = word.err != 0 ? word.err : drive(senders, stream->senders);
    sl_bench_fork_tell(to, &word, sizeof word);
    _exit(1);
}

/* ---- Receiving ------------------------------------------------------------------------------- */

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct receiver *receiver = ctx;
    sl_assert(receiver->source_count < receiver->stream->senders);
    struct source *source = &receiver->sources[receiver->source_count++];
    source->receiver = receiver;
    conn->is_welcome = true;
    conn->user = source;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    (void)ctx;
    const struct source *source = conn->user;
    return header->payload_bytes == source->receiver->stream->bytes ? source->sink : NULL;
}

/* All have begun: the clock runs. */
static void count_on(struct receiver *receiver)
{
    receiver->now_ns = now_ns();
    if (receiver->began < receiver->stream->senders) {
        return;
    }
    if (receiver->warm_ns == 0) {
        receiver->warm_ns = receiver->now_ns + receiver->warm_up_ns;
    } else if (receiver->end_ns == 0 && receiver->now_ns >= receiver->warm_ns) {
        receiver->begin_ns = receiver->now_ns;
        receiver->end_ns = receiver->now_ns + receiver->counts_ns;
        for (uint32_t i = 0; i < receiver->source_count; i++) {
            receiver->sources[i].before = receiver->sources[i].frames;
        }
    }
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct receiver *receiver = ctx;
    struct source *source = conn->user;
    const uint32_t bytes = receiver->stream->bytes;
    if (message->header.payload_bytes != bytes ||
        sl_bench_touch_read(message->payload, bytes) !=
            sl_bench_touch_sum(bytes, (uint32_t)message->header.request_id - 1)) {
        receiver->err = SL_ERR_PROTOCOL;
    }
    sl_transport_release(conn, message);
    receiver->began += source->frames++ == 0;
    count_on(receiver);
}

static void on_receiver_closed(void *ctx, struct sl_conn *conn, int err)
{
    (void)conn;
    ((struct receiver *)ctx)->err = err != 0 ? err : SL_ERR_CLOSED;
}

static void on_sent_by_receiver(void *ctx, struct sl_conn *conn, void *cookie)
{
    (void)ctx;
    (void)conn;
    (void)cookie;
}

static void on_receiver_writable(void *ctx, struct sl_conn *conn)
{
    (void)ctx;
    (void)conn;
}

static const struct sl_transport_events RECEIVER_EVENTS = {
    .accepted = on_accepted,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent_by_receiver,
    .writable = on_receiver_writable,
    .closed = on_receiver_closed,
};

static bool is_over(void *ctx)
{
    const struct receiver *receiver = ctx;
    return receiver->err != 0 || (receiver->end_ns != 0 && receiver->now_ns >= receiver->end_ns);
}

static int open_receiver(struct receiver *receiver, const struct sl_endpoint *endpoint,
                         struct sl_endpoint *bound)
{
    const struct sl_bench_stream *stream = receiver->stream;
    for (uint32_t i = 0; i < stream->senders; i++) {
        receiver->sources[i].sink = aligned_alloc(SL_BENCH_LINE_BYTES, stream->bytes);
        if (receiver->sources[i].sink == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        memset(receiver->sources[i].sink, 0, stream->bytes);
    }
    const int err =
        open_transport(stream, endpoint->scheme, 0, true, &receiver->reactor, &receiver->transport);
    return err != 0 ? err
                    : sl_transport_listen(receiver->transport, endpoint, &RECEIVER_EVENTS, receiver,
                                          bound);
}

static void tell_result(const struct receiver *receiver, struct sl_bench_stream_result *result)
{
    const double seconds =
        (double)(receiver->now_ns - receiver->begin_ns) / (double)SL_CLOCK_NS_PER_S;
    uint64_t least = UINT64_MAX, all = 0;
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        const uint64_t frames = receiver->sources[i].frames - receiver->sources[i].before;
        least = frames < least ? frames : least;
        all += frames;
    }
    result->bytes_per_s = (double)all * receiver->stream->bytes / seconds;
    result->slowest_bytes_per_s = (double)least * receiver->stream->bytes / seconds;
}

static void run_receiver(const struct sl_bench_stream *stream, const struct sl_endpoint *endpoint,
                         const struct sl_bench_common *common, int to)
{
    static struct receiver receiver;
    static struct word word;
    receiver.stream = stream;
    receiver.warm_up_ns = ns_of(common->warm_up);
    receiver.counts_ns = ns_of(common->seconds);
    word.err = open_receiver(&receiver, endpoint, &word.bound);
    sl_bench_fork_tell(to, &word, sizeof word);
    if (word.err != 0) {
        _exit(1);
    }
    sl_reactor_drive_until(receiver.reactor, is_over, &receiver);
    word.err = receiver.err;
    tell_result(&receiver, &word.result);
    sl_bench_fork_tell(to, &word, sizeof word);
    _exit(0);
}

/* ---- Both ------------------------------------------------------------------------------------ */

static int hear(struct sl_bench_fork *process, uint64_t timeout_ms, struct word *word)
{
    const int err = sl_bench_fork_hear(process, timeout_ms, word, sizeof *word);
    return err != 0 ? err : word->err;
}

static int run_both(const struct sl_bench_stream *stream, const struct sl_endpoint *endpoint,
                    const struct sl_bench_common *common, struct word *word)
{
    struct sl_bench_fork server = {.from = -1}, client = {.from = -1};
    const uint64_t lasts_ms = (uint64_t)((common->warm_up + common->seconds) * 1000);
    int to = -1;
    int err = sl_bench_fork_start(&server, common->server_core, &to);
    if (err == 0 && server.pid == 0) {
        run_receiver(stream, endpoint, common, to);
    }
    err = err != 0 ? err : hear(&server, START_MS, word);
    if (err == 0) {
        const struct sl_endpoint bound = word->bound;
        err = sl_bench_fork_start(&client, common->client_core, &to);
        if (err == 0 && client.pid == 0) {
            run_senders(stream, &bound, to);
        }
        err = err != 0 ? err : hear(&server, lasts_ms + SLACK_MS, word);
    }
    sl_bench_fork_end(&client);
    sl_bench_fork_end(&server);
    return err;
}

int sl_bench_stream_run(const struct sl_bench_stream *stream, const struct sl_bench_common *common,
                        struct sl_bench_stream_result *out)
{
    sl_assert(stream->senders >= 1);
    sl_assert(stream->senders <= SL_BENCH_STREAM_SENDERS_MAX);
    sl_assert(stream->bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES);
    sl_assert(stream->bytes % SL_BENCH_LINE_BYTES == 0);
    sl_assert(stream->depth >= 1);
    static struct word word;
    struct sl_endpoint endpoint;
    char reason[REASON_BYTES];
    int err = sl_endpoint_parse(stream->endpoint, &endpoint, reason, sizeof reason);
    if (err != 0) {
        sl_log_error("%s", reason);
        return err;
    }
    err = run_both(stream, &endpoint, common, &word);
    if (err != 0) {
        sl_log_error("a stream over %s: %s", stream->endpoint, sl_err_name(err));
    } else {
        *out = word.result;
    }
    return err;
}
