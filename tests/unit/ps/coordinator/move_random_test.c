/* Random moves, joins, drains and balance, while servers are cut off and restarted, maps are stale
 * and coordinators follow each other; against a model of the servers that counts the writes of each
 * shard. Every primary that acknowledges a write has all writes that were acknowledged before. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "ps/coordinator/coordinator.h"
#include "tests/support/unit.h"

#define SEEDS    60
#define STEPS    4000
#define START    3 /* servers at the start */
#define EACH     4 /* shards of them */
#define SHARDS   (START * EACH)
#define TASKS    6
#define LEASE_NS (2 * SL_CLOCK_NS_PER_S)
#define WORKER   1 /* peer, and client_id; it proves the operator's secret, too */
#define KINDS    SL_COORDINATOR_RECORD_ALL
#define INDICES  (TASKS + 1)

/* What a server process knows and has of a shard. */
struct replica {
    uint64_t epoch;
    bool is_primary, is_backup;
    uint32_t other_plus_1; /* primary: the backup's task, plus 1 */
    bool is_synced;        /* primary: the backup has all; nothing is acknowledged without it */
    bool has_failed;       /* primary: until the next epoch, nothing is acknowledged */
    bool is_stated;        /* the coordinator says that the backup is in sync */
    bool has_data;
    uint64_t writes; /* in its data */
};

struct process {
    bool exists, joins, serves;
    uint64_t client_id, peer; /* peer 0: not connected */
    struct replica shards[SHARDS];
    bool has_map; /* that it has not read yet */
    struct sl_message_placement map[SHARDS];
    uint64_t checkpoint, publish; /* to answer; 0: none */
};

struct record {
    uint8_t *value;
    size_t bytes;
    bool changed;
};

struct world {
    uint64_t random, now_ns, next_id;
    uint32_t replicas;
    struct sl_coordinator *coordinator;
    struct process servers[TASKS]; /* by task */
    uint64_t worker_peer;
    struct sl_message_placement map[SHARDS]; /* the newest */
    uint64_t writes[SHARDS];                 /* acknowledged */
    struct record records[KINDS][INDICES];
    uint64_t refused; /* peer whose registration was refused; 0: none */
    uint32_t moved, joined, drained, lost, checkpoints, taken_over, refusals;
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
    for (uint32_t task = 0; task < TASKS; task++) {
        if (world->servers[task].exists && world->servers[task].peer == peer) {
            return &world->servers[task];
        }
    }
    return NULL;
}

/* Checks what changed since the last cluster: epochs ascend, one shard moves at a time. */
static void check_map(struct world *world, const struct sl_message_cluster *cluster)
{
    bool is_listed[TASKS] = {false};
    assert_int_equal(cluster->shard_count, SHARDS);
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        is_listed[cluster->ps[i].task_index] = true;
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct sl_message_placement *old = &world->map[i], *new = &cluster->placements[i];
        assert_true(new->epoch >= old->epoch);
        assert_true(is_listed[new->primary]);
        assert_true(new->backup_plus_1 == 0 || is_listed[new->backup_plus_1 - 1]);
        assert_int_not_equal(new->backup_plus_1, new->primary + 1);
        assert_true(new->epoch > old->epoch || new->primary == old->primary);
        if (old->epoch != 0 && new->primary != old->primary) {
            world->moved += old->moves ? 1 : 0;
        }
        assert_true(!new->moves || new->backup_plus_1 != 0);
    }
    memcpy(world->map, cluster->placements, sizeof world->map);
}

/* The process reads the map. A shard whose server it is no longer is freed. */
static void read_map(struct world *world, uint32_t task)
{
    struct process *process = &world->servers[task];
    for (uint32_t i = 0; i < SHARDS && process->has_map; i++) {
        const struct sl_message_placement *now = &process->map[i];
        struct replica *replica = &process->shards[i];
        replica->is_stated = now->epoch == replica->epoch ? now->in_sync : replica->is_stated;
        if (now->epoch <= replica->epoch) {
            continue;
        }
        const bool had_data = replica->has_data;
        *replica = (struct replica){
            .epoch = now->epoch,
            .is_primary = now->primary == task,
            .is_backup = now->backup_plus_1 == task + 1,
            .other_plus_1 = now->backup_plus_1,
            .is_stated = now->in_sync,
            .has_data = now->primary == task,
            .writes = had_data ? replica->writes : 0,
        };
        if (replica->is_primary) { /* it has all, or begins anew what is lost */
            assert_int_equal(replica->writes, world->writes[i]);
        }
    }
    process->has_map = false;
    process->serves = true;
}

