/* A coordinator under random hellos, messages, broken connections and time, against a model that
 * says who must be a member, who has to be told of which loss, and which barriers are complete. */

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "ps/coordinator/coordinator.h"
#include "tests/support/unit.h"

#define SEEDS      40
#define STEPS      3000
#define WORKERS    4 /* of the job; task WORKERS joins */
#define TASKS      (WORKERS + 1)
#define PROCESSES  12 /* two or three that want each task; a process has one client_id */
#define BARRIERS   3  /* 0 and 1 are of all workers, 2 is of two */
#define PAIR       2
#define LEASE_MS   1000
#define TICK_MS    100
#define PS_PEER    1
#define PEER_OF(n) (100 + (n)) /* n-th connection */
#define PEERS_MAX  (STEPS + 100)
#define MS         SL_CLOCK_NS_PER_MS

/* A process that is, or wants to be, the worker of a task. */
struct process {
    uint32_t task;
    uint64_t peer; /* 0: not connected */
    bool hung;     /* connected, but says nothing */
    bool dying;    /* is lost in the tick that runs */
    bool member;   /* as the model has it: not left, lost, replaced */
    uint64_t heard_ms;
    const struct process *rival; /* that wanted its place last, and first did so at rival_ms */
    uint64_t rival_ms;
    uint64_t next_id;
    struct {
        uint64_t id; /* 0: it does not wait there */
        bool done;   /* and that is not known to it yet */
    } waits[BARRIERS];
    struct {
        uint64_t id;  /* 0: it asks for no checkpoint */
        uint64_t seq; /* when the coordinator heard it; 0: it has answered, and is not heard */
    } ask;
};

/* What the one ps knows of checkpoints. */
struct checkpoint {
    uint64_t number, base, complete;
    uint64_t seq; /* when it was begun */
    enum { IDLE, WRITING, KEEPING } stage;
    bool answers; /* who asked before its beginning is being told its end */
    int err;
};

struct world {
    uint64_t random;
    uint64_t now_ms;
    struct sl_coordinator *coordinator;
    struct process processes[PROCESSES];
    bool departed[TASKS];
    struct checkpoint checkpoint;
    uint64_t seq;
    uint64_t peer_next;
    uint8_t closed[PEERS_MAX];      /* by the coordinator */
    uint32_t losses_due[PROCESSES]; /* that the ps has to be told; never more than one */
    uint32_t lost_count, replaced_count, done_count, again_count, made_count, given_up_count;
};

static uint64_t draw(struct world *world, uint64_t below)
{
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return world->random % below;
}

static struct process *process_at(struct world *world, uint64_t peer)
{
    for (uint32_t i = 0; i < PROCESSES; i++) {
        if (world->processes[i].peer == peer) {
            return &world->processes[i];
        }
    }
    return NULL;
}

/* The member of the task, or NULL. There is never more than one. */
static struct process *member_of(struct world *world, uint32_t task)
{
    struct process *found = NULL;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct process *process = &world->processes[i];
        if (process->member && process->task == task) {
            assert_null(found);
            found = process;
        }
    }
    return found;
}

/* Those who have come to the barrier and were not told that it is done. */
static uint32_t arrived(struct world *world, uint32_t barrier)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        const struct process *process = &world->processes[i];
        count += process->member && process->waits[barrier].id != 0 && !process->waits[barrier].done
                     ? 1
                     : 0;
    }
    return count;
}

static uint32_t job_workers(struct world *world)
{
    uint32_t count = 0;
    for (uint32_t task = 0; task < WORKERS; task++) {
        count += world->departed[task] ? 0 : 1;
    }
    return count + (member_of(world, WORKERS) != NULL ? 1 : 0);
}

/* Marks what has to be done by now; called after every change. */
static void settle(struct world *world)
{
    for (uint32_t b = 0; b < BARRIERS; b++) {
        uint32_t here = arrived(world, b);
        if (here == 0 || here != (b == PAIR ? 2 : job_workers(world))) {
            continue;
        }
        for (uint32_t i = 0; i < PROCESSES; i++) {
            struct process *process = &world->processes[i];
            bool waits = process->member && process->waits[b].id != 0;
            process->waits[b].done = process->waits[b].done || waits;
        }
    }
}

