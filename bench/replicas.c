/* The load `replicas`: pushes of a client that serves its own connections, one at a time or some in
 * flight. A push of rows goes to all servers, and ends when all have acknowledged it. */
#include <starling.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "bench/workload.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/metric.h"

#define TIMEOUT_MS 60000
#define DEPTH_MAX  128
#define KEYS_MAX   8192
#define FILL_KEYS  1000

/* A push in flight. */
struct flight {
    struct sl_step *step;
    uint64_t from_ns;
};

struct pusher {
    struct sl_bench_common common;
    const char *coordinator, *congestion;
    uint64_t rows, dim;
    int over;
    struct sl_client *client;
    struct sl_table *table;
    uint64_t *keys;   /* [DEPTH_MAX * KEYS_MAX]: of each push that can be in flight */
    float *gradients; /* [KEYS_MAX * dim] */
    struct flight flights[DEPTH_MAX];
    struct sl_metric_histogram latency; /* of the turn */
};

enum quantity { PUSHES, ROWS, BYTES, P50, P99, QUANTITIES };

static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [PUSHES] = {"pushes", "1/s"}, [ROWS] = {"rows", "1/s"}, [BYTES] = {"bytes", "B/s"},
    [P50] = {"p50", "us"},        [P99] = {"p99", "us"},
};

/* ---- Pushes ---------------------------------------------------------------------------------- */

static int begin_push(struct pusher *pusher, const uint64_t *keys, uint32_t count,
                      struct flight *out)
{
    struct flight flight = {.from_ns = sl_bench_now_ns()};
    int err = sl_step_begin(pusher->client, 0, &flight.step);
    if (err != 0) {
        return err;
    }
    err = sl_step_push(flight.step, pusher->table, keys, count, pusher->gradients);
    err = err != 0 ? err : sl_step_submit(flight.step, TIMEOUT_MS);
    if (err != 0) {
        sl_log_error("a push cannot be sent: %s", sl_err_name(err));
        sl_step_destroy(&flight.step);
        return err;
    }
    *out = flight;
    return 0;
}

static int end_push(struct flight *flight, uint64_t *took_ns)
{
    const int err = sl_step_wait(flight->step);
    *took_ns = sl_bench_now_ns() - flight->from_ns;
    if (err != 0) {
        sl_log_error("a push has failed: %s: %s", sl_err_name(err), sl_step_error(flight->step));
    }
    sl_step_destroy(&flight->step);
    return err;
}

/* The oldest is waited for, and another begun in its place, until the time is over. */
static int push_for(struct pusher *pusher, uint32_t count, uint32_t depth, double seconds,
                    double *took_s)
{
    const uint64_t begun_ns = sl_bench_now_ns();
    const uint64_t until_ns = begun_ns + sl_bench_ns(seconds);
    uint64_t begun = 0, ended = 0, now_ns = begun_ns, took_ns;
    int err = 0;
    sl_metric_init(&pusher->latency);
    while (err == 0 && (now_ns < until_ns || ended < begun)) {
        if (now_ns < until_ns && begun - ended < depth) {
            const uint64_t *keys = pusher->keys + (begun % depth) * count;
            err = begin_push(pusher, keys, count, &pusher->flights[begun % depth]);
            begun += err == 0;
            continue;
        }
        err = end_push(&pusher->flights[ended % depth], &took_ns);
        ended++;
        now_ns = sl_bench_now_ns();
        sl_metric_record(&pusher->latency, took_ns);
    }
    for (; ended < begun; ended++) {
        (void)end_push(&pusher->flights[ended % depth], &took_ns);
    }
    *took_s = sl_bench_seconds(now_ns - begun_ns);
    return err;
}

