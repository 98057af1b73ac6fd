#include "tests/sim/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "net/dpdk/wire.h"
#include "net/transport_rma.h"
#include "tests/sim/random.h"

#define LIMIT_NS  (1800 * SL_CLOCK_NS_PER_S) /* of a run */
#define SPREAD_NS (5 * SL_CLOCK_NS_PER_MS)   /* applications start within this */
#define DELAY_NS  (50 * SL_CLOCK_NS_PER_MS)  /* of a fault that begins later */

void sl_sim_fail(struct sl_sim_breach *breach, const char *of, const char *format, ...)
{
    if (breach->what[0] != '\0') {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)snprintf(breach->of, sizeof breach->of, "%s", of);
    (void)vsnprintf(breach->what, sizeof breach->what, format, args);
    va_end(args);
}

bool sl_sim_world_is_good(const struct sl_sim_world *world)
{
    bool is_good = true;
    for (uint32_t i = 0; i < world->member_count; i++) {
        is_good = is_good && world->members[i]->breach->what[0] == '\0';
    }
    return is_good;
}

static void mix(struct sl_sim_world *world, uint64_t value)
{
    world->trace = sl_hash_key(world->trace ^ value) + world->now_ns;
}

void sl_sim_world_note(struct sl_sim_world *world, const char *format, ...)
{
    char line[400];
    va_list args;
    va_start(args, format);
    const int bytes = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    mix(world, sl_hash_bytes(line, (size_t)bytes < sizeof line ? (size_t)bytes : sizeof line, 0));
    if (world->verbose) {
        printf("%10" PRIu64 " %s\n", sl_sim_us(world->now_ns), line);
    }
}

/* Events of the network */

static void count_sent(struct sl_sim_world *world, uint32_t host, uint32_t bytes)
{
    struct sl_sim_member *member = world->places[host].member;
    if (member->actions->sent != NULL) {
        member->actions->sent(member, host - member->first_host, bytes);
    }
}

static void watch_frame(void *ctx, const struct sl_sim_frame *frame)
{
    static const char *const types[] = {"", "control", "request", "reply", "credit", "data"};
    struct sl_sim_world *world = ctx;
    const struct sl_frame *header = &frame->header;
    mix(world, frame->pair * 4 + frame->delivered * 2 + frame->by_connector);
    mix(world, header->request_id + ((uint64_t)header->payload_bytes << 32));
    mix(world, header->status * 8U + header->type);
    world->frames++;
    if (!frame->delivered && (header->type == SL_FRAME_DATA || header->type == SL_FRAME_REPLY)) {
        count_sent(world, frame->from, header->payload_bytes);
    }
    struct sl_sim_member *member = world->places[frame->from].member;
    if (member->actions->frame != NULL) {
        member->actions->frame(member, frame);
    }
    if (world->verbose) {
        printf("%10" PRIu64 " #%" PRIu64 " host %u %s host %u: %s id %" PRIu64
               " %u bytes status %u\n",
               sl_sim_us(world->now_ns), frame->pair, frame->from,
               frame->delivered ? "has from" : "sends to", frame->to, types[header->type],
               header->request_id, header->payload_bytes, header->status);
    }
}

static void watch_operation(void *ctx, uint32_t from, uint32_t to, int kind, uint32_t bytes)
{
    struct sl_sim_world *world = ctx;
    world->operations++;
    if (kind == SL_TRANSPORT_RMA_WRITE) {
        count_sent(world, from, bytes);
    }
    sl_sim_world_note(world, "%u => %u: operation %d, %u bytes", from, to, kind, bytes);
}

static void watch_ended(void *ctx, uint32_t host, uint64_t pair, bool connector, int err)
{
    struct sl_sim_world *world = ctx;
    sl_sim_world_note(world, "#%" PRIu64 " ends on host %u (%s): %s", pair, host,
                      connector ? "connector" : "acceptor", sl_err_name(err));
    struct sl_sim_member *member = world->places[host].member;
    if (member->actions->ended != NULL) {
        member->actions->ended(member, host - member->first_host);
    }
}

