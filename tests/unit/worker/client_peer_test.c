/* A client whose ps is played by the test, and does what no ps should: the client says so, gives
 * the caller his memory back, and stays whole. One thread, a transport from memory to memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/support/loop_transport.h"
#include "worker/client_internal.h"

#define TURNS_MAX 20000
#define DIM       1

enum manner {
    CORRECT,
    UNKNOWN_ID,
    WRONG_LENGTH,
    TWICE,
    ERROR_WITHOUT_TEXT,
    ERROR_WITH_LONG_TEXT,
    SILENT,
    HANGS_UP,
};

struct world {
    struct sl_loop_network network;
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_reactor *reactors[2]; /* the ps's, the client's */
    struct sl_client *client;
    struct sl_table *table;

    /* The ps. */
    struct sl_transport *transport;
    struct sl_outbox outbox;
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    struct sl_message_welcome welcome; /* of the shard */
    enum manner manner;
};

/* ---- The ps */

struct peer {
    struct sl_outbox_queue queue;
    uint8_t *sink; /* a long request is being received into it */
};

static uint64_t world_now(void *ctx)
{
    return ((struct world *)ctx)->now_ns;
}

static void accepted(void *ctx, struct sl_conn *conn)
{
    (void)ctx;
    conn->user = calloc(1, sizeof(struct peer));
}

static void send_frame(struct world *world, struct sl_conn *conn, struct sl_frame frame,
                       const void *payload)
{
    struct peer *peer = conn->user;
    uint8_t *room = sl_outbox_reserve(&world->outbox, frame.payload_bytes);
    assert_non_null(room);
    memcpy(room + SL_FRAME_HEADER_BYTES, payload, frame.payload_bytes);
    sl_outbox_commit(&world->outbox, conn, &peer->queue, &frame, NULL, 0, NULL, NULL);
}

static void send_message(struct world *world, struct sl_conn *conn,
                         const struct sl_message *message)
{
    uint8_t bytes[1024];
    size_t count = sl_message_encoded_bytes(message);
    assert_true(count <= sizeof bytes);
    sl_message_encode(message, bytes);
    send_frame(world, conn,
               (struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)count},
               bytes);
}

static void answer_control(struct world *world, struct sl_conn *conn,
                           const struct sl_message *message)
{
    struct sl_message_ps ps = {.shard_count = 1};
    struct sl_message answer = {.id = message->id};
    switch (message->kind) {
    case SL_MESSAGE_HELLO:
        answer.kind = SL_MESSAGE_WELCOME;
        answer.welcome = world->welcome;
        break;
    case SL_MESSAGE_REGISTER:
        answer.kind = SL_MESSAGE_CLUSTER;
        snprintf(ps.data_endpoint, sizeof ps.data_endpoint, "%s", world->endpoint);
        answer.cluster = (struct sl_message_cluster){.ps = &ps, .ps_count = 1};
        break;
    case SL_MESSAGE_TABLE_OPEN:
        answer.kind = SL_MESSAGE_TABLE_OPENED;
        answer.table_id = 3;
        break;
    default:
        return;
    }
    send_message(world, conn, &answer);
}

static uint64_t reply_bytes(const uint8_t *payload, size_t bytes)
{
    struct sl_bytes cursor = sl_bytes_over(payload, bytes);
    struct sl_request_prefix prefix;
    struct sl_request_section section;
    struct sl_request_view view;
    uint64_t sum = 0;
    assert_int_equal(sl_request_read_prefix(&cursor, &prefix), 0);
    for (uint32_t i = 0; i < prefix.section_count; i++) {
        assert_int_equal(sl_request_read_section(&cursor, &section), 0);
        assert_int_equal(sl_request_read_body(&cursor, &section, DIM, &view), 0);
        sum += sl_request_reply_bytes(&section, DIM);
    }
    return sum;
}

