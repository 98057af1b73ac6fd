/* Memory that is lent is read and written where it lies. */
#include "conformance.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/log.h"

#define REGION_BYTES (2U << 20)
#define LONG_BYTES   300000U
#define SHORT_BYTES  2000U

/* One side: what it lends, and what it saw. */
struct side {
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct sl_mailbox_lane *lane;
    struct sl_conn *conn;
    struct sl_shared sends, lands;
    struct sl_endpoint bound;
    bool serves;
    void *sink_answer;
    struct sl_transport_message message; /* the last, until it is released */
    const uint8_t *rest;
    uint32_t rest_bytes;
    void *reply_buffer;
    uint32_t reply_buffer_bytes;
    atomic_uint opened, asked, received, sent, closed;
};

static struct side sides[2]; /* serves; asks */

static void on_open(void *ctx, struct sl_conn *conn)
{
    ((struct side *)ctx)->conn = conn;
    ((struct side *)ctx)->opened++;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    ((struct side *)ctx)->asked++;
    return ((struct side *)ctx)->sink_answer;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct side *side = ctx;
    side->message = *message;
    side->rest = conn->tail;
    side->rest_bytes = conn->tail_bytes;
    side->reply_buffer = conn->reply_buffer;
    side->reply_buffer_bytes = conn->reply_buffer_bytes;
    side->received++;
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    ((struct side *)ctx)->sent++;
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    ((struct side *)ctx)->conn = NULL;
    ((struct side *)ctx)->closed++;
}

static const struct sl_transport_events events = {.accepted = on_open,
                                                  .connected = on_open,
                                                  .sink = on_sink,
                                                  .received = on_received,
                                                  .sent = on_sent,
                                                  .writable = on_writable,
                                                  .closed = on_closed};

static int start(void *ctx)
{
    struct side *side = ctx;
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_SHM, .host = "memory-test"};
    const struct sl_transport_ops *ops = sl_builtin_find(SL_ENDPOINT_SHM);
    sl_assert(sl_transport_open(ops, side->reactor, NULL, &side->transport) == 0);
    sl_assert(sl_shared_create("sends", REGION_BYTES, SL_SHARED_READ, &side->sends) == 0);
    sl_assert(sl_shared_create("lands", REGION_BYTES, SL_SHARED_WRITE, &side->lands) == 0);
    sl_assert(sl_transport_memory_register(side->transport, side->sends.base, REGION_BYTES) == 0);
    sl_assert(sl_transport_memory_register(side->transport, side->lands.base, REGION_BYTES) == 0);
    struct sl_conn *conn;
    return side->serves
               ? sl_transport_listen(side->transport, &endpoint, &events, side, &side->bound)
               : sl_transport_connect(side->transport, &sides[0].bound, 0, &events, side, NULL,
                                      &conn);
}

static void stop(void *ctx)
{
    sl_transport_close(&((struct side *)ctx)->transport);
}

static int open_at(const struct sl_clock *clock)
{
    memset(sides, 0, sizeof sides);
    for (uint32_t i = 0; i < 2; i++) {
        struct side *side = &sides[i];
        struct sl_reactor_options options = {
            .name = "side", .core = -1, .spin_us = clock == NULL ? 20 : 0, .clock = clock};
        side->serves = i == 0;
        assert_int_equal(sl_reactor_create(&options, &side->reactor), 0);
        sl_reactor_on_stop(side->reactor, stop, side);
        assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(side->reactor), &side->lane), 0);
        assert_int_equal(sl_reactor_start(side->reactor, start, side), 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        WAIT_UNTIL(sides[i].opened == 1);
    }
    return 0;
}

static uint64_t always(void *ctx)
{
    return SL_CLOCK_NS_PER_S;
}

/* The clock stands still, so that no wait for the other side ever times out. */
static void open_both_with_frozen_clock(void)
{
    static const struct sl_clock frozen = {.now_ns = always};
    assert_int_equal(open_at(&frozen), 0);
}

