#include "ps/coordinator/record.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/endpoint.h"
#include "core/event.h"
#include "core/log.h"
#include "net/session/message_spec.h"
#include "ps/coordinator/checkpoint.h"
#include "ps/coordinator/member.h"
#include "ps/coordinator/placement.h"
#include "ps/coordinator/table.h"

/* Recovery deadline if the records name no worker and no promotion. A live server retries its hello
 * every 1.5 s. */
#define DOUBT_WITHOUT_WORKERS_NS (3 * SL_CLOCK_NS_PER_S)
#define NOTIFIED_BYTES           (2 * (16 + 1)) /* at most; "client:request " */

static const char *const ENDS[] = {
    [SL_COORDINATOR_END_NONE] = "none",
    [SL_COORDINATOR_END_LEFT] = "left",
    [SL_COORDINATOR_END_EXPIRED] = "lost",
    [SL_COORDINATOR_END_REPLACED] = "replaced",
};
#define END_COUNT (sizeof ENDS / sizeof ENDS[0])

static const char *const STAGES[] = {
    [SL_COORDINATOR_WAITING_FOR_MEMBERS] = "gathering",
    [SL_COORDINATOR_RUNNING] = "running",
    [SL_COORDINATOR_ENDING] = "ending",
    [SL_COORDINATOR_OVER] = "over",
};
#define STAGE_COUNT (sizeof STAGES / sizeof STAGES[0])

/* Writing */

static json_t *id_json(uint64_t id)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%016" PRIx64, id);
    return json_string(text);
}

/* Words of `place`; AT_START is not written. */
static const char *const PLACES[] = {
    [SL_COORDINATOR_AT_START] = "start",
    [SL_COORDINATOR_JOINED] = "joined",
    [SL_COORDINATOR_DRAINING] = "draining",
    [SL_COORDINATOR_DRAINED] = "drained",
};
#define PLACE_COUNT     (sizeof PLACES / sizeof PLACES[0])

#define PLACEMENT_BYTES 96 /* at most */

static json_t *job_json(const struct sl_coordinator *coordinator)
{
    return json_pack(
        "{sI sI ss sI sI sb so so so so so so so ss sb si ss sb}", "ps",
        (json_int_t)coordinator->options.ps_count, "workers",
        (json_int_t)coordinator->job.worker_count, "workers_from",
        coordinator->job.worker_count_from, "cluster_version",
        (json_int_t)coordinator->cluster.version, "values_lost",
        (json_int_t)coordinator->values_lost, "formed", coordinator->cluster.is_ready ? 1 : 0,
        "restore", id_json(coordinator->began_from), "checkpoint",
        id_json(coordinator->checkpoint.max_seen), "whole",
        id_json(coordinator->checkpoint.last_on_all_servers), "latest",
        id_json(coordinator->checkpoint.job_latest), "abandoned",
        id_json(coordinator->abandoned_to), "kept", id_json(coordinator->kept_to), "identity",
        id_json(coordinator->identity), "stage", STAGES[coordinator->job.stage], "never_began",
        coordinator->job.never_began ? 1 : 0, "end_err", coordinator->job.end_err, "end_why",
        coordinator->job.end_why, "balances", coordinator->placement.balances ? 1 : 0);
}

/* Adds the member that holds the task, if any. */
static int add_member_json(const struct sl_coordinator *coordinator, enum sl_message_role role,
                           uint32_t task, json_t *record)
{
    const struct sl_coordinator_member *member = sl_coordinator_find(coordinator, role, task);
    if (member == NULL) {
        return 0;
    }
    int err = json_object_set_new(record, "member", id_json(member->hello.client_id));
    return err != 0 ? err
                    : json_object_set_new(record, "registered", json_boolean(member->registered));
}

