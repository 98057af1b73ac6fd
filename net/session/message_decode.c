#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "control.pb-c.h"
#include "core/assert.h"
#include "core/endpoint.h"
#include "core/log.h"
#include "net/session/message.h"
#include "net/session/message_copy.h"
#include "net/session/message_memory.h"
#include "net/session/message_read.h"

static_assert((int)SL_MESSAGE_HELLO == (int)STARLING__CONTROL__BODY_HELLO,
              "kinds are field numbers");
static_assert((int)SL_MESSAGE_REPORT == (int)STARLING__CONTROL__BODY_REPORT, "kind of a report");

bool sl_message_is_endpoint(const char *text)
{
    struct sl_reason reason;
    struct sl_endpoint endpoint;
    if (sl_endpoint_parse(text, &endpoint, &reason) != SL_OK) {
        sl_log_debug("control message refused: %s", reason.text);
        return false;
    }
    return holds(endpoint.port != 0, "an endpoint has port 0");
}

static bool copy_bytes(const ProtobufCBinaryData *from, uint8_t *to, size_t to_bytes)
{
    if (!holds(from->len == to_bytes, "a nonce or proof of another length")) {
        return false;
    }
    memcpy(to, from->data, to_bytes);
    return true;
}

static bool is_role(Starling__Role role)
{
    return role == STARLING__ROLE__ROLE_PS || role == STARLING__ROLE__ROLE_WORKER ||
           role == STARLING__ROLE__ROLE_CLIENT;
}

static uint32_t task_count_of(Starling__Role role)
{
    return role == STARLING__ROLE__ROLE_PS       ? SL_LIMIT_PS
           : role == STARLING__ROLE__ROLE_WORKER ? SL_LIMIT_WORKERS
                                                 : 1;
}

static bool read_hello(const struct sl_message_memory *memory, const Starling__Hello *from,
                       struct sl_message_hello *to)
{
    SL_MESSAGE_COPY_HELLO
    to->purpose = (enum sl_message_purpose)from->purpose;
    to->role = (enum sl_message_role)from->role;
    to->has_nonce = from->nonce.len > 0;
    return holds(from->purpose >= STARLING__PURPOSE__PURPOSE_CONTROL &&
                     from->purpose <= STARLING__PURPOSE__PURPOSE_TRANSFER,
                 "hello: unknown purpose") &&
           holds(from->purpose != STARLING__PURPOSE__PURPOSE_TRANSFER ||
                     (from->role == STARLING__ROLE__ROLE_CLIENT &&
                      (from->lane == 0) == (from->lane_epoch == 0)),
                 "hello: a transfer engine that is no client, or a lane without an epoch") &&
           holds(from->purpose != STARLING__PURPOSE__PURPOSE_REPLICA ||
                     (from->role == STARLING__ROLE__ROLE_PS && from->epoch != 0),
                 "hello: a primary that is no server, or without an epoch") &&
           holds(is_role(from->role), "hello: unknown role") &&
           holds(from->task_index < task_count_of(from->role),
                 "hello: task_index over the role's limit") &&
           holds(from->any_task == 0 || from->task_index == 0,
                 "hello: a task_index, and the wish for any") &&
           (!to->has_nonce || copy_bytes(&from->nonce, to->nonce, sizeof to->nonce)) &&
           holds(from->shard < 2 * SL_LIMIT_REACTORS, "hello: shard over the limit") &&
           copy_text(memory, from->software, TEXT_NAME, to->software, sizeof to->software);
}

static bool read_welcome(const struct sl_message_memory *memory, const Starling__Welcome *from,
                         struct sl_message_welcome *to)
{
    SL_MESSAGE_COPY_WELCOME
    return holds(from->task_index < SL_LIMIT_WORKERS, "welcome: task_index over the limit") &&
           holds(from->shard_count <= SL_LIMIT_SHARDS, "welcome: shard_count over the limit") &&
           holds(from->shard < from->shard_count || (from->shard == 0 && from->shard_count == 0),
                 "welcome: shard is not below shard_count") &&
           holds(from->payload_bytes_max <= SL_LIMIT_FRAME_PAYLOAD_BYTES,
                 "welcome: payload_bytes_max over the limit") &&
           copy_text(memory, from->software, TEXT_NAME, to->software, sizeof to->software) &&
           copy_text(memory, from->http, TEXT_NAME, to->http, sizeof to->http);
}

