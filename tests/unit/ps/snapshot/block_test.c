/* The codec of snapshot blocks: encoded records are decoded again, and bytes that are no record are
 * refused. */

#include <math.h>
#include <string.h>

#include "core/partition.h"
#include "net/session/message_spec.h"
#include "ps/snapshot/block.h"
#include "tests/support/unit.h"

static struct sl_snapshot_block *block_of(uint32_t capacity, enum sl_snapshot_kind kind,
                                          uint32_t table_id)
{
    struct sl_snapshot_block *block;
    assert_int_equal(sl_snapshot_block_create(capacity, &block), 0);
    assert_int_equal((uintptr_t)block->payload % 8, 0);
    memset(block->payload, 0xaa, capacity);
    sl_snapshot_block_begin(block, kind, table_id);
    return block;
}

static void assert_fine(const struct sl_snapshot_block *block)
{
    assert_int_equal(sl_snapshot_block_check(block, NULL), 0);
}

static struct sl_snapshot_table a_table(void)
{
    struct sl_snapshot_table table = {
        .spec = {.name = "emb",
                 .kind = SL_TABLE_SPARSE,
                 .dim = 7,
                 .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAM_ASYNC),
                 .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -1, .high = 2, .seed = 77},
                 .consistency = {.mode = SL_CONSISTENCY_BSP, .worker_count = 3}},
        .row_count = 0x89abcdef,
        .step = 0x123456789aULL,
        .state = {.beta1_power = 0.25F, .beta2_power = 0.5F},
        .pulled_rows = 11,
        .pushed_rows = 12,
    };
    return table;
}

SL_CASE(snapshot__a_table)
{
    struct sl_snapshot_block *block = block_of(SL_SNAPSHOT_TABLE_BYTES, SL_SNAPSHOT_TABLE, 0);
    const struct sl_snapshot_table table = a_table();
    sl_snapshot_put_table(block, 1023, &table);
    assert_fine(block);
    assert_int_equal(block->table_id, 1023);
    struct sl_snapshot_table out;
    assert_int_equal(sl_snapshot_take_table(block, &out, NULL), 0);
    assert_int_equal(sl_message_compare_specs(&table.spec, &out.spec, NULL), 0);
    assert_true(out.row_count == table.row_count);
    assert_true(out.step == table.step);
    assert_memory_equal(&out.state, &table.state, sizeof table.state);
    assert_true(out.pulled_rows == 11);
    assert_true(out.pushed_rows == 12);

    block->table_id = 5; /* it is another's */
    assert_int_equal(sl_snapshot_take_table(block, &out, NULL), SL_ERR_CORRUPT);
    block->table_id = 1023;
    for (uint32_t bytes = block->bytes; bytes-- > 0;) {
        block->bytes = bytes;
        assert_int_equal(sl_snapshot_take_table(block, &out, NULL), SL_ERR_CORRUPT);
    }
    sl_snapshot_block_destroy(&block);
    assert_null(block);
}

/* A specification that decodes and is wrong is refused with the field's name. */
SL_CASE(snapshot__a_table_that_nobody_could_open)
{
    struct sl_snapshot_block *block = block_of(SL_SNAPSHOT_TABLE_BYTES, SL_SNAPSHOT_TABLE, 0);
    struct sl_snapshot_table table = a_table();
    table.spec.dim = SL_LIMIT_DIM + 1;
    sl_snapshot_put_table(block, 3, &table);
    struct sl_snapshot_table out;
    struct sl_reason reason = {0};
    assert_int_equal(sl_snapshot_take_table(block, &out, &reason), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "dim is 4097"));
    sl_snapshot_block_destroy(&block);
}

/* Such powers of beta1 and beta2 would make steps without a bound, or of no number. */
SL_CASE(snapshot__a_table_whose_powers_are_none)
{
    static const struct {
        float power;
        bool good;
    } cases[] = {{0, true}, {0.999999F, true}, {1, false}, {-0.5F, false}, {NAN, false}};
    struct sl_snapshot_block *block = block_of(SL_SNAPSHOT_TABLE_BYTES, SL_SNAPSHOT_TABLE, 0);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        struct sl_snapshot_table table = a_table();
        struct sl_snapshot_table out;
        struct sl_reason reason = {0};
        *(i % 2 == 0 ? &table.state.beta1_power : &table.state.beta2_power) = cases[i / 2].power;
        sl_snapshot_put_table(block, 3, &table);
        assert_int_equal(sl_snapshot_take_table(block, &out, &reason),
                         cases[i / 2].good ? 0 : SL_ERR_CORRUPT);
        assert_true((strstr(reason.text, "powers of beta1 and beta2") == NULL) ==
                    cases[i / 2].good);
    }
    sl_snapshot_block_destroy(&block);
}

