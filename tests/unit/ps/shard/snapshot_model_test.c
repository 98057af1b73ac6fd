/* Snapshots of a shard that serves: at one moment the shard is copied plainly, record by record;
 * then its snapshot is taken, while requests of all kinds begin, go on slice by slice, wait, fail
 * and are abandoned, workers come and go, and tables are opened. A shard that loads the snapshot
 * must be as the copy. The seed is in the test's output where it fails. */

#include <stdio.h>
#include <stdlib.h>

#include "core/hash.h"
#include "core/reason.h"
#include "snapshot_fixture.h"
#include "tests/support/shard_request.h"
#include "tests/support/unit.h"

#define DIM_SPARSE   4
#define DIM_BSP      3
#define KEYS         2000
#define DENSE_LENGTH 20000
#define BSP_LENGTH   5000
#define ALL          5 /* workers; those beyond WORKERS have to join */
#define SLOTS        5
#define KEYS_MAX     1500
#define FLOATS_MAX   100000
#define TABLES_MAX   10

enum { ROWS, BSP_ROWS, ARRAY, BSP_ARRAY, KV_OF_FLOATS, KV_OF_HALVES, KV_OF_BYTES, FIRST_LATE };

struct slot {
    bool busy;
    struct sl_shard_request work;
    struct shard_request request;
    _Alignas(8) uint8_t reply[SL_LIMIT_FRAME_PAYLOAD_BYTES];
};

struct model {
    struct sl_shard *shard;
    uint32_t table_count;
    uint64_t random;
    uint64_t keys[KEYS_MAX];
    float values[FLOATS_MAX];
    struct slot slots[SLOTS];
    uint64_t done, failed, parked, abandoned;
};

static uint32_t draw(struct model *model, uint32_t below)
{
    return (uint32_t)(sl_hash_random(&model->random) % below);
}

static struct sl_table_spec spec_of(uint32_t id)
{
    static const struct {
        enum sl_table_kind kind;
        uint32_t dim;
        uint64_t length;
        enum sl_optimizer_kind optimizer;
        bool bsp;
    } all[] = {
        [ROWS] = {SL_TABLE_SPARSE, DIM_SPARSE, 0, SL_OPTIMIZER_ADAM_ASYNC, false},
        [BSP_ROWS] = {SL_TABLE_SPARSE, DIM_BSP, 0, SL_OPTIMIZER_ADAGRAD, true},
        [ARRAY] = {SL_TABLE_DENSE, 0, DENSE_LENGTH, SL_OPTIMIZER_ADAM, false},
        [BSP_ARRAY] = {SL_TABLE_DENSE, 0, BSP_LENGTH, SL_OPTIMIZER_SUM, true},
        [KV_OF_FLOATS] = {SL_TABLE_KV, 4, 0, SL_OPTIMIZER_SUM, false},
        [KV_OF_HALVES] = {SL_TABLE_KV, 2, 0, SL_OPTIMIZER_SUM, false},
        [KV_OF_BYTES] = {SL_TABLE_KV, 1, 0, SL_OPTIMIZER_SUM, false},
        [FIRST_LATE] = {SL_TABLE_SPARSE, DIM_SPARSE, 0, SL_OPTIMIZER_MOMENTUM, false},
    };
    const uint32_t like = id < FIRST_LATE ? id : FIRST_LATE;
    struct sl_table_spec spec = {
        .kind = all[like].kind,
        .dim = all[like].dim,
        .length = all[like].length,
        .optimizer = sl_optimizer_defaults(all[like].optimizer),
        .consistency = {.mode = all[like].bsp ? SL_CONSISTENCY_BSP : SL_CONSISTENCY_ASP,
                        .worker_count = all[like].bsp ? WORKERS : 0},
        .values = like == KV_OF_HALVES ? SL_PRECISION_BF16 : SL_PRECISION_F32,
    };
    (void)snprintf(spec.name, sizeof spec.name, "table%u", id);
    return spec;
}

