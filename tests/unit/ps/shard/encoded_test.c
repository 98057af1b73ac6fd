/* Sections whose values have another precision do what the same sections do with the f32 values
 * that core/precision makes of them: each operation runs on a table, and in f32 on its twin, in
 * slices of random length, and the replies and tables are equal, bit for bit. */
#include <starling_kv.h>
#include <string.h>

#include "core/hash.h"
#include "fixture.h"

#define ROWS       8 /* ids of tables; the twin is the next one */
#define ELEMENTS   10
#define ARRAYS     12
#define COMMITTED  14 /* BSP */
#define BLOCKS     16
#define ADMITTED   18
#define TABLES_END 20
#define WIDTH      5
#define LENGTH     70000
#define VALUES_MAX 70000
#define KEYS_MAX   5000

static const struct {
    enum sl_precision pushed, returned;
} ways[] = {
    {SL_PRECISION_F16, SL_PRECISION_BF16}, {SL_PRECISION_BF16, SL_PRECISION_F16},
    {SL_PRECISION_INT8, SL_PRECISION_F32}, {SL_PRECISION_INT8, SL_PRECISION_BF16},
    {SL_PRECISION_F32, SL_PRECISION_F16},
};
#define WAYS (sizeof ways / sizeof *ways)

struct world {
    struct fixture f;
    uint64_t random;
    uint32_t way;
    uint64_t keys[KEYS_MAX];
    uint32_t bag_ends[KEYS_MAX]; /* as many bags as keys, and some of them empty */
    float values[VALUES_MAX], widened[VALUES_MAX];
    _Alignas(8) uint8_t twin[VALUES_MAX * sizeof(float) + 8]; /* reply of the twin */
    _Alignas(8) uint8_t reply[VALUES_MAX * sizeof(float) + 8];
    _Alignas(8) uint8_t expected[VALUES_MAX * sizeof(float) + 8];
};

static void set_up(struct world *w)
{
    w->random = 7;
    fixture_make(&w->f, 0);
    for (uint32_t id = ROWS; id < TABLES_END; id++) {
        const bool is_kv = id / 2 == ARRAYS / 2;
        const bool is_dense = id / 2 == ELEMENTS / 2 || id / 2 == BLOCKS / 2;
        const bool is_bsp = id / 2 == COMMITTED / 2 || id / 2 == BLOCKS / 2;
        struct sl_table_spec spec = {
            .name = {'t', (char)('a' + id)},
            .kind = is_kv      ? SL_TABLE_KV
                    : is_dense ? SL_TABLE_DENSE
                               : SL_TABLE_SPARSE,
            .dim = is_kv      ? sizeof(float)
                   : is_dense ? 0
                              : WIDTH,
            .length = is_dense ? LENGTH : 0,
            .optimizer = sl_optimizer_defaults(is_kv ? SL_OPTIMIZER_SUM : SL_OPTIMIZER_ADAGRAD),
            .consistency = {.mode = is_bsp ? SL_CONSISTENCY_BSP : SL_CONSISTENCY_ASP,
                            .worker_count = is_bsp ? WORKERS : 0},
            .policy.admit_count = id / 2 == ADMITTED / 2 ? 2 : 0,
        };
        assert_int_equal(sl_shard_table_open(w->f.shard, id, &spec, &w->f.reason), 0);
    }
}

static void tear_down(struct world *w)
{
    fixture_teardown(&w->f);
}

#define WORLD_CASE(name) SL_CASE_USING(name, struct world, w, set_up, tear_down)

static uint32_t draw(struct world *w, uint32_t below)
{
    return (uint32_t)(sl_hash_random(&w->random) % below);
}

/* Draws values of many sizes, and what is left of them on the way. */
static void draw_values(struct world *w, uint64_t count, uint32_t row)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_SCALAR);
    const enum sl_precision precision = ways[w->way].pushed;
    assert_true(count <= VALUES_MAX);
    for (uint64_t i = 0; i < count; i++) {
        w->values[i] = ((float)draw(w, 4001) - 2000) / (float)(1U << draw(w, 20));
    }
    for (uint64_t i = 0; i < count; i += row) {
        const uint32_t here = count - i < row ? (uint32_t)(count - i) : row;
        uint8_t encoded[sizeof(float) * SL_PRECISION_ARRAY_ROW];
        kernels->narrow(precision, w->values + i, here, encoded);
        kernels->widen(precision, encoded, here, w->widened + i);
    }
}

