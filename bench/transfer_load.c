/* The load `transfer`: an initiator, with the flags of starling-bench transfer, that moves blocks
 * as each turn says. */
#include <time.h>

#include "bench/bench.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/transfer.h"
#include "bench/turns.h"

#define BUFFER_BYTES (128ULL << 20)
#define WARM_UP_MIN  0.01

enum { BYTES, CORE, SECONDS, P50, P99, WRITES, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [BYTES] = {"bytes", "1/s"}, [CORE] = {"client's core", ""}, [SECONDS] = {"seconds", "s"},
    [P50] = {"p50", "s"},       [P99] = {"p99", "s"},           [WRITES] = {"WRITEs", "1/s"}};

static int initiate(struct sl_bench_transfer_options *options,
                    struct sl_bench_transfer_engine *engine, const struct sl_bench_common *common,
                    double *values)
{
    struct sl_bench_transfer_moved moved;
    const double warm_up = common->warm_up > 0 ? common->warm_up : WARM_UP_MIN;
    options->duration = warm_up;
    int err = sl_bench_transfer_initiate(engine, options, options->segment_id, false, &moved);
    options->duration = common->seconds;
    const uint64_t cpu_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    err = err != 0
              ? err
              : sl_bench_transfer_initiate(engine, options, options->segment_id, false, &moved);
    if (err == 0) {
        values[BYTES] = (double)moved.bytes / moved.seconds;
        values[CORE] =
            sl_bench_seconds(sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns) / moved.seconds;
        values[SECONDS] = warm_up + moved.seconds;
        values[P50] = sl_bench_seconds(sl_metric_quantile(&moved.latency, 0.5));
        values[P99] = sl_bench_seconds(sl_metric_quantile(&moved.latency, 0.99));
        values[WRITES] = (double)moved.bulk_bytes / moved.seconds;
    }
    return err;
}

/* Words of a turn: READ or WRITE, bytes of a block, blocks of a batch, threads; and "beside" if one
 * more thread writes blocks of 16 MB meanwhile. */
static int read_words(struct sl_bench_transfer_options *options, const char *words)
{
    options->operation = sl_bench_turns_word(&words, "READ") ? SL_TRANSFER_READ : SL_TRANSFER_WRITE;
    int err = options->operation == SL_TRANSFER_WRITE && !sl_bench_turns_word(&words, "WRITE")
                  ? SL_ERR_INVALID
                  : 0;
    err = err != 0 ? err : sl_bench_turns_number(&words, 1, BUFFER_BYTES, &options->block_size);
    err = err != 0 ? err : sl_bench_turns_number(&words, 1, 65536, &options->batch_size);
    err = err != 0 ? err : sl_bench_turns_number(&words, 1, 256, &options->threads);
    options->has_bulk = err == 0 && sl_bench_turns_word(&words, "beside");
    return err;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_transfer_options *options = ctx;
    struct sl_bench_transfer_engine engine;
    cpu_set_t before;
    int err = read_words(options, common->words);
    err = err != 0 ? err : sl_bench_pin_begin(common->client_core, &before);
    if (err == 0) {
        err = sl_bench_transfer_engine_open(&engine, options, BUFFER_BYTES);
        err = err != 0 ? err : initiate(options, &engine, common, values);
        sl_bench_transfer_engine_close(&engine);
        sl_bench_pin_end(&before);
    }
    return err;
}

int sl_bench_transfer_load_run(int argc, char **argv)
{
    static struct sl_bench_transfer_options options;
    const int parsed = sl_bench_transfer_options_parse(&options, argc, argv);
    int status = parsed < 0 ? 2 : 0;
    if (parsed == SL_CLI_RUN) {
        status = sl_bench_turns_serve(&(struct sl_bench_turns){.quantities = quantities,
                                                               .quantity_count = QUANTITIES,
                                                               .run = run,
                                                               .ctx = &options},
                                      &options.common);
    }
    sl_bench_transfer_options_fini(&options);
    return status;
}