static void answer_request(struct world *world, struct sl_conn *conn,
                           const struct sl_transport_message *message)
{
    static uint8_t payload[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    uint64_t bytes = reply_bytes(message->payload, message->header.payload_bytes);
    uint64_t cost = sl_request_credit_bytes(message->header.payload_bytes, bytes);
    struct sl_frame frame = {
        .type = SL_FRAME_REPLY,
        .request_id = message->header.request_id,
        .payload_bytes = (uint32_t)bytes,
        .credit_requests = 1,
        .credit_bytes = (uint32_t)cost,
    };
    memset(payload, 0, bytes);
    switch (world->manner) {
    case SILENT:
        return;
    case HANGS_UP:
        sl_transport_disconnect(conn);
        return;
    case UNKNOWN_ID:
        frame.request_id += 100;
        break;
    case WRONG_LENGTH:
        frame.payload_bytes += 8;
        break;
    case ERROR_WITHOUT_TEXT:
        frame.status = -SL_ERR_NO_MEMORY;
        frame.payload_bytes = 0;
        break;
    case ERROR_WITH_LONG_TEXT:
        frame.status = -SL_ERR_NOT_FOUND;
        frame.payload_bytes = 20000; /* longer than what the transport's own buffers take */
        memset(payload, 'x', frame.payload_bytes);
        memcpy(payload, "no\ntable", 8);
        break;
    case TWICE:
        send_frame(world, conn, frame, payload);
        break;
    case CORRECT:
        break;
    }
    send_frame(world, conn, frame, payload);
}

static void *sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    (void)ctx;
    struct peer *peer = conn->user;
    peer->sink = malloc(header->payload_bytes);
    return peer->sink;
}

static void received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct world *world = ctx;
    if (message->header.type == SL_FRAME_CONTROL) {
        struct sl_message decoded;
        assert_int_equal(
            sl_message_decode(message->payload, message->header.payload_bytes, &decoded), 0);
        answer_control(world, conn, &decoded);
        sl_message_fini(&decoded);
    } else {
        answer_request(world, conn, message);
    }
    if (message->token != NULL) {
        sl_transport_release(conn, message);
    } else {
        struct peer *peer = conn->user;
        free(peer->sink);
        peer->sink = NULL;
    }
}

static void sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    (void)conn;
    struct world *world = ctx;
    sl_outbox_sent(&world->outbox, cookie);
}

static void writable(void *ctx, struct sl_conn *conn)
{
    struct world *world = ctx;
    sl_outbox_writable(&world->outbox, conn, &((struct peer *)conn->user)->queue);
}

static void closed(void *ctx, struct sl_conn *conn, int err)
{
    (void)err;
    struct world *world = ctx;
    sl_outbox_closed(&world->outbox, conn, &((struct peer *)conn->user)->queue);
    free(((struct peer *)conn->user)->sink);
    free(conn->user);
}

static const struct sl_transport_events ps_events = {.accepted = accepted,
                                                     .sink = sink,
                                                     .received = received,
                                                     .sent = sent,
                                                     .writable = writable,
                                                     .closed = closed};

/* ---- The world */

static const struct sl_transport_ops *loop(enum sl_endpoint_scheme scheme)
{
    (void)scheme;
    return &sl_loop_transport_ops;
}

static void turn(struct world *world)
{
    world->now_ns += SL_CLOCK_NS_PER_MS;
    sl_reactor_turn(world->reactors[0], world->now_ns);
    sl_reactor_turn(world->reactors[1], world->now_ns);
}

static void start_ps(struct world *world)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_reactor_options options = {
            .name = "r", .core = -1, .stepped = true, .clock = &world->clock, .seed = 1 + i};
        assert_int_equal(sl_reactor_create(&options, &world->reactors[i]), 0);
        sl_reactor_turn(world->reactors[i], world->now_ns); /* it is this thread's */
    }
    const struct sl_transport_options options = {.medium = &world->network};
    assert_int_equal(
        sl_transport_open(&sl_loop_transport_ops, world->reactors[0], &options, &world->transport),
        0);
    assert_int_equal(sl_outbox_init(&world->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false), 0);
    const struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    struct sl_endpoint bound;
    assert_int_equal(sl_transport_listen(world->transport, &any, &ps_events, world, &bound), 0);
    sl_endpoint_format(&bound, world->endpoint, sizeof world->endpoint);
}

