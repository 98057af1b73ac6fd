/* The load `checkpoints`: a client that asks for checkpoints, changes the rows that they hold, and
 * looks for what was restored. */
#include <starling.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "bench/workload.h"
#include "core/limits.h"
#include "core/log.h"

#define TIMEOUT_MS    60000
#define PUSH_KEYS     8192
#define ADDRESS_BYTES 64

struct load {
    struct sl_bench_common common;
    uint64_t dim;
    char address[ADDRESS_BYTES]; /* of the client; "": none */
    struct sl_client *client;
    struct sl_table *table;
};

enum { COUNT, TIME, NUMBER, VALUE, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {[COUNT] = {"checkpoints", ""},
                                                                [TIME] = {"time", "s"},
                                                                [NUMBER] = {"number", ""},
                                                                [VALUE] = {"value", ""}};

/* ---- The client ------------------------------------------------------------------------------ */

static void disconnect(struct load *load)
{
    if (load->client != NULL) {
        sl_client_destroy(&load->client);
    }
    load->address[0] = '\0';
}

static int connect_client(struct load *load)
{
    const struct sl_client_options options = {
        .struct_size = sizeof options, .coordinator = load->address, .task_index = -1};
    char name[32];
    (void)snprintf(name, sizeof name, "bench-%u-%d", (unsigned)load->dim, SL_OPTIMIZER_ADAGRAD);
    const struct sl_table_spec spec = sl_bench_rows_table(name, load->dim, SL_OPTIMIZER_ADAGRAD);
    const int err = sl_client_create(&options, &load->client);
    return err != 0 ? err : sl_client_table_open(load->client, &spec, TIMEOUT_MS, &load->table);
}

/* Takes the word HOST:PORT of a turn: one client is kept. */
static int client_of(struct load *load, const char **words)
{
    char address[ADDRESS_BYTES];
    int used = 0;
    if (sscanf(*words, "%63s%n", address, &used) != 1) {
        return SL_ERR_INVALID;
    }
    *words += used;
    if (strcmp(address, load->address) == 0) {
        return 0;
    }
    disconnect(load);
    memcpy(load->address, address, sizeof address);
    return connect_client(load);
}

/* ---- Requests of the driver ------------------------------------------------------------------ */

static int ask(struct load *load, double *values)
{
    uint64_t number;
    const uint64_t from_ns = sl_bench_now_ns();
    const int err = sl_client_checkpoint(load->client, TIMEOUT_MS, &number);
    if (err != 0) {
        sl_log_error("no checkpoint is made: %s", sl_err_name(err));
        return err;
    }
    values[NUMBER] = (double)number;
    values[TIME] = sl_bench_seconds(sl_bench_now_ns() - from_ns);
    return 0;
}

/* One after the other until the time is over; of all of them the mean time. */
static int ask_again(struct load *load, double seconds, double *values)
{
    const uint64_t until_ns = sl_bench_now_ns() + sl_bench_ns(seconds);
    double sum = 0, count = 0;
    int err = 0;
    while (err == 0 && sl_bench_now_ns() < until_ns) {
        err = ask(load, values);
        sum += values[TIME];
        count++;
    }
    values[TIME] = sum / count;
    values[COUNT] = count;
    return err;
}

/* In [-0.1, 0.1), with as many different last digits as training makes. */
static float next_gradient(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return ((float)(*state >> 40) / (float)(1 << 24) - 0.5F) * 0.2F;
}

/* A push to each of the rows of the first `count` ranks. */
static int push_rows(const struct load *load, uint64_t count)
{
    const size_t dim = load->dim;
    uint64_t state = count;
    uint64_t *keys = malloc(PUSH_KEYS * sizeof *keys);
    float *gradients = malloc(PUSH_KEYS * dim * sizeof *gradients);
    int err = keys == NULL || gradients == NULL ? SL_ERR_NO_MEMORY : 0;
    for (uint64_t rank = 0; err == 0 && rank < count;) {
        uint32_t some = 0;
        while (some < PUSH_KEYS && rank < count) {
            keys[some++] = sl_bench_workload_key(rank++);
        }
        for (size_t i = 0; i < some * dim; i++) {
            gradients[i] = next_gradient(&state);
        }
        err = sl_client_push(load->client, load->table, keys, some, gradients, TIMEOUT_MS);
    }
    free(keys);
    free(gradients);
    return err;
}

/* The first value of a row that each push changes. */
static int read_value(const struct load *load, double *value)
{
    const uint64_t key = sl_bench_workload_key(0);
    float row[SL_LIMIT_DIM];
    const int err = sl_client_pull(load->client, load->table, &key, 1, row, TIMEOUT_MS);
    *value = (double)row[0];
    return err;
}

/* Words of a turn: HOST:PORT, and "beside", "one", "push COUNT" or "value". */
static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct load *load = ctx;
    const char *words = common->words;
    uint64_t count;
    int err = client_of(load, &words);
    if (err != 0) {
        return err;
    }
    if (sl_bench_turns_word(&words, "beside")) {
        return ask_again(load, common->warm_up + common->seconds, values);
    }
    if (sl_bench_turns_word(&words, "one")) {
        return ask(load, values);
    }
    if (sl_bench_turns_word(&words, "value")) {
        return read_value(load, &values[VALUE]);
    }
    err = sl_bench_turns_word(&words, "push") ? 0 : SL_ERR_INVALID;
    err = err != 0 ? err : sl_bench_turns_number(&words, 1, UINT64_MAX, &count);
    return err != 0 ? err : push_rows(load, count);
}

int sl_bench_checkpoints_run(int argc, char **argv)
{
    static struct load load;
    load = (struct load){.common = sl_bench_common_defaults(), .dim = 16};
    const struct sl_cli_option table[] = {
        sl_bench_number("dim", &load.dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
    };
    const int parsed = sl_bench_parse_load("checkpoints", table, sizeof table / sizeof table[0],
                                           &load.common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    const int status = sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &load},
        &load.common);
    disconnect(&load);
    return status;
}