/* A section of one of the tables. */
struct call {
    uint8_t op;
    uint16_t table;
    uint32_t worker, clock, key_count;
    uint64_t start, count; /* KV: a piece if whole is not 0 */
    uint32_t whole;
    const uint32_t *lens;
};

static bool is_sparse(const struct call *call)
{
    return call->key_count > 0 && call->table != ARRAYS;
}

/* Only rows are returned as INT8. */
static enum sl_precision returned_of(const struct world *w, const struct call *call)
{
    return is_sparse(call) ? ways[w->way].pushed : ways[w->way].returned;
}

/* The request to the table, or to its twin. */
static void build(struct world *w, const struct call *call, bool is_twin)
{
    struct shard_request *request = &w->f.request;
    const float *values = is_twin ? w->widened : w->values;
    const uint16_t table = (uint16_t)(call->table + is_twin);
    shard_request_begin(request, call->clock);
    request->rate = 0.375F;
    request->pushed = is_twin ? SL_PRECISION_F32 : ways[w->way].pushed;
    request->returned = is_twin ? SL_PRECISION_F32 : returned_of(w, call);
    if (call->table == ARRAYS) {
        const struct sl_request_section section = {.op = call->op,
                                                   .table_id = table,
                                                   .bag_count = call->whole,
                                                   .start = call->start,
                                                   .count = call->count};
        shard_request_kv(request, section, w->keys, call->key_count, call->lens,
                         sl_request_pushes(call->op) ? values : NULL, sizeof *values);
    } else if (call->op == SL_REQUEST_PULL) {
        shard_request_pull(request, table, w->keys, call->key_count);
    } else if (call->op == SL_REQUEST_PULL_POOLED) {
        shard_request_pooled(request, table, w->keys, call->key_count, w->bag_ends,
                             call->key_count);
    } else if (is_sparse(call)) {
        shard_request_push(request, call->op, table, w->keys, call->key_count, values, WIDTH);
    } else {
        shard_request_dense(request, call->op, table, call->start, call->count,
                            sl_request_pushes(call->op) ? values : NULL);
    }
}

static void run(struct world *w, uint32_t worker, uint8_t *reply)
{
    struct fixture *f = &w->f;
    fixture_begin(f, worker);
    int result = SL_SHARD_AGAIN;
    while (result == SL_SHARD_AGAIN) {
        uint32_t spent;
        result = sl_shard_run(f->shard, &f->work, reply, 1 + draw(w, 90), &spent, &f->reason);
    }
    assert_int_equal(result, SL_SHARD_DONE);
}

/* Narrows the twin's reply, of `count` values, as that of the table should be. */
static void narrow_reply(struct world *w, const struct call *call, uint64_t count)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_SCALAR);
    const enum sl_precision returned = returned_of(w, call);
    const float *values = (const float *)(const void *)w->twin;
    const uint32_t row = is_sparse(call) ? WIDTH : SL_PRECISION_ARRAY_ROW;
    uint8_t *to = w->expected;
    for (uint64_t i = 0; i < count; i += row) {
        const uint32_t here = count - i < row ? (uint32_t)(count - i) : row;
        kernels->narrow(returned, values + i, here, to);
        to += sl_precision_row_bytes(returned, here);
    }
    memset(to, 0, 8);
}

/* Runs the section on both, and compares the replies. The values, of rows, are drawn. */
static void run_both(struct world *w, const struct call *call)
{
    const uint64_t count = is_sparse(call) ? (uint64_t)call->key_count * WIDTH : call->count;
    draw_values(w, count, is_sparse(call) ? WIDTH : SL_PRECISION_ARRAY_ROW);
    build(w, call, true);
    run(w, call->worker, w->twin);
    narrow_reply(w, call, count);
    build(w, call, false);
    memset(w->reply, 0xff, sizeof w->reply);
    run(w, call->worker, w->reply);
    assert_memory_equal(w->reply, w->expected, w->f.work.reply_bytes);
}

/* Sparse tables */

static void draw_keys(struct world *w, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        w->keys[i] = draw(w, 1 + 2 * count); /* some repeat */
        const uint32_t end = (i == 0 ? 0 : w->bag_ends[i - 1]) + draw(w, 3);
        w->bag_ends[i] = i + 1 == count || end > count ? count : end;
    }
}

