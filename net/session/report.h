/* Report is the state of a member that it sends to the coordinator once a second: encodes it, and
 * decodes it with validation of every field. A message REPORT carries the bytes. Any thread;
 * allocates. */
#ifndef SL_NET_SESSION_REPORT_H
#define SL_NET_SESSION_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <starling_training.h>

#include "core/limits.h"
#include "net/session/message.h"
#include "net/wire/request.h"

/* Most bytes of an encoded report: the sum for its shards and tables. */
#define SL_REPORT_BASE_BYTES  1024
#define SL_REPORT_SHARD_BYTES 96
#define SL_REPORT_TABLE_BYTES 64

#define SL_REPORT_SHARDS_MAX  (2 * SL_LIMIT_REACTORS) /* a server's own, and its backups */
#define SL_REPORT_BYTES_MAX                                                                        \
    (SL_REPORT_BASE_BYTES + SL_REPORT_SHARDS_MAX * SL_REPORT_SHARD_BYTES +                         \
     SL_LIMIT_TABLES * SL_REPORT_TABLE_BYTES)
#define SL_REPORT_SLOW_MAX     4
#define SL_REPORT_HOT_KEYS_MAX 12

/* Largest counter: JSON integers are signed. */
#define SL_REPORT_COUNTER_MAX  ((uint64_t)INT64_MAX)

/* Fields of this and the next structs: as in report.proto. */
struct sl_report_shard {
    uint32_t shard;
    bool is_backup, in_sync;
    uint32_t p99_us, clock, staleness;
    uint64_t requests, keys, bytes, busy_us, stalls, rows, memory, lag_entries;
};

struct sl_report_table {
    char name[SL_TABLE_NAME_BYTES];
    uint64_t rows, memory, pulled_keys, pushed_keys, sampled_keys, evicted_keys, waiting_keys;
};

struct sl_report_slow {
    uint64_t time_ms;
    char client[SL_MESSAGE_NAME_BYTES];
    uint32_t shard, table; /* table: index in sl_report.tables */
    enum sl_request_kind op;
    uint32_t keys, total_us;
    uint32_t phases_us[SL_REQUEST_PHASES];
    uint32_t phase_count; /* SL_REQUEST_PHASES; encoding sets it */
};

struct sl_report_hot_key {
    uint32_t table, shard; /* table: index in sl_report.tables */
    uint64_t key, count;
};

struct sl_report_checkpoint {
    uint64_t number, time_ms, failures;
    uint32_t duration_ms;
};

struct sl_report_client {
    uint32_t clock, step_p99_us, in_flight;
    uint64_t steps, requests, reconnects;
    bool has_training;
    struct sl_training training; /* valid if has_training */
};

struct sl_report {
    uint64_t uptime_ms;
    char http[SL_LIMIT_ENDPOINT_BYTES];
    uint64_t memory, memory_limit;
    uint64_t ordinary_pages;        /* bytes of tables and buffers that are not on huge pages */
    struct sl_report_shard *shards; /* decoded: owned, freed by sl_report_fini */
    struct sl_report_table *tables; /* decoded: owned, freed by sl_report_fini */
    uint32_t shard_count, table_count;
    struct sl_report_slow slow[SL_REPORT_SLOW_MAX];
    struct sl_report_hot_key hot[SL_REPORT_HOT_KEYS_MAX];
    uint32_t slow_count, hot_count;
    uint32_t slow_threshold_us;
    bool is_restoring, has_checkpoint, has_client;
    struct sl_report_checkpoint checkpoint; /* valid if has_checkpoint */
    struct sl_report_client client;         /* valid if has_client */
};

/* Encodes the report into *out, which the caller frees. If it would be longer than its limit, the
 * last tables are left out, with their slow requests and hot keys. Asserts that counts are within
 * limits and that strings end with NUL. Errors: NO_MEMORY, TOO_LARGE. */
int sl_report_encode(const struct sl_report *report, uint8_t **out, uint32_t *out_bytes);

/* Decodes and validates a report. On success *out needs sl_report_fini. Errors, with the reason
 * logged at debug level: NO_MEMORY; PROTOCOL: longer than its limit, a number out of range, an
 * index without its table, a string with a NUL inside, or a name that is not printable ASCII. */
int sl_report_decode(const uint8_t *from, size_t bytes, struct sl_report *out);

void sl_report_fini(struct sl_report *report);

#endif
