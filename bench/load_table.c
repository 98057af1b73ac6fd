/* What a load works on: the cluster and the table, by way of the client library, and the keys. And
 * whether what its own requests do to the table is what the client library sees. */
#include <stdlib.h>

#include "bench/load_internal.h"
#include "bench/workload.h"
#include "core/log.h"
#include "core/partition.h"
#include "core/reason.h"
#include "worker/client/client_internal.h"

#define TIMEOUT_MS       60000
#define DRAWN_KEYS       (2U << 20) /* over all shards */
#define DRAWN_REQUESTS   64         /* of each shard, at least */
#define DRAWS_A_KEY_MAX  10000      /* as a sign that a shard has no rows at all */
#define CHECK_TIMEOUT_NS (30 * SL_CLOCK_NS_PER_S)

/* ---- The cluster ----------------------------------------------------------------------------- */

static int note_ps(struct sl_bench_load *load, const struct sl_message_ps *ps, uint32_t first)
{
    for (uint32_t local = 0; local < ps->shard_count; local++) {
        struct sl_bench_load_shard *shard = &load->shards[first + local];
        struct sl_reason reason;
        shard->reactor = local % (ps->reactor_count == 0 ? ps->shard_count : ps->reactor_count);
        if (sl_endpoint_parse(ps->data_endpoint, &shard->endpoint, &reason) != 0) {
            sl_log_error("data endpoint of ps/%u: %s", ps->task_index, reason.text);
            return SL_ERR_INVALID;
        }
        if (shard->endpoint.scheme != SL_ENDPOINT_TCP) {
            sl_log_error("data endpoint of ps/%u: the load speaks tcp only", ps->task_index);
            return SL_ERR_UNSUPPORTED;
        }
    }
    return 0;
}

static int note_cluster(struct sl_bench_load *load, const struct sl_client *client)
{
    load->shard_count = client->shard_count;
    load->shards = calloc(load->shard_count, sizeof *load->shards);
    if (load->shards == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    uint32_t first = 0;
    for (uint32_t i = 0; i < client->cluster.ps_count; i++) {
        int err = note_ps(load, &client->cluster.ps[i], first);
        if (err != 0) {
            return err;
        }
        first += client->cluster.ps[i].shard_count;
    }
    return 0;
}

/* ---- Rows and keys --------------------------------------------------------------------------- */

/* Draws keys until every shard has its share; a key of a full shard is dropped. */
static int fill_keys(struct sl_bench_load *load, struct sl_bench_workload *workload,
                     uint64_t *counts, uint64_t share)
{
    const uint64_t draws_max = share * load->shard_count * DRAWS_A_KEY_MAX;
    uint32_t left = load->shard_count;
    for (uint64_t draws = 0; left > 0 && draws < draws_max; draws++) {
        const uint64_t key = sl_bench_workload_next(workload);
        const uint32_t owner = sl_partition_owner(key, load->shard_count);
        if (counts[owner] < share) {
            load->shards[owner].keys[counts[owner]++] = key;
            left -= counts[owner] == share ? 1 : 0;
        }
    }
    if (left > 0) {
        sl_log_error("%llu rows: too few, some of %u shards have none",
                     (unsigned long long)load->options.rows, load->shard_count);
        return SL_ERR_INVALID;
    }
    return 0;
}

static int draw_keys(struct sl_bench_load *load)
{
    const uint32_t keys = load->options.keys;
    uint64_t requests = DRAWN_KEYS / load->shard_count / keys;
    requests = requests < DRAWN_REQUESTS ? DRAWN_REQUESTS : requests;
    for (uint32_t i = 0; i < load->shard_count; i++) {
        load->shards[i].key_count = requests * keys;
        load->shards[i].keys = malloc(requests * keys * sizeof(uint64_t));
        if (load->shards[i].keys == NULL) {
            return SL_ERR_NO_MEMORY;
        }
    }
    uint64_t *counts = calloc(load->shard_count, sizeof *counts);
    if (counts == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_bench_workload workload;
    sl_bench_workload_init(&workload, load->options.distribution, load->options.rows,
                           load->options.zipf_exponent, load->options.seed);
    int err = fill_keys(load, &workload, counts, requests * keys);
    free(counts);
    return err;
}

static int note_ranges(struct sl_bench_load *load)
{
    for (uint32_t i = 0; i < load->shard_count; i++) {
        struct sl_bench_load_shard *shard = &load->shards[i];
        const uint64_t length = load->options.table.length;
        const uint32_t range = sl_partition_range_of_shard(load->table_id, i, load->shard_count);
        shard->first = sl_partition_range_start(length, load->shard_count, range);
        shard->elements =
            sl_partition_range_start(length, load->shard_count, range + 1) - shard->first;
        if (shard->elements < load->options.keys) {
            sl_log_error("of a dense table of %llu elements shard %u has %llu, fewer than one "
                         "request's %u",
                         (unsigned long long)length, i, (unsigned long long)shard->elements,
                         load->options.keys);
            return SL_ERR_INVALID;
        }
    }
    return 0;
}

static int prepare(struct sl_bench_load *load, struct sl_client *client)
{
    struct sl_table *table;
    int err = sl_client_table_open(client, &load->options.table, TIMEOUT_MS, &table);
    if (err == 0) {
        load->table_id = (uint16_t)table->id;
        err = note_cluster(load, client);
    }
    if (err != 0 || load->options.table.kind == SL_TABLE_DENSE) {
        return err != 0 ? err : note_ranges(load);
    }
    err = sl_bench_rows_create(client, table, load->options.table.dim, load->options.rows);
    return err != 0 ? err : draw_keys(load);
}

int sl_bench_load_prepare(struct sl_bench_load *load, struct sl_client **client)
{
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator = load->options.coordinator,
                                              .task_index = -1,
                                              .congestion_control = load->options.congestion};
    int err = sl_client_create(&options, client);
    if (err != 0) {
        return err;
    }
    err = prepare(load, *client);
    if (err != 0) {
        sl_client_destroy(client);
    }
    return err;
}

/* ---- Whether it is right --------------------------------------------------------------------- */

/* The rows, or elements, that the next request on the shard's first connection is about. */
static int read_table(const struct sl_bench_load *load, struct sl_client *client, uint32_t shard,
                      float *values)
{
    const struct sl_bench_load_connection *connection = &load->connections[shard];
    struct sl_table *table = client->tables[load->table_id];
    const struct sl_bench_load_shard *of = &load->shards[shard];
    if (of->keys != NULL) {
        return sl_client_pull(client, table, of->keys + connection->at, load->options.keys, values,
                              TIMEOUT_MS);
    }
    struct sl_step *step;
    int err = sl_step_begin(client, 0, &step);
    if (err != 0) {
        return err;
    }
    err = sl_step_dense_pull(step, table, of->first + connection->at, load->options.keys, values);
    return sl_bench_rows_finish(step, err, "elements cannot be read");
}

static int corrupt(uint32_t shard, const char *what)
{
    sl_log_error("shard %u: %s", shard, what);
    return SL_ERR_CORRUPT;
}

/* Compares rows that were read as f32 with those that came in another precision. */
static bool is_close(const struct sl_bench_load *load, const float *values, const uint8_t *rows)
{
    const enum sl_precision as = load->options.returned;
    const uint32_t dim = load->options.table.dim;
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    float rounded[SL_LIMIT_DIM], row[SL_LIMIT_DIM];
    uint8_t narrow[SL_LIMIT_DIM * sizeof(float)];
    for (uint32_t i = 0; i < load->options.keys; i++, values += dim) {
        kernels->widen(as, rows + i * sl_precision_row_bytes(as, dim), dim, row);
        kernels->narrow(as, values, dim, narrow);
        kernels->widen(as, narrow, dim, rounded);
        if (memcmp(row, rounded, dim * sizeof *row) != 0) {
            return false;
        }
    }
    return true;
}

/* By value: a push that turns 0 into -0 has changed nothing. */
static bool is_same(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (a[i] != b[i]) {
            return false;
        }
    }
    return true;
}

