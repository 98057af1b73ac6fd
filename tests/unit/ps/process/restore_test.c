/* How a process begins from a checkpoint, and says that it cannot make one, with its main thread
 * and its coordinator played by the case: one core, one shard, over the loop transport, on a disk
 * in memory. */

#include <stdlib.h>

#include "ps/checkpoint/directory.h"
#include "ps/process/checkpoint.h"
#include "ps/process/placement.h"
#include "ps/process/restore.h"
#include "ps/server/checkpoint.h"
#include "ps/server/restore.h"
#include "ps/server/state.h"
#include "tests/support/memory_disk.h"
#include "tests/support/unit.h"
#include "tests/unit/ps/agent/fixture.h"
#include "tests/unit/ps/server/stepped.h"

#define TABLES     3
#define CHECKPOINT 1
#define TURNS_MAX  30000

struct world {
    struct fixture *f; /* the coordinator, and the reactor of both */
    struct memory_disk disk;
    struct sl_server *servers[1];
    struct sl_reactor *reactors[1];
    struct sl_process_core core;
    struct sl_process process;
    struct sl_process_sim_hooks sim_hooks;
    uint32_t answer_count;
    int answer;
    struct sl_server_checkpoint_result saved;
    bool is_saved;
};

static void on_saved(void *ctx, const struct sl_server_checkpoint_result *result)
{
    struct world *world = ctx;
    world->saved = *result;
    world->is_saved = true;
}

static bool is_saved(void *ctx)
{
    return ((const struct world *)ctx)->is_saved;
}

static void publish(struct world *world)
{
    struct sl_checkpoint_manifest manifest;
    assert_int_equal(sl_checkpoint_manifest_init(1, &manifest), 0);
    manifest.number = CHECKPOINT;
    manifest.files[0] = world->saved.file;
    assert_int_equal(sl_checkpoint_directory_publish(&world->disk.disk, "/c", &manifest,
                                                     (struct sl_checkpoint_shard_range){.count = 1},
                                                     0, NULL),
                     0);
    sl_checkpoint_manifest_fini(&manifest);
}

/* A shard with some tables, by a server that is gone then. */
static void save(struct world *world)
{
    struct stepped_two *two = calloc(1, sizeof *two);
    assert_non_null(two);
    stepped_start(&two->stepped, 1);
    const struct sl_server_checkpoint_options options = {.disk = &world->disk.disk,
                                                         .directory = "/c",
                                                         .patience_ns = SL_CLOCK_NS_PER_S,
                                                         .ended = on_saved,
                                                         .ctx = world};
    assert_int_equal(sl_server_checkpoint_open(two->stepped.server, &options), 0);
    stepped_join(&two->first, &two->stepped, UINT32_MAX, 7);
    for (uint32_t id = 0; id < TABLES; id++) {
        stepped_open_table(&two->first, id, SL_CONSISTENCY_ASP);
    }
    sl_server_checkpoint_begin(two->stepped.server, CHECKPOINT, 0, 0);
    assert_true(sl_stepped_pair_until(&two->stepped.pair, TURNS_MAX, is_saved, world));
    assert_int_equal(world->saved.err, 0);
    publish(world);
    stepped_stop(&two->stepped);
    free(two);
}

static void on_joined(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns)
{
    struct world *world = ctx;
    world->process.member.first_shard = first_shard;
    world->process.member.shard_count = shard_count;
    world->process.member.lease_ns = lease_ns;
    const uint64_t number = sl_process_restore_joined(&world->process);
    assert_int_equal(number, CHECKPOINT);
    sl_process_placement_join(&world->process, number);
}

static void on_failed(void *ctx, int err)
{
    fail_msg("the member has failed with %d", err);
}

static void on_lost(void *ctx, const struct sl_message_expired *lost)
{
}

static void on_checkpoint(void *ctx, const struct sl_message_checkpoint *begun)
{
    sl_process_on_checkpoint(&((struct world *)ctx)->process, begun);
}

static void on_complete(void *ctx, const struct sl_message_checkpoint_publish *complete)
{
    sl_process_on_checkpoint_publish(&((struct world *)ctx)->process, complete);
}

static void on_completed(void *ctx, uint64_t number)
{
    sl_process_on_checkpoint_completed(&((struct world *)ctx)->process, number);
}

static void on_cluster(void *ctx, const struct sl_message_cluster *cluster)
{
    sl_process_on_cluster(&((struct world *)ctx)->process, cluster);
}

