#include "net/session/message_table.h"

#include <stddef.h>
#include <string.h>

#include "core/endpoint.h"
#include "net/session/message.h"

#define CHECKPOINT_MAX SL_LIMIT_CHECKPOINT_NUMBER

/* Relations between fields */

const char *sl_message_table_endpoint_misfit(const char *text)
{
    struct sl_endpoint endpoint;
    return sl_endpoint_parse(text, &endpoint, NULL) != 0 ? "an endpoint that is none"
           : endpoint.port == 0                          ? "an endpoint with port 0"
                                                         : NULL;
}

static bool is_task(enum sl_message_role role, uint32_t task_index)
{
    return task_index < (role == SL_MESSAGE_ROLE_PS       ? SL_LIMIT_PS
                         : role == SL_MESSAGE_ROLE_WORKER ? SL_LIMIT_WORKERS
                                                          : 1);
}

static const char *hello_misfit(const void *message)
{
    const struct sl_message_hello *hello = message;
    if (hello->purpose == SL_MESSAGE_PURPOSE_TRANSFER &&
        (hello->role != SL_MESSAGE_ROLE_CLIENT || (hello->lane == 0) != (hello->lane_epoch == 0))) {
        return "a transfer engine that is no client, or a lane without an epoch";
    }
    if (hello->purpose == SL_MESSAGE_PURPOSE_REPLICA &&
        (hello->role != SL_MESSAGE_ROLE_PS || hello->epoch == 0)) {
        return "a primary that is no server, or without an epoch";
    }
    if (!is_task(hello->role, hello->task_index)) {
        return "task_index over the role's limit";
    }
    if (hello->beside != 0 && hello->role != SL_MESSAGE_ROLE_CLIENT) {
        return "a member beside a process that is no client";
    }
    return hello->any_task && hello->task_index != 0 ? "a task_index, and the wish for any" : NULL;
}

static const char *relay_misfit(const void *message)
{
    const struct sl_message_relay *relay = message;
    return relay->group == (SL_MESSAGE_GROUP_SCHEDULER | SL_MESSAGE_GROUP_PS)
               ? "group has more than one bit"
               : NULL;
}

static const char *welcome_misfit(const void *message)
{
    const struct sl_message_welcome *welcome = message;
    return welcome->shard < welcome->shard_count ||
                   (welcome->shard == 0 && welcome->shard_count == 0)
               ? NULL
               : "shard is not below shard_count";
}

static const char *error_misfit(const void *message)
{
    const struct sl_message_error *error = message;
    return error->coordinator[0] == '\0' ? NULL
                                         : sl_message_table_endpoint_misfit(error->coordinator);
}

static bool numbers_descend(const struct sl_message_numbers *numbers)
{
    uint64_t above = CHECKPOINT_MAX + 1;
    for (uint32_t i = 0; i < numbers->count; i++) {
        if (numbers->items[i] == 0 || numbers->items[i] >= above) {
            return false;
        }
        above = numbers->items[i];
    }
    return true;
}

static const char *register_misfit(const void *message)
{
    const struct sl_message_register *reg = message;
    if (!numbers_descend(&reg->complete) || !numbers_descend(&reg->unfinished)) {
        return "checkpoints over the limit, or that do not descend";
    }
    if (reg->data_endpoint[0] != '\0') {
        return sl_message_table_endpoint_misfit(reg->data_endpoint);
    }
    return reg->shard_count == 0 && reg->bypass_endpoint[0] == '\0'
               ? NULL
               : "shards, or a second endpoint, without an endpoint";
}

static const char *ps_misfit(const void *message)
{
    return sl_message_table_endpoint_misfit(((const struct sl_message_ps *)message)->data_endpoint);
}

static const char *cluster_misfit(const void *message)
{
    const struct sl_message_cluster *cluster = message;
    bool is_listed[SL_LIMIT_PS + 1] = {false}; /* by task plus 1 */
    uint32_t home_end = 0;
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        const struct sl_message_ps *ps = &cluster->ps[i];
        if (i > 0 && ps->task_index <= cluster->ps[i - 1].task_index) {
            return "task indices do not ascend";
        }
        if (ps->shard_count != 0 && ps->first_shard < home_end) {
            return "servers have the same home shards";
        }
        home_end = ps->shard_count != 0 ? ps->first_shard + ps->shard_count : home_end;
        is_listed[ps->task_index + 1] = true;
    }
    for (uint32_t shard = 0; shard < cluster->shard_count; shard++) {
        const struct sl_message_placement *placement = &cluster->placements[shard];
        if (!is_listed[placement->primary + 1] ||
            (placement->backup_plus_1 != 0 &&
             (!is_listed[placement->backup_plus_1] ||
              placement->backup_plus_1 == placement->primary + 1))) {
            return "a shard's server is not listed, or is its own backup";
        }
    }
    return home_end > cluster->shard_count ? "more home shards than shards" : NULL;
}

