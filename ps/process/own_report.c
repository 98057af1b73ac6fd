#include "ps/process/own_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena_pages.h"
#include "core/clock.h"
#include "core/metrics_process.h"
#include "ps/process/views.h"

#define NO_TABLE UINT32_MAX

struct sl_process_own_report {
    const struct sl_process *process;
    struct sl_report report;
    uint64_t now_ns, unix_ms;
    uint32_t by_id[SL_LIMIT_TABLES]; /* index in report.tables; NO_TABLE: not there yet */
    struct sl_report_table tables[SL_LIMIT_TABLES];
    struct sl_report_shard shards[SL_REPORT_SHARDS_MAX];
    bool has_traffic[SL_LIMIT_REACTORS]; /* of each reactor, in this report */
};

int sl_process_own_report_create(const struct sl_process *process,
                                 struct sl_process_own_report **out)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    (*out)->process = process;
    return 0;
}

void sl_process_own_report_destroy(struct sl_process_own_report **report)
{
    free(*report);
    *report = NULL;
}

static struct sl_report_table *find_table(struct sl_process_own_report *own,
                                          const struct sl_shard_table_view *view)
{
    struct sl_report *report = &own->report;
    uint32_t *index = &own->by_id[view->id];
    if (*index == NO_TABLE) {
        *index = report->table_count++;
        own->tables[*index] = (struct sl_report_table){0};
        memcpy(own->tables[*index].name, view->stats.name, sizeof view->stats.name);
    }
    return &own->tables[*index];
}

/* Keeps the hottest keys of all tables, in order. */
static void add_hot_key(struct sl_report *report, struct sl_report_hot_key key)
{
    uint32_t at = report->hot_count;
    while (at > 0 && report->hot[at - 1].count < key.count) {
        at--;
    }
    if (at < SL_REPORT_HOT_KEYS_MAX) {
        report->hot_count += report->hot_count < SL_REPORT_HOT_KEYS_MAX ? 1 : 0;
        memmove(&report->hot[at + 1], &report->hot[at],
                (report->hot_count - at - 1) * sizeof report->hot[0]);
        report->hot[at] = key;
    }
}

/* Adds the tables of a shard that this process serves. */
static void add_tables(struct sl_process_own_report *own, const struct sl_server_view *view,
                       struct sl_report_shard *shard)
{
    for (uint32_t i = 0; i < view->shard.table_count; i++) {
        const struct sl_shard_table_view *from = &view->shard.tables[i];
        struct sl_report_table *to = find_table(own, from);
        to->rows += from->stats.rows;
        to->memory += from->stats.bytes;
        to->pulled_keys += from->stats.pulled_rows;
        to->pushed_keys += from->stats.pushed_rows;
        to->sampled_keys += from->hot.sampled;
        to->evicted_keys += sl_message_evicted(&from->stats);
        to->waiting_keys += from->stats.waiting;
        shard->keys += from->stats.pulled_rows + from->stats.pushed_rows;
        for (uint32_t k = 0; k < from->hot.count; k++) {
            const struct sl_hot_key *key = &from->hot.keys[k];
            add_hot_key(&own->report, (struct sl_report_hot_key){.table = own->by_id[from->id],
                                                                 .shard = view->shard_index,
                                                                 .key = key->key,
                                                                 .count = key->count - key->error});
        }
    }
}

static uint32_t find_named(const struct sl_report *report, const char *name)
{
    uint32_t table = 0;
    while (table < report->table_count && strcmp(report->tables[table].name, name) != 0) {
        table++;
    }
    return table;
}

static struct sl_report_slow slow_of(const struct sl_process_own_report *own,
                                     const struct sl_server_slow_request *from, uint32_t shard,
                                     uint32_t table)
{
    /* The reactor may have ended it after now_ns was read. */
    const uint64_t ago_ns = own->now_ns > from->ended_ns ? own->now_ns - from->ended_ns : 0;
    struct sl_report_slow slow = {
        .time_ms = own->unix_ms - ago_ns / SL_CLOCK_NS_PER_MS,
        .client = "client",
        .shard = shard,
        .table = table,
        .op = sl_request_kind_of(from->section.op),
        .keys = (uint32_t)from->section.key_count,
        .total_us = (uint32_t)(from->total_ns / SL_CLOCK_NS_PER_US),
    };
    if (from->client.has_clock) {
        (void)snprintf(slow.client, sizeof slow.client, "worker/%u", from->client.worker);
    }
    for (uint32_t i = 0; i < SL_REQUEST_PHASES; i++) {
        slow.phases_us[i] = (uint32_t)(from->ns[i] / SL_CLOCK_NS_PER_US);
    }
    return slow;
}

/* Keeps the slowest of the slow requests that are newer than the last report. */
static void add_slow(struct sl_process_own_report *own, const struct sl_server_view *view,
                     uint64_t *seen)
{
    struct sl_report *report = &own->report;
    const uint64_t kept =
        view->slow_count > SL_SERVER_SLOW_REQUESTS ? view->slow_count - SL_SERVER_SLOW_REQUESTS : 0;
    for (uint64_t n = *seen > kept ? *seen : kept; n < view->slow_count; n++) {
        const struct sl_server_slow_request *from = &view->slow[n % SL_SERVER_SLOW_REQUESTS];
        const uint32_t table = find_named(report, from->table);
        const struct sl_report_slow slow = slow_of(own, from, view->shard_index, table);
        uint32_t fastest = 0;
        for (uint32_t i = 1; i < report->slow_count; i++) {
            fastest = report->slow[i].total_us < report->slow[fastest].total_us ? i : fastest;
        }
        if (table == report->table_count) {
            continue; /* a tick alone has no table */
        }
        if (report->slow_count < SL_REPORT_SLOW_MAX) {
            report->slow[report->slow_count++] = slow;
        } else if (slow.total_us > report->slow[fastest].total_us) {
            report->slow[fastest] = slow;
        }
    }
    *seen = view->slow_count;
}