static void watch_wake(void *ctx, uint32_t host, uint64_t at_ns)
{
    const struct sl_sim_world *world = ctx;
    if (world->places[host].process != NULL) {
        sl_sim_process_wake(world->places[host].process, at_ns);
    }
}

static void watch_packet(void *ctx, const struct sl_sim_passage *passage)
{
    static const char *const kinds[16] = {"",       "open",  "retry", "accept", "refuse", "data",
                                          "bundle", "probe", "fin",   "ack",    "reset"};
    struct sl_sim_world *world = ctx;
    struct sl_dpdk_parsed parsed = {.header.kind = 0};
    (void)sl_dpdk_parse(passage->bytes, passage->length, true, &parsed);
    /* The rest has challenges in it, which the system draws: net/session/auth.h. */
    mix(world, sl_hash_bytes(&parsed.header, offsetof(struct sl_dpdk_header, body_bytes),
                             passage->at_ns + passage->length));
    world->packets++;
    if (!world->verbose) {
        return;
    }
    const struct sl_dpdk_header *header = &parsed.header;
    printf("%10" PRIu64 " packet of host %u to host %u, %u bytes, %s: %s of %016" PRIx64
           ", number %u, behind %u, has all before %u, grants %u, message %u at %u, %u words\n",
           sl_sim_us(world->now_ns), passage->from, passage->to, passage->length,
           passage->at_ns == SL_CLOCK_NEVER ? passage->fate
           : passage->fate[0] != '\0'       ? passage->fate
                                            : "well",
           kinds[header->kind & 15], header->connection, header->sequence, header->behind,
           header->acknowledged, header->granted, header->message, header->offset,
           parsed.sack_words);
}

static void watch_breach(void *ctx, const char *what)
{
    sl_sim_fail(((struct sl_sim_world *)ctx)->members[0]->breach, "transport", "%s", what);
}

static void watch_cut_off(void *ctx, const char *peer)
{
    sl_sim_fail(((struct sl_sim_world *)ctx)->members[0]->breach, "getting on",
                "a server closes its connection from %s in the middle of a frame that gets on",
                peer);
}

/* Processes */

static void start(struct sl_sim_member *member, uint32_t host)
{
    const uint64_t seed = sl_hash_random(&member->random);
    const uint64_t offset_ns = sl_hash_random(&member->random) % (1000 * SL_CLOCK_NS_PER_S);
    sl_sim_network_revive(member->world->network, member->first_host + host);
    member->places[host].start_ns = SL_CLOCK_NEVER;
    struct sl_sim_app *app = member->actions->start(member, host, seed, offset_ns);
    member->places[host].app = app;
    member->places[host].process = &app->process;
    sl_sim_process_look(&app->process);
    sl_sim_world_note(member->world, "%u starts", member->first_host + host);
}

void sl_sim_world_kill_app(struct sl_sim_member *member, uint32_t host, bool silent)
{
    sl_sim_world_note(member->world, "%u is killed", member->first_host + host);
    sl_sim_app_kill(member->places[host].app, silent);
    member->places[host].app = NULL;
    member->places[host].process = NULL;
}

static void run_place(struct sl_sim_member *member, uint32_t host)
{
    struct sl_sim_app *app = member->places[host].app;
    if (app == NULL && member->places[host].start_ns <= member->world->now_ns) {
        start(member, host);
    } else if (app != NULL && sl_sim_app_due(app) <= member->world->now_ns) {
        member->turns += sl_sim_app_step(app);
        if (member->actions->stepped != NULL) {
            member->actions->stepped(member, host);
        }
        if (sl_sim_app_ended(app)) {
            sl_sim_world_note(member->world, "%u has ended", member->first_host + host);
            app->actions->ended(app);
            sl_sim_app_fini(app);
            member->places[host].app = NULL;
            member->places[host].process = NULL;
        } else if (member->actions->stops != NULL && member->actions->stops(member, host)) {
            sl_sim_world_kill_app(member, host, true);
            member->places[host].start_ns =
                member->world->now_ns + sl_hash_random(&member->random) % (2 * SL_CLOCK_NS_PER_S);
        }
    }
}

