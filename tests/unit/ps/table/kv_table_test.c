#include <string.h>

#include "core/hash.h"
#include "ps/table/kv_table.h"
#include "tests/support/huge_pages.h"
#include "tests/support/unit.h"

#define GROWN 200000 /* keys of a store that has grown */

static struct sl_kv_table *make(uint32_t value_bytes, size_t bytes_max)
{
    struct sl_kv_table *table;
    assert_int_equal(sl_kv_table_create(value_bytes, SL_PRECISION_F32, bytes_max, &table), 0);
    return table;
}

/* A push of one key, all of it. */
static int push(struct sl_kv_table *table, uint64_t key, uint32_t start, uint32_t count,
                uint32_t whole, const void *values)
{
    struct sl_kv_reservation reservation;
    uint32_t record;
    uint32_t failed;
    uint32_t length;
    sl_kv_table_reservation_begin(table, &reservation);
    int err =
        sl_kv_table_reserve(table, &reservation, &key, NULL, whole, 1, &record, &failed, &length);
    if (err == 0) {
        err = sl_kv_table_make(table, &reservation, &record, 1);
    }
    sl_kv_table_reservation_end(table, &reservation);
    if (err == 0) {
        sl_kv_table_push(table, sl_kv_table_at(table, record), start, count, values);
    }
    return err;
}

static const struct sl_kv_array *find(const struct sl_kv_table *table, uint64_t key)
{
    struct sl_kv_array *array;
    sl_kv_table_find(table, &key, 1, &array);
    return array;
}

SL_CASE(kv_table__keeps_arrays_where_they_are)
{
    struct sl_kv_table *table = make(4, 0);
    static const uint32_t lengths[] = {1, 16, 17, 8192, 8193, 100000};
    const float *first[6];
    float value = 1;
    for (uint64_t key = 0; key < 6; key++) {
        const uint32_t length = lengths[key];
        assert_int_equal(push(table, key, length - 1, 1, length, &value), 0);
        first[key] = (const float *)(const void *)find(table, key)->values;
        assert_int_equal((uintptr_t)first[key] % 64, 0);
        assert_true(first[key][length - 1] == 1);
        assert_true(length == 1 || (first[key][0] == 0 && first[key][length - 2] == 0));
    }
    for (uint64_t key = 6; key < GROWN; key++) {
        value = (float)key;
        assert_int_equal(push(table, sl_hash_key(key), 0, 1, 1, &value), 0);
    }
    assert_int_equal(sl_kv_table_key_count(table), GROWN);
    for (uint64_t key = 0; key < 6; key++) {
        assert_ptr_equal(find(table, key)->values, first[key]);
    }
    for (uint64_t key = 6; key < GROWN; key += 17) {
        const struct sl_kv_array *array = find(table, sl_hash_key(key));
        assert_non_null(array);
        assert_true(*(const float *)(const void *)array->values == (float)key);
    }
    assert_null(find(table, 7));
    sl_kv_table_destroy(&table);
    assert_null(table);
}

/* Parts in every order: what is there is added to, whether or not the part touches what nobody has
 * written yet. */
SL_CASE(kv_table_push__adds_parts_in_any_order)
{
    static const uint32_t parts[][2] = {{0, 3}, {3, 4}, {7, 2}}; /* of nine */
    static const uint8_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                        {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const float ones[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct sl_kv_table *table = make(4, 0);
    for (uint64_t order = 0; order < 6; order++) {
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t *part = parts[orders[order][i]];
            assert_int_equal(push(table, order, part[0], part[1], 9, ones + part[0]), 0);
            assert_int_equal(push(table, order, 2, 3, 9, ones + 2), 0); /* and across them */
        }
        const float *values = (const float *)(const void *)find(table, order)->values;
        for (uint32_t i = 0; i < 9; i++) {
            assert_true(values[i] == ones[i] * (i >= 2 && i < 5 ? 4.0F : 1.0F));
        }
    }
    sl_kv_table_destroy(&table);
}

/* Parts of random length: the f32 sum is rounded to the nearest, and the first value is stored as
 * it is. */
SL_CASE(kv_table_push__adds_values_of_two_bytes)
{
    enum { LENGTH = 3000 };
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_SCALAR);
    uint64_t random = 5;
    for (uint32_t precision = SL_PRECISION_F16; precision <= SL_PRECISION_BF16; precision++) {
        struct sl_kv_table *table;
        static float expected[LENGTH];
        uint16_t values[LENGTH], narrow[LENGTH];
        assert_int_equal(sl_kv_table_create(2, (enum sl_precision)precision, 0, &table), 0);
        for (uint32_t round = 0; round < 60; round++) {
            const uint32_t key = round / 6;
            const uint32_t start = (uint32_t)(sl_hash_random(&random) % (1 + round % 6 * 500));
            const uint32_t count = 1 + (uint32_t)(sl_hash_random(&random) % (LENGTH - start));
            if (round % 6 == 0) {
                memset(expected, 0, sizeof expected);
            }
            for (uint32_t i = 0; i < count; i++) {
                const float value = (float)(sl_hash_random(&random) % 999) / 16 - 31;
                float widened;
                kernels->narrow((enum sl_precision)precision, &value, 1, &values[i]);
                kernels->widen((enum sl_precision)precision, &values[i], 1, &widened);
                expected[start + i] += widened;
            }
            kernels->narrow((enum sl_precision)precision, expected, LENGTH, narrow);
            kernels->widen((enum sl_precision)precision, narrow, LENGTH, expected);
            assert_int_equal(push(table, key, start, count, LENGTH, values), 0);
            assert_memory_equal(find(table, key)->values, narrow, sizeof narrow);
        }
        sl_kv_table_destroy(&table);
    }
}

