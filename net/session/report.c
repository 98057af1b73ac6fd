#include "net/session/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/session/message_read.h"
#include "net/session/message_write.h"
#include "report.pb-c.h"

#define COPY(field) to->field = from->field;

/* clang-format off */
#define COPY_REPORT COPY(uptime_ms) COPY(memory) COPY(memory_limit) COPY(ordinary_pages) COPY(slow_threshold_us) COPY(is_restoring)
#define COPY_SHARD                                                                                 \
    COPY(shard) COPY(is_backup) COPY(in_sync) COPY(requests) COPY(keys) COPY(bytes) COPY(busy_us)  \
    COPY(stalls) COPY(p99_us) COPY(rows) COPY(memory) COPY(clock) COPY(staleness)                  \
    COPY(lag_entries)
#define COPY_TABLE                                                                                 \
    COPY(rows) COPY(memory) COPY(pulled_keys) COPY(pushed_keys) COPY(sampled_keys)
#define COPY_SLOW COPY(time_ms) COPY(shard) COPY(table) COPY(keys) COPY(total_us)
#define COPY_HOT_KEY COPY(table) COPY(shard) COPY(key) COPY(count)
#define COPY_CHECKPOINT COPY(number) COPY(time_ms) COPY(duration_ms) COPY(failures)
#define COPY_CLIENT                                                                                \
    COPY(clock) COPY(steps) COPY(requests) COPY(step_p99_us) COPY(in_flight) COPY(reconnects)
/* clang-format on */

static size_t limit_of(size_t shard_count, size_t table_count)
{
    return SL_REPORT_BASE_BYTES + shard_count * SL_REPORT_SHARD_BYTES +
           table_count * SL_REPORT_TABLE_BYTES;
}

/* Encoding */

/* The structs that protobuf-c packs from: 300 KiB. */
struct build {
    Starling__Report report;
    Starling__Report__Checkpoint checkpoint;
    Starling__Report__Client client;
    Starling__Report__Slow slow[SL_REPORT_SLOW_MAX], *slow_list[SL_REPORT_SLOW_MAX];
    Starling__Report__HotKey hot[SL_REPORT_HOT_KEYS_MAX], *hot_list[SL_REPORT_HOT_KEYS_MAX];
    Starling__Report__Shard shards[SL_REPORT_SHARDS_MAX], *shard_list[SL_REPORT_SHARDS_MAX];
    Starling__Report__Table tables[SL_LIMIT_TABLES], *table_list[SL_LIMIT_TABLES];
};

static void build_shard(struct build *build, const struct sl_report_shard *from)
{
    Starling__Report__Shard *to = &build->shards[build->report.n_shards];
    *to = (Starling__Report__Shard)STARLING__REPORT__SHARD__INIT;
    COPY_SHARD
    build->shard_list[build->report.n_shards++] = to;
}

static void build_table(struct build *build, const struct sl_report_table *from)
{
    Starling__Report__Table *to = &build->tables[build->report.n_tables];
    *to = (Starling__Report__Table)STARLING__REPORT__TABLE__INIT;
    COPY_TABLE
    to->name = text(from->name, sizeof from->name);
    build->table_list[build->report.n_tables++] = to;
}

static void build_slow(struct build *build, const struct sl_report_slow *from)
{
    Starling__Report__Slow *to = &build->slow[build->report.n_slow];
    *to = (Starling__Report__Slow)STARLING__REPORT__SLOW__INIT;
    COPY_SLOW
    to->op = (uint32_t)from->op;
    to->client = text(from->client, sizeof from->client);
    to->phases_us = (uint32_t *)(uintptr_t)from->phases_us; /* drops the const, as in text() */
    to->n_phases_us = SL_REQUEST_PHASES;
    build->slow_list[build->report.n_slow++] = to;
}

static void build_hot_key(struct build *build, const struct sl_report_hot_key *from)
{
    Starling__Report__HotKey *to = &build->hot[build->report.n_hot];
    *to = (Starling__Report__HotKey)STARLING__REPORT__HOT_KEY__INIT;
    COPY_HOT_KEY
    build->hot_list[build->report.n_hot++] = to;
}

/* Adds the first table_count tables, with their slow requests and hot keys. */
static void build_tables(struct build *build, const struct sl_report *from, uint32_t table_count)
{
    build->report.n_tables = build->report.n_slow = build->report.n_hot = 0;
    for (uint32_t i = 0; i < table_count; i++) {
        build_table(build, &from->tables[i]);
    }
    for (uint32_t i = 0; i < from->slow_count; i++) {
        if (from->slow[i].table < table_count) {
            build_slow(build, &from->slow[i]);
        }
    }
    for (uint32_t i = 0; i < from->hot_count; i++) {
        if (from->hot[i].table < table_count) {
            build_hot_key(build, &from->hot[i]);
        }
    }
}

