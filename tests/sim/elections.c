/* Elections: candidates for one key of a metastore, each with a held key and a record log,
 * unmodified. The leader changes records and acknowledges them to clients. Member of a world. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/store/record_log.h"
#include "tests/sim/random.h"
#include "tests/sim/transfer_store.h"
#include "tests/sim/world.h"
#include "tests/support/memory_store.h"

#define KEY         "jobs/a/leader"
#define PREFIX      "jobs/a/records/"
#define KEYS        12 /* of records */
#define CHANGES_MAX 65536
#define TEXT_BYTES  400 /* of a record */
#define TICK_NS     (200 * SL_CLOCK_NS_PER_MS)
#define BOUND_TTLS  10 /* after all faults there is a leader; a lost read of records takes 5 */
#define REST_NS     (5 * SL_CLOCK_NS_PER_S)

struct candidate {
    struct sl_sim_process process;
    struct sl_record_log log;
    struct sl_timer tick, wake, work;
    char name[32];
    uint32_t index;
    bool is_ready, is_leaving, has_left;
    uint64_t term, loaded[KEYS];
    uint64_t offset_ns, started_ns, away_ns;
    int64_t drift_permille; /* of its clock */
};

/* value 0: the record is removed; key KEYS: all are. */
struct change {
    uint32_t key;
    uint64_t value;
};

/* A message to a client: the first `count` changes of the term are acknowledged. */
struct acknowledgement {
    uint64_t term;
    uint32_t count;
};

enum stage { FAULTS, ELECTING, WORKING, RESTING, OVER };

static struct {
    struct sl_sim_member member;
    struct sl_sim_breach breach;
    struct sl_sim_network_options options;
    struct sl_sim_transfer_plan plan; /* of the store: its delays */
    struct sl_sim_transfer_store store;
    struct sl_sim_fault faults[SL_SIM_FAULTS_MAX];
    struct candidate candidates[SL_SIM_TRANSFER_STORE_HANDLES_MAX];
    enum stage stage;
    uint32_t ttl_s, stuck_permille, work_us_max, held_bytes_max;
    uint64_t ttl_ns, random;
    /* The newest term whose leader had loaded its records: what it loaded, and its changes. */
    uint64_t term, final_term, records[KEYS];
    struct change changes[CHANGES_MAX];
    uint32_t change_count, acknowledged;
    uint64_t value; /* of the last change */
} run;

static struct sl_sim_world_place *place_of(const struct candidate *candidate)
{
    return &run.member.places[candidate->index];
}

/* Oracles */

static void apply(uint64_t records[KEYS], const struct change *change)
{
    if (change->key == KEYS) {
        memset(records, 0, KEYS * sizeof records[0]);
    } else {
        records[change->key] = change->value;
    }
}

/* What the next leader has loaded: the records after all acknowledged changes, and perhaps some
 * more, in order. */
static void judge_loaded(const uint64_t loaded[KEYS])
{
    uint64_t records[KEYS];
    memcpy(records, run.records, sizeof records);
    for (uint32_t i = 0; i <= run.change_count; i++) {
        if (i >= run.acknowledged && memcmp(records, loaded, sizeof records) == 0) {
            return;
        }
        if (i < run.change_count) {
            apply(records, &run.changes[i]);
        }
    }
    sl_sim_fail(&run.breach, "records",
                "the records are not those after %u to %u changes of term %" PRIu64,
                run.acknowledged, run.change_count, run.term);
}

/* NULL: nobody leads. */
static const struct candidate *judge_leader(void)
{
    const struct candidate *leader = NULL;
    for (uint32_t i = 0; i < run.options.host_count; i++) {
        const struct candidate *candidate = &run.candidates[i];
        if (place_of(candidate)->process == NULL || !sl_record_log_leads(&candidate->log)) {
            continue;
        }
        if (leader != NULL) {
            sl_sim_fail(&run.breach, "one leader",
                        "%u leads in term %" PRIu64 ", and %u in term %" PRIu64, leader->index,
                        leader->term, i, candidate->term);
        }
        leader = candidate;
    }
    return leader;
}

static void acknowledged(const struct candidate *candidate, const struct acknowledgement *sent)
{
    if (sent->term != run.term || candidate->term != run.term) {
        sl_sim_fail(&run.breach, "acknowledged",
                    "%u acknowledges changes of term %" PRIu64 " during term %" PRIu64,
                    candidate->index, sent->term, run.term);
    }
    run.acknowledged = sent->count > run.acknowledged ? sent->count : run.acknowledged;
    sl_sim_world_note(run.member.world, "%u acknowledges %u changes", candidate->index,
                      sent->count);
}

