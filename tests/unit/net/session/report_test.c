#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "net/session/report.h"
#include "random_message.h"
#include "tests/support/unit.h"

struct lists {
    struct sl_report_shard shards[SL_REPORT_SHARDS_MAX];
    struct sl_report_table tables[SL_LIMIT_TABLES];
};

static uint32_t below(uint64_t *seed, uint32_t limit)
{
    return (uint32_t)(sl_hash_random(seed) % limit);
}

/* Of a process that has run for some years. */
static uint64_t counter(uint64_t *seed)
{
    return sl_hash_random(seed) >> (16 + below(seed, 48));
}

static void random_tables(uint64_t *seed, struct sl_report *to)
{
    for (uint32_t i = 0; i < to->table_count; i++) {
        struct sl_report_table *table = &to->tables[i];
        random_message_name(seed, table->name, 16);
        table->rows = counter(seed);
        table->memory = counter(seed);
        table->pulled_keys = counter(seed);
        table->pushed_keys = counter(seed);
        table->sampled_keys = counter(seed);
        table->evicted_keys = counter(seed);
        table->waiting_keys = counter(seed);
    }
    to->slow_count = to->table_count == 0 ? 0 : below(seed, SL_REPORT_SLOW_MAX + 1);
    for (uint32_t i = 0; i < to->slow_count; i++) {
        struct sl_report_slow *slow = &to->slow[i];
        slow->time_ms = counter(seed);
        random_message_name(seed, slow->client, 24);
        slow->shard = below(seed, SL_LIMIT_SHARDS);
        slow->table = below(seed, to->table_count);
        slow->op = (enum sl_request_kind)below(seed, SL_REQUEST_KINDS);
        slow->keys = below(seed, 4096);
        slow->total_us = below(seed, 1U << 20);
        for (uint32_t k = 0; k < SL_REQUEST_PHASES; k++) {
            slow->phases_us[k] = below(seed, 1U << 20);
        }
    }
    to->hot_count = to->table_count == 0 ? 0 : below(seed, SL_REPORT_HOT_KEYS_MAX + 1);
    for (uint32_t i = 0; i < to->hot_count; i++) {
        to->hot[i].table = below(seed, to->table_count);
        to->hot[i].shard = below(seed, SL_LIMIT_SHARDS);
        to->hot[i].key = sl_hash_random(seed);
        to->hot[i].count = counter(seed);
    }
}

static void random_report(uint64_t *seed, struct lists *lists, struct sl_report *to)
{
    memset(to, 0, sizeof *to);
    memset(lists, 0, sizeof *lists);
    to->uptime_ms = counter(seed);
    if (below(seed, 2) == 1) {
        snprintf(to->http, sizeof to->http, "127.0.0.1:%u", 1 + below(seed, 65535));
    }
    to->memory = counter(seed);
    to->memory_limit = counter(seed);
    to->ordinary_pages = counter(seed);
    to->slow_threshold_us = below(seed, 1U << 20);
    to->shards = lists->shards;
    to->tables = lists->tables;
    to->shard_count = below(seed, 33);
    to->table_count = below(seed, 65);
    for (uint32_t i = 0; i < to->shard_count; i++) {
        to->shards[i] = (struct sl_report_shard){
            .shard = below(seed, SL_LIMIT_SHARDS),
            .is_backup = below(seed, 2) == 0,
            .in_sync = below(seed, 2) == 0,
            .p99_us = below(seed, 1U << 20),
            .clock = below(seed, 1U << 20),
            .staleness = below(seed, 100),
            .requests = counter(seed),
            .keys = counter(seed),
            .bytes = counter(seed),
            .busy_us = counter(seed),
            .stalls = below(seed, 10000),
            .rows = counter(seed),
            .memory = counter(seed),
            .lag_entries = below(seed, 10000),
        };
    }
    random_tables(seed, to);
    to->has_checkpoint = below(seed, 2) == 0;
    if (to->has_checkpoint) {
        to->checkpoint.number = random_message_number(seed);
        to->checkpoint.time_ms = counter(seed);
        to->checkpoint.failures = counter(seed);
        to->checkpoint.duration_ms = below(seed, 1U << 20);
    }
    to->has_client = below(seed, 2) == 0;
    if (to->has_client) {
        to->client = (struct sl_report_client){
            .clock = below(seed, 1U << 20),
            .step_p99_us = below(seed, 1U << 20),
            .in_flight = below(seed, 256),
            .steps = counter(seed),
            .requests = counter(seed),
            .reconnects = counter(seed),
        };
        to->client.has_training = below(seed, 2) == 0;
        if (to->client.has_training) {
            to->client.training = (struct sl_training){
                .epoch = 1.5F + (float)below(seed, 100),
                .epochs = (float)below(seed, 100),
                .samples = counter(seed),
                .loss = (float)below(seed, 1000) / 7,
                .learning_rate = (float)below(seed, 1000) / 7,
                .metric = (float)below(seed, 1000) / 7,
            };
            random_message_name(seed, to->client.training.metric_name,
                                sizeof to->client.training.metric_name);
        }
    }
}