/* Faults */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void block_pair(struct sl_sim_world *world, const struct sl_sim_fault *fault, uint32_t a,
                       uint32_t b, bool begins)
{
    void (*change)(struct sl_sim_network * network, uint32_t from, uint32_t to, uint32_t rail) =
        begins ? sl_sim_network_block : sl_sim_network_heal;
    if (a != b) {
        change(world->network, a, b, fault->rail);
    }
    if (a != b && !fault->one_way) {
        change(world->network, b, a, fault->rail);
    }
}

/* All others: also those of other members. */
static void block(struct sl_sim_member *member, const struct sl_sim_fault *fault, bool begins)
{
    struct sl_sim_world *world = member->world;
    const bool is_pair = fault->b != UINT32_MAX;
    const uint32_t a = member->first_host + fault->a;
    const uint32_t last = is_pair ? member->first_host + fault->b : world->options.host_count - 1;
    for (uint32_t b = is_pair ? last : 0; b <= last; b++) {
        block_pair(world, fault, a, b, begins);
    }
}

static void pause_process(struct sl_sim_process *process, uint64_t now_ns, uint64_t duration_ns)
{
    const uint64_t until_ns = now_ns + duration_ns;
    const uint64_t from_ns = process->paused_until_ns > now_ns ? process->paused_until_ns : now_ns;
    process->paused_ns += until_ns > from_ns ? until_ns - from_ns : 0;
    process->paused_until_ns = until_ns > from_ns ? until_ns : from_ns;
}

static void change_process(struct sl_sim_process *process, uint64_t now_ns,
                           const struct sl_sim_fault *fault, bool begins)
{
    if (fault->kind == SL_SIM_FAULT_PAUSE && begins) {
        pause_process(process, now_ns, fault->duration_ns);
    } else if (fault->kind == SL_SIM_FAULT_SLOW) {
        process->gap_ns = begins ? fault->amount * SL_CLOCK_NS_PER_US : process->usual_gap_ns;
    } else if (fault->kind == SL_SIM_FAULT_JUMP && begins) {
        process->offset_ns += fault->duration_ns;
        sl_sim_process_look(process);
    }
}

static void change_app(struct sl_sim_member *member, const struct sl_sim_fault *fault)
{
    struct sl_sim_world_place *place = &member->places[fault->a];
    if (fault->kind == SL_SIM_FAULT_KILL_PS) {
        sl_sim_world_kill_app(member, fault->a, fault->silent);
        place->start_ns = member->world->now_ns + fault->duration_ns;
    } else if (fault->kind == SL_SIM_FAULT_LEAVE) {
        place->app->stage = SL_SIM_APP_LEAVING;
        place->start_ns = member->world->now_ns + fault->duration_ns;
    }
}

static void change(struct sl_sim_member *member, const struct sl_sim_fault *fault, bool begins)
{
    struct sl_sim_world *world = member->world;
    const uint32_t host = member->first_host + fault->a;
    uint64_t broken_ns = 0;
    if (fault->kind == SL_SIM_FAULT_PARTITION) {
        block(member, fault, begins);
    } else if (fault->kind == SL_SIM_FAULT_REFUSE) {
        sl_sim_network_refuse(world->network, host, begins);
    } else if (fault->kind == SL_SIM_FAULT_BREAK && begins) {
        broken_ns = sl_sim_network_break(world->network, host, fault->all, fault->amount);
    } else if (world->places[host].process != NULL) {
        change_process(world->places[host].process, world->now_ns, fault, begins);
    }
    if (world->places[host].app != NULL && begins) {
        change_app(member, fault);
    }
    if (member->actions->fault != NULL) {
        member->actions->fault(member, fault, begins, broken_ns);
    }
}

