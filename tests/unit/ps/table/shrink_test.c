/* Tables that shrink: rows move, memory returns to the system, and comes again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/hash.h"
#include "ps/table/sparse_table.h"
#include "tests/support/huge_pages.h"
#include "tests/support/unit.h"

#define MIB ((size_t)1 << 20)
#define DIM 128

/* The system refuses mappings while this is set. The arena thread maps too. */
static _Atomic bool refuses;

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (refuses) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(at, bytes, protection, flags, file, offset);
}

static struct sl_sparse_table *table_of(size_t bytes_max)
{
    const struct sl_table_spec spec = {
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .initializer = {.kind = SL_INITIALIZER_CONSTANT, .value = 0.5F},
    };
    struct sl_sparse_table *table = NULL;
    assert_int_equal(sl_sparse_table_create(&spec, bytes_max, &table), 0);
    return table;
}

/* Creates a row, or finds it, and adds `value` to its columns. */
static void add(struct sl_sparse_table *table, uint64_t key, float value)
{
    const struct sl_optimizer_push push = {.step = 1, .rate = 1};
    float gradient[DIM];
    uint32_t record;
    for (uint32_t i = 0; i < DIM; i++) {
        gradient[i] = value;
    }
    assert_int_equal(sl_sparse_table_find_or_create(table, &key, 1, &record), 0);
    sl_sparse_table_apply(table, &record, 1, gradient, &push);
}

static void fill(struct sl_sparse_table *table, uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++) {
        add(table, key, (float)(key % 1000));
    }
}

/* Whether each row is there, with what fill has written, is the caller's function. */
static void check(struct sl_sparse_table *table, uint64_t count, bool (*is_there)(uint64_t key))
{
    for (uint64_t key = 0; key < count; key++) {
        uint32_t record;
        const bool found = sl_sparse_table_find(table, &key, 1, &record);
        assert_int_equal(found, is_there(key));
        if (found) {
            const struct sl_row *row = sl_sparse_table_record(table, record);
            assert_true(row->key == key);
            assert_true(row->values[0] == 0.5F + (float)(key % 1000));
            assert_true(row->values[DIM - 1] == row->values[0]);
        }
    }
}

static bool is_tenth(uint64_t key)
{
    return sl_hash_key(key) % 10 == 0;
}

static bool is_any(uint64_t key)
{
    (void)key;
    return true;
}

static bool is_none(uint64_t key)
{
    (void)key;
    return false;
}

static void erase_all_but(struct sl_sparse_table *table, uint64_t count, bool (*stays)(uint64_t))
{
    for (uint64_t key = 0; key < count; key++) {
        if (!stays(key)) {
            sl_sparse_table_erase(table, &key, 1);
        }
    }
    sl_sparse_table_reuse(table, UINT32_MAX);
}

static void shrink(struct sl_sparse_table *table)
{
    uint32_t records;
    do {
        records = sl_sparse_table_record_count(table);
        sl_sparse_table_shrink(table, 100);
    } while (sl_sparse_table_record_count(table) < records);
}

static size_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    size_t all, resident;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &all, &resident), 2);
    assert_int_equal(fclose(file), 0);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* ThreadSanitizer keeps several bytes about each byte, also of memory that is unmapped. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZER_KEEPS_MEMORY true
#endif
#endif
#ifndef SANITIZER_KEEPS_MEMORY
#define SANITIZER_KEEPS_MEMORY false
#endif

/* The background thread unmaps. */
static void wait_for_resident(size_t most)
{
    if (SANITIZER_KEEPS_MEMORY) {
        return;
    }
    const uint64_t start = sl_clock_now_ns(sl_clock_system());
    while (resident_bytes() > most) {
        const struct timespec nap = {.tv_nsec = 1000000};
        if (sl_clock_now_ns(sl_clock_system()) - start > 600 * SL_CLOCK_NS_PER_S) {
            fail_msg("%zu bytes are resident, not %zu", resident_bytes(), most);
        }
        nanosleep(&nap, NULL);
    }
}

