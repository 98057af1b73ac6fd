/* A held key against a store that the case plays: what is asked, in which order the answers come,
 * and what they are. */

#include <string.h>

#include "core/clock.h"
#include "net/store/held_key.h"
#include "tests/support/unit.h"

#define TTL_S  10
#define TTL_NS (TTL_S * SL_CLOCK_NS_PER_S)
#define ASKED  4

struct world {
    struct sl_metastore metastore; /* first */
    struct sl_metastore_request *asked[ASKED];
    uint32_t asked_count;
    struct sl_held_key held;
    uint64_t now_ns;
    uint32_t won_count, lost_count, released_count;
    uint64_t term, dead; /* a revision whose holder has ended */
    int trouble;
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
    ((struct world *)ctx)->term = term;
}

static void on_lost(void *ctx, const char *why)
{
    assert_string_not_equal(why, "");
    ((struct world *)ctx)->lost_count++;
}

static void on_seen(void *ctx, const struct sl_metastore_item *item)
{
}

static bool replaces(void *ctx, const struct sl_metastore_item *item)
{
    return item->created == ((struct world *)ctx)->dead;
}

static void on_trouble(void *ctx, int err, const char *reason)
{
    ((struct world *)ctx)->trouble = err;
}

static void on_released(void *ctx, int err, const char *reason)
{
    ((struct world *)ctx)->released_count++;
    ((struct world *)ctx)->trouble = err;
}