static void assert_same_shard(const struct sl_report_shard *a, const struct sl_report_shard *b)
{
    assert_int_equal(a->shard, b->shard);
    assert_int_equal(a->is_backup, b->is_backup);
    assert_int_equal(a->in_sync, b->in_sync);
    assert_memory_equal(&a->p99_us, &b->p99_us, 3 * sizeof a->p99_us);
    assert_memory_equal(&a->requests, &b->requests, 8 * sizeof a->requests);
}

static void assert_same_slow(const struct sl_report_slow *a, const struct sl_report_slow *b)
{
    assert_true(a->time_ms == b->time_ms);
    assert_string_equal(a->client, b->client);
    assert_int_equal(a->shard, b->shard);
    assert_int_equal(a->table, b->table);
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->keys, b->keys);
    assert_int_equal(a->total_us, b->total_us);
    assert_memory_equal(a->phases_us, b->phases_us, sizeof a->phases_us);
}

static void assert_same(const struct sl_report *a, const struct sl_report *b)
{
    assert_true(a->uptime_ms == b->uptime_ms);
    assert_string_equal(a->http, b->http);
    assert_true(a->memory == b->memory);
    assert_true(a->memory_limit == b->memory_limit);
    assert_true(a->ordinary_pages == b->ordinary_pages);
    assert_int_equal(a->slow_threshold_us, b->slow_threshold_us);
    assert_int_equal(a->shard_count, b->shard_count);
    for (uint32_t i = 0; i < a->shard_count; i++) {
        assert_same_shard(&a->shards[i], &b->shards[i]);
    }
    assert_int_equal(a->table_count, b->table_count);
    assert_memory_equal(a->tables, b->tables, a->table_count * sizeof *a->tables);
    assert_int_equal(a->slow_count, b->slow_count);
    for (uint32_t i = 0; i < a->slow_count; i++) {
        assert_same_slow(&a->slow[i], &b->slow[i]);
    }
    assert_int_equal(a->hot_count, b->hot_count);
    assert_memory_equal(a->hot, b->hot, a->hot_count * sizeof *a->hot);
    assert_int_equal(a->has_checkpoint, b->has_checkpoint);
    assert_true(a->checkpoint.number == b->checkpoint.number);
    assert_true(a->checkpoint.time_ms == b->checkpoint.time_ms);
    assert_true(a->checkpoint.failures == b->checkpoint.failures);
    assert_int_equal(a->checkpoint.duration_ms, b->checkpoint.duration_ms);
    assert_int_equal(a->has_client, b->has_client);
    assert_int_equal(a->client.clock, b->client.clock);
    assert_int_equal(a->client.step_p99_us, b->client.step_p99_us);
    assert_int_equal(a->client.in_flight, b->client.in_flight);
    assert_true(a->client.steps == b->client.steps);
    assert_true(a->client.requests == b->client.requests);
    assert_true(a->client.reconnects == b->client.reconnects);
    assert_int_equal(a->client.has_training, b->client.has_training);
    assert_memory_equal(&a->client.training, &b->client.training, sizeof a->client.training);
}

static uint8_t *encode(const struct sl_report *report, uint32_t *bytes)
{
    uint8_t *encoded = NULL;
    assert_int_equal(sl_report_encode(report, &encoded, bytes), SL_OK);
    return encoded;
}

