/* The load `cold`: models that are not in the agent's pool, opened and computed as a worker
 * does, without requests: the time from the open to the answer, under each schedule; and, with
 * --timeline, when bytes arrived and layers were computed. An agent, with a pool that does not hold
 * the model beside those of --evict, runs already. */
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "core/assert.h"
#include "core/clock.h"
#include "programs/serve/worker/version.h"

#define TIMEOUT_MS 60000
#define LEARN      4  /* runs before the first round */
#define POLL_US    50 /* between looks at what has arrived */
#define LOOKS_MAX  4096
#define ROWS_MAX   256
#define FLOPS_US   20000.0 /* until layers were measured */

enum { OPTIMAL, LAYER, BYTES, WHOLE, RULES };

static const struct {
    const char *name;
    enum sl_serve_rule rule;
    uint64_t bytes;
} rules[RULES] = {{"optimal", SL_SERVE_OPTIMAL, 0},
                  {"layer", SL_SERVE_LAYER, 0},
                  {"32768000", SL_SERVE_BYTES, 32768000},
                  {"whole", SL_SERVE_WHOLE, 0}};

struct look {
    double us;
    uint64_t bytes;
};

struct bench {
    const char *agent, *model, *evict, *timeline;
    uint64_t rows, drops;
    struct sl_bench_common common;
    struct sl_objects *objects;
    struct sl_subscription *subscription, *watched;
    struct sl_serve_profile profile;
    struct sl_serve_search search;
    struct sl_serve_item item;
    struct sl_serve_batch batch;
    struct sl_serve_times times;
    uint8_t *scratch;
    uint64_t scratch_bytes;
    float layers[SL_SERVE_LAYERS_MAX], waits[SL_SERVE_LAYERS_MAX];
    /* Of the last cold run. */
    uint32_t stop_count;
    uint64_t stops[SL_SERVE_GROUPS_MAX], began_ns, ran_ns;
    struct look looks[LOOKS_MAX];
    uint32_t look_count;
    json_t *lines;
};

static const struct sl_bench_quantity time_quantity = {"time", "ms"};

static void check(int err, const char *what, const struct sl_reason *reason)
{
    if (err != 0) {
        (void)fprintf(stderr, "load cold: %s: %s\n", what,
                      reason != NULL ? reason->text : sl_objects_last_error());
        exit(1);
    }
}

/* ---- Models ---------------------------------------------------------------------------------- */

/* Opens and closes each model of --evict, so that the other one leaves the pool. */
static void evict(const struct bench *bench)
{
    char names[1024];
    (void)snprintf(names, sizeof names, "%s", bench->evict);
    for (char *rest = names, *name; (name = strsep(&rest, ",")) != NULL;) {
        struct sl_subscription *subscription;
        struct sl_view *view;
        check(sl_subscription_open(bench->objects, name, NULL, TIMEOUT_MS, &subscription), name,
              NULL);
        check(sl_view_open(subscription, NULL, TIMEOUT_MS, &view), name, NULL);
        sl_view_close(&view);
        sl_subscription_close(&subscription);
    }
    if (bench->drops != 0) {
        sync();
        FILE *file = fopen("/proc/sys/vm/drop_caches", "w");
        check(file != NULL && fputs("1", file) >= 0 && fclose(file) == 0 ? 0 : SL_ERR_REFUSED,
              "/proc/sys/vm/drop_caches", &(struct sl_reason){.text = "only root may write it"});
    }
}

static struct sl_serve_version *open_model(struct bench *bench, uint32_t rule)
{
    static const struct sl_engine *const engines[] = {&sl_engine_graph};
    const struct sl_serve_open open = {.objects = bench->objects,
                                       .name = bench->model,
                                       .engines = engines,
                                       .engine_count = 1,
                                       .rows_max = (uint32_t)bench->rows,
                                       .rule = rules[rule].rule,
                                       .rule_bytes = rules[rule].bytes,
                                       .profile = &bench->profile,
                                       .flops_per_us = FLOPS_US,
                                       .rows = (uint32_t)bench->rows,
                                       .search = &bench->search,
                                       .timeout_ms = TIMEOUT_MS};
    struct sl_serve_version *version;
    struct sl_reason reason;
    check(sl_serve_version_open(&open, &bench->subscription, &version, &reason), bench->model,
          &reason);
    return version;
}

