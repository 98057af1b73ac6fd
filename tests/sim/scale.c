#include "tests/sim/scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/workload.h"
#include "core/assert.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/metric.h"
#include "reactor/spin.h"
#include "tests/sim/plan.h"
#include "tests/sim/ps.h"
#include "worker/client/start.h"
#include "worker/client/table_opening.h"

#define BATCHES        16 /* of keys, drawn beforehand */
#define TIMEOUT_MS     600000
#define GO_NS          (10 * SL_CLOCK_NS_PER_MS) /* from the last that is ready to the first call of all */
#define SLOTS          20                        /* of the time that counts */
/* SPIN_US of ps/process/process.c and of worker/client/client.c. */
#define SERVER_SPIN_US 50
#define CLIENT_SPIN_US 20

/* ---- Parameters ------------------------------------------------------------------------------ */

struct parameters {
    double workers, servers;
    double worker_cores; /* that workers share in turns; 0: each has its own */
    double keys, rows, dim, zipf;
    double think_us, slow;  /* between pull and push; of worker 0 so many times as long */
    double push;            /* 0: workers only pull */
    double mode, staleness; /* enum sl_consistency_mode */
    double polling;         /* 1: workers, which have processors of their own, never sleep */
    double replicas, racks, fail_s;
    double latency_us, gbit;
    double warm_up, seconds; /* virtual */
    double seed;
};

static struct parameters parameters = {.workers = 8,
                                       .servers = 1,
                                       .keys = 100,
                                       .rows = 200000,
                                       .dim = 16,
                                       .slow = 1,
                                       .push = 1,
                                       .mode = SL_CONSISTENCY_ASP,
                                       .warm_up = 0.1,
                                       .seconds = 0.2,
                                       .seed = 1};

static const struct {
    const char *name, *help;
    double *value;
} FIELDS[] = {
    {"workers", "worker processes", &parameters.workers},
    {"servers", "servers, each a reactor with a processor of its own", &parameters.servers},
    {"worker_cores", "processors that the workers share; 0: each has its own",
     &parameters.worker_cores},
    {"keys", "rows of a call", &parameters.keys},
    {"rows", "rows of the table", &parameters.rows},
    {"dim", "columns of a row", &parameters.dim},
    {"zipf", "exponent of Zipf's law; 0: uniform", &parameters.zipf},
    {"think_us", "computation between a pull and a push", &parameters.think_us},
    {"slow", "worker 0 computes so many times as long", &parameters.slow},
    {"push", "0: workers only pull", &parameters.push},
    {"mode", "consistency: 0 asp, 1 bsp, 2 ssp", &parameters.mode},
    {"staleness", "of ssp", &parameters.staleness},
    {"polling", "1: workers with a processor each poll, and never sleep", &parameters.polling},
    {"replicas", "1: each server's rows have a backup on the next server", &parameters.replicas},
    {"racks", "0, or: of every so many servers and workers the second one is in a rack that fails",
     &parameters.racks},
    {"fail_s", "virtual seconds that count before the rack fails", &parameters.fail_s},
    {"latency_us", "of the network, one way; 0: as in the file of costs", &parameters.latency_us},
    {"gbit", "per second, of each direction of a host's link; 0: as in the file", &parameters.gbit},
    {"warm_up", "virtual seconds that do not count", &parameters.warm_up},
    {"seconds", "virtual seconds that count", &parameters.seconds},
    {"seed", "of the keys", &parameters.seed},
};
#define FIELD_COUNT (sizeof FIELDS / sizeof FIELDS[0])