static const char *expired_misfit(const void *message)
{
    const struct sl_message_expired *expired = message;
    return is_task(expired->role, expired->task_index) ? NULL : "task_index over the role's limit";
}

/* Rejects names that would lead out of the checkpoint's directory, and hidden files. */
static const char *file_misfit(const void *message)
{
    const struct sl_message_checkpoint_file *file = message;
    return file->name[0] == '.' || strchr(file->name, '/') != NULL ? "a path for a name" : NULL;
}

static const char *files_misfit(const struct sl_message_checkpoint_file *files, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (files[i].shard <= files[i - 1].shard) {
            return "the files' shards do not ascend";
        }
    }
    return NULL;
}

static const char *checkpoint_misfit(const void *message)
{
    const struct sl_message_checkpoint *checkpoint = message;
    return checkpoint->base < checkpoint->number && checkpoint->complete < checkpoint->number
               ? NULL
               : "its base, or the complete one, is not older";
}

static const char *part_misfit(const void *message)
{
    const struct sl_message_checkpoint_part *part = message;
    return (part->err == 0) == (part->file_count != 0) ? files_misfit(part->files, part->file_count)
                                                       : "files and an error, or neither";
}

static const char *publish_misfit(const void *message)
{
    const struct sl_message_checkpoint_publish *publish = message;
    return publish->base < publish->number ? files_misfit(publish->files, publish->file_count)
                                           : "its base is not older";
}

static const char *buffer_misfit(const void *message)
{
    const struct sl_message_buffer *buffer = message;
    return buffer->bytes <= UINT64_MAX - buffer->address ? NULL : "a range that overflows";
}

static const char *buffers_misfit(const void *message)
{
    const struct sl_message_buffers *buffers = message;
    for (uint32_t i = 1; i < buffers->count; i++) {
        const struct sl_message_buffer *before = &buffers->items[i - 1];
        if (buffers->items[i].address < before->address + before->bytes) {
            return "buffers that overlap, or do not ascend";
        }
    }
    return NULL;
}

static const char *segment_misfit(const void *message)
{
    const struct sl_message_segment *segment = message;
    return segment->more && segment->buffers.count == 0 ? "more buffers after none"
                                                        : buffers_misfit(&segment->buffers);
}

static const char *message_misfit(const void *message)
{
    const struct sl_message *control = message;
    return control->kind == 0 ? "no body, or one of a kind that is not known" : NULL;
}

/* Tables */

/* clang-format off */
#define ANY(number, kind, tag, member)                SL_FIELD_ANY(number, kind, sl_message_##tag, member)
#define RANGE(number, kind, tag, member, least, most) SL_FIELD_RANGE(number, kind, sl_message_##tag, member, least, most)

/* Hello to Register */

SL_PROTOBUF_TABLE(HELLO, "hello", hello_misfit,
    ANY(1, UINT, hello, protocol_version),
    RANGE(2, UINT, hello, purpose, SL_MESSAGE_PURPOSE_CONTROL, SL_MESSAGE_PURPOSE_TRANSFER),
    RANGE(3, UINT, hello, role, SL_MESSAGE_ROLE_PS, SL_MESSAGE_ROLE_CLIENT),
    ANY(4, UINT, hello, task_index),
    ANY(5, UINT, hello, client_id),
    RANGE(6, UINT, hello, shard, 0, SL_LIMIT_SHARDS - 1),
    ANY(7, NAME, hello, software),
    ANY(8, BOOL, hello, checksum),
    SL_FIELD_OPTIONAL_OF(9, BYTES, sl_message_hello, nonce, has_nonce, NULL),
    ANY(10, BOOL, hello, join_running),
    ANY(11, BOOL, hello, any_task),
    ANY(12, UINT, hello, epoch),
    ANY(13, UINT, hello, state),
    ANY(14, UINT, hello, incarnation),
    ANY(15, UINT, hello, lane),
    ANY(16, UINT, hello, lane_epoch),
    RANGE(17, UINT, hello, secret, SL_MESSAGE_SECRET_CLUSTER, SL_MESSAGE_SECRET_OPERATOR),
    RANGE(18, UINT, hello, beside, 0, SL_MESSAGE_BESIDE_PS + SL_LIMIT_PS - 1));

