#include "ps/process/describe.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/unit.h"

#define MS SL_CLOCK_NS_PER_MS

/* Views of two shards: the second has a table less. */
struct fixture {
    struct sl_server_view *views[2];
};

static void add_table(struct sl_server_view *view, uint32_t id, const char *name)
{
    struct sl_shard_table_view *table = &view->shard.tables[view->shard.table_count++];
    table->id = id;
    (void)snprintf(table->stats.name, sizeof table->stats.name, "%s", name);
}

static void add_key(struct sl_server_view *view, uint32_t table, uint64_t key, uint32_t count,
                    uint32_t error)
{
    struct sl_hot_keys_view *hot = &view->shard.tables[table].hot;
    hot->keys[hot->count++] = (struct sl_hot_key){.key = key, .count = count, .error = error};
    hot->sampled += count;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    for (uint32_t i = 0; i < 2; i++) {
        f->views[i] = calloc(1, sizeof *f->views[i]);
        assert_non_null(f->views[i]);
        f->views[i]->shard_index = 6 + i;
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    free(f->views[0]);
    free(f->views[1]);
    free(f);
    return 0;
}
#define CASE(name) SL_CASE_OF(name, struct fixture *f, setup, teardown)

static json_t *at(json_t *of, const char *list, size_t index)
{
    json_t *found = json_array_get(json_object_get(of, list), index);
    assert_non_null(found);
    return found;
}

static const char *text_of(json_t *of, const char *name)
{
    const char *text = json_string_value(json_object_get(of, name));
    assert_non_null(text);
    return text;
}

static double number_of(json_t *of, const char *name)
{
    assert_true(json_is_number(json_object_get(of, name)));
    return json_number_value(json_object_get(of, name));
}

CASE(describe_hot__merges_the_shards_of_a_table)
{
    add_table(f->views[0], 0, "idle");
    add_table(f->views[0], 3, "ctr");
    add_table(f->views[1], 3, "ctr");
    add_key(f->views[0], 1, 5, 60, 10);
    add_key(f->views[1], 0, UINT64_MAX, 100, 0);
    add_key(f->views[1], 0, 7, 40, 38);
    json_t *hot = sl_process_describe_hot((const struct sl_server_view *const *)f->views, 2);
    assert_int_equal(json_array_size(json_object_get(hot, "tables")), 1);
    json_t *table = at(hot, "tables", 0);
    assert_string_equal(text_of(table, "table"), "ctr");
    assert_int_equal(number_of(table, "sampled"), 200);
    assert_int_equal(json_array_size(json_object_get(table, "keys")), 3);
    assert_string_equal(text_of(at(table, "keys", 0), "key"), "18446744073709551615");
    assert_true(fabs(number_of(at(table, "keys", 0), "share") - 0.5) < 1e-9);
    assert_int_equal(number_of(at(table, "keys", 0), "shard"), 7);
    assert_string_equal(text_of(at(table, "keys", 1), "key"), "5");
    assert_true(fabs(number_of(at(table, "keys", 1), "share") - 0.25) < 1e-9);
    assert_true(fabs(number_of(at(table, "keys", 1), "error") - 0.05) < 1e-9);
    assert_int_equal(number_of(at(table, "keys", 1), "shard"), 6);
    json_decref(hot);
}

static void add_slow(struct sl_server_view *view, uint64_t ended_ns, uint32_t worker, uint8_t op)
{
    struct sl_server_slow_request *slow = &view->slow[view->slow_count++ % SL_SERVER_SLOW_REQUESTS];
    *slow = (struct sl_server_slow_request){
        .ended_ns = ended_ns,
        .total_ns = 30 * MS,
        .ns = {[SL_REQUEST_PHASE_CLOCK] = 20 * MS, [SL_REQUEST_PHASE_WORK] = 10 * MS},
        .client = {.has_clock = worker != UINT32_MAX, .worker = worker},
        .section = {.key_count = 100, .op = op},
        .table = "a\"b",
    };
}

CASE(describe_slow__shows_the_newest_first)
{
    add_slow(f->views[0], 1000 * MS, 3, SL_REQUEST_PULL_POOLED);
    add_slow(f->views[1], 3000 * MS, UINT32_MAX, SL_REQUEST_DENSE_ASSIGN);
    add_slow(f->views[0], 2000 * MS, 4, SL_REQUEST_TICK);
    json_t *slow = sl_process_describe_slow((const struct sl_server_view *const *)f->views, 2,
                                            "ps/1", 10 * MS, 3500 * MS, UINT64_C(1000000000));
    assert_int_equal(number_of(slow, "threshold_us"), 10000);
    assert_int_equal(json_array_size(json_object_get(slow, "requests")), 3);
    json_t *newest = at(slow, "requests", 0), *oldest = at(slow, "requests", 2);
    assert_string_equal(text_of(newest, "client"), "client");
    assert_string_equal(text_of(newest, "op"), "assign");
    assert_int_equal(number_of(newest, "shard"), 7);
    assert_true(fabs(number_of(newest, "time") - 999999.5) < 1e-6);
    assert_string_equal(text_of(at(slow, "requests", 1), "op"), "tick");
    assert_string_equal(text_of(oldest, "client"), "worker/3");
    assert_string_equal(text_of(oldest, "server"), "ps/1");
    assert_string_equal(text_of(oldest, "op"), "pull");
    assert_string_equal(text_of(oldest, "table"), "a\"b");
    assert_int_equal(number_of(oldest, "keys"), 100);
    assert_int_equal(number_of(oldest, "total_us"), 30000);
    json_t *phases = json_object_get(oldest, "phases");
    assert_int_equal(json_object_size(phases), SL_REQUEST_PHASES);
    assert_int_equal(number_of(phases, "clock_us"), 20000);
    assert_int_equal(number_of(phases, "work_us"), 10000);
    assert_int_equal(number_of(phases, "send_us"), 0);
    json_decref(slow);
}

CASE(describe_slow__shows_the_last_ones_of_a_full_ring)
{
    for (uint32_t i = 0; i < 2 * SL_SERVER_SLOW_REQUESTS - 5; i++) {
        add_slow(f->views[0], i * MS, i, SL_REQUEST_PULL);
    }
    json_t *slow = sl_process_describe_slow((const struct sl_server_view *const *)f->views, 1,
                                            "ps/1", 10 * MS, 1000 * MS, UINT64_C(1000000000));
    json_t *list = json_object_get(slow, "requests");
    assert_int_equal(json_array_size(list), SL_PROCESS_SLOW_MAX);
    assert_string_equal(text_of(json_array_get(list, 0), "client"), "worker/250");
    assert_string_equal(text_of(json_array_get(list, SL_PROCESS_SLOW_MAX - 1), "client"),
                        "worker/123");
    json_decref(slow);
}