static bool read_error(const struct sl_message_memory *memory, const Starling__Error *from,
                       struct sl_message_error *to)
{
    to->err = read_code(from->code);
    return copy_text(memory, from->text, TEXT_FREE, to->text, sizeof to->text) &&
           copy_text(memory, from->coordinator, TEXT_NAME, to->coordinator,
                     sizeof to->coordinator) &&
           (to->coordinator[0] == '\0' || sl_message_is_endpoint(to->coordinator));
}

static bool read_pairs(const Starling__Register *from, struct sl_message_register *to)
{
    if (!holds(from->n_replica_reports <= SL_MESSAGE_REPLICA_REPORTS_MAX,
               "register: too many replica reports")) {
        return false;
    }
    to->replica_report_count = (uint32_t)from->n_replica_reports;
    for (uint32_t i = 0; i < to->replica_report_count; i++) {
        const Starling__Register__ReplicaReport *pair = from->replica_reports[i];
        to->replica_reports[i] = (struct sl_message_replica_report){
            .task_index = pair->task_index,
            .epoch = pair->epoch,
            .role = (enum sl_message_replica_role)pair->role,
            .in_sync = pair->in_sync != 0,
            .is_undecided = pair->is_undecided != 0,
        };
        if (!holds(pair->task_index < SL_LIMIT_PS,
                   "register: a replica report's task over the limit") ||
            !holds((uint32_t)pair->role <= SL_MESSAGE_REPLICA_NEITHER,
                   "register: a part that is none")) {
            return false;
        }
    }
    return true;
}

static bool read_register(const struct sl_message_memory *memory, const Starling__Register *from,
                          struct sl_message_register *to)
{
    SL_MESSAGE_COPY_REGISTER
    return holds(from->shard_count <= SL_LIMIT_REACTORS, "register: shard_count over the limit") &&
           holds(from->replicas <= 1, "register: more than one replica") && read_pairs(from, to) &&
           sl_message_checkpoint_read_numbers(from->complete, from->n_complete, &to->complete) &&
           sl_message_checkpoint_read_numbers(from->unfinished, from->n_unfinished,
                                              &to->unfinished) &&
           holds(from->ps_count <= SL_LIMIT_PS, "register: ps_count over the limit") &&
           holds(from->worker_count <= SL_LIMIT_WORKERS, "register: worker_count over the limit") &&
           copy_text(memory, from->data_endpoint, TEXT_NAME, to->data_endpoint,
                     sizeof to->data_endpoint) &&
           copy_text(memory, from->host, TEXT_NAME, to->host, sizeof to->host) &&
           copy_text(memory, from->bypass_endpoint, TEXT_NAME, to->bypass_endpoint,
                     sizeof to->bypass_endpoint) &&
           (from->shard_count == 0
                ? holds(to->data_endpoint[0] == '\0' && to->bypass_endpoint[0] == '\0',
                        "register: an endpoint without shards")
                : sl_message_is_endpoint(to->data_endpoint));
}

static bool read_ps(const struct sl_message_memory *memory, const Starling__Cluster__Ps *from,
                    struct sl_message_ps *to)
{
    to->task_index = from->task_index;
    to->shard_count = from->shard_count;
    to->epoch = from->epoch;
    to->primary = from->epoch == 0 ? from->task_index : from->primary;
    to->backup = from->epoch == 0 || from->backup == 0 ? SL_MESSAGE_NO_BACKUP : from->backup - 1;
    to->in_sync = from->epoch != 0 && from->in_sync != 0;
    return holds(from->task_index < SL_LIMIT_PS, "cluster: task_index over the limit") &&
           holds(to->primary < SL_LIMIT_PS, "cluster: a primary over the limit") &&
           holds(from->backup <= SL_LIMIT_PS, "cluster: a backup over the limit") &&
           holds(from->shard_count >= 1 && from->shard_count <= SL_LIMIT_REACTORS,
                 "cluster: a shard_count outside its range") &&
           copy_text(memory, from->data_endpoint, TEXT_NAME, to->data_endpoint,
                     sizeof to->data_endpoint) &&
           copy_text(memory, from->host, TEXT_NAME, to->host, sizeof to->host) &&
           copy_text(memory, from->bypass_endpoint, TEXT_NAME, to->bypass_endpoint,
                     sizeof to->bypass_endpoint) &&
           sl_message_is_endpoint(to->data_endpoint);
}