static void open_table(struct model *model)
{
    const struct sl_table_spec spec = spec_of(model->table_count);
    assert_int_equal(sl_shard_table_open(model->shard, model->table_count, &spec, NULL), 0);
    model->table_count++;
}

static void draw_values(struct model *model, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        model->values[i] = (float)(1 + draw(model, 64)) / 8.0F;
    }
}

static void add_sparse(struct model *model, struct shard_request *request, uint32_t table,
                       uint32_t dim)
{
    const bool is_large = draw(model, 4) == 0;
    const uint32_t count = is_large ? 1100 + draw(model, 300) : 1 + draw(model, 60);
    for (uint32_t i = 0; i < count; i++) {
        model->keys[i] = draw(model, draw(model, 2) == 0 ? KEYS : 300) * 7919ULL;
    }
    draw_values(model, count * dim);
    const uint32_t what = draw(model, 6);
    if (what == 5) {
        shard_request_erase(request, (uint16_t)table, model->keys, count);
    } else if (what == 0) {
        shard_request_pull(request, (uint16_t)table, model->keys, count);
    } else {
        shard_request_push(request, what == 1 ? SL_REQUEST_PUSH_PULL : SL_REQUEST_PUSH,
                           (uint16_t)table, model->keys, count, model->values, dim);
    }
}

static void add_dense(struct model *model, struct shard_request *request, uint32_t table,
                      uint32_t length)
{
    const uint32_t start = draw(model, length);
    const uint32_t left = length - start;
    const uint32_t count = 1 + draw(model, draw(model, 2) == 0 ? left : left / 8 + 1);
    draw_values(model, count);
    shard_request_dense(request,
                        draw(model, 3) == 0 ? SL_REQUEST_DENSE_PUSH_PULL : SL_REQUEST_DENSE_PUSH,
                        (uint16_t)table, start, count, model->values);
}

/* A key's array has always the same length; those of the keys from 40 on are long. */
static uint32_t kv_length(uint32_t key)
{
    return key < 40 ? 1 + key * 3 : 40000 + key * 1000;
}

static void add_kv_long(struct model *model, struct shard_request *request, uint32_t table,
                        uint32_t width)
{
    const uint64_t key = 40 + draw(model, 4);
    const uint32_t length = kv_length((uint32_t)key);
    const uint32_t start = draw(model, length);
    uint32_t count = 1 + draw(model, length - start);
    count = draw(model, 3) == 0 && count > 100 ? 100 : count;
    draw_values(model, count);
    const struct sl_request_section section = {
        .op = draw(model, 3) == 0 ? SL_REQUEST_KV_PUSH_PULL : SL_REQUEST_KV_PUSH,
        .table_id = (uint16_t)table,
        .start = start,
        .count = count,
        .bag_count = length,
    };
    shard_request_kv(request, section, &key, 1, NULL, model->values, width);
}

static void add_kv(struct model *model, struct shard_request *request, uint32_t table,
                   uint32_t width)
{
    uint32_t lens[KEYS_MAX];
    uint64_t values = 0;
    const uint32_t count = draw(model, 3) == 0 ? 260 + draw(model, 40) : 1 + draw(model, 20);
    for (uint32_t i = 0; i < count; i++) {
        model->keys[i] = draw(model, 40) + (draw(model, 2) == 0 ? 0 : 1000 * (1 + draw(model, 50)));
        lens[i] = kv_length((uint32_t)(model->keys[i] % 1000));
        values += lens[i];
    }
    assert_true(values <= FLOATS_MAX);
    draw_values(model, (uint32_t)values);
    const struct sl_request_section section = {
        .op = draw(model, 3) == 0 ? SL_REQUEST_KV_PUSH_PULL : SL_REQUEST_KV_PUSH,
        .table_id = (uint16_t)table,
        .count = values,
    };
    shard_request_kv(request, section, model->keys, count, lens, model->values, width);
}