SL_PROTOBUF_TABLE(WELCOME, "welcome", welcome_misfit,
    ANY(1, UINT, welcome, protocol_version),
    ANY(2, UINT, welcome, credit_bytes),
    ANY(3, UINT, welcome, credit_requests),
    ANY(4, UINT, welcome, shard),
    RANGE(5, UINT, welcome, shard_count, 0, SL_LIMIT_SHARDS),
    RANGE(6, UINT, welcome, payload_bytes_max, 0, SL_LIMIT_FRAME_PAYLOAD_BYTES),
    ANY(7, NAME, welcome, software),
    ANY(8, UINT, welcome, incarnation),
    ANY(9, BOOL, welcome, resumed),
    ANY(10, UINT, welcome, clock),
    ANY(11, BOOL, welcome, counts),
    ANY(12, UINT, welcome, lease_ms),
    RANGE(13, UINT, welcome, task_index, 0, SL_LIMIT_WORKERS - 1),
    ANY(14, BOOL, welcome, restored),
    ANY(15, UINT, welcome, position),
    ANY(16, BOOL, welcome, wants_reports),
    ANY(17, NAME, welcome, http),
    RANGE(18, UINT, welcome, spread_ms, 0, SL_MESSAGE_SPREAD_MS_MAX),
    ANY(19, UINT, welcome, knows));

SL_PROTOBUF_TABLE(CHALLENGE, "challenge", NULL,
    {SL_FIELD(1, BYTES, sl_message_challenge, nonce), SL_FIELD_BYTES(sl_message_challenge, nonce), .flags = SL_FIELD_REQUIRED});

SL_PROTOBUF_TABLE(PROOF, "proof", NULL,
    {SL_FIELD(1, BYTES, sl_message_proof, proof), SL_FIELD_BYTES(sl_message_proof, proof), .flags = SL_FIELD_REQUIRED});

SL_PROTOBUF_TABLE(ERROR, "error", error_misfit,
    ANY(1, ERR, error, err),
    ANY(2, TEXT, error, text),
    ANY(3, NAME, error, coordinator));

SL_PROTOBUF_TABLE(REPLICA_REPORT, "replica report", NULL,
    ANY(2, UINT, replica_report, epoch),
    ANY(3, BOOL, replica_report, in_sync),
    RANGE(4, UINT, replica_report, role, 0, SL_MESSAGE_REPLICA_NEITHER),
    ANY(5, BOOL, replica_report, is_undecided),
    RANGE(6, UINT, replica_report, shard, 0, SL_LIMIT_SHARDS - 1));

SL_PROTOBUF_TABLE(REGISTER, "register", register_misfit,
    ANY(1, NAME, register, data_endpoint),
    RANGE(2, UINT, register, shard_count, 0, SL_LIMIT_REACTORS),
    RANGE(3, UINT, register, ps_count, 0, SL_LIMIT_PS),
    RANGE(4, UINT, register, worker_count, 0, SL_LIMIT_WORKERS),
    ANY(5, NAME, register, host),
    ANY(6, NAME, register, bypass_endpoint),
    ANY(7, UINT, register, restore),
    ANY(8, UINT, register, checkpoint_newest),
    ANY(9, BOOL, register, serving),
    RANGE(10, UINT, register, replicas, 0, 1),
    SL_FIELD_OWNED_LIST(11, sl_message_register, replica_reports, replica_report_count, 0, SL_LIMIT_SHARDS, REPLICA_REPORT),
    SL_FIELD_LIST(12, UINT, sl_message_register, complete.items, complete.count, 0, NULL),
    SL_FIELD_LIST(13, UINT, sl_message_register, unfinished.items, unfinished.count, 0, NULL),
    ANY(14, BOOL, register, has_tables),
    ANY(15, UINT, register, job),
    ANY(16, UINT, register, unclaimed),
    SL_FIELD_OPTIONAL_OF(17, BYTES, sl_message_register, dropped.items, dropped.has_bits, NULL),
    RANGE(18, UINT, register, reactor_count, 0, SL_LIMIT_REACTORS));

/* Cluster, Waiting, Expired */

SL_PROTOBUF_TABLE(PS, "cluster: ps", ps_misfit,
    RANGE(1, UINT, ps, task_index, 0, SL_LIMIT_PS - 1),
    ANY(2, NAME, ps, data_endpoint),
    RANGE(3, UINT, ps, shard_count, 0, SL_LIMIT_REACTORS),
    ANY(4, NAME, ps, host),
    ANY(5, NAME, ps, bypass_endpoint),
    RANGE(10, UINT, ps, reactor_count, 0, SL_LIMIT_REACTORS),
    RANGE(11, UINT, ps, first_shard, 0, SL_LIMIT_SHARDS));

SL_PROTOBUF_TABLE(PLACEMENT, "cluster: placement", NULL,
    RANGE(1, UINT, placement, epoch, 1, UINT64_MAX),
    RANGE(2, UINT, placement, primary, 0, SL_LIMIT_PS - 1),
    RANGE(3, UINT, placement, backup_plus_1, 0, SL_LIMIT_PS),
    ANY(4, BOOL, placement, in_sync),
    ANY(5, BOOL, placement, moves));

