#include "tests/sim/cluster.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "net/dpdk/wire.h"
#include "tests/sim/final.h"
#include "tests/sim/random.h"

#define LIMIT_NS       (1800 * SL_CLOCK_NS_PER_S) /* of a run */
#define OBSERVER_LIVES 100
#define SECRET_BYTES   32
#define OBSERVE_US_MAX 300000
#define AT_ONCE_NS     (20 * SL_CLOCK_NS_PER_MS) /* to start a process in another's place */
#define FLOODS_MAX     2
#define FLOOD_PULLS    8      /* of one step, of as many as there may be */
#define SPREAD_US      200000 /* within which processes are started */

static void mix(struct sl_sim_cluster *cluster, uint64_t value)
{
    cluster->trace = sl_hash_key(cluster->trace ^ value) + cluster->now_ns;
}

void sl_sim_cluster_trace(struct sl_sim_cluster *cluster, const char *format, ...)
{
    char line[400];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    mix(cluster, sl_hash_bytes(line, (size_t)bytes < sizeof line ? (size_t)bytes : sizeof line, 0));
    if (cluster->verbose) {
        printf("%10" PRIu64 " %s\n", sl_sim_us(cluster->now_ns), line);
    }
}

static void note(void *ctx, const char *text)
{
    sl_sim_cluster_trace(ctx, "%s", text);
}

static void watch_frame(void *ctx, const struct sl_sim_frame *frame)
{
    static const char *const types[] = {"", "control", "request", "reply", "credit"};
    struct sl_sim_cluster *cluster = ctx;
    const struct sl_frame *header = &frame->header;
    mix(cluster, frame->pair * 4 + frame->delivered * 2 + frame->by_connector);
    mix(cluster, header->request_id + ((uint64_t)header->payload_bytes << 32));
    mix(cluster, header->status * 8U + header->type);
    cluster->frames++;
    if (!frame->delivered && frame->from < cluster->plan->ps_count &&
        header->type != SL_FRAME_CONTROL) {
        sl_sim_oracle_replies(&cluster->oracle, frame->from, frame->to);
    }
    sl_sim_credits_frame(&cluster->credits, &cluster->oracle, frame);
    if (cluster->verbose) {
        uint32_t here = frame->from, there = frame->to;
        printf("%10" PRIu64 " #%" PRIu64 " host %u %s host %u: %s id %" PRIu64
               " %u bytes status %u\n",
               sl_sim_us(cluster->now_ns), frame->pair, here,
               frame->delivered ? "has from" : "sends to", there, types[header->type],
               header->request_id, header->payload_bytes, header->status);
    }
}

static void disturb(struct sl_sim_cluster *cluster, const struct sl_sim_place *place)
{
    if (place->worker != NULL) {
        cluster->oracle.instances[place->worker->instance].disturbances++;
    }
}

static void watch_ended(void *ctx, uint32_t host, uint64_t pair, bool connector, int err)
{
    struct sl_sim_cluster *cluster = ctx;
    const struct sl_sim_plan *plan = cluster->plan;
    sl_sim_cluster_trace(cluster, "#%" PRIu64 " ends on host %u (%s): %s", pair, host,
                         connector ? "connector" : "acceptor", sl_err_name(err));
    if (host == sl_sim_plan_observer_host(plan)) {
        disturb(cluster, &cluster->observer);
    } else if (host >= sl_sim_plan_task_host(plan, 0) &&
               host < sl_sim_plan_task_host(plan, sl_sim_plan_tasks(plan))) {
        disturb(cluster, &cluster->places[host - sl_sim_plan_task_host(plan, 0)]);
    }
}

static void watch_wake(void *ctx, uint32_t host, uint64_t at_ns)
{
    struct sl_sim_process *process = sl_sim_cluster_process(ctx, host);
    if (process != NULL) {
        sl_sim_process_wake(process, at_ns);
    }
}

