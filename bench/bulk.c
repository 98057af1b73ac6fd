/* The load `bulk`: dense pulls or pushes of one size over one connection, by the client library,
 * some steps of one table in flight at once, from one thread. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "core/arena_pages.h"
#include "core/assert.h"
#include "core/log.h"

#define BYTES_MAX       ((uint64_t)256 << 20)
#define DEPTH_MAX       16
#define STEP_TIMEOUT_MS 60000

struct bulk {
    struct sl_bench_common common;
    const char *coordinator, *congestion;
    uint64_t depth;
    int optimizer, over, encoding; /* the last: sl_precision, both ways */
    bool polling;
    float *memory; /* [depth][bytes / 4] of the longest turn so far, in huge pages */
    size_t memory_bytes;
};

/* A turn: it connects, runs, measures and disconnects. */
struct flow {
    const struct bulk *bulk;
    uint64_t bytes; /* of a step, a multiple of 4 */
    enum way { PULL, PUSH, KV } way;
    struct sl_client *client;
    struct sl_table *table;
    struct sl_step *steps[DEPTH_MAX];
    uint64_t sent, done;
};

/* ---- Steps ----------------------------------------------------------------------------------- */

static int send_one(struct flow *flow)
{
    const uint32_t place = (uint32_t)(flow->sent % flow->bulk->depth);
    const uint64_t count = flow->bytes / sizeof(float);
    float *values = flow->bulk->memory + place * count;
    struct sl_step *step;
    int err = sl_step_begin(flow->client, 0, &step);
    if (err != 0) {
        return err;
    }
    const struct sl_kv_batch batch = {.keys = &(uint64_t){0},
                                      .key_count = 1,
                                      .value_count = count,
                                      .push = values,
                                      .pull = values};
    err = flow->way == KV     ? sl_step_kv(step, flow->table, &batch)
          : flow->way == PUSH ? sl_step_dense_push(step, flow->table, 0, count, values)
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
    struct sl_step **step = &flow->steps[flow->done % flow->bulk->depth];
    int err = sl_step_wait(*step);
    if (err != 0) {
        sl_log_error("a step of %llu bytes: %s", (unsigned long long)flow->bytes,
                     sl_step_error(*step));
    }
    sl_step_destroy(step);
    flow->done++;
    return err;
}

/* Keeps `depth` steps in flight until `until_ns`. */
static int keep_going(struct flow *flow, uint64_t until_ns)
{
    int err = 0;
    do {
        while (err == 0 && flow->sent - flow->done < flow->bulk->depth) {
            err = send_one(flow);
        }
        err = err != 0 ? err : finish_one(flow);
    } while (err == 0 && sl_bench_now_ns() < until_ns);
    return err;
}

enum { BYTES, CLIENT_CORE, SECONDS, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [BYTES] = {"bytes", "1/s"},
    [CLIENT_CORE] = {"client's core", ""},
    [SECONDS] = {"seconds", "s"}};

static int measure(struct flow *flow, const struct sl_bench_common *common, double *values)
{
    int err = keep_going(flow, sl_bench_now_ns() + sl_bench_ns(common->warm_up));
    const uint64_t begin_ns = sl_bench_now_ns();
    const uint64_t done_before = flow->done;
    const uint64_t cpu_before_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    err = err != 0 ? err : keep_going(flow, begin_ns + sl_bench_ns(common->seconds));
    const double seconds = sl_bench_seconds(sl_bench_now_ns() - begin_ns);
    const uint64_t cpu_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_before_ns;
    values[BYTES] = (double)((flow->done - done_before) * flow->bytes) / seconds;
    values[CLIENT_CORE] = sl_bench_seconds(cpu_ns) / seconds;
    values[SECONDS] = seconds + common->warm_up;
    while (flow->done < flow->sent) {
        int one = finish_one(flow);
        err = err != 0 ? err : one;
    }
    return err;
}

/* ---- A turn ---------------------------------------------------------------------------------- */

