#include "tests/sim/cluster.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "net/dpdk/wire.h"
#include "tests/sim/evictions.h"
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

static void watch_frame(struct sl_sim_member *member, const struct sl_sim_frame *frame)
{
    struct sl_sim_cluster *cluster = sl_sim_cluster_of(member);
    if (!frame->delivered && frame->from < cluster->plan->ps_count &&
        frame->header.type != SL_FRAME_CONTROL) {
        sl_sim_oracle_replies(&cluster->oracle, frame->from, frame->to);
    }
    sl_sim_credits_frame(&cluster->credits, &cluster->oracle, frame);
}

static struct sl_sim_place *place_of(struct sl_sim_cluster *cluster, uint32_t host)
{
    const struct sl_sim_plan *plan = cluster->plan;
    sl_assert(host < sl_sim_plan_task_host(plan, sl_sim_plan_tasks(plan)));
    return host == sl_sim_plan_observer_host(plan)
               ? &cluster->observer
               : &cluster->places[host - sl_sim_plan_task_host(plan, 0)];
}

static void disturb(struct sl_sim_cluster *cluster, const struct sl_sim_place *place)
{
    if (place->worker != NULL) {
        cluster->oracle.instances[place->worker->instance].disturbances++;
    }
}

static void watch_ended(struct sl_sim_member *member, uint32_t host)
{
    struct sl_sim_cluster *cluster = sl_sim_cluster_of(member);
    if (host >= cluster->plan->ps_count && !sl_sim_cluster_is_scheduler(cluster, host)) {
        disturb(cluster, place_of(cluster, host));
    }
}

static uint64_t draw_offset(struct sl_sim_cluster *cluster)
{
    return cluster->plan->offset_clocks
               ? sl_hash_random(&cluster->member.random) % (1000 * SL_CLOCK_NS_PER_S)
               : 0;
}

void sl_sim_cluster_start_ps(struct sl_sim_cluster *cluster, uint32_t index)
{
    const struct sl_sim_plan *plan = cluster->plan;
    cluster->member.places[index].start_ns = SL_CLOCK_NEVER;
    sl_sim_network_revive(cluster->world->network, index);
    const struct sl_sim_ps_options options = {
        .network = cluster->world->network,
        .host = index,
        .coordinator_host = sl_sim_plan_coordinator_host(plan),
        .task_index = index,
        .ps_count = plan->ps_at_start,
        .shard_count = plan->shards_of_ps,
        .reactor_count = plan->reactors_of_ps,
        .worker_count = plan->worker_count,
        .lease_ns = plan->lease_ns,
        .start_timeout_ns = plan->start_timeout_ns,
        .peer_timeout_ms = plan->peer_timeout_ms,
        .secret = plan->secret ? &cluster->secret : NULL,
        .seed = sl_hash_random(&cluster->member.random),
        .offset_ns = draw_offset(cluster),
        .gap_ns = plan->gap_ns,
        .joins = cluster->memberships[index] == SL_SIM_PS_JOINS,
        .hosts_coordinator = index == 0 && !plan->replica.apart,
        .has_replica = plan->replica.is_there,
        .snapshot_keys = plan->replica.snapshot_keys,
        .disk = cluster->disks == NULL ? NULL : sl_sim_cluster_disk(cluster, index),
        .oracle = &cluster->oracle,
        .has_views = plan->has_views,
        .memory_bytes_max = plan->memory_bytes_max,
        .started = cluster->ps_started,
        .ends = cluster->ps_ends,
    };
    sl_sim_world_note(cluster->world, "ps/%u starts", index);
    if (cluster->disks != NULL) {
        sl_sim_disk_start(sl_sim_cluster_disk(cluster, index));
        cluster->oracle.was_damaged |= cluster->disks[index].was_damaged;
    }
    sl_sim_ps_start(&cluster->ps[index], &options);
    cluster->member.places[index].process = &cluster->ps[index].process;
}

