/* What a client does when a ps comes back that was restored from a checkpoint. */
#include "core/log.h"
#include "tests/support/unit.h"
#include "tests/unit/worker/client_peer.h"

#define KEYS 50
static uint64_t keys[KEYS];
static float ones[KEYS], row[KEYS];

static struct sl_step *begin(struct peer_world *world, uint32_t clock)
{
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, clock, &step), 0);
    return step;
}

static struct sl_step *submit(struct sl_step *step)
{
    assert_int_equal(sl_step_submit(step, 500), 0);
    return step;
}

static struct sl_step *push(struct peer_world *world)
{
    struct sl_step *step = begin(world, 0);
    assert_int_equal(sl_step_push(step, world->table, keys, KEYS, ones), 0);
    return submit(step);
}

static struct sl_step *pull(struct peer_world *world)
{
    struct sl_step *step = begin(world, 0);
    assert_int_equal(sl_step_pull(step, world->table, keys, KEYS, row), 0);
    return submit(step);
}

static struct sl_step *tick(struct peer_world *world, uint32_t clock)
{
    struct sl_step *step = begin(world, clock);
    assert_int_equal(sl_step_tick(step), 0);
    return submit(step);
}

/* Turns until the shard has heard so much. */
static void hear(struct peer_world *world, uint32_t count)
{
    for (int turns = 0; world->heard_count < count && turns < 400; turns++) {
        peer_turn(world);
    }
    assert_int_equal(world->heard_count, count);
}

static void start(struct peer_world *world, int32_t task_index)
{
    peer_start_with_table(world, task_index);
    world->heard_count = 0;
}

/* It knows which of them it has done: they keep their ids. */
PEER_CASE(restored__is_sent_again_what_was_under_way)
{
    start(world, -1);
    world->manner = PEER_SILENT;
    struct sl_step *sent_push = push(world), *sent_pull = pull(world);
    hear(world, 2);
    world->welcome.incarnation++;
    world->welcome.resumed = world->welcome.restored = true;
    world->manner = PEER_CORRECT;
    peer_hang_up(world);
    struct sl_step *new_push = push(world);
    peer_expect(world, sent_push, 0, "");
    peer_expect(world, sent_pull, 0, "");
    peer_expect(world, new_push, 0, "");
    assert_int_equal(world->heard_count, 6);
    assert_int_equal(world->heard[2].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(world->heard[3].op, SL_REQUEST_PUSH);
    assert_int_equal(world->heard[3].id, world->heard[0].id);
    assert_int_equal(world->heard[4].op, SL_REQUEST_PULL);
    assert_int_equal(world->heard[4].id, world->heard[1].id);
    assert_int_equal(world->heard[5].op, SL_REQUEST_PUSH);
    assert_true(world->heard[5].id > world->heard[4].id);
}

/* Restored from a time before this client came. */
PEER_CASE(restored__without_this_client_fails_its_writes)
{
    start(world, -1);
    world->manner = PEER_SILENT;
    struct sl_step *sent_push = push(world);
    hear(world, 1);
    world->welcome.incarnation++;
    world->welcome.restored = true;
    world->manner = PEER_CORRECT;
    peer_hang_up(world);
    peer_expect(world, sent_push, SL_ERR_CLOSED, "a checkpoint that does not know this client");
    peer_expect(world, push(world), 0, "");
}

/* Its clock is as old as the checkpoint: the worker joins ahead of it, before any request. */
PEER_CASE(restored__is_told_the_workers_own_clock)
{
    start(world, 0);
    for (uint32_t clock = 0; clock < 3; clock++) {
        peer_expect(world, tick(world, clock), 0, "");
    }
    world->heard_count = 0;
    world->welcome.incarnation++;
    world->welcome.resumed = world->welcome.restored = true;
    world->welcome.counts = true;
    world->welcome.clock = 1;
    peer_hang_up(world);
    peer_expect(world, tick(world, 3), 0, "");
    assert_int_equal(world->heard_count, 3);
    assert_int_equal(world->heard[0].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(world->heard[1].kind, SL_MESSAGE_JOIN);
    assert_int_equal(world->heard[1].clock, 3);
    assert_int_equal(world->heard[2].op, SL_REQUEST_TICK);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