static int64_t time_s(void *ctx)
{
    return 0;
}

static int join_now(struct sl_process *process)
{
    struct world *world = process->sim_hooks->ctx;
    const struct sl_process_restore_candidate found = sl_process_restore_found(&world->process);
    const struct sl_agent_options options = {
        .reactor = world->reactors[0],
        .transport = &sl_loop_transport_ops,
        .transport_options = {.medium = &world->f->network},
        .coordinator = {.scheme = SL_ENDPOINT_TCP, .port = PORT, .host = "127.0.0.1"},
        .shard_count = 1,
        .ps_count = 1,
        .data = {.scheme = SL_ENDPOINT_TCP, .port = PORT + 1, .host = "127.0.0.1"},
        .incarnation = INCARNATION,
        .start_timeout_ns = START_TIMEOUT_NS,
        .checkpoints = {.restore = found.number,
                        .newest = found.highest,
                        .complete = found.complete,
                        .unfinished = found.unfinished},
        .events = {.joined = on_joined,
                   .cluster = on_cluster,
                   .failed = on_failed,
                   .expired = on_lost,
                   .checkpoint = on_checkpoint,
                   .checkpoint_publish = on_complete,
                   .checkpoint_completed = on_completed},
        .ctx = world,
    };
    return sl_agent_open(&options, &world->process.agent);
}

static void on_answer(void *ctx, uint32_t core, int result)
{
    struct world *world = ctx;
    assert_int_equal(core, 0);
    world->answer = result;
    world->answer_count++;
}

static void begin(struct world *world)
{
    struct sl_server_options server = {
        .reactor = world->reactors[0],
        .transports = {.first = &sl_loop_transport_ops, .options = {.medium = &world->f->network}},
        .servers = world->servers,
        .server_count = 1,
        .incarnation = INCARNATION,
        .restores = true,
    };
    world->sim_hooks =
        (struct sl_process_sim_hooks){.answer = on_answer, .time_s = time_s, .ctx = world};
    world->process = (struct sl_process){
        .options = {.kind = SL_PROCESS_PS,
                    .ps_count = 1,
                    .reactors = {.count = 1, .shards = 1},
                    .checkpoint = {.directory = "/c",
                                   .keep = 1,
                                   .restores = true,
                                   .disk = &world->disk.disk}},
        .cores = &world->core,
        .reactors = world->reactors,
        .servers = world->servers,
        .sim_hooks = &world->sim_hooks,
    };
    world->process.shards.server = server;
    server.transports.only = true;
    assert_int_equal(sl_server_create(&server, &world->servers[0]), 0);
    world->core = (struct sl_process_core){
        .process = &world->process, .reactor = world->reactors[0], .server = world->servers[0]};
    assert_int_equal(sl_process_checkpoint_create(&world->process), 0);
    assert_int_equal(sl_process_restore_begin(&world->process, join_now), 0);
}

static void tell_cluster(struct fixture *f)
{
    struct sl_message_ps ps = {.shard_count = 1, .data_endpoint = "tcp://127.0.0.1:4001"};
    struct sl_message_placement placement = {.epoch = 1};
    const struct sl_message message = {.kind = SL_MESSAGE_CLUSTER,
                                       .id = f->register_id,
                                       .cluster = {.ps = &ps,
                                                   .ps_count = 1,
                                                   .placements = &placement,
                                                   .shard_count = 1,
                                                   .restore = CHECKPOINT}};
    send_message(f, &message);
}

/* The next table that it is told. */
static uint32_t hear_table(struct fixture *f, uint32_t before)
{
    until(f, &f->request_count, before + 1);
    assert_int_equal(f->request.kind, SL_MESSAGE_TABLE_OPEN);
    assert_true(f->request.table_open.keep_id);
    return f->request.table_open.table_id;
}

static void accept_table(struct fixture *f)
{
    const struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPENED,
                                       .id = f->request.id,
                                       .table_id = f->request.table_open.table_id};
    send_message(f, &message);
}

static void setup(struct world *world)
{
    memory_disk_init(&world->disk);
    save(world);
    world->f = calloc(1, sizeof *world->f);
    assert_non_null(world->f);
    fixture_setup(world->f);
    sl_agent_close(&world->f->member); /* the process has its own */
    world->reactors[0] = world->f->pair.a.reactor;
    assert_int_equal(sl_reactor_connect(world->reactors, 1), 0);
    begin(world);
    listen_now(world->f);
}

