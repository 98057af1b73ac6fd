#include "net/session/message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "control.pb-c.h"
#include "core/assert.h"
#include "net/session/message_copy.h"
#include "net/session/message_write.h"

/* The files of a checkpoint message: 300 KiB of stack, used by pack_with_files only. */
struct files {
    Starling__CheckpointFile file[SL_LIMIT_SHARDS];
    Starling__CheckpointFile *list[SL_LIMIT_SHARDS];
};

/* The structs that protobuf-c packs from. They are on the stack (below 100 KiB), so that encoding
 * allocates nothing and cannot fail. */
struct build {
    Starling__Control control;
    struct files *files; /* NULL unless the kind has files */
    Starling__Register__ReplicaReport pairs[SL_MESSAGE_REPLICA_REPORTS_MAX];
    Starling__Register__ReplicaReport *pair_list[SL_MESSAGE_REPLICA_REPORTS_MAX];
    union {
        Starling__Hello hello;
        Starling__Welcome welcome;
        Starling__Error error;
        Starling__Register reg;
        struct {
            Starling__Cluster message;
            Starling__Cluster__Ps ps[SL_LIMIT_PS];
            Starling__Cluster__Ps *ps_list[SL_LIMIT_PS];
        } cluster;
        struct {
            Starling__Waiting message;
            char *missing_list[SL_MESSAGE_MISSING_COUNT];
        } waiting;
        struct {
            Starling__TableOpen message;
            Starling__TableSpec spec;
            Starling__Optimizer optimizer;
            Starling__Initializer initializer;
            Starling__Consistency consistency;
        } open;
        Starling__TableOpened opened;
        Starling__Barrier barrier;
        Starling__BarrierDone barrier_done;
        Starling__StatsGet stats_get;
        struct {
            Starling__Stats message;
            Starling__Stats__Table table[SL_LIMIT_TABLES];
            Starling__Stats__Table *table_list[SL_LIMIT_TABLES];
        } stats;
        Starling__Goodbye goodbye;
        Starling__Challenge challenge;
        Starling__Proof proof;
        Starling__Heartbeat heartbeat;
        Starling__Expired expired;
        Starling__Join join;
        Starling__Joined joined;
        Starling__Ended ended;
        Starling__Checkpoint checkpoint;
        Starling__CheckpointPart part;
        Starling__CheckpointPublish complete;
        Starling__CheckpointAsk checkpoint_ask;
        Starling__CheckpointDone checkpoint_done;
    };
};

static void build_hello(struct build *build, const struct sl_message_hello *from)
{
    Starling__Hello *to = &build->hello;
    *to = (Starling__Hello)STARLING__HELLO__INIT;
    SL_MESSAGE_COPY_HELLO
    to->purpose = (Starling__Purpose)from->purpose;
    to->role = (Starling__Role)from->role;
    to->software = text(from->software, sizeof from->software);
    if (from->has_nonce) {
        to->nonce = binary(from->nonce, sizeof from->nonce);
    }
    build->control.hello = to;
}

static void build_welcome(struct build *build, const struct sl_message_welcome *from)
{
    Starling__Welcome *to = &build->welcome;
    *to = (Starling__Welcome)STARLING__WELCOME__INIT;
    SL_MESSAGE_COPY_WELCOME
    to->software = text(from->software, sizeof from->software);
    to->http = text(from->http, sizeof from->http);
    build->control.welcome = to;
}

static void build_challenge(struct build *build, const struct sl_message_challenge *from)
{
    build->challenge = (Starling__Challenge)STARLING__CHALLENGE__INIT;
    build->challenge.nonce = binary(from->nonce, sizeof from->nonce);
    build->control.challenge = &build->challenge;
}

static void build_proof(struct build *build, const struct sl_message_proof *from)
{
    build->proof = (Starling__Proof)STARLING__PROOF__INIT;
    build->proof.proof = binary(from->proof, sizeof from->proof);
    build->control.proof = &build->proof;
}

static void build_expired(struct build *build, const struct sl_message_expired *from)
{
    build->expired = (Starling__Expired)STARLING__EXPIRED__INIT;
    build->expired.role = (Starling__Role)from->role;
    build->expired.task_index = from->task_index;
    build->expired.client_id = from->client_id;
    build->expired.why = text(from->why, sizeof from->why);
    build->control.expired = &build->expired;
}