static void build_checkpoint(struct build *build, const struct sl_report_checkpoint *from)
{
    Starling__Report__Checkpoint *to = &build->checkpoint;
    *to = (Starling__Report__Checkpoint)STARLING__REPORT__CHECKPOINT__INIT;
    COPY_CHECKPOINT
    build->report.checkpoint = to;
}

static void build_client(struct build *build, const struct sl_report_client *from)
{
    Starling__Report__Client *to = &build->client;
    *to = (Starling__Report__Client)STARLING__REPORT__CLIENT__INIT;
    COPY_CLIENT
    build->report.client = to;
}

static void build_report(struct build *build, const struct sl_report *from)
{
    Starling__Report *to = &build->report;
    *to = (Starling__Report)STARLING__REPORT__INIT;
    COPY_REPORT
    to->http = text(from->http, sizeof from->http);
    to->shards = build->shard_list;
    to->tables = build->table_list;
    to->slow = build->slow_list;
    to->hot = build->hot_list;
    for (uint32_t i = 0; i < from->shard_count; i++) {
        build_shard(build, &from->shards[i]);
    }
    if (from->has_checkpoint) {
        build_checkpoint(build, &from->checkpoint);
    }
    if (from->has_client) {
        build_client(build, &from->client);
    }
}

int sl_report_encode(const struct sl_report *report, uint8_t **out, uint32_t *out_bytes)
{
    sl_assert(report->shard_count <= SL_REPORT_SHARDS_MAX);
    sl_assert(report->table_count <= SL_LIMIT_TABLES);
    sl_assert(report->slow_count <= SL_REPORT_SLOW_MAX);
    sl_assert(report->hot_count <= SL_REPORT_HOT_KEYS_MAX);
    struct build *build = malloc(sizeof *build);
    if (build == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    build_report(build, report);
    uint32_t table_count = report->table_count;
    build_tables(build, report, table_count);
    size_t bytes = starling__report__get_packed_size(&build->report);
    while (table_count > 0 && bytes > limit_of(report->shard_count, table_count)) {
        table_count -= 1 + table_count / 16;
        build_tables(build, report, table_count);
        bytes = starling__report__get_packed_size(&build->report);
    }
    const bool fits = bytes <= limit_of(report->shard_count, table_count);
    uint8_t *encoded = fits ? malloc(bytes + 1) : NULL;
    if (encoded != NULL) {
        *out_bytes = (uint32_t)starling__report__pack(&build->report, encoded);
        *out = encoded;
    }
    free(build);
    return encoded != NULL ? SL_OK : fits ? SL_ERR_NO_MEMORY : SL_ERR_TOO_LARGE;
}

/* Decoding */

static bool are_counters(const uint64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!holds(numbers[i] <= SL_REPORT_COUNTER_MAX, "report: a counter over the limit")) {
            return false;
        }
    }
    return true;
}