static json_t *ps_json(const struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_ps *ps = &coordinator->ps[task];
    json_t *record = json_pack(
        "{sI sI so ss ss ss so sb sb sb sI ss}", "shards", (json_int_t)ps->shard_count, "reactors",
        (json_int_t)ps->reactor_count, "client", id_json(ps->client_id), "data", ps->data_endpoint,
        "fast", ps->bypass_endpoint, "host", ps->host, "restore", id_json(ps->checkpoints.restore),
        "serving", ps->serving ? 1 : 0, "restarted", ps->restarted ? 1 : 0, "gone",
        ps->gone ? 1 : 0, "replicas", (json_int_t)ps->replicas, "place", PLACES[ps->place]);
    if (record != NULL && add_member_json(coordinator, SL_MESSAGE_ROLE_PS, task, record) != 0) {
        json_decref(record);
        record = NULL;
    }
    return record;
}

static json_t *shards_json(const struct sl_coordinator *coordinator, uint32_t index)
{
    json_t *list = json_array();
    const uint32_t first = index * SL_COORDINATOR_RECORD_SHARDS_EACH;
    for (uint32_t i = first;
         i < coordinator->placement.shard_count && i < first + SL_COORDINATOR_RECORD_SHARDS_EACH;
         i++) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        char text[PLACEMENT_BYTES];
        (void)snprintf(text, sizeof text,
                       "%" PRIx64 " %" PRIx32 " %" PRIx32 " %" PRIx32 " %" PRIx32 " %d %" PRIx64,
                       shard->epoch, shard->primary + 1, shard->backup + 1, shard->partner + 1,
                       shard->moves_to + 1, shard->in_sync ? 1 : 0, shard->deposed_id);
        if (json_array_append_new(list, json_string(text)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return json_pack("{so}", "placements", list);
}

static json_t *worker_json(const struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_worker *worker = &coordinator->workers[task];
    json_t *record = json_pack("{ss so sb}", "end", ENDS[worker->end], "client",
                               id_json(worker->client_id), "departed", worker->left_job ? 1 : 0);
    if (record != NULL && add_member_json(coordinator, SL_MESSAGE_ROLE_WORKER, task, record) != 0) {
        json_decref(record);
        record = NULL;
    }
    return record;
}

static json_t *done_json(const struct sl_coordinator_done *done)
{
    const size_t bytes = (size_t)done->notified_count * NOTIFIED_BYTES + 1;
    char *text = malloc(bytes);
    if (text == NULL) {
        return NULL;
    }
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < done->notified_count; i++) {
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%" PRIx64 ":%" PRIx64, i == 0 ? "" : " ",
                             done->notified[i].client_id, done->notified[i].request);
    }
    json_t *record = json_pack("{so ss}", "number", id_json(done->number), "told", text);
    free(text);
    return record;
}

static int table_write(const struct sl_coordinator *coordinator, uint32_t id, uint8_t **value,
                       size_t *value_bytes)
{
    const struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .table_open = {.spec = coordinator->tables.specs[id],
                       .table_id = id,
                       .keep_id = true,
                       .is_restored = coordinator->tables.restored[id]},
    };
    *value_bytes = sl_message_encoded_bytes(&message);
    *value = malloc(*value_bytes);
    if (*value == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_message_encode(&message, *value);
    return 0;
}

int sl_coordinator_record_write(const struct sl_coordinator *coordinator,
                                enum sl_coordinator_record kind, uint32_t index, uint8_t **value,
                                size_t *value_bytes)
{
    json_t *record = NULL;
    switch (kind) {
    case SL_COORDINATOR_RECORD_JOB:
        record = job_json(coordinator);
        break;
    case SL_COORDINATOR_RECORD_PS:
        record = ps_json(coordinator, index);
        break;
    case SL_COORDINATOR_RECORD_WORKER:
        record = worker_json(coordinator, index);
        break;
    case SL_COORDINATOR_RECORD_TABLE:
        return table_write(coordinator, index, value, value_bytes);
    case SL_COORDINATOR_RECORD_DONE:
        record = done_json(&coordinator->barriers.done[index]);
        break;
    case SL_COORDINATOR_RECORD_SHARDS:
        record = shards_json(coordinator, index);
        break;
    case SL_COORDINATOR_RECORD_ALL:
        sl_assert(false);
    }
    char *text = record == NULL ? NULL : json_dumps(record, JSON_COMPACT);
    json_decref(record);
    *value = (uint8_t *)text;
    *value_bytes = text == NULL ? 0 : strlen(text);
    return text == NULL ? SL_ERR_NO_MEMORY : 0;
}

