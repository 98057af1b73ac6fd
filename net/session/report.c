#include "net/session/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "core/protobuf.h"
#include "net/session/message_table.h"

/* HOST:PORT, as a link may have it. */
static const char *http_misfit(const char *http)
{
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    const int bytes = snprintf(endpoint, sizeof endpoint, "tcp://%s", http);
    return bytes >= (int)sizeof endpoint || strpbrk(http, "\"'<>&") != NULL
               ? "an HTTP address that is none"
               : sl_message_table_endpoint_misfit(endpoint);
}

static const char *report_misfit(const void *message)
{
    const struct sl_report *report = message;
    for (uint32_t i = 0; i < report->slow_count; i++) {
        if (report->slow[i].table >= report->table_count) {
            return "a slow request without its table";
        }
    }
    for (uint32_t i = 0; i < report->hot_count; i++) {
        if (report->hot[i].table >= report->table_count) {
            return "a hot key without its table";
        }
    }
    return report->http[0] == '\0' ? NULL : http_misfit(report->http);
}

/* clang-format off */
#define ANY(number, kind, tag, member)  SL_FIELD_ANY(number, kind, sl_report_##tag, member)
#define BELOW(number, tag, member, end) SL_FIELD_RANGE(number, UINT, sl_report_##tag, member, 0, (end) - 1)
#define COUNTER(number, tag, member)    SL_FIELD_RANGE(number, UINT, sl_report_##tag, member, 0, SL_REPORT_COUNTER_MAX)

SL_PROTOBUF_TABLE(SHARD, "report: shard", NULL,
    BELOW(1, shard, shard, SL_LIMIT_SHARDS),
    ANY(2, BOOL, shard, is_backup),
    ANY(3, BOOL, shard, in_sync),
    COUNTER(4, shard, requests),
    COUNTER(5, shard, keys),
    COUNTER(6, shard, bytes),
    COUNTER(7, shard, busy_us),
    COUNTER(8, shard, stalls),
    ANY(9, UINT, shard, p99_us),
    COUNTER(10, shard, rows),
    COUNTER(11, shard, memory),
    ANY(12, UINT, shard, clock),
    ANY(13, UINT, shard, staleness),
    COUNTER(14, shard, lag_entries));

SL_PROTOBUF_TABLE(TABLE, "report: table", NULL,
    SL_FIELD_RANGE(1, NAME, sl_report_table, name, 1, 0),
    COUNTER(2, table, rows),
    COUNTER(3, table, memory),
    COUNTER(4, table, pulled_keys),
    COUNTER(5, table, pushed_keys),
    COUNTER(6, table, sampled_keys),
    COUNTER(7, table, evicted_keys),
    COUNTER(8, table, waiting_keys));

SL_PROTOBUF_TABLE(SLOW, "report: slow request", NULL,
    COUNTER(1, slow, time_ms),
    BELOW(2, slow, shard, SL_LIMIT_SHARDS),
    ANY(3, NAME, slow, client),
    ANY(4, UINT, slow, table),
    BELOW(5, slow, op, SL_REQUEST_KINDS),
    ANY(6, UINT, slow, keys),
    ANY(7, UINT, slow, total_us),
    SL_FIELD_LIST(8, UINT, sl_report_slow, phases_us, phase_count, SL_REQUEST_PHASES, NULL));

SL_PROTOBUF_TABLE(HOT_KEY, "report: hot key", NULL,
    ANY(1, UINT, hot_key, table),
    BELOW(2, hot_key, shard, SL_LIMIT_SHARDS),
    ANY(3, FIXED64, hot_key, key),
    COUNTER(4, hot_key, count));

SL_PROTOBUF_TABLE(CHECKPOINT, "report: checkpoint", NULL,
    BELOW(1, checkpoint, number, SL_LIMIT_CHECKPOINT_NUMBER + 1),
    COUNTER(2, checkpoint, time_ms),
    ANY(3, UINT, checkpoint, duration_ms),
    COUNTER(4, checkpoint, failures));

SL_PROTOBUF_TABLE(TRAINING, "report: training", NULL,
    SL_FIELD_ANY(1, FLOAT, sl_training, epoch),
    SL_FIELD_ANY(2, FLOAT, sl_training, epochs),
    SL_FIELD_RANGE(3, UINT, sl_training, samples, 0, SL_REPORT_COUNTER_MAX),
    SL_FIELD_ANY(4, FLOAT, sl_training, loss),
    SL_FIELD_ANY(5, FLOAT, sl_training, learning_rate),
    SL_FIELD_ANY(6, FLOAT, sl_training, metric),
    SL_FIELD_ANY(7, NAME, sl_training, metric_name));