static void build_error(struct build *build, const struct sl_message_error *from)
{
    sl_assert(from->err < 0);
    build->error = (Starling__Error)STARLING__ERROR__INIT;
    build->error.code = (uint32_t)-from->err;
    build->error.text = text(from->text, sizeof from->text);
    build->error.coordinator = text(from->coordinator, sizeof from->coordinator);
    build->control.error = &build->error;
}

/* Drops the const, as in text(). */
static uint64_t *numbers(const struct sl_message_numbers *from)
{
    sl_assert(from->count <= SL_MESSAGE_NUMBERS_MAX);
    return (uint64_t *)(uintptr_t)from->items;
}

static void build_register(struct build *build, const struct sl_message_register *from)
{
    sl_assert(from->replica_report_count <= SL_MESSAGE_REPLICA_REPORTS_MAX);
    Starling__Register *to = &build->reg;
    *to = (Starling__Register)STARLING__REGISTER__INIT;
    to->data_endpoint = text(from->data_endpoint, sizeof from->data_endpoint);
    SL_MESSAGE_COPY_REGISTER
    to->host = text(from->host, sizeof from->host);
    to->bypass_endpoint = text(from->bypass_endpoint, sizeof from->bypass_endpoint);
    for (uint32_t i = 0; i < from->replica_report_count; i++) {
        Starling__Register__ReplicaReport *pair = &build->pairs[i];
        *pair = (Starling__Register__ReplicaReport)STARLING__REGISTER__REPLICA_REPORT__INIT;
        pair->task_index = from->replica_reports[i].task_index;
        pair->epoch = from->replica_reports[i].epoch;
        pair->in_sync = from->replica_reports[i].in_sync;
        pair->role = (Starling__ReplicaRole)from->replica_reports[i].role;
        pair->is_undecided = from->replica_reports[i].is_undecided;
        build->pair_list[i] = pair;
    }
    to->replica_reports = build->pair_list;
    to->n_replica_reports = from->replica_report_count;
    to->complete = numbers(&from->complete);
    to->n_complete = from->complete.count;
    to->unfinished = numbers(&from->unfinished);
    to->n_unfinished = from->unfinished.count;
    build->control.register_ = to;
}

static void build_cluster(struct build *build, const struct sl_message_cluster *from)
{
    sl_assert(from->ps_count <= SL_LIMIT_PS);
    Starling__Cluster *to = &build->cluster.message;
    *to = (Starling__Cluster)STARLING__CLUSTER__INIT;
    for (uint32_t i = 0; i < from->ps_count; i++) {
        Starling__Cluster__Ps *ps = &build->cluster.ps[i];
        *ps = (Starling__Cluster__Ps)STARLING__CLUSTER__PS__INIT;
        ps->task_index = from->ps[i].task_index;
        ps->data_endpoint = text(from->ps[i].data_endpoint, sizeof from->ps[i].data_endpoint);
        ps->shard_count = from->ps[i].shard_count;
        ps->host = text(from->ps[i].host, sizeof from->ps[i].host);
        ps->bypass_endpoint = text(from->ps[i].bypass_endpoint, sizeof from->ps[i].bypass_endpoint);
        if (from->ps[i].epoch != 0) {
            ps->epoch = from->ps[i].epoch;
            ps->primary = from->ps[i].primary;
            ps->backup = from->ps[i].backup + 1; /* SL_MESSAGE_NO_BACKUP becomes 0 */
            ps->in_sync = from->ps[i].in_sync;
        }
        build->cluster.ps_list[i] = ps;
    }
    to->ps = build->cluster.ps_list;
    to->n_ps = from->ps_count;
    SL_MESSAGE_COPY_CLUSTER
    build->control.cluster = to;
}

static void build_waiting(struct build *build, const struct sl_message_waiting *from)
{
    sl_assert(from->missing_count <= SL_MESSAGE_MISSING_COUNT);
    build->waiting.message = (Starling__Waiting)STARLING__WAITING__INIT;
    for (uint32_t i = 0; i < from->missing_count; i++) {
        build->waiting.missing_list[i] = text(from->missing[i], sizeof from->missing[i]);
    }
    build->waiting.message.missing = build->waiting.missing_list;
    build->waiting.message.n_missing = from->missing_count;
    build->control.waiting = &build->waiting.message;
}

static void build_optimizer(const struct sl_optimizer_spec *from, Starling__Optimizer *to)
{
    *to = (Starling__Optimizer)STARLING__OPTIMIZER__INIT;
    to->kind = (uint32_t)from->kind;
    SL_MESSAGE_COPY_OPTIMIZER
}

