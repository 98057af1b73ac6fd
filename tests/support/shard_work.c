#include "tests/support/shard_work.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/hash.h"
#include "core/partition.h"
#include "tests/support/shard_request.h"

#define DENSE     SL_OPTIMIZER_KIND_COUNT /* likewise */
#define FLOATS    (2 * SL_OPTIMIZER_KIND_COUNT)
#define BYTES     (FLOATS + 1)
#define BSP       (FLOATS + 2) /* sparse; the next: dense */
#define TABLES    (FLOATS + 4)

#define DIM       5
#define KEYS      400
#define DRAWN_MAX 60   /* keys of a request */
#define LENGTH    2500 /* of a dense array, and more of each */
#define ARRAYS    24
#define LONGEST   3000 /* values of an array */
#define NOBODY    UINT32_MAX

static struct sl_table_spec spec_of(uint32_t id)
{
    static const enum sl_initializer_kind initializers[] = {
        SL_INITIALIZER_UNIFORM, SL_INITIALIZER_NORMAL, SL_INITIALIZER_ZEROS};
    const bool is_kv = id == FLOATS || id == BYTES;
    const bool is_dense = (id >= DENSE && id < FLOATS) || id == BSP + 1;
    const bool is_bsp = id >= BSP;
    struct sl_table_spec spec = {
        .kind = is_kv      ? SL_TABLE_KV
                : is_dense ? SL_TABLE_DENSE
                           : SL_TABLE_SPARSE,
        .dim = is_dense       ? 0
               : id == BYTES  ? 1
               : id == FLOATS ? 4
                              : DIM,
        .length = is_dense ? LENGTH + (uint64_t)id * 100 : 0,
        .optimizer = sl_optimizer_defaults(
            is_kv ? SL_OPTIMIZER_SUM : (enum sl_optimizer_kind)(id % SL_OPTIMIZER_KIND_COUNT)),
    };
    if (is_bsp) {
        spec.consistency = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_BSP,
                                                        .worker_count = SHARD_WORK_WORKERS};
    }
    if (!is_kv && id % 2 == 1) {
        spec.update = (struct sl_update_spec){.clip_norm = 1, .value_bound = 1.5F};
    }
    if (!is_kv) {
        spec.initializer = (struct sl_initializer_spec){
            .kind = initializers[id % 3], .low = -1, .high = 1, .seed = id};
    }
    (void)snprintf(spec.name, sizeof spec.name, "table%u", id);
    return spec;
}

struct sl_shard *shard_work_shard(uint32_t index, uint32_t count, size_t memory_bytes_max)
{
    const struct sl_shard_options options = {.index = index,
                                             .count = count,
                                             .memory_bytes_max = memory_bytes_max,
                                             .push_buffer_bytes_max = 4U << 20};
    struct sl_shard *shard;
    sl_assert(sl_shard_create(&options, &shard) == 0);
    return shard;
}

void shard_work_init(struct shard_work *work, uint32_t count, bool open, uint64_t seed)
{
    sl_assert(count <= SHARD_WORK_MAX);
    *work = (struct shard_work){.count = count, .random = seed};
    for (uint32_t i = 0; i < count; i++) {
        work->shards[i] = shard_work_shard(i, count, 0);
        for (uint32_t id = 0; open && id < TABLES; id++) {
            const struct sl_table_spec spec = spec_of(id);
            sl_assert(sl_shard_table_open(work->shards[i], id, &spec, NULL) == 0);
        }
    }
}

void shard_work_fini(struct shard_work *work)
{
    for (uint32_t i = 0; i < work->count; i++) {
        sl_shard_destroy(&work->shards[i]);
    }
}

static uint32_t draw(struct shard_work *work, uint32_t below)
{
    return (uint32_t)(sl_hash_random(&work->random) % below);
}

static void commit(struct sl_shard *shard)
{
    while (sl_shard_iteration_due(shard)) {
        (void)sl_shard_apply_iteration(shard, 100);
    }
}