static int setup(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    world->now_ns = SL_CLOCK_NS_PER_S;
    world->clock = (struct sl_clock){.now_ns = world_now, .ctx = world};
    sl_loop_network_init(&world->network, 5);
    start_ps(world);
    world->welcome = (struct sl_message_welcome){
        .protocol_version = SL_FRAME_PROTOCOL_VERSION,
        .credit_bytes = SL_LIMIT_CREDIT_BYTES,
        .credit_requests = SL_LIMIT_CREDIT_REQUESTS,
        .shard_count = 1,
        .payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES,
    };
    *state = world;
    return 0;
}

static int start_client(struct world *world)
{
    const struct sl_client_options options = {
        .coordinator = world->endpoint, .task_index = -1, .start_timeout_ms = 1000};
    const struct sl_client_setup setup = {.reactors = &world->reactors[1],
                                          .reactor_count = 1,
                                          .find_transport = loop,
                                          .medium = &world->network,
                                          .client_id = 1};
    assert_int_equal(sl_start_begin(&options, &setup, &world->client), 0);
    int err = SL_ERR_AGAIN;
    for (int turns = 0; err == SL_ERR_AGAIN && turns < TURNS_MAX; turns++) {
        turn(world);
        err = sl_start_poll(world->client);
    }
    return err;
}

static void start_client_with_table(struct world *world)
{
    assert_int_equal(start_client(world), 0);
    struct sl_table_spec spec = {.name = "t", .kind = SL_TABLE_SPARSE, .dim = DIM};
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    struct sl_opening opening;
    assert_int_equal(sl_opening_begin(&opening, world->client, &spec, 1000), 0);
    int err = SL_ERR_AGAIN;
    for (int turns = 0; err == SL_ERR_AGAIN && turns < TURNS_MAX; turns++) {
        turn(world);
        err = sl_opening_poll(&opening, &world->table);
    }
    assert_int_equal(err, 0);
}

static int teardown(void **state)
{
    struct world *world = *state;
    sl_start_close_begin(world->client);
    bool done = false;
    for (int turns = 0; !done && turns < TURNS_MAX; turns++) {
        turn(world);
        done = sl_start_close_poll(world->client);
    }
    assert_true(done);
    sl_start_free(&world->client);
    sl_transport_close(&world->transport);
    sl_outbox_fini(&world->outbox);
    sl_reactor_destroy(&world->reactors[0]);
    sl_reactor_destroy(&world->reactors[1]);
    sl_loop_network_fini(&world->network);
    free(world);
    return 0;
}

#define KEYS 5000 /* their rows are longer than the transport's own buffers take */
static uint64_t keys[KEYS];
static float rows[KEYS];

static struct sl_step *submit(struct world *world, uint32_t key_count)
{
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, keys, key_count, rows), 0);
    assert_int_equal(sl_step_submit(step, 500), 0);
    return step;
}

/* Ends the step, which must end like this. */
static void expect(struct world *world, struct sl_step *step, int err, const char *text)
{
    for (int turns = 0; !sl_step_done(step) && turns < TURNS_MAX; turns++) {
        turn(world);
    }
    assert_true(sl_step_done(step));
    assert_int_equal(sl_step_wait(step), err);
    if (strstr(sl_step_error(step), text) == NULL) {
        fail_msg("'%s' does not contain '%s'", sl_step_error(step), text);
    }
    sl_step_end(&step);
}

static void run(struct world *world, enum manner manner, uint32_t key_count, int err,
                const char *text)
{
    world->manner = manner;
    expect(world, submit(world, key_count), err, text);
}

static void link__breaks_when_an_answer_has_no_request(void **state)
{
    struct world *world = *state;
    start_client_with_table(world);
    run(world, CORRECT, 10, 0, "");
    run(world, UNKNOWN_ID, 10, SL_ERR_CLOSED, "it answered a request that is not in flight");
    run(world, CORRECT, 10, SL_ERR_CLOSED, "it answered a request that is not in flight");
}

static void link__breaks_when_an_answer_comes_twice(void **state)
{
    struct world *world = *state;
    start_client_with_table(world);
    run(world, TWICE, KEYS, 0, "");
    run(world, SILENT, 10, SL_ERR_CLOSED, "it answered a request that is not in flight");
}

