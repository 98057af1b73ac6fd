#include "net/transport.h"

#include "tests/support/loop_transport.h"
#include "tests/support/unit.h"

/* A listener and a connection to it, on one attached reactor whose clock counts its readings. The
 * listener's transport is the first source, `behind` the second. */
struct fixture {
    uint64_t readings;
    struct sl_transport *listener, *connecter;
    struct sl_reactor_source behind;
    struct sl_conn *accepted;
    uint32_t upcalls, upcalls_polled; /* of the listener, in all and when `polled` came */
    uint64_t readings_upcall, readings_polled;
    uint32_t polls, busy_polls; /* busy_polls: polls with work, after which `polled` runs */
    bool polled;                /* since `behind` was polled */
};

static uint64_t count_readings(void *ctx)
{
    return ++((struct fixture *)ctx)->readings * SL_CLOCK_NS_PER_US;
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct fixture *fixture = ctx;
    fixture->accepted = conn;
    fixture->upcalls++;
    fixture->readings_upcall = fixture->readings;
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
}

static void *no_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return NULL;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
}

static const struct sl_transport_events events = {.accepted = on_accepted,
                                                  .connected = on_connected,
                                                  .sink = no_sink,
                                                  .received = on_received,
                                                  .sent = on_sent,
                                                  .writable = on_writable,
                                                  .closed = on_closed};

static void note_polled(void *ctx)
{
    struct fixture *fixture = ctx;
    assert_false(fixture->polled);
    fixture->polled = true;
    fixture->upcalls_polled = fixture->upcalls;
    fixture->readings_polled = fixture->readings;
}

/* Between the poll of the listener and this one, the reactor reads the clock if that did work. */
static uint32_t look_behind(struct sl_reactor_source *source, uint32_t budget)
{
    struct fixture *fixture = SL_CONTAINER_OF(source, struct fixture, behind);
    fixture->polls++;
    fixture->busy_polls += fixture->polled;
    assert_int_equal(fixture->upcalls_polled, fixture->upcalls);
    if (fixture->polled) {
        assert_int_equal(fixture->readings, fixture->readings_polled + 1);
    }
    fixture->polled = false;
    return 0;
}

SL_CASE(polled__after_the_upcalls_and_before_the_clock_is_read)
{
    struct fixture fixture = {.behind = {.name = "behind", .poll = look_behind}};
    const struct sl_clock clock = {.now_ns = count_readings, .ctx = &fixture};
    const struct sl_reactor_options options = {.name = "test", .core = -1, .clock = &clock};
    struct sl_reactor *reactor;
    struct sl_loop_network network;
    struct sl_endpoint bound, any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    struct sl_conn *conn;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    if (sl_reactor_attach(reactor) == SL_ERR_UNSUPPORTED) {
        skip();
    }
    sl_loop_network_init(&network, 1);
    const struct sl_transport_options medium = {.medium = &network};
    assert_int_equal(sl_transport_open(&sl_loop_transport_ops, reactor, &medium, &fixture.listener),
                     0);
    fixture.listener->polled = note_polled;
    fixture.listener->polled_ctx = &fixture;
    sl_reactor_add_source(reactor, &fixture.behind);
    assert_int_equal(
        sl_transport_open(&sl_loop_transport_ops, reactor, &medium, &fixture.connecter), 0);
    assert_int_equal(sl_transport_listen(fixture.listener, &any, &events, &fixture, &bound), 0);
    assert_int_equal(
        sl_transport_connect(fixture.connecter, &bound, 0, &events, &fixture, NULL, &conn), 0);
    while (fixture.accepted == NULL) {
        (void)sl_reactor_drive_once(reactor);
    }
    assert_int_equal(fixture.readings_polled, fixture.readings_upcall);
    for (int turn = 0; turn < 20; turn++) { /* the last ones without work */
        (void)sl_reactor_drive_once(reactor);
    }
    assert_in_range(fixture.busy_polls, 1, fixture.polls - 1);
    sl_transport_close(&fixture.connecter);
    sl_transport_close(&fixture.listener);
    sl_reactor_remove_source(reactor, &fixture.behind);
    sl_loop_network_fini(&network);
    sl_reactor_detach(reactor);
    sl_reactor_destroy(&reactor);
}

int main(void)
{
    return sl_unit_run("transport", __FILE__);
}