/* Nine rows of ten are erased, in all parts of the memory: most of it returns. It comes again on
 * large pages. */
SL_CASE(sparse_table_shrink__memory_returns_and_comes_again)
{
    enum { ROWS = 200000 }; /* 106 MB */
    huge_pages_need();
    const uint64_t ordinary = sl_arena_pages_ordinary_bytes();
    const size_t before = resident_bytes();
    struct sl_sparse_table *table = table_of(0);
    fill(table, 0, ROWS);
    const size_t full = sl_sparse_table_memory_bytes(table);
    assert_true(full > 100 * MIB);
    assert_true(resident_bytes() > before + 100 * MIB);
    for (uint32_t round = 0; round < 2; round++) {
        erase_all_but(table, ROWS, is_tenth);
        assert_true(sl_sparse_table_memory_bytes(table) > full / 10 * 9);
        shrink(table);
        check(table, ROWS, is_tenth);
        const size_t left = sl_sparse_table_memory_bytes(table);
        assert_true(left < full / 3); /* a tenth, 16384 free records, a part that stays mapped */
        wait_for_resident(before + left + 24 * MIB); /* a sanitizer and malloc keep something */
        for (uint64_t key = 0; key < ROWS; key++) {
            if (!is_tenth(key)) {
                add(table, key, (float)(key % 1000));
            }
        }
        check(table, ROWS, is_any);
        assert_int_equal(sl_sparse_table_record_count(table), ROWS);
        assert_true(sl_sparse_table_memory_bytes(table) < full + full / 8);
    }
    /* Only the small chunks, with which each table begins, stay on ordinary pages. */
    huge_pages_wait(ordinary + 24 * MIB);
    sl_sparse_table_destroy(&table);
    assert_int_equal(sl_arena_pages_ordinary_bytes(), ordinary);
    wait_for_resident(before + 24 * MIB);
}

/* An emptied table keeps a few chunks. */
SL_CASE(sparse_table_shrink__an_empty_table_is_small)
{
    enum { ROWS = 60000 };
    struct sl_sparse_table *table = table_of(0);
    fill(table, 0, ROWS);
    erase_all_but(table, ROWS, is_none);
    shrink(table);
    assert_int_equal(sl_sparse_table_row_count(table), 0);
    assert_true(sl_sparse_table_memory_parts(table).record_bytes < MIB);
    fill(table, 0, 10);
    check(table, 10, is_any);
    sl_sparse_table_destroy(&table);
}

/* Mappings are on their way out while the table grows again. What a new row begins with is not what
 * was there before. */
SL_CASE(sparse_table_shrink__grows_at_once)
{
    enum { ROWS = 40000 };
    struct sl_sparse_table *table = table_of(0);
    for (uint32_t round = 0; round < 8; round++) {
        fill(table, 0, ROWS);
        check(table, ROWS, is_any);
        erase_all_but(table, ROWS, round % 2 == 0 ? is_none : is_tenth);
        sl_sparse_table_shrink(table, 5000 * round);
        check(table, ROWS, round % 2 == 0 ? is_none : is_tenth);
        erase_all_but(table, ROWS, is_none);
    }
    sl_sparse_table_destroy(&table);
}

/* A table whose size varies a little keeps its memory. */
SL_CASE(sparse_table_shrink__a_share_stays_free)
{
    enum { ROWS = 200000, GONE = ROWS / 10 };
    struct sl_sparse_table *table = table_of(0);
    fill(table, 0, ROWS);
    const size_t bytes = sl_sparse_table_memory_bytes(table);
    for (uint64_t key = 0; key < GONE; key++) {
        sl_sparse_table_erase(table, &key, 1);
    }
    sl_sparse_table_reuse(table, UINT32_MAX);
    assert_int_equal(sl_sparse_table_shrink(table, UINT32_MAX), 0);
    assert_int_equal(sl_sparse_table_record_count(table), ROWS);
    assert_true(sl_sparse_table_memory_bytes(table) >= bytes);
    sl_sparse_table_destroy(&table);
}