static void expect_rows(struct world *w, uint16_t table, uint32_t key_count)
{
    for (uint32_t key = 0; key <= 2 * key_count; key++) {
        assert_true(fixture_peek(&w->f, table, key) == fixture_peek(&w->f, table + 1, key));
    }
}

WORLD_CASE(shard_push__widens_rows)
{
    static const uint32_t counts[] = {1, 3, 300, 2, KEYS_MAX};
    static const uint16_t tables[] = {ROWS, ADMITTED};
    for (uint32_t round = 0; round < 8 * WAYS; round++) {
        const uint32_t key_count = counts[round % 5];
        const uint8_t op = round % 2 == 0 ? SL_REQUEST_PUSH : SL_REQUEST_PUSH_PULL;
        w->way = round % WAYS;
        draw_keys(w, key_count);
        run_both(w, &(struct call){.op = op,
                                   .table = tables[round / 2 % 2],
                                   .worker = NOBODY,
                                   .key_count = key_count});
    }
    expect_rows(w, ROWS, KEYS_MAX);
    expect_rows(w, ADMITTED, KEYS_MAX);
}

/* Some keys have no row. */
WORLD_CASE(shard_run__narrows_rows)
{
    draw_keys(w, KEYS_MAX);
    run_both(w, &(struct call){
                    .op = SL_REQUEST_PUSH, .table = ROWS, .worker = NOBODY, .key_count = KEYS_MAX});
    for (w->way = 0; w->way < WAYS; w->way++) {
        draw_keys(w, KEYS_MAX);
        run_both(
            w, &(struct call){
                   .op = SL_REQUEST_PULL, .table = ROWS, .worker = NOBODY, .key_count = KEYS_MAX});
        run_both(w, &(struct call){.op = SL_REQUEST_PULL_POOLED,
                                   .table = ROWS,
                                   .worker = NOBODY,
                                   .key_count = KEYS_MAX});
    }
}

/* Each worker pushes twice an iteration. */
WORLD_CASE(shard_push__buffers_widened_values)
{
    for (uint32_t clock = 0; clock < WAYS; clock++) {
        w->way = clock;
        for (uint32_t i = 0; i < 2 * WORKERS; i++) {
            draw_keys(w, 700);
            run_both(w, &(struct call){.op = SL_REQUEST_PUSH,
                                       .table = COMMITTED,
                                       .worker = i % WORKERS,
                                       .clock = clock,
                                       .key_count = i == 0 ? 1 : 700});
            run_both(w, &(struct call){.op = SL_REQUEST_DENSE_PUSH,
                                       .table = BLOCKS,
                                       .worker = i % WORKERS,
                                       .clock = clock,
                                       .start = draw(w, 1000),
                                       .count = 1 + draw(w, 9000)});
        }
        fixture_tick_all(&w->f, clock);
        fixture_commit(&w->f);
    }
    w->way = 0;
    expect_rows(w, COMMITTED, 700);
    run_both(w,
             &(struct call){
                 .op = SL_REQUEST_DENSE_PULL, .table = BLOCKS, .worker = NOBODY, .count = LENGTH});
}

/* Dense tables */

WORLD_CASE(shard_run__has_dense_values_in_another_precision)
{
    static const uint8_t ops[] = {SL_REQUEST_DENSE_PUSH, SL_REQUEST_DENSE_PULL,
                                  SL_REQUEST_DENSE_PUSH_PULL};
    for (uint32_t round = 0; round < 90; round++) {
        const uint64_t start = draw(w, LENGTH - 5000);
        w->way = round % WAYS;
        run_both(w, &(struct call){.op = ops[draw(w, 3)],
                                   .table = ELEMENTS,
                                   .worker = NOBODY,
                                   .start = round % 2 == 0 ? start : start / 1024 * 1024,
                                   .count = 1 + draw(w, round % 3 == 0 ? 5 : 5000)});
    }
    run_both(w, &(struct call){.op = SL_REQUEST_DENSE_PUSH_PULL,
                               .table = ELEMENTS,
                               .worker = NOBODY,
                               .count = LENGTH});
}

/* KV tables */