SL_PROTOBUF_TABLE(CLUSTER, "cluster", cluster_misfit,
    SL_FIELD_OWNED_LIST(1, sl_message_cluster, ps, ps_count, 1, SL_LIMIT_PS, PS),
    RANGE(2, UINT, cluster, worker_count, 0, SL_LIMIT_WORKERS),
    RANGE(3, UINT, cluster, restore, 0, CHECKPOINT_MAX),
    RANGE(4, UINT, cluster, abandoned_above, 0, CHECKPOINT_MAX),
    RANGE(5, UINT, cluster, abandoned_to, 0, CHECKPOINT_MAX),
    RANGE(6, UINT, cluster, values_lost, 0, SL_LIMIT_PS),
    RANGE(7, UINT, cluster, kept_to, 0, CHECKPOINT_MAX),
    ANY(8, UINT, cluster, job),
    SL_FIELD_OPTIONAL_OF(9, BYTES, sl_message_cluster, dropped.items, dropped.has_bits, NULL),
    SL_FIELD_OWNED_LIST(10, sl_message_cluster, placements, shard_count, 1, SL_LIMIT_SHARDS, PLACEMENT));

SL_PROTOBUF_TABLE(WAITING, "waiting", NULL,
    SL_FIELD_LIST(1, NAME, sl_message_waiting, missing, missing_count, 0, NULL));

SL_PROTOBUF_TABLE(EXPIRED, "expired", expired_misfit,
    RANGE(1, UINT, expired, role, SL_MESSAGE_ROLE_PS, SL_MESSAGE_ROLE_WORKER),
    ANY(2, UINT, expired, task_index),
    ANY(3, UINT, expired, client_id),
    ANY(4, TEXT, expired, why));

/* Tables: sl_message_check_spec has the limits of a specification. */

SL_PROTOBUF_TABLE(OPTIMIZER, "optimizer", NULL,
    SL_FIELD_ANY(1, UINT, sl_optimizer_spec, kind),
    SL_FIELD_ANY(2, FLOAT, sl_optimizer_spec, lr),
    SL_FIELD_ANY(3, FLOAT, sl_optimizer_spec, momentum),
    SL_FIELD_ANY(4, FLOAT, sl_optimizer_spec, rho),
    SL_FIELD_ANY(5, FLOAT, sl_optimizer_spec, beta1),
    SL_FIELD_ANY(6, FLOAT, sl_optimizer_spec, beta2),
    SL_FIELD_ANY(7, FLOAT, sl_optimizer_spec, epsilon),
    SL_FIELD_ANY(8, FLOAT, sl_optimizer_spec, weight_decay),
    SL_FIELD_ANY(9, FLOAT, sl_optimizer_spec, initial_accumulator),
    SL_FIELD_ANY(10, FLOAT, sl_optimizer_spec, l1),
    SL_FIELD_ANY(11, FLOAT, sl_optimizer_spec, l2),
    SL_FIELD_ANY(12, FLOAT, sl_optimizer_spec, lr_power),
    SL_FIELD_ANY(13, UINT, sl_optimizer_spec, decay_steps),
    SL_FIELD_ANY(14, FLOAT, sl_optimizer_spec, decay_baseline));

SL_PROTOBUF_TABLE(INITIALIZER, "initializer", NULL,
    SL_FIELD_ANY(1, UINT, sl_initializer_spec, kind),
    SL_FIELD_ANY(2, FLOAT, sl_initializer_spec, low),
    SL_FIELD_ANY(3, FLOAT, sl_initializer_spec, high),
    SL_FIELD_ANY(4, UINT, sl_initializer_spec, seed));

SL_PROTOBUF_TABLE(CONSISTENCY, "consistency", NULL,
    SL_FIELD_ANY(1, UINT, sl_consistency_spec, mode),
    SL_FIELD_ANY(2, UINT, sl_consistency_spec, staleness),
    SL_FIELD_ANY(3, UINT, sl_consistency_spec, worker_count));

SL_PROTOBUF_TABLE(POLICY_SLOT, "policy: slot", NULL,
    SL_FIELD_ANY(1, UINT, sl_policy_slot, ttl_steps),
    SL_FIELD_ANY(2, UINT, sl_policy_slot, admit_count));