void sl_sim_cluster_kill_ps(struct sl_sim_cluster *cluster, uint32_t index, bool silent)
{
    sl_sim_world_note(cluster->world, "ps/%u is killed", index);
    if (!cluster->plan->replica.is_there) {
        cluster->oracle.has_crashed = true;
        cluster->oracle.forgot =
            cluster->oracle.forgot || (index == 0 && !cluster->plan->replica.apart);
    }
    sl_sim_ps_kill(&cluster->ps[index], silent);
    cluster->member.places[index].process = NULL;
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
        .network = cluster->world->network,
        .oracle = &cluster->oracle,
        .plan = plan,
        .secret = plan->secret ? cluster->secret.bytes : NULL,
        .secret_bytes = plan->secret ? cluster->secret.byte_count : 0,
        .host = host,
        .task = task,
        .joins = !observes && task >= plan->worker_count,
        .seed = sl_hash_random(&cluster->member.random),
        .offset_ns = draw_offset(cluster),
        .ended = observes ? sl_sim_final_ended : NULL,
        .ctx = cluster,
    };
    sl_sim_network_revive(cluster->world->network, host);
    cluster->member.places[host].start_ns = SL_CLOCK_NEVER;
    place->host = host;
    place->lives--;
    place->crashes = sl_sim_chance(&cluster->member.random, 500);
    place->worker = calloc(1, sizeof *place->worker);
    sl_assert(place->worker != NULL);
    sl_sim_worker_start(place->worker, &options);
    cluster->member.places[host].process = &place->worker->process;
    sl_sim_world_note(cluster->world, "worker/%d starts, client id after %u", (int)task,
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
    bool at_once = sl_sim_chance(&cluster->member.random, 500);
    uint64_t most_ns = at_once ? AT_ONCE_NS : cluster->plan->lease_ns * 3 / 2;
    uint64_t wait_ns = sl_hash_random(&cluster->member.random) % most_ns;
    cluster->member.places[place->host] = (struct sl_sim_world_place){
        .member = &cluster->member,
        .start_ns = again ? cluster->world->now_ns + wait_ns : SL_CLOCK_NEVER};
    free(place->worker);
    place->worker = NULL;
}

void sl_sim_cluster_kill_worker(struct sl_sim_cluster *cluster, struct sl_sim_place *place,
                                bool silent)
{
    sl_sim_world_note(cluster->world, "worker/%d is killed", (int)place->worker->options.task);
    sl_sim_worker_kill(place->worker, silent);
    vacate(cluster, place);
}

static void poll_place(struct sl_sim_cluster *cluster, struct sl_sim_place *place)
{
    struct sl_sim_worker *worker = place->worker;
    sl_sim_worker_poll(worker);
    if (worker->stage == SL_SIM_STAGE_DEAD) {
        sl_sim_world_note(cluster->world, "worker/%d has closed", (int)worker->options.task);
        vacate(cluster, place);
    } else if (worker->failed && worker->work_count == 0 && worker->stage != SL_SIM_STAGE_CLOSING) {
        if (place->crashes) {
            sl_sim_cluster_kill_worker(cluster, place, false);
        } else {
            sl_sim_worker_close(worker);
        }
    }
}

static void run_place(struct sl_sim_cluster *cluster, uint32_t host)
{
    struct sl_sim_place *place = place_of(cluster, host);
    if (place->worker == NULL) {
        if (cluster->member.places[host].start_ns <= cluster->world->now_ns) {
            const uint32_t first = sl_sim_plan_task_host(cluster->plan, 0);
            sl_sim_cluster_start_worker(cluster, place, host < first ? UINT32_MAX : host - first);
        }
    } else if (sl_sim_process_due(&place->worker->process) <= cluster->world->now_ns) {
        cluster->member.turns += sl_sim_process_step(&place->worker->process);
        poll_place(cluster, place);
    }
}

static void run_ps(struct sl_sim_cluster *cluster, uint32_t index)
{
    struct sl_sim_ps *ps = &cluster->ps[index];
    uint64_t *start_ns = &cluster->member.places[index].start_ns;
    if (ps->running && sl_sim_process_due(&ps->process) <= cluster->world->now_ns) {
        cluster->member.turns += sl_sim_process_step(&ps->process);
        if (ps->wiring.coordinator != NULL) {
            sl_sim_cluster_look_at_complete(cluster);
        }
        ps->failed = sl_sim_cluster_look_at_disk(cluster, index) || ps->failed;
    }
    if (ps->running && ps->is_over) {
        sl_sim_cluster_look_at_drained(cluster, index);
    }
    if (ps->running && ps->failed) {
        sl_sim_cluster_begin_anew(cluster, index);
        sl_sim_cluster_kill_ps(cluster, index, false);
        *start_ns = cluster->world->now_ns + SL_CLOCK_NS_PER_S;
    }
    if (!ps->running && *start_ns <= cluster->world->now_ns &&
        !sl_sim_cluster_look_at_drained(cluster, index)) {
        sl_sim_cluster_start_ps(cluster, index);
    }
}

/* The coordinator's host is the last, and its process runs behind those of the ps. */
static void run(struct sl_sim_member *member, uint32_t host)
{
    struct sl_sim_cluster *cluster = sl_sim_cluster_of(member);
    if (host < cluster->plan->ps_count) {
        run_ps(cluster, host);
    } else if (!sl_sim_cluster_is_scheduler(cluster, host)) {
        if (host == sl_sim_plan_observer_host(cluster->plan)) {
            sl_sim_cluster_run_scheduler(cluster);
        }
        run_place(cluster, host);
    }
}