static bool parse(int count, char **arguments, const char **costs)
{
    *costs = NULL;
    for (int i = 0; i < count; i++) {
        const char *equals = strchr(arguments[i], '=');
        const size_t bytes = equals == NULL ? 0 : (size_t)(equals - arguments[i]);
        bool known = bytes == strlen("costs") && strncmp(arguments[i], "costs", bytes) == 0;
        *costs = known ? equals + 1 : *costs;
        for (size_t f = 0; f < FIELD_COUNT && !known; f++) {
            known = strlen(FIELDS[f].name) == bytes &&
                    strncmp(FIELDS[f].name, arguments[i], bytes) == 0 &&
                    sscanf(equals + 1, "%lf", FIELDS[f].value) == 1;
        }
        if (!known) {
            return false;
        }
    }
    return *costs != NULL && parameters.workers >= 1 && parameters.servers >= 1;
}

/* ---- The job --------------------------------------------------------------------------------- */

struct trainer {
    struct sl_sim_process process;
    struct sl_client *client;
    struct sl_table_opening opening;
    struct sl_table *table;
    struct sl_step *step;
    enum { STARTING, OPENING, READY, COMPUTING, PULLING, PUSHING } stage;
    uint32_t clock;
    uint64_t begun_ns, next_ns;
    uint64_t *keys; /* [BATCHES][parameters.keys] */
};

/* A processor: the process that has it computes until free_ns, and may spin then. The others get it
 * when that process sleeps, in the order in which they became ready (SCHED_FIFO). */
struct core {
    uint32_t holder;
    uint64_t free_ns;
};

struct job {
    struct sl_sim_network *network;
    struct sl_sim_costs costs;
    struct sl_sim_ps *servers;
    struct trainer *trainers;
    struct sl_sim_process **processes; /* servers, then workers: by host */
    struct core *cores;
    uint32_t *core_of;        /* host */
    struct sl_spin *spins;    /* host: decides whether it spins or sleeps, unmodified */
    uint64_t *spins_until_ns; /* host */
    uint32_t server_count, worker_count, host_count, ready_count;
    float *values; /* that all pull into, and zeros that all push */
    uint64_t turns, go_ns, from_ns, to_ns, fail_ns;
    double *busy_ns; /* servers, in the time measured */
    uint64_t calls, slots[SLOTS];
    struct sl_metric_histogram latency;
};

static struct job job;

static void on_wake(void *ctx, uint32_t host, uint64_t at_ns)
{
    if (job.processes[host] != NULL) {
        sl_sim_process_wake(job.processes[host], at_ns);
    }
}

static const struct sl_transport_ops *find_transport(enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_TCP ? &sl_sim_transport_ops : NULL;
}

static void start_server(uint32_t index)
{
    const struct sl_sim_ps_options options = {
        .network = job.network,
        .host = index,
        .task_index = index,
        .ps_count = job.server_count,
        .shard_count = 1,
        .reactor_count = 1,
        .worker_count = job.worker_count,
        .lease_ns = 10 * SL_CLOCK_NS_PER_S,
        .start_timeout_ns = TIMEOUT_MS * SL_CLOCK_NS_PER_MS,
        .seed = sl_hash_key(index),
        .hosts_coordinator = index == 0,
        .has_replica = parameters.replicas > 0,
    };
    sl_sim_ps_start(&job.servers[index], &options);
    job.processes[index] = &job.servers[index].process;
}