/* Reading */

static bool read_id(const json_t *record, const char *name, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(record, name));
    if (text == NULL || text[0] == '\0' || text[0] == '-') {
        return false;
    }
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 16);
    return errno == 0 && *end == '\0';
}

static bool coordinator_record_read_count(const json_t *record, const char *name, uint32_t most,
                                          uint32_t *out)
{
    const json_t *value = json_object_get(record, name);
    json_int_t number = json_integer_value(value);
    *out = (uint32_t)number;
    return json_is_integer(value) && number >= 0 && number <= (json_int_t)most;
}

static bool read_flag(const json_t *record, const char *name, bool *out)
{
    const json_t *value = json_object_get(record, name);
    *out = json_is_true(value);
    return json_is_boolean(value);
}

/* Rejects control characters, which would corrupt a log. */
static bool coordinator_record_read_text(const json_t *record, const char *name, char *to,
                                         size_t bytes)
{
    const char *text = json_string_value(json_object_get(record, name));
    if (text == NULL || strlen(text) >= bytes) {
        return false;
    }
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            return false;
        }
    }
    memcpy(to, text, strlen(text) + 1);
    return true;
}

static bool coordinator_record_read_word(const json_t *record, const char *name,
                                         const char *const *words, size_t count, uint32_t *out)
{
    const char *text = json_string_value(json_object_get(record, name));
    for (size_t i = 0; text != NULL && i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = (uint32_t)i;
            return true;
        }
    }
    return false;
}

static int read_job(struct sl_coordinator *coordinator, const json_t *record,
                    struct sl_reason *reason)
{
    uint32_t ps_count;
    uint32_t worker_count;
    uint32_t stage;
    const json_t *end_err = json_object_get(record, "end_err");
    if (!coordinator_record_read_count(record, "ps", SL_LIMIT_PS, &ps_count) ||
        !coordinator_record_read_count(record, "workers", SL_LIMIT_WORKERS, &worker_count) ||
        !coordinator_record_read_text(record, "workers_from", coordinator->job.worker_count_from,
                                      sizeof coordinator->job.worker_count_from) ||
        !coordinator_record_read_count(record, "cluster_version", UINT32_MAX - 1,
                                       &coordinator->cluster.version) ||
        coordinator->cluster.version == 0 ||
        !coordinator_record_read_count(record, "values_lost", SL_LIMIT_PS,
                                       &coordinator->values_lost) ||
        !read_flag(record, "formed", &coordinator->cluster.is_ready) ||
        !read_id(record, "restore", &coordinator->began_from) ||
        !read_id(record, "checkpoint", &coordinator->checkpoint.max_seen) ||
        !read_id(record, "whole", &coordinator->checkpoint.last_on_all_servers) ||
        !read_id(record, "latest", &coordinator->checkpoint.job_latest) ||
        !read_id(record, "abandoned", &coordinator->abandoned_to) ||
        coordinator->checkpoint.last_on_all_servers > coordinator->checkpoint.max_seen ||
        coordinator->checkpoint.job_latest > coordinator->checkpoint.max_seen ||
        coordinator->abandoned_to > coordinator->checkpoint.max_seen ||
        !coordinator_record_read_word(record, "stage", STAGES, STAGE_COUNT, &stage) ||
        !read_flag(record, "never_began", &coordinator->job.never_began) ||
        !json_is_integer(end_err) ||
        !coordinator_record_read_text(record, "end_why", coordinator->job.end_why,
                                      sizeof coordinator->job.end_why)) {
        return SL_ERR_CORRUPT;
    }
    if (!read_id(record, "kept", &coordinator->kept_to) ||
        !read_id(record, "identity", &coordinator->identity)) {
        coordinator->kept_to = coordinator->identity = 0; /* of an older version */
    }
    coordinator->placement.balances = json_is_true(json_object_get(record, "balances"));
    const uint32_t own_count = coordinator->options.worker_count;
    if (ps_count != coordinator->options.ps_count ||
        (own_count != 0 && worker_count != 0 && own_count != worker_count)) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "it is of a job with %u server%s and %u worker%s", ps_count,
                              sl_log_plural(ps_count), worker_count, sl_log_plural(worker_count));
    }
    bool follows = coordinator->options.stage_changed != NULL;
    coordinator->job.worker_count = worker_count == 0 ? own_count : worker_count;
    coordinator->job.stage =
        follows ? (enum sl_coordinator_stage)stage : SL_COORDINATOR_WAITING_FOR_MEMBERS;
    coordinator->job.end_err =
        json_integer_value(end_err) < 0 ? (int)json_integer_value(end_err) : 0;
    return 0;
}