static void setup(struct world *world)
{
    *world = (struct world){.metastore.ops = &OPS, .now_ns = SL_CLOCK_NS_PER_S};
    const struct sl_held_key_options options = {
        .metastore = &world->metastore,
        .key = "jobs/a/coordinator",
        .value = "a value",
        .campaigns = true,
        .ttl_s = TTL_S,
        .poll_ns = SL_CLOCK_NS_PER_S,
        .now_ns = on_now,
        .won = on_won,
        .lost = on_lost,
        .seen = on_seen,
        .replaces = replaces,
        .trouble = on_trouble,
        .ctx = world,
    };
    sl_held_key_init(&world->held, &options);
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

/* An answer with a copy of the item. */
static struct sl_metastore_answer found(const struct sl_metastore_item *item)
{
    struct sl_metastore_answer answer = {0};
    struct sl_metastore_item *copy = sl_metastore_answer_add(&answer, 0);
    assert_non_null(copy);
    copy->created = item->created;
    copy->lease = item->lease;
    return answer;
}

/* The store is closed: all that is asked fails. */
static void teardown(struct world *world)
{
    while (world->asked_count > 0) {
        answer(world, world->asked[0]->kind, (struct sl_metastore_answer){.err = SL_ERR_CANCELLED});
    }
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown)

static void pass(struct world *world, uint64_t ns)
{
    world->now_ns += ns;
    sl_held_key_tick(&world->held, world->now_ns);
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
    assert_int_equal(sl_held_key_lease(&world->held), lease);
}

/* The second term begins while the answer to a KEEP of the first has not come. */
static void win_twice(struct world *world)
{
    win(world, 11);
    pass(world, TTL_NS / 2);
    assert_int_equal(find(world, SL_METASTORE_LEASE_RENEW)->lease, 11);
    sl_held_key_depose(&world->held, "of the test");
    assert_int_equal(world->lost_count, 1);
    if (find(world, SL_METASTORE_LEASE_REVOKE) != NULL) {
        answer(world, SL_METASTORE_LEASE_REVOKE, (struct sl_metastore_answer){0});
    }
    pass(world, TTL_NS);
    win(world, 12);
    assert_int_equal(find(world, SL_METASTORE_LEASE_RENEW)->lease, 11);
}

CASE(held_key__the_end_of_an_old_lease_ends_no_new_term)
{
    win_twice(world);
    answer(world, SL_METASTORE_LEASE_RENEW, (struct sl_metastore_answer){.err = SL_ERR_NOT_FOUND});
    assert_int_equal(world->lost_count, 1);
    assert_true(sl_held_key_holds(&world->held, world->now_ns));
}

/* The new lease counts from when it was asked for. */
CASE(held_key__an_old_lease_prolongs_no_new_term)
{
    win_twice(world);
    pass(world, 3 * TTL_NS / 4);
    assert_true(sl_held_key_holds(&world->held, world->now_ns));
    answer(world, SL_METASTORE_LEASE_RENEW, (struct sl_metastore_answer){.ttl_s = TTL_S});
    assert_true(sl_held_key_holds(&world->held, world->now_ns));
    pass(world, 0);
    assert_int_equal(find(world, SL_METASTORE_LEASE_RENEW)->lease, 12); /* it is kept itself now */
    pass(world, TTL_NS / 10);
    assert_int_equal(world->lost_count, 2);
}

/* Others need not wait for the end of the lease, nor of a question about it. */
CASE(held_key__the_lease_of_a_lost_term_is_revoked_at_once)
{
    win(world, 11);
    pass(world, TTL_NS / 2);
    assert_non_null(find(world, SL_METASTORE_LEASE_RENEW));
    sl_held_key_depose(&world->held, "of the test");
    assert_non_null(find(world, SL_METASTORE_LEASE_REVOKE));
    assert_int_equal(find(world, SL_METASTORE_LEASE_REVOKE)->lease, 11);
    answer(world, SL_METASTORE_LEASE_RENEW, (struct sl_metastore_answer){.err = SL_ERR_NOT_FOUND});
    answer(world, SL_METASTORE_LEASE_REVOKE, (struct sl_metastore_answer){0});
    assert_int_equal(world->asked_count, 0);
    assert_int_equal(world->lost_count, 1);
}

/* Likewise of one that resigns: it is over when both have been answered. */
CASE(held_key__the_lease_of_one_that_resigns_is_revoked_at_once)
{
    win(world, 11);
    pass(world, TTL_NS / 2);
    assert_non_null(find(world, SL_METASTORE_LEASE_RENEW));
    sl_held_key_release(&world->held, on_released, world);
    assert_non_null(find(world, SL_METASTORE_LEASE_REVOKE));
    answer(world, SL_METASTORE_LEASE_REVOKE, (struct sl_metastore_answer){0});
    assert_int_equal(world->released_count, 0);
    answer(world, SL_METASTORE_LEASE_RENEW, (struct sl_metastore_answer){.err = SL_ERR_NOT_FOUND});
    assert_int_equal(world->released_count, 1);
    assert_int_equal(world->asked_count, 0);
}

/* The process that wrote the key has ended: its item is replaced, if it has not changed. */
CASE(held_key__replaces_the_item_of_a_dead_holder)
{
    const struct sl_metastore_item item = {.created = 5, .lease = 3};
    world->dead = 5;
    pass(world, SL_CLOCK_NS_PER_S);
    answer(world, SL_METASTORE_READ, found(&item));
    answer(world, SL_METASTORE_LEASE_GRANT, (struct sl_metastore_answer){.lease = 11});
    assert_int_equal(find(world, SL_METASTORE_WRITE)->guard, SL_METASTORE_ABSENT);
    answer(world, SL_METASTORE_WRITE, found(&item));
    assert_int_equal(find(world, SL_METASTORE_WRITE)->guard, SL_METASTORE_CREATED);
    assert_int_equal(find(world, SL_METASTORE_WRITE)->revision, 5);
    answer(world, SL_METASTORE_WRITE, (struct sl_metastore_answer){.held = true, .revision = 9});
    assert_int_equal(world->term, 5);
}

/* A failure is reported once, and its end. */
CASE(held_key__trouble)
{
    pass(world, SL_CLOCK_NS_PER_S);
    answer(world, SL_METASTORE_READ, (struct sl_metastore_answer){.err = SL_ERR_IO});
    assert_int_equal(world->trouble, SL_ERR_IO);
    win(world, 11);
    assert_int_equal(world->trouble, 0);
}

/* The key of a store without leases. */
static void win_without_leases(struct world *world)
{
    pass(world, SL_CLOCK_NS_PER_S);
    answer(world, SL_METASTORE_READ, (struct sl_metastore_answer){0});
    answer(world, SL_METASTORE_LEASE_GRANT,
           (struct sl_metastore_answer){.err = SL_ERR_UNSUPPORTED});
    assert_int_equal(find(world, SL_METASTORE_WRITE)->guard, SL_METASTORE_ALWAYS);
    answer(world, SL_METASTORE_WRITE, (struct sl_metastore_answer){.held = true});
}

/* The holder reads its key, which has that value; NULL: it does not exist. */
static void read_key(struct world *world, const char *value)
{
    struct sl_metastore_answer key = {0};
    if (value != NULL) {
        struct sl_metastore_item *item = sl_metastore_answer_add(&key, strlen(value));
        assert_non_null(item);
        memcpy(item->value, value, strlen(value));
    }
    pass(world, TTL_NS);
    assert_string_equal(find(world, SL_METASTORE_READ)->key, world->held.options.key);
    answer(world, SL_METASTORE_READ, key);
}

/* A store without leases is written without comparison; a key that is given up is removed. */
CASE(held_key__no_leases)
{
    win_without_leases(world);
    assert_int_equal(world->won_count, 1);
    pass(world, 10 * TTL_NS);
    answer(world, SL_METASTORE_READ, (struct sl_metastore_answer){.err = SL_ERR_IO});
    read_key(world, "a value");
    assert_int_equal(world->asked_count, 0);
    assert_int_equal(world->lost_count, 0);
    assert_true(sl_held_key_holds(&world->held, world->now_ns));
    sl_held_key_release(&world->held, on_released, world);
    assert_true(find(world, SL_METASTORE_WRITE)->changes[0].removes);
    answer(world, SL_METASTORE_WRITE, (struct sl_metastore_answer){.err = SL_ERR_IO});
    assert_int_equal(world->released_count, 1);
    assert_int_equal(world->trouble, SL_ERR_IO);
}

/* The store was restarted without its keys. */
CASE(held_key__a_store_without_leases_lost_the_key)
{
    win_without_leases(world);
    pass(world, TTL_NS);
    answer(world, SL_METASTORE_READ, (struct sl_metastore_answer){.err = SL_ERR_IO});
    assert_int_equal(world->trouble, SL_ERR_IO);
    read_key(world, NULL);
    assert_int_equal(world->lost_count, 1);
    assert_int_equal(world->trouble, 0);
    win_without_leases(world);
    assert_int_equal(world->won_count, 2);
    read_key(world, "a value");
    assert_int_equal(world->lost_count, 1);
}

/* Nobody writes over the key of another process as long as it has one. */
CASE(held_key__another_process_took_the_key_of_a_store_without_leases)
{
    world->dead = 1; /* the items of this store have revision 0 */
    win_without_leases(world);
    read_key(world, "of another");
    assert_int_equal(world->lost_count, 1);
    assert_false(sl_held_key_holds(&world->held, world->now_ns));
    read_key(world, "of another");
    assert_int_equal(world->asked_count, 0);
    win_without_leases(world);
    assert_int_equal(world->won_count, 2);
}

/* What was in flight at the release is given up when its answer comes. */
CASE(held_key__released_while_it_claims)
{
    pass(world, SL_CLOCK_NS_PER_S);
    answer(world, SL_METASTORE_READ, (struct sl_metastore_answer){0});
    answer(world, SL_METASTORE_LEASE_GRANT, (struct sl_metastore_answer){.lease = 11});
    sl_held_key_release(&world->held, on_released, world);
    answer(world, SL_METASTORE_WRITE, (struct sl_metastore_answer){.held = true, .revision = 9});
    assert_int_equal(world->won_count, 0);
    assert_int_equal(world->released_count, 0);
    answer(world, SL_METASTORE_LEASE_REVOKE, (struct sl_metastore_answer){0});
    assert_int_equal(world->released_count, 1);
    assert_int_equal(world->asked_count, 0);
}