static void see_write(struct sl_sparse_table_hook *hook, const uint32_t *records, uint32_t count)
{
    (void)hook;
    (void)records;
    (void)count;
}

/* Rows stay where they are for a snapshot, and for callers that may hold records of erased rows. */
SL_CASE(sparse_table_shrink__not_while_records_are_in_use)
{
    enum { ROWS = 60000 };
    struct sl_sparse_table_hook hook = {.before_write = see_write};
    struct sl_sparse_table *table = table_of(0);
    fill(table, 0, ROWS);
    for (uint64_t key = 0; key < ROWS; key++) {
        sl_sparse_table_erase(table, &key, 1);
    }
    assert_int_equal(sl_sparse_table_shrink(table, UINT32_MAX), 0);
    assert_int_equal(sl_sparse_table_record_count(table), ROWS);
    sl_sparse_table_reuse(table, ROWS / 2); /* those that were erased last, at the end */
    sl_sparse_table_set_hook(table, &hook);
    sl_sparse_table_shrink(table, UINT32_MAX);
    assert_int_equal(sl_sparse_table_record_count(table), ROWS);
    sl_sparse_table_set_hook(table, NULL);
    sl_sparse_table_shrink(table, UINT32_MAX);
    assert_int_equal(sl_sparse_table_record_count(table), ROWS / 2);
    sl_sparse_table_destroy(&table);
}

/* The same rows fit again into the same limit. A row that the system has no memory for is refused,
 * and nothing else is lost. */
SL_CASE(sparse_table_shrink__limit_and_memory_refused)
{
    const size_t limit = 60 * MIB;
    struct sl_sparse_table *table = table_of(limit);
    uint64_t rows = 0;
    uint32_t record;
    while (sl_sparse_table_find_or_create(table, &rows, 1, &record) == 0) {
        add(table, rows, (float)(rows % 1000));
        rows++;
    }
    for (uint32_t round = 0; round < 3; round++) {
        erase_all_but(table, rows, is_tenth);
        shrink(table);
        assert_true(sl_sparse_table_memory_bytes(table) < limit / 2);
        refuses = true;
        uint64_t key = 0;
        while (is_tenth(key) || sl_sparse_table_find_or_create(table, &key, 1, &record) == 0) {
            if (!is_tenth(key)) {
                add(table, key, (float)(key % 1000));
            }
            key++;
            assert_true(key < rows);
        }
        refuses = false;
        for (; key < rows; key++) {
            if (!is_tenth(key)) {
                add(table, key, (float)(key % 1000));
            }
        }
        assert_true(sl_sparse_table_memory_bytes(table) <= limit);
        check(table, rows, is_any);
    }
    sl_sparse_table_destroy(&table);
}

/* Rows so short that the index takes a fourth of the memory: it shrinks too. Twice, so that it
 * grows from what is left. */
