#include "tests/unit/ps/coordinator/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

static int describe_cluster(const struct sl_message_cluster *cluster, char *text, size_t bytes)
{
    int at = snprintf(text, bytes, "cluster of %u workers", cluster->worker_count);
    if (cluster->restore != 0) {
        at += snprintf(text + at, bytes - (size_t)at, " from %u", (unsigned)cluster->restore);
    }
    if (cluster->abandoned_to != 0) {
        at += snprintf(text + at, bytes - (size_t)at, " not (%u, %u]",
                       (unsigned)cluster->abandoned_above, (unsigned)cluster->abandoned_to);
    }
    if (cluster->values_lost != 0) {
        at += snprintf(text + at, bytes - (size_t)at, " without the values of ps/%u",
                       cluster->values_lost - 1);
    }
    if (cluster->kept_to != 0) {
        at += snprintf(text + at, bytes - (size_t)at, " beside %u", (unsigned)cluster->kept_to);
    }
    if (cluster->job != 0) {
        at += snprintf(text + at, bytes - (size_t)at, " of job %u", (unsigned)cluster->job);
    }
    for (uint32_t id = 0; id < SL_LIMIT_TABLES; id++) {
        if (sl_message_dropped_has(&cluster->dropped, id)) {
            at += snprintf(text + at, bytes - (size_t)at, " without table %u", id);
        }
    }
    at += snprintf(text + at, bytes - (size_t)at, ":");
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        const struct sl_message_ps *ps = &cluster->ps[i];
        at +=
            snprintf(text + at, bytes - (size_t)at, " ps/%u %s x%u%s%s%s%s", ps->task_index,
                     ps->data_endpoint, ps->shard_count, ps->host[0] == '\0' ? "" : " on ",
                     ps->host, ps->bypass_endpoint[0] == '\0' ? "" : " and ", ps->bypass_endpoint);
    }
    bool has_roles = false; /* other than those of servers that never failed, without replicas */
    for (uint32_t i = 0; i < cluster->shard_count; i++) {
        has_roles = has_roles || cluster->placements[i].epoch > 1 ||
                    cluster->placements[i].backup_plus_1 != 0;
    }
    for (uint32_t i = 0; i < cluster->shard_count && has_roles; i++) {
        const struct sl_message_placement *shard = &cluster->placements[i];
        char backup[16] = "-";
        if (shard->backup_plus_1 != 0) {
            (void)snprintf(backup, sizeof backup, "%u", shard->backup_plus_1 - 1);
        }
        at += snprintf(text + at, bytes - (size_t)at, "%s%u:e%u %u>%s%s%s",
                       i == 0 ? " pairs " : " ", i, (unsigned)shard->epoch, shard->primary, backup,
                       shard->in_sync ? "!" : "", shard->moves ? "~" : "");
    }
    return at;
}

static void describe_moves(const struct sl_message_moves *moves, char *text, size_t bytes)
{
    int at = snprintf(text, bytes, "moves");
    for (uint32_t i = 0; i < moves->count; i++) {
        at += snprintf(text + at, bytes - (size_t)at, " %u:%u>%u", moves->items[i].shard,
                       moves->items[i].from, moves->items[i].to);
    }
}

static void describe_complete(const struct sl_message_checkpoint_publish *complete, char *text,
                              size_t bytes)
{
    int at = snprintf(text, bytes, "complete %u on %u at %u:", (unsigned)complete->number,
                      (unsigned)complete->base, (unsigned)complete->time_ms);
    for (uint32_t i = 0; i < complete->file_count; i++) {
        at += snprintf(text + at, bytes - (size_t)at, " %u %s", complete->files[i].shard,
                       complete->files[i].name);
    }
    (void)snprintf(text + at, bytes - (size_t)at, "%s", complete->has_worker ? ", a worker" : "");
}