/* A record is its number, and letters to a length that depends on it. */
static size_t make_text(uint64_t value, char text[TEXT_BYTES])
{
    const int length = snprintf(text, TEXT_BYTES, "%" PRIu64 ":", value);
    const size_t bytes = (size_t)length + value % (TEXT_BYTES - 32);
    memset(text + length, 'x', bytes - (size_t)length);
    return bytes;
}

static void load_record(const char *key, const struct sl_metastore_item *item,
                        uint64_t records[KEYS])
{
    char text[TEXT_BYTES];
    const uint64_t value = strtoull((const char *)item->value, NULL, 10);
    const uint32_t index = (uint32_t)strtoul(key, NULL, 10);
    if (value == 0 || index >= KEYS || make_text(value, text) != item->value_bytes ||
        memcmp(text, item->value, item->value_bytes) != 0) {
        sl_sim_fail(&run.breach, "whole", "record %s is not whole", key);
        return;
    }
    records[index] = value;
}

/* Callbacks of a log */

static uint64_t on_now(void *ctx)
{
    return sl_sim_process_now(&((struct candidate *)ctx)->process);
}

static void on_wake(void *ctx)
{
    struct candidate *candidate = ctx;
    sl_reactor_arm(candidate->process.reactors[0], &candidate->wake, 0);
}

static void on_won(void *ctx, uint64_t term)
{
    struct candidate *candidate = ctx;
    const bool fails = run.stage == FAULTS && sl_sim_chance(&run.random, 20);
    sl_sim_world_note(run.member.world, "%u has won term %" PRIu64, candidate->index, term);
    candidate->term = term;
    memset(candidate->loaded, 0, sizeof candidate->loaded);
    sl_record_log_begin(&candidate->log, term, fails ? SL_ERR_NO_MEMORY : 0);
}

static void on_lost(void *ctx, const char *why)
{
    struct candidate *candidate = ctx;
    sl_sim_world_note(run.member.world, "%u has lost term %" PRIu64 ": %s", candidate->index,
                      candidate->term, why);
    candidate->is_ready = false;
    sl_record_log_end(&candidate->log);
}

static void on_seen(void *ctx, const struct sl_metastore_item *item)
{
}

static void on_trouble(void *ctx, int err, const char *reason)
{
}

static void on_loaded(void *ctx, const char *key, const struct sl_metastore_item *item)
{
    load_record(key, item, ((struct candidate *)ctx)->loaded);
}

/* A candidate that stood still may load records in a term that is over: then it does not lead. */
static void on_ready(void *ctx, bool anew)
{
    struct candidate *candidate = ctx;
    candidate->is_ready = true;
    sl_sim_world_note(run.member.world, "%u has loaded term %" PRIu64, candidate->index,
                      candidate->term);
    if (candidate->term > run.term) {
        judge_loaded(candidate->loaded);
        memcpy(run.records, candidate->loaded, sizeof run.records);
        run.term = candidate->term;
        run.change_count = run.acknowledged = 0;
    } else if (sl_record_log_leads(&candidate->log)) {
        sl_sim_fail(&run.breach, "terms", "%u leads in term %" PRIu64 " after term %" PRIu64,
                    candidate->index, candidate->term, run.term);
    }
}

static void on_send(void *ctx, uint64_t to, const uint8_t *message, size_t bytes)
{
    struct acknowledgement sent;
    sl_assert(bytes == sizeof sent);
    memcpy(&sent, message, bytes);
    acknowledged(ctx, &sent);
}

static void on_left(void *ctx)
{
    ((struct candidate *)ctx)->has_left = true;
}

/* Work of a leader */

static void change_record(struct candidate *candidate)
{
    struct change change = {.key = sl_sim_below(&run.random, KEYS), .value = ++run.value};
    char key[8], text[TEXT_BYTES];
    const uint32_t draw = sl_sim_below(&run.random, 100);
    if (draw < 2) {
        change.key = KEYS;
    }
    if (draw < 35) {
        change.value = 0;
    }
    (void)snprintf(key, sizeof key, "%02" PRIu32, change.key);
    sl_record_log_change(&candidate->log, change.key == KEYS ? "" : key,
                         change.value == 0 ? NULL : text,
                         change.value == 0 ? 0 : make_text(change.value, text));
    if (candidate->term == run.term) {
        run.changes[run.change_count++] = change;
    }
}