static void start_trainer(uint32_t index)
{
    struct trainer *trainer = &job.trainers[index];
    const uint32_t host = job.server_count + index;
    struct sl_endpoint endpoint;
    struct sl_bench_workload workload;
    char coordinator[SL_LIMIT_ENDPOINT_BYTES], name[16];
    const size_t keys = BATCHES * (size_t)parameters.keys;
    (void)snprintf(name, sizeof name, "w%u", index % 100000);
    sl_sim_process_init(&trainer->process, job.network, host, name, 1, sl_hash_key(host), 0, 0);
    job.processes[host] = &trainer->process;
    sl_sim_network_endpoint(job.network, 0, &endpoint);
    sl_endpoint_format(&endpoint, coordinator, sizeof coordinator);
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator = coordinator,
                                              .task_index = (int32_t)index,
                                              .start_timeout_ms = TIMEOUT_MS};
    const struct sl_client_setup setup = {
        .reactors = trainer->process.reactors,
        .reactor_count = 1,
        .find_transport = find_transport,
        .medium = sl_sim_network_medium(job.network, host, 0),
        .client_id = index + 1,
    };
    int err = sl_start_begin(&options, &setup, &trainer->client);
    trainer->keys = malloc(keys * sizeof *trainer->keys);
    sl_assert(err == 0);
    sl_assert(trainer->keys != NULL);
    sl_bench_workload_init(&workload, parameters.zipf > 0 ? SL_BENCH_ZIPF : SL_BENCH_UNIFORM,
                           (uint64_t)parameters.rows, parameters.zipf,
                           (uint64_t)parameters.seed + index);
    for (size_t i = 0; i < keys; i++) {
        trainer->keys[i] = sl_bench_workload_next(&workload);
    }
    sl_sim_process_look(&trainer->process);
}

static void create(void)
{
    job.server_count = (uint32_t)parameters.servers;
    job.worker_count = (uint32_t)parameters.workers;
    job.host_count = job.server_count + job.worker_count;
    job.servers = calloc(job.server_count, sizeof *job.servers);
    job.trainers = calloc(job.worker_count, sizeof *job.trainers);
    job.processes = calloc(job.host_count, sizeof(struct sl_sim_process *));
    job.cores = calloc(job.host_count, sizeof *job.cores);
    job.spins = calloc(job.host_count, sizeof *job.spins);
    job.spins_until_ns = calloc(job.host_count, sizeof *job.spins_until_ns);
    job.busy_ns = calloc(job.server_count, sizeof *job.busy_ns);
    job.core_of = calloc(job.host_count, sizeof *job.core_of);
    job.values = calloc((size_t)(parameters.keys * parameters.dim), sizeof *job.values);
    sl_assert(job.busy_ns != NULL);
    sl_assert(job.servers != NULL && job.trainers != NULL && job.processes != NULL &&
              job.cores != NULL && job.spins != NULL && job.spins_until_ns != NULL &&
              job.core_of != NULL && job.values != NULL);
    const struct sl_sim_network_options options = {
        .seed = 1,
        .bytes_per_us = UINT32_MAX,
        .window_bytes = UINT32_MAX,
        .is_one_sided = true, /* without the checks that read all that is sent */
        .delay_us_min = 1,
        .delay_us_max = 1,
        .host_count = job.host_count,
        .costs = &job.costs,
        .server_count = job.server_count,
    };
    const struct sl_sim_watch watch = {.wake = on_wake};
    job.network = sl_sim_network_create(&options, &watch);
    sl_metric_init(&job.latency);
    job.go_ns = job.from_ns = job.to_ns = SL_CLOCK_NEVER;
    for (uint32_t host = 0; host < job.host_count; host++) {
        const uint32_t shared = (uint32_t)parameters.worker_cores;
        const bool is_alone = host < job.server_count || shared == 0;
        job.core_of[host] = is_alone ? host : job.server_count + (host - job.server_count) % shared;
        job.cores[host].holder = host;
        const bool is_server = host < job.server_count;
        sl_spin_init(&job.spins[host],
                     (is_server ? SERVER_SPIN_US : CLIENT_SPIN_US) * SL_CLOCK_NS_PER_US);
        if (is_server) {
            sl_spin_lengthen(&job.spins[host]);
        }
    }
}

/* ---- A worker -------------------------------------------------------------------------------- */

static void open_table(struct trainer *trainer)
{
    struct sl_table_spec spec =
        sl_bench_rows_table("workers", (uint64_t)parameters.dim, SL_OPTIMIZER_ADAGRAD);
    spec.consistency = (struct sl_consistency_spec){
        .mode = (enum sl_consistency_mode)parameters.mode,
        .staleness = (uint32_t)parameters.staleness,
        .worker_count = parameters.mode == SL_CONSISTENCY_ASP ? 0 : job.worker_count,
    };
    int err = sl_table_opening_begin(&trainer->opening, trainer->client, &spec, TIMEOUT_MS);
    sl_assert(err == 0);
    trainer->stage = OPENING;
}