static void on_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct world *world = ctx;
    struct process *process = process_at(world, peer);
    switch (message->kind) {
    case SL_MESSAGE_CLUSTER:
        check_map(world, &message->cluster);
        if (process != NULL) {
            memcpy(process->map, message->cluster.placements, sizeof process->map);
            process->has_map = true;
        }
        break;
    case SL_MESSAGE_ERROR:
        world->refusals++;
        assert_null(strstr(message->error.text, "has written other files"));
        world->refused = message->id == 1 ? peer : world->refused;
        break;
    case SL_MESSAGE_ENDED:
        assert_non_null(process);
        for (uint32_t i = 0; i < SHARDS; i++) {
            assert_int_not_equal(world->map[i].primary, process - world->servers);
        }
        process->exists = false; /* its goodbye is not sent: the lease ends */
        world->drained++;
        break;
    case SL_MESSAGE_CHECKPOINT:
        process->checkpoint = message->checkpoint.number;
        read_map(world, (uint32_t)(process - world->servers)); /* it came before */
        break;
    case SL_MESSAGE_CHECKPOINT_PUBLISH:
        process->publish = message->checkpoint_publish.number;
        break;
    case SL_MESSAGE_CHECKPOINT_DONE:
        world->checkpoints += peer == world->worker_peer ? 1 : 0;
        break;
    default:
        break;
    }
}

static void on_changed(void *ctx, enum sl_coordinator_record kind, uint32_t index)
{
    struct world *world = ctx;
    assert_true(kind != SL_COORDINATOR_RECORD_ALL); /* the job goes on */
    if (index < INDICES) {
        world->records[kind][index].changed = true;
    }
}

static void make(struct world *world)
{
    const struct sl_coordinator_options options = {
        .ps_count = START,
        .worker_count = 1,
        .lease_ns = LEASE_NS,
        .needs_operator = true,
        .send = on_send,
        .changed = on_changed,
        .ctx = world,
    };
    assert_int_equal(sl_coordinator_create(&options, &world->coordinator), 0);
}

static void forget(struct world *world)
{
    for (uint32_t k = 0; k < KINDS; k++) {
        for (uint32_t i = 0; i < INDICES; i++) {
            free(world->records[k][i].value);
            world->records[k][i] = (struct record){0};
        }
    }
    sl_coordinator_destroy(&world->coordinator);
}

static int say_hello(struct world *world, uint64_t *peer, const struct sl_message_hello *hello)
{
    struct sl_reason reason;
    const uint64_t as = ++world->next_id;
    *peer = as;
    const int err = sl_coordinator_hello(world->coordinator, as, hello, world->now_ns, &reason);
    *peer = err == 0 ? as : 0;
    return err;
}

static void worker_connects(struct world *world)
{
    const struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                                           .role = SL_MESSAGE_ROLE_WORKER,
                                           .client_id = WORKER,
                                           .secret = SL_MESSAGE_SECRET_OPERATOR};
    if (world->worker_peer == 0 && say_hello(world, &world->worker_peer, &hello) == 0) {
        const struct sl_message reg = {.kind = SL_MESSAGE_REGISTER, .id = 9};
        sl_coordinator_message(world->coordinator, world->worker_peer, &reg, world->now_ns);
    }
}

static void connect_process(struct world *world, uint32_t task);

/* A process ends, and another takes its place at once. What only it had is lost: what the newest
 * map says it serves without a backup. */
