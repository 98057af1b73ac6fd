#include "programs/serve/worker/model_table.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/support/unit.h"

static struct sl_serve_model_table models;

static struct sl_serve_model_entry *find(uint32_t i, uint64_t wanted)
{
    char name[16];
    (void)snprintf(name, sizeof name, "m%u", i);
    return sl_serve_model_table_find(&models, name, wanted);
}

SL_CASE(known_find__the_newest_and_a_given_version_are_two)
{
    sl_serve_model_table_init(&models);
    struct sl_serve_model_entry *newest = find(1, 0), *given = find(1, 7);
    assert_ptr_not_equal(newest, given);
    assert_ptr_equal(find(1, 0), newest);
    assert_ptr_equal(find(1, 7), given);
    assert_int_equal(models.count, 2);
    sl_serve_model_table_fini(&models);
}

SL_CASE(known_find__forgets_the_longest_unused)
{
    sl_serve_model_table_init(&models);
    for (uint32_t i = 0; i < SL_SERVE_MODELS_MAX; i++) {
        assert_non_null(find(i, 0));
    }
    find(0, 0)->waiting = 1; /* used, and now the most recent */
    find(1, 0)->waiting = 1;
    assert_non_null(find(5000, 0));
    assert_int_equal(models.count, SL_SERVE_MODELS_MAX);
    find(3, 0)->reported.change = 9;
    assert_non_null(find(2, 0)); /* a new one: it was forgotten, and now 4 is */
    assert_int_equal(find(3, 0)->reported.change, 9);
    assert_int_equal(find(0, 0)->waiting, 1);
    assert_int_equal(models.count, SL_SERVE_MODELS_MAX);
    SL_LIST_FOREACH (link, &models.all) {
        SL_CONTAINER_OF(link, struct sl_serve_model_entry, link)->waiting = 1;
    }
    assert_null(find(9000, 0)); /* all are in use */
    sl_serve_model_table_fini(&models);
}

/* Two layers, of which the second takes three quarters. */
static void learn(struct sl_serve_model_entry *entry, uint32_t rows, uint64_t run_ns)
{
    static const struct sl_engine_layer layers[] = {{.image_end = 100, .flops = 1000},
                                                    {.image_end = 200, .flops = 3000}};
    static const struct sl_engine_info info = {.layers = layers, .layer_count = 2};
    static struct sl_serve_version version = {.info = &info};
    float us[] = {(float)run_ns / 4000, (float)run_ns * 3 / 4000};
    const struct sl_serve_times times = {.run_ns = run_ns, .layers = us};
    entry->current = &version;
    sl_serve_model_table_learn(&models, entry, rows, &times);
    entry->current = NULL;
}

static bool is_about(double value, double expected)
{
    return value > 0.99 * expected && value < 1.01 * expected;
}

SL_CASE(known_learn__fits_runs_and_shares)
{
    sl_serve_model_table_init(&models);
    struct sl_serve_model_entry *entry = find(0, 0);
    for (uint32_t rows = 1; rows < 20; rows++) {
        learn(entry, rows, 50000 + 2000 * rows);
    }
    assert_true(is_about(sl_serve_model_entry_run_ns(entry, 1), 52000));
    assert_true(is_about(sl_serve_model_entry_run_ns(entry, 32), 114000));
    assert_int_equal(entry->profile.layer_count, 2);
    assert_true(is_about(entry->profile.layers[1].share, 0.75));
    assert_true(entry->profile.layers[1].image_end == 200);
    sl_serve_model_table_fini(&models);
}

SL_CASE(known_exposed_ns__is_the_load_beyond_the_run)
{
    sl_serve_model_table_init(&models);
    struct sl_serve_model_entry *entry = find(0, 0);
    learn(entry, 1, 1000000);
    entry->reported.bytes = entry->reported.resident_bytes = 16 << 20;
    entry->reported.read_us = 100;
    entry->reported.mib_us = 400;
    assert_true(sl_serve_model_entry_exposed_ns(entry) == 0);
    entry->reported.resident_bytes = 8 << 20; /* 3.3 ms to come */
    assert_true(is_about(sl_serve_model_entry_exposed_ns(entry), 2300000));
    entry->reported.resident_bytes = 15 << 20;
    assert_true(sl_serve_model_entry_exposed_ns(entry) == 0);
    sl_serve_model_table_fini(&models);
}

SL_CASE(known_report__all_changes_in_their_order)
{
    static struct sl_serve_message load;
    sl_serve_model_table_init(&models);
    for (uint32_t i = 0; i < 30; i++) {
        find(i, 0)->reported.number = 1;
        sl_serve_model_table_change(&models, find(i, 0));
    }
    find(30, 5)->reported.number = 5; /* of a given version: not reported */
    sl_serve_model_table_change(&models, find(30, 5));
    sl_serve_model_table_change(&models, find(3, 0)); /* once more: it comes last */
    uint64_t seen = 0;
    uint32_t count = 0, last = 0;
    for (uint32_t round = 0; round < 3; round++) {
        load.load_count = 0;
        seen = sl_serve_model_table_report(&models, seen, &load);
        assert_true(load.load_count <= SL_SERVE_LOADS_MAX);
        for (uint32_t i = 0; i < load.load_count; i++) {
            last = (uint32_t)atoi(load.loads[i].model + 1);
            count++;
        }
    }
    assert_int_equal(count, 30);
    assert_int_equal(last, 3);
    assert_true(seen == models.change_count);
    load.load_count = 0;
    assert_true(sl_serve_model_table_report(&models, seen, &load) == seen);
    assert_int_equal(load.load_count, 0);
    sl_serve_model_table_fini(&models);
}
