/* An election against a store that the case plays: what is asked, in which order the answers come,
 * and what they are. */

#include "core/clock.h"
#include "core/log.h"
#include "ps/leader/election.h"
#include "tests/support/unit.h"

#define TTL_S  10
#define TTL_NS (TTL_S * SL_CLOCK_NS_PER_S)
#define ASKED  4

struct world {
    struct sl_metastore metastore; /* first */
    struct sl_metastore_request *asked[ASKED];
    uint32_t asked_count;
    struct sl_election *election;
    uint64_t now_ns;
    uint32_t won_count, lost_count;
};

static void on_ask(struct sl_metastore *metastore, struct sl_metastore_request *ask)
{
    struct world *world = (struct world *)metastore;
    assert_true(world->asked_count < ASKED);
    world->asked[world->asked_count++] = ask;
}

static const struct sl_metastore_ops OPS = {.ask = on_ask};

static uint64_t on_now(void *ctx)
{
    return ((struct world *)ctx)->now_ns;
}

static void on_won(void *ctx, uint64_t term)
{
    ((struct world *)ctx)->won_count++;
}

static void on_lost(void *ctx, const char *why)
{
    assert_string_not_equal(why, "");
    ((struct world *)ctx)->lost_count++;
}

static void on_leader(void *ctx, const struct sl_election_leader *leader)
{
}

static int setup(void **state)
{
    static struct world world;
    world = (struct world){.metastore.ops = &OPS, .now_ns = SL_CLOCK_NS_PER_S};
    struct sl_election_options options = {
        .metastore = &world.metastore,
        .prefix = "jobs/a",
        .campaigns = true,
        .id = 7,
        .name = "ps/0",
        .endpoint = "tcp://127.0.0.1:1",
        .ttl_s = TTL_S,
        .now_ns = on_now,
        .won = on_won,
        .lost = on_lost,
        .leader = on_leader,
        .ctx = &world,
    };
    assert_int_equal(sl_election_create(&options, &world.election), 0);
    *state = &world;
    return 0;
}

/* What is asked of that kind, and not answered; NULL: nothing is. */
static struct sl_metastore_request *find(const struct world *world, enum sl_metastore_kind kind)
{
    for (uint32_t i = 0; i < world->asked_count; i++) {
        if (world->asked[i]->kind == kind) {
            return world->asked[i];
        }
    }
    return NULL;
}

static void answer(struct world *world, enum sl_metastore_kind kind,
                   struct sl_metastore_answer answer)
{
    struct sl_metastore_request *ask = find(world, kind);
    uint32_t at = 0;
    assert_non_null(ask);
    while (world->asked[at] != ask) {
        at++;
    }
    world->asked[at] = world->asked[--world->asked_count];
    ask->answer = answer;
    ask->done(ask->ctx, ask);
}

/* The store is closed: all that is asked fails. */
static int teardown(void **state)
{
    struct world *world = *state;
    while (world->asked_count > 0) {
        answer(world, world->asked[0]->kind, (struct sl_metastore_answer){.err = SL_ERR_CANCELLED});
    }
    sl_election_destroy(&world->election);
    return 0;
}

#define CASE(name) SL_CASE_OF(name, struct world *world, setup, teardown)

static void pass(struct world *world, uint64_t ns)
{
    world->now_ns += ns;
    sl_election_tick(world->election, world->now_ns);
}

/* Nobody leads: a term with that lease begins. */
static void win(struct world *world, uint64_t lease)
{
    const uint32_t before = world->won_count;
    pass(world, SL_CLOCK_NS_PER_S);
    answer(world, SL_METASTORE_READ, (struct sl_metastore_answer){0});
    answer(world, SL_METASTORE_LEASE_GRANT,
           (struct sl_metastore_answer){.lease = lease, .ttl_s = TTL_S});
    assert_int_equal(find(world, SL_METASTORE_WRITE)->changes[0].lease, lease);
    answer(world, SL_METASTORE_WRITE,
           (struct sl_metastore_answer){.held = true, .revision = lease});
    assert_int_equal(world->won_count, before + 1);
    assert_int_equal(sl_election_lease(world->election), lease);
}

/* The second term begins while the answer to a KEEP of the first has not come. */
static void win_twice(struct world *world)
{
    win(world, 11);
    pass(world, TTL_NS / 2);
    assert_int_equal(find(world, SL_METASTORE_LEASE_RENEW)->lease, 11);
    sl_election_depose(world->election, "of the test");
    assert_int_equal(world->lost_count, 1);
    if (find(world, SL_METASTORE_LEASE_REVOKE) != NULL) {
        answer(world, SL_METASTORE_LEASE_REVOKE, (struct sl_metastore_answer){0});
    }
    pass(world, TTL_NS);
    win(world, 12);
    assert_int_equal(find(world, SL_METASTORE_LEASE_RENEW)->lease, 11);
}

CASE(election__the_end_of_an_old_lease_ends_no_new_term)
{
    win_twice(world);
    answer(world, SL_METASTORE_LEASE_RENEW, (struct sl_metastore_answer){.err = SL_ERR_NOT_FOUND});
    assert_int_equal(world->lost_count, 1);
    assert_true(sl_election_holds(world->election, world->now_ns));
}

/* The new lease counts from when it was asked for. */
CASE(election__an_old_lease_prolongs_no_new_term)
{
    win_twice(world);
    pass(world, 3 * TTL_NS / 4);
    assert_true(sl_election_holds(world->election, world->now_ns));
    answer(world, SL_METASTORE_LEASE_RENEW, (struct sl_metastore_answer){.ttl_s = TTL_S});
    assert_true(sl_election_holds(world->election, world->now_ns));
    pass(world, 0);
    assert_int_equal(find(world, SL_METASTORE_LEASE_RENEW)->lease, 12); /* it is kept itself now */
    pass(world, TTL_NS / 10);
    assert_int_equal(world->lost_count, 2);
}

/* Others need not wait for the end of the lease, nor of a question about it. */
CASE(election__the_lease_of_a_lost_term_is_revoked_at_once)
{
    win(world, 11);
    pass(world, TTL_NS / 2);
    assert_non_null(find(world, SL_METASTORE_LEASE_RENEW));
    sl_election_depose(world->election, "of the test");
    assert_non_null(find(world, SL_METASTORE_LEASE_REVOKE));
    assert_int_equal(find(world, SL_METASTORE_LEASE_REVOKE)->lease, 11);
    answer(world, SL_METASTORE_LEASE_RENEW, (struct sl_metastore_answer){.err = SL_ERR_NOT_FOUND});
    answer(world, SL_METASTORE_LEASE_REVOKE, (struct sl_metastore_answer){0});
    assert_int_equal(world->asked_count, 0);
    assert_int_equal(world->lost_count, 1);
}

/* Likewise of one that resigns: it is over when both have been answered. */
CASE(election__the_lease_of_one_that_resigns_is_revoked_at_once)
{
    bool over = false;
    win(world, 11);
    pass(world, TTL_NS / 2);
    assert_non_null(find(world, SL_METASTORE_LEASE_RENEW));
    sl_election_resign(world->election, &over);
    assert_non_null(find(world, SL_METASTORE_LEASE_REVOKE));
    answer(world, SL_METASTORE_LEASE_REVOKE, (struct sl_metastore_answer){0});
    assert_false(over);
    answer(world, SL_METASTORE_LEASE_RENEW, (struct sl_metastore_answer){.err = SL_ERR_NOT_FOUND});
    assert_true(over);
    assert_int_equal(world->asked_count, 0);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