static void link__breaks_when_a_reply_has_the_wrong_length(void **state)
{
    struct world *world = *state;
    start_client_with_table(world);
    run(world, WRONG_LENGTH, KEYS, SL_ERR_PROTOCOL, "its reply has the wrong length");
    run(world, CORRECT, 10, SL_ERR_CLOSED, "had the wrong length");
}

static void link__passes_on_what_the_shard_says(void **state)
{
    struct world *world = *state;
    start_client_with_table(world);
    run(world, ERROR_WITHOUT_TEXT, KEYS, SL_ERR_NO_MEMORY, sl_err_name(SL_ERR_NO_MEMORY));
    run(world, ERROR_WITH_LONG_TEXT, KEYS, SL_ERR_NOT_FOUND, "): no?tablexxx");
    run(world, CORRECT, KEYS, 0, "");
}

static void link__drops_replies_that_nobody_waits_for(void **state)
{
    struct world *world = *state;
    start_client_with_table(world);
    for (uint32_t i = 0; i < 3; i++) {
        run(world, SILENT, KEYS, SL_ERR_DEADLINE, "deadline of 500 ms passed");
    }
    run(world, CORRECT, KEYS, 0, "");
}

/* One credit: all but one request wait in the client. */
static void link__sends_as_credit_comes(void **state)
{
    enum { STEPS = 20 };
    struct world *world = *state;
    world->welcome.credit_requests = 1;
    start_client_with_table(world);
    struct sl_step *steps[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        steps[i] = submit(world, 3);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        expect(world, steps[i], 0, "");
    }
    world->manner = SILENT;
    for (uint32_t i = 0; i < STEPS; i++) {
        steps[i] = submit(world, 3);
    }
    for (uint32_t i = STEPS; i > 0; i--) {
        expect(world, steps[i - 1], SL_ERR_DEADLINE, "deadline");
    }
}

static void link__fails_what_it_holds_when_the_peer_hangs_up(void **state)
{
    enum { STEPS = 20 };
    struct world *world = *state;
    world->welcome.credit_requests = 1;
    start_client_with_table(world);
    world->manner = HANGS_UP;
    struct sl_step *steps[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        steps[i] = submit(world, 3);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        expect(world, steps[i], SL_ERR_CLOSED, "ps/0 shard 0 (tcp://127.0.0.1:");
    }
}

static void start__refuses_a_shard_that_grants_too_little(void **state)
{
    struct world *world = *state;
    world->welcome.credit_bytes = 1000;
    assert_int_equal(start_client(world), SL_ERR_PROTOCOL);
}

static void start__refuses_a_shard_of_another_cluster(void **state)
{
    struct world *world = *state;
    world->welcome.shard_count = 2;
    assert_int_equal(start_client(world), SL_ERR_PROTOCOL);
}

static void start__cuts_to_what_the_shard_takes(void **state)
{
    struct world *world = *state;
    world->welcome.payload_bytes_max = 64 << 10;
    start_client_with_table(world);
    enum { MANY = 100000 };
    uint64_t *many = calloc(MANY, sizeof *many);
    float *values = calloc(MANY, sizeof *values);
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, many, MANY, values), 0);
    assert_int_equal(sl_step_submit(step, 500), 0);
    expect(world, step, 0, "");
    free(many);
    free(values);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    sl_log_setup(SL_LOG_OFF, "test");
    const struct CMUnitTest tests[] = {
        CASE(link__breaks_when_an_answer_has_no_request),
        CASE(link__breaks_when_an_answer_comes_twice),
        CASE(link__breaks_when_a_reply_has_the_wrong_length),
        CASE(link__passes_on_what_the_shard_says),
        CASE(link__drops_replies_that_nobody_waits_for),
        CASE(link__sends_as_credit_comes),
        CASE(link__fails_what_it_holds_when_the_peer_hangs_up),
        CASE(start__refuses_a_shard_that_grants_too_little),
        CASE(start__refuses_a_shard_of_another_cluster),
        CASE(start__cuts_to_what_the_shard_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