static void add_section(struct model *model, struct shard_request *request)
{
    const uint32_t table = draw(model, model->table_count);
    const uint32_t kv_width = spec_of(table).dim;
    const bool is_f32 = table == KV_OF_HALVES || table == KV_OF_BYTES;
    request->pushed = is_f32 ? SL_PRECISION_F32 : (enum sl_precision)draw(model, 4);
    switch (table) {
    case BSP_ROWS:
        add_sparse(model, request, table, DIM_BSP);
        break;
    case ARRAY:
        add_dense(model, request, table, DENSE_LENGTH);
        break;
    case BSP_ARRAY:
        add_dense(model, request, table, BSP_LENGTH);
        break;
    case KV_OF_FLOATS:
    case KV_OF_HALVES:
    case KV_OF_BYTES:
        if (draw(model, 2) == 0) {
            add_kv_long(model, request, table, kv_width);
        } else {
            add_kv(model, request, table, kv_width);
        }
        break;
    default:
        add_sparse(model, request, table, DIM_SPARSE);
    }
}

static void begin_request(struct model *model, struct slot *slot)
{
    struct sl_reason reason;
    const uint32_t worker = draw(model, ALL);
    const struct sl_shard_client caller = {.has_clock = draw(model, 3) != 0, .worker = worker};
    const struct sl_shard_worker who = sl_shard_worker_find(model->shard, worker);
    shard_request_begin(&slot->request, caller.has_clock ? who.clock : 0);
    const uint32_t sections = 1 + draw(model, 3);
    for (uint32_t i = 0; i < sections; i++) {
        if (caller.has_clock && draw(model, 3) == 0) {
            shard_request_tick(&slot->request);
        } else {
            add_section(model, &slot->request);
        }
    }
    const int err = sl_shard_begin(model->shard, &caller, slot->request.payload,
                                   slot->request.bytes, &slot->work, &reason);
    if (err != 0) {
        fail_msg("%s", reason.text);
    }
    slot->busy = true;
}

static void run_slot(struct model *model, struct slot *slot)
{
    uint32_t spent;
    const uint32_t budget = draw(model, 8) == 0 ? UINT32_MAX : 1 + draw(model, 300);
    const int result = sl_shard_run(model->shard, &slot->work, slot->reply, budget, &spent, NULL);
    model->done += result == SL_SHARD_DONE;
    model->failed += result < 0;
    model->parked += result == SL_SHARD_PARKED;
    slot->busy = result > 0;
}

static void move_worker(struct model *model)
{
    const uint32_t worker = draw(model, ALL);
    const uint32_t what = draw(model, 4);
    if (what == 0) {
        sl_shard_worker_expired(model->shard, worker);
    } else if (what == 1) {
        sl_shard_worker_left(model->shard, worker);
    } else {
        const struct sl_shard_worker who = sl_shard_worker_find(model->shard, worker);
        (void)sl_shard_worker_join(model->shard, worker, who.clock);
    }
}

static void act(struct model *model)
{
    struct slot *slot = &model->slots[draw(model, SLOTS)];
    const uint32_t what = draw(model, 200);
    if (sl_shard_iteration_due(model->shard) && draw(model, 2) == 0) {
        (void)sl_shard_apply_iteration(model->shard, 1 + draw(model, 400));
    } else if (what < 4) {
        move_worker(model);
    } else if (what < 6 && model->table_count < TABLES_MAX && draw(model, 20) == 0) {
        open_table(model);
    } else if (!slot->busy) {
        begin_request(model, slot);
    } else if (what < 10) {
        sl_shard_abandon(model->shard, &slot->work);
        slot->busy = false;
        model->abandoned++;
    } else {
        run_slot(model, slot);
    }
}

/* The shard serves until the snapshot can begin, which is soon, whichever worker waits, joins or
 * leaves. */
