/* The facade, around a transport that only notes what it is asked. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/transport.h"
#include "tests/support/unit.h"

struct fake {
    struct sl_transport base;
    struct sl_conn conn;
    struct sl_transport_options options;
    uint32_t polls, flushes, arms, releases, disconnects, closes;
    uint32_t taken;
    int connect_err;
    uint32_t target; /* of the last connect */
    bool armed;
};

static struct fake fake;

static int fake_open(struct sl_reactor *reactor, const struct sl_transport_options *options,
                     struct sl_transport **out)
{
    fake.options = *options;
    *out = &fake.base;
    return 0;
}

static int fake_open_fails(struct sl_reactor *reactor, const struct sl_transport_options *options,
                           struct sl_transport **out)
{
    return SL_ERR_NO_MEMORY;
}

static void fake_close(struct sl_transport **transport)
{
    fake.closes++;
    *transport = NULL;
}

static int fake_register(struct sl_transport *transport, void *base, size_t bytes)
{
    return base == &fake && bytes == 1 ? 0 : SL_ERR_NO_MEMORY;
}

static void fake_unregister(struct sl_transport *transport, void *base)
{
}

static int fake_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound)
{
    *bound = *endpoint;
    bound->port = 7;
    return 0;
}

static int fake_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out)
{
    fake.target = target;
    if (fake.connect_err != 0) {
        return fake.connect_err;
    }
    sl_conn_init(&fake.conn, transport, events, ctx);
    *out = &fake.conn;
    return 0;
}

static void fake_disconnect(struct sl_conn *conn)
{
    fake.disconnects++;
}

static int fake_migrate(struct sl_conn *conn, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user)
{
    return SL_ERR_UNSUPPORTED;
}

static uint32_t fake_send(struct sl_conn *conn, const struct sl_transport_frame *frames,
                          uint32_t count)
{
    return count < fake.taken ? count : fake.taken;
}

static void fake_release(struct sl_conn *conn, const struct sl_transport_message *message)
{
    assert_non_null(message->token);
    fake.releases++;
}

static void fake_flush(struct sl_transport *transport)
{
    fake.flushes++;
}

static uint32_t fake_poll(struct sl_transport *transport, uint32_t budget)
{
    assert_true(budget > 0);
    fake.polls++;
    return 0;
}

static bool fake_arm(struct sl_transport *transport)
{
    fake.arms++;
    return fake.armed;
}

static void fake_stats(const struct sl_transport *transport, struct sl_transport_stats *out)
{
    *out = (struct sl_transport_stats){.frames_sent = 5};
}

static struct sl_transport_ops fake_ops(void)
{
    return (struct sl_transport_ops){
        .scheme = "fake",
        .open = fake_open,
        .close = fake_close,
        .memory_register = fake_register,
        .memory_unregister = fake_unregister,
        .listen = fake_listen,
        .connect = fake_connect,
        .disconnect = fake_disconnect,
        .migrate = fake_migrate,
        .send_burst = fake_send,
        .release = fake_release,
        .flush = fake_flush,
        .poll = fake_poll,
        .arm = fake_arm,
        .stats = fake_stats,
    };
}

/* Upcalls are not the matter here. */
static void ignore_conn(void *ctx, struct sl_conn *conn)
{
}

static void *ignore_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return NULL;
}

static void ignore_message(void *ctx, struct sl_conn *conn,
                           const struct sl_transport_message *message)
{
}