/* One step of some pulls, whatever state the cluster is in. */
static void observe_once(struct sl_sim_cluster *cluster, uint32_t pulls)
{
    struct sl_sim_worker *worker = cluster->observer.worker;
    struct sl_sim_work *work = sl_sim_worker_begin(worker, 0);
    for (uint32_t i = 0; i < pulls; i++) {
        bool long_ones = pulls > 1; /* of the table that the plan has made long for it */
        sl_sim_work_pull(
            work, long_ones ? 0 : sl_sim_below(&cluster->member.random, cluster->plan->table_count),
            0);
    }
    sl_sim_worker_submit(worker, work, 100 + sl_sim_below(&cluster->member.random, 5000));
}

/* The next message of the observer's scan, or of another one, where tables forget rows. Returns
 * false when it asks for nothing. */
static bool scan_some(struct sl_sim_cluster *cluster)
{
    struct sl_sim_worker *worker = cluster->observer.worker;
    const uint64_t draw = sl_hash_key(cluster->plan->seed ^ cluster->world->now_ns);
    const uint32_t table = (uint32_t)(draw % cluster->plan->table_count);
    const bool is_asked = draw >> 32 & 1;
    if (!cluster->scan.is_open && is_asked &&
        cluster->plan->tables[table].kind == SL_TABLE_SPARSE &&
        sl_sim_oracle_forgets_rows(&cluster->oracle, table)) {
        sl_sim_scan_open(&cluster->scan, table, (uint32_t)(draw >> 40) % cluster->plan->shard_count,
                         cluster->world->now_ns);
    }
    if (!cluster->scan.is_open || !is_asked) {
        return false;
    }
    struct sl_sim_work *work = sl_sim_worker_begin(worker, 0);
    sl_sim_scan_add(&cluster->scan, work);
    sl_sim_worker_submit(worker, work, cluster->plan->step_timeout_ms);
    return true;
}

/* The observer looks at some table now and then; one that floods has more requests under way than
 * any shard gives it credit for. */
static void observe(struct sl_sim_cluster *cluster)
{
    cluster->observe_ns =
        cluster->world->now_ns +
        SL_CLOCK_NS_PER_US * sl_sim_below(&cluster->member.random, OBSERVE_US_MAX);
    const struct sl_sim_worker *worker = cluster->observer.worker;
    if (worker == NULL || !sl_sim_worker_is_idle(worker)) {
        return;
    }
    bool floods = cluster->plan->floods && cluster->flood_count < FLOODS_MAX &&
                  sl_sim_chance(&cluster->member.random, 200);
    cluster->flood_count += floods;
    if (!floods && scan_some(cluster)) {
        return;
    }
    for (uint32_t i = 0; i < (floods ? SL_SIM_WORKS_MAX : 1); i++) {
        observe_once(cluster, floods ? FLOOD_PULLS : 1);
    }
}

static void prepare(struct sl_sim_member *member)
{
    struct sl_sim_cluster *cluster = sl_sim_cluster_of(member);
    sl_sim_cluster_limit_backups(cluster);
    if (cluster->observe_ns <= cluster->world->now_ns) {
        observe(cluster);
    }
    if (cluster->views_ns <= cluster->world->now_ns) {
        cluster->views_ns = sl_sim_views_look(cluster);
    }
    member->look_ns =
        cluster->observe_ns < cluster->views_ns ? cluster->observe_ns : cluster->views_ns;
}

static void look(struct sl_sim_member *member)
{
    sl_sim_cluster_look_at_shards(sl_sim_cluster_of(member));
    sl_sim_cluster_look_at_members(sl_sim_cluster_of(member));
    sl_sim_evictions_check_memory(sl_sim_cluster_of(member));
}

static uint64_t soon(struct sl_sim_cluster *cluster)
{
    return cluster->world->now_ns +
           SL_CLOCK_NS_PER_US * sl_sim_below(&cluster->member.random, SPREAD_US);
}

bool sl_sim_cluster_start(struct sl_sim_cluster *cluster)
{
    cluster->views_ns = cluster->plan->has_views ? cluster->world->now_ns : SL_CLOCK_NEVER;
    for (uint32_t i = 0; i < cluster->plan->ps_at_start; i++) {
        cluster->member.places[i].start_ns = soon(cluster);
    }
    for (uint32_t i = cluster->plan->ps_at_start; i < cluster->plan->ps_count; i++) {
        cluster->memberships[i] = SL_SIM_PS_NONE;
    }
    sl_sim_cluster_start_scheduler(cluster);
    cluster->observer.lives = OBSERVER_LIVES;
    cluster->member.places[sl_sim_plan_observer_host(cluster->plan)].start_ns = soon(cluster);
    for (uint32_t task = 0; task < sl_sim_plan_tasks(cluster->plan); task++) {
        cluster->places[task] = (struct sl_sim_place){
            .host = sl_sim_plan_task_host(cluster->plan, task), .lives = cluster->plan->lives_max};
    }
    while (sl_sim_world_is_good(cluster->world) &&
           (cluster->observer.worker == NULL || !sl_sim_worker_is_idle(cluster->observer.worker))) {
        sl_sim_world_moment(cluster->world);
    }
    return sl_sim_world_is_good(cluster->world);
}