static void close_both(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        sl_reactor_stop(sides[i].reactor);
        sl_reactor_join(sides[i].reactor);
        sl_mailbox_lane_close(&sides[i].lane);
        sl_reactor_destroy(&sides[i].reactor);
        assert_int_equal(sides[i].closed, 1);
        sl_shared_destroy(&sides[i].sends);
        sl_shared_destroy(&sides[i].lands);
    }
}

struct call {
    struct side *side;
    struct sl_transport_frame frame;
    bool releases, unregisters, disconnects, sinks;
    void *sink_answer;   /* sinks: from then on; unregisters, and then closes the memory to this
                          * process: likewise */
    uint32_t sink_bytes; /* sinks: see struct sl_conn */
    atomic_bool *until;  /* stands still before it writes `late` where the peer wants its answer */
    uint8_t late;
    atomic_bool begun, done;
};

static void run_call(void *ctx, uint64_t a, uint64_t b)
{
    struct call *call = ctx;
    struct side *side = call->side;
    call->begun = true;
    if (call->until != NULL) {
        while (!*call->until) {
            sched_yield();
        }
        memset(side->reply_buffer, call->late, side->reply_buffer_bytes);
    } else if (call->sinks) {
        side->sink_answer = call->sink_answer;
        side->conn->sink_bytes = call->sink_bytes;
    } else if (call->disconnects) {
        sl_transport_disconnect(side->conn);
    } else if (call->releases) {
        sl_transport_release(side->conn, &side->message);
    } else if (call->unregisters) {
        sl_transport_memory_unregister(side->transport, side->lands.base);
        if (call->sink_answer != NULL) {
            sl_assert(mprotect(side->lands.base, REGION_BYTES, PROT_NONE) == 0);
            side->sink_answer = call->sink_answer;
        }
    } else {
        sl_assert(sl_transport_send_burst(side->conn, &call->frame, 1) == 1);
    }
    call->done = true;
}

static void begin(struct call *call)
{
    struct sl_mail mail = {.run = run_call, .ctx = call};
    assert_int_equal(sl_mailbox_post(call->side->lane, mail), 0);
    WAIT_UNTIL(call->begun);
}

static void run(struct call *call)
{
    begin(call);
    WAIT_UNTIL(call->done);
}

/* A frame whose head, with `in_head` bytes of payload, is at the front of what the side sends from,
 * and the rest where it says. */
static void send_frame(struct side *side, uint8_t type, uint32_t in_head, const void *rest,
                       uint32_t rest_bytes, void *reply_buffer, uint32_t reply_buffer_bytes)
{
    struct sl_frame header = {
        .type = type, .payload_bytes = in_head + rest_bytes, .request_id = 1, .budget_us = 1};
    sl_frame_encode(&header, side->sends.base);
    struct call call = {.side = side,
                        .frame = {.head = side->sends.base,
                                  .head_bytes = SL_FRAME_HEADER_BYTES + in_head,
                                  .payload = rest,
                                  .payload_bytes = rest_bytes,
                                  .cookie = side,
                                  .reply_buffer = reply_buffer,
                                  .reply_buffer_bytes = reply_buffer_bytes}};
    run(&call);
}

static void release_last(struct side *side)
{
    struct call call = {.side = side, .releases = true};
    run(&call);
}

#define CASE(name) SL_CASE_WITH(name, assert_int_equal(open_at(NULL), 0), close_both())

/* What the sender changes shows: nothing was copied. It has the memory back with the release. */
CASE(in_place__in_one)
{
    struct side *server = &sides[0], *client = &sides[1];
    server->sink_answer = SL_TRANSPORT_IN_PLACE;
    send_frame(client, SL_FRAME_REQUEST, LONG_BYTES, NULL, 0, NULL, 0);
    WAIT_UNTIL(server->received == 1);
    assert_non_null(server->message.token);
    assert_null(server->rest);
    client->sends.base[SL_FRAME_HEADER_BYTES + 777] = 0x5a;
    assert_int_equal(server->message.payload[777], 0x5a);
    usleep(20000);
    assert_int_equal(client->sent, 0);
    release_last(server);
    WAIT_UNTIL(client->sent == 1);
}

