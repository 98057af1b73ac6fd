/* Slow requests, hot keys, history and targets of the job as JSON. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "ps/observe/cluster_state.h"

static json_t *describe_request(const struct sl_cluster_slow *slow)
{
    static const char *const ops[SL_REQUEST_KINDS] = {
        [SL_REQUEST_KIND_PULL] = "pull",           [SL_REQUEST_KIND_PUSH] = "push",
        [SL_REQUEST_KIND_PUSH_PULL] = "push_pull", [SL_REQUEST_KIND_ASSIGN] = "assign",
        [SL_REQUEST_KIND_ERASE] = "erase",         [SL_REQUEST_KIND_TICK] = "tick",
    };
    static const char *const phases[SL_REQUEST_PHASES] = {
        [SL_REQUEST_PHASE_ITERATION] = "iteration_us", [SL_REQUEST_PHASE_CLOCK] = "clock_us",
        [SL_REQUEST_PHASE_MEMORY] = "memory_us",       [SL_REQUEST_PHASE_BACKUP] = "backup_us",
        [SL_REQUEST_PHASE_WORK] = "work_us",           [SL_REQUEST_PHASE_SEND] = "send_us",
    };
    const struct sl_report_slow *request = &slow->request;
    json_t *times = json_object();
    for (int i = 0; i < SL_REQUEST_PHASES; i++) {
        (void)json_object_set_new(times, phases[i], json_integer(request->phases_us[i]));
    }
    return json_pack("{s:f, s:o, s:I, s:s, s:s, s:s, s:I, s:I, s:o}", "time",
                     (double)request->time_ms / 1000, "server", json_sprintf("ps/%u", slow->server),
                     "shard", (json_int_t)request->shard, "client", request->client, "table",
                     slow->table, "op", ops[request->op], "keys", (json_int_t)request->keys,
                     "total_us", (json_int_t)request->total_us, "phases", times);
}

/* Slow requests of one operation and table, most of whose time went into the same phase. */
struct group {
    const struct sl_cluster_slow *longest, *newest;
    int phase;
    uint32_t count;
    bool has_clients; /* several */
};

static int longest_phase(const struct sl_report_slow *request)
{
    int longest = 0;
    for (int i = 1; i < SL_REQUEST_PHASES; i++) {
        longest = request->phases_us[i] > request->phases_us[longest] ? i : longest;
    }
    return longest;
}

/* sorted: the newest first. Returns the number of groups, in the order of their newest requests. */
static uint32_t group_requests(const struct sl_cluster_slow *const *sorted, uint32_t count,
                               struct group groups[SL_CLUSTER_SLOW_MAX])
{
    uint32_t group_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_report_slow *request = &sorted[i]->request;
        const int phase = longest_phase(request);
        uint32_t at = 0;
        while (at < group_count &&
               (groups[at].phase != phase || groups[at].newest->request.op != request->op ||
                strcmp(groups[at].newest->table, sorted[i]->table) != 0)) {
            at++;
        }
        struct group *group = &groups[at];
        if (at == group_count) {
            groups[group_count++] = (struct group){sorted[i], sorted[i], phase, 0, false};
        }
        group->count++;
        group->has_clients |= strcmp(group->newest->request.client, request->client) != 0;
        if (request->total_us > group->longest->request.total_us) {
            group->longest = sorted[i];
        }
    }
    return group_count;
}

/* The longest request, with the time of the newest one. */
static json_t *describe_group(const struct group *group)
{
    json_t *json = describe_request(group->longest);
    (void)json_object_set_new(json, "count", json_integer(group->count));
    (void)json_object_set_new(json, "time",
                              json_real((double)group->newest->request.time_ms / 1000));
    if (group->has_clients) {
        (void)json_object_set_new(json, "client", json_string("several"));
    }
    return json;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t x = (*(const struct sl_cluster_slow *const *)a)->request.time_ms;
    const uint64_t y = (*(const struct sl_cluster_slow *const *)b)->request.time_ms;
    return x < y ? 1 : x > y ? -1 : 0;
}

json_t *sl_cluster_describe_slow(const struct sl_cluster *cluster)
{
    const struct sl_cluster_slow *sorted[SL_CLUSTER_SLOW_MAX];
    struct group groups[SL_CLUSTER_SLOW_MAX];
    json_t *list = json_array(), *grouped = json_array();
    uint32_t threshold_us = 0;
    uint32_t count = 0;
    for (; count < cluster->slow_count && count < SL_CLUSTER_SLOW_MAX; count++) {
        sorted[count] = &cluster->slow[count];
    }
    qsort(sorted, count, sizeof sorted[0], compare_times);
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, describe_request(sorted[i]));
    }
    const uint32_t group_count = group_requests(sorted, count, groups);
    for (uint32_t i = 0; i < group_count; i++) {
        (void)json_array_append_new(grouped, describe_group(&groups[i]));
    }
    for (uint32_t task = 0; task < SL_LIMIT_PS; task++) {
        const struct sl_cluster_member *member = cluster->servers[task];
        if (member != NULL && member->report.slow_threshold_us > threshold_us) {
            threshold_us = member->report.slow_threshold_us;
        }
    }
    return json_pack("{s:I, s:o, s:o}", "threshold_us", (json_int_t)threshold_us, "groups", grouped,
                     "requests", list);
}

/* Hot keys */