static void begin_call(struct trainer *trainer, bool pushes)
{
    const uint32_t count = (uint32_t)parameters.keys;
    const uint64_t *keys = trainer->keys + (size_t)(trainer->clock % BATCHES) * count;
    int err = sl_step_begin(trainer->client, trainer->clock, &trainer->step);
    sl_assert(err == 0);
    err = pushes ? sl_step_push(trainer->step, trainer->table, keys, count, job.values)
                 : sl_step_pull(trainer->step, trainer->table, keys, count, job.values);
    err = err == 0 && pushes ? sl_step_tick(trainer->step) : err;
    err = err != 0 ? err : sl_step_submit(trainer->step, TIMEOUT_MS);
    sl_assert(err == 0);
    trainer->stage = pushes ? PUSHING : PULLING;
}

/* The processor time of a turn that has just been taken is over then. */
static uint64_t turn_end(void)
{
    return sl_sim_network_now(job.network) + (uint64_t)sl_sim_network_meter(job.network)->spent_ns;
}

static void end_call(struct trainer *trainer)
{
    const uint64_t now_ns = turn_end();
    int err = sl_step_wait(trainer->step);
    sl_assert(err == 0);
    sl_step_destroy(&trainer->step);
    if (trainer->begun_ns >= job.from_ns && now_ns <= job.to_ns) {
        sl_metric_record(&job.latency, now_ns - trainer->begun_ns);
        job.calls++;
        job.slots[(trainer->begun_ns - job.from_ns) * SLOTS / (job.to_ns - job.from_ns + 1)]++;
    }
    trainer->begun_ns = now_ns;
    if (trainer->stage == PUSHING || parameters.push == 0) {
        trainer->clock++;
        begin_call(trainer, false);
    } else if (parameters.think_us == 0) {
        begin_call(trainer, true);
    } else {
        const double slow = trainer == job.trainers ? parameters.slow : 1;
        const uint64_t think_ns = (uint64_t)(1000 * slow * parameters.think_us);
        trainer->begun_ns = trainer->next_ns = now_ns + think_ns;
        trainer->stage = COMPUTING;
    }
}

/* Its computation is over, for which it sleeps. */
static bool has_computed(const struct trainer *trainer)
{
    return trainer->stage == COMPUTING && trainer->next_ns <= sl_sim_network_now(job.network);
}

/* Does what the application can do, after a turn. */
static void poll_trainer(struct trainer *trainer)
{
    int err = 0;
    switch (trainer->stage) {
    case STARTING:
        err = sl_start_poll(trainer->client);
        if (err == 0) {
            open_table(trainer);
        }
        break;
    case OPENING:
        err = sl_table_opening_poll(&trainer->opening, &trainer->table);
        if (err == 0) {
            trainer->stage = READY;
            job.ready_count++;
        }
        break;
    case READY:
        if (sl_sim_network_now(job.network) >= job.go_ns) {
            trainer->begun_ns = sl_sim_network_now(job.network);
            begin_call(trainer, false);
        }
        break;
    case COMPUTING:
        if (has_computed(trainer)) {
            begin_call(trainer, true);
        }
        break;
    default:
        if (sl_step_done(trainer->step)) {
            end_call(trainer);
        }
        break;
    }
    sl_assert(err == 0 || err == SL_ERR_AGAIN);
    sl_sim_process_look(&trainer->process);
    if (trainer->stage == COMPUTING) {
        sl_sim_process_wake(&trainer->process, trainer->next_ns);
    }
}

/* ---- Processors ------------------------------------------------------------------------------ */