static void acknowledge(struct candidate *candidate)
{
    const struct acknowledgement message = {.term = candidate->term, .count = run.change_count};
    if (!sl_record_log_leads(&candidate->log)) {
        return;
    }
    if (!sl_record_log_waits(&candidate->log)) {
        acknowledged(candidate, &message);
        return;
    }
    uint8_t *held = sl_record_log_hold(&candidate->log, 0, sizeof message);
    if (held != NULL) {
        memcpy(held, &message, sizeof message);
    }
}

static void work(struct sl_timer *timer, uint64_t now_ns)
{
    struct candidate *candidate = SL_CONTAINER_OF(timer, struct candidate, work);
    const bool is_burst = sl_sim_chance(&run.random, 30); /* of several writes */
    const uint32_t count = 1 + sl_sim_below(&run.random, is_burst ? 250 : 4);
    sl_reactor_arm(candidate->process.reactors[0], timer,
                   SL_CLOCK_NS_PER_US * sl_sim_between(&run.random, 1000, run.work_us_max));
    if (candidate->is_ready && !candidate->is_leaving && run.stage != RESTING &&
        run.change_count + count <= CHANGES_MAX) {
        for (uint32_t i = 0; i < count; i++) {
            change_record(candidate);
        }
        acknowledge(candidate);
    }
}

/* Processes */

static void tick(struct sl_timer *timer, uint64_t now_ns)
{
    struct candidate *candidate = SL_CONTAINER_OF(timer, struct candidate, tick);
    sl_reactor_arm(candidate->process.reactors[0], timer, TICK_NS);
    sl_record_log_tick(&candidate->log);
}

static void woken(struct sl_timer *timer, uint64_t now_ns)
{
    sl_record_log_run(&SL_CONTAINER_OF(timer, struct candidate, wake)->log);
}

static void start(uint32_t index)
{
    struct candidate *candidate = &run.candidates[index];
    *candidate =
        (struct candidate){.index = index,
                           .tick.run = tick,
                           .wake.run = woken,
                           .work.run = work,
                           .started_ns = run.member.world->now_ns,
                           .offset_ns = SL_CLOCK_NS_PER_S * sl_sim_between(&run.random, 600, 1000),
                           .drift_permille = (int64_t)sl_sim_below(&run.random, 161) - 80};
    sl_sim_world_note(run.member.world, "%u starts", index);
    (void)snprintf(candidate->name, sizeof candidate->name, "host:%" PRIu32, index);
    sl_sim_process_init(&candidate->process, run.member.world->network, index, "candidate", 1,
                        sl_hash_random(&run.random), candidate->offset_ns, 0);
    struct sl_reactor *reactor = candidate->process.reactors[0];
    const struct sl_record_log_options options = {
        .key = {.metastore = sl_sim_transfer_store_open(&run.store, index, reactor),
                .key = KEY,
                .value = candidate->name,
                .campaigns = true,
                .ttl_s = run.ttl_s,
                .poll_ns = SL_CLOCK_NS_PER_S,
                .now_ns = on_now,
                .won = on_won,
                .lost = on_lost,
                .seen = on_seen,
                .trouble = on_trouble,
                .ctx = candidate},
        .prefix = PREFIX,
        .held_bytes_max = run.held_bytes_max,
        .wake = on_wake,
        .loaded = on_loaded,
        .ready = on_ready,
        .send = on_send};
    sl_record_log_init(&candidate->log, &options);
    sl_reactor_arm(reactor, &candidate->tick, 0);
    sl_reactor_arm(reactor, &candidate->work, 0);
    sl_sim_process_look(&candidate->process);
    *place_of(candidate) = (struct sl_sim_world_place){
        .process = &candidate->process, .start_ns = SL_CLOCK_NEVER, .member = &run.member};
}