static void kill_process(struct world *world, uint32_t task)
{
    struct process *process = &world->servers[task];
    for (uint32_t i = 0; i < SHARDS && process->exists; i++) {
        const struct sl_message_placement *now = &world->map[i];
        const bool has_backup =
            now->in_sync && world->servers[now->backup_plus_1 - 1].shards[i].has_data;
        if (now->primary == task && !has_backup) {
            world->writes[i] = 0;
            world->lost++;
        }
    }
    if (process->peer != 0) {
        const uint64_t peer = process->peer;
        process->peer = 0;
        sl_coordinator_gone(world->coordinator, peer, false, world->now_ns);
    }
    const bool joins = process->joins;
    *process = (struct process){.exists = true, .joins = joins, .client_id = ++world->next_id};
    connect_process(world, task);
}

static void register_process(struct world *world, uint32_t task)
{
    struct process *process = &world->servers[task];
    struct sl_message_replica_report reports[SHARDS];
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct replica *replica = &process->shards[i];
        reports[i] = (struct sl_message_replica_report){
            .shard = i,
            .epoch = replica->epoch,
            .role = replica->is_primary  ? SL_MESSAGE_REPLICA_PRIMARY
                    : replica->is_backup ? SL_MESSAGE_REPLICA_BACKUP
                                         : SL_MESSAGE_REPLICA_NEITHER,
            .in_sync = replica->is_primary ? replica->is_synced : replica->is_stated,
            .is_undecided = replica->is_primary && !replica->is_synced && !replica->has_failed,
        };
    }
    struct sl_message reg = {
        .kind = SL_MESSAGE_REGISTER,
        .id = 1,
        .reg = {.shard_count = process->joins ? 0 : EACH,
                .replicas = world->replicas,
                .serving = process->serves,
                .replica_reports = reports,
                .replica_report_count = process->serves ? SHARDS : 0},
    };
    (void)snprintf(reg.reg.data_endpoint, sizeof reg.reg.data_endpoint, "tcp://h:%u", 1 + task);
    (void)snprintf(reg.reg.host, sizeof reg.reg.host, "host%u", task / 2);
    world->refused = 0;
    sl_coordinator_message(world->coordinator, process->peer, &reg, world->now_ns);
    if (world->refused != 0 && world->refused == process->peer) {
        kill_process(world, task); /* "restart it" */
    }
}

static void connect_process(struct world *world, uint32_t task)
{
    struct process *process = &world->servers[task];
    if (!process->exists || process->peer != 0) {
        return;
    }
    const struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                                           .role = SL_MESSAGE_ROLE_PS,
                                           .task_index = task,
                                           .join_running = process->joins,
                                           .client_id = process->client_id};
    if (say_hello(world, &process->peer, &hello) == 0) {
        register_process(world, task);
    }
}

static void disconnect_process(struct world *world, uint32_t task)
{
    const uint64_t peer = world->servers[task].peer;
    if (peer != 0) {
        world->servers[task].peer = 0;
        sl_coordinator_gone(world->coordinator, peer, false, world->now_ns);
    }
}

/* Another coordinator has the records; all connections are gone. */
static void take_over(struct world *world)
{
    for (uint32_t k = 0; k < KINDS; k++) {
        for (uint32_t i = 0; i < INDICES; i++) {
            struct record *record = &world->records[k][i];
            if (record->changed) {
                free(record->value);
                assert_int_equal(sl_coordinator_record_write(world->coordinator,
                                                             (enum sl_coordinator_record)k, i,
                                                             &record->value, &record->bytes),
                                 0);
                record->changed = false;
            }
        }
    }
    sl_coordinator_destroy(&world->coordinator);
    make(world);
    struct sl_reason reason;
    for (uint32_t k = 0; k < KINDS; k++) {
        for (uint32_t i = 0; i < INDICES; i++) {
            const struct record *record = &world->records[k][i];
            if (record->value != NULL) {
                assert_int_equal(sl_coordinator_record_read(world->coordinator,
                                                            (enum sl_coordinator_record)k, i,
                                                            record->value, record->bytes, &reason),
                                 0);
            }
        }
    }
    sl_coordinator_record_end(world->coordinator, world->now_ns);
    world->worker_peer = 0;
    for (uint32_t task = 0; task < TASKS; task++) {
        world->servers[task].peer = 0;
        world->servers[task].checkpoint = world->servers[task].publish = 0;
    }
    for (uint32_t task = 0; task < TASKS; task++) {
        connect_process(world, task);
    }
    worker_connects(world);
    world->taken_over++;
}