static void build_table_open(struct build *build, const struct sl_message_table_open *from)
{
    const struct sl_table_spec *spec = &from->spec;
    build_optimizer(&spec->optimizer, &build->open.optimizer);
    build->open.initializer = (Starling__Initializer)STARLING__INITIALIZER__INIT;
    build->open.initializer.kind = (uint32_t)spec->initializer.kind;
    build->open.initializer.a = spec->initializer.low;
    build->open.initializer.b = spec->initializer.high;
    build->open.initializer.seed = spec->initializer.seed;
    build->open.consistency = (Starling__Consistency)STARLING__CONSISTENCY__INIT;
    build->open.consistency.mode = (uint32_t)spec->consistency.mode;
    build->open.consistency.staleness = spec->consistency.staleness;
    build->open.consistency.worker_count = spec->consistency.worker_count;
    build->open.spec = (Starling__TableSpec)STARLING__TABLE_SPEC__INIT;
    build->open.spec.name = text(spec->name, sizeof spec->name);
    build->open.spec.kind = (uint32_t)spec->kind;
    build->open.spec.dim = spec->dim;
    build->open.spec.length = spec->length;
    build->open.spec.reject_nonfinite = spec->reject_nonfinite;
    build->open.spec.optimizer = &build->open.optimizer;
    build->open.spec.initializer = &build->open.initializer;
    build->open.spec.consistency = &build->open.consistency;
    build->open.message = (Starling__TableOpen)STARLING__TABLE_OPEN__INIT;
    build->open.message.spec = &build->open.spec;
    build->open.message.table_id = from->table_id;
    build->open.message.keep_id = from->keep_id;
    build->open.message.ask = from->asks;
    build->control.table_open = &build->open.message;
}

static void build_barrier(struct build *build, const struct sl_message_barrier *from)
{
    build->barrier = (Starling__Barrier)STARLING__BARRIER__INIT;
    build->barrier.name = text(from->name, sizeof from->name);
    build->barrier.count = from->count;
    build->barrier.timeout_ms = from->timeout_ms;
    build->barrier.leave = from->leaves;
    build->control.barrier = &build->barrier;
}

static void build_table_stats(const struct sl_message_table_stats *from, Starling__Stats__Table *to)
{
    *to = (Starling__Stats__Table)STARLING__STATS__TABLE__INIT;
    SL_MESSAGE_COPY_TABLE_STATS
    to->name = text(from->name, sizeof from->name);
}

static void build_stats(struct build *build, const struct sl_message_stats *from)
{
    sl_assert(from->table_count <= SL_LIMIT_TABLES);
    Starling__Stats *to = &build->stats.message;
    *to = (Starling__Stats)STARLING__STATS__INIT;
    for (uint32_t i = 0; i < from->table_count; i++) {
        build_table_stats(&from->tables[i], &build->stats.table[i]);
        build->stats.table_list[i] = &build->stats.table[i];
    }
    to->tables = build->stats.table_list;
    to->n_tables = from->table_count;
    SL_MESSAGE_COPY_STATS
    build->control.stats = to;
}

static void build_file(const struct sl_message_checkpoint_file *from, Starling__CheckpointFile *to)
{
    *to = (Starling__CheckpointFile)STARLING__CHECKPOINT_FILE__INIT;
    SL_MESSAGE_COPY_FILE
    to->name = text(from->name, sizeof from->name);
}

static Starling__CheckpointFile **
build_files(struct build *build, const struct sl_message_checkpoint_file *from, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        build_file(&from[i], &build->files->file[i]);
        build->files->list[i] = &build->files->file[i];
    }
    return build->files->list;
}

static void build_checkpoint(struct build *build, const struct sl_message_checkpoint *from)
{
    build->checkpoint = (Starling__Checkpoint)STARLING__CHECKPOINT__INIT;
    build->checkpoint.number = from->number;
    build->checkpoint.base_number = from->base;
    build->checkpoint.complete = from->complete;
    build->control.checkpoint = &build->checkpoint;
}

static void build_part(struct build *build, const struct sl_message_checkpoint_part *from)
{
    sl_assert(from->file_count <= 2 * SL_LIMIT_REACTORS);
    sl_assert(from->err <= 0);
    build->part = (Starling__CheckpointPart)STARLING__CHECKPOINT_PART__INIT;
    build->part.number = from->number;
    build->part.files = build_files(build, from->files, from->file_count);
    build->part.n_files = from->file_count;
    build->part.code = (uint32_t)-from->err;
    build->part.text = text(from->text, sizeof from->text);
    build->part.has_worker = from->has_worker;
    build->control.checkpoint_part = &build->part;
}