static void describe(const struct sl_message *message, char *text, size_t bytes)
{
    const struct sl_message_waiting *waiting = &message->waiting;
    const struct sl_message_expired *lost = &message->expired;
    int at = 0;
    switch (message->kind) {
    case SL_MESSAGE_ERROR:
        (void)snprintf(text, bytes, "error %s: %s", sl_err_name(message->error.err),
                       message->error.text);
        break;
    case SL_MESSAGE_CLUSTER:
        (void)describe_cluster(&message->cluster, text, bytes);
        break;
    case SL_MESSAGE_WAITING:
        at = snprintf(text, bytes, "waiting for");
        for (uint32_t i = 0; i < waiting->missing_count; i++) {
            at += snprintf(text + at, bytes - (size_t)at, " %s", waiting->missing[i]);
        }
        break;
    case SL_MESSAGE_TABLE_OPEN:
        (void)snprintf(text, bytes, "table %s of dim %u, lr %g, is %u",
                       message->table_open.spec.name, message->table_open.spec.dim,
                       (double)message->table_open.spec.optimizer.lr, message->table_open.table_id);
        break;
    case SL_MESSAGE_TABLE_OPENED:
        at = snprintf(text, bytes, "opened %u", message->table_id);
        if (message->keeps_policy) {
            (void)snprintf(text + at, bytes - (size_t)at, " with ttl_steps %u",
                           message->policy.ttl_steps);
        }
        break;
    case SL_MESSAGE_TABLE_DROPPED:
        (void)snprintf(text, bytes, "dropped %u", message->table_id);
        break;
    case SL_MESSAGE_TABLES:
        at = snprintf(text, bytes, "%u tables, next %u", message->tables.count,
                      message->tables.next);
        if (message->tables.count > 0) {
            (void)snprintf(text + at, bytes - (size_t)at, ", from %s",
                           message->tables.specs[0].name);
        }
        break;
    case SL_MESSAGE_OPERATION_ALLOWED:
        (void)snprintf(text, bytes, "allowed");
        break;
    case SL_MESSAGE_BARRIER_DONE:
        (void)snprintf(text, bytes, "done");
        break;
    case SL_MESSAGE_STATS:
        at = snprintf(text, bytes, "stats of %u tables", message->stats.table_count);
        if (message->stats.degraded_shards > 0) {
            (void)snprintf(text + at, bytes - (size_t)at, ", %u shards alone",
                           (unsigned)message->stats.degraded_shards);
        }
        break;
    case SL_MESSAGE_EXPIRED:
        (void)snprintf(text, bytes, "lost %s/%u of %u: %s",
                       lost->role == SL_MESSAGE_ROLE_PS ? "ps" : "worker", lost->task_index,
                       (unsigned)lost->client_id, lost->why);
        break;
    case SL_MESSAGE_ENDED:
        (void)snprintf(text, bytes, "ended: %s", message->why);
        break;
    case SL_MESSAGE_RELAY:
        (void)snprintf(text, bytes, "message %u of %u/%u: %u \"%.*s\"",
                       (unsigned)message->relay.token, message->relay.group, message->relay.rank,
                       message->relay.head, (int)message->relay.body_bytes,
                       (const char *)message->relay.body);
        break;
    case SL_MESSAGE_RELAY_ANSWER:
        (void)snprintf(text, bytes, "answer %u \"%.*s\"", message->relay.head,
                       (int)message->relay.body_bytes, (const char *)message->relay.body);
        break;
    case SL_MESSAGE_CHECKPOINT:
        (void)snprintf(text, bytes, "checkpoint %u on %u", (unsigned)message->checkpoint.number,
                       (unsigned)message->checkpoint.base);
        break;
    case SL_MESSAGE_CHECKPOINT_PUBLISH:
        describe_complete(&message->checkpoint_publish, text, bytes);
        break;
    case SL_MESSAGE_PLACEMENT_CHANGED:
        describe_moves(&message->moves, text, bytes);
        break;
    case SL_MESSAGE_CHECKPOINT_DONE:
        (void)snprintf(text, bytes, "made %u", (unsigned)message->checkpoint_number);
        break;
    default:
        (void)snprintf(text, bytes, "kind %d", (int)message->kind);
    }
}

