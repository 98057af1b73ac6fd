#include "bench/table_reads.h"

#include <stdlib.h>

#include "bench/fork.h"
#include "bench/now.h"
#include "bench/workload.h"
#include "core/log.h"
#include "ps/table/sparse_table.h"

#define KEYS_DRAWN      ((uint32_t)1 << 20)
#define REQUESTS_A_LOOK 16 /* at the clock */

struct sl_bench_table_reads {
    struct sl_sparse_table *store;
    uint32_t request_keys, drawn, at;
    uint64_t *keys;    /* [drawn] */
    uint32_t *records; /* [request_keys] */
    float *rows;       /* [request_keys][dim] */
};

static int fill(struct sl_bench_table_reads *reads, uint64_t rows)
{
    struct sl_bench_workload workload;
    sl_bench_workload_init(&workload, SL_BENCH_UNIFORM, rows, 0, 1);
    for (uint32_t i = 0; i < reads->drawn; i++) {
        reads->keys[i] = sl_bench_workload_next(&workload);
    }
    int err = 0;
    for (uint64_t rank = 0; err == 0 && rank < rows; rank++) {
        const uint64_t key = sl_bench_workload_key(rank);
        err = sl_sparse_table_find_or_create(reads->store, &key, 1, reads->records);
    }
    return err;
}

int sl_bench_table_reads_create(uint64_t rows, uint32_t dim, uint32_t keys_of_request,
                                struct sl_bench_table_reads **out)
{
    const struct sl_table_spec spec = {
        .name = "reads",
        .kind = SL_TABLE_SPARSE,
        .dim = dim,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -0.1F, .high = 0.1F},
    };
    struct sl_bench_table_reads *reads = calloc(1, sizeof *reads);
    int err = reads == NULL ? SL_ERR_NO_MEMORY : 0;
    if (err == 0) {
        reads->request_keys = keys_of_request;
        reads->drawn = KEYS_DRAWN / keys_of_request * keys_of_request;
        reads->keys = malloc(reads->drawn * sizeof *reads->keys);
        reads->records = malloc(keys_of_request * sizeof *reads->records);
        reads->rows = malloc((size_t)keys_of_request * dim * sizeof *reads->rows);
        const bool there = reads->keys != NULL && reads->records != NULL && reads->rows != NULL;
        err = there ? sl_sparse_table_create(&spec, 0, &reads->store) : SL_ERR_NO_MEMORY;
    }
    err = err != 0 ? err : fill(reads, rows);
    if (err != 0) {
        sl_log_error("no memory for a table of %llu rows", (unsigned long long)rows);
        sl_bench_table_reads_destroy(&reads);
        return err;
    }
    *out = reads;
    return 0;
}

void sl_bench_table_reads_destroy(struct sl_bench_table_reads **reads)
{
    if (*reads != NULL) {
        sl_sparse_table_destroy(&(*reads)->store);
        free((*reads)->keys);
        free((*reads)->records);
        free((*reads)->rows);
        free(*reads);
        *reads = NULL;
    }
}

static void read_requests(struct sl_bench_table_reads *reads, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_sparse_table_find(reads->store, reads->keys + reads->at, reads->request_keys,
                             reads->records);
        sl_sparse_table_gather(reads->store, reads->records, reads->request_keys, reads->rows);
        reads->at = (reads->at + reads->request_keys) % reads->drawn;
    }
}

/* Returns how many requests were read until then; *now_ns is when that was. */
static uint64_t read_until(struct sl_bench_table_reads *reads, uint64_t end_ns, uint64_t *now_ns)
{
    uint64_t requests = 0;
    do {
        read_requests(reads, REQUESTS_A_LOOK);
        requests += REQUESTS_A_LOOK;
        *now_ns = sl_bench_now_ns();
    } while (*now_ns < end_ns);
    return requests;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_table_reads *reads = ctx;
    cpu_set_t before;
    uint64_t begun_ns, ended_ns;
    const int err = sl_bench_pin_begin(common->server_core, &before);
    if (err != 0) {
        return err;
    }
    begun_ns = sl_bench_now_ns();
    (void)read_until(reads, begun_ns + sl_bench_ns(common->warm_up), &begun_ns);
    const uint64_t requests = read_until(reads, begun_ns + sl_bench_ns(common->seconds), &ended_ns);
    sl_bench_pin_end(&before);
    values[0] = (double)(requests * reads->request_keys) * SL_CLOCK_NS_PER_S /
                (double)(ended_ns - begun_ns);
    return 0;
}

struct sl_bench_contestant sl_bench_table_reads_contestant(const char *name,
                                                           struct sl_bench_table_reads *reads)
{
    static const struct sl_bench_quantity keys = {"keys", "1/s"};
    return (struct sl_bench_contestant){
        .name = name, .quantities = &keys, .quantity_count = 1, .run = run, .ctx = reads};
}
