/* A record log with a store in memory, which answers when the case says so. */
#include "net/store/record_log.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "tests/support/memory_store.h"
#include "tests/support/unit.h"

#define KEY    "jobs/a/leader"
#define PREFIX "jobs/a/records/"

struct world {
    struct memory_store *memory;
    struct sl_metastore *handle;
    struct sl_record_log log;
    uint64_t now_ns;
    uint32_t sent, last_sent, loaded, lost_count, resigned;
    char loaded_key[32], loaded_value[32];
};

static uint64_t on_now(void *ctx)
{
    return ((struct world *)ctx)->now_ns;
}

static void on_wake(void *ctx)
{
}

static void on_won(void *ctx, uint64_t term)
{
    sl_record_log_begin(&((struct world *)ctx)->log, term, 0);
}

static void on_lost(void *ctx, const char *why)
{
    assert_string_not_equal(why, "");
    ((struct world *)ctx)->lost_count++;
    sl_record_log_end(&((struct world *)ctx)->log);
}

static void on_seen(void *ctx, const struct sl_metastore_item *item)
{
}

static void on_trouble(void *ctx, int err, const char *reason)
{
}

static void on_loaded(void *ctx, const char *key, const struct sl_metastore_item *item)
{
    struct world *world = ctx;
    world->loaded++;
    (void)snprintf(world->loaded_key, sizeof world->loaded_key, "%s", key);
    (void)snprintf(world->loaded_value, sizeof world->loaded_value, "%s", (char *)item->value);
}

static void on_ready(void *ctx, bool anew)
{
    assert_int_equal(anew, ((struct world *)ctx)->loaded == 0);
}

static void on_send(void *ctx, uint64_t to, const uint8_t *message, size_t bytes)
{
    struct world *world = ctx;
    assert_int_equal(to, 7);
    assert_int_equal(bytes, 1);
    world->sent++;
    world->last_sent = message[0];
}

static void on_resigned(void *ctx)
{
    ((struct world *)ctx)->resigned++;
}

static void answer_all(struct world *world)
{
    do {
        sl_record_log_run(&world->log);
    } while (memory_store_answer(world->memory));
}

/* Wins the key, if it is free. */
static void begin(struct world *world, const char *value)
{
    const struct sl_record_log_options options = {.key = {.metastore = world->handle,
                                                          .key = KEY,
                                                          .value = value,
                                                          .campaigns = true,
                                                          .ttl_s = 10,
                                                          .poll_ns = SL_CLOCK_NS_PER_S,
                                                          .now_ns = on_now,
                                                          .won = on_won,
                                                          .lost = on_lost,
                                                          .seen = on_seen,
                                                          .trouble = on_trouble,
                                                          .ctx = world},
                                                  .prefix = PREFIX,
                                                  .held_bytes_max = 5,
                                                  .wake = on_wake,
                                                  .loaded = on_loaded,
                                                  .ready = on_ready,
                                                  .send = on_send};
    sl_record_log_close(&world->log); /* of the one before, if any */
    sl_record_log_init(&world->log, &options);
    sl_record_log_tick(&world->log);
    answer_all(world);
}

static void set_up(struct world *world)
{
    *world = (struct world){.memory = memory_store_create()};
    world->handle = memory_store_handle(world->memory);
    begin(world, "a:1");
    assert_true(sl_record_log_leads(&world->log));
}

static void tear_down(struct world *world)
{
    sl_record_log_close(&world->log);
    while (memory_store_answer(world->memory)) {
    }
    memory_store_destroy(world->memory);
}

#define CASE(name) SL_CASE_USING(name, struct world, world, set_up, tear_down)

static void set(struct world *world, const char *key, const char *value)
{
    sl_record_log_change(&world->log, key, value, value == NULL ? 0 : strlen(value));
}

/* As an owner sends. */
static void send(struct world *world, uint8_t message)
{
    uint8_t *held = NULL;
    if (!sl_record_log_waits(&world->log)) {
        on_send(world, 7, &message, 1);
    } else if ((held = sl_record_log_hold(&world->log, 7, 1)) != NULL) {
        *held = message;
    }
}

static const struct sl_metastore_item *look(const struct world *world, const char *key)
{
    return memory_store_look(world->memory, key);
}

CASE(record_log__messages_wait_for_the_changes_before_them)
{
    send(world, 1);
    assert_int_equal(world->sent, 1);
    set(world, "m", "1");
    send(world, 2);
    sl_record_log_drop(&world->log, 7); /* its connection is closed */
    send(world, 3);
    sl_record_log_drop(&world->log, 6);
    sl_record_log_run(&world->log);
    assert_int_equal(world->sent, 1);
    answer_all(world);
    assert_int_equal(world->sent, 2);
    assert_int_equal(world->last_sent, 3);
    assert_non_null(look(world, PREFIX "m"));
}

/* More changes than one write has: the message waits for the last of them. */
CASE(record_log__messages_wait_for_several_writes)
{
    char key[8];
    for (uint32_t i = 0; i < 250; i++) {
        (void)snprintf(key, sizeof key, "%u", i);
        set(world, key, "1");
    }
    send(world, 1);
    while (memory_store_count(world->memory, PREFIX) < 250) {
        assert_int_equal(world->sent, 0);
        sl_record_log_run(&world->log);
        assert_true(memory_store_answer(world->memory));
    }
    assert_int_equal(world->sent, 1);
}

/* More messages wait than there is memory for: the term ends, and none of them is sent. */
CASE(record_log__memory_of_waiting_messages_is_bounded)
{
    set(world, "m", "1");
    for (uint8_t i = 0; i < 6; i++) {
        assert_true(sl_record_log_leads(&world->log));
        send(world, i);
    }
    assert_false(sl_record_log_leads(&world->log));
    answer_all(world);
    assert_int_equal(world->lost_count, 1);
    assert_int_equal(world->sent, 0);
}