SL_CASE(report_decode__returns_what_was_encoded)
{
    static struct lists lists;
    uint64_t seed = 1;
    for (uint32_t i = 0; i < 300; i++) {
        struct sl_report report, decoded;
        random_report(&seed, &lists, &report);
        uint32_t bytes = 0;
        uint8_t *encoded = encode(&report, &bytes);
        assert_true(bytes <= SL_REPORT_BASE_BYTES + report.shard_count * SL_REPORT_SHARD_BYTES +
                                 report.table_count * SL_REPORT_TABLE_BYTES);
        assert_int_equal(sl_report_decode(encoded, bytes, &decoded), SL_OK);
        assert_same(&report, &decoded);
        sl_report_fini(&decoded);
        free(encoded);
    }
}

SL_CASE(report_decode__survives_changed_bytes)
{
    static struct lists lists;
    uint64_t seed = 2;
    for (uint32_t i = 0; i < 8; i++) {
        struct sl_report report, decoded;
        random_report(&seed, &lists, &report);
        uint32_t bytes = 0;
        uint8_t *encoded = encode(&report, &bytes);
        for (uint32_t at = 0; at < bytes; at++) {
            const uint8_t was = encoded[at];
            encoded[at] = (uint8_t)sl_hash_random(&seed);
            if (sl_report_decode(encoded, bytes, &decoded) == SL_OK) {
                sl_report_fini(&decoded);
            }
            encoded[at] = was;
        }
        free(encoded);
    }
}

SL_CASE(report_encode__leaves_out_tables_that_do_not_fit)
{
    static struct lists lists;
    struct sl_report decoded;
    struct sl_report report = {
        .shards = lists.shards,
        .tables = lists.tables,
        .table_count = SL_LIMIT_TABLES,
        .slow_count = 2,
        .slow = {{.table = 0, .client = "worker/1"}, {.table = SL_LIMIT_TABLES - 1}},
        .hot_count = 2,
        .hot = {{.table = SL_LIMIT_TABLES - 1}, {.table = 0, .key = 7}},
    };
    for (uint32_t i = 0; i < SL_LIMIT_TABLES; i++) {
        memset(report.tables[i].name, 'x', sizeof report.tables[i].name - 1);
        report.tables[i].rows = report.tables[i].memory = 1U << 30;
    }
    uint32_t bytes = 0;
    uint8_t *encoded = encode(&report, &bytes);
    assert_int_equal(sl_report_decode(encoded, bytes, &decoded), SL_OK);
    assert_in_range(decoded.table_count, 30, SL_LIMIT_TABLES - 1);
    assert_int_equal(decoded.slow_count, 1);
    assert_string_equal(decoded.slow[0].client, "worker/1");
    assert_int_equal(decoded.hot_count, 1);
    assert_int_equal(decoded.hot[0].key, 7);
    sl_report_fini(&decoded);
    free(encoded);
}

/* A report with one entry of each kind. */
static struct sl_report small_report(struct lists *lists)
{
    *lists = (struct lists){.tables = {{.name = "emb"}}};
    return (struct sl_report){
        .shards = lists->shards,
        .tables = lists->tables,
        .shard_count = 1,
        .table_count = 1,
        .slow_count = 1,
        .hot_count = 1,
        .has_checkpoint = true,
        .has_client = true,
    };
}

static int decode(const struct sl_report *report)
{
    struct sl_report decoded;
    uint32_t bytes = 0;
    uint8_t *encoded = encode(report, &bytes);
    const int err = sl_report_decode(encoded, bytes, &decoded);
    if (err == SL_OK) {
        sl_report_fini(&decoded);
    }
    free(encoded);
    return err;
}