static int verify_shard(struct sl_bench_load *load, struct sl_client *client, uint32_t shard,
                        float *before, float *after)
{
    const bool pushes = load->options.operation != SL_BENCH_PULL;
    const bool pulls = load->options.operation != SL_BENCH_PUSH;
    const uint32_t columns =
        load->options.table.kind == SL_TABLE_DENSE ? 1 : load->options.table.dim;
    const size_t count = (size_t)load->options.keys * columns;
    struct sl_bench_load_connection *connection = &load->connections[shard];
    int err = read_table(load, client, shard, before);
    const uint64_t at = connection->at;
    err = err != 0 ? err : sl_bench_load_ask(load, sl_bench_load_check, shard, CHECK_TIMEOUT_NS);
    if (err == 0) {
        connection->at = at;
        err = read_table(load, client, shard, after);
    }
    if (err != 0) {
        return err;
    }
    if (pushes == is_same(before, after, count)) {
        return corrupt(shard, pushes ? "a push has changed nothing" : "a pull has changed rows");
    }
    const bool is_f32 = load->options.returned == SL_PRECISION_F32;
    if (pulls && !(is_f32 ? is_same(load->captured, after, count)
                          : is_close(load, after, (const uint8_t *)load->captured))) {
        return corrupt(shard, "the rows of a reply are not what the client library reads");
    }
    return 0;
}

int sl_bench_load_verify(struct sl_bench_load *load, struct sl_client *client)
{
    const uint32_t columns =
        load->options.table.kind == SL_TABLE_DENSE ? 1 : load->options.table.dim;
    const size_t count = (size_t)load->options.keys * columns;
    float *before = malloc(count * sizeof *before);
    float *after = malloc(count * sizeof *after);
    int err = before == NULL || after == NULL ? SL_ERR_NO_MEMORY : 0;
    for (uint32_t shard = 0; err == 0 && shard < load->shard_count; shard++) {
        err = verify_shard(load, client, shard, before, after);
    }
    free(before);
    free(after);
    return err;
}