/* A few words of structure, and the caller's own array, which is not even aligned. */
CASE(in_place__in_two)
{
    struct side *server = &sides[0], *client = &sides[1];
    uint8_t *values = client->sends.base + 4096 + 4;
    server->sink_answer = SL_TRANSPORT_IN_PLACE;
    memset(client->sends.base + SL_FRAME_HEADER_BYTES, 0x11, 40);
    memset(values, 0x22, LONG_BYTES);
    send_frame(client, SL_FRAME_REQUEST, 40, values, LONG_BYTES, NULL, 0);
    WAIT_UNTIL(server->received == 1);
    assert_int_equal(server->message.header.payload_bytes, 40 + LONG_BYTES);
    assert_memory_equal(server->message.payload, client->sends.base + SL_FRAME_HEADER_BYTES, 40);
    assert_int_equal(server->rest_bytes, LONG_BYTES);
    assert_memory_equal(server->rest, values, LONG_BYTES);
    values[1234] = 0x5a;
    assert_int_equal(server->rest[1234], 0x5a);
    release_last(server);
    WAIT_UNTIL(client->sent == 1);
}

/* A short request could be checked and then changed: it is copied. A reply is plain values. */
CASE(short__reply_stays_and_request_does_not)
{
    struct side *server = &sides[0], *client = &sides[1];
    uint8_t *at = client->sends.base + SL_FRAME_HEADER_BYTES + 99;
    for (uint32_t i = 1; i <= 2; i++) {
        *at = 1;
        send_frame(client, i == 1 ? SL_FRAME_REQUEST : SL_FRAME_REPLY, SHORT_BYTES, NULL, 0, NULL,
                   0);
        WAIT_UNTIL(server->received == i);
        *at = 2;
        assert_int_equal(server->message.payload[99], i);
        release_last(server);
        WAIT_UNTIL(client->sent == i);
    }
}

/* Unless the upper layer can do without the copy, and says so. */
CASE(short__request_stays_where_it_may)
{
    struct side *server = &sides[0], *client = &sides[1];
    uint8_t *values = client->sends.base + 8192;
    struct call call = {.side = server,
                        .sinks = true,
                        .sink_answer = SL_TRANSPORT_IN_PLACE,
                        .sink_bytes = 4096 + 40};
    run(&call);
    for (uint32_t i = 1; i <= 2; i++) {
        const uint32_t bytes = i == 1 ? 4096 : 4088; /* the second is too short */
        values[99] = 1;
        send_frame(client, SL_FRAME_REQUEST, 40, values, bytes, NULL, 0);
        WAIT_UNTIL(server->received == i);
        values[99] = 2;
        assert_int_equal(i == 1 ? server->rest[99] : server->message.payload[40 + 99], 3 - i);
        release_last(server);
        WAIT_UNTIL(client->sent == i);
    }
}

/* The server writes the answer where the client wants it; then no byte is moved. */
static void land(uint32_t bytes)
{
    struct side *server = &sides[0], *client = &sides[1];
    uint8_t *wanted = client->lands.base + 8192;
    client->sink_answer = wanted;
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, wanted, bytes);
    WAIT_UNTIL(server->received == 1);
    assert_non_null(server->reply_buffer);
    assert_int_equal(server->reply_buffer_bytes, bytes);
    memset(server->reply_buffer, 0x77, bytes);
    assert_int_equal(wanted[bytes - 1], 0x77);
    void *reply_buffer = server->reply_buffer;
    release_last(server);
    send_frame(server, SL_FRAME_REPLY, 0, reply_buffer, bytes, NULL, 0);
    WAIT_UNTIL(client->received == 1);
    assert_ptr_equal(client->message.payload, wanted);
    assert_true((client->message.token == NULL) == (bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES));
    release_last(client);
    WAIT_UNTIL(server->sent == 1);
}

CASE(reply_buffer__of_a_long_answer)
{
    land(LONG_BYTES);
}

