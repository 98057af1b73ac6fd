/* A peer without the cluster's secret, for stranger_test.py. It opens connections to a data
 * endpoint over any transport, sends what a server must refuse, and leaves; until SIGTERM. Each
 * connection takes one of the acts below. Ends with 0 and one line of counts. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/log.h"
#include "net/dpdk/device_list.h"
#include "net/session/message.h"
#include "net/transport.h"

#define EXIT_USAGE     2
#define VISITS         512 /* connections at a time, at most */
#define TICK_NS        (5 * SL_CLOCK_NS_PER_MS)
#define STAY_NS_MAX    (2 * SL_CLOCK_NS_PER_S)
#define SHORT_BYTES    16384U
#define FRAMES_AT_ONCE 16

enum act {
    SILENT,         /* sends nothing */
    HELLO_ONLY,     /* asks for a challenge, and never answers it */
    WRONG_PROOF,    /* answers the challenge at random */
    RANDOM_CONTROL, /* control frames whose payload is no message */
    RANDOM_FRAME,   /* frames of any type, as if it were welcome */
    LARGE_FRAME,    /* a request of 4 MiB */
    ACT_COUNT
};

struct visit {
    struct stranger *stranger;
    struct sl_conn *conn; /* NULL: free */
    enum act act;
    uint64_t until_ns;
    bool challenged;
};

struct stranger {
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct sl_endpoint to;
    struct sl_timer timer;
    uint32_t opens_per_tick;
    uint64_t random;
    uint64_t connected, refused, closed_by_server, frames;
    struct visit visits[VISITS];
    /* What is sent lies here until the process ends, so that no visit has to keep it. */
    uint8_t junk[SL_FRAME_HEADER_BYTES + SL_LIMIT_FRAME_PAYLOAD_BYTES];
    uint8_t heads[4096][SL_FRAME_HEADER_BYTES + 512];
    uint32_t head_count;
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    stopped = 1;
}

static uint64_t draw(struct stranger *stranger, uint64_t below)
{
    stranger->random ^= stranger->random << 13;
    stranger->random ^= stranger->random >> 7;
    stranger->random ^= stranger->random << 17;
    return stranger->random % below;
}

/* The heads are used in turn: what was taken thousands of frames ago has been sent, or its
 * connection has ended. */
static void send_one(struct visit *visit, struct sl_frame frame, const void *payload)
{
    struct stranger *stranger = visit->stranger;
    uint8_t *head = stranger->heads[stranger->head_count++ % 4096];
    sl_frame_encode(&frame, head);
    const struct sl_transport_frame out = {.head = head,
                                           .head_bytes = SL_FRAME_HEADER_BYTES,
                                           .payload = frame.payload_bytes == 0 ? NULL : payload,
                                           .payload_bytes = frame.payload_bytes};
    if (visit->conn->state == SL_CONN_OPEN) {
        stranger->frames += sl_transport_send_burst(visit->conn, &out, 1);
    }
}

static void send_message(struct visit *visit, const struct sl_message *message)
{
    struct stranger *stranger = visit->stranger;
    uint8_t *head = stranger->heads[stranger->head_count++ % 4096];
    const size_t bytes = sl_message_encoded_bytes(message);
    const struct sl_frame frame = {.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes};
    sl_assert(SL_FRAME_HEADER_BYTES + bytes <= sizeof stranger->heads[0]);
    sl_frame_encode(&frame, head);
    sl_message_encode(message, head + SL_FRAME_HEADER_BYTES);
    const struct sl_transport_frame out = {.head = head,
                                           .head_bytes = SL_FRAME_HEADER_BYTES + (uint32_t)bytes};
    if (visit->conn->state == SL_CONN_OPEN) {
        stranger->frames += sl_transport_send_burst(visit->conn, &out, 1);
    }
}

static void send_hello(struct visit *visit)
{
    struct sl_message message = {.kind = SL_MESSAGE_HELLO,
                                 .hello = {.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                                           .purpose = SL_MESSAGE_PURPOSE_DATA,
                                           .role = SL_MESSAGE_ROLE_WORKER,
                                           .client_id = draw(visit->stranger, UINT64_MAX) + 1,
                                           .has_nonce = true,
                                           .software = "stranger"}};
    send_message(visit, &message);
}

static void send_frame(struct visit *visit, enum sl_frame_type type, uint32_t bytes)
{
    struct stranger *stranger = visit->stranger;
    const struct sl_frame frame = {
        .type = (uint8_t)type,
        .payload_bytes = type == SL_FRAME_CREDIT ? 0 : bytes,
        .request_id = type == SL_FRAME_CONTROL || type == SL_FRAME_CREDIT ? 0 : 1,
        .budget_us = type == SL_FRAME_REQUEST ? 1000000 : 0,
    };
    /* Any part of the junk is as good as another. */
    const size_t room = sizeof stranger->junk - bytes;
    send_one(visit, frame, stranger->junk + (room == 0 ? 0 : draw(stranger, room)) / 8 * 8);
}