static void watch_packet(void *ctx, const struct sl_sim_passage *passage)
{
    static const char *const kinds[16] = {"",       "open",  "retry", "accept", "refuse", "data",
                                          "bundle", "probe", "fin",   "ack",    "reset"};
    struct sl_sim_cluster *cluster = ctx;
    struct sl_dpdk_parsed parsed = {.header.kind = 0};
    (void)sl_dpdk_parse(passage->bytes, passage->length, true, &parsed);
    /* The rest has challenges in it, which the system draws: net/session/auth.h. */
    mix(cluster, sl_hash_bytes(&parsed.header, offsetof(struct sl_dpdk_header, body_bytes),
                               passage->at_ns + passage->length));
    cluster->packets++;
    if (!cluster->verbose) {
        return;
    }
    const struct sl_dpdk_header *header = &parsed.header;
    printf("%10" PRIu64 " packet of host %u to host %u, %u bytes, %s: %s of %016" PRIx64
           ", number %u, behind %u, has all before %u, grants %u, message %u at %u, %u words\n",
           sl_sim_us(cluster->now_ns), passage->from, passage->to, passage->length,
           passage->at_ns == SL_CLOCK_NEVER ? passage->fate
           : passage->fate[0] != '\0'       ? passage->fate
                                            : "well",
           kinds[header->kind & 15], header->connection, header->sequence, header->behind,
           header->acknowledged, header->granted, header->message, header->offset,
           parsed.sack_words);
}

static void watch_breach(void *ctx, const char *what)
{
    struct sl_sim_cluster *cluster = ctx;
    sl_sim_oracle_fail(&cluster->oracle, "transport", "%s", what);
}

static void watch_cut_off(void *ctx, const char *peer)
{
    struct sl_sim_cluster *cluster = ctx;
    sl_sim_oracle_fail(&cluster->oracle, "getting on",
                       "a server closes its connection from %s in the middle of a frame that "
                       "gets on",
                       peer);
}

static struct sl_sim_place *place_of(const struct sl_sim_cluster *cluster, uint32_t host)
{
    const struct sl_sim_plan *plan = cluster->plan;
    sl_assert(host < sl_sim_plan_task_host(plan, sl_sim_plan_tasks(plan)));
    return host == sl_sim_plan_observer_host(plan)
               ? (struct sl_sim_place *)(uintptr_t)&cluster->observer
               : &cluster->places[host - sl_sim_plan_task_host(plan, 0)];
}

struct sl_sim_process *sl_sim_cluster_process(const struct sl_sim_cluster *cluster, uint32_t host)
{
    if (host < cluster->plan->ps_count) {
        return cluster->ps[host].running ? &cluster->ps[host].process : NULL;
    }
    if (sl_sim_cluster_is_scheduler(cluster, host)) {
        return cluster->scheduler.running
                   ? (struct sl_sim_process *)(uintptr_t)&cluster->scheduler.process
                   : NULL;
    }
    struct sl_sim_worker *worker = place_of(cluster, host)->worker;
    return worker != NULL && worker->stage != SL_SIM_STAGE_DEAD ? &worker->process : NULL;
}

static uint64_t draw_offset(struct sl_sim_cluster *cluster)
{
    return cluster->plan->offset_clocks
               ? sl_hash_random(&cluster->random) % (1000 * SL_CLOCK_NS_PER_S)
               : 0;
}

