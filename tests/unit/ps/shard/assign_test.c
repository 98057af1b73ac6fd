/* Assigns: they replace values, and reset all that an optimizer keeps of them. */

#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "ps/shard/state.h"

#define FRESH      0.25F /* of every new value */
#define HISTORY    5     /* pushes */
#define BLOCK      1024
#define LENGTH     (3 * BLOCK)
#define KINDS      SL_OPTIMIZER_KIND_COUNT
#define DENSE_KIND (4 + KINDS) /* ids: after the fixture's tables, sparse ones, then dense ones */

/* A sparse and a dense table of each optimizer. */
static void open_kinds(struct fixture *f)
{
    for (uint32_t i = 0; i < 2 * KINDS; i++) {
        struct sl_table_spec spec = {
            .kind = i < KINDS ? SL_TABLE_SPARSE : SL_TABLE_DENSE,
            .dim = i < KINDS ? DIM : 0,
            .length = i < KINDS ? 0 : LENGTH,
            .optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)(i % KINDS)),
            .initializer = {.kind = SL_INITIALIZER_CONSTANT, .value = FRESH},
        };
        spec.optimizer.initial_accumulator = 0.5F;
        spec.optimizer.decay_steps = 2;
        (void)snprintf(spec.name, sizeof spec.name, "kind%u", i);
        assert_int_equal(sl_shard_table_open(f->shard, 4 + i, &spec, &f->reason), 0);
    }
}

static void write_rows(struct fixture *f, uint8_t op, uint16_t table, const uint64_t *keys,
                       uint32_t key_count, const float *rows)
{
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, op, table, keys, key_count, rows, DIM);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
}

static void write_range(struct fixture *f, uint8_t op, uint16_t table, uint64_t start,
                        uint64_t count, const float *values)
{
    shard_request_begin(&f->request, 0);
    shard_request_dense(&f->request, op, table, start, count, values);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
}

static void assert_row(struct fixture *f, uint16_t table, uint64_t key, const float *row)
{
    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, table, &key, 1);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    assert_memory_equal(f->reply, row, DIM * sizeof *row);
}

/* A row with a history is assigned what a new row has; from then on both are the same, to the bit.
 */
CASE(assign__a_row_is_as_a_new_one)
{
    open_kinds(f);
    for (uint16_t table = 4; table < DENSE_KIND; table++) {
        static const float fresh[DIM] = {FRESH, FRESH};
        const uint64_t keys[2] = {3, 70 + table};
        for (uint32_t i = 0; i < HISTORY; i++) {
            const float gradient[DIM] = {1.5F - (float)i, -0.75F};
            write_rows(f, SL_REQUEST_PUSH, table, keys, 1, gradient);
        }
        write_rows(f, SL_REQUEST_ASSIGN, table, keys, 1, fresh);
        assert_row(f, table, keys[0], fresh);
        for (uint32_t i = 0; i < HISTORY; i++) {
            const float gradients[2 * DIM] = {0.5F, -2.0F + (float)i, 0.5F, -2.0F + (float)i};
            write_rows(f, SL_REQUEST_PUSH, table, keys, 2, gradients);
            shard_request_begin(&f->request, 0);
            shard_request_pull(&f->request, table, keys, 2);
            assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
            assert_memory_equal(f->reply, f->reply + DIM * sizeof(float), DIM * sizeof(float));
            assert_memory_not_equal(f->reply, fresh, sizeof fresh);
        }
    }
}

/* The same of a whole block. */
CASE(assign__a_block_is_as_a_new_one)
{
    static float history[2 * BLOCK], fresh[BLOCK], gradients[2 * BLOCK];
    open_kinds(f);
    for (uint32_t i = 0; i < 2 * BLOCK; i++) {
        history[i] = (float)(i % 7) - 3.0F;
        gradients[i] = (float)(i % BLOCK) / 512.0F - 1.0F;
        fresh[i % BLOCK] = FRESH;
    }
    for (uint16_t table = DENSE_KIND; table < DENSE_KIND + KINDS; table++) {
        for (uint32_t i = 0; i < HISTORY; i++) {
            write_range(f, SL_REQUEST_DENSE_PUSH, table, 0, 2 * BLOCK, history);
        }
        write_range(f, SL_REQUEST_DENSE_ASSIGN, table, BLOCK, BLOCK, fresh);
        for (uint32_t i = 0; i < HISTORY; i++) {
            write_range(f, SL_REQUEST_DENSE_PUSH, table, BLOCK, 2 * BLOCK, gradients);
            write_range(f, SL_REQUEST_DENSE_PULL, table, BLOCK, 2 * BLOCK, NULL);
            assert_memory_equal(f->reply, f->reply + sizeof fresh, sizeof fresh);
            assert_memory_not_equal(f->reply, fresh, sizeof fresh);
        }
    }
}

