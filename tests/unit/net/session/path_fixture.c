#include "tests/unit/net/session/path_fixture.h"

int path_end;
bool path_is_silent;
uint64_t path_takes_ns;
static struct sl_stepped_pair *path_pair;
static const struct sl_transport_events *path_events;
struct sl_endpoint path_target;
uint32_t path_number;
struct sl_conn *path_conn;

static void closed_path(void *ctx, struct sl_conn *conn, int err)
{
    path_events->closed(ctx, conn, path_end != 0 ? path_end : err);
}

/* Once: the session's events are the same for every connection. */
static int connect_path(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out)
{
    static struct sl_transport_events spy;
    path_events = events;
    spy = *events;
    spy.closed = closed_path;
    path_target = *endpoint;
    path_number = target;
    path_pair->now_ns += path_takes_ns;
    int err = sl_loop_transport_ops.connect(transport, endpoint, target, &spy, ctx, out);
    path_conn = *out;
    return err;
}

static uint32_t poll_path(struct sl_transport *transport, uint32_t budget)
{
    return path_is_silent && path_conn != NULL && path_conn->state == SL_CONN_CONNECTING
               ? 0
               : sl_loop_transport_ops.poll(transport, budget);
}

static struct sl_transport_ops path_ops;

void path_setup(struct path_fixture *fixture)
{
    path_end = 0;
    path_is_silent = false;
    path_takes_ns = 0;
    path_pair = &fixture->base.pair;
    path_conn = NULL;
    path_ops = sl_loop_transport_ops;
    path_ops.connect = connect_path;
    path_ops.poll = poll_path;
    session_fixture_setup_as(&fixture->base, SL_MESSAGE_PURPOSE_DATA, true, NULL);
    sl_loop_network_init(&fixture->network, 12);
    const struct sl_transport_options options = {.medium = &fixture->network};
    struct sl_stepped_pair *pair = &fixture->base.pair;
    assert_int_equal(sl_transport_open(&path_ops, pair->a.reactor, &options, &fixture->ours), 0);
    assert_int_equal(
        sl_transport_open(&sl_loop_transport_ops, pair->b.reactor, &options, &fixture->peers), 0);
    assert_int_equal(sl_outbox_init(&fixture->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false), 0);
    fixture->path = (struct sl_session_preferred){
        .transport = fixture->ours,
        .outbox = &fixture->outbox,
        .endpoint = {.scheme = SL_ENDPOINT_SHM, .host = "a.name.that.nobody.looks.up", .port = 7}};
    sl_session_set_preferred(fixture->base.session, &fixture->path);
}

void path_teardown(struct path_fixture *fixture)
{
    sl_session_close(&fixture->base.session);
    sl_transport_close(&fixture->ours);
    sl_transport_close(&fixture->peers);
    sl_loop_network_fini(&fixture->network);
    sl_outbox_fini(&fixture->outbox);
    session_fixture_teardown(&fixture->base);
}

void path_listen(struct path_fixture *fixture)
{
    session_fixture_listen_at(&fixture->base, fixture->peers, &fixture->path.endpoint);
}

void path_listen_far(struct path_fixture *fixture)
{
    session_fixture_listen_now(&fixture->base);
}

void path_expect_way(struct path_fixture *fixture, bool path)
{
    assert_int_equal(sl_session_endpoint(fixture->base.session)->scheme,
                     path ? fixture->path.endpoint.scheme : SL_ENDPOINT_TCP);
    assert_ptr_equal(sl_session_outbox(fixture->base.session),
                     path ? &fixture->outbox : &fixture->base.outbox);
    assert_ptr_equal(fixture->base.accepted->transport,
                     path ? fixture->peers : fixture->base.pair.b.transport);
}

void path_greeted(struct path_fixture *fixture, bool path)
{
    session_fixture_greet_again(&fixture->base);
    path_expect_way(fixture, path);
}