void sl_sim_cluster_start_ps(struct sl_sim_cluster *cluster, uint32_t index)
{
    const struct sl_sim_plan *plan = cluster->plan;
    cluster->ps_start_ns[index] = SL_CLOCK_NEVER;
    sl_sim_network_revive(cluster->network, index);
    const struct sl_sim_ps_options options = {
        .network = cluster->network,
        .host = index,
        .coordinator_host = sl_sim_plan_coordinator_host(plan),
        .task_index = index,
        .ps_count = plan->ps_count,
        .shard_count = plan->shards_of_ps,
        .worker_count = plan->worker_count,
        .lease_ns = plan->lease_ns,
        .start_timeout_ns = plan->start_timeout_ns,
        .peer_timeout_ms = plan->peer_timeout_ms,
        .secret = plan->secret ? &cluster->secret : NULL,
        .seed = sl_hash_random(&cluster->random),
        .offset_ns = draw_offset(cluster),
        .gap_ns = plan->gap_ns,
        .hosts_coordinator = index == 0 && !plan->replica.apart,
        .has_replica = plan->replica.is_there,
        .snapshot_keys = plan->replica.snapshot_keys,
        .disk = cluster->disks == NULL ? NULL : sl_sim_cluster_disk(cluster, index),
        .oracle = &cluster->oracle,
        .has_views = plan->has_views,
    };
    sl_sim_cluster_trace(cluster, "ps/%u starts", index);
    if (cluster->disks != NULL) {
        sl_sim_disk_start(sl_sim_cluster_disk(cluster, index));
        cluster->oracle.was_damaged |= cluster->disks[index].was_damaged;
    }
    sl_sim_ps_start(&cluster->ps[index], &options);
}

void sl_sim_cluster_kill_ps(struct sl_sim_cluster *cluster, uint32_t index, bool silent)
{
    sl_sim_cluster_trace(cluster, "ps/%u is killed", index);
    if (!cluster->plan->replica.is_there) {
        sl_sim_oracle_crashed(&cluster->oracle, index);
    }
    sl_sim_ps_kill(&cluster->ps[index], silent);
    if (cluster->disks != NULL) {
        sl_sim_cluster_note_requests(cluster);
        sl_sim_disk_crashed(&cluster->disks[index], silent);
    }
    if (cluster->disks != NULL || cluster->plan->replica.is_there) {
        sl_sim_faults_restored(cluster);
    }
}

void sl_sim_cluster_start_worker(struct sl_sim_cluster *cluster, struct sl_sim_place *place,
                                 uint32_t task)
{
    const struct sl_sim_plan *plan = cluster->plan;
    bool observes = task == UINT32_MAX;
    uint32_t host = observes ? sl_sim_plan_observer_host(plan) : sl_sim_plan_task_host(plan, task);
    const struct sl_sim_worker_options options = {
        .network = cluster->network,
        .oracle = &cluster->oracle,
        .plan = plan,
        .secret = plan->secret ? cluster->secret.bytes : NULL,
        .secret_bytes = plan->secret ? cluster->secret.byte_count : 0,
        .host = host,
        .task = task,
        .joins = !observes && task >= plan->worker_count,
        .seed = sl_hash_random(&cluster->random),
        .offset_ns = draw_offset(cluster),
        .ended = observes ? sl_sim_final_ended : NULL,
        .ctx = cluster,
    };
    sl_sim_network_revive(cluster->network, host);
    place->start_ns = SL_CLOCK_NEVER;
    place->lives--;
    place->crashes = sl_sim_chance(&cluster->random, 500);
    place->worker = calloc(1, sizeof *place->worker);
    sl_assert(place->worker != NULL);
    sl_sim_worker_start(place->worker, &options);
    sl_sim_cluster_trace(cluster, "worker/%d starts, client id after %u", (int)task,
                         place->worker->instance);
    if (sl_sim_faults_taint(cluster, host)) {
        sl_sim_oracle_taint(&cluster->oracle, place->worker->instance);
    }
}

/* The process in this place is gone, its memory but for the worker's own is free. */
static void vacate(struct sl_sim_cluster *cluster, struct sl_sim_place *place)
{
    /* One that died before anybody knew it would be waited for, for ever. */
    place->lives += !place->worker->started;
    bool again = !place->worker->finished && place->lives > 0;
    bool at_once = sl_sim_chance(&cluster->random, 500);
    uint64_t most_ns = at_once ? AT_ONCE_NS : cluster->plan->lease_ns * 3 / 2;
    uint64_t wait_ns = sl_hash_random(&cluster->random) % most_ns;
    place->start_ns = again ? cluster->now_ns + wait_ns : SL_CLOCK_NEVER;
    free(place->worker);
    place->worker = NULL;
}