SL_PROTOBUF_TABLE(CLIENT, "report: client", NULL,
    ANY(1, UINT, client, clock),
    COUNTER(2, client, steps),
    COUNTER(3, client, requests),
    ANY(5, UINT, client, step_p99_us),
    ANY(6, UINT, client, in_flight),
    COUNTER(7, client, reconnects),
    SL_FIELD_OPTIONAL_OF(8, MESSAGE, sl_report_client, training, has_training, &TRAINING));

#define REPORT_COUNTER(number, member) SL_FIELD_RANGE(number, UINT, sl_report, member, 0, SL_REPORT_COUNTER_MAX)
SL_PROTOBUF_TABLE(REPORT, "report", report_misfit,
    REPORT_COUNTER(1, uptime_ms),
    SL_FIELD_ANY(2, NAME, sl_report, http),
    REPORT_COUNTER(3, memory),
    REPORT_COUNTER(4, memory_limit),
    SL_FIELD_OWNED_LIST(5, sl_report, shards, shard_count, 0, SL_REPORT_SHARDS_MAX, SHARD),
    SL_FIELD_OWNED_LIST(6, sl_report, tables, table_count, 0, SL_LIMIT_TABLES, TABLE),
    SL_FIELD_LIST(7, MESSAGE, sl_report, slow, slow_count, 0, &SLOW),
    SL_FIELD_LIST(8, MESSAGE, sl_report, hot, hot_count, 0, &HOT_KEY),
    SL_FIELD_OPTIONAL_OF(9, MESSAGE, sl_report, checkpoint, has_checkpoint, &CHECKPOINT),
    SL_FIELD_OPTIONAL_OF(10, MESSAGE, sl_report, client, has_client, &CLIENT),
    SL_FIELD_ANY(11, UINT, sl_report, slow_threshold_us),
    SL_FIELD_ANY(12, BOOL, sl_report, is_restoring),
    REPORT_COUNTER(13, ordinary_pages));
/* clang-format on */

const struct sl_protobuf_type *const sl_message_table_report = &REPORT;

static size_t limit_of(const struct sl_report *report)
{
    return SL_REPORT_BASE_BYTES + report->shard_count * SL_REPORT_SHARD_BYTES +
           report->table_count * SL_REPORT_TABLE_BYTES;
}

/* Leaves out the last tables, with their slow requests and hot keys. */
static void keep_tables(struct sl_report *report, uint32_t table_count)
{
    const uint32_t slow_count = report->slow_count;
    const uint32_t hot_count = report->hot_count;
    report->table_count = table_count;
    report->slow_count = report->hot_count = 0;
    for (uint32_t i = 0; i < slow_count; i++) {
        if (report->slow[i].table < table_count) {
            report->slow[report->slow_count++] = report->slow[i];
        }
    }
    for (uint32_t i = 0; i < hot_count; i++) {
        if (report->hot[i].table < table_count) {
            report->hot[report->hot_count++] = report->hot[i];
        }
    }
}

int sl_report_encode(const struct sl_report *report, uint8_t **out, uint32_t *out_bytes)
{
    sl_assert(report->slow_count <= SL_REPORT_SLOW_MAX);
    sl_assert(report->hot_count <= SL_REPORT_HOT_KEYS_MAX);
    struct sl_report kept = *report;
    for (uint32_t i = 0; i < kept.slow_count; i++) {
        kept.slow[i].phase_count = SL_REQUEST_PHASES;
    }
    uint8_t *encoded = malloc(limit_of(&kept));
    if (encoded == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    keep_tables(&kept, report->table_count);
    size_t bytes = sl_protobuf_encode(&REPORT, &kept, encoded, limit_of(&kept));
    while (kept.table_count > 0 && bytes > limit_of(&kept)) {
        keep_tables(&kept, kept.table_count - 1 - kept.table_count / 16);
        bytes = sl_protobuf_encode(&REPORT, &kept, encoded, limit_of(&kept));
    }
    if (bytes > limit_of(&kept)) {
        free(encoded);
        return SL_ERR_TOO_LARGE;
    }
    *out_bytes = (uint32_t)bytes;
    *out = encoded;
    return SL_OK;
}

int sl_report_decode(const uint8_t *from, size_t bytes, struct sl_report *out)
{
    sl_assert(from != NULL || bytes == 0);
    struct sl_report report = {0};
    struct sl_reason reason = {"report: too long"};
    int err = bytes <= SL_REPORT_BYTES_MAX
                  ? sl_protobuf_decode(&REPORT, from, bytes, &report, &reason)
                  : SL_ERR_PROTOCOL;
    if (err == SL_OK && bytes > limit_of(&report)) {
        sl_reason_set(&reason, "report: too long for its shards and tables");
        err = SL_ERR_PROTOCOL;
    }
    if (err != SL_OK) {
        sl_log_debug("control message refused: %s", reason.text);
        sl_report_fini(&report);
        return err;
    }
    *out = report;
    return SL_OK;
}

void sl_report_fini(struct sl_report *report)
{
    sl_protobuf_fini(&REPORT, report);
}
