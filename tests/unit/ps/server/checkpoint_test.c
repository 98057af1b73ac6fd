/* A server's shard saved while it serves, and begun from what was saved; on a disk in memory that
 * fails, fills up or stands still. */

#include <string.h>

#include "ps/checkpoint/directory.h"
#include "ps/server/checkpoint.h"
#include "ps/server/restore.h"
#include "ps/server/state.h"
#include "stepped.h"
#include "tests/support/memory_disk.h"
#include "tests/support/unit.h"

#define RESULTS  8
#define PATIENCE (20 * SL_CLOCK_NS_PER_S)

struct world {
    struct stepped_two two; /* first */
    struct memory_disk disk;
    struct sl_server_checkpoint_result results[RESULTS];
    uint32_t result_count;
    int restore_err;
    struct sl_reason restore_reason;
    bool restored;
    uint64_t next_id;
    enum sl_checkpoint_workers workers; /* as the manifests say */
};

static void on_ended(void *ctx, const struct sl_server_checkpoint_result *result)
{
    struct world *world = ctx;
    assert_true(world->result_count < RESULTS);
    world->results[world->result_count++] = *result;
}

static void on_restored(void *ctx, int err, const char *reason)
{
    struct world *world = ctx;
    world->restored = true;
    world->restore_err = err;
    sl_reason_set(&world->restore_reason, "%s", reason);
}

static void open_checkpoints(struct world *world)
{
    const struct sl_server_checkpoint_options options = {.disk = &world->disk.disk,
                                                         .directory = "/c",
                                                         .compression_level = 1,
                                                         .patience_ns = PATIENCE,
                                                         .ended = on_ended,
                                                         .ctx = world};
    assert_int_equal(sl_server_checkpoint_open(world->two.stepped.server, &options), 0);
}

/* A client, and table 0, which is ASP. */
static void setup(struct world *world)
{
    memory_disk_init(&world->disk);
    stepped_start(&world->two.stepped, 1);
    open_checkpoints(world);
    stepped_join(&world->two.first, &world->two.stepped, NOBODY, 7);
    stepped_open_table(&world->two.first, 0, SL_CONSISTENCY_ASP);
    world->next_id = 1;
}

static void teardown(struct world *world)
{
    stepped_stop(&world->two.stepped);
    assert_int_equal(world->disk.open_files, 0);
    memory_disk_fini(&world->disk);
}

/* Adds 1 to each value of so many keys; returns what the reply says. */
static int push(struct world *world, uint32_t key_count)
{
    const uint64_t id = world->next_id++;
    stepped_push(&world->two.first, id, 0, key_count);
    return stepped_reply(&world->two.first, id)->status;
}

static void begin(struct world *world, uint64_t number, uint64_t base)
{
    sl_server_checkpoint_begin(world->two.stepped.server, number, base, 0);
}

static bool has_result(void *ctx)
{
    return ((const struct world *)ctx)->result_count > 0;
}

/* The next one; the others move up. */
static struct sl_server_checkpoint_result take_result(struct world *world)
{
    assert_true(sl_stepped_pair_until(&world->two.stepped.pair, 100000, has_result, world));
    const struct sl_server_checkpoint_result result = world->results[0];
    world->result_count--;
    memmove(world->results, world->results + 1, world->result_count * sizeof result);
    return result;
}

/* What the process does when all shards have their files. */
static void complete(struct world *world, const struct sl_server_checkpoint_result *result,
                     uint64_t base)
{
    struct sl_checkpoint_manifest manifest;
    assert_int_equal(sl_checkpoint_manifest_init(1, &manifest), 0);
    manifest.number = result->number;
    manifest.base = base;
    manifest.workers = world->workers;
    manifest.files[0] = result->file;
    int err =
        sl_checkpoint_directory_publish(&world->disk.disk, "/c", &manifest,
                                        (struct sl_checkpoint_shard_range){.count = 1}, 0, NULL);
    assert_int_equal(err, 0);
    sl_checkpoint_manifest_fini(&manifest);
    sl_server_checkpoint_completed(world->two.stepped.server, result->number);
}

static uint64_t save(struct world *world, uint64_t number, uint64_t base)
{
    begin(world, number, base);
    const struct sl_server_checkpoint_result result = take_result(world);
    assert_string_equal(result.reason.text, "");
    assert_int_equal(result.err, 0);
    assert_int_equal(result.number, number);
    complete(world, &result, base);
    return result.file.rows;
}