void sl_sim_cluster_kill_worker(struct sl_sim_cluster *cluster, struct sl_sim_place *place,
                                bool silent)
{
    sl_sim_cluster_trace(cluster, "worker/%d is killed", (int)place->worker->options.task);
    sl_sim_worker_kill(place->worker, silent);
    vacate(cluster, place);
}

static void poll_place(struct sl_sim_cluster *cluster, struct sl_sim_place *place)
{
    struct sl_sim_worker *worker = place->worker;
    sl_sim_worker_poll(worker);
    if (worker->stage == SL_SIM_STAGE_DEAD) {
        sl_sim_cluster_trace(cluster, "worker/%d has closed", (int)worker->options.task);
        vacate(cluster, place);
    } else if (worker->failed && worker->work_count == 0 && worker->stage != SL_SIM_STAGE_CLOSING) {
        if (place->crashes) {
            sl_sim_cluster_kill_worker(cluster, place, false);
        } else {
            sl_sim_worker_close(worker);
        }
    }
}

static uint64_t run_place(struct sl_sim_cluster *cluster, struct sl_sim_place *place, uint32_t task)
{
    if (place->worker == NULL) {
        if (place->start_ns <= cluster->now_ns) {
            sl_sim_cluster_start_worker(cluster, place, task);
        }
    } else if (sl_sim_process_due(&place->worker->process) <= cluster->now_ns) {
        cluster->turns += sl_sim_process_step(&place->worker->process);
        poll_place(cluster, place);
    }
    return place->worker != NULL ? sl_sim_process_due(&place->worker->process) : place->start_ns;
}

static uint64_t run_ps(struct sl_sim_cluster *cluster, uint32_t index)
{
    struct sl_sim_ps *ps = &cluster->ps[index];
    if (ps->running && sl_sim_process_due(&ps->process) <= cluster->now_ns) {
        cluster->turns += sl_sim_process_step(&ps->process);
        if (ps->coordinator != NULL) {
            sl_sim_cluster_look_at_complete(cluster);
        }
        ps->failed = sl_sim_cluster_look_at_disk(cluster, index) || ps->failed;
    }
    if (ps->running && ps->failed) {
        sl_sim_cluster_begin_anew(cluster, index);
        sl_sim_cluster_kill_ps(cluster, index, false);
        cluster->ps_start_ns[index] = cluster->now_ns + SL_CLOCK_NS_PER_S;
    }
    if (!ps->running && cluster->ps_start_ns[index] <= cluster->now_ns) {
        sl_sim_cluster_start_ps(cluster, index);
    }
    return ps->running ? sl_sim_process_due(&ps->process) : cluster->ps_start_ns[index];
}

/* One step of some pulls, whatever state the cluster is in. */
static void observe_once(struct sl_sim_cluster *cluster, uint32_t pulls)
{
    struct sl_sim_worker *worker = cluster->observer.worker;
    struct sl_sim_work *work = sl_sim_worker_begin(worker, 0);
    for (uint32_t i = 0; i < pulls; i++) {
        bool long_ones = pulls > 1; /* of the table that the plan has made long for it */
        sl_sim_work_pull(
            work, long_ones ? 0 : sl_sim_below(&cluster->random, cluster->plan->table_count), 0);
    }
    sl_sim_worker_submit(worker, work, 100 + sl_sim_below(&cluster->random, 5000));
}

/* The observer looks at some table now and then; one that floods has more requests under way than
 * any shard gives it credit for. */
