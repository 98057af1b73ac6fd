#include "tests/unit/ps/coordinator/leader_world.h"
#include "tests/support/unit.h"

#include <stdio.h>

static uint64_t draw(struct world *world, uint64_t below)
{
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return world->random % below;
}

static void check_id(struct world *world, uint32_t name, int64_t id)
{
    for (uint32_t i = 0; i < NAMES; i++) {
        assert_true(i == name || world->ids[i] != id);
    }
    assert_true(world->ids[name] == -1 || world->ids[name] == id);
    world->ids[name] = id;
}

static void on_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct process *process = ctx;
    struct world *world = process->world;
    /* Nobody acts whose key is not there any more. */
    const struct sl_metastore_item *pair = memory_store_look(world->memory, KEY);
    assert_non_null(pair);
    assert_int_equal(pair->created, sl_leader_leader(process->leader)->term);
    for (uint32_t i = 0; i < 2; i++) {
        struct member *member = &world->members[i];
        if (member->at == process && member->peer == peer && message->id == member->request &&
            message->kind == SL_MESSAGE_TABLE_OPENED) {
            check_id(world, member->name, message->table_id);
            member->request = 0;
            world->told_count++;
        }
    }
}

void world_disconnect(struct world *world, const struct process *process)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct member *member = &world->members[i];
        member->at = member->at == process ? NULL : member->at;
    }
}

static void on_elected(void *ctx, struct sl_coordinator *coordinator, bool anew)
{
    assert_int_equal(anew, ((struct process *)ctx)->world->term_count == 0);
    struct process *process = ctx;
    process->coordinator = coordinator;
    process->world->term_count++;
    uint64_t term = sl_leader_leader(process->leader)->term;
    assert_true(term > process->world->last_term);
    process->world->last_term = term;
}

static void on_term_ended(void *ctx, const char *why)
{
    struct process *process = ctx;
    assert_string_not_equal(why, "");
    process->coordinator = NULL;
    world_disconnect(process->world, process);
}

static bool on_report(void *ctx, const struct sl_message_hello *member,
                      const struct sl_message_report *report)
{
    ((struct process *)ctx)->report_count++;
    return true;
}

static void on_leader(void *ctx, const struct sl_leader_record *leader)
{
    struct process *process = ctx;
    process->leader_term = leader->term;
}

static void on_wake(void *ctx)
{
    ((struct process *)ctx)->woken = true;
}

static uint64_t on_now(void *ctx)
{
    return ((struct process *)ctx)->world->now_ns;
}

void world_on_resigned(void *ctx)
{
    ((struct process *)ctx)->resigned = true;
}

static void start(struct world *world, struct process *process)
{
    struct sl_leader_options options = {
        .metastore = process->metastore,
        .prefix = "jobs/a",
        .campaigns = true,
        .id = ++world->id_next,
        .endpoint = "tcp://127.0.0.1:1",
        .ttl_s = TTL_S,
        .coordinator = {.ps_count = 1,
                        .worker_count = 1,
                        .lease_ns = 10 * SL_CLOCK_NS_PER_S,
                        .send = on_send,
                        .report = on_report,
                        .report_cells = &process->report_cells,
                        .ctx = process},
        .now_ns = on_now,
        .elected = on_elected,
        .term_ended = on_term_ended,
        .leader = on_leader,
        .wake = on_wake,
        .ctx = process,
    };
    (void)snprintf(options.name, sizeof options.name, "ps/%u",
                   (unsigned)(process - world->processes));
    assert_int_equal(sl_leader_create(&options, &process->leader), 0);
    process->resigned = false;
    process->leader_term = 0;
}

/* As a kill does: what it had asked may still come about, but nobody is there for the answer. */
static void kill_process(struct world *world, struct process *process)
{
    world_disconnect(world, process);
    process->coordinator = NULL;
    memory_store_forget(process->metastore, draw(world, 2) == 0);
    sl_leader_destroy(&process->leader);
}

void world_make(struct world *world, uint64_t seed)
{
    *world = (struct world){.random = seed * 0x9e3779b97f4a7c15U + 1, .now_ns = SL_CLOCK_NS_PER_S};
    world->memory = memory_store_create();
    for (uint32_t i = 0; i < NAMES; i++) {
        world->ids[i] = -1;
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct process *process = &world->processes[i];
        process->world = world;
        process->metastore = memory_store_handle(world->memory);
        start(world, process);
    }
    world->members[0] = (struct member){.role = SL_MESSAGE_ROLE_PS, .client_id = 71};
    world->members[1] = (struct member){.role = SL_MESSAGE_ROLE_WORKER, .client_id = 72};
}

static bool runs(const struct process *process)
{
    return process->leader != NULL && !process->stands_still;
}

static void register_member(struct world *world, struct member *member)
{
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER, .id = ++world->request_next};
    if (member->role == SL_MESSAGE_ROLE_PS) {
        message.reg.shard_count = 1;
        (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint,
                       "tcp://127.0.0.1:2");
    }
    sl_coordinator_message(member->at->coordinator, member->peer, &message, world->now_ns);
}