static void end(struct world *world, struct process *process, bool departs)
{
    process->member = false;
    memset(process->waits, 0, sizeof process->waits);
    process->ask.id = 0;
    if (departs) {
        world->departed[process->task] = process->task < WORKERS;
        settle(world);
    }
}

static void model_loss(struct world *world, struct process *process, bool departs)
{
    world->losses_due[process - world->processes]++;
    end(world, process, departs);
}

static void on_lost(struct world *world, const struct sl_message_expired *lost)
{
    assert_int_equal(lost->role, SL_MESSAGE_ROLE_WORKER);
    uint64_t index = lost->client_id - 1;
    assert_in_range(index, 0, PROCESSES - 1);
    assert_int_equal(world->processes[index].task, lost->task_index);
    /* Once for each loss, and not before its time. */
    assert_int_equal(world->losses_due[index], 1);
    world->losses_due[index] = 0;
}

static void on_done(struct world *world, uint64_t peer, uint64_t id)
{
    struct process *process = process_at(world, peer);
    assert_non_null(process);
    for (uint32_t b = 0; b < BARRIERS; b++) {
        if (process->waits[b].id == id) {
            assert_true(process->waits[b].done);
            process->waits[b].id = 0;
            process->waits[b].done = false;
            world->done_count++;
            return;
        }
    }
    fail_msg("done for request %u, which nobody has made", (unsigned)id);
}

static void on_checkpoint(struct world *world, const struct sl_message_checkpoint *told)
{
    struct checkpoint *checkpoint = &world->checkpoint;
    assert_int_equal(checkpoint->stage, IDLE);
    assert_true(told->number > checkpoint->number);
    assert_true(told->base == 0 || told->base == checkpoint->complete);
    checkpoint->number = told->number;
    checkpoint->base = told->base;
    checkpoint->seq = ++world->seq;
    checkpoint->stage = WRITING;
    checkpoint->answers = false;
}

/* Only to who asked before it was begun, and only what became of it. */
static void on_answer(struct world *world, struct process *process,
                      const struct sl_message *message)
{
    const struct checkpoint *checkpoint = &world->checkpoint;
    assert_true(checkpoint->answers);
    assert_int_equal(process->ask.id, message->id);
    assert_in_range(process->ask.seq, 1, checkpoint->seq - 1);
    if (checkpoint->err == 0) {
        assert_int_equal(message->kind, SL_MESSAGE_CHECKPOINT_DONE);
        assert_int_equal(message->checkpoint_number, checkpoint->number);
    } else {
        assert_int_equal(message->kind, SL_MESSAGE_ERROR);
        assert_int_equal(message->error.err, checkpoint->err);
    }
    process->ask.id = 0;
}

static void on_ps(struct world *world, const struct sl_message *message)
{
    if (message->kind == SL_MESSAGE_EXPIRED) {
        on_lost(world, &message->expired);
    } else if (message->kind == SL_MESSAGE_CHECKPOINT) {
        on_checkpoint(world, &message->checkpoint);
    } else if (message->kind == SL_MESSAGE_CHECKPOINT_PUBLISH) {
        assert_int_equal(world->checkpoint.stage, WRITING);
        assert_int_equal(message->checkpoint_publish.number, world->checkpoint.number);
        assert_int_equal(message->checkpoint_publish.base, world->checkpoint.base);
        world->checkpoint.stage = KEEPING;
    }
}