/* The first open tells which inputs there are: zeros. */
static void make_request(struct bench *bench, const struct sl_engine_info *info)
{
    struct sl_serve_item *item = &bench->item;
    struct sl_reason reason;
    uint64_t at = 0;
    for (uint32_t i = 0; i < info->input_count; i++) {
        const struct sl_engine_tensor *input = &info->inputs[i];
        struct sl_serve_tensor *to = &item->inputs[item->input_count++];
        (void)snprintf(to->name, sizeof to->name, "%s", input->name);
        to->type = input->type;
        to->rank = input->rank;
        memcpy(to->shape, input->shape, sizeof to->shape);
        to->shape[0] = bench->rows;
        to->offset = at;
        to->bytes = bench->rows * input->row_bytes;
        at += (to->bytes + 63) / 64 * 64;
    }
    item->input = calloc(1, at + 1);
    item->output = malloc(sl_serve_batch_output_bytes(info, (uint32_t)bench->rows) + 1);
    sl_assert(item->input != NULL && item->output != NULL);
    check(sl_serve_batch_check(info, (uint32_t)bench->rows, item, &reason), "--rows", &reason);
    bench->batch =
        (struct sl_serve_batch){.items = {item}, .item_count = 1, .rows = (uint32_t)bench->rows};
    sl_assert(posix_memalign((void **)&bench->scratch, 64, info->scratch_bytes + 1) == 0);
    memset(bench->scratch, 0, info->scratch_bytes);
}

static void run_model(struct bench *bench, struct sl_serve_version *version)
{
    struct sl_reason reason;
    const uint64_t deadline_ns = sl_bench_now_ns() + TIMEOUT_MS * SL_CLOCK_NS_PER_MS;
    if (bench->scratch == NULL) {
        make_request(bench, version->info);
    }
    bench->ran_ns = sl_bench_now_ns();
    check(sl_serve_version_run(version, &bench->batch, bench->scratch, deadline_ns,
                               sl_clock_system(), &bench->times, &reason),
          bench->model, &reason);
}

/* Learns how long layers take, from a run of a model that is there. */
static void learn(struct bench *bench, const struct sl_serve_version *version)
{
    const struct sl_engine_info *info = version->info;
    struct sl_serve_profile *profile = &bench->profile;
    if (profile->layers == NULL) {
        profile->layers = calloc(info->layer_count, sizeof *profile->layers);
        sl_assert(profile->layers != NULL);
    }
    profile->layer_count = info->layer_count;
    profile->head = version->head;
    profile->run_us = 0;
    for (uint32_t i = 0; i < info->layer_count; i++) {
        profile->run_us += (double)bench->layers[i];
    }
    for (uint32_t i = 0; i < info->layer_count; i++) {
        profile->layers[i].image_end = info->layers[i].image_end;
        profile->layers[i].share = bench->layers[i] / (float)profile->run_us;
    }
}

/* ---- Timeline -------------------------------------------------------------------------------- */

static _Noreturn void *watch(void *ctx)
{
    struct bench *bench = ctx;
    struct sl_residency residency;
    for (;;) { /* until it is cancelled */
        sl_subscription_residency(bench->watched, &residency);
        const bool is_new =
            bench->look_count == 0 || bench->looks[bench->look_count - 1].bytes != residency.bytes;
        if (is_new && bench->look_count < LOOKS_MAX) {
            bench->looks[bench->look_count++] =
                (struct look){.us = (double)(sl_bench_now_ns() - bench->began_ns) / 1000,
                              .bytes = residency.bytes};
        }
        (void)usleep(POLL_US);
    }
}

static json_t *describe_layers(const struct bench *bench, uint32_t count)
{
    json_t *layers = json_array();
    double at = (double)(bench->ran_ns - bench->began_ns) / 1000;
    for (uint32_t i = 0; i < count; i++) {
        at += (double)bench->waits[i];
        (void)json_array_append_new(layers, json_pack("[f,f]", at, (double)bench->layers[i]));
        at += (double)bench->layers[i];
    }
    return layers;
}