/* Adds the member that the record names, if any. */
static int read_member(struct sl_coordinator *coordinator, enum sl_message_role role, uint32_t task,
                       const json_t *record)
{
    uint64_t id;
    bool registered;
    if (json_object_get(record, "member") == NULL) {
        return 0;
    }
    if (!read_id(record, "member", &id) || !read_flag(record, "registered", &registered) ||
        sl_coordinator_find(coordinator, role, task) != NULL) {
        return SL_ERR_CORRUPT;
    }
    return sl_coordinator_member_load(coordinator, role, task, id, registered);
}

static bool is_endpoint(const char *text)
{
    struct sl_endpoint endpoint;
    return sl_endpoint_parse(text, &endpoint, NULL) == 0;
}

/* Reads where a server's home shards are from a record of an older version. */
static bool read_older(const struct sl_coordinator *coordinator, const json_t *record,
                       struct sl_coordinator_ps *out)
{
    struct sl_message_placement *older = &out->older;
    uint32_t backup;
    if (json_object_get(record, "epoch") == NULL) {
        return true;
    }
    if (!read_id(record, "epoch", &older->epoch) ||
        !coordinator_record_read_count(record, "primary", SL_LIMIT_PS - 1, &older->primary) ||
        !coordinator_record_read_count(record, "backup", SL_LIMIT_PS, &backup) ||
        !read_flag(record, "in_step", &older->in_sync) ||
        !read_id(record, "deposed", &out->older_deposed_id) ||
        older->primary >= coordinator->options.ps_count) {
        return false;
    }
    older->backup_plus_1 = backup < coordinator->options.ps_count ? backup + 1 : 0;
    return older->backup_plus_1 != 0 || !older->in_sync;
}

/* Reads whether the server is part of the job. */
static bool read_place(const struct sl_coordinator *coordinator, uint32_t task,
                       const json_t *record, struct sl_coordinator_ps *out)
{
    uint32_t place = SL_COORDINATOR_AT_START;
    if (json_object_get(record, "place") != NULL && /* older records have none */
        !coordinator_record_read_word(record, "place", PLACES, PLACE_COUNT, &place)) {
        return false;
    }
    out->place = (enum sl_coordinator_place)place;
    /* A process that was welcomed, and has not registered to join, is no part of the job yet. */
    return (place != SL_COORDINATOR_AT_START || task < coordinator->options.ps_count ||
            !sl_coordinator_is_known(out)) &&
           (out->shard_count == 0 || task < coordinator->options.ps_count);
}

