/* A push that is refused, for lack of memory or for a key of another shard, leaves no rows behind.
 */
#include <string.h>

#include "core/partition.h"
#include "fixture.h"
#include "ps/shard/section.h"

#define WIDE     64
#define LIMIT    ((size_t)3 << 20)
#define FEW      100
#define MANY     8000  /* keys of a push in several slices */
#define SLICE    100   /* budget */
#define LONGEST  14000 /* more than the limit has room for */
#define KEYS_MAX 20000

static uint64_t keys[KEYS_MAX];
static float values[KEYS_MAX * WIDE];

/* Shard `index` of `count` with the tables ASP and BSP, of wide rows. */
static void make(struct fixture *f, uint32_t index, uint32_t count, size_t memory_bytes_max)
{
    const struct sl_shard_options options = {.index = index,
                                             .count = count,
                                             .memory_bytes_max = memory_bytes_max,
                                             .push_buffer_bytes_max = 16U << 20};
    struct sl_table_spec spec = {.name = "wide", .dim = WIDE};
    sl_shard_destroy(&f->shard);
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    assert_int_equal(sl_shard_table_open(f->shard, ASP, &spec, &f->reason), 0);
    spec = (struct sl_table_spec){
        .name = "bsp",
        .dim = WIDE,
        .consistency = {.mode = SL_CONSISTENCY_BSP, .worker_count = WORKERS},
    };
    assert_int_equal(sl_shard_table_open(f->shard, BSP, &spec, &f->reason), 0);
    for (uint32_t i = 0; i < KEYS_MAX * WIDE; i++) {
        values[i] = 1;
    }
}

static uint64_t rows(const struct fixture *f, uint32_t table)
{
    return sl_sparse_table_row_count(f->shard->tables[table]->sparse);
}

/* Begins a request of the keys [first, first + count). */
static void begin(struct fixture *f, uint8_t op, uint16_t table, uint64_t first, uint32_t count,
                  uint32_t worker)
{
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = first + i;
    }
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, op, table, keys, count, values, WIDE);
    fixture_begin(f, worker);
}

static int go_on(struct fixture *f, uint32_t *slices)
{
    int result = SL_SHARD_AGAIN;
    for (*slices = 0; result == SL_SHARD_AGAIN; ++*slices) {
        uint32_t spent;
        result = sl_shard_run(f->shard, &f->work, f->reply, SLICE, &spent, &f->reason);
        assert_true(spent < SLICE + 2 * SL_SHARD_SMALL_KEYS);
    }
    return result;
}

static int push(struct fixture *f, uint8_t op, uint16_t table, uint64_t first, uint32_t count,
                uint32_t worker)
{
    uint32_t slices;
    begin(f, op, table, first, count, worker);
    return go_on(f, &slices);
}

/* Pushes new keys, from *next on, until the memory is full. */
static void fill(struct fixture *f, uint64_t *next)
{
    while (push(f, SL_REQUEST_PUSH, ASP, *next, FEW, NOBODY) == SL_SHARD_DONE) {
        *next += FEW;
    }
    assert_non_null(strstr(f->reason.text, "no memory for more rows"));
}

static bool has_row(struct fixture *f, uint16_t table, uint64_t key)
{
    uint32_t record;
    return sl_sparse_table_find(f->shard->tables[table]->sparse, &key, 1, &record);
}

CASE(refused_push__leaves_no_rows_at_the_limit)
{
    static const uint8_t ops[] = {SL_REQUEST_PUSH, SL_REQUEST_PUSH_PULL, SL_REQUEST_ASSIGN};
    uint64_t next = 0;
    make(f, 0, 1, LIMIT);
    fill(f, &next);
    assert_int_equal(rows(f, ASP), next);
    for (uint32_t i = 0; i < sizeof ops; i++) {
        for (uint32_t many = 0; many < 2; many++) {
            /* Half of the keys have a row, whose value does not change. */
            const uint32_t count = many != 0 ? MANY : 2 * FEW;
            assert_int_equal(push(f, ops[i], ASP, next - count / 2, count, NOBODY),
                             SL_ERR_NO_MEMORY);
            assert_int_equal(rows(f, ASP), next);
            assert_true(fixture_peek(f, ASP, next - 1) == 1);
            assert_false(has_row(f, ASP, next));
        }
    }
    /* A pull of missing keys creates none, at the limit too. */
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(i % 1000 != 0 || fixture_peek(f, ASP, next + i) == 0);
    }
    assert_int_equal(rows(f, ASP), next);
    assert_int_equal(f->shard->rows_created - f->shard->rows_erased, next);
}