static void observe(struct sl_sim_cluster *cluster)
{
    cluster->observe_ns =
        cluster->now_ns + SL_CLOCK_NS_PER_US * sl_sim_below(&cluster->random, OBSERVE_US_MAX);
    const struct sl_sim_worker *worker = cluster->observer.worker;
    if (worker == NULL || !sl_sim_worker_is_idle(worker)) {
        return;
    }
    bool floods = cluster->plan->floods && cluster->flood_count < FLOODS_MAX &&
                  sl_sim_chance(&cluster->random, 200);
    cluster->flood_count += floods;
    for (uint32_t i = 0; i < (floods ? SL_SIM_WORKS_MAX : 1); i++) {
        observe_once(cluster, floods ? FLOOD_PULLS : 1);
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Does all that is due now, and moves on to the next moment at which something is. */
static void moment(struct sl_sim_cluster *cluster)
{
    uint64_t next_ns = sl_sim_faults_run(cluster);
    sl_sim_cluster_limit_backups(cluster);
    if (cluster->observe_ns <= cluster->now_ns) {
        observe(cluster);
    }
    next_ns = sooner(next_ns, cluster->observe_ns);
    if (cluster->views_ns <= cluster->now_ns) {
        cluster->views_ns = sl_sim_views_look(cluster);
    }
    next_ns = sooner(next_ns, cluster->views_ns);
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        (void)run_ps(cluster, i);
    }
    sl_sim_cluster_run_scheduler(cluster);
    (void)run_place(cluster, &cluster->observer, UINT32_MAX);
    for (uint32_t task = 0; task < sl_sim_plan_tasks(cluster->plan); task++) {
        (void)run_place(cluster, &cluster->places[task], task);
    }
    /* What one did may be news for another. */
    for (uint32_t host = 0; host < cluster->plan->network.host_count; host++) {
        const struct sl_sim_process *process = sl_sim_cluster_process(cluster, host);
        uint64_t due_ns = process != NULL                              ? sl_sim_process_due(process)
                          : sl_sim_cluster_is_scheduler(cluster, host) ? cluster->scheduler_start_ns
                          : host < cluster->plan->ps_count             ? cluster->ps_start_ns[host]
                                                           : place_of(cluster, host)->start_ns;
        next_ns = sooner(next_ns, due_ns);
    }
    next_ns = sooner(next_ns, sl_sim_network_due(cluster->network));
    sl_sim_cluster_look_at_pairs(cluster);
    if (next_ns == SL_CLOCK_NEVER || next_ns > LIMIT_NS) {
        sl_sim_oracle_fail(&cluster->oracle, "progress",
                           "nothing more happens, and the run is not over");
        return;
    }
    cluster->now_ns = next_ns > cluster->now_ns ? next_ns : cluster->now_ns + 1;
    sl_sim_network_advance(cluster->network, cluster->now_ns);
}

static void create(struct sl_sim_cluster *cluster)
{
    const struct sl_sim_plan *plan = cluster->plan;
    const struct sl_sim_watch watch = {
        .frame = watch_frame,
        .ended = watch_ended,
        .wake = watch_wake,
        .packet = watch_packet,
        .breach = watch_breach,
        .cut_off = watch_cut_off,
        .ctx = cluster,
    };
    cluster->ps = calloc(plan->ps_count, sizeof *cluster->ps);
    cluster->places = calloc(sl_sim_plan_tasks(plan), sizeof *cluster->places);
    cluster->hurt_ns = calloc(plan->network.host_count, sizeof *cluster->hurt_ns);
    sl_assert(cluster->ps != NULL && cluster->places != NULL && cluster->hurt_ns != NULL);
    sl_sim_cluster_make_disks(cluster);
    cluster->network = sl_sim_network_create(&plan->network, &watch);
    cluster->now_ns = sl_sim_network_now(cluster->network);
    cluster->secret.byte_count = SECRET_BYTES;
    memset(cluster->secret.bytes, 's', SECRET_BYTES);
    sl_sim_oracle_init(&cluster->oracle, plan, &cluster->now_ns);
    cluster->oracle.note = note;
    cluster->oracle.note_ctx = cluster;
    cluster->oracle.acknowledged = plan->replica.is_there ? sl_sim_cluster_acknowledged : NULL;
    cluster->observe_ns = SL_CLOCK_NEVER;
    cluster->views_ns = plan->has_views ? cluster->now_ns : SL_CLOCK_NEVER;
    for (uint32_t i = 0; i < SL_SIM_FAULTS_MAX; i++) {
        cluster->fault_begin_ns[i] = cluster->fault_end_ns[i] = SL_CLOCK_NEVER;
    }
}

static uint64_t soon(struct sl_sim_cluster *cluster)
{
    return cluster->now_ns + SL_CLOCK_NS_PER_US * sl_sim_below(&cluster->random, SPREAD_US);
}

static bool goes_on(const struct sl_sim_cluster *cluster)
{
    return cluster->oracle.breach[0] == '\0';
}

static void start(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        cluster->ps_start_ns[i] = soon(cluster);
    }
    sl_sim_cluster_start_scheduler(cluster);
    cluster->observer = (struct sl_sim_place){.lives = OBSERVER_LIVES, .start_ns = soon(cluster)};
    for (uint32_t task = 0; task < sl_sim_plan_tasks(cluster->plan); task++) {
        cluster->places[task] =
            (struct sl_sim_place){.lives = cluster->plan->lives_max, .start_ns = SL_CLOCK_NEVER};
    }
    while (goes_on(cluster) &&
           (cluster->observer.worker == NULL || !sl_sim_worker_is_idle(cluster->observer.worker))) {
        moment(cluster);
    }
}

