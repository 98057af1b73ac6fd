#include "bench/bulk_transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/now.h"
#include "bench/pin.h"
#include "core/assert.h"
#include "core/log.h"

#define STEP_TIMEOUT_MS 60000
#define PAGE_BYTES      ((uint64_t)2 << 20)

/* ---- Memory ---------------------------------------------------------------------------------- */

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

float *sl_bench_bulk_memory(uint64_t bytes)
{
    float *memory = aligned_alloc(PAGE_BYTES, whole_pages(bytes));
    if (memory != NULL) {
        (void)madvise(memory, whole_pages(bytes), MADV_HUGEPAGE);
        memset(memory, 0, bytes);
    }
    return memory;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

struct flow {
    const struct sl_bench_bulk_transfer *transfer;
    struct sl_client *client;
    struct sl_table *table;
    struct sl_step *steps[SL_BENCH_BULK_DEPTH_MAX];
    uint64_t sent, done;
};

static int send_one(struct flow *flow)
{
    const struct sl_bench_bulk_transfer *transfer = flow->transfer;
    const uint32_t place = (uint32_t)(flow->sent % transfer->depth);
    const uint64_t count = transfer->bytes / sizeof(float);
    float *values = transfer->memory + place * count;
    struct sl_step *step;
    int err = sl_step_begin(flow->client, 0, &step);
    if (err != 0) {
        return err;
    }
    err = transfer->push ? sl_step_dense_push(step, flow->table, 0, count, values)
                         : sl_step_dense_pull(step, flow->table, 0, count, values);
    err = err != 0 ? err : sl_step_submit(step, STEP_TIMEOUT_MS);
    if (err != 0) {
        sl_step_destroy(&step);
        return err;
    }
    flow->steps[place] = step;
    flow->sent++;
    return 0;
}

static int finish_one(struct flow *flow)
{
    struct sl_step **step = &flow->steps[flow->done % flow->transfer->depth];
    int err = sl_step_wait(*step);
    if (err != 0) {
        sl_log_error("a step of %llu bytes: %s", (unsigned long long)flow->transfer->bytes,
                     sl_step_error(*step));
    }
    sl_step_destroy(step);
    flow->done++;
    return err;
}

/* Keeps `depth` steps under way until `until_ns`. */
static int keep_going(struct flow *flow, uint64_t until_ns)
{
    int err = 0;
    do {
        while (err == 0 && flow->sent - flow->done < flow->transfer->depth) {
            err = send_one(flow);
        }
        err = err != 0 ? err : finish_one(flow);
    } while (err == 0 && sl_bench_now_ns() < until_ns);
    return err;
}

static int measure(struct flow *flow, double warm_up, double seconds,
                   struct sl_bench_bulk_result *out)
{
    int err = keep_going(flow, sl_bench_now_ns() + sl_bench_ns(warm_up));
    const uint64_t begin_ns = sl_bench_now_ns();
    const uint64_t done_before = flow->done;
    const double cpu_before = sl_bench_seconds(sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID));
    err = err != 0 ? err : keep_going(flow, begin_ns + sl_bench_ns(seconds));
    *out = (struct sl_bench_bulk_result){
        .steps = flow->done - done_before,
        .seconds = sl_bench_seconds(sl_bench_now_ns() - begin_ns),
        .cpu_seconds = sl_bench_seconds(sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID)) - cpu_before,
    };
    while (flow->done < flow->sent) {
        int one = finish_one(flow);
        err = err != 0 ? err : one;
    }
    return err;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int connect_flow(struct flow *flow)
{
    const struct sl_bench_bulk_transfer *transfer = flow->transfer;
    const struct sl_client_options options = {
        .coordinator = transfer->coordinator,
        .task_index = -1,
        .reactor_count = 1,
        .polling = transfer->polling,
        .protocol = SL_PROTOCOL_STAR_SERVER_LITE,
        .congestion_control = transfer->congestion,
        .disable_shm = transfer->no_shm,
    };
    int err = sl_client_create(&options, &flow->client);
    if (err != 0) {
        return err;
    }
    struct sl_table_spec spec = {
        .kind = SL_TABLE_DENSE,
        .length = transfer->bytes / sizeof(float),
        .optimizer = sl_optimizer_defaults(transfer->optimizer),
    };
    (void)snprintf(spec.name, sizeof spec.name, "bulk/%llu", (unsigned long long)transfer->bytes);
    return sl_client_table_open(flow->client, &spec, STEP_TIMEOUT_MS, &flow->table);
}

int sl_bench_bulk_transfer_run(const struct sl_bench_bulk_transfer *transfer, int core,
                               double warm_up, double seconds, struct sl_bench_bulk_result *out)
{
    sl_assert(transfer->depth >= 1);
    sl_assert(transfer->depth <= SL_BENCH_BULK_DEPTH_MAX);
    sl_assert(transfer->bytes % sizeof(float) == 0);
    struct flow flow = {.transfer = transfer};
    cpu_set_t before;
    int err = sl_bench_pin_begin(core, &before);
    err = err != 0 ? err : connect_flow(&flow);
    err = err != 0 ? err : measure(&flow, warm_up, seconds, out);
    if (flow.client != NULL) {
        sl_client_destroy(&flow.client);
    }
    sl_bench_pin_end(&before);
    if (err != 0) {
        sl_log_error("dense transfer: %s", sl_err_name(err));
    }
    return err;
}