/* Another server in the place of the first, which begins from that checkpoint. */
static void restart(struct world *world)
{
    stepped_stop(&world->two.stepped);
    memset(&world->two.stepped, 0, sizeof world->two.stepped);
    world->two.stepped.options.restores = true;
    stepped_start(&world->two.stepped, 2);
    open_checkpoints(world);
    world->two.first.link = NULL; /* the world has freed it */
    world->two.first.connected = false;
    world->restored = false;
}

static void restore(struct world *world, uint64_t number)
{
    const struct sl_server_restore_options options = {.disk = &world->disk.disk,
                                                      .directory = "/c",
                                                      .number = number,
                                                      .ended = on_restored,
                                                      .ctx = world};
    assert_int_equal(sl_server_restore_begin(world->two.stepped.server, &options), 0);
}

static bool is_restored(void *ctx)
{
    return ((const struct world *)ctx)->restored;
}

static void wait_restored(struct world *world)
{
    assert_true(sl_stepped_pair_until(&world->two.stepped.pair, 100000, is_restored, world));
}

static float value_of(struct world *world, uint32_t key_count)
{
    return stepped_values(&world->two.stepped, 0, key_count);
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown)

CASE(save__adds_what_has_changed)
{
    assert_int_equal(push(world, 3000), 0);
    assert_int_equal(save(world, 1, 0), 3000);
    assert_int_equal(push(world, 10), 0);
    assert_int_equal(save(world, 2, 1), 10);
    assert_int_equal(save(world, 3, 2), 0);
    assert_int_equal(push(world, 20), 0);
    /* A base that the shard does not know: everything is as good. */
    assert_int_equal(save(world, 4, 2), 3000);
}

/* One whose manifest was never written is nothing to add to. */
CASE(save__adds_to_what_is_complete_only)
{
    assert_int_equal(push(world, 100), 0);
    assert_int_equal(save(world, 1, 0), 100);
    assert_int_equal(push(world, 10), 0);
    begin(world, 2, 1);
    assert_int_equal(take_result(world).err, 0);
    assert_int_equal(push(world, 5), 0);
    assert_int_equal(save(world, 3, 1), 10);
}

/* Requests are answered while it is made, and what they push is not in it. */
CASE(save__is_of_one_moment)
{
    world->two.stepped.pair.offload_ns = 30 * SL_CLOCK_NS_PER_MS;
    assert_int_equal(push(world, STEPPED_KEYS), 0);
    begin(world, 1, 0);
    stepped_turns(&world->two.stepped, 2);
    uint32_t pushes = 0;
    while (world->result_count == 0) {
        assert_int_equal(push(world, pushes % 2 == 0 ? 100 : STEPPED_KEYS), 0);
        pushes++;
    }
    assert_true(pushes > 2);
    const struct sl_server_checkpoint_result result = take_result(world);
    assert_int_equal(result.err, 0);
    assert_int_equal(result.file.rows, STEPPED_KEYS);
    complete(world, &result, 0);
    restart(world);
    restore(world, 1);
    wait_restored(world);
    assert_int_equal(world->restore_err, 0);
    sl_server_start_serving(world->two.stepped.server);
    assert_true(value_of(world, 100) == 1.0F);
}

CASE(save__begins_while_a_long_push_is_in_progress)
{
    stepped_push(&world->two.first, world->next_id++, 0, STEPPED_KEYS);
    stepped_turns(&world->two.stepped, 2);
    begin(world, 1, 0);
    const struct sl_server_checkpoint_result result = take_result(world);
    assert_int_equal(result.err, 0);
    assert_int_equal(stepped_reply(&world->two.first, 1)->status, 0);
}

CASE(save__another_one_takes_its_place)
{
    assert_int_equal(push(world, 3000), 0);
    begin(world, 1, 0);
    stepped_turns(&world->two.stepped, 2);
    begin(world, 2, 0);
    const struct sl_server_checkpoint_result first = take_result(world);
    assert_int_equal(first.number, 1);
    assert_int_equal(first.err, SL_ERR_CANCELLED);
    const struct sl_server_checkpoint_result second = take_result(world);
    assert_int_equal(second.number, 2);
    assert_int_equal(second.err, 0);
    assert_int_equal(second.file.rows, 3000);
}

/* Whatever the operation of the disk that fails, it is said, requests are answered, and the next
 * one is made. */