static int read_ps(struct sl_coordinator *coordinator, uint32_t task, const json_t *record)
{
    struct sl_coordinator_ps ps = {0};
    bool gone;
    if (!coordinator_record_read_count(record, "shards", SL_LIMIT_SHARDS, &ps.shard_count) ||
        (json_object_get(record, "reactors") != NULL && /* older records have none */
         !coordinator_record_read_count(record, "reactors", SL_LIMIT_REACTORS,
                                        &ps.reactor_count)) ||
        !read_id(record, "client", &ps.client_id) ||
        !coordinator_record_read_text(record, "data", ps.data_endpoint, sizeof ps.data_endpoint) ||
        !coordinator_record_read_text(record, "fast", ps.bypass_endpoint,
                                      sizeof ps.bypass_endpoint) ||
        !coordinator_record_read_text(record, "host", ps.host, sizeof ps.host) ||
        !read_id(record, "restore", &ps.checkpoints.restore) ||
        !read_flag(record, "serving", &ps.serving) ||
        !read_flag(record, "restarted", &ps.restarted) || !read_flag(record, "gone", &gone) ||
        !coordinator_record_read_count(record, "replicas", 1, &ps.replicas) ||
        !read_older(coordinator, record, &ps) || !read_place(coordinator, task, record, &ps) ||
        (ps.shard_count != 0 && ps.place != SL_COORDINATOR_DRAINED &&
         !is_endpoint(ps.data_endpoint)) ||
        (ps.place != SL_COORDINATOR_AT_START && ps.place != SL_COORDINATOR_DRAINED &&
         !is_endpoint(ps.data_endpoint)) ||
        (ps.bypass_endpoint[0] != '\0' && !is_endpoint(ps.bypass_endpoint))) {
        return SL_ERR_CORRUPT;
    }
    ps.gone = gone ? SL_COORDINATOR_END_EXPIRED : SL_COORDINATOR_END_NONE;
    coordinator->ps[task] = ps;
    coordinator->placement.ps_end =
        task < coordinator->placement.ps_end ? coordinator->placement.ps_end : task + 1;
    coordinator->placement.has_new_roles =
        coordinator->placement.has_new_roles || ps.place != SL_COORDINATOR_AT_START;
    if (sl_coordinator_is_known(&ps)) {
        coordinator->placement.replicas = ps.replicas;
    }
    return read_member(coordinator, SL_MESSAGE_ROLE_PS, task, record);
}

static bool read_placement(const char *text, struct sl_coordinator_shard *out)
{
    uint32_t tasks[4]; /* plus 1: primary, backup, partner, moves_to */
    uint32_t in_sync;
    char end;
    if (text == NULL || strlen(text) >= PLACEMENT_BYTES ||
        sscanf(text,
               "%" SCNx64 " %" SCNx32 " %" SCNx32 " %" SCNx32 " %" SCNx32 " %" SCNx32 " %" SCNx64
               "%c",
               &out->epoch, &tasks[0], &tasks[1], &tasks[2], &tasks[3], &in_sync, &out->deposed_id,
               &end) != 7) {
        return false;
    }
    out->primary = tasks[0] - 1; /* 0 becomes NO_TASK */
    out->backup = tasks[1] - 1;
    out->partner = tasks[2] - 1;
    out->moves_to = tasks[3] - 1;
    out->in_sync = in_sync != 0;
    return out->epoch != 0 && tasks[0] != 0 && tasks[0] <= SL_LIMIT_PS && tasks[1] <= SL_LIMIT_PS &&
           tasks[2] <= SL_LIMIT_PS && tasks[3] <= SL_LIMIT_PS && tasks[1] != tasks[0] &&
           tasks[3] != tasks[0] && in_sync <= (tasks[1] != 0 ? 1 : 0);
}