/* Returns when the fault begins or ends next. */
static uint64_t run_fault(struct sl_sim_member *member, uint32_t index)
{
    const struct sl_sim_fault *fault = &member->faults[index];
    const uint64_t now_ns = member->world->now_ns;
    uint64_t *begin_ns = &member->fault_begin_ns[index], *end_ns = &member->fault_end_ns[index];
    if (*begin_ns <= now_ns && member->actions->delays != NULL &&
        member->actions->delays(member, fault)) {
        *begin_ns = now_ns + DELAY_NS;
    } else if (*begin_ns <= now_ns) {
        *begin_ns = SL_CLOCK_NEVER;
        *end_ns = now_ns + fault->duration_ns;
        sl_sim_world_note(member->world, "fault %u begins: kind %d", index, (int)fault->kind);
        change(member, fault, true);
    } else if (*end_ns <= now_ns) {
        *end_ns = SL_CLOCK_NEVER;
        sl_sim_world_note(member->world, "fault %u ends", index);
        change(member, fault, false);
    }
    return sooner(*begin_ns, *end_ns);
}

static uint64_t run_faults(struct sl_sim_world *world)
{
    uint64_t next_ns = SL_CLOCK_NEVER;
    world->faults_are_over = true;
    for (uint32_t m = 0; m < world->member_count; m++) {
        struct sl_sim_member *member = world->members[m];
        for (uint32_t i = 0; i < member->fault_count; i++) {
            next_ns = sooner(next_ns, run_fault(member, i));
        }
        world->faults_are_over = world->faults_are_over && member->has_begun;
    }
    world->faults_are_over = world->faults_are_over && next_ns == SL_CLOCK_NEVER;
    return next_ns;
}

/* Stages */

bool sl_sim_member_all_are_in(const struct sl_sim_member *member, uint32_t stage)
{
    bool are = true;
    for (uint32_t i = 0; i < member->options->host_count; i++) {
        const struct sl_sim_app *app = member->places[i].app;
        are = are && app != NULL && app->stage == stage;
    }
    return are;
}

void sl_sim_member_enter(struct sl_sim_member *member, uint32_t stage)
{
    sl_sim_world_note(member->world, "stage %u", stage);
    for (uint32_t i = 0; i < member->options->host_count; i++) {
        member->places[i].app->stage = stage;
    }
}

/* Run */

/* applications: of members whose processes those are; else of any. */
static bool goes_on(const struct sl_sim_world *world, bool applications)
{
    bool some = false;
    for (uint32_t i = 0; i < world->options.host_count; i++) {
        const struct sl_sim_world_place *place = &world->places[i];
        some = some || ((place->process != NULL || place->start_ns != SL_CLOCK_NEVER) &&
                        (!applications ||
                         (place->member->actions->start != NULL && !place->member->is_background)));
    }
    return some && sl_sim_world_is_good(world);
}

static uint64_t due(const struct sl_sim_world_place *place)
{
    return place->app != NULL       ? sl_sim_app_due(place->app)
           : place->process != NULL ? sl_sim_process_due(place->process)
                                    : place->start_ns;
}

void sl_sim_world_moment(struct sl_sim_world *world)
{
    uint64_t next_ns = run_faults(world);
    for (uint32_t m = 0; m < world->member_count; m++) {
        if (world->members[m]->actions->moment != NULL) {
            world->members[m]->actions->moment(world->members[m]);
        }
        next_ns = sooner(next_ns, world->members[m]->look_ns);
    }
    for (uint32_t i = 0; i < world->options.host_count; i++) {
        struct sl_sim_member *member = world->places[i].member;
        (member->actions->run != NULL ? member->actions->run : run_place)(member,
                                                                          i - member->first_host);
    }
    for (uint32_t m = 0; m < world->member_count; m++) {
        world->members[m]->actions->look(world->members[m]);
    }
    for (uint32_t i = 0; i < world->options.host_count; i++) { /* what one did may wake another */
        next_ns = sooner(next_ns, due(&world->places[i]));
    }
    next_ns = sooner(next_ns, sl_sim_network_due(world->network));
    if (next_ns == SL_CLOCK_NEVER ? goes_on(world, false) : next_ns > LIMIT_NS) {
        sl_sim_fail(world->members[0]->breach, "progress",
                    "nothing more happens, and the run is not over");
        return;
    }
    world->now_ns =
        next_ns > world->now_ns && next_ns != SL_CLOCK_NEVER ? next_ns : world->now_ns + 1;
    sl_sim_network_advance(world->network, world->now_ns);
}