SL_PROTOBUF_TABLE(POLICY, "policy", NULL,
    SL_FIELD_ANY(1, UINT, sl_policy_spec, ttl_steps),
    SL_FIELD_ANY(2, UINT, sl_policy_spec, protect_steps),
    SL_FIELD_ANY(3, UINT, sl_policy_spec, count_below),
    SL_FIELD_ANY(4, FLOAT, sl_policy_spec, l2_below),
    SL_FIELD_ANY(5, UINT, sl_policy_spec, rows_max),
    SL_FIELD_ANY(6, UINT, sl_policy_spec, order),
    SL_FIELD_ANY(7, UINT, sl_policy_spec, half_life_steps),
    SL_FIELD_ANY(8, UINT, sl_policy_spec, admission),
    SL_FIELD_ANY(9, UINT, sl_policy_spec, admit_count),
    SL_FIELD_ANY(10, UINT, sl_policy_spec, admit_age_steps),
    SL_FIELD_ANY(11, FLOAT, sl_policy_spec, admit_probability),
    SL_FIELD_ANY(12, UINT, sl_policy_spec, ttl_seconds),
    SL_FIELD_ANY(13, UINT, sl_policy_spec, slot_shift),
    SL_FIELD_ANY(14, UINT, sl_policy_spec, slot_bits),
    SL_FIELD_LIST(15, MESSAGE, sl_policy_spec, slots, slot_count, 0, &POLICY_SLOT),
    SL_FIELD_ANY(16, UINT, sl_policy_spec, keys_expected),
    SL_FIELD_ANY(17, FLOAT, sl_policy_spec, false_positives));

SL_PROTOBUF_TABLE(UPDATE, "update", NULL,
    SL_FIELD_ANY(1, UINT, sl_update_spec, decay),
    SL_FIELD_ANY(2, FLOAT, sl_update_spec, clip_norm),
    SL_FIELD_ANY(3, FLOAT, sl_update_spec, value_bound));

SL_PROTOBUF_TABLE(SPEC, "spec", NULL,
    SL_FIELD_ANY(1, NAME, sl_table_spec, name),
    SL_FIELD_ANY(2, UINT, sl_table_spec, kind),
    SL_FIELD_ANY(3, UINT, sl_table_spec, dim),
    SL_FIELD_ANY(4, UINT, sl_table_spec, length),
    SL_FIELD_MESSAGE(5, sl_table_spec, optimizer, OPTIMIZER, 0),
    SL_FIELD_MESSAGE(6, sl_table_spec, initializer, INITIALIZER, 0),
    SL_FIELD_MESSAGE(7, sl_table_spec, consistency, CONSISTENCY, 0),
    SL_FIELD_ANY(8, BOOL, sl_table_spec, reject_nonfinite),
    SL_FIELD_MESSAGE(9, sl_table_spec, policy, POLICY, 0),
    SL_FIELD_MESSAGE(10, sl_table_spec, update, UPDATE, 0),
    SL_FIELD_ANY(11, UINT, sl_table_spec, values),
    SL_FIELD_ANY(12, UINT, sl_table_spec, slots));
const struct sl_protobuf_type *const sl_message_table_spec = &SPEC;

SL_PROTOBUF_TABLE(TABLE_OPEN, "table_open", NULL,
    SL_FIELD_MESSAGE(1, sl_message_table_open, spec, SPEC, SL_FIELD_REQUIRED),
    RANGE(2, UINT, table_open, table_id, 0, SL_LIMIT_TABLES - 1),
    ANY(3, BOOL, table_open, keep_id),
    ANY(4, BOOL, table_open, asks),
    ANY(5, BOOL, table_open, is_restored));

SL_PROTOBUF_TABLE(TABLE_DROP, "table_drop", NULL,
    SL_FIELD_RANGE(1, NAME, sl_message, table_name, 1, 0));

SL_PROTOBUF_TABLE(TABLE_DROPPED, "table_dropped", NULL,
    SL_FIELD_RANGE(1, UINT, sl_message, table_id, 0, SL_LIMIT_TABLES - 1));

SL_PROTOBUF_TABLE(TABLE_OPENED, "table_opened", NULL,
    SL_FIELD_RANGE(1, UINT, sl_message, table_id, 0, SL_LIMIT_TABLES - 1),
    SL_FIELD_ANY(2, BOOL, sl_message, reject_nonfinite),
    SL_FIELD_ANY(3, UINT, sl_message, knows),
    SL_FIELD_OPTIONAL_OF(4, MESSAGE, sl_message, policy, keeps_policy, &POLICY));

SL_PROTOBUF_TABLE(TABLES_GET, "tables_get", NULL,
    SL_FIELD_RANGE(1, UINT, sl_message, table_id, 0, SL_LIMIT_TABLES - 1));

SL_PROTOBUF_TABLE(TABLES, "tables", NULL,
    SL_FIELD_OWNED_LIST(1, sl_message_tables, specs, count, 0, SL_MESSAGE_TABLES_MAX, SPEC),
    RANGE(2, UINT, tables, next, 0, SL_LIMIT_TABLES - 1));