static void teardown(struct world *world)
{
    sl_agent_close(&world->process.agent);
    sl_process_checkpoint_close(&world->process);
    sl_process_restore_close(&world->process);
    sl_process_placement_destroy(&world->core);
    sl_process_hosted_free(&world->process);
    sl_server_destroy(&world->servers[0]);
    fixture_teardown(world->f);
    free(world->f);
    memory_disk_fini(&world->disk);
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown)

static void restore(struct world *world)
{
    struct fixture *f = world->f;
    greet(f);
    tell_cluster(f);
    for (uint32_t id = 0; id < TABLES; id++) {
        assert_int_equal(hear_table(f, id), id);
        assert_int_equal(world->answer_count, 0);
        accept_table(f);
    }
    until(f, &world->answer_count, 1);
    assert_int_equal(world->answer, 0);
    assert_int_equal(f->request_count, TABLES);
}

CASE(process_restore__the_coordinator_is_told_all_tables)
{
    restore(world);
}

/* The one that has taken the first knows nothing when it is there again, and would give its id to
 * another. */
CASE(process_restore__a_coordinator_that_begins_anew_is_told_the_first_ones_too)
{
    struct fixture *f = world->f;
    bool is_told[TABLES] = {false};
    greet(f);
    tell_cluster(f);
    assert_int_equal(hear_table(f, 0), 0);
    accept_table(f);
    assert_int_equal(hear_table(f, 1), 1);
    disconnect(f);
    uint32_t heard = f->request_count;
    greet(f);
    tell_cluster(f);
    while (world->answer_count == 0) {
        if (f->request_count > heard) {
            is_told[hear_table(f, heard++)] = true;
            accept_table(f);
        }
        pass(f, 1);
    }
    assert_int_equal(world->answer, 0);
    for (uint32_t id = 0; id < TABLES; id++) {
        assert_true(is_told[id]);
    }
}

/* Else it would wait for this process, and no other would begin. */
CASE(process_checkpoint__the_coordinator_is_told_of_one_that_failed)
{
    struct fixture *f = world->f;
    restore(world);
    world->disk.bytes_left = 0;
    send_message(f, &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT, .checkpoint.number = 2});
    until(f, &f->part_count, 1);
    assert_int_equal(f->part.number, 2);
    assert_true(f->part.err != 0);
    assert_int_equal(f->part.file_count, 0);
    world->disk.bytes_left = UINT64_MAX;
    send_message(f, &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT, .checkpoint.number = 3});
    until(f, &f->part_count, 2);
    assert_int_equal(f->part.number, 3);
    assert_int_equal(f->part.err, 0);
    assert_int_equal(f->part.file_count, 1);
}

/* Checkpoint 2 of two servers holds a write; the last checkpoint fails. */
static void fail_last(struct world *world, bool is_completed)
{
    struct fixture *f = world->f;
    restore(world);
    world->process.options.ps_count = 2;
    world->process.options.times.drain_timeout_ns = SL_CLOCK_NS_PER_S;
    sl_process_hosted_first(&world->process)->server->writes.count++;
    send_message(f, &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT, .checkpoint.number = 2});
    until(f, &f->part_count, 1);
    assert_int_equal(f->part.err, 0);
    send_message(f,
                 &(struct sl_message){
                     .kind = SL_MESSAGE_CHECKPOINT_PUBLISH,
                     .checkpoint_publish = {.number = 2, .files = f->part_files, .file_count = 1}});
    until(f, &f->done_count, 1);
    if (is_completed) {
        send_message(
            f, &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_DONE, .checkpoint_number = 2});
        pass(f, 100);
    }
    sl_process_checkpoint_last(&world->core, 0, 0);
    until(f, &f->request_count, TABLES + 1);
    assert_int_equal(f->request.kind, SL_MESSAGE_CHECKPOINT_ASK);
    send_error(f, f->request.id, SL_ERR_CLOSED);
    until(f, &world->answer_count, 2);
}

CASE(process_checkpoint__a_failed_last_one_loses_nothing_if_the_newest_is_complete)
{
    fail_last(world, true);
    assert_false(world->process.directory.is_unsaved);
}

/* This server has its manifest, and another may lack it. */
CASE(process_checkpoint__a_failed_last_one_loses_what_only_an_incomplete_one_holds)
{
    fail_last(world, false);
    assert_true(world->process.directory.is_unsaved);
}