static void begin(struct visit *visit)
{
    struct stranger *stranger = visit->stranger;
    switch (visit->act) {
    case HELLO_ONLY:
    case WRONG_PROOF:
        send_hello(visit);
        break;
    case RANDOM_CONTROL:
        send_frame(visit, SL_FRAME_CONTROL, (uint32_t)draw(stranger, SHORT_BYTES));
        break;
    case RANDOM_FRAME:
        for (int i = 0; i < FRAMES_AT_ONCE; i++) {
            send_frame(visit, (enum sl_frame_type)(1 + draw(stranger, 4)),
                       (uint32_t)draw(stranger, SHORT_BYTES));
        }
        break;
    case LARGE_FRAME:
        send_frame(visit, SL_FRAME_REQUEST, SL_LIMIT_FRAME_PAYLOAD_BYTES);
        break;
    default:
        break;
    }
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    sl_assert(false); /* it listens nowhere */
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    struct visit *visit = conn->user;
    ((struct stranger *)ctx)->connected++;
    begin(visit);
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return NULL;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct visit *visit = conn->user;
    sl_transport_release(conn, message);
    if (visit->act == WRONG_PROOF && !visit->challenged) {
        visit->challenged = true;
        const struct sl_message proof = {.kind = SL_MESSAGE_PROOF};
        send_message(visit, &proof);
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct stranger *stranger = ctx;
    struct visit *visit = conn->user;
    stranger->closed_by_server += err != 0 && err != SL_ERR_REFUSED ? 1 : 0;
    stranger->refused += err == SL_ERR_REFUSED ? 1 : 0;
    visit->conn = NULL;
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

static void visit_again(struct stranger *stranger, struct visit *visit, uint64_t now_ns)
{
    *visit = (struct visit){.stranger = stranger,
                            .act = (enum act)draw(stranger, ACT_COUNT),
                            .until_ns = now_ns + draw(stranger, STAY_NS_MAX)};
    struct sl_conn *conn;
    int err = sl_transport_connect(stranger->transport, &stranger->to, 0, &EVENTS, stranger, visit,
                                   &conn);
    visit->conn = err == 0 ? conn : NULL;
    stranger->refused += err != 0 ? 1 : 0;
}

static void on_tick(struct sl_timer *timer, uint64_t now_ns)
{
    struct stranger *stranger = SL_CONTAINER_OF(timer, struct stranger, timer);
    uint32_t opens = stranger->opens_per_tick;
    for (uint32_t i = 0; i < VISITS; i++) {
        struct visit *visit = &stranger->visits[i];
        if (visit->conn == NULL && opens > 0) {
            opens--;
            visit_again(stranger, visit, now_ns);
        } else if (visit->conn != NULL && now_ns > visit->until_ns) {
            sl_transport_disconnect(visit->conn);
            visit->until_ns = UINT64_MAX;
        }
    }
    sl_timer_arm(sl_reactor_timers(stranger->reactor), timer, now_ns + TICK_NS);
}

static bool is_stopped(void *ctx)
{
    return stopped != 0;
}

static int run(struct stranger *stranger, const char *device)
{
    const struct sl_reactor_options reactor = {.name = "stranger", .core = -1};
    struct sl_dpdk_device_list *devices = NULL;
    struct sl_reason reason = {0};
    int err = sl_reactor_create(&reactor, &stranger->reactor);
    err = err != 0 ? err : sl_reactor_attach(stranger->reactor);
    if (err == 0 && device != NULL) {
        err = sl_dpdk_device_list_create(device, NULL, &devices, &reason);
    }
    const struct sl_transport_ops *ops = sl_builtin_find(stranger->to.scheme);
    const struct sl_transport_options options = {.dpdk = sl_dpdk_device_list_options(devices)};
    if (err == 0) {
        err = ops == NULL
                  ? SL_ERR_UNSUPPORTED
                  : sl_transport_open(ops, stranger->reactor, &options, &stranger->transport);
    }
    if (err != 0) {
        (void)fprintf(stderr, "stranger: cannot start: %s %s\n", sl_err_name(err), reason.text);
        return 1;
    }
    stranger->timer.run = on_tick;
    sl_timer_arm(sl_reactor_timers(stranger->reactor), &stranger->timer,
                 sl_reactor_now_ns(stranger->reactor) + TICK_NS);
    (void)printf("stranger: begins\n");
    (void)fflush(stdout);
    sl_reactor_drive_until(stranger->reactor, is_stopped, NULL);
    (void)printf("stranger: %llu connections made, %llu refused, %llu ended by the server, "
                 "%llu frames\n",
                 (unsigned long long)stranger->connected, (unsigned long long)stranger->refused,
                 (unsigned long long)stranger->closed_by_server,
                 (unsigned long long)stranger->frames);
    sl_timer_disarm(sl_reactor_timers(stranger->reactor), &stranger->timer);
    sl_transport_close(&stranger->transport);
    sl_reactor_detach(stranger->reactor);
    sl_reactor_destroy(&stranger->reactor);
    sl_dpdk_device_list_destroy(&devices);
    return 0;
}

int main(int argc, char **argv)
{
    static struct stranger stranger;
    if (argc < 4 || argc > 5 || sl_endpoint_parse(argv[1], &stranger.to, NULL) != 0) {
        (void)fprintf(stderr, "usage: stranger ENDPOINT SEED CONNECTIONS_PER_TICK [DPDK_DEVICE]\n");
        return EXIT_USAGE;
    }
    stranger.random = strtoull(argv[2], NULL, 10) * 2 + 1;
    stranger.opens_per_tick = (uint32_t)strtoul(argv[3], NULL, 10);
    for (size_t i = 0; i < sizeof stranger.junk; i++) {
        stranger.junk[i] = (uint8_t)draw(&stranger, 256);
    }
    sl_log_setup(SL_LOG_OFF, "stranger");
    (void)signal(SIGTERM, on_signal);
    return run(&stranger, argc == 5 ? argv[4] : NULL);
}