SL_CASE(report_decode__refuses_each_field_outside_its_range)
{
    static struct lists lists;
    struct sl_report report = small_report(&lists);
    assert_int_equal(decode(&report), SL_OK);
#define REFUSES(field, value, valid)                                                               \
    do {                                                                                           \
        (field) = (value);                                                                         \
        assert_int_equal(decode(&report), SL_ERR_PROTOCOL);                                        \
        (field) = (valid);                                                                         \
        assert_int_equal(decode(&report), SL_OK);                                                  \
    } while (0)
#define REFUSES_COUNTER(field) REFUSES(field, SL_REPORT_COUNTER_MAX + 1, SL_REPORT_COUNTER_MAX)
    REFUSES_COUNTER(report.uptime_ms);
    REFUSES_COUNTER(report.memory);
    REFUSES_COUNTER(report.memory_limit);
    REFUSES_COUNTER(report.ordinary_pages);
    REFUSES(report.shards[0].shard, SL_LIMIT_SHARDS, SL_LIMIT_SHARDS - 1);
    REFUSES_COUNTER(report.shards[0].requests);
    REFUSES_COUNTER(report.shards[0].keys);
    REFUSES_COUNTER(report.shards[0].bytes);
    REFUSES_COUNTER(report.shards[0].busy_us);
    REFUSES_COUNTER(report.shards[0].stalls);
    REFUSES_COUNTER(report.shards[0].rows);
    REFUSES_COUNTER(report.shards[0].memory);
    REFUSES_COUNTER(report.shards[0].lag_entries);
    REFUSES(report.tables[0].name[0], '\0', 'e');
    REFUSES(report.tables[0].name[1], '\n', 'm');
    REFUSES(report.tables[0].name[1], (char)0xe4, '<');
    REFUSES_COUNTER(report.tables[0].rows);
    REFUSES_COUNTER(report.tables[0].memory);
    REFUSES_COUNTER(report.tables[0].pulled_keys);
    REFUSES_COUNTER(report.tables[0].pushed_keys);
    REFUSES_COUNTER(report.tables[0].sampled_keys);
    REFUSES_COUNTER(report.slow[0].time_ms);
    REFUSES(report.slow[0].op, SL_REQUEST_KINDS, SL_REQUEST_KIND_TICK);
    REFUSES(report.slow[0].shard, SL_LIMIT_SHARDS, 0);
    REFUSES(report.slow[0].client[0], '\x7f', 'w');
    REFUSES(report.hot[0].shard, SL_LIMIT_SHARDS, 0);
    REFUSES_COUNTER(report.hot[0].count);
    REFUSES(report.checkpoint.number, SL_LIMIT_CHECKPOINT_NUMBER + 1, SL_LIMIT_CHECKPOINT_NUMBER);
    REFUSES_COUNTER(report.checkpoint.time_ms);
    REFUSES_COUNTER(report.checkpoint.failures);
    REFUSES_COUNTER(report.client.steps);
    REFUSES_COUNTER(report.client.requests);
    REFUSES_COUNTER(report.client.reconnects);
}

SL_CASE(report_decode__refuses_http_addresses_that_a_page_could_not_link)
{
    static const char *const bad[] = {"localhost",      "localhost:0", "a b:1",
                                      "x\"onclick=:80", "<script>:80", "h:80/path"};
    static struct lists lists;
    struct sl_report report = small_report(&lists);
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(report.http, sizeof report.http, "%s", bad[i]);
        assert_int_equal(decode(&report), SL_ERR_PROTOCOL);
    }
    snprintf(report.http, sizeof report.http, "[::1]:9480");
    assert_int_equal(decode(&report), SL_OK);
}

/* Adds an unknown field of `bytes` bytes to an encoded report. */
static int decode_padded(const struct sl_report *report, uint32_t bytes)
{
    uint32_t had = 0;
    uint8_t *encoded = encode(report, &had);
    uint8_t *padded = calloc(1, bytes);
    assert_true(bytes > had + 4);
    memcpy(padded, encoded, had);
    const uint32_t length = bytes - had - 4; /* two bytes each: tag of field 99, and length */
    padded[had] = 0x9a;
    padded[had + 1] = 0x06;
    padded[had + 2] = (uint8_t)(0x80 | (length & 0x7f));
    padded[had + 3] = (uint8_t)(length >> 7);
    struct sl_report decoded;
    const int err = sl_report_decode(padded, bytes, &decoded);
    if (err == SL_OK) {
        sl_report_fini(&decoded);
    }
    free(padded);
    free(encoded);
    return err;
}

SL_CASE(report_decode__refuses_more_bytes_than_its_shards_and_tables_need)
{
    static struct lists lists;
    struct sl_report report = small_report(&lists);
    const uint32_t limit = SL_REPORT_BASE_BYTES + SL_REPORT_SHARD_BYTES + SL_REPORT_TABLE_BYTES;
    assert_int_equal(decode_padded(&report, limit), SL_OK);
    assert_int_equal(decode_padded(&report, limit + 1), SL_ERR_PROTOCOL);
    report.shard_count = 0;
    assert_int_equal(decode_padded(&report, limit), SL_ERR_PROTOCOL);
}
