/* The load `ipc`: a job in ps-lite's roles on this machine, a server on its core and workers on
 * another, which push and pull arrays, or pull one row at a time (bench/ipc_workers.h). */
#include <string.h>

#include "bench/bench.h"
#include "bench/ipc_workers.h"
#include "bench/options.h"
#include "bench/turns.h"

#define LEN_MAX SL_BENCH_PSLITE_LEN_MAX

struct ipc {
    struct sl_bench_common common;
    struct sl_bench_ipc_options options;
    struct sl_bench_ipc_workers *workers;
    const char *lens_text;
    uint64_t workers_wanted, keys, repeat;
    int mode, handler, over;
};

enum { KEYS, P50, P99, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [KEYS] = {"keys", "1/s"}, [P50] = {"p50", "us"}, [P99] = {"p99", "us"}};

/* Words of a turn: "trips"; or push-then-pull, push_pull, push or pull, and which of --lens. */
static int read_words(const char *words, struct sl_bench_ipc_turn *turn)
{
    if (sl_bench_turns_word(&words, "trips")) {
        turn->what = SL_BENCH_IPC_ROUND_TRIPS;
        return 0;
    }
    static const char *const modes[] = {"push-then-pull", "push_pull", "push", "pull"};
    uint64_t index = 0;
    for (int mode = 0; mode < SL_BENCH_PSLITE_MODES; mode++) {
        if (sl_bench_turns_word(&words, modes[mode])) {
            const int err = sl_bench_turns_number(&words, 0, SL_BENCH_IPC_LENS_MAX - 1, &index);
            turn->mode = (enum sl_bench_pslite_mode)mode;
            turn->len = (uint32_t)index;
            return err;
        }
    }
    return SL_ERR_INVALID;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct ipc *ipc = ctx;
    struct sl_bench_ipc_result result;
    struct sl_bench_ipc_turn turn = {
        .repeat = (uint32_t)ipc->repeat, .warm_up = common->warm_up, .seconds = common->seconds};
    int err = read_words(common->words, &turn);
    err = err != 0 || turn.len < ipc->options.len_count ? err : SL_ERR_INVALID;
    err = err != 0 ? err : sl_bench_ipc_workers_run(ipc->workers, &turn, &result);
    if (err == 0 && turn.what == SL_BENCH_IPC_ROUNDS) {
        values[KEYS] = result.keys_per_s;
    } else if (err == 0) {
        values[P50] = (double)sl_metric_quantile(&result.latency, 0.5) / 1e3;
        values[P99] = (double)sl_metric_quantile(&result.latency, 0.99) / 1e3;
    }
    return err;
}

static int parse(struct ipc *ipc, int argc, char **argv)
{
    struct sl_bench_ipc_options *o = &ipc->options;
    const struct sl_cli_option own[] = {
        sl_bench_number("workers", &ipc->workers_wanted, 1, SL_BENCH_PSLITE_WORKERS_MAX,
                        "Of one server."),
        sl_bench_text("lens", &ipc->lens_text, "N,...", "Bytes of the array of a key."),
        sl_bench_number("keys", &ipc->keys, 1, SL_BENCH_PSLITE_KEYS_MAX, "In flight."),
        sl_bench_number("repeat", &ipc->repeat, 0, 1e9, "Rounds of a turn; 0: as time allows."),
        sl_bench_choice("handler", &ipc->handler, "keep|sum", "What the server does with pushes."),
        sl_bench_over(&ipc->over),
        sl_bench_text("rdma-address", &o->rdma_address, "IP", "Of the server, for RDMA."),
        sl_bench_text("rdma-device", &o->rdma_device, "NAME", "Without it any."),
        SL_CLI_OPTION(BOOL, &o->server_polls, .name = "server-polls", .help = "It spins."),
        SL_CLI_OPTION(BOOL, &o->workers_poll, .name = "workers-poll", .help = "They spin."),
        sl_bench_congestion(&o->congestion),
    };
    const int parsed =
        sl_bench_parse_load("ipc", own, sizeof own / sizeof own[0], &ipc->common, argc, argv);
    return parsed != SL_CLI_RUN ? parsed
                                : sl_bench_list("load ipc", "lens", ipc->lens_text, 1, LEN_MAX,
                                                o->lens, SL_BENCH_IPC_LENS_MAX, &o->len_count);
}

int sl_bench_ipc_run(int argc, char **argv)
{
    static struct ipc ipc;
    ipc = (struct ipc){
        .common = sl_bench_common_defaults(), .lens_text = "1024", .workers_wanted = 1, .keys = 40};
    const int parsed = parse(&ipc, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct sl_bench_ipc_options *o = &ipc.options;
    o->workers = (uint32_t)ipc.workers_wanted;
    o->no_shm = ipc.over == SL_BENCH_OVER_TCP;
    o->server_core = ipc.common.server_core;
    o->worker_core = ipc.common.client_core;
    o->load = sl_bench_pslite_options_defaults();
    o->load.keys_per_server = (uint32_t)ipc.keys;
    o->load.handler = (enum sl_bench_pslite_handler)ipc.handler;
    int status = sl_bench_ipc_workers_start(o, &ipc.workers) == 0 ? 0 : 1;
    if (status == 0) {
        const struct sl_bench_turns turns = {
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &ipc};
        status = sl_bench_turns_serve(&turns, &ipc.common);
    }
    sl_bench_ipc_workers_stop(&ipc.workers);
    return status;
}