static int read_shards(struct sl_coordinator *coordinator, uint32_t index, const json_t *record)
{
    const json_t *list = json_object_get(record, "placements");
    const size_t count = json_array_size(list);
    if (coordinator->placement.shards == NULL) {
        coordinator->placement.shards =
            calloc(SL_LIMIT_SHARDS, sizeof *coordinator->placement.shards);
    }
    if (coordinator->placement.shards == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    if (count == 0 || count > SL_COORDINATOR_RECORD_SHARDS_EACH) {
        return SL_ERR_CORRUPT;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sl_coordinator_shard shard = {0};
        if (!read_placement(json_string_value(json_array_get(list, i)), &shard)) {
            return SL_ERR_CORRUPT;
        }
        coordinator->placement.shards[index * SL_COORDINATOR_RECORD_SHARDS_EACH + i] = shard;
    }
    const uint32_t end = index * SL_COORDINATOR_RECORD_SHARDS_EACH + (uint32_t)count;
    coordinator->placement.shard_count =
        end > coordinator->placement.shard_count ? end : coordinator->placement.shard_count;
    return 0;
}

static int read_worker(struct sl_coordinator *coordinator, uint32_t task, const json_t *record)
{
    struct sl_coordinator_worker worker = {0};
    uint32_t end;
    if (!coordinator_record_read_word(record, "end", ENDS, END_COUNT, &end) ||
        !read_id(record, "client", &worker.client_id) ||
        !read_flag(record, "departed", &worker.left_job)) {
        return SL_ERR_CORRUPT;
    }
    worker.end = (enum sl_coordinator_end)end;
    coordinator->workers[task] = worker;
    coordinator->job.worker_end =
        task < coordinator->job.worker_end ? coordinator->job.worker_end : task + 1;
    return read_member(coordinator, SL_MESSAGE_ROLE_WORKER, task, record);
}

/* Parses "client:request client:request". Returns false if malformed. */
static bool read_notified(const char *text, struct sl_coordinator_done *done)
{
    uint32_t count = 0;
    for (const char *c = text; *c != '\0'; c++) {
        count += *c == ':' ? 1 : 0;
    }
    done->notified = calloc(count + 1, sizeof *done->notified);
    if (done->notified == NULL) {
        return false;
    }
    for (; done->notified_count < count; done->notified_count++) {
        struct sl_coordinator_notified *member = &done->notified[done->notified_count];
        char *end;
        member->client_id = strtoull(text, &end, 16);
        if (end == text || *end != ':') {
            return false;
        }
        text = end + 1;
        member->request = strtoull(text, &end, 16);
        if (end == text || (*end != ' ' && *end != '\0')) {
            return false;
        }
        text = *end == ' ' ? end + 1 : end;
    }
    return *text == '\0';
}

static int read_done(struct sl_coordinator *coordinator, uint32_t index, const json_t *record)
{
    struct sl_coordinator_done done = {0};
    const char *text = json_string_value(json_object_get(record, "told"));
    if (text == NULL || !read_id(record, "number", &done.number) ||
        done.number % SL_COORDINATOR_DONE_BARRIERS != index || !read_notified(text, &done)) {
        free(done.notified);
        return SL_ERR_CORRUPT;
    }
    free(coordinator->barriers.done[index].notified);
    coordinator->barriers.done[index] = done;
    if (done.number > coordinator->barriers.done_number) {
        coordinator->barriers.done_number = done.number;
    }
    return 0;
}

static int read_table(struct sl_coordinator *coordinator, uint32_t id, const uint8_t *value,
                      size_t value_bytes, struct sl_reason *reason)
{
    struct sl_message message;
    int err = sl_message_decode(value, value_bytes, &message);
    if (err != 0) {
        return err == SL_ERR_PROTOCOL ? SL_ERR_CORRUPT : err;
    }
    const struct sl_table_spec *spec = &message.table_open.spec;
    bool is_table = message.kind == SL_MESSAGE_TABLE_OPEN && message.table_open.table_id == id &&
                    (spec->name[0] == '\0' || sl_message_check_spec(spec, reason) == 0);
    err =
        is_table ? sl_coordinator_table_load(coordinator, id, &message.table_open) : SL_ERR_CORRUPT;
    sl_message_fini(&message);
    return err;
}

static uint32_t count_of(const struct sl_coordinator *coordinator, enum sl_coordinator_record kind)
{
    switch (kind) {
    case SL_COORDINATOR_RECORD_JOB:
        return 1;
    case SL_COORDINATOR_RECORD_PS:
        return SL_LIMIT_PS;
    case SL_COORDINATOR_RECORD_SHARDS:
        return SL_LIMIT_SHARDS / SL_COORDINATOR_RECORD_SHARDS_EACH;
    case SL_COORDINATOR_RECORD_WORKER:
        return SL_LIMIT_WORKERS;
    case SL_COORDINATOR_RECORD_TABLE:
        return SL_LIMIT_TABLES;
    case SL_COORDINATOR_RECORD_DONE:
        return SL_COORDINATOR_DONE_BARRIERS;
    case SL_COORDINATOR_RECORD_ALL:
        break;
    }
    return 0;
}

static int read_json(struct sl_coordinator *coordinator, enum sl_coordinator_record kind,
                     uint32_t index, const json_t *record, struct sl_reason *reason)
{
    return !json_is_object(record)                ? SL_ERR_CORRUPT
           : kind == SL_COORDINATOR_RECORD_JOB    ? read_job(coordinator, record, reason)
           : kind == SL_COORDINATOR_RECORD_PS     ? read_ps(coordinator, index, record)
           : kind == SL_COORDINATOR_RECORD_DONE   ? read_done(coordinator, index, record)
           : kind == SL_COORDINATOR_RECORD_SHARDS ? read_shards(coordinator, index, record)
                                                  : read_worker(coordinator, index, record);
}

/* Checks the checkpoint numbers in a record of the job or of a server. */
static int check_numbers(const json_t *record, struct sl_reason *reason)
{
    uint64_t number;
    if ((read_id(record, "checkpoint", &number) && number > SL_LIMIT_CHECKPOINT_NUMBER) ||
        (read_id(record, "restore", &number) && number > SL_LIMIT_CHECKPOINT_NUMBER)) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "it names checkpoint %" PRIu64 ": the last is %llu", number,
                              SL_LIMIT_CHECKPOINT_NUMBER);
    }
    return 0;
}