static void build_complete(struct build *build, const struct sl_message_checkpoint_publish *from)
{
    sl_assert(from->file_count <= SL_LIMIT_SHARDS);
    build->complete = (Starling__CheckpointPublish)STARLING__CHECKPOINT_PUBLISH__INIT;
    build->complete.number = from->number;
    build->complete.base_number = from->base;
    build->complete.files = build_files(build, from->files, from->file_count);
    build->complete.n_files = from->file_count;
    build->complete.time_ms = from->time_ms;
    build->complete.has_worker = from->has_worker;
    build->control.checkpoint_publish = &build->complete;
}

static void build_body(struct build *build, const struct sl_message *from)
{
    switch (from->kind) {
    case SL_MESSAGE_HELLO:
        build_hello(build, &from->hello);
        break;
    case SL_MESSAGE_WELCOME:
        build_welcome(build, &from->welcome);
        break;
    case SL_MESSAGE_ERROR:
        build_error(build, &from->error);
        break;
    case SL_MESSAGE_REGISTER:
        build_register(build, &from->reg);
        break;
    case SL_MESSAGE_CLUSTER:
        build_cluster(build, &from->cluster);
        break;
    case SL_MESSAGE_WAITING:
        build_waiting(build, &from->waiting);
        break;
    case SL_MESSAGE_TABLE_OPEN:
        build_table_open(build, &from->table_open);
        break;
    case SL_MESSAGE_TABLE_OPENED:
        build->opened = (Starling__TableOpened)STARLING__TABLE_OPENED__INIT;
        build->opened.table_id = from->table_id;
        build->opened.reject_nonfinite = from->reject_nonfinite;
        build->control.table_opened = &build->opened;
        break;
    case SL_MESSAGE_BARRIER:
        build_barrier(build, &from->barrier);
        break;
    case SL_MESSAGE_BARRIER_DONE:
        build->barrier_done = (Starling__BarrierDone)STARLING__BARRIER_DONE__INIT;
        build->control.barrier_done = &build->barrier_done;
        break;
    case SL_MESSAGE_STATS_GET:
        build->stats_get = (Starling__StatsGet)STARLING__STATS_GET__INIT;
        build->control.stats_get = &build->stats_get;
        break;
    case SL_MESSAGE_STATS:
        build_stats(build, &from->stats);
        break;
    case SL_MESSAGE_GOODBYE:
        build->goodbye = (Starling__Goodbye)STARLING__GOODBYE__INIT;
        build->control.goodbye = &build->goodbye;
        break;
    case SL_MESSAGE_CHALLENGE:
        build_challenge(build, &from->challenge);
        break;
    case SL_MESSAGE_PROOF:
        build_proof(build, &from->proof);
        break;
    case SL_MESSAGE_HEARTBEAT:
        build->heartbeat = (Starling__Heartbeat)STARLING__HEARTBEAT__INIT;
        build->control.heartbeat = &build->heartbeat;
        break;
    case SL_MESSAGE_EXPIRED:
        build_expired(build, &from->expired);
        break;
    case SL_MESSAGE_JOIN:
        build->join = (Starling__Join)STARLING__JOIN__INIT;
        build->join.clock = from->clock;
        build->control.join = &build->join;
        break;
    case SL_MESSAGE_JOINED:
        build->joined = (Starling__Joined)STARLING__JOINED__INIT;
        build->joined.clock = from->clock;
        build->control.joined = &build->joined;
        break;
    case SL_MESSAGE_ENDED:
        build->ended = (Starling__Ended)STARLING__ENDED__INIT;
        build->ended.why = text(from->why, sizeof from->why);
        build->control.ended = &build->ended;
        break;
    case SL_MESSAGE_CHECKPOINT:
        build_checkpoint(build, &from->checkpoint);
        break;
    case SL_MESSAGE_CHECKPOINT_PART:
        build_part(build, &from->checkpoint_part);
        break;
    case SL_MESSAGE_CHECKPOINT_PUBLISH:
        build_complete(build, &from->checkpoint_publish);
        break;
    case SL_MESSAGE_CHECKPOINT_ASK:
        build->checkpoint_ask = (Starling__CheckpointAsk)STARLING__CHECKPOINT_ASK__INIT;
        build->checkpoint_ask.timeout_ms = from->timeout_ms;
        build->control.checkpoint_ask = &build->checkpoint_ask;
        break;
    case SL_MESSAGE_CHECKPOINT_DONE:
        build->checkpoint_done = (Starling__CheckpointDone)STARLING__CHECKPOINT_DONE__INIT;
        build->checkpoint_done.number = from->checkpoint_number;
        build->control.checkpoint_done = &build->checkpoint_done;
        break;
    case SL_MESSAGE_REPORT:
        build->control.report = binary(from->report.bytes, from->report.byte_count);
        break;
    default:
        break; /* message_transfer.c */
    }
}