CASE(reply_buffer__of_a_short_answer)
{
    land(SHORT_BYTES);
}

/* An answer waits for a sink, and the memory that it lies in is taken back: nothing is read there.
 */
CASE(reply_buffer__taken_back_while_its_answer_waits)
{
    struct side *server = &sides[0], *client = &sides[1];
    static _Alignas(64) uint8_t sink[LONG_BYTES];
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, client->lands.base, LONG_BYTES);
    WAIT_UNTIL(server->received == 1);
    uint8_t *reply_buffer = server->reply_buffer;
    assert_non_null(reply_buffer);
    release_last(server);
    memset(reply_buffer, 0x33, LONG_BYTES);
    send_frame(server, SL_FRAME_REPLY, 0, reply_buffer, LONG_BYTES, NULL, 0);
    WAIT_UNTIL(client->asked > 0);
    struct call take_back = {.side = client, .unregisters = true, .sink_answer = sink};
    run(&take_back);
    WAIT_UNTIL(client->closed == 1);
    assert_int_equal(client->received, 0);
}

/* An answer waits for a sink, and the memory that it lies in is revoked for another peer's sake: it
 * is read where this peer has written it. */
CASE(reply_buffer__revoked_while_its_answer_waits)
{
    struct side *server = &sides[0], *client = &sides[1];
    uint8_t *wanted = client->lands.base + 4096;
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, wanted, LONG_BYTES);
    WAIT_UNTIL(server->received == 1);
    uint8_t *reply_buffer = server->reply_buffer;
    assert_non_null(reply_buffer);
    release_last(server);
    memset(reply_buffer, 0x33, LONG_BYTES);
    send_frame(server, SL_FRAME_REPLY, 0, reply_buffer, LONG_BYTES, NULL, 0);
    WAIT_UNTIL(client->asked > 0);
    assert_int_equal(sl_shared_revoke(&client->lands, client->lands.base, 64), 0);
    const uint32_t asked = client->asked;
    WAIT_UNTIL(client->asked > asked || client->closed == 1); /* a turn has passed */
    struct call sink = {.side = client, .sinks = true, .sink_answer = wanted};
    run(&sink);
    WAIT_UNTIL(client->received == 1 || client->closed == 1);
    assert_int_equal(client->received, 1);
    for (uint32_t i = 0; i < LONG_BYTES; i++) {
        assert_int_equal(wanted[i], 0x33);
    }
    release_last(client);
}

/* Only what may be written is lent for that. */
CASE(reply_buffer__in_memory_that_is_read_only)
{
    struct side *server = &sides[0], *client = &sides[1];
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, client->sends.base + 4096, 1000);
    WAIT_UNTIL(server->received == 1);
    assert_null(server->reply_buffer);
    release_last(server);
}

/* A server that still has a reply buffer after the client withdrew it writes to memory of no
 * effect, and does not crash. */
CASE(reply_buffer__after_it_was_withdrawn)
{
    struct side *server = &sides[0], *client = &sides[1];
    uint8_t *wanted = client->lands.base;
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, wanted, 1000);
    WAIT_UNTIL(server->received == 1);
    uint8_t *reply_buffer = server->reply_buffer;
    assert_non_null(reply_buffer);
    release_last(server);
    struct call withdraw = {.side = client, .unregisters = true};
    run(&withdraw);
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, NULL, 0);
    WAIT_UNTIL(server->received == 2);
    release_last(server);
    memset(reply_buffer, 0x33, 1000);
    send_frame(server, SL_FRAME_REPLY, 0, reply_buffer, 1000, NULL, 0);
    WAIT_UNTIL(client->received == 1);
    assert_int_equal(client->message.payload[999], 0x33);
    assert_ptr_not_equal(client->message.payload, wanted);
    release_last(client);
}

/* A process that stood still while its peer went on writes where the answer was to go: the peer has
 * the memory back, and sees nothing of it. */