CASE(save__a_disk_that_fails)
{
    assert_int_equal(push(world, 3000), 0);
    const uint64_t before = world->disk.operations;
    save(world, 1, 0);
    const uint64_t count = world->disk.operations - before;
    assert_true(count > 4);
    uint64_t number = 2;
    uint32_t failures = 0;
    for (uint64_t i = 0; i < count; i++) {
        world->disk.fail_at = world->disk.operations + i;
        begin(world, number, 0);
        const struct sl_server_checkpoint_result result = take_result(world);
        failures += result.err != 0;
        assert_true(result.err == 0 || result.reason.text[0] != '\0');
        world->disk.fail_at = MEMORY_DISK_NEVER;
        assert_int_equal(push(world, 10), 0);
        number++;
    }
    assert_true(failures >= 4);
    save(world, number, 0);
}

CASE(save__a_full_disk)
{
    assert_int_equal(push(world, 3000), 0);
    world->disk.bytes_left = 1000;
    begin(world, 1, 0);
    const struct sl_server_checkpoint_result result = take_result(world);
    assert_int_equal(result.err, SL_ERR_IO);
    assert_non_null(strstr(result.reason.text, "No space left on device"));
    assert_int_equal(push(world, 10), 0);
    world->disk.bytes_left = UINT64_MAX;
    assert_int_equal(save(world, 2, 0), 3000);
}

/* It takes nothing for longer than the patience lasts: the checkpoint is given up, and so is the
 * next, until it goes on. */
CASE(save__a_disk_that_stands_still)
{
    assert_int_equal(push(world, 3000), 0);
    world->two.stepped.pair.offload_ns = 3 * PATIENCE;
    begin(world, 1, 0);
    stepped_pass(&world->two.stepped, PATIENCE / 2);
    assert_int_equal(world->result_count, 0);
    assert_int_equal(push(world, 10), 0);
    stepped_pass(&world->two.stepped, PATIENCE);
    const struct sl_server_checkpoint_result first = take_result(world);
    assert_int_equal(first.err, SL_ERR_DEADLINE);
    assert_non_null(strstr(first.reason.text, "the disk has taken nothing for 20 s"));
    begin(world, 2, 0);
    stepped_pass(&world->two.stepped, PATIENCE + 2 * SL_CLOCK_NS_PER_S);
    const struct sl_server_checkpoint_result second = take_result(world);
    assert_int_equal(second.err, SL_ERR_DEADLINE);
    assert_non_null(strstr(second.reason.text, "the disk"));
    world->two.stepped.pair.offload_ns = 0;
    stepped_pass(&world->two.stepped, 3 * PATIENCE);
    assert_int_equal(push(world, 10), 0);
    assert_int_equal(save(world, 3, 0), 3000);
}

CASE(save__is_left_behind_when_the_server_ends)
{
    assert_int_equal(push(world, STEPPED_KEYS), 0);
    begin(world, 1, 0);
    stepped_turns(&world->two.stepped, 4);
} /* and nothing stays open, or leaks */

CASE(quiet__nothing_is_written_any_more)
{
    struct sl_server *server = world->two.stepped.server;
    assert_true(sl_server_checkpoint_holds_all(server));
    assert_int_equal(push(world, 10), 0);
    assert_false(sl_server_checkpoint_holds_all(server));
    sl_server_fence_writes(server);
    assert_int_equal(push(world, 10), SL_ERR_CANCELLED);
    save(world, 1, 0);
    assert_true(sl_server_checkpoint_holds_all(server));
    assert_true(value_of(world, 10) == 1.0F);
    assert_true(sl_server_checkpoint_holds_all(server)); /* after a pull */
}

CASE(restore__goes_on_as_the_one_that_it_was)
{
    assert_int_equal(push(world, STEPPED_KEYS), 0);
    save(world, 1, 0);
    assert_int_equal(push(world, 10), 0);
    save(world, 2, 1);
    assert_int_equal(push(world, 10), 0); /* which is lost */
    restart(world);
    restore(world, 2);
    wait_restored(world);
    assert_string_equal(world->restore_reason.text, "");
    uint32_t count;
    const struct sl_server_restore_table *tables =
        sl_server_restore_tables(world->two.stepped.server, &count);
    assert_int_equal(count, 1);
    assert_int_equal(tables[0].id, 0);
    sl_server_start_serving(world->two.stepped.server);
    const struct sl_message *welcome = stepped_again(&world->two.first);
    assert_true(welcome->welcome.resumed);
    assert_true(welcome->welcome.restored);
    assert_true(value_of(world, 10) == 2.0F);
    assert_true(value_of(world, 1) == 2.0F);
    world->next_id = 2; /* it was done before: it comes again */
    assert_int_equal(push(world, 10), 0);
    assert_true(value_of(world, 10) == 2.0F);
    assert_int_equal(push(world, 10), 0); /* what was lost comes again */
    assert_true(value_of(world, 10) == 3.0F);
}