SL_PROTOBUF_TABLE(TABLE_STATS, "stats: table", NULL,
    ANY(1, NAME, table_stats, name),
    ANY(2, UINT, table_stats, rows),
    ANY(3, UINT, table_stats, bytes),
    ANY(4, UINT, table_stats, pulled_rows),
    ANY(5, UINT, table_stats, pushed_rows),
    ANY(6, UINT, table_stats, steps),
    ANY(7, UINT, table_stats, evicted_ttl),
    ANY(8, UINT, table_stats, evicted_count),
    ANY(9, UINT, table_stats, evicted_l2),
    ANY(10, UINT, table_stats, evicted_room),
    ANY(11, UINT, table_stats, rows_created),
    ANY(12, UINT, table_stats, rows_erased),
    ANY(13, UINT, table_stats, admitted),
    ANY(14, UINT, table_stats, refused),
    ANY(15, UINT, table_stats, waiting),
    ANY(16, UINT, table_stats, bytes_rows),
    ANY(17, UINT, table_stats, bytes_index),
    ANY(18, UINT, table_stats, bytes_admission));

SL_PROTOBUF_TABLE(STATS, "stats", NULL,
    SL_FIELD_OWNED_LIST(1, sl_message_stats, tables, table_count, 0, SL_LIMIT_TABLES, TABLE_STATS),
    ANY(2, UINT, stats, requests),
    ANY(3, UINT, stats, bytes_in),
    ANY(4, UINT, stats, bytes_out),
    ANY(5, UINT, stats, stalls),
    ANY(6, UINT, stats, degraded_writes),
    ANY(7, UINT, stats, degraded_ms),
    ANY(8, UINT, stats, degraded_shards));

/* Barriers, joins, ends */

SL_PROTOBUF_TABLE(BARRIER, "barrier", NULL,
    RANGE(1, NAME, barrier, name, 1, 0),
    RANGE(2, UINT, barrier, count, 0, SL_LIMIT_WORKERS),
    ANY(3, UINT, barrier, timeout_ms),
    ANY(4, BOOL, barrier, leaves),
    RANGE(5, UINT, barrier, groups, 0, SL_MESSAGE_GROUPS));

SL_PROTOBUF_TABLE(RELAY, "relay", relay_misfit,
    RANGE(1, UINT, relay, group, 1, SL_MESSAGE_GROUP_WORKER),
    RANGE(2, UINT, relay, rank, 0, SL_LIMIT_WORKERS - 1),
    ANY(3, UINT, relay, timeout_ms),
    ANY(4, UINT, relay, head),
    SL_FIELD_DATA(5, sl_message_relay, body, body_bytes, SL_MESSAGE_RELAY_BYTES, SL_FIELD_OWNED),
    ANY(6, UINT, relay, token));

SL_PROTOBUF_TABLE(RELAY_ANSWER, "relay_answer", NULL,
    ANY(1, UINT, relay, head),
    SL_FIELD_DATA(2, sl_message_relay, body, body_bytes, SL_MESSAGE_RELAY_BYTES, SL_FIELD_OWNED),
    ANY(3, UINT, relay, token),
    ANY(4, ERR, relay, err));

SL_PROTOBUF_TABLE(CLOCK, "join", NULL,
    SL_FIELD_ANY(1, UINT, sl_message, clock));

SL_PROTOBUF_TABLE(ENDED, "ended", NULL,
    SL_FIELD_ANY(1, TEXT, sl_message, why));

SL_PROTOBUF_TABLE(PLACEMENT_CHANGE, "placement_change", NULL,
    RANGE(1, UINT, placement_change, verb, SL_MESSAGE_PLACEMENT_MOVE, SL_MESSAGE_PLACEMENT_BALANCE),
    RANGE(2, UINT, placement_change, shard, 0, SL_LIMIT_SHARDS - 1),
    RANGE(3, UINT, placement_change, task, 0, SL_LIMIT_PS - 1),
    ANY(4, BOOL, placement_change, dry_run));

SL_PROTOBUF_TABLE(MOVE, "placement_changed: move", NULL,
    RANGE(1, UINT, move, shard, 0, SL_LIMIT_SHARDS - 1),
    RANGE(2, UINT, move, from, 0, SL_LIMIT_PS - 1),
    RANGE(3, UINT, move, to, 0, SL_LIMIT_PS - 1));

SL_PROTOBUF_TABLE(PLACEMENT_CHANGED, "placement_changed", NULL,
    SL_FIELD_OWNED_LIST(1, sl_message_moves, items, count, 0, SL_LIMIT_SHARDS, MOVE));

static const struct sl_protobuf_type EMPTY = {.name = "empty"};

/* Checkpoints */

SL_PROTOBUF_TABLE(FILE_TYPE, "checkpoint: file", file_misfit,
    RANGE(1, NAME, checkpoint_file, name, 1, 0),
    RANGE(2, UINT, checkpoint_file, shard, 0, SL_LIMIT_SHARDS - 1),
    ANY(3, UINT, checkpoint_file, bytes),
    ANY(4, UINT, checkpoint_file, hash),
    ANY(5, UINT, checkpoint_file, rows));