/* The records of the rows are there for others. */
CASE(refused_push__leaves_its_memory)
{
    uint64_t next = 0;
    make(f, 0, 1, LIMIT);
    fill(f, &next);
    const uint64_t room = next;
    make(f, 0, 1, LIMIT);
    for (uint32_t round = 0; round < 20; round++) { /* each creates rows up to the limit */
        const uint64_t first = ((uint64_t)1 << 40) + (uint64_t)round * KEYS_MAX;
        assert_int_equal(push(f, SL_REQUEST_PUSH, ASP, first, LONGEST, NOBODY), SL_ERR_NO_MEMORY);
        assert_int_equal(rows(f, ASP), 0);
    }
    next = 0;
    fill(f, &next);
    assert_true(next > room / 10 * 9); /* the index may lie otherwise */
}

/* Runs the first slice of the request in f, which creates the key's row; then a push of another
 * worker to that row. */
static void begin_other(struct fixture *f, uint16_t table, uint64_t key, uint32_t worker)
{
    static struct fixture other;
    uint32_t spent;
    assert_int_equal(sl_shard_run(f->shard, &f->work, f->reply, 2, &spent, &f->reason),
                     SL_SHARD_AGAIN);
    assert_true(has_row(f, table, key));
    other.shard = f->shard;
    shard_request_begin(&other.request, 0);
    shard_request_push(&other.request, SL_REQUEST_PUSH, table, &key, 1, values, WIDE);
    assert_int_equal(fixture_run(&other, worker), SL_SHARD_DONE);
}

/* A row that another push has written between two slices stays, with its value. */
CASE(refused_push__leaves_rows_that_others_wrote)
{
    uint32_t slices;
    make(f, 0, 1, LIMIT);
    begin(f, SL_REQUEST_PUSH, ASP, KEYS_MAX, LONGEST, NOBODY);
    begin_other(f, ASP, KEYS_MAX, NOBODY);
    assert_int_equal(go_on(f, &slices), SL_ERR_NO_MEMORY);
    assert_true(slices > 10);
    assert_true(fixture_peek(f, ASP, KEYS_MAX) == 1);
    assert_int_equal(rows(f, ASP), 1);
}

/* A push that waits for the end of its iteration finds its row again. */
CASE(refused_push__leaves_buffered_pushes_alone)
{
    make(f, 0, 1, LIMIT);
    begin(f, SL_REQUEST_PUSH, BSP, 0, MANY, 0);
    begin_other(f, BSP, 0, 1);
    f->shard->options.memory_bytes_max = 1;
    uint32_t slices;
    assert_int_equal(go_on(f, &slices), SL_ERR_NO_MEMORY);
    assert_int_equal(rows(f, BSP), 0);
    f->shard->options.memory_bytes_max = LIMIT;
    fixture_tick_all(f, 0);
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, 0) == 1);
    assert_int_equal(rows(f, BSP), 1);
}

CASE(refused_push__leaves_no_rows_for_a_key_of_another_shard)
{
    for (uint32_t many = 0; many < 2; many++) {
        const uint32_t count = many != 0 ? MANY : FEW;
        uint32_t own = 0;
        make(f, 1, 2, 0);
        for (uint64_t key = 0; own < count - 1; key++) {
            keys[own] = key;
            own += sl_partition_owner(key, 2) == 1;
        }
        for (keys[count - 1] = 1; sl_partition_owner(keys[count - 1], 2) == 1; keys[count - 1]++) {
        }
        shard_request_begin(&f->request, 0);
        shard_request_push(&f->request, SL_REQUEST_PUSH, ASP, keys, count, values, WIDE);
        fixture_begin(f, NOBODY);
        uint32_t slices;
        assert_int_equal(go_on(f, &slices), SL_ERR_WRONG_SHARD);
        assert_non_null(strstr(f->reason.text, "belongs to shard 0 of 2"));
        assert_int_equal(rows(f, ASP), 0);
        assert_true(many == 0 || slices > 10);
    }
}