static void want_snapshot(struct model *model)
{
    const struct sl_shard_snapshot_options options = {0};
    uint32_t acts = 0;
    while (sl_shard_snapshot_begin(model->shard, &options) == SL_ERR_AGAIN) {
        assert_int_equal(sl_shard_snapshot_state(model->shard), SL_SHARD_SNAPSHOT_PENDING);
        for (uint32_t i = 0; i < SLOTS; i++) {
            act(model);
        }
        assert_true(++acts < 5000);
    }
    assert_int_equal(sl_shard_snapshot_state(model->shard), SL_SHARD_SNAPSHOT_RUNNING);
    sl_shard_snapshot_end(model->shard, NULL);
}

static struct shard_stream snapshot_serving(struct model *model,
                                            const struct sl_shard_snapshot_base *from,
                                            struct sl_shard_snapshot_base **base)
{
    const struct sl_shard_snapshot_options options = {.base = from};
    struct shard_stream stream = {0};
    assert_int_equal(sl_shard_snapshot_begin(model->shard, &options), 0);
    /* Of the walk: where it is fast, little happens meanwhile. */
    const uint32_t pace = draw(model, 2) == 0 ? 20000 : 1 + draw(model, 400);
    while (sl_shard_snapshot_state(model->shard) == SL_SHARD_SNAPSHOT_RUNNING) {
        for (uint32_t i = draw(model, 8); i > 0; i--) {
            act(model);
        }
        if (draw(model, 2) == 0) {
            (void)sl_shard_snapshot_run(model->shard, 1 + draw(model, pace));
        }
        if (draw(model, 4) == 0 || sl_shard_snapshot_waits(model->shard)) {
            (void)shard_stream_snapshot(model->shard, 0, &stream);
        }
    }
    assert_int_equal(sl_shard_snapshot_state(model->shard), SL_SHARD_SNAPSHOT_DONE);
    sl_shard_snapshot_end(model->shard, base);
    snapshot_clean(model->shard);
    assert_int_equal(sl_shard_snapshot_memory_bytes(model->shard), 0);
    return stream;
}

/* A full snapshot, or one that adds to the last one, is of its moment: `last`, into which it is
 * loaded, is then as a plain copy of the shard. */
static void snapshot_once(struct model *model, struct sl_shard **last,
                          struct sl_shard_snapshot_base **base)
{
    struct sl_shard_snapshot_base *next = NULL;
    want_snapshot(model);
    struct sl_shard *still = snapshot_copy(model->shard);
    const bool adds = *last != NULL && draw(model, 3) != 0;
    struct shard_stream stream = snapshot_serving(model, adds ? *base : NULL, &next);
    assert_non_null(next);
    if (*last != NULL && !adds) {
        sl_shard_destroy(last);
    }
    snapshot_load(&stream, last);
    snapshot_same(still, *last);
    sl_shard_snapshot_base_destroy(base);
    *base = next;
    shard_stream_fini(&stream);
    sl_shard_destroy(&still);
}

static void run_seed(struct model *model, uint64_t seed)
{
    const struct sl_shard_options options = {.count = 1, .push_buffer_bytes_max = 4 << 20};
    struct sl_shard *last = NULL;
    struct sl_shard_snapshot_base *base = NULL;
    print_message("seed %u\n", (unsigned)seed);
    model->random = seed;
    model->table_count = 0;
    assert_int_equal(sl_shard_create(&options, &model->shard), 0);
    while (model->table_count < FIRST_LATE) {
        open_table(model);
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        model->slots[i].busy = false;
    }
    for (uint32_t snapshot = 0; snapshot < 6; snapshot++) {
        for (uint32_t i = draw(model, snapshot % 2 == 0 ? 300 : 20); i > 0; i--) {
            act(model);
        }
        snapshot_once(model, &last, &base);
    }
    sl_shard_destroy(&last);
    sl_shard_snapshot_base_destroy(&base);
    sl_shard_destroy(&model->shard);
}

SL_CASE(shard_snapshot__is_of_one_moment_whatever_goes_on)
{
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        run_seed(model, seed);
    }
    /* All of it has happened. */
    assert_true(model->done > 500);
    assert_true(model->parked > 50);
    assert_true(model->failed > 5);
    assert_true(model->abandoned > 50);
    free(model);
}