SL_CASE(snapshot__records_fill_a_block)
{
    const float floats[3] = {1, -2, 3.5F};
    struct sl_snapshot_block *block = block_of(100, SL_SNAPSHOT_ROWS, 4);
    struct sl_snapshot_record record = {
        .key = UINT64_MAX, .last_step = 9, .count = UINT32_MAX, .floats = floats};
    assert_int_equal(sl_snapshot_record_bytes(3), 32);
    while (sl_snapshot_put_record(block, &record, 3)) {
        record.key--;
    }
    assert_fine(block);
    assert_int_equal(block->count, 3);
    assert_int_equal(block->bytes, 96);
    struct sl_bytes cursor = sl_snapshot_records(block);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(sl_snapshot_take_record(&cursor, 3, &record));
        assert_true(record.key == UINT64_MAX - i);
        assert_int_equal(record.last_step, 9);
        assert_int_equal(record.count, UINT32_MAX);
        assert_memory_equal(record.floats, floats, sizeof floats);
    }
    assert_false(sl_snapshot_take_record(&cursor, 3, &record));
    block->payload[31] = 1; /* padding */
    cursor = sl_snapshot_records(block);
    assert_false(sl_snapshot_take_record(&cursor, 3, &record));
    sl_snapshot_block_destroy(&block);
}

SL_CASE(snapshot_dense_elements__of_the_last_block)
{
    assert_int_equal(sl_snapshot_dense_elements(1, 0), 1);
    assert_int_equal(sl_snapshot_dense_elements(1, 1), 0);
    assert_int_equal(sl_snapshot_dense_elements(SL_PARTITION_BLOCK_ELEMENTS, 0), 1024);
    assert_int_equal(sl_snapshot_dense_elements(SL_PARTITION_BLOCK_ELEMENTS + 5, 1), 5);
    assert_int_equal(sl_snapshot_dense_elements(SL_PARTITION_BLOCK_ELEMENTS + 5, 2), 0);
    assert_int_equal(sl_snapshot_dense_elements(SL_LIMIT_DENSE_ELEMENTS, UINT64_MAX), 0);
}

SL_CASE(snapshot_take_kv__refuses_what_leaves_its_array)
{
    static const float values[4] = {1, 2, 3, 4};
    const struct {
        uint32_t length, first, count, written;
        bool good;
    } cases[] = {
        {4, 0, 4, 3, true},  {9, 5, 4, 9, true},           {4, 1, 4, 0, false}, {4, 0, 4, 5, false},
        {3, 0, 4, 0, false}, {4, UINT32_MAX, 4, 0, false}, {0, 0, 4, 0, false},
    };
    struct sl_snapshot_block *block = block_of(64, SL_SNAPSHOT_KV, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_snapshot_block_begin(block, SL_SNAPSHOT_KV, 0);
        struct sl_snapshot_kv piece = {.length = cases[i].length,
                                       .first = cases[i].first,
                                       .count = cases[i].count,
                                       .initialized_count = cases[i].written,
                                       .values = values};
        assert_int_equal(sl_snapshot_put_kv(block, &piece, 4), 4);
        struct sl_bytes cursor = sl_snapshot_records(block);
        assert_true(sl_snapshot_take_kv(&cursor, 4, &piece) == cases[i].good);
    }
    sl_snapshot_block_destroy(&block);
}

SL_CASE(snapshot__clocks)
{
    struct sl_snapshot_block *block = block_of(64, SL_SNAPSHOT_CLOCKS, 0);
    static const uint32_t workers[] = {0, SL_LIMIT_WORKERS - 1, 2, SL_LIMIT_WORKERS};
    static const struct sl_clocks_worker clocks[4] = {
        {.clock = 8, .seen = true, .began = true},
        {.clock = 7, .joined = true, .pushed = true},
        {.clock = UINT32_MAX, .state = SL_CLOCKS_STATE_FINISHED},
    };
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(sl_snapshot_put_clock(block, workers[i], &clocks[i]));
    }
    assert_false(sl_snapshot_put_clock(block, 0, &clocks[0]));
    assert_fine(block);
    struct sl_bytes cursor = sl_snapshot_records(block);
    uint32_t worker;
    struct sl_clocks_worker out;
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(sl_snapshot_take_clock(&cursor, &worker, &out));
        assert_int_equal(worker, workers[i]);
        assert_int_equal(out.clock, clocks[i].clock);
        assert_int_equal(out.state, clocks[i].state);
        assert_int_equal(out.seen, clocks[i].seen);
        assert_int_equal(out.joined, clocks[i].joined);
        assert_int_equal(out.began, clocks[i].began);
        assert_int_equal(out.pushed, clocks[i].pushed);
    }
    assert_false(sl_snapshot_take_clock(&cursor, &worker, &out)); /* no such worker */
    sl_snapshot_block_destroy(&block);
}