static void ignore_cookie(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void ignore_closed(void *ctx, struct sl_conn *conn, int err)
{
}

static const struct sl_transport_events events = {
    .accepted = ignore_conn,
    .connected = ignore_conn,
    .sink = ignore_sink,
    .received = ignore_message,
    .sent = ignore_cookie,
    .writable = ignore_conn,
    .closed = ignore_closed,
};

struct fixture {
    struct sl_reactor *reactor;
    struct sl_transport_ops ops;
    struct sl_transport *transport;
};

static uint64_t beginning(void *ctx)
{
    return 0;
}

static int setup(void **state)
{
    static const struct sl_clock clock = {.now_ns = beginning};
    static struct fixture fixture;
    memset(&fake, 0, sizeof fake);
    fixture = (struct fixture){.ops = fake_ops()};
    struct sl_reactor_options options = {
        .name = "test", .core = -1, .stepped = true, .clock = &clock, .seed = 1};
    *state = &fixture;
    if (sl_reactor_create(&options, &fixture.reactor) != 0) {
        return -1;
    }
    return sl_transport_open(&fixture.ops, fixture.reactor, NULL, &fixture.transport);
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    sl_transport_close(&fixture->transport);
    sl_reactor_destroy(&fixture->reactor);
    return 0;
}

static struct sl_conn *connect_one(struct fixture *fixture)
{
    struct sl_endpoint endpoint = {.host = "peer", .port = 1};
    struct sl_conn *conn = NULL;
    assert_int_equal(
        sl_transport_connect(fixture->transport, &endpoint, 3, &events, fixture, &fake, &conn), 0);
    return conn;
}

#define CASE(name) SL_CASE_OF(name, struct fixture *fixture, setup, teardown)

CASE(transport_open__makes_it_a_source)
{
    assert_int_equal(fake.options.buffer_count, 0);
    assert_ptr_equal(fixture->transport->ops, &fixture->ops);
    assert_ptr_equal(fixture->transport->reactor, fixture->reactor);
    assert_string_equal(fixture->transport->source.name, "fake");
    sl_reactor_turn(fixture->reactor, 1000);
    assert_int_equal(fake.polls, 1);
    assert_int_equal(fake.flushes, 1);
    fake.armed = true;
    assert_true(sl_reactor_next_ns(fixture->reactor) > 1000);
    fake.armed = false;
    assert_int_equal(sl_reactor_next_ns(fixture->reactor), 1000);
    assert_true(fake.arms >= 2);
}

CASE(transport_open__passes_the_error_on)
{
    struct sl_transport_ops ops = fake_ops();
    ops.open = fake_open_fails;
    struct sl_transport *out = NULL;
    assert_int_equal(sl_transport_open(&ops, fixture->reactor, NULL, &out), SL_ERR_NO_MEMORY);
    assert_null(out);
}

CASE(transport_close__is_no_source_any_more)
{
    sl_transport_close(&fixture->transport);
    assert_null(fixture->transport);
    assert_int_equal(fake.closes, 1);
    sl_reactor_turn(fixture->reactor, 1000);
    assert_int_equal(fake.polls, 0);
    sl_transport_close(&fixture->transport);
    assert_int_equal(fake.closes, 1);
}

CASE(transport_connect__sets_the_user)
{
    struct sl_conn *conn = connect_one(fixture);
    assert_ptr_equal(conn->user, &fake);
    assert_int_equal(fake.target, 3);
    assert_ptr_equal(conn->ctx, fixture);
    fake.connect_err = SL_ERR_NOT_FOUND;
    struct sl_endpoint endpoint = {.host = "peer", .port = 1};
    struct sl_conn *none = NULL;
    assert_int_equal(
        sl_transport_connect(fixture->transport, &endpoint, 0, &events, fixture, NULL, &none),
        SL_ERR_NOT_FOUND);
    assert_null(none);
}

CASE(transport_listen__bound_is_optional)
{
    struct sl_endpoint endpoint = {.host = "here"}, bound;
    struct sl_transport *transport = fixture->transport;
    assert_int_equal(sl_transport_listen(transport, &endpoint, &events, NULL, NULL), 0);
    assert_int_equal(sl_transport_listen(transport, &endpoint, &events, NULL, &bound), 0);
    assert_int_equal(bound.port, 7);
}

SL_CASE_WITH(transport_send_burst__returns_what_was_taken, setup, teardown)
{
    struct sl_conn *conn = connect_one(*state);
    uint8_t head[SL_FRAME_HEADER_BYTES];
    struct sl_transport_frame frames[3];
    for (uint32_t i = 0; i < 3; i++) {
        frames[i] = (struct sl_transport_frame){.head = head, .head_bytes = sizeof head};
    }
    fake.taken = 2;
    assert_int_equal(sl_transport_send_burst(conn, frames, 3), 2);
}

SL_CASE_WITH(transport_release__needs_a_token, setup, teardown)
{
    struct sl_conn *conn = connect_one(*state);
    struct sl_transport_message message = {.token = NULL};
    sl_transport_release(conn, &message);
    assert_int_equal(fake.releases, 0);
    message.token = &message;
    sl_transport_release(conn, &message);
    assert_int_equal(fake.releases, 1);
}

CASE(transport__passes_through)
{
    struct sl_conn *conn = connect_one(fixture);
    sl_transport_disconnect(conn);
    assert_int_equal(fake.disconnects, 1);
    assert_int_equal(sl_transport_memory_register(fixture->transport, &fake, 1), 0);
    sl_transport_memory_unregister(fixture->transport, &fake);
    struct sl_transport_stats stats;
    sl_transport_get_stats(fixture->transport, &stats);
    assert_int_equal(stats.frames_sent, 5);
}

/* What breaks the contract ends the process, here a child. */
static void expect_abort(struct fixture *fixture, void (*breach)(struct fixture *fixture))
{
    pid_t child = fork();
    if (child == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        signal(SIGABRT, SIG_DFL);
        breach(fixture);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void breach_incomplete(struct fixture *fixture)
{
    struct sl_transport_ops ops = fake_ops();
    ops.arm = NULL;
    struct sl_transport *out;
    sl_transport_open(&ops, fixture->reactor, NULL, &out);
}

static void breach_migrate(struct fixture *fixture)
{
    struct sl_conn *conn = connect_one(fixture);
    sl_conn_report_accepted(conn);
    sl_transport_migrate(conn, fixture->transport, &events, NULL, NULL); /* not in an upcall */
}

static void breach_short_head(struct fixture *fixture)
{
    struct sl_conn *conn = connect_one(fixture);
    struct sl_transport_frame frame = {.head = &fake, .head_bytes = SL_FRAME_HEADER_BYTES - 1};
    sl_transport_send_burst(conn, &frame, 1);
}

static void breach_close_in_upcall(struct fixture *fixture)
{
    fixture->transport->polling = true;
    sl_transport_close(&fixture->transport);
}

static void breach_after_closed(struct fixture *fixture)
{
    struct sl_conn *conn = connect_one(fixture);
    sl_conn_report_closed(conn, SL_ERR_CLOSED);
    sl_transport_disconnect(conn);
}

SL_CASE_WITH(transport__asserts_the_contract, setup, teardown)
{
    expect_abort(*state, breach_incomplete);
    expect_abort(*state, breach_migrate);
    expect_abort(*state, breach_short_head);
    expect_abort(*state, breach_close_in_upcall);
    expect_abort(*state, breach_after_closed);
}

SL_CASE(transport_find__knows_what_is_built_in)
{
    assert_string_equal(sl_builtin_find(SL_ENDPOINT_TCP)->scheme, "tcp");
    assert_null(sl_builtin_find((enum sl_endpoint_scheme)99));
}
