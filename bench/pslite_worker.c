#include "bench/pslite_worker.h"

#include <starling_kv.h>
#include <stdio.h>
#include <string.h>

#include "bench/now.h"
#include "bench/pslite_arrays.h"
#include "core/log.h"

#define NS_PER_MS  ((double)SL_CLOCK_NS_PER_MS)
#define TABLE_NAME "pslite"

static double now_ns(void)
{
    return (double)sl_bench_now_ns();
}

void sl_bench_pslite_worker_note(struct sl_bench_pslite_found *found, double goodput, double key_us)
{
    if (found->report_count == SL_BENCH_PSLITE_REPORTS_MAX) {
        const size_t bytes = (SL_BENCH_PSLITE_REPORTS_MAX - 1) * sizeof(double);
        memmove(found->goodput, found->goodput + 1, bytes);
        memmove(found->key_us, found->key_us + 1, bytes);
        found->report_count--;
    }
    found->goodput[found->report_count] = goodput;
    found->key_us[found->report_count++] = key_us;
}

/* Bits of one direction in a nanosecond are Gb/s. */
static double goodput_of(const struct sl_bench_pslite_arrays *arrays, uint64_t rounds, double ns)
{
    return 8.0 * (double)arrays->len * arrays->key_count * (double)rounds / ns;
}

/* ---- Modes ----------------------------------------------------------------------------------- */

static void report(const struct sl_bench_pslite_arrays *arrays, uint64_t rounds, uint64_t done,
                   double ns, struct sl_bench_pslite_found *found)
{
    const double goodput = goodput_of(arrays, rounds, ns);
    const double key_us = ns / 1e3 / (double)rounds / arrays->key_count;
    sl_bench_pslite_worker_note(found, goodput, key_us);
    (void)printf("worker %u: goodput %.3f Gb/s, %.3f us per key, %llu rounds done\n", found->rank,
                 goodput, key_us, (unsigned long long)done);
    (void)fflush(stdout);
}

/* Modes 1 to 3. Rounds behind the last whole interval are reported when they are all. */
static int measure_rounds(const struct sl_bench_pslite_load *load,
                          struct sl_bench_pslite_arrays *arrays,
                          struct sl_bench_pslite_found *found)
{
    const uint32_t rounds = sl_bench_pslite_options_rounds(load);
    double interval_ns = now_ns();
    uint32_t of_interval = 0;
    int err = 0;
    for (uint32_t done = 1; err == 0 && done <= rounds; done++) {
        err = sl_bench_pslite_arrays_round(arrays, load->mode);
        of_interval++;
        if (err == 0 && (of_interval == load->log_rounds || done == rounds)) {
            const double end_ns = now_ns();
            report(arrays, of_interval, done, end_ns - interval_ns, found);
            of_interval = 0;
            interval_ns = now_ns();
        }
    }
    return err;
}

/* One way of mode 0. */
static int measure_blocking(const struct sl_bench_pslite_load *load,
                            struct sl_bench_pslite_arrays *arrays, enum sl_bench_pslite_mode mode,
                            uint32_t rank, double *total_ms)
{
    double total_ns = 0;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < load->repeat; i++) {
        const double begin_ns = now_ns();
        err = sl_bench_pslite_arrays_blocking(arrays, mode);
        total_ns += now_ns() - begin_ns;
    }
    if (err == 0) {
        *total_ms = total_ns / NS_PER_MS;
        (void)printf("worker %u: %s %llu bytes to each server, repeat=%u, total_time=%.3f ms, "
                     "%.3f us per key\n",
                     rank, sl_bench_pslite_mode_name(mode), (unsigned long long)load->len,
                     load->repeat, *total_ms, total_ns / 1e3 / load->repeat / arrays->server_count);
    }
    return err;
}

static int measure(const struct sl_bench_pslite_load *load, struct sl_bench_pslite_arrays *arrays,
                   struct sl_bench_pslite_found *found)
{
    if (load->mode != SL_BENCH_PSLITE_PUSH_THEN_PULL) {
        return measure_rounds(load, arrays, found);
    }
    const int err =
        measure_blocking(load, arrays, SL_BENCH_PSLITE_PUSH, found->rank, &found->push_ms);
    return err != 0
               ? err
               : measure_blocking(load, arrays, SL_BENCH_PSLITE_PULL, found->rank, &found->pull_ms);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int measure_kv(const struct sl_bench_pslite_load *load, struct sl_kv *kv, void *memory,
                      struct sl_bench_pslite_found *found)
{
    const uint32_t servers = sl_kv_server_count(kv);
    struct sl_bench_pslite_arrays arrays = {0};
    found->rank = sl_kv_rank(kv);
    found->key_count =
        load->mode == SL_BENCH_PSLITE_PUSH_THEN_PULL ? servers : servers * load->keys_per_server;
    int err = sl_bench_pslite_arrays_init(&arrays, kv, load, 0, memory);
    err = err != 0 ? err : sl_bench_pslite_arrays_first(&arrays);
    err = err != 0 ? err : measure(load, &arrays, found);
    sl_bench_pslite_arrays_fini(&arrays);
    return err;
}

int sl_bench_pslite_worker_run(const struct sl_bench_pslite_worker *worker,
                               struct sl_bench_pslite_found *found)
{
    const struct sl_bench_pslite_load *load = worker->load;
    struct sl_kv *kv;
    void *memory;
    int err =
        sl_bench_pslite_arrays_join(TABLE_NAME, load, load->len, worker->driven, &kv, &memory);
    err = err != 0 ? err : measure_kv(load, kv, memory, found);
    sl_bench_pslite_arrays_leave(&kv, &memory);
    if (err != 0) {
        sl_log_error("worker: %s", sl_err_name(err));
    }
    return err == 0 ? 0 : 1;
}