SL_PROTOBUF_TABLE(CHECKPOINT, "checkpoint", checkpoint_misfit,
    RANGE(1, UINT, checkpoint, number, 1, CHECKPOINT_MAX),
    ANY(2, UINT, checkpoint, base),
    ANY(3, UINT, checkpoint, complete));

SL_PROTOBUF_TABLE(PART, "checkpoint_part", part_misfit,
    RANGE(1, UINT, checkpoint_part, number, 1, CHECKPOINT_MAX),
    SL_FIELD_OWNED_LIST(2, sl_message_checkpoint_part, files, file_count, 0, SL_LIMIT_SHARDS, FILE_TYPE),
    ANY(3, ERR, checkpoint_part, err),
    ANY(4, TEXT, checkpoint_part, text),
    ANY(5, BOOL, checkpoint_part, has_worker));

SL_PROTOBUF_TABLE(PUBLISH, "checkpoint_publish", publish_misfit,
    RANGE(1, UINT, checkpoint_publish, number, 1, CHECKPOINT_MAX),
    ANY(2, UINT, checkpoint_publish, base),
    SL_FIELD_OWNED_LIST(3, sl_message_checkpoint_publish, files, file_count, 1, SL_LIMIT_SHARDS, FILE_TYPE),
    ANY(4, UINT, checkpoint_publish, time_ms),
    ANY(5, BOOL, checkpoint_publish, has_worker));

SL_PROTOBUF_TABLE(ASK, "checkpoint_ask", NULL,
    SL_FIELD_ANY(1, UINT, sl_message, timeout_ms));

SL_PROTOBUF_TABLE(DONE, "checkpoint_done", NULL,
    SL_FIELD_RANGE(1, UINT, sl_message, checkpoint_number, 1, CHECKPOINT_MAX));

/* Between transfer engines */

SL_PROTOBUF_TABLE(SEGMENT_GET, "segment_get", NULL,
    SL_FIELD_ANY(1, UINT, sl_message, above));

SL_PROTOBUF_TABLE(TOKEN, "buffer: token", NULL,
    RANGE(1, UINT, token, endpoint, 0, SL_MESSAGE_ENDPOINTS_MAX - 1),
    SL_FIELD_DATA(2, sl_message_token, bytes, byte_count, SL_MESSAGE_TOKEN_BYTES, 0));

SL_PROTOBUF_TABLE(BUFFER, "buffer", buffer_misfit,
    ANY(1, FIXED64, buffer, key),
    RANGE(2, UINT, buffer, address, 1, UINT64_MAX),
    RANGE(3, UINT, buffer, bytes, 1, UINT64_MAX),
    RANGE(4, UINT, buffer, access, 0, SL_MESSAGE_BUFFER_READ | SL_MESSAGE_BUFFER_WRITE),
    ANY(5, NAME, buffer, location),
    SL_FIELD_LIST(6, MESSAGE, sl_message_buffer, tokens, token_count, 0, &TOKEN));

SL_PROTOBUF_TABLE(BUFFERS, "buffer_added", buffers_misfit,
    SL_FIELD_OWNED_LIST(1, sl_message_buffers, items, count, 0, SL_MESSAGE_BUFFERS_MAX, BUFFER));

/* The endpoints are not parsed: a peer ignores those of schemes that it does not have. */
SL_PROTOBUF_TABLE(ENDPOINT, "segment: endpoint", NULL,
    RANGE(1, NAME, endpoint, endpoint, 1, 0),
    ANY(2, NAME, endpoint, device));

SL_PROTOBUF_TABLE(SEGMENT, "segment", segment_misfit,
    ANY(1, UINT, segment, incarnation),
    ANY(2, NAME, segment, host),
    SL_FIELD_OWNED_LIST(3, sl_message_segment, endpoints, endpoint_count, 0, SL_MESSAGE_ENDPOINTS_MAX, ENDPOINT),
    {SL_FIELD(4, NAME, sl_message_segment, matrix), .bytes = SL_MESSAGE_MATRIX_BYTES, .flags = SL_FIELD_OWNED},
    SL_FIELD_OWNED_LIST(5, sl_message_segment, buffers.items, buffers.count, 0, SL_MESSAGE_BUFFERS_MAX, BUFFER),
    ANY(6, BOOL, segment, more));

SL_PROTOBUF_TABLE(KEYS, "keys", NULL,
    SL_FIELD_LIST(1, FIXED64, sl_message_buffer_keys, items, count, 1, NULL));