static bool read_all_ps(const struct sl_message_memory *memory, const Starling__Cluster *from,
                        struct sl_message_ps *to)
{
    uint32_t shard_count = 0;
    for (size_t i = 0; i < from->n_ps; i++) {
        if (!read_ps(memory, from->ps[i], &to[i]) ||
            !holds(i == 0 || to[i].task_index > to[i - 1].task_index,
                   "cluster: task indices do not ascend")) {
            return false;
        }
        shard_count += to[i].shard_count;
    }
    return holds(shard_count <= SL_LIMIT_SHARDS, "cluster: more shards than the limit");
}

static int read_cluster(const struct sl_message_memory *memory, const Starling__Cluster *from,
                        struct sl_message_cluster *to)
{
    if (!holds(from->n_ps >= 1 && from->n_ps <= SL_LIMIT_PS, "cluster: too few or many servers") ||
        !holds(from->worker_count <= SL_LIMIT_WORKERS, "cluster: worker_count over the limit") ||
        !holds(is_checkpoint(from->restore) && is_checkpoint(from->abandoned_above) &&
                   is_checkpoint(from->abandoned_to) && is_checkpoint(from->kept_to),
               "cluster: a checkpoint's number over the limit") ||
        !holds(from->values_lost <= from->n_ps, "cluster: values_lost names no server")) {
        return SL_ERR_PROTOCOL;
    }
    to->ps = calloc(from->n_ps, sizeof *to->ps);
    if (to->ps == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    to->ps_count = (uint32_t)from->n_ps;
    SL_MESSAGE_COPY_CLUSTER
    return read_all_ps(memory, from, to->ps) ? SL_OK : SL_ERR_PROTOCOL;
}

static bool read_waiting(const struct sl_message_memory *memory, const Starling__Waiting *from,
                         struct sl_message_waiting *to)
{
    if (!holds(from->n_missing <= SL_MESSAGE_MISSING_COUNT, "waiting: too many names")) {
        return false;
    }
    to->missing_count = (uint32_t)from->n_missing;
    for (uint32_t i = 0; i < to->missing_count; i++) {
        if (!copy_text(memory, from->missing[i], TEXT_NAME, to->missing[i],
                       sizeof to->missing[i])) {
            return false;
        }
    }
    return true;
}

static void read_optimizer(const Starling__Optimizer *from, struct sl_optimizer_spec *to)
{
    to->kind = (enum sl_optimizer_kind)from->kind;
    SL_MESSAGE_COPY_OPTIMIZER
}

/* A missing sub-message is read as zeros: proto3 does not distinguish the two, and some encoders
 * omit empty sub-messages. */
static bool read_spec(const struct sl_message_memory *memory, const Starling__TableSpec *from,
                      struct sl_table_spec *to)
{
    to->kind = (enum sl_table_kind)from->kind;
    to->dim = from->dim;
    to->length = from->length;
    to->reject_nonfinite = from->reject_nonfinite != 0;
    if (from->optimizer != NULL) {
        read_optimizer(from->optimizer, &to->optimizer);
    }
    if (from->initializer != NULL) {
        to->initializer.kind = (enum sl_initializer_kind)from->initializer->kind;
        to->initializer.low = from->initializer->a;
        to->initializer.high = from->initializer->b;
        to->initializer.seed = from->initializer->seed;
    }
    if (from->consistency != NULL) {
        to->consistency.mode = (enum sl_consistency_mode)from->consistency->mode;
        to->consistency.staleness = from->consistency->staleness;
        to->consistency.worker_count = from->consistency->worker_count;
    }
    return copy_text(memory, from->name, TEXT_NAME, to->name, sizeof to->name);
}

static bool read_table_open(const struct sl_message_memory *memory, const Starling__TableOpen *from,
                            struct sl_message_table_open *to)
{
    if (!holds(from->spec != NULL, "table_open: no specification") ||
        !holds(from->table_id < SL_LIMIT_TABLES, "table_open: table_id over the limit") ||
        !read_spec(memory, from->spec, &to->spec)) {
        return false;
    }
    to->table_id = from->table_id;
    to->keep_id = from->keep_id != 0;
    to->asks = from->ask != 0;
    return true;
}

static bool read_barrier(const struct sl_message_memory *memory, const Starling__Barrier *from,
                         struct sl_message_barrier *to)
{
    to->count = from->count;
    to->timeout_ms = from->timeout_ms;
    to->leaves = from->leave != 0;
    return holds(from->count <= SL_LIMIT_WORKERS, "barrier: a count outside its range") &&
           copy_text(memory, from->name, TEXT_NAME, to->name, sizeof to->name) &&
           holds(to->name[0] != '\0', "barrier: no name");
}

static bool read_expired(const struct sl_message_memory *memory, const Starling__Expired *from,
                         struct sl_message_expired *to)
{
    to->role = (enum sl_message_role)from->role;
    to->task_index = from->task_index;
    to->client_id = from->client_id;
    return holds(is_role(from->role) && from->role != STARLING__ROLE__ROLE_CLIENT,
                 "expired: not a server or worker") &&
           holds(from->task_index < task_count_of(from->role),
                 "expired: task_index over the role's limit") &&
           copy_text(memory, from->why, TEXT_FREE, to->why, sizeof to->why);
}

static bool read_table_stats(const struct sl_message_memory *memory,
                             const Starling__Stats__Table *from, struct sl_message_table_stats *to)
{
    SL_MESSAGE_COPY_TABLE_STATS
    return copy_text(memory, from->name, TEXT_NAME, to->name, sizeof to->name);
}

static int read_stats(const struct sl_message_memory *memory, const Starling__Stats *from,
                      struct sl_message_stats *to)
{
    if (!holds(from->n_tables <= SL_LIMIT_TABLES, "stats: too many tables")) {
        return SL_ERR_PROTOCOL;
    }
    to->tables = calloc(from->n_tables + 1, sizeof *to->tables);
    if (to->tables == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    to->table_count = (uint32_t)from->n_tables;
    SL_MESSAGE_COPY_STATS
    for (uint32_t i = 0; i < to->table_count; i++) {
        if (!read_table_stats(memory, from->tables[i], &to->tables[i])) {
            return SL_ERR_PROTOCOL;
        }
    }
    return SL_OK;
}

static int read_report(const ProtobufCBinaryData *from, struct sl_message_report *to)
{
    to->bytes = malloc(from->len + 1);
    if (to->bytes == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    to->byte_count = (uint32_t)from->len; /* at most SL_LIMIT_CONTROL_PAYLOAD_BYTES */
    if (from->len > 0) {
        memcpy(to->bytes, from->data, from->len);
    }
    return SL_OK;
}

static int checked(bool valid)
{
    return valid ? SL_OK : SL_ERR_PROTOCOL;
}

static int read_body(const struct sl_message_memory *memory, const Starling__Control *from,
                     struct sl_message *to)
{
    to->kind = (enum sl_message_kind)from->body_case;
    to->id = from->id;
    switch (from->body_case) {
    case STARLING__CONTROL__BODY_HELLO:
        return checked(read_hello(memory, from->hello, &to->hello));
    case STARLING__CONTROL__BODY_WELCOME:
        return checked(read_welcome(memory, from->welcome, &to->welcome));
    case STARLING__CONTROL__BODY_ERROR:
        return checked(read_error(memory, from->error, &to->error));
    case STARLING__CONTROL__BODY_REGISTER:
        return checked(read_register(memory, from->register_, &to->reg));
    case STARLING__CONTROL__BODY_CLUSTER:
        return read_cluster(memory, from->cluster, &to->cluster);
    case STARLING__CONTROL__BODY_WAITING:
        return checked(read_waiting(memory, from->waiting, &to->waiting));
    case STARLING__CONTROL__BODY_TABLE_OPEN:
        return checked(read_table_open(memory, from->table_open, &to->table_open));
    case STARLING__CONTROL__BODY_TABLE_OPENED:
        to->table_id = from->table_opened->table_id;
        to->reject_nonfinite = from->table_opened->reject_nonfinite != 0;
        return checked(holds(to->table_id < SL_LIMIT_TABLES, "table_opened: id over the limit"));
    case STARLING__CONTROL__BODY_BARRIER:
        return checked(read_barrier(memory, from->barrier, &to->barrier));
    case STARLING__CONTROL__BODY_STATS:
        return read_stats(memory, from->stats, &to->stats);
    case STARLING__CONTROL__BODY_CHALLENGE:
        return checked(
            copy_bytes(&from->challenge->nonce, to->challenge.nonce, sizeof to->challenge.nonce));
    case STARLING__CONTROL__BODY_PROOF:
        return checked(copy_bytes(&from->proof->proof, to->proof.proof, sizeof to->proof.proof));
    case STARLING__CONTROL__BODY_EXPIRED:
        return checked(read_expired(memory, from->expired, &to->expired));
    case STARLING__CONTROL__BODY_JOIN:
        to->clock = from->join->clock;
        return SL_OK;
    case STARLING__CONTROL__BODY_JOINED:
        to->clock = from->joined->clock;
        return SL_OK;
    case STARLING__CONTROL__BODY_ENDED:
        return checked(copy_text(memory, from->ended->why, TEXT_FREE, to->why, sizeof to->why));
    case STARLING__CONTROL__BODY_CHECKPOINT:
        return checked(sl_message_checkpoint_read(from->checkpoint, &to->checkpoint));
    case STARLING__CONTROL__BODY_CHECKPOINT_PART:
        return sl_message_checkpoint_read_part(memory, from->checkpoint_part, &to->checkpoint_part);
    case STARLING__CONTROL__BODY_CHECKPOINT_PUBLISH:
        return sl_message_checkpoint_read_publish(memory, from->checkpoint_publish,
                                                  &to->checkpoint_publish);
    case STARLING__CONTROL__BODY_CHECKPOINT_ASK:
        to->timeout_ms = from->checkpoint_ask->timeout_ms;
        return SL_OK;
    case STARLING__CONTROL__BODY_CHECKPOINT_DONE:
        to->checkpoint_number = from->checkpoint_done->number;
        return checked(sl_message_checkpoint_is_number(to->checkpoint_number, 0));
    case STARLING__CONTROL__BODY_REPORT:
        return read_report(&from->report, &to->report);
    case STARLING__CONTROL__BODY_HEARTBEAT:
    case STARLING__CONTROL__BODY_BARRIER_DONE:
    case STARLING__CONTROL__BODY_STATS_GET:
    case STARLING__CONTROL__BODY_GOODBYE:
        return SL_OK;
    default:
        return sl_message_transfer_read(memory, from, to);
    }
}

static int decode_with(struct sl_message_memory *memory, const uint8_t *from, size_t bytes,
                       struct sl_message *out)
{
    Starling__Control *control = starling__control__unpack(&memory->allocator, bytes, from);
    if (!holds(control != NULL, "not a Control message, or one of absurdly many parts")) {
        return SL_ERR_PROTOCOL;
    }
    struct sl_message message = {0};
    int err = read_body(memory, control, &message);
    if (err != SL_OK) {
        sl_message_fini(&message);
        return err;
    }
    *out = message;
    return SL_OK;
}

int sl_message_decode(const uint8_t *from, size_t bytes, struct sl_message *out)
{
    sl_assert(from != NULL || bytes == 0);
    sl_assert(out != NULL);
    if (!holds(bytes != 0 && bytes <= SL_LIMIT_CONTROL_PAYLOAD_BYTES, "empty or too long")) {
        return SL_ERR_PROTOCOL;
    }
    struct sl_message_memory memory;
    int err = sl_message_memory_init(&memory, bytes);
    if (err != SL_OK) {
        return err;
    }
    err = decode_with(&memory, from, bytes, out);
    sl_message_memory_fini(&memory);
    return err;
}
