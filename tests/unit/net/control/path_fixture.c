#include "tests/unit/net/control/path_fixture.h"

int near_end;
bool near_is_silent;
static const struct sl_transport_events *near_events;
struct sl_endpoint near_target;
struct sl_conn *near_conn;

static void closed_near(void *ctx, struct sl_conn *conn, int err)
{
    near_events->closed(ctx, conn, near_end != 0 ? near_end : err);
}

/* Once: the session's events are the same for every connection. */
static int connect_near(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        const struct sl_transport_events *events, void *ctx, struct sl_conn **out)
{
    static struct sl_transport_events spy;
    near_events = events;
    spy = *events;
    spy.closed = closed_near;
    near_target = *endpoint;
    int err = sl_loop_transport_ops.connect(transport, endpoint, &spy, ctx, out);
    near_conn = *out;
    return err;
}

static uint32_t poll_near(struct sl_transport *transport, uint32_t budget)
{
    return near_is_silent && near_conn != NULL && near_conn->state == SL_CONN_CONNECTING
               ? 0
               : sl_loop_transport_ops.poll(transport, budget);
}

static struct sl_transport_ops near_ops;

void near_setup(struct near_fixture *fixture)
{
    near_end = 0;
    near_is_silent = false;
    near_conn = NULL;
    near_ops = sl_loop_transport_ops;
    near_ops.connect = connect_near;
    near_ops.poll = poll_near;
    session_fixture_setup_as(&fixture->base, SL_MESSAGE_PURPOSE_DATA, true, NULL);
    sl_loop_network_init(&fixture->network, 12);
    const struct sl_transport_options options = {.medium = &fixture->network};
    struct sl_stepped_pair *pair = &fixture->base.pair;
    assert_int_equal(sl_transport_open(&near_ops, pair->a.reactor, &options, &fixture->ours), 0);
    assert_int_equal(
        sl_transport_open(&sl_loop_transport_ops, pair->b.reactor, &options, &fixture->peers), 0);
    assert_int_equal(sl_outbox_init(&fixture->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false), 0);
    fixture->near = (struct sl_session_preferred){
        .transport = fixture->ours,
        .outbox = &fixture->outbox,
        .endpoint = {.scheme = SL_ENDPOINT_SHM, .host = "a.name.that.nobody.looks.up", .port = 7}};
    sl_session_set_preferred(fixture->base.session, &fixture->near);
}

void near_teardown(struct near_fixture *fixture)
{
    sl_session_close(&fixture->base.session);
    sl_transport_close(&fixture->ours);
    sl_transport_close(&fixture->peers);
    sl_loop_network_fini(&fixture->network);
    sl_outbox_fini(&fixture->outbox);
    session_fixture_teardown(&fixture->base);
}

void near_listen(struct near_fixture *fixture)
{
    session_fixture_listen_at(&fixture->base, fixture->peers, &fixture->near.endpoint);
}

void near_listen_far(struct near_fixture *fixture)
{
    session_fixture_listen_now(&fixture->base);
}

void near_expect_way(struct near_fixture *fixture, bool near)
{
    assert_int_equal(sl_session_endpoint(fixture->base.session)->scheme,
                     near ? fixture->near.endpoint.scheme : SL_ENDPOINT_TCP);
    assert_ptr_equal(sl_session_outbox(fixture->base.session),
                     near ? &fixture->outbox : &fixture->base.outbox);
    assert_ptr_equal(fixture->base.accepted->transport,
                     near ? fixture->peers : fixture->base.pair.b.transport);
}

void near_greeted(struct near_fixture *fixture, bool near)
{
    session_fixture_greet_again(&fixture->base);
    near_expect_way(fixture, near);
}
