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

/* In each precision; of INT8, the scale is infinite or NaN, or its product with a byte is. */
CASE(shard_check_finite__widens)
{
    static const struct {
        enum sl_precision precision;
        uint32_t bits; /* of the second row, its second value or its scale */
        const char *row, *element;
    } cases[] = {
        {SL_PRECISION_F16, 0x7c00, "column 1 of key 1 is infinite", "element 257 is infinite"},
        {SL_PRECISION_F16, 0xfc01, "column 1 of key 1 is NaN", "element 257 is NaN"},
        {SL_PRECISION_F16, 0x7bff, NULL, NULL},
        {SL_PRECISION_BF16, 0xff80, "column 1 of key 1 is -infinite", "element 257 is -infinite"},
        {SL_PRECISION_BF16, 0x7fc0, "column 1 of key 1 is NaN", "element 257 is NaN"},
        {SL_PRECISION_INT8, 0x7f800000, "column 0 of key 1 is infinite", "element 256 is infinite"},
        {SL_PRECISION_INT8, 0x7fc00000, "column 0 of key 1 is NaN", "element 256 is NaN"},
        {SL_PRECISION_INT8, 0x7e800000, "column 1 of key 1 is -infinite",
         "element 257 is -infinite"},
        {SL_PRECISION_INT8, 0x7b800000, NULL, NULL},
    };
    const uint64_t keys[] = {0, 1, 2};
    const float rows[3 * DIM] = {1, 1, 1, -64, 1, 1}; /* of INT8: bytes 64, 64, 1, -64, 64, 64 */
    float elements[600] = {[256] = 1, [257] = -64};
    open_tables(f);
    for (uint32_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const enum sl_precision precision = cases[i / 2].precision;
        const size_t bits_bytes = precision == SL_PRECISION_INT8 ? 4 : 2;
        const bool is_dense = i % 2 == 1;
        shard_request_begin(&f->request, 0);
        f->request.pushed = precision;
        if (is_dense) {
            shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH, ELEMENTS, 0, 600, elements);
        } else {
            shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS, keys, 3, rows, DIM);
        }
        const size_t values =
            f->request.bytes - sl_bytes_pad8(is_dense ? sl_precision_array_bytes(precision, 600)
                                                      : 3 * sl_precision_row_bytes(precision, DIM));
        const size_t row = sl_precision_row_bytes(precision, is_dense ? 256 : DIM);
        const size_t column = precision == SL_PRECISION_INT8 ? 0 : 2;
        memcpy(f->request.payload + values + row + column, &cases[i / 2].bits, bits_bytes);
        expect(f, is_dense ? cases[i / 2].element : cases[i / 2].row);
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