SL_PROTOBUF_TABLE(NOTICE, "notice", NULL,
    RANGE(1, UINT, notice, sequence, 1, UINT64_MAX),
    ANY(2, NAME, notice, sender),
    ANY(3, NAME, notice, name),
    SL_FIELD_DATA(4, sl_message_notice, bytes, byte_count, SL_MESSAGE_NOTICE_BYTES, 0),
    ANY(5, BOOL, notice, asks),
    ANY(6, UINT, notice, answered),
    SL_FIELD_DATA(7, sl_message_notice, attached, attached_bytes, SL_MESSAGE_ATTACHED_BYTES, SL_FIELD_VIEW));

SL_PROTOBUF_TABLE(NOTICE_TAKEN, "notice_taken", NULL,
    SL_FIELD_DATA(1, sl_message_notice, bytes, byte_count, SL_MESSAGE_NOTICE_BYTES, 0));

SL_PROTOBUF_TABLE(FENCE, "fence", NULL,
    RANGE(1, UINT, fence, lane, 1, UINT32_MAX),
    RANGE(2, UINT, fence, epoch, 1, UINT64_MAX));

/* All of them */

/* A body: a struct of its own, or members of the message. */
#define BODY(kind_, member, type_) SL_FIELD_MESSAGE(SL_MESSAGE_##kind_, sl_message, member, type_, SL_FIELD_ONE_OF)
#define MEMBERS(kind_, type_)                                                                       \
    {.name = #kind_, .number = SL_MESSAGE_##kind_, .kind = SL_PROTOBUF_MESSAGE, .type = &(type_), .flags = SL_FIELD_ONE_OF}

static const struct sl_protobuf_field FIELDS[] = {
    SL_FIELD_ANY(1, UINT, sl_message, id),
    BODY(HELLO, hello, HELLO),
    BODY(WELCOME, welcome, WELCOME),
    BODY(ERROR, error, ERROR),
    BODY(REGISTER, reg, REGISTER),
    BODY(CLUSTER, cluster, CLUSTER),
    BODY(WAITING, waiting, WAITING),
    BODY(TABLE_OPEN, table_open, TABLE_OPEN),
    MEMBERS(TABLE_OPENED, TABLE_OPENED),
    BODY(BARRIER, barrier, BARRIER),
    MEMBERS(BARRIER_DONE, EMPTY),
    MEMBERS(STATS_GET, EMPTY),
    BODY(STATS, stats, STATS),
    MEMBERS(GOODBYE, EMPTY),
    BODY(CHALLENGE, challenge, CHALLENGE),
    BODY(PROOF, proof, PROOF),
    MEMBERS(HEARTBEAT, EMPTY),
    BODY(EXPIRED, expired, EXPIRED),
    MEMBERS(JOIN, CLOCK),
    MEMBERS(JOINED, CLOCK),
    MEMBERS(ENDED, ENDED),
    BODY(CHECKPOINT, checkpoint, CHECKPOINT),
    BODY(CHECKPOINT_PART, checkpoint_part, PART),
    BODY(CHECKPOINT_PUBLISH, checkpoint_publish, PUBLISH),
    MEMBERS(CHECKPOINT_ASK, ASK),
    MEMBERS(CHECKPOINT_DONE, DONE),
    MEMBERS(SEGMENT_GET, SEGMENT_GET),
    BODY(SEGMENT, segment, SEGMENT),
    BODY(BUFFER_ADDED, buffers, BUFFERS),
    BODY(BUFFER_GONE, keys, KEYS),
    BODY(BUFFER_RELEASED, keys, KEYS),
    BODY(NOTICE, notice, NOTICE),
    BODY(NOTICE_TAKEN, notice, NOTICE_TAKEN),
    BODY(FENCE, fence, FENCE),
    MEMBERS(FENCED, EMPTY),
    SL_FIELD_DATA(SL_MESSAGE_REPORT, sl_message, report.bytes, report.byte_count,
                  SL_LIMIT_CONTROL_PAYLOAD_BYTES, SL_FIELD_OWNED | SL_FIELD_ONE_OF),
    MEMBERS(TABLE_DROP, TABLE_DROP),
    MEMBERS(TABLE_DROPPED, TABLE_DROPPED),
    MEMBERS(TABLES_GET, TABLES_GET),
    BODY(TABLES, tables, TABLES),
    MEMBERS(OPERATION, ENDED),
    MEMBERS(OPERATION_ALLOWED, EMPTY),
    BODY(PLACEMENT_CHANGE, placement_change, PLACEMENT_CHANGE),
    BODY(PLACEMENT_CHANGED, moves, PLACEMENT_CHANGED),
    MEMBERS(ATTACH, EMPTY),
    BODY(RELAY, relay, RELAY),
    BODY(RELAY_ANSWER, relay, RELAY_ANSWER),
};
/* clang-format on */

const struct sl_protobuf_type sl_message_table = {
    .name = "message",
    .fields = FIELDS,
    .field_count = sizeof FIELDS / sizeof FIELDS[0],
    .chosen_offset = offsetof(struct sl_message, kind),
    .find_misfit = message_misfit,
};
