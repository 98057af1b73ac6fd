/* A journal against a store in memory, which answers when the case says so. */
#include "objects/node/journal.h"

#include <stdio.h>

#include "tests/support/memory_store.h"
#include "tests/support/unit.h"

#define KEY    "starling/objects/catalogue"
#define PREFIX "starling/objects/names/"

struct world {
    struct memory_store *memory;
    struct sl_metastore *handle;
    struct sl_objects_journal *journal;
    uint32_t sent, loaded, failed;
    bool is_ready;
    uint64_t marked;
    uint64_t last_request; /* of the message that was sent last */
    char loaded_name[SL_OBJECTS_NAME_BYTES];
};

static void on_loaded(void *ctx, const struct sl_objects_record *record)
{
    struct world *world = ctx;
    world->loaded++;
    (void)snprintf(world->loaded_name, sizeof world->loaded_name, "%s", record->name);
}

static void on_marked(void *ctx, uint64_t number)
{
    ((struct world *)ctx)->marked = number;
}

static void on_ready(void *ctx)
{
    ((struct world *)ctx)->is_ready = true;
}

static void on_send(void *ctx, const char *address, const struct sl_objects_message *message)
{
    struct world *world = ctx;
    assert_string_equal(address, "a:1");
    world->sent++;
    world->last_request = message->request;
}

static void on_failed(void *ctx, const char *why)
{
    ((struct world *)ctx)->failed++;
}

static void answer_all(struct world *world)
{
    while (memory_store_answer(world->memory)) {
    }
}

static void begin(struct world *world)
{
    const struct sl_objects_journal_options options = {
        .metastore = world->handle,
        .key = KEY,
        .value = "a:1",
        .term = memory_store_look(world->memory, KEY)->created,
        .prefix = PREFIX,
        .timeout_ns = 1000000000,
        .loaded = on_loaded,
        .marked = on_marked,
        .ready = on_ready,
        .send = on_send,
        .failed = on_failed,
        .ctx = world};
    assert_int_equal(sl_objects_journal_create(&options, &world->journal), 0);
    answer_all(world);
}

static void set_up(struct world *world)
{
    *world = (struct world){.memory = memory_store_create()};
    world->handle = memory_store_handle(world->memory);
    memory_store_set(world->memory, KEY, "a:1");
    begin(world);
    assert_true(world->is_ready);
}

static void tear_down(struct world *world)
{
    sl_objects_journal_destroy(&world->journal);
    answer_all(world);
    memory_store_destroy(world->memory);
}

#define CASE(name) SL_CASE_USING(name, struct world, fixture, set_up, tear_down)

static void commit(struct world *world, const char *name, uint64_t version)
{
    const struct sl_objects_record record = {.name = name,
                                             .version = version,
                                             .time_ms = 5,
                                             .part_count = 1,
                                             .parts = {{.manifest_bytes = 10}}};
    sl_objects_journal_change(world->journal, name, version, &record);
}

static void send(struct world *world, uint32_t request)
{
    const struct sl_objects_message message = {
        .kind = SL_OBJECTS_REMOVE, .is_answer = true, .request = request};
    sl_objects_journal_send(world->journal, "a:1", &message);
}

CASE(journal__messages_wait_for_the_changes_before_them)
{
    send(fixture, 1);
    assert_int_equal(fixture->sent, 1);
    commit(fixture, "m", 1);
    send(fixture, 2);
    sl_objects_journal_tick(fixture->journal);
    assert_int_equal(fixture->sent, 1);
    answer_all(fixture);
    assert_int_equal(fixture->sent, 2);
    assert_int_equal(fixture->last_request, 2);
    assert_non_null(memory_store_look(fixture->memory, PREFIX "m@1"));
}

/* Of a version that is committed and removed the changes are two writes. */
CASE(journal__later_changes_of_a_key_are_later)
{
    commit(fixture, "m", 1);
    sl_objects_journal_change(fixture->journal, "m", 1, NULL);
    commit(fixture, "m", 2);
    send(fixture, 3);
    sl_objects_journal_tick(fixture->journal);
    (void)memory_store_answer(fixture->memory);
    assert_non_null(memory_store_look(fixture->memory, PREFIX "m@1"));
    answer_all(fixture);
    assert_null(memory_store_look(fixture->memory, PREFIX "m@1"));
    assert_non_null(memory_store_look(fixture->memory, PREFIX "m@2"));
    assert_int_equal(fixture->sent, 1);
}