/* Of a part of a block: its values and slots, and nothing else. */
CASE(assign__a_part_of_a_block)
{
    enum { FIRST = 100, COUNT = 50 };
    static float history[BLOCK], values[COUNT], before[4 * BLOCK];
    open_kinds(f);
    for (uint32_t i = 0; i < BLOCK; i++) {
        history[i] = (float)(i % 7) - 3.5F;
        values[i % COUNT] = (float)i;
    }
    for (uint16_t id = DENSE_KIND; id < DENSE_KIND + KINDS; id++) {
        const struct sl_shard_table *table = f->shard->tables[id];
        write_range(f, SL_REQUEST_DENSE_PUSH, id, 0, BLOCK, history);
        struct sl_dense_block block = sl_dense_table_block(table->dense, 0);
        assert_true(block.float_count <= 4 * BLOCK);
        memcpy(before, block.floats, block.float_count * sizeof *before);
        write_range(f, SL_REQUEST_DENSE_ASSIGN, id, FIRST, COUNT, values);
        block = sl_dense_table_block(table->dense, 0);
        assert_int_equal(block.count, 1);
        assert_int_equal(block.last_step, 2);
        for (uint32_t i = 0; i < block.float_count; i++) {
            const uint32_t column = i % BLOCK, slot = i / BLOCK;
            const bool inside = slot <= table->optimizer->slots_per_value && column >= FIRST &&
                                column < FIRST + COUNT;
            const float first = slot == 1 && table->optimizer->init != NULL ? 0.5F : 0.0F;
            const float wanted = !inside ? before[i] : slot == 0 ? values[column - FIRST] : first;
            assert_memory_equal(&block.floats[i], &wanted, sizeof wanted);
        }
    }
}

CASE(assign__creates_rows_and_the_last_of_a_repeated_key_counts)
{
    const uint64_t keys[5] = {9, 5, 9, 8, 9};
    const float rows[5 * DIM] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    write_rows(f, SL_REQUEST_ASSIGN, ASP, keys, 5, rows);
    assert_row(f, ASP, 9, &rows[4 * DIM]);
    assert_row(f, ASP, 5, &rows[1 * DIM]);
    assert_row(f, ASP, 8, &rows[3 * DIM]);
    assert_int_equal(f->shard->tables[ASP]->step, 1);
    assert_int_equal(f->shard->tables[ASP]->pushed_rows, 3);
}

/* At once, and the pushes that BSP has buffered follow it. */
CASE(assign__does_not_wait_for_an_iteration)
{
    const uint64_t key = 7;
    const float row[DIM] = {10, 10}, element = 20, gradient = 1;
    fixture_push_all(f, 0, BSP, key, 1);
    shard_request_begin(&f->request, 0);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH, DENSE, 1, 1, &gradient);
    assert_int_equal(fixture_run(f, 0), SL_SHARD_DONE);
    shard_request_begin(&f->request, 5); /* of any iteration */
    shard_request_push(&f->request, SL_REQUEST_ASSIGN, BSP, &key, 1, row, DIM);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_ASSIGN, DENSE, 1, 1, &element);
    assert_int_equal(fixture_run(f, 1), SL_SHARD_DONE);
    assert_true(fixture_peek(f, BSP, key) == 10);
    write_range(f, SL_REQUEST_DENSE_PULL, DENSE, 1, 1, NULL);
    assert_memory_equal(f->reply, &element, sizeof element);
    fixture_tick_all(f, 0);
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, key) == 10 + WORKERS);
    const float sum = element + gradient;
    write_range(f, SL_REQUEST_DENSE_PULL, DENSE, 1, 1, NULL);
    assert_memory_equal(f->reply, &sum, sizeof sum);
}

/* One that came before is not carried out again, and a long one is done in slices. */
CASE(assign__is_carried_out_once)
{
    fixture_long(f, SL_REQUEST_ASSIGN, ASP, 0);
    fixture_begin(f, NOBODY);
    uint32_t spent, slices = 1;
    while (sl_shard_run(f->shard, &f->work, f->reply, 500, &spent, &f->reason) == SL_SHARD_AGAIN) {
        slices++;
    }
    assert_true(slices > 5);
    assert_true(fixture_peek(f, ASP, LONG_KEYS - 1) == 1);
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, 3, 1), SL_SHARD_DONE);
    fixture_long(f, SL_REQUEST_ASSIGN, ASP, 0);
    fixture_begin(f, NOBODY);
    sl_shard_skip_writes(&f->work);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ASP, 3) == 2);
}

CASE(assign__to_a_table_of_another_kind)
{
    const struct sl_shard_client nobody = {.has_clock = false};
    const uint64_t key = 1;
    const float row[DIM] = {0};
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_ASSIGN, DENSE, &key, 1, row, DIM);
    assert_int_equal(sl_shard_begin(f->shard, &nobody, f->request.payload, f->request.bytes,
                                    &f->work, &f->reason),
                     SL_ERR_PROTOCOL);
    assert_non_null(strstr(f->reason.text, "operation 13 on a dense table"));
    shard_request_begin(&f->request, 0);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_ASSIGN, ASP, 0, DIM, row);
    assert_int_equal(sl_shard_begin(f->shard, &nobody, f->request.payload, f->request.bytes,
                                    &f->work, &f->reason),
                     SL_ERR_PROTOCOL);
    assert_non_null(strstr(f->reason.text, "operation 14 on a sparse table"));
}