WORLD_CASE(shard_run__has_arrays_in_another_precision)
{
    static const uint8_t ops[] = {SL_REQUEST_KV_PUSH_PULL, SL_REQUEST_KV_PUSH, SL_REQUEST_KV_PULL};
    static const uint32_t lens[] = {5, 1, 700, 255, 2048, 20001, 1};
    uint64_t count = 0;
    for (uint32_t i = 0; i < 7; i++) {
        w->keys[i] = i == 6 ? 2 : i; /* one repeats */
        count += lens[i];
    }
    for (uint32_t round = 0; round < 9 * WAYS; round++) {
        const uint32_t from = draw(w, 20000);
        w->way = round % WAYS;
        for (uint32_t i = 0; i < 7; i++) {
            w->keys[i] = i == 6 ? 1 : i; /* one repeats */
        }
        run_both(w, &(struct call){.op = ops[round / WAYS % 3],
                                   .table = ARRAYS,
                                   .worker = NOBODY,
                                   .key_count = 7,
                                   .count = count,
                                   .lens = lens});
        w->keys[0] = 5;
        run_both(w, &(struct call){.op = ops[draw(w, 3)],
                                   .table = ARRAYS,
                                   .worker = NOBODY,
                                   .key_count = 1,
                                   .start = from,
                                   .count = 1 + draw(w, 20001 - from),
                                   .whole = 20001});
    }
}

static int handle(void *ctx, const struct sl_kv_request *request)
{
    (void)ctx;
    (void)request;
    return 0;
}

WORLD_CASE(shard_handler_run__takes_f32_only)
{
    const struct sl_kv_handler handler = {.handle = handle};
    const struct sl_shard_options options = {.count = 1, .kv_handler = &handler};
    const struct sl_table_spec spec = {.name = "arrays", .kind = SL_TABLE_KV, .dim = 4};
    fixture_teardown(&w->f);
    assert_int_equal(sl_shard_create(&options, &w->f.shard), 0);
    assert_int_equal(sl_shard_table_open(w->f.shard, ARRAYS, &spec, &w->f.reason), 0);
    w->way = 3;
    build(
        w,
        &(struct call){.op = SL_REQUEST_KV_PUSH_PULL, .table = ARRAYS, .key_count = 1, .count = 9},
        false);
    assert_int_equal(fixture_run(&w->f, NOBODY), SL_ERR_INVALID);
    if (strstr(w->f.reason.text, "the precision is int8 pushed and bf16 returned; accepted by a "
                                 "handler is f32") == NULL) {
        fail_msg("%s", w->f.reason.text);
    }
    w->way = 4;
    build(w, &(struct call){.op = SL_REQUEST_KV_PUSH, .table = ARRAYS, .key_count = 1, .count = 9},
          false);
    assert_int_equal(fixture_run(&w->f, NOBODY), SL_SHARD_DONE);
}

/* Replies and values in other places */

WORLD_CASE(shard_next_chunk__narrows)
{
    for (uint32_t is_kv = 0; is_kv < 2; is_kv++) {
        struct call call = {.op = is_kv ? SL_REQUEST_KV_PUSH : SL_REQUEST_DENSE_PUSH,
                            .table = is_kv ? ARRAYS : ELEMENTS,
                            .worker = NOBODY,
                            .key_count = is_kv,
                            .count = LENGTH - 3};
        w->way = 0;
        run_both(w, &call);
        call.op = is_kv ? SL_REQUEST_KV_PULL : SL_REQUEST_DENSE_PULL;
        build(w, &call, true);
        run(w, NOBODY, w->twin);
        narrow_reply(w, &call, call.count);
        build(w, &call, false);
        fixture_begin(&w->f, NOBODY);
        assert_true(sl_shard_is_chunked(w->f.shard, &w->f.work));
        const uint64_t bytes = w->f.work.reply_bytes;
        while (w->f.work.reply_done < bytes) {
            const uint64_t left = bytes - w->f.work.reply_done;
            const uint32_t most = 8 * (1 + draw(w, 3000));
            (void)sl_shard_next_chunk(w->f.shard, &w->f.work, w->reply + w->f.work.reply_done,
                                      left < most ? (uint32_t)left : most);
        }
        assert_memory_equal(w->reply, w->expected, bytes);
    }
}