/* A record that is set and removed takes two writes. */
CASE(record_log__later_changes_of_a_key_are_later)
{
    set(world, "m@1", "1");
    set(world, "m@1", NULL);
    set(world, "m@2", "1");
    send(world, 3);
    sl_record_log_run(&world->log);
    (void)memory_store_answer(world->memory);
    assert_non_null(look(world, PREFIX "m@1"));
    answer_all(world);
    assert_null(look(world, PREFIX "m@1"));
    assert_non_null(look(world, PREFIX "m@2"));
    assert_int_equal(world->sent, 1);
}

CASE(record_log__writes_are_repeated_after_a_pause)
{
    set(world, "m", "1");
    send(world, 1);
    memory_store_cut(world->handle, true, true);
    for (uint32_t i = 0; i < 3; i++) {
        answer_all(world); /* ends: the write is not repeated at once */
        world->now_ns += SL_CLOCK_NS_PER_S;
    }
    assert_int_equal(world->sent + world->lost_count, 0);
    memory_store_cut(world->handle, false, false);
    answer_all(world);
    assert_int_equal(world->sent, 1);
}

/* The key is another process's: nothing is written or sent any more. */
CASE(record_log__a_former_leader_writes_nothing)
{
    memory_store_set(world->memory, KEY, NULL);
    memory_store_set(world->memory, KEY, "b:1");
    set(world, "m", "1");
    send(world, 1);
    answer_all(world);
    assert_int_equal(world->lost_count, 1);
    assert_int_equal(world->sent, 0);
    assert_int_equal(memory_store_count(world->memory, PREFIX), 0);
}

CASE(record_log__the_next_leader_loads_what_was_written_before_the_end)
{
    set(world, "team/model", "7");
    send(world, 1);
    sl_record_log_resign(&world->log, SL_CLOCK_NS_PER_S, on_resigned);
    answer_all(world);
    assert_int_equal(world->resigned, 1);
    assert_int_equal(world->sent, 0);
    assert_null(look(world, KEY));
    begin(world, "b:1");
    assert_int_equal(world->loaded, 1);
    assert_string_equal(world->loaded_key, "team/model");
    assert_string_equal(world->loaded_value, "7");
}

/* With the changes that were not written yet. */
CASE(record_log__removes_all_records)
{
    set(world, "k", "1");
    sl_record_log_run(&world->log);
    set(world, "m", "1");
    set(world, "", NULL);
    set(world, "n", "1");
    (void)memory_store_answer(world->memory);
    assert_non_null(look(world, PREFIX "k"));
    answer_all(world);
    assert_null(look(world, PREFIX "k"));
    assert_null(look(world, PREFIX "m"));
    assert_non_null(look(world, PREFIX "n"));
    assert_non_null(look(world, KEY));
}

/* The store executes a write long after it was requested, when a later write has removed the
 * record: the record does not come back. */
CASE(record_log__a_write_that_is_carried_out_late_changes_nothing)
{
    memory_store_remember(world->handle);
    set(world, "m", "1");
    answer_all(world);
    set(world, "m", NULL);
    answer_all(world);
    assert_null(look(world, PREFIX "m"));
    assert_false(memory_store_play(world->memory));
    assert_null(look(world, PREFIX "m"));
    assert_int_equal(world->lost_count, 0);
}

/* The store has executed a write, and the answer was lost: its repetition is no other leader's. */
CASE(record_log__a_write_whose_answer_was_lost_is_written)
{
    memory_store_cut(world->handle, true, true);
    set(world, "m", "1");
    send(world, 1);
    answer_all(world);
    assert_non_null(look(world, PREFIX "m"));
    memory_store_cut(world->handle, false, false);
    world->now_ns += SL_CLOCK_NS_PER_S;
    set(world, "n", "1");
    answer_all(world);
    assert_int_equal(world->lost_count, 0);
    assert_int_equal(world->sent, 1);
    assert_non_null(look(world, PREFIX "n"));
}

/* Other processes, of other versions too, read these values. */
CASE(record_log__the_key_has_the_name_of_the_leader_and_the_number_of_the_write)
{
    set(world, "m", "1");
    answer_all(world);
    assert_int_equal(look(world, KEY)->value_bytes, 5);
    assert_memory_equal(look(world, KEY)->value,
                        "a:1\0"
                        "1",
                        5);
    sl_record_log_resign(&world->log, SL_CLOCK_NS_PER_S, on_resigned);
    answer_all(world);
    begin(world, "{\"name\":\"ps/0\"}");
    for (uint32_t i = 0; i < 10; i++) {
        set(world, "m", "1");
        answer_all(world);
    }
    assert_string_equal((const char *)look(world, KEY)->value,
                        "{\"name\":\"ps/0\",\"turn\":\"a\"}");
}

CASE(record_log__a_term_that_could_not_begin_takes_no_changes)
{
    sl_record_log_end(&world->log);
    sl_record_log_begin(&world->log, 1, SL_ERR_NO_MEMORY);
    sl_record_log_change(&world->log, "", NULL, 0);
    assert_false(sl_record_log_waits(&world->log));
    sl_record_log_run(&world->log);
    assert_int_equal(world->lost_count, 1);
}

CASE(record_log__ends_while_it_writes)
{
    set(world, "m", "1");
    sl_record_log_run(&world->log);
    sl_record_log_close(&world->log);
    while (memory_store_answer(world->memory)) {
    }
    world->now_ns += SL_CLOCK_NS_PER_S;
    memory_store_set(world->memory, KEY, NULL);
    begin(world, "b:1");
    assert_int_equal(world->loaded, 1);
}