int sl_coordinator_record_read(struct sl_coordinator *coordinator, enum sl_coordinator_record kind,
                               uint32_t index, const uint8_t *value, size_t value_bytes,
                               struct sl_reason *reason)
{
    sl_reason_set(reason, "it is none of a coordinator's records");
    if (index >= count_of(coordinator, kind)) {
        return SL_ERR_CORRUPT;
    }
    if (kind == SL_COORDINATOR_RECORD_TABLE) {
        return read_table(coordinator, index, value, value_bytes, reason);
    }
    json_t *record = json_loadb((const char *)value, value_bytes, JSON_REJECT_DUPLICATES, NULL);
    int err = check_numbers(record, reason);
    err = err != 0 ? err : read_json(coordinator, kind, index, record, reason);
    json_decref(record);
    return err;
}

/* Taking over */

static bool knows_a_worker(const struct sl_coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        if (sl_coordinator_is_worker(coordinator->members[i])) {
            return true;
        }
    }
    return false;
}

/* A job that has survived a promotion also gets a full lease: its clients are not recorded. */
static bool knows_a_take_over(const struct sl_coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        if (coordinator->placement.shards[i].epoch > 1) {
            return true;
        }
    }
    return false;
}

/* True if this process is, or was, a server of the recorded job. */
static bool is_known_ps(const struct sl_coordinator *coordinator, uint64_t client_id)
{
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        const struct sl_coordinator_ps *ps = &coordinator->ps[task];
        const struct sl_coordinator_member *member =
            sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, task);
        if ((sl_coordinator_is_known(ps) && ps->client_id == client_id) ||
            (member != NULL && member->hello.client_id == client_id)) {
            return true;
        }
    }
    return false;
}

static bool knows_a_ps(const struct sl_coordinator *coordinator)
{
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        if (sl_coordinator_is_known(&coordinator->ps[task]) ||
            sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, task) != NULL) {
            return true;
        }
    }
    return false;
}

/* A restarted server may not know which workers left earlier. */
static void settle_ends(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    bool restarted = false;
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        restarted = restarted || coordinator->ps[task].restarted;
        coordinator->ps[task].last_seen_ns = now_ns;
    }
    for (uint32_t task = 0; task < SL_LIMIT_WORKERS; task++) {
        struct sl_coordinator_worker *worker = &coordinator->workers[task];
        worker->end_ns = now_ns;
        worker->unnotified = restarted && worker->end == SL_COORDINATOR_END_LEFT;
        coordinator->unnotified_count += worker->unnotified ? 1 : 0;
    }
}

/* Starts the member's lease. A worker gets two: it must first find the new leader. */
static void await(const struct sl_coordinator *coordinator, struct sl_coordinator_member *member,
                  uint64_t now_ns)
{
    const uint64_t lease_ns = coordinator->options.lease_ns;
    member->last_seen_ns = now_ns;
    if (sl_coordinator_is_worker(member) && lease_ns < SL_CLOCK_NEVER - now_ns) {
        member->lease_from_ns = now_ns + lease_ns;
    }
}

