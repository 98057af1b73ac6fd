/* Tables with reject_nonfinite: a request with a value that is NaN or infinite is refused before
 * anything of it runs. */
#include "ps/shard/finite_tables.h"

#include <math.h>
#include <string.h>

#include "fixture.h"

#define ROWS     4 /* ids of tables with the option */
#define ELEMENTS 5
#define KEYS     100

static const uint64_t big = (uint64_t)1 << 63;

static void open_tables(struct fixture *f)
{
    struct sl_table_spec spec = {.name = "rows", .dim = DIM, .reject_nonfinite = true};
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), 0);
    spec = (struct sl_table_spec){
        .name = "elements", .kind = SL_TABLE_DENSE, .length = 1000, .reject_nonfinite = true};
    assert_int_equal(sl_shard_table_open(f->shard, ELEMENTS, &spec, &f->reason), 0);
}

static void push(struct fixture *f, uint8_t op, uint16_t table, const float *values)
{
    uint64_t keys[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = big + i;
    }
    shard_request_push(&f->request, op, table, keys, KEYS, values, DIM);
}

/* The request in f->request is refused, or accepted with text NULL. */
static void expect(struct fixture *f, const char *text)
{
    fixture_begin(f, NOBODY);
    const int err = sl_flags_has(f->work.flags, SL_SHARD_WANTS_FINITE)
                        ? sl_shard_check_finite(f->shard, &f->work, &f->reason)
                        : 0;
    assert_int_equal(err, text == NULL ? 0 : SL_ERR_INVALID);
    if (text != NULL && strstr(f->reason.text, text) == NULL) {
        fail_msg("%s", f->reason.text);
    }
}

CASE(shard_check_finite__names_table_key_and_column)
{
    static const uint8_t ops[] = {SL_REQUEST_PUSH, SL_REQUEST_PUSH_PULL, SL_REQUEST_ASSIGN};
    float values[KEYS * DIM] = {1};
    open_tables(f);
    for (uint32_t i = 0; i < sizeof ops; i++) {
        values[7 * DIM + 1] = values[90 * DIM] = 1;
        shard_request_begin(&f->request, 0);
        push(f, ops[i], ROWS, values);
        expect(f, NULL);
        values[7 * DIM + 1] = -NAN;
        values[90 * DIM] = INFINITY;
        shard_request_begin(&f->request, 0);
        push(f, ops[i], ROWS, values);
        expect(f, "table rows: the value of column 1 of key 9223372036854775815 is NaN; accepted");
        shard_request_begin(&f->request, 0);
        push(f, ops[i], ASP, values); /* a table without the option */
        expect(f, NULL);
        assert_false(sl_flags_has(f->work.flags, SL_SHARD_WANTS_FINITE));
    }
}

CASE(shard_check_finite__names_the_element)
{
    static const uint8_t ops[] = {SL_REQUEST_DENSE_PUSH, SL_REQUEST_DENSE_PUSH_PULL,
                                  SL_REQUEST_DENSE_ASSIGN};
    float values[300] = {[250] = -INFINITY};
    open_tables(f);
    for (uint32_t i = 0; i < sizeof ops; i++) {
        shard_request_begin(&f->request, 0);
        shard_request_dense(&f->request, ops[i], ELEMENTS, 400, 250, values);
        expect(f, NULL);
        shard_request_begin(&f->request, 0);
        shard_request_dense(&f->request, ops[i], ELEMENTS, 400, 300, values);
        expect(f, "table elements: the value of element 650 is -infinite; accepted");
    }
}

CASE(shard_check_finite__looks_at_every_section)
{
    float values[KEYS * DIM] = {0};
    const uint64_t key = 3;
    open_tables(f);
    for (uint32_t bad = 0; bad < 2; bad++) {
        values[KEYS * DIM - 1] = bad == 0 ? 1 : INFINITY;
        shard_request_begin(&f->request, 0);
        shard_request_pull(&f->request, ROWS, &key, 1);
        push(f, SL_REQUEST_PUSH, ASP, values);
        shard_request_erase(&f->request, ROWS, &key, 1);
        push(f, SL_REQUEST_PUSH, ROWS, values);
        expect(f, bad == 0 ? NULL : "column 1 of key 9223372036854775907 is infinite");
    }
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE); /* the check does not change the request */
}
