/* What a process makes of the coordinator's word about each shard, and of what its shards say of
 * their backups. */
#include "ps/process/placement.h"

#include "ps/agent/state.h"
#include "ps/replication/state.h"
#include "ps/server/state.h"
#include "tests/support/unit.h"
#include "tests/unit/ps/server/stepped.h"

#define SHARDS  3
#define TASKS   3
#define RETIRED 2000 /* turns, in which the server of a shard that left has ended */

struct world {
    struct stepped stepped;
    struct sl_process process;
    struct sl_process_core core;
    struct sl_agent member;
    struct sl_reactor *reactors[1];
    struct sl_message_ps ps[TASKS];
    struct sl_message_placement placements[SHARDS];
    struct sl_message_cluster cluster;
    uint32_t end_count;
    uint32_t switchovers; /* bit k: shard k */
    int result;           /* the last answer */
    struct sl_process_sim_hooks sim_hooks;
};

static void answer(void *ctx, uint32_t core, int result)
{
    ((struct world *)ctx)->result = result;
}

static void send_cluster(struct world *world)
{
    sl_process_on_cluster(&world->process, &world->cluster);
    stepped_turns(&world->stepped, 4);
}

/* Of ps/1: the process is the primary of shard 0, whose backup is on ps/2, and of shard 1, and has
 * the backup of shard 2, which is on ps/0. */
static void setup(struct world *world)
{
    static const struct sl_message_placement placements[SHARDS] = {
        {.epoch = 3, .primary = 1, .backup_plus_1 = 3, .in_sync = true},
        {.epoch = 3, .primary = 1, .backup_plus_1 = 1, .in_sync = true},
        {.epoch = 3, .primary = 0, .backup_plus_1 = 2, .in_sync = true},
    };
    stepped_start(&world->stepped, 1);
    world->reactors[0] = world->stepped.pair.a.reactor;
    assert_int_equal(sl_reactor_connect(world->reactors, 1), 0);
    world->core = (struct sl_process_core){
        .process = &world->process, .reactor = world->reactors[0], .server = world->stepped.server};
    world->sim_hooks = (struct sl_process_sim_hooks){.answer = answer, .ctx = world};
    world->member = (struct sl_agent){.options = {.reactor = world->reactors[0], .task_index = 1}};
    world->process = (struct sl_process){
        .options = {.kind = SL_PROCESS_PS,
                    .ps_count = TASKS,
                    .reactors = {.count = 1, .shards = 1},
                    .replicas = 1},
        .member = {.task_index = 1, .first_shard = 1, .shard_count = SHARDS},
        .cores = &world->core,
        .reactors = world->reactors,
        .servers = world->stepped.servers,
        .agent = &world->member,
        .sim_hooks = &world->sim_hooks,
        .shards.server = {.servers = world->stepped.servers,
                          .server_count = 1,
                          .task_index = 1,
                          .hooks = &sl_replication_hooks},
        .shards.replication = {.state_changed = sl_process_on_replica_state_changed,
                               .failed = sl_process_on_replica_failed},
    };
    for (uint32_t i = 0; i < TASKS; i++) {
        world->ps[i] =
            (struct sl_message_ps){.task_index = i, .data_endpoint = "tcp://127.0.0.9:9"};
    }
    memcpy(world->placements, placements, sizeof placements);
    world->cluster = (struct sl_message_cluster){
        .ps = world->ps, .ps_count = TASKS, .placements = world->placements, .shard_count = SHARDS};
    sl_process_on_cluster(&world->process, &world->cluster);
    world->result = SL_ERR_AGAIN;
    sl_process_placement_join(&world->process, 0);
    stepped_turns(&world->stepped, 4);
    assert_int_equal(world->result, 0);
}

static void teardown(struct world *world)
{
    sl_process_placement_destroy(&world->core);
    stepped_stop(&world->stepped);
    sl_process_hosted_free(&world->process);
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown)

static struct sl_process_hosted *find(struct world *world, uint32_t shard)
{
    SL_PROCESS_FOREACH (hosted, &world->process) {
        if (hosted->shard == shard) {
            return hosted;
        }
    }
    return NULL;
}

static bool has_server(struct world *world, uint32_t shard)
{
    return find(world, shard) != NULL && find(world, shard)->server != NULL;
}

/* The replication of the shard reports the state of its backup in its epoch. */
static void reports(struct world *world, uint32_t shard, bool in_sync)
{
    sl_process_on_replica_state_changed(find(world, shard), 0, world->placements[shard].epoch,
                                        in_sync);
    stepped_turns(&world->stepped, 2);
}