/* Resets the coordinator to an empty job and erases its records. */
static void coordinator_record_forget(struct sl_coordinator *coordinator)
{
    while (coordinator->member_count > 0) {
        sl_coordinator_free_member(coordinator->members[--coordinator->member_count]);
    }
    memset(coordinator->ps, 0, SL_LIMIT_PS * sizeof *coordinator->ps);
    free(coordinator->placement.shards);
    coordinator->placement.shards = NULL;
    coordinator->placement.ps_end = coordinator->options.ps_count;
    coordinator->placement.shard_count = coordinator->placement.replicas = 0;
    coordinator->placement.has_new_roles = coordinator->placement.balances = false;
    memset(coordinator->workers, 0, SL_LIMIT_WORKERS * sizeof *coordinator->workers);
    sl_coordinator_record_fini(coordinator);
    coordinator->unnotified_count = 0;
    sl_coordinator_reset_job(coordinator);
    coordinator->cluster.version = 1;
    coordinator->values_lost = 0;
    coordinator->tables.are_older = false;
    coordinator->cluster.is_ready = false;
    coordinator->began_from = coordinator->abandoned_to = 0;
    coordinator->kept_to = coordinator->identity = 0;
    coordinator->checkpoint.max_seen = coordinator->checkpoint.last_on_all_servers = 0;
    coordinator->checkpoint.job_latest = 0;
    coordinator->tables.count = 0;
    coordinator->tables.dropped = (struct sl_message_dropped){0};
    memset(coordinator->tables.restored, 0, sizeof coordinator->tables.restored);
    coordinator->recovery_deadline_ns = 0;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_ALL, 0);
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0); /* marks the prefix as used */
}

void sl_coordinator_record_end(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        await(coordinator, member, now_ns);
        /* The records lack the checkpoints that a server can restore: it must register again. */
        member->registered =
            member->registered && (coordinator->cluster.is_ready || !sl_coordinator_is_ps(member));
    }
    coordinator->job.stage_ns =
        coordinator->job.stage == SL_COORDINATOR_WAITING_FOR_MEMBERS ? 0 : now_ns;
    settle_ends(coordinator, now_ns);
    sl_coordinator_placement_end_loading(coordinator);
    if (!knows_a_ps(coordinator) || coordinator->job.stage == SL_COORDINATOR_OVER) {
        coordinator_record_forget(coordinator);
        return;
    }
    uint64_t wait_ns = coordinator->options.lease_ns;
    if (!knows_a_worker(coordinator) && !knows_a_take_over(coordinator) &&
        wait_ns > DOUBT_WITHOUT_WORKERS_NS) {
        wait_ns = DOUBT_WITHOUT_WORKERS_NS;
    }
    if (coordinator->cluster.is_ready) {
        sl_coordinator_checkpoint_cluster_ready(coordinator, now_ns);
    }
    coordinator->recovery_deadline_ns = now_ns + wait_ns;
}

int sl_coordinator_record_admits(struct sl_coordinator *coordinator,
                                 const struct sl_message_hello *hello, struct sl_reason *reason)
{
    if (coordinator->recovery_deadline_ns == 0) {
        return 0;
    }
    if (hello->role == SL_MESSAGE_ROLE_PS && is_known_ps(coordinator, hello->client_id)) {
        coordinator->recovery_deadline_ns = 0;
        sl_log_event(
            SL_LOG_INFO,
            SL_EVENT("job_continued", SL_EVENT_NUMBER("members", coordinator->member_count)),
            "the job continues: %u of its processes are known", coordinator->member_count);
        return 0;
    }
    return sl_reason_fail(reason, SL_ERR_AGAIN,
                          "a new leader waits for a server of the job that it knows");
}

void sl_coordinator_record_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    if (coordinator->recovery_deadline_ns != 0 && now_ns >= coordinator->recovery_deadline_ns) {
        sl_log_warn(
            "the cluster store has records of a job without a living server: they are dropped");
        coordinator_record_forget(coordinator);
    }
}

void sl_coordinator_record_fini(struct sl_coordinator *coordinator)
{
    for (uint32_t i = 0; i < SL_COORDINATOR_DONE_BARRIERS; i++) {
        free(coordinator->barriers.done[i].notified);
        coordinator->barriers.done[i] = (struct sl_coordinator_done){0};
    }
    coordinator->barriers.done_number = 0;
}