/* A push_pull that ran before: it only reads. */
WORLD_CASE(shard_skip_writes__reads_in_another_precision)
{
    const struct call calls[] = {
        {.op = SL_REQUEST_DENSE_PUSH_PULL, .table = ELEMENTS, .worker = NOBODY, .count = 999},
        {.op = SL_REQUEST_KV_PUSH_PULL,
         .table = ARRAYS,
         .worker = NOBODY,
         .key_count = 1,
         .count = 999}};
    for (uint32_t i = 0; i < 2; i++) {
        w->way = 3;
        run_both(w, &calls[i]);
        build(w, &calls[i], false);
        fixture_begin(&w->f, NOBODY);
        sl_shard_skip_writes(&w->f.work);
        assert_int_equal(fixture_go_on(&w->f), SL_SHARD_DONE);
        assert_memory_equal(w->f.reply, w->expected, w->f.work.reply_bytes);
    }
}

WORLD_CASE(shard_begin_out_of_line__takes_encoded_values)
{
    const struct call calls[] = {
        {.op = SL_REQUEST_PUSH_PULL, .table = ROWS, .worker = NOBODY, .key_count = 9},
        {.op = SL_REQUEST_DENSE_PUSH_PULL, .table = ELEMENTS, .worker = NOBODY, .count = 2001},
        {.op = SL_REQUEST_KV_PUSH_PULL,
         .table = ARRAYS,
         .worker = NOBODY,
         .key_count = 1,
         .count = 2001}};
    for (uint32_t i = 0; i < 6; i++) {
        static _Alignas(8) uint8_t structure[256], values[8192], moved[8192 + 256];
        const struct call *call = &calls[i % 3];
        struct fixture *f = &w->f;
        struct sl_request_section section;
        w->way = 2;
        draw_keys(w, 9);
        build(w, call, true);
        run(w, NOBODY, w->twin);
        narrow_reply(w, call, is_sparse(call) ? 9 * WIDTH : call->count);
        build(w, call, false);
        memcpy(&section, f->request.payload + sizeof(struct sl_request_prefix), sizeof section);
        const size_t bytes = sizeof(struct sl_request_prefix) + sizeof section +
                             sl_request_structure_bytes(&section);
        memcpy(structure, f->request.payload, bytes);
        memcpy(values, f->request.payload + bytes, f->request.bytes - bytes);
        assert_int_equal(sl_shard_begin_out_of_line(f->shard, &(struct sl_shard_client){0},
                                                    structure, bytes, values,
                                                    f->request.bytes - bytes, &f->work, &f->reason),
                         0);
        if (i >= 3) {
            assert_int_equal(sl_shard_rest_bytes(f->shard, &f->work),
                             f->request.bytes - sizeof(struct sl_request_prefix));
            sl_shard_move_rest(f->shard, &f->work, moved);
            memset(values, 0xff, sizeof values);
        }
        assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
        assert_memory_equal(f->reply, w->expected, f->work.reply_bytes);
    }
}

/* More gradients than a frame of f32 has. */
WORLD_CASE(shard_push__widens_more_than_a_frame_of_f32)
{
    const struct sl_table_spec spec = {.name = "wide", .dim = SL_LIMIT_DIM};
    struct fixture *f = &w->f;
    const uint32_t key_count = 300; /* more than 4 MiB of f32 */
    float *ones = malloc((size_t)key_count * SL_LIMIT_DIM * sizeof *ones);
    assert_int_equal(sl_shard_table_open(f->shard, TABLES_END, &spec, &f->reason), 0);
    for (uint32_t i = 0; i < key_count; i++) {
        w->keys[i] = i;
    }
    for (size_t i = 0; i < (size_t)key_count * SL_LIMIT_DIM; i++) {
        ones[i] = 1;
    }
    shard_request_begin(&f->request, 0);
    f->request.pushed = SL_PRECISION_INT8;
    shard_request_push(&f->request, SL_REQUEST_PUSH, TABLES_END, w->keys, key_count, ones,
                       SL_LIMIT_DIM);
    free(ones);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    for (uint32_t i = 0; i < key_count; i++) {
        shard_request_begin(&f->request, 0);
        shard_request_pull(&f->request, TABLES_END, &w->keys[i], 1);
        assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
        const float *row = (const float *)(const void *)f->reply;
        for (uint32_t c = 0; c < SL_LIMIT_DIM; c++) {
            assert_true(row[c] == 1);
        }
    }
}