static int connect_flow(struct flow *flow)
{
    const struct bulk *bulk = flow->bulk;
    const struct sl_client_options options = {
        .struct_size = sizeof options,
        .coordinator = bulk->coordinator,
        .task_index = -1,
        .reactor_count = 1,
        .polling = bulk->polling,
        .protocol = SL_PROTOCOL_BATCHED,
        .congestion_control = bulk->congestion,
        .disable_shm = bulk->over == SL_BENCH_OVER_TCP,
    };
    struct sl_table_spec spec = {
        .struct_size = sizeof spec,
        .kind = flow->way == KV ? SL_TABLE_KV : SL_TABLE_DENSE,
        .dim = flow->way == KV ? sizeof(float) : 0,
        .length = flow->way == KV ? 0 : flow->bytes / sizeof(float),
        .optimizer = sl_optimizer_defaults(
            flow->way == KV ? SL_OPTIMIZER_SUM : (enum sl_optimizer_kind)bulk->optimizer),
    };
    const enum sl_precision encoding = (enum sl_precision)bulk->encoding;
    const struct sl_encoding_options sent = {
        .struct_size = sizeof sent, .pull = encoding, .push = encoding};
    (void)snprintf(spec.name, sizeof spec.name, "%s/%llu", flow->way == KV ? "kv" : "bulk",
                   (unsigned long long)flow->bytes);
    int err = sl_client_create(&options, &flow->client);
    err = err != 0 ? err : sl_client_table_open(flow->client, &spec, STEP_TIMEOUT_MS, &flow->table);
    return err != 0 || encoding == SL_PRECISION_F32 ? err
                                                    : sl_table_set_encoding(flow->table, &sent);
}

static int make_memory(struct bulk *bulk, uint64_t bytes)
{
    const size_t page = SL_ARENA_HUGE_PAGE_BYTES;
    const size_t needed = (bulk->depth * bytes + page - 1) / page * page;
    if (needed > bulk->memory_bytes) {
        if (bulk->memory != NULL) {
            sl_arena_pages_unmap(bulk->memory, bulk->memory_bytes);
        }
        bulk->memory = sl_arena_pages_map(needed, true);
        bulk->memory_bytes = bulk->memory == NULL ? 0 : needed;
        if (bulk->memory == NULL) {
            sl_log_error("no memory for %zu bytes", needed);
            return SL_ERR_NO_MEMORY;
        }
        memset(bulk->memory, 0, needed);
    }
    return 0;
}

/* Words of a turn: pull, push or kv (push_pull of one array), and bytes of a step. */
static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct bulk *bulk = ctx;
    const char *words = common->words;
    struct flow flow = {.bulk = bulk};
    cpu_set_t before;
    int err = 0;
    if (sl_bench_turns_word(&words, "kv")) {
        flow.way = KV;
    } else if (sl_bench_turns_word(&words, "push")) {
        flow.way = PUSH;
    } else {
        err = sl_bench_turns_word(&words, "pull") ? 0 : SL_ERR_INVALID;
    }
    err = err != 0 ? err : sl_bench_turns_number(&words, sizeof(float), BYTES_MAX, &flow.bytes);
    err = err != 0 ? err : make_memory(bulk, flow.bytes);
    if (err != 0) {
        return err;
    }
    err = sl_bench_pin_begin(common->client_core, &before);
    err = err != 0 ? err : connect_flow(&flow);
    err = err != 0 ? err : measure(&flow, common, values);
    if (flow.client != NULL) {
        sl_client_destroy(&flow.client);
    }
    sl_bench_pin_end(&before);
    return err;
}

int sl_bench_bulk_run(int argc, char **argv)
{
    static struct bulk bulk;
    bulk = (struct bulk){
        .common = sl_bench_common_defaults(), .depth = 4, .optimizer = SL_OPTIMIZER_SUM};
    const struct sl_cli_option own[] = {
        sl_bench_text("coordinator", &bulk.coordinator, "HOST:PORT", "Of the cluster. Required."),
        sl_bench_number("depth", &bulk.depth, 1, DEPTH_MAX, "Steps in flight."),
        sl_bench_choice("optimizer", &bulk.optimizer, "sum|sgd", "Of the tables."),
        sl_bench_choice("encoding", &bulk.encoding, "f32|f16|bf16", "What travels."),
        sl_bench_over(&bulk.over),
        SL_CLI_OPTION(BOOL, &bulk.polling, .name = "polling", .help = "The client spins."),
        sl_bench_congestion(&bulk.congestion),
    };
    const int parsed =
        sl_bench_parse_load("bulk", own, sizeof own / sizeof own[0], &bulk.common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    const int status = sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &bulk},
        &bulk.common);
    if (bulk.memory != NULL) {
        sl_arena_pages_unmap(bulk.memory, bulk.memory_bytes);
    }
    return status;
}
