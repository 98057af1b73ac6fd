#include "programs/models/batch.h"
#include "programs/train/reader.h"
#include "tests/support/unit.h"

SL_CASE(batch_add__keeps_rows_and_distinct_keys)
{
    struct sl_key_index set = {0};
    struct sl_batch batch;
    assert_int_equal(sl_batch_init(&batch, 2), 0);
    struct sl_reader_row row = {.label = 1};
    assert_int_equal(sl_reader_row_add(&row, 30, 0.5F), 0);
    assert_int_equal(sl_reader_row_add(&row, 10, 2), 0);
    for (uint32_t round = 0; round < 2; round++) { /* the second round finds it cleared */
        sl_batch_clear(&batch, &set);
        row.label = 1;
        row.feature_count = 2;
        row.keys[1] = 10;
        assert_int_equal(sl_batch_add(&batch, &set, &row), 0);
        row.label = 0;
        row.keys[1] = 20;
        assert_int_equal(sl_batch_add(&batch, &set, &row), 0);
        assert_int_equal(batch.row_count, 2);
        assert_int_equal(batch.feature_count, 4);
        assert_int_equal(batch.key_count, 3);
        assert_true(batch.keys[0] == 30 && batch.keys[1] == 10 && batch.keys[2] == 20);
        const uint32_t features[] = {0, 1, 0, 2};
        assert_memory_equal(batch.features, features, sizeof features);
        assert_int_equal(sl_batch_row_start(&batch, 1), 2);
        assert_int_equal(batch.row_ends[1], 4);
        assert_float_equal(batch.labels[0], 1, 0);
        assert_float_equal(batch.labels[1], 0, 0);
        assert_float_equal(batch.values[2], 0.5F, 0);
    }
    sl_reader_row_fini(&row);
    sl_batch_fini(&batch);
    sl_key_index_fini(&set);
}

SL_CASE(batch_add__grows_with_wide_rows)
{
    struct sl_key_index set = {0};
    struct sl_batch batch;
    assert_int_equal(sl_batch_init(&batch, 3), 0);
    struct sl_reader_row row = {.label = 1};
    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(sl_reader_row_add(&row, i, (float)i), 0);
    }
    sl_batch_clear(&batch, &set);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(sl_batch_add(&batch, &set, &row), 0);
    }
    assert_int_equal(batch.feature_count, 30000);
    assert_int_equal(batch.key_count, 10000);
    assert_int_equal(batch.features[29999], 9999);
    assert_float_equal(batch.values[29999], 9999, 0);
    sl_reader_row_fini(&row);
    sl_batch_fini(&batch);
    sl_key_index_fini(&set);
}