CASE(journal__writes_are_repeated)
{
    commit(fixture, "m", 1);
    send(fixture, 1);
    memory_store_cut(fixture->handle, true, true);
    for (uint32_t i = 0; i < 3; i++) {
        sl_objects_journal_tick(fixture->journal);
        answer_all(fixture);
    }
    assert_int_equal(fixture->sent + fixture->failed, 0);
    memory_store_cut(fixture->handle, false, false);
    sl_objects_journal_tick(fixture->journal);
    answer_all(fixture);
    assert_int_equal(fixture->sent, 1);
}

/* The key is another process's: nothing is written or sent any more. */
CASE(journal__a_former_host_writes_nothing)
{
    memory_store_set(fixture->memory, KEY, NULL);
    memory_store_set(fixture->memory, KEY, "b:1");
    commit(fixture, "m", 1);
    send(fixture, 1);
    sl_objects_journal_tick(fixture->journal);
    answer_all(fixture);
    assert_int_equal(fixture->failed, 1);
    assert_int_equal(fixture->sent, 0);
    assert_int_equal(memory_store_count(fixture->memory, PREFIX), 0);
}

CASE(journal__the_next_host_loads_the_records)
{
    commit(fixture, "team/model", 7);
    sl_objects_journal_tick(fixture->journal);
    answer_all(fixture);
    sl_objects_journal_destroy(&fixture->journal);
    memory_store_set(fixture->memory, PREFIX "strange@1", "no record");
    begin(fixture);
    assert_int_equal(fixture->loaded, 1);
    assert_string_equal(fixture->loaded_name, "team/model");
}

/* The store carries a write out long after it was asked to, when a later write has removed the
 * version: the record does not come back. */
CASE(journal__a_write_that_is_carried_out_late_changes_nothing)
{
    memory_store_remember(fixture->handle);
    commit(fixture, "m", 1);
    sl_objects_journal_tick(fixture->journal);
    answer_all(fixture);
    sl_objects_journal_change(fixture->journal, "m", 1, NULL);
    sl_objects_journal_tick(fixture->journal);
    answer_all(fixture);
    assert_null(memory_store_look(fixture->memory, PREFIX "m@1"));
    assert_false(memory_store_play(fixture->memory));
    assert_null(memory_store_look(fixture->memory, PREFIX "m@1"));
    assert_int_equal(fixture->failed, 0);
}

/* The store has carried a write out, and the answer was lost: its repetition is no other host's. */
CASE(journal__a_write_whose_answer_was_lost_is_written)
{
    memory_store_cut(fixture->handle, true, true);
    commit(fixture, "m", 1);
    send(fixture, 1);
    sl_objects_journal_tick(fixture->journal);
    answer_all(fixture);
    assert_non_null(memory_store_look(fixture->memory, PREFIX "m@1"));
    memory_store_cut(fixture->handle, false, false);
    commit(fixture, "m", 2);
    sl_objects_journal_tick(fixture->journal);
    answer_all(fixture);
    assert_int_equal(fixture->failed, 0);
    assert_int_equal(fixture->sent, 1);
    assert_non_null(memory_store_look(fixture->memory, PREFIX "m@2"));
}

/* Nodes read the key's value up to its first NUL: the host's address. */
CASE(journal__the_key_of_the_host_begins_with_its_address)
{
    commit(fixture, "m", 1);
    sl_objects_journal_tick(fixture->journal);
    answer_all(fixture);
    assert_string_equal((const char *)memory_store_look(fixture->memory, KEY)->value, "a:1");
}

CASE(journal__the_next_host_loads_the_highest_number)
{
    sl_objects_journal_mark(fixture->journal, 41);
    sl_objects_journal_mark(fixture->journal, 42);
    send(fixture, 1);
    sl_objects_journal_tick(fixture->journal);
    assert_int_equal(fixture->sent, 0);
    answer_all(fixture);
    assert_int_equal(fixture->sent, 1);
    sl_objects_journal_destroy(&fixture->journal);
    begin(fixture);
    assert_int_equal(fixture->marked, 42);
    assert_int_equal(fixture->loaded, 0);
}

CASE(journal__ends_while_it_writes)
{
    commit(fixture, "m", 1);
    sl_objects_journal_tick(fixture->journal);
    sl_objects_journal_destroy(&fixture->journal);
    answer_all(fixture);
    begin(fixture);
}