/* Adds the requests since the start, and the latency since the last report. */
static void add_requests(struct sl_process_hosted *hosted, struct sl_report_shard *shard)
{
    const struct sl_server_cells *cells = &hosted->cells;
    struct sl_cell_copy times = {0};
    for (uint32_t op = 0; op < SL_REQUEST_KINDS; op++) {
        shard->requests += sl_cell_get(&cells->requests[op]);
        sl_cell_read(&cells->request_time[op], &times);
    }
    struct sl_cell_copy last = times;
    sl_cell_copy_since(&last, &hosted->observed.times);
    hosted->observed.times = times;
    shard->p99_us = (uint32_t)(sl_cell_quantile_ns(&last, 0.99) / SL_CLOCK_NS_PER_US);
}

/* Of the traffic, the first shard of a reactor in the report has all. */
static void add_traffic(const struct sl_process_block *block, struct sl_report_shard *shard)
{
    for (uint32_t i = 0; i < SL_SERVER_TRANSPORTS; i++) {
        shard->bytes += sl_cell_get(&block->server.transports[i].bytes_received) +
                        sl_cell_get(&block->server.transports[i].bytes_sent);
    }
}

static void add_shard(struct sl_process_own_report *own, struct sl_process_hosted *hosted,
                      const struct sl_server_view *view)
{
    const uint32_t core = hosted->core->index;
    const struct sl_process_block *block = &own->process->metrics.blocks[core];
    const struct sl_reactor_cells *reactor = &block->reactor;
    const struct sl_replication_cells *replica = &hosted->replica_cells;
    if (own->report.shard_count == SL_REPORT_SHARDS_MAX) {
        return;
    }
    struct sl_report_shard *shard = &own->shards[own->report.shard_count++];
    *shard = (struct sl_report_shard){
        .shard = view->shard_index,
        .is_backup = !view->serves,
        .in_sync = sl_cell_get(&replica->is_in_sync) != 0,
        .clock = view->shard.clock_min,
        .staleness = view->shard.clock_max - view->shard.clock_min,
        .busy_us = sl_cell_get(&reactor->busy_ns) / SL_CLOCK_NS_PER_US,
        .stalls = sl_cell_get(&reactor->stalls),
        .lag_entries = sl_cell_get(&replica->lag_entries),
    };
    for (uint32_t i = 0; i < view->shard.table_count; i++) {
        shard->rows += view->shard.tables[i].stats.rows;
        shard->memory += view->shard.tables[i].stats.bytes;
    }
    add_requests(hosted, shard);
    if (!own->has_traffic[core]) {
        own->has_traffic[core] = true;
        add_traffic(block, shard);
    }
    own->report.is_restoring = own->report.is_restoring || view->stage != SL_SERVER_VIEW_OPEN;
    if (view->serves) {
        add_tables(own, view, shard);
        add_slow(own, view, &hosted->observed.slow_count);
    }
}

static void add_checkpoint(struct sl_report *report, const struct sl_process *process)
{
    const struct sl_process_cells *cells = &process->metrics.cells;
    report->has_checkpoint = process->options.checkpoint.directory != NULL;
    report->checkpoint = (struct sl_report_checkpoint){
        .number = sl_cell_get(&cells->checkpoint.number),
        .time_ms = sl_cell_get(&cells->checkpoint.success_ns) / SL_CLOCK_NS_PER_MS,
        .duration_ms = (uint32_t)(sl_cell_get(&cells->checkpoint.duration_ns) / SL_CLOCK_NS_PER_MS),
    };
    for (uint32_t i = 0; i < SL_COORDINATOR_FAILURES; i++) {
        report->checkpoint.failures += sl_cell_get(&process->metrics.coordinator.failures[i]);
    }
}

struct sl_message_report sl_process_own_report_build(struct sl_process_own_report *own,
                                                     const char *http, uint64_t uptime_ms,
                                                     uint64_t now_ns, uint64_t unix_ms)
{
    const struct sl_process *process = own->process;
    struct sl_report *report = &own->report;
    *report = (struct sl_report){
        .uptime_ms = uptime_ms,
        .memory = sl_metrics_process_resident_bytes(),
        .memory_limit = process->options.memory_bytes_max,
        .ordinary_pages = sl_arena_pages_ordinary_bytes(),
        .slow_threshold_us =
            (uint32_t)(process->options.times.slow_request_ns / SL_CLOCK_NS_PER_US),
        .shards = own->shards,
        .tables = own->tables,
    };
    (void)snprintf(report->http, sizeof report->http, "%s", http);
    own->now_ns = now_ns;
    own->unix_ms = unix_ms;
    memset(own->by_id, 0xff, sizeof own->by_id); /* NO_TABLE */
    memset(own->has_traffic, 0, sizeof own->has_traffic);
    SL_PROCESS_FOREACH (hosted, process) {
        const struct sl_server_view *view = sl_process_views_shard(hosted, now_ns);
        if (view != NULL) {
            add_shard(own, hosted, view);
        }
    }
    add_checkpoint(report, process);
    struct sl_message_report message = {0};
    (void)sl_report_encode(report, &message.bytes, &message.byte_count);
    return message;
}