#define ARE_COUNTERS(...)                                                                          \
    are_counters((const uint64_t[]){__VA_ARGS__},                                                  \
                 sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static bool read_shard(const Starling__Report__Shard *from, struct sl_report_shard *to)
{
    COPY_SHARD
    return holds(from->shard < SL_LIMIT_SHARDS, "report: a shard over the limit") &&
           ARE_COUNTERS(from->requests, from->keys, from->bytes, from->busy_us, from->stalls,
                        from->rows, from->memory, from->lag_entries);
}

static bool read_table(const struct sl_message_memory *memory, const Starling__Report__Table *from,
                       struct sl_report_table *to)
{
    COPY_TABLE
    return copy_text(memory, from->name, TEXT_NAME, to->name, sizeof to->name) &&
           holds(to->name[0] != '\0', "report: a table without a name") &&
           ARE_COUNTERS(from->rows, from->memory, from->pulled_keys, from->pushed_keys,
                        from->sampled_keys);
}

static bool read_slow(const struct sl_message_memory *memory, const Starling__Report__Slow *from,
                      size_t table_count, struct sl_report_slow *to)
{
    COPY_SLOW
    to->op = (enum sl_request_kind)from->op;
    if (!holds(from->table < table_count, "report: a slow request without its table") ||
        !holds(from->shard < SL_LIMIT_SHARDS, "report: a slow request's shard over the limit") ||
        !holds(from->op < SL_REQUEST_KINDS, "report: an unknown operation") ||
        !holds(from->n_phases_us == SL_REQUEST_PHASES, "report: too few or many phases") ||
        !ARE_COUNTERS(from->time_ms)) {
        return false;
    }
    memcpy(to->phases_us, from->phases_us, sizeof to->phases_us);
    return copy_text(memory, from->client, TEXT_NAME, to->client, sizeof to->client);
}

static bool read_hot_key(const Starling__Report__HotKey *from, size_t table_count,
                         struct sl_report_hot_key *to)
{
    COPY_HOT_KEY
    return holds(from->table < table_count, "report: a hot key without its table") &&
           holds(from->shard < SL_LIMIT_SHARDS, "report: a hot key's shard over the limit") &&
           ARE_COUNTERS(from->count);
}

static bool read_checkpoint(const Starling__Report__Checkpoint *from,
                            struct sl_report_checkpoint *to)
{
    COPY_CHECKPOINT
    return holds(is_checkpoint(from->number), "report: a checkpoint's number over the limit") &&
           ARE_COUNTERS(from->time_ms, from->failures);
}

static bool read_client(const Starling__Report__Client *from, struct sl_report_client *to)
{
    COPY_CLIENT
    return ARE_COUNTERS(from->steps, from->requests, from->reconnects);
}

/* HOST:PORT, as a link may have it. */
static bool is_http(const char *http)
{
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    const int bytes = snprintf(endpoint, sizeof endpoint, "tcp://%s", http);
    return holds(bytes < (int)sizeof endpoint, "report: an HTTP address that is too long") &&
           holds(strpbrk(http, "\"'<>&") == NULL, "report: an HTTP address that is none") &&
           sl_message_is_endpoint(endpoint);
}

static bool read_lists(const struct sl_message_memory *memory, const Starling__Report *from,
                       struct sl_report *to)
{
    bool is_valid = true;
    for (size_t i = 0; i < from->n_shards && is_valid; i++) {
        is_valid = read_shard(from->shards[i], &to->shards[i]);
    }
    for (size_t i = 0; i < from->n_tables && is_valid; i++) {
        is_valid = read_table(memory, from->tables[i], &to->tables[i]);
    }
    for (size_t i = 0; i < from->n_slow && is_valid; i++) {
        is_valid = read_slow(memory, from->slow[i], from->n_tables, &to->slow[i]);
    }
    for (size_t i = 0; i < from->n_hot && is_valid; i++) {
        is_valid = read_hot_key(from->hot[i], from->n_tables, &to->hot[i]);
    }
    return is_valid;
}

static int read_report(const struct sl_message_memory *memory, const Starling__Report *from,
                       size_t bytes, struct sl_report *to)
{
    if (!holds(from->n_shards <= SL_REPORT_SHARDS_MAX, "report: too many shards") ||
        !holds(from->n_tables <= SL_LIMIT_TABLES, "report: too many tables") ||
        !holds(from->n_slow <= SL_REPORT_SLOW_MAX, "report: too many slow requests") ||
        !holds(from->n_hot <= SL_REPORT_HOT_KEYS_MAX, "report: too many hot keys") ||
        !holds(bytes <= limit_of(from->n_shards, from->n_tables), "report: too long")) {
        return SL_ERR_PROTOCOL;
    }
    COPY_REPORT
    to->shard_count = (uint32_t)from->n_shards;
    to->table_count = (uint32_t)from->n_tables;
    to->slow_count = (uint32_t)from->n_slow;
    to->hot_count = (uint32_t)from->n_hot;
    to->has_checkpoint = from->checkpoint != NULL;
    to->has_client = from->client != NULL;
    to->shards = calloc(from->n_shards + 1, sizeof *to->shards);
    to->tables = calloc(from->n_tables + 1, sizeof *to->tables);
    if (to->shards == NULL || to->tables == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    const bool is_valid =
        ARE_COUNTERS(from->uptime_ms, from->memory, from->memory_limit, from->ordinary_pages) &&
        copy_text(memory, from->http, TEXT_NAME, to->http, sizeof to->http) &&
        (to->http[0] == '\0' || is_http(to->http)) && read_lists(memory, from, to) &&
        (!to->has_checkpoint || read_checkpoint(from->checkpoint, &to->checkpoint)) &&
        (!to->has_client || read_client(from->client, &to->client));
    return is_valid ? SL_OK : SL_ERR_PROTOCOL;
}

int sl_report_decode(const uint8_t *from, size_t bytes, struct sl_report *out)
{
    sl_assert(from != NULL || bytes == 0);
    if (!holds(bytes <= SL_REPORT_BYTES_MAX, "report: too long")) {
        return SL_ERR_PROTOCOL;
    }
    struct sl_message_memory memory;
    int err = sl_message_memory_init(&memory, bytes);
    if (err != SL_OK) {
        return err;
    }
    struct sl_report report = {0};
    const Starling__Report *parsed = starling__report__unpack(&memory.allocator, bytes, from);
    err = holds(parsed != NULL, "not a Report, or one of absurdly many parts")
              ? read_report(&memory, parsed, bytes, &report)
              : SL_ERR_PROTOCOL;
    sl_message_memory_fini(&memory);
    if (err != SL_OK) {
        sl_report_fini(&report);
        return err;
    }
    *out = report;
    return SL_OK;
}

void sl_report_fini(struct sl_report *report)
{
    free(report->shards);
    free(report->tables);
    report->shards = NULL;
    report->tables = NULL;
}