static struct replica *find_backup(struct world *world, const struct replica *primary,
                                   uint32_t shard)
{
    struct process *other = &world->servers[primary->other_plus_1 - 1];
    struct replica *backup = &other->shards[shard];
    return other->exists && backup->is_backup && backup->epoch == primary->epoch ? backup : NULL;
}

/* The primary copies the shard to its backup, or fails to. */
static void catch_up(struct world *world, uint32_t task, uint32_t shard)
{
    struct process *process = &world->servers[task];
    struct replica *primary = &process->shards[shard];
    if (!process->exists || !primary->is_primary || primary->other_plus_1 == 0 ||
        primary->is_synced || primary->has_failed) {
        return;
    }
    struct replica *backup = find_backup(world, primary, shard);
    if (backup != NULL && draw(world, 8) != 0) {
        backup->has_data = primary->is_synced = true;
        backup->writes = primary->writes;
    } else if (draw(world, 20) == 0) {
        primary->has_failed = true;
    }
    if (process->peer != 0 && (primary->is_synced || primary->has_failed)) {
        register_process(world, task);
    }
}

/* Every process that believes that it is the primary acknowledges a write, if it can. */
static void write_shard(struct world *world, uint32_t shard)
{
    for (uint32_t task = 0; task < TASKS; task++) {
        struct process *process = &world->servers[task];
        struct replica *primary = &process->shards[shard];
        if (!process->exists || !primary->is_primary || primary->has_failed) {
            continue;
        }
        if (primary->is_synced) {
            struct replica *backup = find_backup(world, primary, shard);
            if (backup == NULL) {
                primary->is_synced = false;
                primary->has_failed = true;
                if (process->peer != 0) {
                    register_process(world, task);
                }
                continue;
            }
            backup->writes++;
        }
        assert_int_equal(primary->writes, world->writes[shard]);
        primary->writes++;
        world->writes[shard]++;
    }
}

static void answer_checkpoint(struct world *world, uint32_t task)
{
    struct process *process = &world->servers[task];
    struct sl_message_checkpoint_file files[SHARDS] = {0};
    struct sl_message part = {
        .kind = SL_MESSAGE_CHECKPOINT_PART,
        .checkpoint_part = {.number = process->checkpoint, .files = files},
    };
    for (uint32_t i = 0; i < SHARDS; i++) {
        if (process->shards[i].is_primary) {
            files[part.checkpoint_part.file_count++].shard = i;
        }
    }
    if (process->peer != 0 && process->checkpoint != 0) {
        process->checkpoint = 0;
        sl_coordinator_message(world->coordinator, process->peer, &part, world->now_ns);
    } else if (process->peer != 0 && process->publish != 0) {
        const struct sl_message done = {.kind = SL_MESSAGE_CHECKPOINT_DONE,
                                        .checkpoint_number = process->publish};
        process->publish = 0;
        sl_coordinator_message(world->coordinator, process->peer, &done, world->now_ns);
    }
}

static void pass(struct world *world, uint64_t ns)
{
    world->now_ns += ns;
    for (uint32_t task = 0; task <= TASKS; task++) {
        const uint64_t peer = task < TASKS ? world->servers[task].peer : world->worker_peer;
        const struct sl_message heartbeat = {.kind = SL_MESSAGE_HEARTBEAT};
        if (peer != 0 && (task == TASKS || world->servers[task].exists)) {
            sl_coordinator_message(world->coordinator, peer, &heartbeat, world->now_ns);
        }
    }
    sl_coordinator_tick(world->coordinator, world->now_ns);
}

static void change(struct world *world, enum sl_message_placement_verb verb)
{
    const struct sl_message message = {
        .kind = SL_MESSAGE_PLACEMENT_CHANGE,
        .id = 7,
        .placement_change = {.verb = verb,
                             .shard = (uint32_t)draw(world, SHARDS),
                             .task = (uint32_t)draw(world, TASKS),
                             .dry_run = draw(world, 8) == 0},
    };
    if (world->worker_peer != 0) {
        sl_coordinator_message(world->coordinator, world->worker_peer, &message, world->now_ns);
    }
}