struct hot_key {
    const char *table;
    struct sl_report_hot_key key;
};

static int compare_counts(const void *a, const void *b)
{
    const uint64_t x = ((const struct hot_key *)a)->key.count;
    const uint64_t y = ((const struct hot_key *)b)->key.count;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Collects the hot keys of all fresh reports, the hottest first; the caller frees them. NULL: no
 * memory. */
static struct hot_key *collect_hot(const struct sl_cluster *cluster, uint64_t now_ns,
                                   uint32_t *out_count)
{
    struct hot_key *all = malloc((size_t)SL_LIMIT_PS * SL_REPORT_HOT_KEYS_MAX * sizeof *all);
    uint32_t count = 0;
    for (uint32_t task = 0; all != NULL && task < SL_LIMIT_PS; task++) {
        const struct sl_cluster_member *member = sl_cluster_fresh(cluster->servers[task], now_ns);
        for (uint32_t i = 0; member != NULL && i < member->report.hot_count; i++) {
            const struct sl_report_hot_key *key = &member->report.hot[i];
            all[count++] = (struct hot_key){member->report.tables[key->table].name, *key};
        }
    }
    if (all != NULL) {
        qsort(all, count, sizeof *all, compare_counts);
        *out_count = count;
    }
    return all;
}

/* Not of a flat distribution: also in a small table a hot key has twice its even share. */
static bool is_hot(const struct sl_report_hot_key *key, const struct sl_cluster_table *table)
{
    const double share = (double)key->count / (double)table->sampled_keys;
    return key->count <= table->sampled_keys && share >= SL_CLUSTER_HOT_SHARE &&
           (table->rows == 0 || share * (double)table->rows >= 2); /* 0: pulls create no rows */
}

static json_t *describe_hot_table(const struct sl_cluster_table *table, const struct hot_key *all,
                                  uint32_t count)
{
    json_t *keys = json_array();
    for (uint32_t i = 0; i < count && json_array_size(keys) < SL_CLUSTER_HOT_MAX; i++) {
        const struct sl_report_hot_key *key = &all[i].key;
        if (strcmp(all[i].table, table->name) == 0 && is_hot(key, table)) {
            (void)json_array_append_new(
                keys, json_pack("{s:o, s:f, s:I}", "key", json_sprintf("%" PRIu64, key->key),
                                "share", (double)key->count / (double)table->sampled_keys, "shard",
                                (json_int_t)key->shard));
        }
    }
    return json_pack("{s:s, s:I, s:o}", "table", table->name, "sampled",
                     (json_int_t)table->sampled_keys, "keys", keys);
}

json_t *sl_cluster_describe_hot(const struct sl_cluster *cluster, uint64_t now_ns)
{
    uint32_t count = 0;
    struct hot_key *all = collect_hot(cluster, now_ns, &count);
    json_t *list = all == NULL ? NULL : json_array();
    for (uint32_t i = 0; all != NULL && i < cluster->table_count; i++) {
        const struct sl_cluster_table *table = &cluster->tables[i];
        if (table->second == cluster->second && table->sampled_keys > 0) {
            (void)json_array_append_new(list, describe_hot_table(table, all, count));
        }
    }
    free(all);
    return list == NULL ? NULL : json_pack("{s:o}", "tables", list);
}

/* Targets of Prometheus */

static void add_target(json_t *list, const struct sl_cluster_member *member, const char *role,
                       uint32_t task)
{
    if (member != NULL && member->report.http[0] != '\0') {
        (void)json_array_append_new(list, json_pack("{s:[s], s:{s:s, s:o}}", "targets",
                                                    member->report.http, "labels", "role", role,
                                                    "task", json_sprintf("%u", task)));
    }
}

json_t *sl_cluster_describe_targets(const struct sl_cluster *cluster, uint64_t now_ns)
{
    json_t *list = json_array();
    for (uint32_t task = 0; task < SL_LIMIT_PS; task++) {
        add_target(list, sl_cluster_fresh(cluster->servers[task], now_ns), "ps", task);
    }
    for (uint32_t task = 0; task < SL_LIMIT_WORKERS; task++) {
        add_target(list, sl_cluster_fresh(cluster->workers[task], now_ns), "worker", task);
    }
    return list;
}

/* History */

static const struct sl_history_track *find_track(const struct sl_cluster *cluster, const char *of)
{
    if (strcmp(of, "job") == 0) {
        return &cluster->job;
    }
    if (strncmp(of, "shard:", 6) == 0) {
        char *end = NULL;
        const unsigned long shard = strtoul(of + 6, &end, 10);
        return of[6] >= '0' && of[6] <= '9' && *end == '\0' && shard < SL_LIMIT_SHARDS
                   ? &cluster->shards[shard]
                   : NULL;
    }
    for (uint32_t i = 0; strncmp(of, "table:", 6) == 0 && i < cluster->table_count; i++) {
        if (strcmp(cluster->tables[i].name, of + 6) == 0) {
            return &cluster->tables[i].track;
        }
    }
    return NULL;
}

int sl_cluster_describe_history(const struct sl_cluster *cluster, const char *of, uint64_t since,
                                json_t **out)
{
    const struct sl_history_track *track = find_track(cluster, of);
    if (track == NULL || track->points == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    *out = sl_history_describe(track, since, cluster->unix_offset);
    return *out == NULL ? SL_ERR_NO_MEMORY : 0;
}