static void on_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct fixture *f = ctx;
    if (message->kind == SL_MESSAGE_CHECKPOINT_DONE && message->id == 0) {
        f->completed_count++;
        return;
    }
    assert_true(f->sent_count < FIXTURE_SENT_MAX);
    char *text = f->sent[f->sent_count++];
    int at = snprintf(text, sizeof f->sent[0], "%u#%u ", (unsigned)peer, (unsigned)message->id);
    describe(message, text + at, sizeof f->sent[0] - (size_t)at);
    if (message->kind == SL_MESSAGE_CHECKPOINT && f->shows_whole) {
        at = (int)strlen(text);
        (void)snprintf(text + at, sizeof f->sent[0] - (size_t)at, ", %u whole",
                       (unsigned)message->checkpoint.complete);
    }
}

static void on_close(void *ctx, sl_coordinator_peer peer, const char *why)
{
    struct fixture *f = ctx;
    assert_non_null(why);
    assert_true(f->sent_count < FIXTURE_SENT_MAX);
    (void)snprintf(f->sent[f->sent_count++], sizeof f->sent[0], "%u closed", (unsigned)peer);
    /* As a server that closes at once would. */
    sl_coordinator_gone(f->coordinator, peer, true, f->now_ns);
}

static void on_stage(void *ctx, enum sl_coordinator_stage stage, int err, const char *why)
{
    struct fixture *f = ctx;
    assert_true(f->sent_count < FIXTURE_SENT_MAX);
    (void)snprintf(f->sent[f->sent_count++], sizeof f->sent[0], "stage %d err %s: %s", (int)stage,
                   sl_err_name(err), why);
}

static uint64_t time_ms(void *ctx)
{
    const struct fixture *f = ctx;
    return f->now_ns / SL_CLOCK_NS_PER_MS;
}

static void forget_records(struct fixture *f)
{
    for (uint32_t k = 0; k < SL_COORDINATOR_RECORD_ALL; k++) {
        for (uint32_t i = 0; i < FIXTURE_RECORDS; i++) {
            free(f->records[k][i].value);
            f->records[k][i] = (struct fixture_record){0};
        }
    }
}

static void on_changed(void *ctx, enum sl_coordinator_record kind, uint32_t index)
{
    struct fixture *f = ctx;
    if (kind == SL_COORDINATOR_RECORD_ALL) {
        forget_records(f);
    } else if (index < FIXTURE_RECORDS) {
        f->records[kind][index].changed = true;
    }
}

/* All that has changed; what has not must be as it was written. */
static void write_records(struct fixture *f)
{
    for (uint32_t k = 0; k < SL_COORDINATOR_RECORD_ALL; k++) {
        for (uint32_t i = 0; i < FIXTURE_RECORDS; i++) {
            struct fixture_record *record = &f->records[k][i];
            if (!record->changed && record->value == NULL) {
                continue;
            }
            uint8_t *value;
            size_t bytes;
            assert_int_equal(sl_coordinator_record_write(
                                 f->coordinator, (enum sl_coordinator_record)k, i, &value, &bytes),
                             0);
            if (!record->changed) {
                assert_int_equal(bytes, record->value_bytes);
                assert_memory_equal(value, record->value, bytes);
            }
            free(record->value);
            *record = (struct fixture_record){.value = value, .value_bytes = bytes};
        }
    }
}

static void make(struct fixture *f, uint32_t ps_count, uint32_t worker_count)
{
    struct sl_coordinator_options options = {
        .ps_count = ps_count,
        .worker_count = worker_count,
        .worker_count_source = f->worker_count_source,
        .waiting_interval_ns = 3 * SECOND,
        .lease_ns = 10 * SECOND,
        .needs_operator = true,
        .restore_policy = f->restore_policy,
        .identity = f->identity,
        .send = on_send,
        .close = on_close,
        .stage_changed = f->follows ? on_stage : NULL,
        .start_timeout_ns = 60 * SECOND,
        .checkpoint_interval_ns = f->checkpoint_interval_ns,
        .incrementals_max = f->checkpoint_adds,
        .checkpoint_timeout_ns = 60 * SECOND,
        .time_ms = time_ms,
        .changed = f->remembers ? on_changed : NULL,
        .ctx = f,
    };
    assert_int_equal(sl_coordinator_create(&options, &f->coordinator), 0);
}

