#include "core/clock.h"
#include "net/base/liveness.h"
#include "tests/support/unit.h"

#define CONNS    300 /* more than are visited in one turn */
#define LIMIT_NS (400 * SL_CLOCK_NS_PER_MS)

struct conn {
    struct sl_list_link alive;
    struct sl_silence silence;
    uint32_t visits;
    bool is_silent;
    uint64_t ended_ns;
};

static void visit(struct sl_list_link *link, uint64_t now_ns)
{
    struct conn *conn = SL_CONTAINER_OF(link, struct conn, alive);
    conn->visits++;
    if (!conn->is_silent) {
        sl_silence_restart(&conn->silence, now_ns);
    } else if (sl_silence_lasts(&conn->silence, now_ns, LIMIT_NS) && conn->ended_ns == 0) {
        conn->ended_ns = now_ns;
    }
}

static uint64_t zero_clock(void *ctx)
{
    return 0;
}

static struct sl_reactor *create(void)
{
    static const struct sl_clock clock = {.now_ns = zero_clock};
    struct sl_reactor_options options = {
        .name = "test", .core = -1, .stepped = true, .clock = &clock, .seed = 7};
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), SL_OK);
    return reactor;
}

static uint64_t run(struct sl_reactor *reactor, uint64_t from_ns, uint64_t until_ns)
{
    for (uint64_t now_ns = from_ns; now_ns <= until_ns; now_ns += SL_CLOCK_NS_PER_MS) {
        sl_reactor_turn(reactor, now_ns);
    }
    return until_ns;
}

SL_CASE(liveness__visits_all_connections_each_round)
{
    static struct conn conns[CONNS];
    struct sl_reactor *reactor = create();
    struct sl_liveness liveness;
    sl_reactor_turn(reactor, 0);
    sl_liveness_init(&liveness, reactor, LIMIT_NS, visit);
    for (uint32_t i = 0; i < CONNS; i++) {
        conns[i] = (struct conn){0};
        sl_liveness_add(&liveness, &conns[i].alive);
    }
    run(reactor, 0, 3 * LIMIT_NS);
    for (uint32_t i = 0; i < CONNS; i++) {
        assert_in_range(conns[i].visits, 11, 12);
        sl_liveness_remove(&liveness, &conns[i].alive);
    }
    run(reactor, 3 * LIMIT_NS, 4 * LIMIT_NS);
    assert_in_range(conns[0].visits, 11, 12);
    sl_liveness_fini(&liveness);
    sl_reactor_destroy(&reactor);
}

SL_CASE(silence__ends_after_the_limit_but_not_for_a_stopped_thread)
{
    struct conn conn = {.is_silent = true};
    struct sl_reactor *reactor = create();
    struct sl_liveness liveness;
    sl_reactor_turn(reactor, 0);
    sl_liveness_init(&liveness, reactor, LIMIT_NS, visit);
    sl_liveness_add(&liveness, &conn.alive);
    run(reactor, 0, 2 * LIMIT_NS);
    assert_in_range(conn.ended_ns, LIMIT_NS, LIMIT_NS + LIMIT_NS / 4);

    conn = (struct conn){.alive = conn.alive, .is_silent = true, .silence.since_ns = 2 * LIMIT_NS};
    sl_reactor_turn(reactor, 9 * LIMIT_NS); /* the thread was stopped: one visit only */
    assert_int_equal(conn.ended_ns, 0);
    sl_liveness_fini(&liveness);
    sl_reactor_destroy(&reactor);
}