static bool is_over(const struct sl_sim_cluster *cluster)
{
    bool over = cluster->world->faults_are_over;
    for (uint32_t task = 0; over && task < sl_sim_plan_tasks(cluster->plan); task++) {
        const struct sl_sim_place *place = &cluster->places[task];
        over =
            place->worker == NULL && cluster->member.places[place->host].start_ns == SL_CLOCK_NEVER;
    }
    for (uint32_t i = 0; over && i < cluster->plan->ps_count; i++) {
        over = cluster->ps[i].running || cluster->memberships[i] == SL_SIM_PS_NONE;
    }
    over = over && (cluster->scheduler.running || !cluster->plan->replica.apart);
    return over;
}

static void train(struct sl_sim_cluster *cluster)
{
    for (uint32_t task = 0; task < cluster->plan->worker_count; task++) {
        cluster->member.places[cluster->places[task].host].start_ns = soon(cluster);
    }
    sl_sim_world_schedule_faults(&cluster->member);
    cluster->observe_ns = cluster->world->now_ns;
    do {
        sl_sim_world_moment(cluster->world);
    } while (sl_sim_world_is_good(cluster->world) && !is_over(cluster));
    cluster->observe_ns = SL_CLOCK_NEVER;
}

void sl_sim_cluster_create(struct sl_sim_cluster *cluster, const struct sl_sim_plan *plan,
                           struct sl_sim_world *world)
{
    static const struct sl_sim_member_actions actions = {
        .run = run,
        .moment = prepare,
        .look = look,
        .delays = sl_sim_faults_delays,
        .fault = sl_sim_faults_change,
        .frame = watch_frame,
        .ended = watch_ended,
    };
    *cluster = (struct sl_sim_cluster){.plan = plan,
                                       .world = world,
                                       .member = {.actions = &actions,
                                                  .breach = &cluster->oracle.breach,
                                                  .random = sl_hash_key(plan->seed ^ 0xc1u),
                                                  .options = &plan->network,
                                                  .faults = plan->faults,
                                                  .fault_count = plan->fault_count},
                                       .observe_ns = SL_CLOCK_NEVER,
                                       .views_ns = SL_CLOCK_NEVER};
    cluster->ps = calloc(plan->ps_count, sizeof *cluster->ps);
    cluster->places = calloc(sl_sim_plan_tasks(plan), sizeof *cluster->places);
    cluster->hurt_ns = calloc(plan->network.host_count, sizeof *cluster->hurt_ns);
    cluster->shards = calloc(plan->shard_count, sizeof *cluster->shards);
    sl_assert(cluster->ps != NULL && cluster->places != NULL && cluster->hurt_ns != NULL &&
              cluster->shards != NULL);
    sl_sim_cluster_make_disks(cluster);
    sl_sim_world_add(world, &cluster->member);
    sl_assert(cluster->member.first_host == 0);
    cluster->secret.byte_count = SECRET_BYTES;
    memset(cluster->secret.bytes, 's', SECRET_BYTES);
    sl_sim_oracle_init(&cluster->oracle, plan, world);
    cluster->oracle.acknowledged = sl_sim_cluster_acknowledged;
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
    sl_sim_scan_close(&cluster->scan);
    sl_sim_oracle_fini(&cluster->oracle);
    sl_sim_credits_fini(&cluster->credits);
    sl_sim_cluster_free_disks(cluster);
    free(cluster->ps);
    free(cluster->places);
    free(cluster->shards);
    sl_sim_records_fini(&cluster->records);
    free(cluster->hurt_ns);
}

/* The job of a run */

static struct sl_sim_plan job_plan;
static struct sl_sim_cluster job;

static void job_make(const struct sl_sim_choice *choice, struct sl_sim_world *world)
{
    sl_sim_plan_make(&job_plan, world->seed, choice);
    if (world->verbose) {
        sl_sim_plan_print(&job_plan);
    }
    sl_sim_cluster_create(&job, &job_plan, world);
    sl_sim_evictions_watch(&job);
}

static void job_run(void)
{
    if (sl_sim_cluster_start(&job)) {
        train(&job);
    }
    if (sl_sim_world_is_good(job.world)) {
        sl_sim_final_run(&job);
    }
}

static void job_fini(void)
{
    sl_sim_cluster_fini(&job);
    sl_sim_evictions_watch(NULL);
}

const struct sl_sim_kind sl_sim_kind_job = {.make = job_make, .run = job_run, .fini = job_fini};