static void join(struct world *world)
{
    for (uint32_t task = 0; task < TASKS; task++) {
        if (!world->servers[task].exists) {
            world->servers[task] =
                (struct process){.exists = true, .joins = true, .client_id = ++world->next_id};
            connect_process(world, task);
            world->joined++;
            return;
        }
    }
}

static void step(struct world *world)
{
    const uint32_t task = (uint32_t)draw(world, TASKS);
    const uint32_t shard = (uint32_t)draw(world, SHARDS);
    const uint64_t what = draw(world, 1000);
    if (what < 300) {
        write_shard(world, shard);
    } else if (what < 500) {
        read_map(world, task);
    } else if (what < 700) {
        catch_up(world, task, shard);
    } else if (what < 780) {
        answer_checkpoint(world, task);
    } else if (what < 880) {
        pass(world, (1 + draw(world, 4)) * SL_CLOCK_NS_PER_S / 10);
    } else if (what < 940) {
        connect_process(world, task);
    } else if (what < 950) {
        disconnect_process(world, task);
    } else if (what < 953 && world->servers[task].exists) {
        kill_process(world, task);
    } else if (what < 970) {
        change(world, SL_MESSAGE_PLACEMENT_MOVE);
    } else if (what < 974) {
        change(world, SL_MESSAGE_PLACEMENT_DRAIN);
    } else if (what < 978) {
        change(world, SL_MESSAGE_PLACEMENT_BALANCE);
    } else if (what < 984) {
        join(world);
    } else if (what < 996 && world->worker_peer != 0) {
        const struct sl_message ask = {.kind = SL_MESSAGE_CHECKPOINT_ASK, .id = ++world->next_id};
        sl_coordinator_message(world->coordinator, world->worker_peer, &ask, world->now_ns);
    } else if (what >= 998) {
        take_over(world);
    }
}

/* Nothing more happens: all moves and drains come to their end, and all backups are in sync. */
static void settle(struct world *world)
{
    for (uint32_t i = 0; i < 400; i++) {
        for (uint32_t task = 0; task < TASKS; task++) {
            connect_process(world, task);
            read_map(world, task);
            answer_checkpoint(world, task);
            for (uint32_t shard = 0; shard < SHARDS; shard++) {
                catch_up(world, task, shard);
            }
        }
        pass(world, SL_CLOCK_NS_PER_S / 2);
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct sl_message_placement *now = &world->map[i];
        assert_false(now->moves);
        assert_int_equal(now->in_sync, world->replicas > 0);
        assert_int_equal(world->servers[now->primary].shards[i].epoch, now->epoch);
        write_shard(world, i);
    }
}

static void run(uint64_t seed, uint32_t replicas, struct world *sums)
{
    struct world world = {.random = seed * 0x9e3779b97f4a7c15ULL + 1, .replicas = replicas};
    world.now_ns = SL_CLOCK_NS_PER_S;
    world.next_id = 100;
    make(&world);
    for (uint32_t task = 0; task < START; task++) {
        world.servers[task] = (struct process){.exists = true, .client_id = ++world.next_id};
        connect_process(&world, task);
    }
    worker_connects(&world);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(&world);
    }
    settle(&world);
    sums->moved += world.moved;
    sums->joined += world.joined;
    sums->drained += world.drained;
    sums->lost += world.lost;
    sums->checkpoints += world.checkpoints;
    sums->taken_over += world.taken_over;
    forget(&world);
}

SL_CASE(move__no_acknowledged_write_is_lost)
{
    sl_log_setup(SL_LOG_OFF, "test");
    for (uint32_t replicas = 0; replicas < 2; replicas++) {
        struct world sums = {.random = 0};
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            print_message("seed %u, replicas %u\n", (unsigned)seed, replicas);
            run(seed, replicas, &sums);
        }
        print_message("%u moved, %u joined, %u drained, %u lost, %u checkpoints, %u take-overs\n",
                      sums.moved, sums.joined, sums.drained, sums.lost, sums.checkpoints,
                      sums.taken_over);
        assert_true(sums.moved > 100 && sums.joined > 50 && sums.drained > 20 &&
                    sums.checkpoints > 20 && sums.taken_over > 50);
    }
}