/* Another process starts there after that time; SL_CLOCK_NEVER: none. */
static void end(struct candidate *candidate, uint64_t away_ns)
{
    struct sl_sim_world_place *place = place_of(candidate);
    struct sl_reactor *reactor = candidate->process.reactors[0];
    if (place->process == NULL) {
        return;
    }
    sl_sim_world_note(run.member.world, "%u ends", candidate->index);
    sl_record_log_close(&candidate->log);
    sl_sim_transfer_store_cancel(&run.store, candidate->index);
    sl_reactor_disarm(reactor, &candidate->tick);
    sl_reactor_disarm(reactor, &candidate->wake);
    sl_reactor_disarm(reactor, &candidate->work);
    sl_sim_process_fini(&candidate->process);
    place->process = NULL;
    place->start_ns =
        away_ns == SL_CLOCK_NEVER ? SL_CLOCK_NEVER : run.member.world->now_ns + away_ns;
}

static void run_candidate(struct sl_sim_member *member, uint32_t host)
{
    struct candidate *candidate = &run.candidates[host];
    const struct sl_sim_world_place *place = &member->places[host];
    if (place->process == NULL && place->start_ns <= member->world->now_ns) {
        start(host);
    } else if (place->process != NULL &&
               sl_sim_process_due(place->process) <= member->world->now_ns) {
        member->turns += sl_sim_process_step(place->process);
        if (candidate->has_left) {
            end(candidate, candidate->away_ns);
        }
    }
}

static void fault(struct sl_sim_member *member, const struct sl_sim_fault *fault, bool begins,
                  uint64_t broken_ns)
{
    struct candidate *candidate = &run.candidates[fault->a];
    const bool runs = place_of(candidate)->process != NULL;
    if (fault->kind == SL_SIM_FAULT_STORE && fault->all) {
        run.store.outages += begins ? 1 : UINT32_MAX;
    } else if (fault->kind == SL_SIM_FAULT_STORE) {
        run.store.handles[fault->a].is_cut = begins;
    } else if (fault->kind == SL_SIM_FAULT_JUMP && begins) {
        candidate->offset_ns += fault->duration_ns;
    } else if (fault->kind == SL_SIM_FAULT_KILL_PS && begins && runs) {
        end(candidate, fault->duration_ns);
    } else if (fault->kind == SL_SIM_FAULT_LEAVE && begins && runs && !candidate->is_leaving) {
        candidate->is_leaving = true;
        candidate->away_ns = fault->duration_ns;
        sl_record_log_resign(&candidate->log, 2 * SL_CLOCK_NS_PER_S, on_left);
    }
}

/* Run */

static void moment(struct sl_sim_member *member)
{
    for (uint32_t i = 0; i < run.options.host_count; i++) {
        struct candidate *candidate = &run.candidates[i];
        const int64_t ran_ns = (int64_t)(member->world->now_ns - candidate->started_ns);
        candidate->process.offset_ns =
            candidate->offset_ns + (uint64_t)(ran_ns * candidate->drift_permille / 1000);
    }
    sl_sim_transfer_store_advance(&run.store);
}

static bool all_run(void)
{
    bool all = true;
    for (uint32_t i = 0; i < run.options.host_count; i++) {
        all = all && run.member.places[i].process != NULL && !run.candidates[i].is_leaving;
    }
    return all;
}

/* The store has what the leader has, also after all late requests. */
static void judge_store(void)
{
    uint64_t records[KEYS] = {0};
    char key[SL_METASTORE_KEY_BYTES];
    for (uint32_t i = 0; i < KEYS; i++) {
        (void)snprintf(key, sizeof key, PREFIX "%02" PRIu32, i);
        const struct sl_metastore_item *item = memory_store_look(run.store.memory, key);
        if (item != NULL) {
            load_record(key + strlen(PREFIX), item, records);
        }
    }
    run.acknowledged = run.change_count;
    judge_loaded(records);
}

static void look(struct sl_sim_member *member)
{
    const bool is_due = member->look_ns <= member->world->now_ns;
    const struct candidate *leader = judge_leader();
    if (run.stage == FAULTS && member->world->faults_are_over && all_run()) {
        run.stage = ELECTING;
        run.store.is_calm = true;
        member->look_ns = member->world->now_ns + BOUND_TTLS * run.ttl_ns;
        sl_sim_world_note(member->world, "all faults are over");
    } else if (is_due && leader == NULL) {
        member->look_ns = SL_CLOCK_NEVER;
        sl_sim_fail(&run.breach, "progress", "nobody leads %u s after all faults",
                    BOUND_TTLS * run.ttl_s);
    } else if (is_due && run.stage == ELECTING) {
        run.stage = WORKING;
        run.final_term = run.term;
        member->look_ns = member->world->now_ns + run.store.stuck_ns_max;
    } else if (is_due && run.stage == WORKING) {
        run.stage = RESTING;
        member->look_ns = member->world->now_ns + REST_NS;
    } else if (is_due) {
        run.stage = OVER;
        if (run.term != run.final_term || sl_record_log_waits(&leader->log)) {
            sl_sim_fail(&run.breach, "progress", "the leader of term %" PRIu64 " does not stay",
                        run.final_term);
        }
        judge_store();
    }
}