/* The kinds of message_transfer.c. */
static bool is_transfer(enum sl_message_kind kind)
{
    return kind >= SL_MESSAGE_SEGMENT_GET && kind <= SL_MESSAGE_FENCED;
}

static void build_control(struct build *build, const struct sl_message *from)
{
    sl_assert(from->kind >= SL_MESSAGE_HELLO);
    sl_assert(from->kind <= SL_MESSAGE_REPORT);
    sl_assert(!is_transfer(from->kind));
    build->control = (Starling__Control)STARLING__CONTROL__INIT;
    build->control.id = from->id;
    build->control.body_case = (Starling__Control__BodyCase)from->kind;
    build_body(build, from);
}

/* noinline, so that `files` is not on the stack of every other message. */
static size_t pack_with_files(const struct sl_message *from, uint8_t *to) __attribute__((noinline));

/* Returns the packed size. Writes the message unless `to` is NULL. */
static size_t session_message_pack(const struct sl_message *from, struct files *files, uint8_t *to)
{
    struct build build;
    build.files = files;
    build_control(&build, from);
    return to == NULL ? starling__control__get_packed_size(&build.control)
                      : starling__control__pack(&build.control, to);
}

static size_t pack_with_files(const struct sl_message *from, uint8_t *to)
{
    struct files files;
    return session_message_pack(from, &files, to);
}

static size_t pack_any(const struct sl_message *from, uint8_t *to)
{
    if (is_transfer(from->kind)) {
        return sl_message_transfer_pack(from, to);
    }
    bool has_files =
        from->kind == SL_MESSAGE_CHECKPOINT_PART || from->kind == SL_MESSAGE_CHECKPOINT_PUBLISH;
    return has_files ? pack_with_files(from, to) : session_message_pack(from, NULL, to);
}

size_t sl_message_encoded_bytes(const struct sl_message *message)
{
    sl_assert(message != NULL);
    return pack_any(message, NULL);
}

void sl_message_encode(const struct sl_message *message, uint8_t *to)
{
    sl_assert(message != NULL);
    sl_assert(to != NULL);
    (void)pack_any(message, to);
}

void sl_message_fini(struct sl_message *message)
{
    sl_assert(message != NULL);
    if (message->kind == SL_MESSAGE_CLUSTER) {
        free(message->cluster.ps);
        message->cluster.ps = NULL;
        message->cluster.ps_count = 0;
    } else if (message->kind == SL_MESSAGE_STATS) {
        free(message->stats.tables);
        message->stats.tables = NULL;
        message->stats.table_count = 0;
    } else if (message->kind == SL_MESSAGE_CHECKPOINT_PART) {
        free(message->checkpoint_part.files);
        message->checkpoint_part.files = NULL;
        message->checkpoint_part.file_count = 0;
    } else if (message->kind == SL_MESSAGE_CHECKPOINT_PUBLISH) {
        free(message->checkpoint_publish.files);
        message->checkpoint_publish.files = NULL;
        message->checkpoint_publish.file_count = 0;
    } else if (message->kind == SL_MESSAGE_REPORT) {
        free(message->report.bytes);
        message->report.bytes = NULL;
        message->report.byte_count = 0;
    } else if (is_transfer(message->kind)) {
        sl_message_transfer_fini(message);
    }
}

void sl_message_hello_name(const struct sl_message_hello *hello, char name[SL_MESSAGE_NAME_BYTES])
{
    if (hello->role == SL_MESSAGE_ROLE_CLIENT) {
        (void)snprintf(name, SL_MESSAGE_NAME_BYTES, "client %016" PRIx64, hello->client_id);
        return;
    }
    const char *role = hello->role == SL_MESSAGE_ROLE_PS ? "ps" : "worker";
    if (hello->any_task) {
        (void)snprintf(name, SL_MESSAGE_NAME_BYTES, "a %s", role);
    } else {
        (void)snprintf(name, SL_MESSAGE_NAME_BYTES, "%s/%u", role, hello->task_index);
    }
}
