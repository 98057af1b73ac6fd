/* The load `reads`: rows of one table in this process, found by their keys and copied out a
 * request's worth at a time: what a server does with a pull, without the network. */
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "bench/workload.h"
#include "core/limits.h"
#include "core/log.h"
#include "ps/table/sparse_table.h"

#define KEYS_DRAWN      ((uint32_t)1 << 20)
#define REQUESTS_A_LOOK 16 /* at the clock */

struct reads {
    struct sl_sparse_table *store;
    uint32_t request_keys, drawn, at;
    uint64_t *keys;    /* [drawn] */
    uint32_t *records; /* [request_keys] */
    float *rows;       /* [request_keys][dim] */
};

static int fill(struct reads *reads, uint64_t rows)
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

static int reads_init(struct reads *reads, uint64_t rows, uint32_t dim)
{
    const struct sl_table_spec spec = sl_bench_rows_table("reads", dim, SL_OPTIMIZER_ADAGRAD);
    reads->drawn = KEYS_DRAWN / reads->request_keys * reads->request_keys;
    reads->keys = malloc(reads->drawn * sizeof *reads->keys);
    reads->records = malloc(reads->request_keys * sizeof *reads->records);
    reads->rows = malloc((size_t)reads->request_keys * dim * sizeof *reads->rows);
    const bool there = reads->keys != NULL && reads->records != NULL && reads->rows != NULL;
    int err = there ? sl_sparse_table_create(&spec, 0, &reads->store) : SL_ERR_NO_MEMORY;
    err = err != 0 ? err : fill(reads, rows);
    if (err != 0) {
        sl_log_error("no memory for a table of %llu rows", (unsigned long long)rows);
    }
    return err;
}

static void reads_fini(struct reads *reads)
{
    sl_sparse_table_destroy(&reads->store);
    free(reads->keys);
    free(reads->records);
    free(reads->rows);
}

static void read_requests(struct reads *reads, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_sparse_table_find(reads->store, reads->keys + reads->at, reads->request_keys,
                             reads->records);
        sl_sparse_table_gather(reads->store, reads->records, reads->request_keys, SL_PRECISION_F32,
                               reads->rows);
        reads->at = (reads->at + reads->request_keys) % reads->drawn;
    }
}

/* Returns how many requests were read until then; *now_ns is when that was. */
static uint64_t read_until(struct reads *reads, uint64_t end_ns, uint64_t *now_ns)
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
    struct reads *reads = ctx;
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

int sl_bench_reads_run(int argc, char **argv)
{
    static const struct sl_bench_quantity quantity = {"keys", "1/s"};
    struct sl_bench_common common = sl_bench_common_defaults();
    uint64_t rows = 1000000, dim = 16, keys = 100;
    const struct sl_cli_option own[] = {
        sl_bench_number("rows", &rows, 1, 1e8, "Rows of the table."),
        sl_bench_number("dim", &dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("keys", &keys, 1, KEYS_DRAWN, "Of one request."),
    };
    const int parsed =
        sl_bench_parse_load("reads", own, sizeof own / sizeof own[0], &common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct reads reads = {.request_keys = (uint32_t)keys};
    int status = reads_init(&reads, rows, (uint32_t)dim) == 0 ? 0 : 1;
    if (status == 0) {
        const struct sl_bench_turns turns = {
            .quantities = &quantity, .quantity_count = 1, .run = run, .ctx = &reads};
        status = sl_bench_turns_serve(&turns, &common);
    }
    reads_fini(&reads);
    return status;
}