/* A client cannot attach a shard that is being restored. Then it has its session again. */
CASE(restore__clients_wait)
{
    assert_int_equal(push(world, STEPPED_KEYS), 0);
    save(world, 1, 0);
    restart(world);
    struct stepped_peer *peer = &world->two.first;
    assert_int_equal(stepped_again(peer)->error.err, SL_ERR_AGAIN);
    restore(world, 1);
    wait_restored(world);
    assert_int_equal(stepped_attach(peer)->error.err, SL_ERR_AGAIN);
    sl_server_start_serving(world->two.stepped.server);
    assert_int_equal(stepped_attach(peer)->kind, SL_MESSAGE_WELCOME);
    assert_true(peer->answer.welcome.resumed);
}

/* worker/0 has pushed, has finished or not, and left; worker/1 was expected, and never came. */
static void leave_and_restore(struct world *world, bool finishes)
{
    struct stepped_peer *worker = &world->two.second;
    stepped_join(worker, &world->two.stepped, 0, 8);
    stepped_open_table(worker, 1, SL_CONSISTENCY_BSP);
    stepped_push_done(worker, 1, 1, 10);
    stepped_tick_done(worker, 2, 0);
    assert_true(stepped_values(&world->two.stepped, 1, 10) == 0.0F);
    if (finishes) {
        stepped_tick_done(worker, 3, SL_REQUEST_CLOCK_FINISHED);
    }
    stepped_tell(worker, &(struct sl_message){.kind = SL_MESSAGE_GOODBYE});
    stepped_expect_end(worker);
    begin(world, 1, 0);
    const struct sl_server_checkpoint_result result = take_result(world);
    assert_int_equal(result.goes_on, !finishes);
    complete(world, &result, 0);
    restart(world);
    world->two.second.link = NULL;
    world->two.second.connected = false;
    restore(world, 1);
    wait_restored(world);
    assert_int_equal(world->restore_err, 0);
    sl_server_start_serving(world->two.stepped.server);
}

/* The buffered push of worker/1 is restored, and workers start from clock 0. */
CASE(restore__of_a_job_that_is_over_begins_another)
{
    leave_and_restore(world, true);
    assert_true(stepped_values(&world->two.stepped, 1, 10) == 1.0F);
    const struct sl_message *welcome = stepped_again(&world->two.second);
    assert_false(welcome->welcome.resumed);
    assert_true(welcome->welcome.counts);
    assert_int_equal(welcome->welcome.clock, 0);
}

/* Another shard was cut before worker/0 left: this one goes on beside it. */
CASE(restore__of_a_job_that_is_not_over_elsewhere_goes_on)
{
    world->workers = SL_CHECKPOINT_WORKERS_SOME;
    leave_and_restore(world, true);
    assert_true(stepped_values(&world->two.stepped, 1, 10) == 0.0F);
    const struct sl_message *welcome = stepped_again(&world->two.second);
    assert_false(welcome->welcome.counts);
}

/* worker/0 is waited for where it stood: a job that was stopped goes on. */
CASE(restore__of_a_job_that_was_left_unfinished_goes_on)
{
    leave_and_restore(world, false);
    assert_true(stepped_values(&world->two.stepped, 1, 10) == 0.0F);
    const struct sl_message *welcome = stepped_again(&world->two.second);
    assert_false(welcome->welcome.resumed);
    assert_true(welcome->welcome.counts);
    assert_int_equal(welcome->welcome.clock, 1);
}

CASE(restore__says_which_file_is_damaged)
{
    assert_int_equal(push(world, 3000), 0);
    save(world, 1, 0);
    static const char path[] = "/c/checkpoint-000001/shard-0000-of-0001.slc";
    struct memory_disk_node *node = memory_disk_find(&world->disk, path);
    assert_non_null(node);
    node->bytes[node->count / 2] ^= 1;
    restart(world);
    restore(world, 1);
    wait_restored(world);
    assert_int_equal(world->restore_err, SL_ERR_CORRUPT);
    assert_non_null(strstr(world->restore_reason.text, path));
}

CASE(restore__ends_with_the_server)
{
    assert_int_equal(push(world, STEPPED_KEYS), 0);
    save(world, 1, 0);
    restart(world);
    restore(world, 1);
    stepped_turns(&world->two.stepped, 3);
    assert_false(world->restored);
}