CASE(reply_buffer__of_a_peer_that_stood_still)
{
    struct side *server = &sides[0], *client = &sides[1];
    uint8_t *wanted = client->lands.base + 8192 + 64;
    atomic_bool goes_on = false;
    memset(client->lands.base, 1, REGION_BYTES);
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, wanted, LONG_BYTES);
    WAIT_UNTIL(server->received == 1);
    assert_non_null(server->reply_buffer);
    release_last(server);
    struct call slice = {.side = server, .until = &goes_on, .late = 3};
    begin(&slice);
    struct call disconnect = {.side = client, .disconnects = true};
    run(&disconnect);
    WAIT_UNTIL(client->closed == 1);
    memset(wanted, 2, LONG_BYTES);
    goes_on = true;
    WAIT_UNTIL(slice.done);
    for (uint32_t i = 0; i < LONG_BYTES; i++) {
        assert_int_equal(wanted[i], 2);
    }
    assert_int_equal(wanted[-1], 1);
    assert_int_equal(wanted[LONG_BYTES], 1);
    assert_true(sl_shared_is_revoked(&client->lands));
    WAIT_UNTIL(server->closed == 1);
}

/* One that closes its end writes no more: the memory stays what it is. */
SL_CASE_WITH(reply_buffer__of_a_peer_that_says_goodbye, open_both_with_frozen_clock(), close_both())
{
    struct side *server = &sides[0], *client = &sides[1];
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, client->lands.base, LONG_BYTES);
    WAIT_UNTIL(server->received == 1);
    release_last(server);
    struct call disconnect = {.side = client, .disconnects = true};
    run(&disconnect);
    WAIT_UNTIL(client->closed == 1 && server->closed == 1);
    assert_true(sl_shared_may_land(&client->lands));
}

/* What was asked for before comes all the same; later answers are copied. */
CASE(reply_buffer__in_memory_that_another_peer_has_lost)
{
    struct side *server = &sides[0], *client = &sides[1];
    uint8_t *wanted = client->lands.base + 4096 + 64;
    client->sink_answer = wanted;
    memset(client->lands.base, 1, REGION_BYTES);
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, wanted, LONG_BYTES);
    WAIT_UNTIL(server->received == 1);
    uint8_t *reply_buffer = server->reply_buffer;
    release_last(server);
    assert_int_equal(sl_shared_revoke(&client->lands, wanted - 64, 64), 0);
    memset(reply_buffer, 0x77, LONG_BYTES);
    send_frame(server, SL_FRAME_REPLY, 0, reply_buffer, LONG_BYTES, NULL, 0);
    WAIT_UNTIL(client->received == 1);
    for (uint32_t i = 0; i < LONG_BYTES; i++) {
        assert_int_equal(wanted[i], 0x77);
    }
    assert_int_equal(wanted[-1], 1);
    release_last(client);
    send_frame(client, SL_FRAME_REQUEST, 48, NULL, 0, wanted, LONG_BYTES);
    WAIT_UNTIL(server->received == 2);
    assert_null(server->reply_buffer);
    release_last(server);
    memset(server->sends.base + SL_FRAME_HEADER_BYTES, 0x55, LONG_BYTES);
    send_frame(server, SL_FRAME_REPLY, LONG_BYTES, NULL, 0, NULL, 0);
    WAIT_UNTIL(client->received == 2);
    assert_int_equal(wanted[LONG_BYTES - 1], 0x55);
    release_last(client);
    /* What lies there is not read by the peer where it lies, either. */
    memset(wanted, 0x66, LONG_BYTES);
    server->sink_answer = SL_TRANSPORT_IN_PLACE;
    send_frame(client, SL_FRAME_REQUEST, 48, wanted, LONG_BYTES, NULL, 0);
    WAIT_UNTIL(server->received == 3);
    const uint8_t *last = server->rest_bytes > 0 ? server->rest + server->rest_bytes
                                                 : server->message.payload + 48 + LONG_BYTES;
    assert_int_equal(last[-1], 0x66);
    release_last(server);
}

int main(void)
{
    sl_log_setup(SL_LOG_OFF, "shm memory");
    return sl_unit_run("shm memory", __FILE__);
}
