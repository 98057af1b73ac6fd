/* Statistics of tables, and tables that are found by their names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/worker/client/client_fixture.h"

static struct sl_table *sparse_table(struct sl_client *client, const char *name, uint32_t dim)
{
    const struct sl_table_spec spec = fixture_sparse(name, dim);
    return fixture_table(client, &spec);
}

CLIENT_CASE(client_table_info__counts_what_came_and_went_and_writes_no_more_than_the_caller_has)
{
    struct sl_client *client = fixture.client;
    struct sl_table *table = sparse_table(client, "came-and-went", 2);
    uint64_t keys[100];
    float rows[200] = {0};
    for (uint32_t i = 0; i < 100; i++) {
        keys[i] = i;
    }
    assert_int_equal(sl_client_push(client, table, keys, 100, rows, TIMEOUT_MS), 0);
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_erase(step, table, keys, 30), 0);
    assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
    assert_int_equal(sl_step_wait(step), 0);
    sl_step_destroy(&step);
    struct sl_table_info info = SL_TABLE_INFO_INIT;
    assert_int_equal(sl_client_table_info(client, table, TIMEOUT_MS, &info), 0);
    assert_int_equal(info.struct_size, sizeof info);
    assert_int_equal(info.rows, 70);
    assert_int_equal(info.rows_created, 100);
    assert_int_equal(info.rows_erased, 30);
    assert_int_equal(info.pushed_rows, 100);
    struct sl_table_info shorter = {.struct_size = offsetof(struct sl_table_info, pulled_rows),
                                    .pulled_rows = 7};
    assert_int_equal(sl_client_table_info(client, table, TIMEOUT_MS, &shorter), 0);
    assert_int_equal(shorter.rows, 70);
    assert_int_equal(shorter.pulled_rows, 7);
    shorter.struct_size = 0;
    assert_int_equal(sl_client_table_info(client, table, TIMEOUT_MS, &shorter), SL_ERR_INVALID);
    assert_non_null(strstr(sl_last_error(), "SL_TABLE_INFO_INIT"));
}

struct found_tables {
    uint32_t count, dim;
    const char *name;
};

static void take_table(void *ctx, const struct sl_table_spec *spec)
{
    struct found_tables *found = ctx;
    found->count++;
    if (strcmp(spec->name, found->name) == 0) {
        assert_int_equal(spec->struct_size, sizeof *spec);
        found->dim = spec->dim;
    }
}

CLIENT_CASE(client_tables__lists_tables_which_are_opened_by_name)
{
    struct sl_client *client = fixture.client;
    struct sl_table_spec spec = fixture_sparse("named-20", 7);
    spec.policy = (struct sl_policy_spec){.ttl_steps = 12345};
    for (uint32_t i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "named-%u", i);
        (void)sparse_table(client, name, 2);
    }
    struct sl_table *table = fixture_table(client, &spec), *named;
    struct found_tables found = {.name = "named-20"};
    assert_int_equal(sl_client_tables(client, TIMEOUT_MS, take_table, &found), 0);
    assert_true(found.count >= 21);
    assert_int_equal(found.dim, 7);
    assert_int_equal(sl_client_table_open_by_name(client, "named-20", TIMEOUT_MS, &named), 0);
    assert_ptr_equal(named, table);
    struct sl_table_spec read = SL_TABLE_SPEC_INIT;
    assert_int_equal(sl_table_spec_get(named, &read), 0);
    assert_int_equal(read.dim, 7);
    assert_int_equal(read.policy.ttl_steps, 12345);
    read.struct_size = 0;
    assert_int_equal(sl_table_spec_get(named, &read), SL_ERR_INVALID);
    assert_int_equal(sl_client_table_open_by_name(client, "named-none", TIMEOUT_MS, &named),
                     SL_ERR_NOT_FOUND);
    assert_non_null(strstr(sl_last_error(), "named-none"));
    char *longest = calloc(1, 200);
    memset(longest, 'x', 150);
    assert_int_equal(sl_client_table_open_by_name(client, longest, TIMEOUT_MS, &named),
                     SL_ERR_NOT_FOUND);
    free(longest);
    assert_int_equal(sl_client_operate(client, "does nothing", TIMEOUT_MS), 0);
}

SL_UNIT_SETUP()
{
    fixture_shape = (struct shape){2, 2, 2, SL_PROTOCOL_BATCHED};
}

SL_UNIT_WAYS(fixture_way);