static void on_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct world *world = ctx;
    if (peer == PS_PEER) {
        on_ps(world, message);
        return;
    }
    /* Nothing is sent to who is not connected, or was closed. */
    assert_false(world->closed[peer - PEER_OF(0)]);
    struct process *process = process_at(world, peer);
    assert_non_null(process);
    if (process->dying) {
        return; /* in which order those of one tick are lost is not said */
    }
    if (message->kind == SL_MESSAGE_BARRIER_DONE) {
        on_done(world, peer, message->id);
    } else if (message->kind == SL_MESSAGE_CHECKPOINT_DONE || message->kind == SL_MESSAGE_ERROR) {
        on_answer(world, process, message);
    } else {
        assert_true(message->kind == SL_MESSAGE_EXPIRED || message->kind == SL_MESSAGE_WAITING);
    }
}

static void on_close(void *ctx, sl_coordinator_peer peer, const char *why)
{
    struct world *world = ctx;
    assert_non_null(why);
    assert_true(peer >= PEER_OF(0)); /* the ps sends heartbeats */
    assert_false(world->closed[peer - PEER_OF(0)]);
    world->closed[peer - PEER_OF(0)] = 1;
}

static uint64_t now_ns(const struct world *world)
{
    return world->now_ms * MS;
}

static void say(struct world *world, uint64_t peer, struct sl_message message)
{
    sl_coordinator_message(world->coordinator, peer, &message, now_ns(world));
}

/* What must become of the hello: 0, EXISTS or AGAIN. */
static int expected_of_hello(struct world *world, const struct process *process)
{
    struct process *first = member_of(world, process->task);
    if (first == NULL || first == process || first->peer == 0) {
        return 0;
    }
    if (first->rival != process) {
        first->rival = process;
        first->rival_ms = world->now_ms;
    }
    return first->heard_ms > first->rival_ms ? SL_ERR_EXISTS : SL_ERR_AGAIN;
}

static void send_barrier(struct world *world, struct process *process, uint32_t barrier)
{
    struct sl_message message = {.kind = SL_MESSAGE_BARRIER, .id = process->waits[barrier].id};
    message.barrier.count = barrier == PAIR ? 2 : 0;
    (void)snprintf(message.barrier.name, sizeof message.barrier.name, "b%u", barrier);
    settle(world);
    say(world, process->peer, message);
}

/* One that is known keeps its place before the beginning of the next checkpoint. */
static void send_ask(struct world *world, struct process *process)
{
    process->ask.seq = process->ask.seq == 0 ? ++world->seq : process->ask.seq;
    say(world, process->peer,
        (struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_ASK, .id = process->ask.id});
}

static void do_ask(struct world *world, struct process *process)
{
    process->heard_ms = world->now_ms;
    if (process->ask.id == 0) {
        process->ask.id = process->next_id++;
        process->ask.seq = 0;
    }
    send_ask(world, process);
}

/* What the ps says ends the one that is being made. */
static void end_checkpoint(struct world *world, int err, struct sl_message message)
{
    struct checkpoint *checkpoint = &world->checkpoint;
    const uint64_t seq = checkpoint->seq;
    checkpoint->stage = IDLE;
    checkpoint->answers = true;
    checkpoint->err = err;
    checkpoint->complete = err == 0 ? checkpoint->number : 0;
    world->made_count += err == 0 ? 1 : 0;
    world->given_up_count += err == 0 ? 0 : 1;
    say(world, PS_PEER, message);
    checkpoint->answers = false;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct process *process = &world->processes[i];
        bool was_due = process->ask.id != 0 && process->ask.seq != 0 && process->ask.seq < seq;
        assert_true(!was_due || process->peer == 0);
        process->ask.seq = was_due ? 0 : process->ask.seq;
    }
}

static void do_checkpoint(struct world *world)
{
    struct checkpoint *checkpoint = &world->checkpoint;
    struct sl_message_checkpoint_file file = {.name = "a"};
    struct sl_message message = {.kind = SL_MESSAGE_CHECKPOINT_PART};
    message.checkpoint_part.number = checkpoint->number;
    if (checkpoint->stage == IDLE) {
        return;
    }
    if (draw(world, 5) == 0) {
        message.checkpoint_part.err = SL_ERR_IO;
        end_checkpoint(world, SL_ERR_IO, message);
    } else if (checkpoint->stage == WRITING) {
        message.checkpoint_part.files = &file;
        message.checkpoint_part.file_count = 1;
        say(world, PS_PEER, message);
        assert_int_equal(checkpoint->stage, KEEPING);
    } else {
        message.kind = SL_MESSAGE_CHECKPOINT_DONE;
        message.checkpoint_number = checkpoint->number;
        end_checkpoint(world, 0, message);
    }
}