static bool is_over(const struct sl_sim_cluster *cluster)
{
    bool over = cluster->faults_are_over;
    for (uint32_t task = 0; over && task < sl_sim_plan_tasks(cluster->plan); task++) {
        const struct sl_sim_place *place = &cluster->places[task];
        over = place->worker == NULL && place->start_ns == SL_CLOCK_NEVER;
    }
    for (uint32_t i = 0; over && i < cluster->plan->ps_count; i++) {
        over = cluster->ps[i].running;
    }
    over = over && (cluster->scheduler.running || !cluster->plan->replica.apart);
    return over;
}

static void train(struct sl_sim_cluster *cluster)
{
    for (uint32_t task = 0; task < cluster->plan->worker_count; task++) {
        cluster->places[task].start_ns = soon(cluster);
    }
    sl_sim_faults_schedule(cluster);
    cluster->faults_are_over = cluster->plan->fault_count == 0;
    cluster->observe_ns = cluster->now_ns;
    do {
        moment(cluster);
    } while (goes_on(cluster) && !is_over(cluster));
    cluster->observe_ns = SL_CLOCK_NEVER;
}

void sl_sim_cluster_create(struct sl_sim_cluster *cluster, const struct sl_sim_plan *plan,
                           bool verbose)
{
    *cluster = (struct sl_sim_cluster){
        .plan = plan, .verbose = verbose, .random = sl_hash_key(plan->seed ^ 0xc1u)};
    create(cluster);
}

bool sl_sim_cluster_start(struct sl_sim_cluster *cluster)
{
    start(cluster);
    return goes_on(cluster);
}

bool sl_sim_cluster_run(struct sl_sim_cluster *cluster, const struct sl_sim_plan *plan,
                        bool verbose)
{
    sl_sim_cluster_create(cluster, plan, verbose);
    if (sl_sim_cluster_start(cluster)) {
        train(cluster);
    }
    if (goes_on(cluster)) {
        sl_sim_final_run(cluster, moment);
    }
    return goes_on(cluster);
}

void sl_sim_cluster_fini(struct sl_sim_cluster *cluster)
{
    for (uint32_t task = 0; task < sl_sim_plan_tasks(cluster->plan); task++) {
        if (cluster->places[task].worker != NULL) {
            sl_sim_cluster_kill_worker(cluster, &cluster->places[task], false);
        }
    }
    if (cluster->observer.worker != NULL) {
        sl_sim_cluster_kill_worker(cluster, &cluster->observer, false);
    }
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        if (cluster->ps[i].running) {
            sl_sim_ps_kill(&cluster->ps[i], false);
        }
    }
    if (cluster->scheduler.running) {
        sl_sim_ps_kill(&cluster->scheduler, false);
    }
    sl_sim_network_destroy(&cluster->network);
    sl_sim_oracle_fini(&cluster->oracle);
    sl_sim_credits_fini(&cluster->credits);
    sl_sim_cluster_free_disks(cluster);
    free(cluster->ps);
    free(cluster->places);
    sl_sim_records_fini(&cluster->records);
    free(cluster->hurt_ns);
}