static void add_line(struct bench *bench, const char *name, const struct sl_serve_version *version)
{
    json_t *arrivals = json_array(), *stops = json_array();
    for (uint32_t i = 0; i < bench->look_count; i++) {
        (void)json_array_append_new(
            arrivals, json_pack("[f,I]", bench->looks[i].us, (json_int_t)bench->looks[i].bytes));
    }
    for (uint32_t i = 0; i < version->stop_count; i++) {
        (void)json_array_append_new(stops, json_integer((json_int_t)version->stops[i]));
    }
    (void)json_array_append_new(
        bench->lines, json_pack("{s:s,s:I,s:o,s:o,s:o}", "schedule", name, "bytes",
                                (json_int_t)version->bytes, "arrivals", arrivals, "groups", stops,
                                "layers", describe_layers(bench, version->info->layer_count)));
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static double since_ms(uint64_t from_ns)
{
    return (double)(sl_bench_now_ns() - from_ns) / SL_CLOCK_NS_PER_MS;
}

/* From the open to the answer. */
static double run_cold(struct bench *bench, uint32_t rule, bool is_watched)
{
    pthread_t thread;
    evict(bench);
    bench->look_count = 0;
    bench->began_ns = sl_bench_now_ns();
    if (is_watched) {
        sl_assert(pthread_create(&thread, NULL, watch, bench) == 0);
    }
    struct sl_serve_version *version = open_model(bench, rule);
    run_model(bench, version);
    const double ms = since_ms(bench->began_ns);
    if (is_watched) {
        (void)pthread_cancel(thread);
        (void)pthread_join(thread, NULL);
        add_line(bench, rules[rule].name, version);
    }
    sl_serve_version_close(&version);
    return ms;
}

static double run_warm(struct bench *bench)
{
    struct sl_serve_version *version = open_model(bench, WHOLE);
    run_model(bench, version);
    run_model(bench, version);
    const double ms = since_ms(bench->ran_ns);
    learn(bench, version);
    sl_serve_version_close(&version);
    return ms;
}

static double run_load(struct bench *bench)
{
    struct sl_view *view;
    evict(bench);
    const uint64_t began_ns = sl_bench_now_ns();
    check(sl_view_open(bench->subscription, NULL, TIMEOUT_MS, &view), bench->model, NULL);
    const double ms = since_ms(began_ns);
    sl_view_close(&view);
    return ms;
}

/* Words of a turn: load, compute, or a schedule; and "watch" if it is for the timeline. */
static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct bench *bench = ctx;
    const char *words = common->words;
    if (sl_bench_turns_word(&words, "load")) {
        values[0] = run_load(bench);
        return 0;
    }
    if (sl_bench_turns_word(&words, "compute")) {
        values[0] = run_warm(bench);
        return 0;
    }
    for (uint32_t rule = 0; rule < RULES; rule++) {
        if (sl_bench_turns_word(&words, rules[rule].name)) {
            values[0] = run_cold(bench, rule, sl_bench_turns_word(&words, "watch"));
            return 0;
        }
    }
    return SL_ERR_INVALID;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void prepare(struct bench *bench)
{
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .agent = bench->agent};
    bench->times = (struct sl_serve_times){.layers = bench->layers, .waits = bench->waits};
    bench->lines = json_array();
    check(sl_objects_create(&options, &bench->objects), bench->agent, NULL);
    check(sl_subscription_open(bench->objects, bench->model, NULL, TIMEOUT_MS, &bench->watched),
          bench->model, NULL);
    for (uint32_t i = 0; i < LEARN; i++) {
        (void)run_warm(bench);
        evict(bench);
    }
}

static void finish(struct bench *bench)
{
    if (bench->timeline != NULL &&
        json_dump_file(bench->lines, bench->timeline, JSON_COMPACT) != 0) {
        (void)fprintf(stderr, "load cold: cannot write %s\n", bench->timeline);
    }
    sl_subscription_close(&bench->subscription);
    sl_subscription_close(&bench->watched);
    sl_objects_destroy(&bench->objects);
    free((void *)(uintptr_t)bench->item.input);
    free(bench->item.output);
    free(bench->scratch);
    free(bench->profile.layers);
    json_decref(bench->lines);
}

int sl_bench_cold_run(int argc, char **argv)
{
    static struct bench bench;
    bench.common = sl_bench_common_defaults();
    bench.rows = 8;
    const struct sl_cli_option table[] = {
        sl_bench_text("agent", &bench.agent, "NAME", "The agent of this host. Required."),
        sl_bench_text("model", &bench.model, "NAME", "A deployed model. Required."),
        sl_bench_text("evict", &bench.evict, "NAME,...",
                      "Models that take its place in the pool. Required."),
        sl_bench_number("rows", &bench.rows, 1, ROWS_MAX, "Rows that are computed together."),
        sl_bench_number("drop-caches", &bench.drops, 0, 1,
                        "1: empty the page cache before each load: files come from the disk."),
        sl_bench_text("timeline", &bench.timeline, "FILE",
                      "Write there at the end what happened in the turns that were watched."),
    };
    const int parsed = sl_bench_parse_load("cold", table, sizeof table / sizeof table[0],
                                           &bench.common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    prepare(&bench);
    const int status = sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = &time_quantity, .quantity_count = 1, .run = run, .ctx = &bench},
        &bench.common);
    finish(&bench);
    return status;
}