/* Words of a turn: keys of a push, and pushes in flight. */
static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct pusher *pusher = ctx;
    const char *words = common->words;
    uint64_t keys, depth = 0;
    double took_s;
    int err = sl_bench_turns_number(&words, 1, KEYS_MAX, &keys);
    err = err != 0 ? err : sl_bench_turns_number(&words, 1, DEPTH_MAX, &depth);
    if (err != 0) {
        return err;
    }
    err = push_for(pusher, (uint32_t)keys, (uint32_t)depth, common->warm_up, &took_s);
    if (err == 0) {
        err = push_for(pusher, (uint32_t)keys, (uint32_t)depth, common->seconds, &took_s);
    }
    values[PUSHES] = (double)pusher->latency.count / took_s;
    values[ROWS] = values[PUSHES] * (double)keys;
    values[BYTES] = values[ROWS] * (double)(sizeof(uint64_t) + pusher->dim * sizeof(float));
    values[P50] = (double)sl_metric_quantile(&pusher->latency, 0.5) / 1e3;
    values[P99] = (double)sl_metric_quantile(&pusher->latency, 0.99) / 1e3;
    return err;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int connect_client(struct pusher *pusher)
{
    const struct sl_client_options client = {
        .struct_size = sizeof client,
        .coordinator = pusher->coordinator,
        .task_index = -1,
        .manual_progress = true,
        .disable_shm = pusher->over == SL_BENCH_OVER_TCP,
        .congestion_control = pusher->congestion,
    };
    const struct sl_table_spec spec =
        sl_bench_rows_table("replicas", pusher->dim, SL_OPTIMIZER_ADAGRAD);
    const int err = sl_client_create(&client, &pusher->client);
    return err != 0 ? err : sl_client_table_open(pusher->client, &spec, TIMEOUT_MS, &pusher->table);
}

/* All rows are there before anything is timed. */
static int fill(struct pusher *pusher)
{
    uint64_t keys[FILL_KEYS], took_ns;
    int err = 0;
    for (uint64_t rank = 0; err == 0 && rank < pusher->rows;) {
        uint32_t count = 0;
        while (count < FILL_KEYS && rank < pusher->rows) {
            keys[count++] = sl_bench_workload_key(rank++);
        }
        struct flight flight;
        err = begin_push(pusher, keys, count, &flight);
        err = err != 0 ? err : end_push(&flight, &took_ns);
    }
    return err;
}

/* Keys that are drawn before anything is timed, and gradients that change a row for good. */
static int draw(struct pusher *pusher)
{
    struct sl_bench_workload workload;
    pusher->keys = malloc((size_t)DEPTH_MAX * KEYS_MAX * sizeof *pusher->keys);
    pusher->gradients = malloc(KEYS_MAX * pusher->dim * sizeof *pusher->gradients);
    if (pusher->keys == NULL || pusher->gradients == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_bench_workload_init(&workload, SL_BENCH_UNIFORM, pusher->rows, 1, 1);
    for (uint64_t i = 0; i < (uint64_t)DEPTH_MAX * KEYS_MAX; i++) {
        pusher->keys[i] = sl_bench_workload_next(&workload);
    }
    for (uint64_t i = 0; i < KEYS_MAX * pusher->dim; i++) {
        pusher->gradients[i] = (i % 2 == 0 ? 1.0F : -1.0F) / 64;
    }
    return 0;
}

int sl_bench_replicas_run(int argc, char **argv)
{
    static struct pusher pusher;
    pusher = (struct pusher){.common = sl_bench_common_defaults(), .rows = 100000, .dim = 16};
    const struct sl_cli_option table[] = {
        sl_bench_text("coordinator", &pusher.coordinator, "HOST:PORT", "Of the cluster. Required."),
        sl_bench_number("rows", &pusher.rows, 1, 1e8, "Rows of the table."),
        sl_bench_number("dim", &pusher.dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_over(&pusher.over),
        sl_bench_congestion(&pusher.congestion),
    };
    const int parsed = sl_bench_parse_load("replicas", table, sizeof table / sizeof table[0],
                                           &pusher.common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    int err = sl_bench_pin_thread(pusher.common.client_core);
    err = err != 0 ? err : draw(&pusher);
    err = err != 0 ? err : connect_client(&pusher);
    err = err != 0 ? err : fill(&pusher);
    int status = err == 0 ? 0 : 1;
    if (err == 0) {
        const struct sl_bench_turns turns = {
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &pusher};
        status = sl_bench_turns_serve(&turns, &pusher.common);
    }
    if (pusher.client != NULL) {
        sl_client_destroy(&pusher.client);
    }
    free(pusher.keys);
    free(pusher.gradients);
    return status;
}
