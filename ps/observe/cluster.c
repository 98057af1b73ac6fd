#include "ps/observe/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ps/observe/cluster_state.h"

static void forget(struct sl_cluster *cluster, struct sl_cluster_member **member)
{
    if (*member != NULL) {
        cluster->bytes -= (*member)->bytes;
        sl_report_fini(&(*member)->report);
        sl_report_fini(&(*member)->earlier);
        free(*member);
        *member = NULL;
    }
}

int sl_cluster_create(struct sl_cluster **out)
{
    struct sl_cluster *cluster = calloc(1, sizeof *cluster);
    if (cluster == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_history_init(&cluster->history);
    const int err = sl_history_open(&cluster->history, &cluster->job);
    if (err != 0) {
        free(cluster);
        return err;
    }
    *out = cluster;
    return 0;
}

void sl_cluster_destroy(struct sl_cluster **cluster)
{
    for (uint32_t i = 0; i < SL_LIMIT_PS; i++) {
        forget(*cluster, &(*cluster)->servers[i]);
    }
    for (uint32_t i = 0; i < SL_LIMIT_WORKERS; i++) {
        forget(*cluster, &(*cluster)->workers[i]);
    }
    sl_history_fini(&(*cluster)->history);
    free(*cluster);
    *cluster = NULL;
}

/* Reports */

static size_t bytes_of(const struct sl_report *report)
{
    return report->shard_count * sizeof *report->shards +
           report->table_count * sizeof *report->tables;
}

static void keep_slow(struct sl_cluster *cluster, uint32_t server, const struct sl_report *report)
{
    for (uint32_t i = 0; i < report->slow_count; i++) {
        struct sl_cluster_slow *slow = &cluster->slow[cluster->slow_count++ % SL_CLUSTER_SLOW_MAX];
        slow->request = report->slow[i];
        slow->server = server;
        memcpy(slow->table, report->tables[report->slow[i].table].name, sizeof slow->table);
    }
}

/* Takes ownership of the report. */
static int keep(struct sl_cluster *cluster, struct sl_cluster_member **place,
                struct sl_report *report, uint64_t now_ns)
{
    struct sl_cluster_member *member = *place;
    const size_t had = member == NULL ? 0 : member->bytes;
    const size_t bytes =
        sizeof *member + bytes_of(report) + (member == NULL ? 0 : bytes_of(&member->report));
    if (cluster->bytes - had + bytes > SL_CLUSTER_BYTES_MAX) {
        return SL_ERR_TOO_LARGE;
    }
    if (member == NULL && (member = *place = calloc(1, sizeof *member)) == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_report_fini(&member->earlier);
    member->has_earlier = member->received_ns != 0 && report->uptime_ms > member->report.uptime_ms;
    member->earlier = member->report;
    member->report = *report;
    if (!member->has_earlier || member->earlier.client.training.epoch == 0 ||
        report->client.training.epoch < member->earlier.client.training.epoch) {
        member->begin_ns = now_ns; /* it trains from here on */
        member->begin_epoch = report->client.training.epoch;
    }
    member->received_ns = now_ns;
    member->bytes = bytes;
    cluster->bytes += bytes - had;
    return 0;
}

int sl_cluster_take(struct sl_cluster *cluster, const struct sl_cluster_sender *sender,
                    const uint8_t *bytes, uint32_t byte_count, uint64_t now_ns)
{
    const bool is_server = sender->role == SL_MESSAGE_ROLE_PS;
    if (!is_server && sender->role != SL_MESSAGE_ROLE_WORKER) {
        return 0;
    }
    struct sl_report report;
    int err = sl_report_decode(bytes, byte_count, &report);
    if (err != 0) {
        return err;
    }
    struct sl_cluster_member **place =
        is_server ? &cluster->servers[sender->task_index] : &cluster->workers[sender->task_index];
    err = keep(cluster, place, &report, now_ns);
    if (err != 0) {
        sl_report_fini(&report);
    } else if (is_server) {
        keep_slow(cluster, sender->task_index, &report);
    }
    return err;
}

/* History */

static void observe_cluster_add_value(float *sum, float value)
{
    *sum = isnan(value) ? *sum : isnan(*sum) ? value : *sum + value;
}

static void tick_shard(struct sl_cluster *cluster, uint32_t index, struct sl_cluster_shard shard)
{
    struct sl_history_track *track = &cluster->shards[index];
    const struct sl_report_shard *now = shard.now;
    const struct sl_report_shard *earlier = shard.earlier;
    if (now == NULL || (track->points == NULL && sl_history_open(&cluster->history, track) != 0)) {
        return; /* without memory this shard has no history */
    }
    const struct sl_history_point point = {{
        [SL_HISTORY_REQUESTS] =
            (float)sl_cluster_rate(now->requests, earlier->requests, shard.seconds),
        [SL_HISTORY_KEYS] = (float)sl_cluster_rate(now->keys, earlier->keys, shard.seconds),
        [SL_HISTORY_BYTES] = (float)sl_cluster_rate(now->bytes, earlier->bytes, shard.seconds),
        [SL_HISTORY_P99_US] = now->p99_us == 0 ? NAN : (float)now->p99_us,
        [SL_HISTORY_STALENESS] = (float)now->staleness,
        [SL_HISTORY_MEMORY] = (float)now->memory,
        [SL_HISTORY_SAMPLES] = NAN,
        [SL_HISTORY_LOSS] = NAN,
    }};
    sl_history_add(track, cluster->second, &point);
    float *totals = cluster->totals.values;
    for (int i = SL_HISTORY_REQUESTS; i <= SL_HISTORY_BYTES; i++) {
        observe_cluster_add_value(&totals[i], point.values[i]);
    }
    totals[SL_HISTORY_P99_US] = fmaxf(totals[SL_HISTORY_P99_US], point.values[SL_HISTORY_P99_US]);
    totals[SL_HISTORY_STALENESS] =
        fmaxf(totals[SL_HISTORY_STALENESS], point.values[SL_HISTORY_STALENESS]);
}

/* Finds the table, or a place for it: that of a table which no server reports any more. The servers
 * report tables in the same order, so that `guess` is usually right. NULL: there is none. */
static struct sl_cluster_table *find_table(struct sl_cluster *cluster, const char *name,
                                           uint32_t guess)
{
    struct sl_cluster_table *place = NULL;
    if (guess < cluster->table_count && strcmp(cluster->tables[guess].name, name) == 0) {
        return &cluster->tables[guess];
    }
    for (uint32_t i = 0; i < cluster->table_count; i++) {
        struct sl_cluster_table *table = &cluster->tables[i];
        if (strcmp(table->name, name) == 0) {
            return table;
        }
        place = table->second + SL_HISTORY_SECONDS < cluster->second ? table : place;
    }
    if (place == NULL && cluster->table_count < SL_LIMIT_TABLES) {
        place = &cluster->tables[cluster->table_count];
    }
    if (place != NULL) {
        sl_history_close(&cluster->history, &place->track);
        *place = (struct sl_cluster_table){0};
        if (sl_history_open(&cluster->history, &place->track) != 0) {
            return NULL;
        }
        cluster->table_count += place == &cluster->tables[cluster->table_count] ? 1 : 0;
        memcpy(place->name, name, sizeof place->name);
    }
    return place;
}

static void tick_tables(struct sl_cluster *cluster, const struct sl_cluster_member *member)
{
    const double seconds = sl_cluster_seconds(member);
    for (uint32_t i = 0; i < member->report.table_count; i++) {
        const struct sl_report_table *now = &member->report.tables[i];
        const struct sl_report_table *earlier =
            i < member->earlier.table_count ? &member->earlier.tables[i] : now;
        struct sl_cluster_table *table = find_table(cluster, now->name, i);
        if (table == NULL) {
            continue;
        }
        table->second = cluster->second;
        table->rows += now->rows;
        table->memory += now->memory;
        table->sampled_keys += now->sampled_keys;
        table->waiting_keys += now->waiting_keys;
        if (seconds > 0 && strcmp(earlier->name, now->name) == 0) {
            table->pulled_s += sl_cluster_rate(now->pulled_keys, earlier->pulled_keys, seconds);
            table->pushed_s += sl_cluster_rate(now->pushed_keys, earlier->pushed_keys, seconds);
            table->evicted_s += sl_cluster_rate(now->evicted_keys, earlier->evicted_keys, seconds);
        }
    }
}

static void tick_servers(struct sl_cluster *cluster, const struct sl_coordinator_view *view,
                         uint64_t now_ns)
{
    for (uint32_t shard = 0; shard < view->shard_count; shard++) {
        const uint32_t primary = view->shards[shard].primary;
        tick_shard(cluster, shard, sl_cluster_find_shard(cluster, primary, shard, now_ns));
    }
    for (uint32_t task = 0; task < view->ps_count; task++) {
        const struct sl_cluster_member *member = sl_cluster_fresh(cluster->servers[task], now_ns);
        if (member != NULL) {
            observe_cluster_add_value(&cluster->totals.values[SL_HISTORY_MEMORY],
                                      (float)member->report.memory);
            tick_tables(cluster, member);
        }
    }
}

void sl_cluster_end(struct sl_cluster *cluster, uint64_t now_ns)
{
    cluster->end_ns = cluster->end_ns == 0 ? now_ns : cluster->end_ns;
}

void sl_cluster_tick(struct sl_cluster *cluster, const struct sl_coordinator_view *view,
                     uint64_t now_ns, uint64_t unix_s)
{
    const bool is_over = cluster->end_ns != 0;
    now_ns = is_over ? cluster->end_ns : now_ns; /* some reports come late */
    cluster->second = now_ns / SL_CLOCK_NS_PER_S;
    const uint64_t expected = cluster->second + cluster->unix_offset;
    if (!is_over && (unix_s > expected + 1 || unix_s + 1 < expected)) {
        cluster->unix_offset = unix_s - cluster->second;
    }
    cluster->totals = sl_history_unknown;
    for (uint32_t i = 0; i < cluster->table_count; i++) {
        struct sl_cluster_table *table = &cluster->tables[i];
        table->rows = table->memory = table->sampled_keys = table->waiting_keys = 0;
        table->pulled_s = table->pushed_s = table->evicted_s = 0;
    }
    tick_servers(cluster, view, now_ns);
    sl_cluster_sum_training(cluster, view, now_ns);
    sl_history_add(&cluster->job, cluster->second, &cluster->totals);
    for (uint32_t i = 0; i < cluster->table_count; i++) {
        struct sl_cluster_table *table = &cluster->tables[i];
        if (table->second == cluster->second) {
            struct sl_history_point point = sl_history_unknown;
            point.values[SL_HISTORY_KEYS] = (float)(table->pulled_s + table->pushed_s);
            point.values[SL_HISTORY_MEMORY] = (float)table->memory;
            sl_history_add(&table->track, cluster->second, &point);
        }
    }
}