/* Connects, or connects anew without having noticed that the old connection is broken. */
static void do_hello(struct world *world, struct process *process)
{
    uint64_t peer = world->peer_next++;
    struct sl_message_hello hello = {
        .purpose = SL_MESSAGE_PURPOSE_CONTROL,
        .role = SL_MESSAGE_ROLE_WORKER,
        .task_index = process->task,
        .client_id = (uint64_t)(process - world->processes) + 1,
        .join_running = process->task >= WORKERS,
    };
    int expected = expected_of_hello(world, process);
    struct process *first = member_of(world, process->task);
    uint64_t old_peer = process->peer;
    if (expected == 0) {
        process->peer = peer;
        process->hung = false;
        if (first != NULL && first != process) {
            model_loss(world, first, false);
            world->replaced_count++;
        }
        world->departed[process->task] = false;
        process->rival = first == process ? process->rival : NULL;
        process->member = true;
        process->heard_ms = world->now_ms;
    }
    int err = sl_coordinator_hello(world->coordinator, peer, &hello, now_ns(world), NULL);
    assert_int_equal(err, expected);
    if (err != 0) {
        return;
    }
    if (first == process && old_peer != 0) {
        assert_true(world->closed[old_peer - PEER_OF(0)]);
        sl_coordinator_gone(world->coordinator, old_peer, false, now_ns(world));
    }
    /* What was not answered is asked for again, under its id. */
    for (uint32_t b = 0; b < BARRIERS; b++) {
        if (process->waits[b].id != 0) {
            send_barrier(world, process, b);
            world->again_count++;
        }
    }
    if (process->ask.id != 0) {
        send_ask(world, process);
    }
}

static void do_barrier(struct world *world, struct process *process)
{
    uint32_t barrier = (uint32_t)draw(world, BARRIERS);
    process->heard_ms = world->now_ms;
    /* One that still waits has given up, and comes again under another id. */
    if (!process->waits[barrier].done) {
        process->waits[barrier].id = process->next_id++;
        send_barrier(world, process, barrier);
    } else {
        say(world, process->peer, (struct sl_message){.kind = SL_MESSAGE_HEARTBEAT});
    }
}

static void do_goodbye(struct world *world, struct process *process)
{
    uint64_t peer = process->peer;
    end(world, process, true);
    process->peer = 0;
    say(world, peer, (struct sl_message){.kind = SL_MESSAGE_GOODBYE});
    sl_coordinator_gone(world->coordinator, peer, false, now_ns(world));
}

static void do_disconnect(struct world *world, struct process *process)
{
    uint64_t peer = process->peer;
    process->peer = 0;
    sl_coordinator_gone(world->coordinator, peer, false, now_ns(world));
}

static void do_heartbeats(struct world *world)
{
    say(world, PS_PEER, (struct sl_message){.kind = SL_MESSAGE_HEARTBEAT});
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct process *process = &world->processes[i];
        if (process->peer != 0 && !process->hung && draw(world, 8) != 0) {
            process->heard_ms = world->now_ms;
            say(world, process->peer, (struct sl_message){.kind = SL_MESSAGE_HEARTBEAT});
        }
    }
}