SL_CASE(kv_table_reservation__settles_lengths_while_it_lasts)
{
    struct sl_kv_table *table = make(1, 0);
    const uint64_t keys[] = {4, 5, 6};
    uint32_t records[3];
    uint32_t failed;
    uint32_t length;
    struct sl_kv_reservation *own = sl_kv_table_own_reservation(table);
    sl_kv_table_reservation_begin(table, own);
    assert_int_equal(sl_kv_table_reserve(table, own, keys, NULL, 100, 3, records, &failed, &length),
                     0);
    assert_null(find(table, 4));
    assert_int_equal(push(table, 4, 0, 1, 99, "x"), SL_ERR_INVALID);
    assert_int_equal(push(table, 4, 0, 1, 100, "x"), 0);
    /* Keys of another that fails do not lose their mark. */
    struct sl_kv_reservation other;
    const uint32_t lens[] = {100, 99};
    uint32_t other_records[2];
    sl_kv_table_reservation_begin(table, &other);
    assert_int_equal(
        sl_kv_table_reserve(table, &other, keys + 1, lens, 0, 2, other_records, &failed, &length),
        SL_ERR_INVALID);
    assert_int_equal(failed, 1);
    assert_int_equal(length, 100);
    sl_kv_table_reservation_end(table, &other);
    assert_int_equal(push(table, 5, 0, 1, 98, "x"), SL_ERR_INVALID);
    assert_int_equal(sl_kv_table_make(table, own, records, 2), 0);
    assert_non_null(find(table, 5));
    sl_kv_table_reservation_end(table, own);
    /* The third was not made: its length is anybody's, and its memory given back. */
    const size_t after = sl_kv_table_memory_bytes(table);
    assert_int_equal(push(table, 6, 0, 1, 64, "x"), 0);
    assert_int_equal(sl_kv_table_memory_bytes(table), after + 64);
    assert_int_equal(sl_kv_table_key_count(table), 3);
    sl_kv_table_destroy(&table);
}

SL_CASE(kv_table_reservation__stays_within_the_limit)
{
    struct sl_kv_table *table = make(4, (size_t)1 << 20);
    uint64_t key = 0;
    const float value = 1;
    while (push(table, key, 0, 1, 5000, &value) == 0) {
        key++;
        assert_true(sl_kv_table_memory_bytes(table) <= (size_t)1 << 20);
    }
    assert_int_equal(sl_kv_table_key_count(table), key);
    assert_true(key > 30);
    const size_t full = sl_kv_table_memory_bytes(table);
    assert_null(find(table, key));
    assert_int_equal(push(table, key, 0, 1, UINT32_MAX, &value), SL_ERR_NO_MEMORY);
    assert_int_equal(push(table, 0, 0, 1, 5000, &value), 0); /* what is there needs none */
    assert_int_equal(sl_kv_table_memory_bytes(table), full);
    sl_kv_table_set_bytes_max(table, 0);
    assert_int_equal(push(table, key, 0, 1, 5000, &value), 0);
    sl_kv_table_destroy(&table);
    struct sl_kv_table *none = NULL;
    assert_int_equal(sl_kv_table_create(4, SL_PRECISION_F32, 1000, &none), SL_ERR_NO_MEMORY);
    assert_null(none);
}

/* Arrays of 32 KiB fill eight chunks of 2 MiB: fewer stay ordinary. */
SL_CASE(kv_table__small_arrays_become_huge_pages)
{
    huge_pages_need();
    struct sl_kv_table *table = make(4, 0);
    static const float values[8192] = {[8191] = 1};
    assert_int_equal(push(table, 0, 0, 8192, 8192, values), 0);
    const uint64_t index = sl_arena_pages_ordinary_bytes() - SL_ARENA_HUGE_PAGE_BYTES;
    for (uint64_t key = 1; key < 8 * 64; key++) {
        assert_int_equal(push(table, key, 0, 8192, 8192, values), 0);
    }
    huge_pages_wait(index);
    for (uint64_t key = 0; key < 8 * 64; key++) {
        const float *array = (const float *)(const void *)find(table, key)->values;
        assert_true(array[8191] == 1);
        assert_true(array[8190] == 0);
    }
    sl_kv_table_destroy(&table);
    assert_int_equal(sl_arena_pages_ordinary_bytes(), 0);
}