static void draw_faults(uint32_t allowed)
{
    static const enum sl_sim_fault_kind kinds[] = {SL_SIM_FAULT_PAUSE, SL_SIM_FAULT_JUMP,
                                                   SL_SIM_FAULT_KILL_PS, SL_SIM_FAULT_LEAVE,
                                                   SL_SIM_FAULT_STORE};
    const uint32_t count = sl_sim_below(&run.random, 20);
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_sim_fault fault = {
            .kind = kinds[sl_sim_below(&run.random, sizeof kinds / sizeof kinds[0])],
            .at_ns = sl_hash_random(&run.random) % (20 * run.ttl_ns),
            .duration_ns = sl_hash_random(&run.random) % (3 * run.ttl_ns),
            .a = sl_sim_below(&run.random, run.options.host_count),
            .b = UINT32_MAX,
            .all = sl_sim_chance(&run.random, 300)};
        if ((allowed & 1U << fault.kind) != 0) {
            run.faults[run.member.fault_count++] = fault;
        }
    }
}

static void make(const struct sl_sim_choice *choice, struct sl_sim_world *world)
{
    static const struct sl_sim_member_actions actions = {
        .run = run_candidate, .moment = moment, .look = look, .fault = fault};
    static const uint32_t delays_us[] = {2000, 50000, 300000};
    static const uint32_t stuck_permille[] = {0, 20, 200};
    static const uint32_t work_us[] = {5000, 100000, 2000000};
    memset(&run, 0, sizeof run);
    run.random = sl_hash_key(world->seed ^ 0xe1ec7);
    run.member = (struct sl_sim_member){.actions = &actions,
                                        .breach = &run.breach,
                                        .random = run.random,
                                        .options = &run.options,
                                        .faults = run.faults};
    run.options = (struct sl_sim_network_options){
        .seed = world->seed, .bytes_per_us = 1000, .window_bytes = UINT32_MAX};
    run.options.host_count = 3 + sl_sim_below(&run.random, 3);
    run.ttl_s = 2 + sl_sim_below(&run.random, 9);
    run.ttl_ns = run.ttl_s * SL_CLOCK_NS_PER_S;
    run.work_us_max = work_us[sl_sim_below(&run.random, 3)];
    run.held_bytes_max = sl_sim_chance(&run.random, 200) ? 8000 : 0;
    const bool has_store_faults = (choice->faults & 1U << SL_SIM_FAULT_STORE) != 0;
    run.plan.seed = world->seed;
    run.plan.store_delay_us = delays_us[sl_sim_below(&run.random, 3)];
    run.plan.store_late_permille =
        has_store_faults && sl_sim_chance(&run.random, 500) ? sl_sim_below(&run.random, 200) : 0;
    run.plan.store_late_us = 1000000 * run.ttl_s;
    run.stuck_permille = has_store_faults ? stuck_permille[sl_sim_below(&run.random, 3)] : 0;
    draw_faults(choice->faults);
    sl_sim_world_add(world, &run.member);
}

static void begin(void)
{
    sl_sim_transfer_store_init(&run.store, &run.plan, run.member.world->network);
    run.store.stuck_permille = run.stuck_permille;
    run.store.stuck_ns_max = sl_sim_between(&run.random, 1, 6 * run.ttl_ns);
    sl_sim_world_start(&run.member);
}

static void run_all(void)
{
    while (run.stage != OVER && sl_sim_world_is_good(run.member.world)) {
        sl_sim_world_moment(run.member.world);
    }
    for (uint32_t i = 0; i < run.options.host_count; i++) {
        end(&run.candidates[i], SL_CLOCK_NEVER);
    }
}

static void fini(void)
{
    sl_sim_transfer_store_fini(&run.store);
}

const struct sl_sim_kind sl_sim_kind_elections = {
    .make = make, .begin = begin, .run = run_all, .fini = fini};