static uint64_t later(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

/* When a process's turn begins, as things are: it has its processor, or gets it when the holder
 * sleeps; a processor on which all sleep must be woken. */
static uint64_t start_of(uint32_t host)
{
    const struct core *core = &job.cores[job.core_of[host]];
    const uint64_t ready_ns = job.processes[host]->due_ns;
    const uint64_t sleeps_ns = later(job.spins_until_ns[core->holder], core->free_ns);
    if (ready_ns == SL_CLOCK_NEVER) {
        return ready_ns;
    }
    if (ready_ns > sleeps_ns) {
        return ready_ns + (uint64_t)job.costs.wake;
    }
    return later(ready_ns, host == core->holder ? core->free_ns : sleeps_ns);
}

/* Of two that can begin now: the one that has its processor, else the one that was ready first. */
static bool goes_before(uint32_t a, uint32_t b)
{
    const bool has = job.cores[job.core_of[a]].holder == a;
    return has || (job.cores[job.core_of[b]].holder != b &&
                   job.processes[a]->due_ns < job.processes[b]->due_ns);
}

/* The process that is next to run. */
static uint32_t choose(uint64_t *start_ns)
{
    uint32_t chosen = UINT32_MAX;
    *start_ns = SL_CLOCK_NEVER;
    for (uint32_t host = 0; host < job.host_count; host++) {
        const uint64_t at_ns = job.processes[host] == NULL ? SL_CLOCK_NEVER : start_of(host);
        if (at_ns < *start_ns ||
            (at_ns == *start_ns && at_ns != SL_CLOCK_NEVER && goes_before(host, chosen))) {
            *start_ns = at_ns;
            chosen = host;
        }
    }
    sl_assert(*start_ns != SL_CLOCK_NEVER);
    return chosen;
}

/* The process gets its processor: what that takes, in ns. */
static double take_core(uint32_t host, uint64_t start_ns)
{
    struct core *core = &job.cores[job.core_of[host]];
    const uint64_t sleeps_ns = later(job.spins_until_ns[core->holder], core->free_ns);
    const bool goes_on = core->holder == host && start_ns <= sleeps_ns;
    core->holder = host;
    return goes_on ? 0 : job.costs.swap + (start_ns > sleeps_ns ? job.costs.idle : 0);
}

static void run_next(void)
{
    struct sl_sim_meter *meter = sl_sim_network_meter(job.network);
    uint64_t start_ns;
    const uint32_t host = choose(&start_ns);
    if (start_ns > sl_sim_network_now(job.network)) {
        sl_sim_network_advance(job.network, start_ns);
    }
    start_ns = sl_sim_network_now(job.network);
    const double swap_ns = take_core(host, start_ns);
    const bool has_slept =
        host >= job.server_count && has_computed(&job.trainers[host - job.server_count]);
    meter->turn++;
    meter->spent_ns = 0;
    (void)sl_sim_process_step(job.processes[host]);
    meter->spent_ns += meter->spent_ns > 0 || has_slept ? swap_ns : 0;
    if (host >= job.server_count) {
        poll_trainer(&job.trainers[host - job.server_count]);
    } else if (start_ns >= job.from_ns) {
        job.busy_ns[host] += meter->spent_ns;
    }
    const uint64_t end_ns = turn_end();
    struct sl_spin *spin = &job.spins[host];
    if (meter->spent_ns > 0) {
        sl_spin_busy(spin, start_ns);
        job.spins_until_ns[host] = 0;
    }
    if (!spin->idle && job.processes[host]->due_ns > end_ns) {
        job.spins_until_ns[host] = sl_spin_idle(spin, end_ns) ? end_ns + spin->limit_ns : 0;
    }
    if (host >= job.server_count && parameters.polling > 0) {
        job.spins_until_ns[host] = SL_CLOCK_NEVER;
    }
    job.cores[job.core_of[host]].free_ns = end_ns;
    job.turns++;
}

static bool is_in_rack(uint32_t index)
{
    return index % (uint32_t)parameters.racks == 1;
}

/* Its machines are gone at once; nothing tells their peers. */
static void fail_rack(void)
{
    for (uint32_t host = 0; host < job.host_count; host++) {
        if (is_in_rack(host < job.server_count ? host : host - job.server_count)) {
            job.processes[host] = NULL;
            sl_sim_network_kill(job.network, host, true);
        }
    }
}

static void run(void)
{
    for (uint32_t i = 0; i < job.server_count; i++) {
        start_server(i);
    }
    for (uint32_t i = 0; i < job.worker_count; i++) {
        start_trainer(i);
    }
    while (job.ready_count < job.worker_count) {
        run_next();
    }
    job.go_ns = sl_sim_network_now(job.network) + GO_NS;
    for (uint32_t i = 0; i < job.worker_count; i++) {
        sl_sim_process_wake(&job.trainers[i].process, job.go_ns);
        if (parameters.worker_cores > 0) { /* as after calls for which all workers compete */
            job.spins[job.server_count + i].short_idles = 0;
        }
    }
    job.from_ns = job.go_ns + (uint64_t)(parameters.warm_up * (double)SL_CLOCK_NS_PER_S);
    job.to_ns = job.from_ns + (uint64_t)(parameters.seconds * (double)SL_CLOCK_NS_PER_S);
    job.fail_ns = parameters.racks > 0
                      ? job.from_ns + (uint64_t)(parameters.fail_s * (double)SL_CLOCK_NS_PER_S)
                      : SL_CLOCK_NEVER;
    while (sl_sim_network_now(job.network) < job.to_ns) {
        if (sl_sim_network_now(job.network) >= job.fail_ns) {
            fail_rack();
            job.fail_ns = SL_CLOCK_NEVER;
        }
        run_next();
    }
}

static void print(void)
{
    double busy = 0, busiest = 0;
    for (uint32_t i = 0; i < job.server_count; i++) {
        busy += job.busy_ns[i] / (parameters.seconds * 1e9) / job.server_count;
        busiest = fmax(busiest, job.busy_ns[i] / (parameters.seconds * 1e9));
    }
    printf("{\"workers\": %u, \"servers\": %u, \"calls_per_s\": %.6g, \"p50_us\": %.6g, "
           "\"p99_us\": %.6g, \"server_busy\": %.4f, \"busiest\": %.4f, \"turns\": %" PRIu64
           ", \"slots\": [",
           job.worker_count, job.server_count, (double)job.calls / parameters.seconds,
           (double)sl_metric_quantile(&job.latency, 0.5) / 1e3,
           (double)sl_metric_quantile(&job.latency, 0.99) / 1e3, busy, busiest, job.turns);
    for (uint32_t i = 0; i < SLOTS; i++) {
        printf("%s%" PRIu64, i == 0 ? "" : ", ", job.slots[i]);
    }
    printf("]}\n");
}

int sl_sim_scale_main(int argument_count, char **arguments)
{
    const char *costs;
    if (!parse(argument_count, arguments, &costs)) {
        printf("starling-sim --scale costs=FILE NAME=VALUE ...\n");
        for (size_t f = 0; f < FIELD_COUNT; f++) {
            printf("  %-12s %s (%g)\n", FIELDS[f].name, FIELDS[f].help, *FIELDS[f].value);
        }
        return 2;
    }
    if (!sl_sim_costs_read(costs, &job.costs)) {
        return 1;
    }
    sl_log_setup(SL_LOG_ERROR, "sim");
    job.costs.latency =
        parameters.latency_us > 0 ? 1000 * parameters.latency_us : job.costs.latency;
    job.costs.bandwidth = parameters.gbit > 0 ? parameters.gbit / 8 : job.costs.bandwidth;
    create();
    run();
    print();
    return 0; /* the memory of a thousand clients goes with the process */
}