SL_CASE(sparse_table_shrink__the_index_shrinks)
{
    enum { ROWS = 400000, STAY = 1000 };
    const struct sl_table_spec spec = {
        .name = "short",
        .kind = SL_TABLE_SPARSE,
        .dim = 1,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .initializer = {.kind = SL_INITIALIZER_CONSTANT, .value = 0.5F},
    };
    struct sl_sparse_table *table = NULL;
    assert_int_equal(sl_sparse_table_create(&spec, 0, &table), 0);
    size_t full = 0;
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t record;
        for (uint64_t key = 0; key < ROWS; key++) {
            assert_int_equal(sl_sparse_table_find_or_create(table, &key, 1, &record), 0);
        }
        full = round == 0 ? sl_sparse_table_memory_parts(table).index_bytes : full;
        assert_true(sl_sparse_table_memory_parts(table).index_bytes <= full + full / 4);
        for (uint64_t key = STAY; key < ROWS; key++) {
            sl_sparse_table_erase(table, &key, 1);
        }
        assert_true(sl_sparse_table_memory_parts(table).index_bytes < full / 40);
        for (uint64_t key = 0; key < ROWS; key++) {
            assert_int_equal(sl_sparse_table_find(table, &key, 1, &record), key < STAY);
            assert_true(key >= STAY || sl_sparse_table_record(table, record)->key == key);
        }
        sl_sparse_table_reuse(table, UINT32_MAX);
        shrink(table);
        print_message("index: %zu bytes of %zu for %u rows stay\n",
                      sl_sparse_table_memory_parts(table).index_bytes, full, STAY);
    }
    for (uint64_t key = 0; key < STAY; key++) {
        uint32_t record;
        assert_true(sl_sparse_table_find(table, &key, 1, &record));
    }
    sl_sparse_table_destroy(&table);
}

#define MODEL_KEYS 6000

struct model {
    struct sl_sparse_table *table;
    float added[MODEL_KEYS];
    bool there[MODEL_KEYS];
    uint32_t count; /* rows */
};

static uint64_t model_key(uint32_t i)
{
    return i % 2 == 0 ? i : sl_hash_key(i);
}

static void model_check(struct model *model)
{
    assert_int_equal(sl_sparse_table_row_count(model->table), model->count);
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        const uint64_t key = model_key(i);
        uint32_t record;
        assert_int_equal(sl_sparse_table_find(model->table, &key, 1, &record), model->there[i]);
        if (model->there[i]) {
            const struct sl_row *row = sl_sparse_table_record(model->table, record);
            assert_true(row->key == key);
            assert_true(row->values[0] == 0.5F + model->added[i]);
            assert_true(row->values[DIM - 1] == 0.5F + model->added[i]);
        }
    }
    uint32_t rows = 0;
    for (uint32_t record = 0; record < sl_sparse_table_record_count(model->table); record++) {
        rows += sl_sparse_table_record(model->table, record)->count != SL_ROW_ERASED;
    }
    assert_int_equal(rows, model->count);
}

/* Random pushes, erases and shrinking; at times most keys are there, at times few. */
SL_CASE(sparse_table_shrink__as_a_plain_map)
{
    static struct model model;
    uint64_t seed = 29;
    uint32_t least = UINT32_MAX, most = 0;
    model = (struct model){.table = table_of(0)};
    for (uint32_t op = 0; op < 200000; op++) {
        const uint32_t i = (uint32_t)(sl_hash_random(&seed) % MODEL_KEYS);
        const uint64_t key = model_key(i);
        const uint32_t fills = op / 20000 % 3; /* grows, shrinks, stays */
        if (sl_hash_random(&seed) % 8 < (fills == 0 ? 7 : fills == 1 ? 1 : 4)) {
            const float value = (float)(op % 7);
            model.added[i] = model.there[i] ? model.added[i] + value : value;
            model.count += !model.there[i];
            model.there[i] = true;
            add(model.table, key, value);
        } else {
            model.count -= model.there[i];
            model.there[i] = false;
            sl_sparse_table_erase(model.table, &key, 1);
        }
        if (op % 8 == 0) {
            sl_sparse_table_reuse(model.table, (uint32_t)(sl_hash_random(&seed) % 16));
            sl_sparse_table_shrink(model.table, (uint32_t)(sl_hash_random(&seed) % 32));
        }
        if (op % 5000 == 4999) {
            const uint32_t records = sl_sparse_table_record_count(model.table);
            least = records < least ? records : least;
            most = records > most ? records : most;
            model_check(&model);
        }
    }
    assert_true(most > MODEL_KEYS * 3 / 4);
    assert_true(least < MODEL_KEYS / 3);
    sl_sparse_table_destroy(&model.table);
}
