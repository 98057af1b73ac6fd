/* What a process makes of what its shards say of their backups: the coordinator decides for all of
 * them together, and so does the process. One reactor stands for two cores. */

#include "core/list.h"
#include "ps/agent/state.h"
#include "ps/process/replica_groups.h"
#include "tests/support/unit.h"
#include "tests/unit/ps/server/stepped.h"

#define SHARDS 2
#define EPOCH  3
#define OWN    (1U << SL_PROCESS_HOME)
#define GUEST  (1U << SL_PROCESS_PARTNER)

struct world {
    struct stepped stepped;
    struct sl_process process;
    struct sl_process_core core;
    struct sl_agent member;
    struct sl_reactor *reactors[1];
    uint32_t end_count;
};

static struct world *world_of(void *core)
{
    return SL_CONTAINER_OF(core, struct world, core);
}

/* ps/1 is the primary of its own shards, and of another server's; the coordinator has sent that the
 * backups of both are in sync. */
static void setup(struct world *world)
{
    stepped_start(&world->stepped, 1);
    world->reactors[0] = world->stepped.pair.a.reactor;
    assert_int_equal(sl_reactor_connect(world->reactors, 1), 0);
    world->core =
        (struct sl_process_core){.process = &world->process, .reactor = world->reactors[0]};
    world->process = (struct sl_process){
        .options = {.kind = SL_PROCESS_PS,
                    .ps_count = 3,
                    .reactors = {.count = SHARDS, .shards = SHARDS},
                    .replicas = 1},
        .member.task_index = 1,
        .cores = &world->core,
        .reactors = world->reactors,
    };
    for (uint32_t which = SL_PROCESS_HOME; which <= SL_PROCESS_PARTNER; which++) {
        const uint32_t owner = which == SL_PROCESS_HOME ? 1 : 0;
        world->process.hosted[which].group = (struct sl_process_replica_group){
            .ps = {.task_index = owner,
                   .epoch = EPOCH,
                   .primary = 1,
                   .backup_plus_1 = owner == 1 ? 3 : 1,
                   .in_sync = true},
            .notified_epoch = EPOCH,
        };
    }
}

static void teardown(struct world *world)
{
    stepped_stop(&world->stepped);
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown)

static void moved(struct world *world, uint32_t local_index, uint64_t epoch, bool in_sync)
{
    sl_process_on_replica_state_changed(&world->core, local_index, epoch, in_sync);
    stepped_turns(&world->stepped, 2);
}

static void on_end(void *ctx, uint64_t a, uint64_t b)
{
    struct world *world = world_of(ctx);
    world->end_count++;
}

/* What the cores would be told now. */
static uint32_t switchovers_of(struct world *world)
{
    const uint32_t before = world->end_count;
    world->process.options.reactors.count = world->process.options.reactors.shards = 1;
    sl_process_replica_end(&world->process, on_end);
    stepped_turns(&world->stepped, 2);
    world->process.options.reactors.count = world->process.options.reactors.shards = SHARDS;
    assert_int_equal(world->end_count, before + 1);
    return (world->process.hosted[SL_PROCESS_HOME].switches_over ? OWN : 0) |
           (world->process.hosted[SL_PROCESS_PARTNER].switches_over ? GUEST : 0);
}

CASE(process__switches_over_when_all_shards_are_in_sync)
{
    assert_int_equal(switchovers_of(world), 0);
    moved(world, 0, EPOCH, true);
    assert_int_equal(switchovers_of(world), 0);
    moved(world, 1, EPOCH, true);
    assert_int_equal(switchovers_of(world), OWN);
    moved(world, SHARDS, EPOCH, true);
    moved(world, SHARDS + 1, EPOCH, true);
    assert_int_equal(switchovers_of(world), OWN | GUEST);
}

/* One of them gives its backup up: the coordinator is told so of the pair. */
CASE(process__switches_over_no_shard_when_one_gives_up)
{
    moved(world, 0, EPOCH, true);
    moved(world, 1, EPOCH, true);
    moved(world, 0, EPOCH, false);
    assert_int_equal(switchovers_of(world), 0);
}

/* The coordinator has not heard it, or has begun another epoch, or another is the primary. */
CASE(process__switches_over_only_if_the_coordinator_agrees)
{
    struct sl_process_replica_group *pair = &world->process.hosted[SL_PROCESS_HOME].group;
    moved(world, 0, EPOCH, true);
    moved(world, 1, EPOCH, true);
    pair->ps.in_sync = false;
    assert_int_equal(switchovers_of(world), 0);
    pair->ps.in_sync = true;
    pair->ps.epoch++;
    assert_int_equal(switchovers_of(world), 0);
    pair->ps.epoch--;
    pair->ps.primary = 2;
    assert_int_equal(switchovers_of(world), 0);
}

/* What was sent to the coordinator is there before this ps's goodbye; what waits to be sent is not.
 */
CASE(process__switches_over_after_the_report_is_sent)
{
    struct sl_process_replica_group *pair = &world->process.hosted[SL_PROCESS_HOME].group;
    pair->ps.in_sync = false;
    world->member = (struct sl_agent){.options = {.reactor = world->reactors[0]}};
    world->process.agent = &world->member;
    moved(world, 0, EPOCH, true);
    moved(world, 1, EPOCH, true);
    assert_true(sl_agent_has_news(&world->member));
    assert_int_equal(switchovers_of(world), 0);
    world->member.registration.has_news = false; /* as when it has been sent */
    assert_int_equal(switchovers_of(world), OWN);
}

/* What a coordinator that begins anew learns from: ps/1 is the primary of its own shards and has
 * the backups of those of ps/0. */
CASE(process__reports_the_backups_that_it_has)
{
    struct sl_process_replica_group *guest = &world->process.hosted[SL_PROCESS_PARTNER].group;
    guest->ps.primary = 0;
    guest->ps.backup_plus_1 = 2;
    world->member = (struct sl_agent){.options = {.reactor = world->reactors[0], .task_index = 1}};
    world->process.agent = &world->member;
    moved(world, 0, EPOCH, true);
    moved(world, 1, EPOCH, true);
    assert_int_equal(world->member.registration.pair_count, 2);
    const struct sl_message_replica_report *pairs = world->member.registration.pairs;
    assert_int_equal(pairs[0].role, SL_MESSAGE_REPLICA_PRIMARY);
    assert_int_equal(pairs[1].task_index, 0);
    assert_int_equal(pairs[1].role, SL_MESSAGE_REPLICA_BACKUP);
    assert_true(pairs[1].in_sync);
    guest->ps.backup_plus_1 = 1; /* ps/0 itself */
    moved(world, 1, EPOCH, true);
    assert_int_equal(pairs[1].role, SL_MESSAGE_REPLICA_NEITHER);
}