void fixture_setup(struct fixture *f)
{
    sl_log_setup(SL_LOG_OFF, "test");
    f->ps_count = 2;
    f->worker_count = 3;
    make(f, 2, 3);
}

void fixture_setup_records(struct fixture *f)
{
    f->remembers = true;
    fixture_setup(f);
}

void fixture_teardown(struct fixture *f)
{
    expect_nothing(f);
    sl_coordinator_destroy(&f->coordinator);
    forget_records(f);
}

void fixture_remake(struct fixture *f, uint32_t ps_count, uint32_t worker_count)
{
    sl_coordinator_destroy(&f->coordinator);
    forget_records(f);
    f->ps_count = ps_count;
    f->worker_count = worker_count;
    make(f, ps_count, worker_count);
}

void fixture_take_over(struct fixture *f)
{
    write_records(f);
    sl_coordinator_destroy(&f->coordinator);
    make(f, f->ps_count, f->worker_count);
    for (uint32_t k = 0; k < SL_COORDINATOR_RECORD_ALL; k++) {
        for (uint32_t i = 0; i < FIXTURE_RECORDS; i++) {
            struct fixture_record *record = &f->records[k][i];
            if (record->value != NULL) {
                assert_int_equal(
                    sl_coordinator_record_read(f->coordinator, (enum sl_coordinator_record)k, i,
                                               record->value, record->value_bytes, &f->reason),
                    0);
            }
        }
    }
    write_records(f); /* what was read is written as it was */
    sl_coordinator_record_end(f->coordinator, f->now_ns);
}

void fixture_follow(struct fixture *f, uint32_t ps_count, uint32_t worker_count)
{
    f->follows = true;
    fixture_remake(f, ps_count, worker_count);
}

static void take(struct fixture *f)
{
    f->sent_count--;
    memmove(f->sent[0], f->sent[1], f->sent_count * sizeof f->sent[0]);
}

void expect(struct fixture *f, const char *text)
{
    assert_true(f->sent_count > 0);
    assert_string_equal(f->sent[0], text);
    take(f);
}

void expect_part(struct fixture *f, const char *text)
{
    assert_true(f->sent_count > 0);
    if (strstr(f->sent[0], text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, f->sent[0]);
    }
    take(f);
}

void expect_nothing(struct fixture *f)
{
    if (f->sent_count != 0) {
        fail_msg("%u things were sent, first \"%s\"", f->sent_count, f->sent[0]);
    }
}

void expect_among(struct fixture *f, const char *text)
{
    uint32_t at = 0;
    while (at < f->sent_count && strcmp(f->sent[at], text) != 0) {
        at++;
    }
    assert_true(at < f->sent_count);
    f->sent_count = 0;
}

void expect_count(struct fixture *f, uint32_t count)
{
    assert_int_equal(f->sent_count, count);
    f->sent_count = 0;
}

void tick_at(struct fixture *f, uint64_t now_ns)
{
    f->now_ns = now_ns;
    sl_coordinator_tick(f->coordinator, now_ns);
}

int hello(struct fixture *f, sl_coordinator_peer peer, enum sl_message_role role, uint32_t task)
{
    return hello_as(f, peer, role, task, peer);
}

int hello_as(struct fixture *f, sl_coordinator_peer peer, enum sl_message_role role, uint32_t task,
             uint64_t client_id)
{
    struct sl_message_hello message = {
        .purpose = SL_MESSAGE_PURPOSE_CONTROL,
        .role = role,
        .task_index = task,
        .client_id = client_id,
    };
    return sl_coordinator_hello(f->coordinator, peer, &message, f->now_ns, &f->reason);
}