static void serve(struct sl_shard *shard, uint32_t worker, const struct shard_request *request)
{
    static _Alignas(8) uint8_t reply[64 << 10];
    const struct sl_shard_client caller = {.has_clock = worker != NOBODY,
                                           .worker = worker == NOBODY ? 0 : worker};
    struct sl_shard_request work;
    uint32_t spent;
    sl_assert(sl_shard_begin(shard, &caller, request->payload, request->bytes, &work, NULL) == 0);
    int result = SL_SHARD_AGAIN;
    while (result == SL_SHARD_AGAIN) {
        commit(shard);
        result = sl_shard_run(shard, &work, reply, 1000, &spent, NULL);
    }
    sl_assert(result == SL_SHARD_DONE);
}

static struct shard_request request;

static void fill(struct shard_work *work, float *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const int32_t value = (int32_t)draw(work, 2001) - 1000;
        values[i] = value == 0 ? -0.0F : (float)value / 256.0F;
    }
}

static uint32_t draw_keys(struct shard_work *work, uint64_t drawn[DRAWN_MAX])
{
    const uint32_t wanted = 1 + draw(work, DRAWN_MAX);
    for (uint32_t i = 0; i < wanted; i++) {
        drawn[i] = draw(work, 20) == 0 ? UINT64_MAX - draw(work, 3) : draw(work, KEYS);
    }
    return wanted;
}

/* Those of one shard. */
static uint32_t keys_of_shard(const struct shard_work *work, uint32_t shard, const uint64_t *drawn,
                              uint32_t wanted, uint64_t keys[DRAWN_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < wanted; i++) {
        if (sl_partition_owner(drawn[i], work->count) == shard) {
            keys[count++] = drawn[i];
        }
    }
    return count;
}

static void push_sparse(struct shard_work *work, uint16_t table, uint32_t worker)
{
    uint64_t keys[DRAWN_MAX];
    float gradients[DRAWN_MAX * DIM];
    uint64_t drawn[DRAWN_MAX];
    const uint32_t wanted = draw_keys(work, drawn);
    for (uint32_t s = 0; s < work->count; s++) {
        const uint32_t count = keys_of_shard(work, s, drawn, wanted, keys);
        if (count > 0) {
            fill(work, gradients, count * DIM);
            shard_request_begin(&request, worker == NOBODY ? 0 : work->clocks[worker]);
            request.rate = draw(work, 4) == 0 ? 0.5F : 1.0F;
            const uint8_t push = worker != NOBODY ? SL_REQUEST_PUSH : SL_REQUEST_PUSH_PULL;
            shard_request_push(&request, draw(work, 8) == 0 ? SL_REQUEST_ASSIGN : push, table, keys,
                               count, gradients, DIM);
            serve(work->shards[s], worker, &request);
        }
    }
}

static void push_dense(struct shard_work *work, uint16_t table, uint32_t worker)
{
    static float gradients[1500];
    const uint64_t length = spec_of(table).length;
    const uint64_t start = draw(work, (uint32_t)length);
    const uint64_t end =
        start + 1 + draw(work, 1500) < length ? start + 1 + draw(work, 1000) : length;
    fill(work, gradients, 1500);
    for (uint32_t s = 0; s < work->count; s++) {
        const uint32_t range = sl_partition_range_of_shard(table, s, work->count);
        const uint64_t first = sl_partition_range_start(length, work->count, range);
        const uint64_t last = sl_partition_range_start(length, work->count, range + 1);
        const uint64_t from = start > first ? start : first;
        const uint64_t to = end < last ? end : last;
        if (from < to) {
            shard_request_begin(&request, worker == NOBODY ? 0 : work->clocks[worker]);
            request.rate = draw(work, 4) == 0 ? 2.0F : 1.0F;
            shard_request_dense(
                &request, draw(work, 8) == 0 ? SL_REQUEST_DENSE_ASSIGN : SL_REQUEST_DENSE_PUSH,
                table, from, to - from < 1500 ? to - from : 1500, gradients);
            serve(work->shards[s], worker, &request);
        }
    }
}