void sl_sim_world_add(struct sl_sim_world *world, struct sl_sim_member *member)
{
    sl_assert(world->member_count < SL_SIM_WORLD_MEMBERS_MAX);
    const uint32_t first_host = world->options.host_count;
    world->options = *member->options;
    world->members[world->member_count++] = member;
    world->options.host_count = first_host + member->options->host_count;
    member->world = world;
    member->first_host = first_host;
    member->look_ns = SL_CLOCK_NEVER;
    for (uint32_t i = 0; i < SL_SIM_FAULTS_MAX; i++) {
        member->fault_begin_ns[i] = member->fault_end_ns[i] = SL_CLOCK_NEVER;
    }
}

void sl_sim_world_create(struct sl_sim_world *world)
{
    const struct sl_sim_watch watch = {.frame = watch_frame,
                                       .operation = watch_operation,
                                       .ended = watch_ended,
                                       .wake = watch_wake,
                                       .packet = watch_packet,
                                       .breach = watch_breach,
                                       .cut_off = watch_cut_off,
                                       .ctx = world};
    world->places = calloc(world->options.host_count, sizeof *world->places);
    sl_assert(world->places != NULL);
    world->network = sl_sim_network_create(&world->options, &watch);
    world->now_ns = sl_sim_network_now(world->network);
    for (uint32_t m = 0; m < world->member_count; m++) {
        struct sl_sim_member *member = world->members[m];
        member->places = &world->places[member->first_host];
        for (uint32_t i = 0; i < member->options->host_count; i++) {
            member->places[i] =
                (struct sl_sim_world_place){.start_ns = SL_CLOCK_NEVER, .member = member};
        }
    }
}

void sl_sim_world_schedule_faults(struct sl_sim_member *member)
{
    member->has_begun = true;
    member->world->faults_are_over = false;
    for (uint32_t i = 0; i < member->fault_count; i++) {
        member->fault_begin_ns[i] = member->world->now_ns + member->faults[i].at_ns;
    }
}

void sl_sim_world_start(struct sl_sim_member *member)
{
    for (uint32_t i = 0; i < member->options->host_count; i++) {
        member->places[i].start_ns =
            member->world->now_ns + sl_hash_random(&member->random) % SPREAD_NS;
    }
    sl_sim_world_schedule_faults(member);
    for (uint32_t i = 0; i < member->fault_count; i++) {
        member->fault_begin_ns[i] += SPREAD_NS;
    }
}

void sl_sim_world_run(struct sl_sim_world *world)
{
    while (goes_on(world, true)) {
        sl_sim_world_moment(world);
    }
}

bool sl_sim_world_report(const struct sl_sim_world *world)
{
    uint64_t turns = 0;
    bool is_good = true;
    for (uint32_t m = 0; m < world->member_count; m++) {
        const struct sl_sim_breach *breach = world->members[m]->breach;
        turns += world->members[m]->turns;
        if (is_good && breach->what[0] != '\0') {
            is_good = false;
            printf("seed %" PRIu64 ": %s: %s\n", world->seed, breach->of, breach->what);
        }
    }
    if (is_good && world->verbose) {
        printf("seed %" PRIu64 ": well after %" PRIu64 " ms, %" PRIu64 " frames, %" PRIu64
               " operations, %" PRIu64 " packets, %" PRIu64 " turns; trace %016" PRIx64 "\n",
               world->seed, sl_sim_ms(world->now_ns), world->frames, world->operations,
               world->packets, turns, world->trace);
    }
    return is_good;
}

void sl_sim_world_kill(struct sl_sim_world *world)
{
    for (uint32_t i = 0; i < world->options.host_count; i++) {
        if (world->places[i].app != NULL) {
            sl_sim_world_kill_app(world->places[i].member, i - world->places[i].member->first_host,
                                  false);
        }
    }
}

void sl_sim_world_fini(struct sl_sim_world *world)
{
    sl_sim_network_destroy(&world->network);
    free(world->places);
}