int hello_any(struct fixture *f, sl_coordinator_peer peer, enum sl_message_role role,
              uint64_t client_id)
{
    struct sl_message_hello message = {
        .purpose = SL_MESSAGE_PURPOSE_CONTROL,
        .role = role,
        .any_task = true,
        .client_id = client_id,
    };
    int err = sl_coordinator_hello(f->coordinator, peer, &message, f->now_ns, &f->reason);
    return err != 0 ? err : (int)sl_coordinator_task_index(f->coordinator, peer);
}

void workers_join(struct fixture *f)
{
    for (uint32_t worker = 0; worker < 3; worker++) {
        assert_int_equal(hello(f, worker + 1, SL_MESSAGE_ROLE_WORKER, worker), 0);
    }
}

void say(struct fixture *f, sl_coordinator_peer peer, struct sl_message message)
{
    sl_coordinator_message(f->coordinator, peer, &message, f->now_ns);
}

void heartbeat(struct fixture *f, sl_coordinator_peer peer)
{
    say(f, peer, (struct sl_message){.kind = SL_MESSAGE_HEARTBEAT});
}

void goodbye(struct fixture *f, sl_coordinator_peer peer)
{
    say(f, peer, (struct sl_message){.kind = SL_MESSAGE_GOODBYE});
    sl_coordinator_gone(f->coordinator, peer, false, f->now_ns);
}

void disconnect(struct fixture *f, sl_coordinator_peer peer)
{
    sl_coordinator_gone(f->coordinator, peer, false, f->now_ns);
}

void register_ps(struct fixture *f, sl_coordinator_peer peer, uint64_t id, uint32_t shards)
{
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER,
                                 .id = id,
                                 .reg = {.shard_count = shards, .ps_count = 2, .worker_count = 3}};
    (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://host%u:1",
                   (unsigned)peer);
    say(f, peer, message);
}

void register_worker(struct fixture *f, sl_coordinator_peer peer, uint64_t id)
{
    say(f, peer, (struct sl_message){.kind = SL_MESSAGE_REGISTER, .id = id});
}

void join_ps(struct fixture *f, sl_coordinator_peer peer, uint32_t task, uint64_t client_id,
             uint64_t id, uint32_t shards)
{
    assert_int_equal(hello_as(f, peer, SL_MESSAGE_ROLE_PS, task, client_id), 0);
    register_ps(f, peer, id, shards);
}

void join_worker(struct fixture *f, sl_coordinator_peer peer, uint32_t task, uint64_t client_id,
                 uint64_t id)
{
    assert_int_equal(hello_as(f, peer, SL_MESSAGE_ROLE_WORKER, task, client_id), 0);
    register_worker(f, peer, id);
}

void cluster_start(struct fixture *f)
{
    for (uint32_t ps = 0; ps < 2; ps++) {
        join_ps(f, 11 + ps, ps, 11 + ps, 1, 2);
    }
    assert_int_equal(f->sent_count, 2);
    f->sent_count = 0;
}

struct sl_message table_message(const char *name, uint32_t dim, uint64_t id)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .id = id,
        .table_open.spec = {.kind = SL_TABLE_SPARSE,
                            .dim = dim,
                            .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SGD)},
    };
    (void)snprintf(message.table_open.spec.name, sizeof message.table_open.spec.name, "%s", name);
    return message;
}

struct sl_message barrier_message(const char *name, uint32_t count, uint64_t id)
{
    struct sl_message message = {.kind = SL_MESSAGE_BARRIER, .id = id, .barrier.count = count};
    (void)snprintf(message.barrier.name, sizeof message.barrier.name, "%s", name);
    return message;
}

void pass(struct fixture *f, uint64_t ns, const sl_coordinator_peer *alive)
{
    for (uint64_t end_ns = f->now_ns + ns; f->now_ns < end_ns;) {
        f->now_ns += SECOND / 2;
        for (uint32_t i = 0; alive[i] != 0; i++) {
            heartbeat(f, alive[i]);
        }
        sl_coordinator_tick(f->coordinator, f->now_ns);
    }
}