static const struct sl_message_replica_report *report_of(const struct world *world, uint32_t index)
{
    assert_true(index < world->member.registration.report_count);
    return &world->member.registration.reports[index];
}

static void on_end(void *ctx, uint64_t switches_over, uint64_t b)
{
    const struct sl_process_hosted *hosted = ctx;
    struct world *world = SL_CONTAINER_OF(hosted->process, struct world, process);
    world->end_count++;
    world->switchovers |= switches_over != 0 ? 1U << hosted->shard : 0;
}

/* The shards that would switch over if the process stopped now. */
static uint32_t switchovers_of(struct world *world)
{
    world->end_count = world->switchovers = 0;
    assert_int_equal(sl_process_hosted_end(&world->process, on_end), SHARDS);
    stepped_turns(&world->stepped, 2);
    assert_int_equal(world->end_count, SHARDS);
    return world->switchovers;
}

/* As when the member has sent its reports. */
static void send_reports(struct world *world)
{
    world->member.registration.has_news = false;
}

CASE(process__switches_over_the_shards_whose_backup_is_in_sync)
{
    assert_int_equal(switchovers_of(world), 0);
    reports(world, 0, true);
    assert_int_equal(switchovers_of(world), 1);
    reports(world, 1, true);
    assert_int_equal(switchovers_of(world), 3);
    reports(world, 0, false);
    assert_int_equal(switchovers_of(world), 2);
}

/* A report that was sent arrives before this server's Goodbye; one that waits does not. */
CASE(process__switches_over_after_the_report_is_sent)
{
    world->placements[0].epoch++;
    world->placements[0].in_sync = false;
    send_cluster(world);
    reports(world, 0, true);
    assert_true(sl_agent_has_news(&world->member));
    assert_int_equal(switchovers_of(world), 0);
    send_reports(world);
    assert_int_equal(switchovers_of(world), 1);
}

/* A new coordinator learns the roles from these. */
CASE(process__reports_the_roles_that_it_has)
{
    reports(world, 0, true);
    assert_int_equal(world->member.registration.report_count, SHARDS);
    assert_int_equal(report_of(world, 0)->role, SL_MESSAGE_REPLICA_PRIMARY);
    assert_true(report_of(world, 0)->in_sync);
    assert_true(report_of(world, 1)->is_undecided);
    assert_int_equal(report_of(world, 2)->role, SL_MESSAGE_REPLICA_BACKUP);
    assert_true(report_of(world, 2)->in_sync);
    world->placements[2] =
        (struct sl_message_placement){.epoch = 4, .primary = 0, .backup_plus_1 = 3};
    send_cluster(world);
    assert_int_equal(report_of(world, 2)->role, SL_MESSAGE_REPLICA_NEITHER);
    assert_int_equal(report_of(world, 2)->epoch, 4);
}

CASE(process__ends_the_server_of_a_shard_that_left)
{
    assert_true(has_server(world, 0));
    world->placements[0] =
        (struct sl_message_placement){.epoch = 4, .primary = 2, .backup_plus_1 = 1};
    send_cluster(world);
    stepped_turns(&world->stepped, RETIRED);
    assert_false(has_server(world, 0));
    assert_true(has_server(world, 1));
}

/* The primary becomes the backup: what it had is not what the new primary has. */
CASE(process__begins_again_as_the_backup_of_a_shard_that_moved)
{
    sl_cell_set(&find(world, 0)->cells.not_finite, 7); /* until the server ends */
    world->placements[0] =
        (struct sl_message_placement){.epoch = 4, .primary = 2, .backup_plus_1 = 2};
    send_cluster(world);
    stepped_turns(&world->stepped, RETIRED);
    assert_true(has_server(world, 0));
    assert_int_equal(sl_cell_get(&find(world, 0)->cells.not_finite), 0);
    assert_false(find(world, 0)->server->role.serves);
    assert_int_equal(find(world, 0)->server->replica->config.epoch, 4);
}

/* The backup becomes the primary: its server stays. */
CASE(process__keeps_the_server_of_a_shard_that_it_has_received)
{
    const struct sl_server *before = find(world, 2)->server;
    world->placements[2] = (struct sl_message_placement){.epoch = 4, .primary = 1};
    send_cluster(world);
    assert_ptr_equal(find(world, 2)->server, before);
    assert_true(sl_process_hosted_is_primary(find(world, 2)));
}

CASE(process__refuses_an_older_epoch)
{
    world->placements[1].epoch = 2;
    send_cluster(world);
    assert_int_equal(world->result, SL_ERR_PROTOCOL);
}