SL_CASE(snapshot__a_buffered_dense_push)
{
    struct sl_snapshot_block *block = block_of(256, SL_SNAPSHOT_BUFFERED_PUSH, 1);
    const struct sl_snapshot_buffered_push piece = {
        .worker = 1, .clock = 2, .count = 5, .start = 77, .rate = 0.5F};
    uint64_t *keys;
    float *gradients;
    assert_int_equal(sl_snapshot_put_buffered_push(block, &piece, 0, &keys, &gradients), 5);
    assert_null(keys);
    memcpy(gradients, (float[]){1, 2, 3, 4, 5}, 5 * sizeof(float));
    struct sl_bytes cursor = sl_snapshot_records(block);
    struct sl_snapshot_buffered_push out;
    const uint64_t *keys_out;
    const float *gradients_out;
    assert_true(sl_snapshot_take_buffered_push(&cursor, 0, &out, &keys_out, &gradients_out));
    assert_int_equal(cursor.left, 0);
    assert_null(keys_out);
    assert_true(out.start == 77);
    assert_true(out.rate == 0.5F);
    assert_true(gradients_out[4] == 5);
    static const float rates[] = {0.0F, -0.0F, -1.0F, INFINITY, NAN}; /* 0 stands for 1 */
    for (uint32_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        memcpy(block->payload + 36, &rates[i], sizeof rates[i]);
        cursor = sl_snapshot_records(block);
        const bool taken =
            sl_snapshot_take_buffered_push(&cursor, 0, &out, &keys_out, &gradients_out);
        assert_int_equal(taken, i == 0);
        assert_true(!taken || out.rate == 1.0F);
    }
    memset(block->payload + 36, 0, sizeof(float));
    block->payload[16]++; /* start: what is sparse has none */
    cursor = sl_snapshot_records(block);
    assert_false(sl_snapshot_take_buffered_push(&cursor, 1, &out, &keys_out, &gradients_out));
    sl_snapshot_block_destroy(&block);
}

SL_CASE(snapshot__sessions)
{
    static struct sl_snapshot_session session = {
        .client_id = 0xfeedfacecafeULL,
        .role = SL_MESSAGE_ROLE_WORKER,
        .heard = true,
        .task_index = 3,
        .id_max = 1000,
        .last_write_id = 990,
        .partial_id = 995,
        .partial_sections = 2,
        .failure_count = SL_SNAPSHOT_FAILURES,
    };
    for (uint32_t i = 0; i < SL_SNAPSHOT_FAILURES; i++) {
        session.failures[i] = (struct sl_snapshot_failure){.id = i + 1, .err = SL_ERR_NO_MEMORY};
    }
    struct sl_snapshot_block *block = block_of(SL_SNAPSHOT_BLOCK_BYTES, SL_SNAPSHOT_SESSIONS, 0);
    assert_true(sl_snapshot_put_session(block, &session));
    assert_fine(block);
    static struct sl_snapshot_session out;
    struct sl_bytes cursor = sl_snapshot_records(block);
    assert_true(sl_snapshot_take_session(&cursor, &out));
    assert_int_equal(cursor.left, 0);
    assert_true(out.client_id == session.client_id);
    assert_int_equal(out.role, SL_MESSAGE_ROLE_WORKER);
    assert_true(out.heard);
    assert_int_equal(out.task_index, 3);
    assert_true(out.id_max == 1000);
    assert_true(out.last_write_id == 990);
    assert_true(out.partial_id == 995);
    assert_int_equal(out.partial_sections, 2);
    assert_int_equal(out.failure_count, SL_SNAPSHOT_FAILURES);
    for (uint32_t i = 0; i < SL_SNAPSHOT_FAILURES; i++) {
        assert_true(out.failures[i].id == i + 1);
        assert_int_equal(out.failures[i].err, SL_ERR_NO_MEMORY);
    }
    session.failures[7].err = SL_OK; /* no failure */
    sl_snapshot_block_begin(block, SL_SNAPSHOT_SESSIONS, 0);
    assert_true(sl_snapshot_put_session(block, &session));
    cursor = sl_snapshot_records(block);
    assert_false(sl_snapshot_take_session(&cursor, &out));
    sl_snapshot_block_destroy(&block);
}

SL_CASE(snapshot_block_check__names_what_is_wrong)
{
    uint64_t payload[2] = {0};
    const struct {
        struct sl_snapshot_block block;
        const char *says;
    } cases[] = {
        {{.kind = 0}, "kind 0"},
        {{.kind = SL_SNAPSHOT_KIND_COUNT}, "kind 11"},
        {{.kind = SL_SNAPSHOT_ERASED, .table_id = SL_LIMIT_TABLES}, "names table 1024"},
        {{.kind = SL_SNAPSHOT_ROWS, .table_id = SL_LIMIT_TABLES}, "names table 1024"},
        {{.kind = SL_SNAPSHOT_CLOCKS, .table_id = 1}, "names table 1"},
        {{.kind = SL_SNAPSHOT_ROWS, .bytes = 12}, "12 bytes"},
        {{.kind = SL_SNAPSHOT_ROWS, .bytes = SL_SNAPSHOT_BLOCK_BYTES + 8}, "1048584 bytes"},
        {{.kind = SL_SNAPSHOT_ROWS, .bytes = 16, .count = 3}, "3 records in 16 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_snapshot_block block = cases[i].block;
        block.payload = (uint8_t *)payload;
        struct sl_reason reason = {0};
        assert_int_equal(sl_snapshot_block_check(&block, &reason), SL_ERR_CORRUPT);
        assert_non_null(strstr(reason.text, cases[i].says));
    }
}