static void connect(struct world *world, struct member *member)
{
    struct process *process = &world->processes[draw(world, PROCESSES)];
    if (!runs(process) || process->coordinator == NULL) {
        return;
    }
    struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                                     .role = member->role,
                                     .client_id = member->client_id};
    uint64_t peer = ++world->peer_next;
    if (sl_coordinator_hello(process->coordinator, peer, &hello, world->now_ns, NULL) == 0) {
        member->at = process;
        member->peer = peer;
        member->request = 0; /* it asks again */
        register_member(world, member);
    }
}

static void open_table(struct world *world, struct member *member)
{
    if (member->request != 0) {
        return;
    }
    member->name = (uint32_t)draw(world, NAMES);
    member->request = ++world->request_next;
    struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .id = member->request,
        .table_open.spec = {.kind = SL_TABLE_SPARSE,
                            .dim = 4,
                            .optimizer = {.kind = SL_OPTIMIZER_SGD, .lr = 0.1F}},
    };
    (void)snprintf(message.table_open.spec.name, sizeof message.table_open.spec.name, "t%u",
                   member->name);
    sl_coordinator_message(member->at->coordinator, member->peer, &message, world->now_ns);
}

static void members_step(struct world *world)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct member *member = &world->members[i];
        if (member->at == NULL) {
            connect(world, member);
        } else if (runs(member->at) && draw(world, 10) == 0) {
            open_table(world, member);
        } else if (runs(member->at)) {
            struct sl_message beat = {.kind = SL_MESSAGE_HEARTBEAT};
            sl_coordinator_message(member->at->coordinator, member->peer, &beat, world->now_ns);
        }
    }
}

static void process_step(struct world *world, struct process *process)
{
    if (process->back_ns != 0 && world->now_ns >= process->back_ns) {
        process->back_ns = 0;
        process->stands_still = false;
        memory_store_hold(process->metastore, false);
        if (process->leader == NULL) {
            start(world, process);
        }
    }
    if (!runs(process)) {
        return;
    }
    /* Now and then something is done before the time is looked at. */
    if (process->woken && draw(world, 2) == 0) {
        process->woken = false;
        sl_leader_run(process->leader);
    }
    if (draw(world, 4) == 0) {
        sl_leader_tick(process->leader);
        if (process->coordinator != NULL) {
            sl_coordinator_tick(process->coordinator, world->now_ns);
        }
    }
}

void world_cause_trouble(struct world *world)
{
    struct process *process = &world->processes[draw(world, PROCESSES)];
    uint64_t pause_ns = draw(world, 8000) * MS;
    switch (draw(world, 120)) {
    case 0:
        memory_store_cut(process->metastore, true, draw(world, 2) == 0);
        break;
    case 1:
    case 2:
        memory_store_cut(process->metastore, false, false);
        break;
    case 3:
        if (runs(process)) {
            process->stands_still = true;
            process->back_ns = world->now_ns + pause_ns;
            memory_store_hold(process->metastore, true);
        }
        break;
    case 4:
        if (runs(process) && draw(world, 2) == 0) {
            kill_process(world, process);
            process->back_ns = world->now_ns + pause_ns;
        }
        break;
    default:
        break;
    }
}

void world_step(struct world *world)
{
    world->now_ns += STEP;
    memory_store_pass(world->memory, world->now_ns);
    uint64_t answers = draw(world, 6);
    for (uint64_t i = 0; i < answers && memory_store_answer(world->memory); i++) {
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        process_step(world, &world->processes[i]);
    }
    members_step(world);
}

void world_heal(struct world *world)
{
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct process *process = &world->processes[i];
        memory_store_cut(process->metastore, false, false);
        process->back_ns = process->back_ns == 0 ? 0 : world->now_ns;
    }
}

uint32_t world_count_leaders(const struct world *world)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        count += world->processes[i].coordinator != NULL ? 1 : 0;
    }
    return count;
}

/* An orderly end: the leader resigns, and no request is in flight. */
void world_end_process(struct world *world, struct process *process, bool erases)
{
    world_disconnect(world, process);
    process->coordinator = NULL;
    sl_leader_resign(process->leader, erases, 60 * SL_CLOCK_NS_PER_S, world_on_resigned, process);
    for (uint32_t k = 0; k < 100 && !process->resigned; k++) {
        sl_leader_run(process->leader);
        while (memory_store_answer(world->memory)) {
        }
    }
    assert_true(process->resigned);
    sl_leader_destroy(&process->leader);
}

void world_end(struct world *world)
{
    for (uint32_t i = 0; i < PROCESSES; i++) {
        if (world->processes[i].leader != NULL) {
            world_end_process(world, &world->processes[i], false);
        }
    }
    assert_null(memory_store_look(world->memory, KEY));
    memory_store_destroy(world->memory);
}

void world_run_for(struct world *world, uint64_t ns)
{
    for (uint64_t until_ns = world->now_ns + ns; world->now_ns < until_ns;) {
        world_step(world);
    }
}

struct process *world_holder(struct world *world)
{
    for (uint32_t i = 0; i < PROCESSES; i++) {
        if (world->processes[i].coordinator != NULL) {
            return &world->processes[i];
        }
    }
    return NULL;
}