/* All whose time is over are lost in one tick, one by one: a barrier is looked at in between. */
static void do_tick(struct world *world)
{
    world->now_ms += TICK_MS;
    do_heartbeats(world);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct process *process = &world->processes[i];
        if (process->member && world->now_ms - process->heard_ms >= LEASE_MS) {
            model_loss(world, process, true);
            process->dying = true;
            world->lost_count++;
        }
    }
    sl_coordinator_tick(world->coordinator, now_ns(world));
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct process *process = &world->processes[i];
        assert_true(!process->dying || process->peer == 0 ||
                    world->closed[process->peer - PEER_OF(0)]);
        process->peer = process->dying ? 0 : process->peer;
        process->dying = false;
    }
}

/* Everything that was due has been done. */
static void check(struct world *world)
{
    for (uint32_t i = 0; i < PROCESSES; i++) {
        const struct process *process = &world->processes[i];
        assert_int_equal(world->losses_due[i], 0);
        /* Nobody waits for a checkpoint that is not being made. */
        assert_true(process->ask.id == 0 || process->ask.seq == 0 ||
                    world->checkpoint.stage != IDLE);
        for (uint32_t b = 0; b < BARRIERS; b++) {
            /* Only who is away may be done without knowing it. */
            assert_true(!process->waits[b].done || process->peer == 0);
        }
    }
    for (uint32_t task = 0; task < TASKS; task++) {
        (void)member_of(world, task);
    }
}

static void step(struct world *world)
{
    struct process *process = &world->processes[draw(world, PROCESSES)];
    uint64_t what = draw(world, 100);
    if (what < 50) {
        do_tick(world);
    } else if (process->peer == 0 || what >= 97) {
        do_hello(world, process);
    } else if (process->hung) {
        do_tick(world);
    } else if (what < 58) {
        do_checkpoint(world);
    } else if (what < 63) {
        do_ask(world, process);
    } else if (what < 80) {
        do_barrier(world, process);
    } else if (what < 84) {
        process->hung = true;
    } else if (what < 86) {
        do_goodbye(world, process);
    } else {
        do_disconnect(world, process);
    }
    check(world);
}

static void start(struct world *world, uint64_t seed)
{
    *world = (struct world){.random = seed, .now_ms = 1000, .peer_next = PEER_OF(0)};
    for (uint32_t i = 0; i < PROCESSES; i++) {
        world->processes[i] = (struct process){.task = i % TASKS, .next_id = 1};
    }
    const struct sl_coordinator_options options = {
        .ps_count = 1,
        .worker_count = WORKERS,
        .lease_ns = LEASE_MS * MS,
        .checkpoint_interval_ns = 2 * LEASE_MS * MS,
        .incrementals_max = 3,
        .send = on_send,
        .close = on_close,
        .ctx = world,
    };
    assert_int_equal(sl_coordinator_create(&options, &world->coordinator), 0);
    const struct sl_message_hello ps = {.role = SL_MESSAGE_ROLE_PS, .client_id = 1000};
    assert_int_equal(sl_coordinator_hello(world->coordinator, PS_PEER, &ps, now_ns(world), NULL),
                     0);
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER, .id = 1};
    message.reg = (struct sl_message_register){.data_endpoint = "tcp://a:1", .shard_count = 1};
    say(world, PS_PEER, message);
}

SL_CASE(coordinator__does_what_the_model_says)
{
    sl_log_setup(SL_LOG_OFF, "test");
    uint32_t lost = 0, replaced = 0, done = 0, again = 0, made = 0, given_up = 0;
    static struct world world;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        start(&world, seed * 0x9E3779B97F4A7C15U);
        for (uint32_t i = 0; i < STEPS; i++) {
            step(&world);
        }
        sl_coordinator_destroy(&world.coordinator);
        lost += world.lost_count;
        replaced += world.replaced_count;
        done += world.done_count;
        again += world.again_count;
        made += world.made_count;
        given_up += world.given_up_count;
    }
    /* It was not idle. */
    print_message("%u lost, %u replaced, %u told of barriers, %u asked again, %u checkpoints made, "
                  "%u given up\n",
                  lost, replaced, done, again, made, given_up);
    assert_true(lost > 1000 && replaced > 1000 && done > 1000 && again > 1000);
    assert_true(made > 500 && given_up > 300);
}