static void push_array(struct shard_work *work, uint16_t table)
{
    static float values[LONGEST];
    const uint32_t which = draw(work, ARRAYS);
    const uint64_t key = which == 0 ? 0 : which == 1 ? UINT64_MAX : sl_hash_key(which);
    const uint32_t whole = 1 + (uint32_t)(sl_hash_key(which + 77) % LONGEST);
    const uint32_t start = draw(work, 2) == 0 ? 0 : draw(work, whole);
    struct sl_request_section section = {.op = SL_REQUEST_KV_PUSH, .table_id = table};
    section.start = start;
    section.count = draw(work, 2) == 0 ? whole - start : 1 + draw(work, whole - start);
    if (section.start != 0 || section.count != whole) {
        section.bag_count = whole;
    }
    fill(work, values, LONGEST);
    shard_request_begin(&request, 0);
    shard_request_kv(&request, section, &key, 1, NULL, values, table == BYTES ? 1 : 4);
    serve(work->shards[sl_partition_kv_owner(key, work->count)], NOBODY, &request);
}

/* A worker that may have left, or been lost, is there again. */
static void settle(struct shard_work *work, uint32_t worker)
{
    for (uint32_t s = 0; s < work->count; s++) {
        const struct sl_shard_worker at = sl_shard_worker_find(work->shards[s], worker);
        if (!at.active && at.clock != UINT32_MAX && at.clock > work->clocks[worker]) {
            work->clocks[worker] = at.clock;
        }
    }
    for (uint32_t s = 0; s < work->count; s++) {
        (void)sl_shard_worker_join(work->shards[s], worker, work->clocks[worker]);
    }
}

static void work_as(struct shard_work *work, uint32_t worker)
{
    if (!sl_shard_worker_find(work->shards[0], worker).active) {
        settle(work, worker);
    }
    if (draw(work, 4) != 0) {
        if (draw(work, 2) == 0) {
            push_sparse(work, BSP, worker);
        } else {
            push_dense(work, BSP + 1, worker);
        }
        return;
    }
    shard_request_begin(&request, work->clocks[worker]);
    shard_request_tick(&request);
    for (uint32_t s = 0; s < work->count; s++) {
        serve(work->shards[s], worker, &request);
        commit(work->shards[s]);
    }
    work->clocks[worker]++;
}

void shard_work_run(struct shard_work *work, uint32_t requests)
{
    for (uint32_t i = 0; i < requests; i++) {
        const uint16_t table = (uint16_t)draw(work, TABLES + 4);
        if (table < DENSE) {
            push_sparse(work, table, NOBODY);
        } else if (table < FLOATS) {
            push_dense(work, table, NOBODY);
        } else if (table < BSP) {
            push_array(work, table);
        } else {
            work_as(work, draw(work, SHARD_WORK_WORKERS));
        }
    }
}

void shard_work_erase(struct shard_work *work, uint32_t requests)
{
    uint64_t keys[DRAWN_MAX];
    uint64_t drawn[DRAWN_MAX];
    for (uint32_t i = 0; i < requests; i++) {
        const uint16_t table = (uint16_t)draw(work, DENSE);
        const uint32_t wanted = draw_keys(work, drawn);
        for (uint32_t s = 0; s < work->count; s++) {
            shard_request_begin(&request, 0);
            shard_request_erase(&request, table, keys, keys_of_shard(work, s, drawn, wanted, keys));
            serve(work->shards[s], NOBODY, &request);
        }
    }
}

void shard_work_come_and_go(struct shard_work *work)
{
    const uint32_t worker = draw(work, SHARD_WORK_WORKERS);
    const bool is_lost = draw(work, 2) == 0;
    for (uint32_t s = 0; s < work->count; s++) {
        sl_shard_worker_seen(work->shards[s], SHARD_WORK_WORKERS + worker);
        if (is_lost) {
            sl_shard_worker_expired(work->shards[s], worker);
        } else {
            sl_shard_worker_left(work->shards[s], worker);
        }
        commit(work->shards[s]);
    }
}
