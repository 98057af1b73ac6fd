#include "ps/process/describe.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "observe/cluster/cluster.h"

/* Slow requests */

struct slow {
    const struct sl_server_slow_request *request;
    uint32_t shard;
};

static int compare_ends(const void *a, const void *b)
{
    const uint64_t x = ((const struct slow *)a)->request->ended_ns;
    const uint64_t y = ((const struct slow *)b)->request->ended_ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

struct sl_report_slow sl_process_describe_as_report(const struct sl_server_slow_request *request,
                                                    uint32_t shard, uint64_t now_ns,
                                                    uint64_t unix_ms)
{
    /* The reactor may have ended it after now_ns was read. */
    const uint64_t ago_ns = now_ns > request->ended_ns ? now_ns - request->ended_ns : 0;
    struct sl_report_slow slow = {
        .time_ms = unix_ms - ago_ns / SL_CLOCK_NS_PER_MS,
        .client = "client",
        .shard = shard,
        .op = sl_request_kind_of(request->section.op),
        .keys = (uint32_t)request->section.key_count,
        .total_us = (uint32_t)(request->total_ns / SL_CLOCK_NS_PER_US),
    };
    if (request->client.has_clock) {
        (void)snprintf(slow.client, sizeof slow.client, "worker/%u", request->client.worker);
    }
    for (uint32_t i = 0; i < SL_REQUEST_PHASES; i++) {
        slow.phases_us[i] = (uint32_t)(request->ns[i] / SL_CLOCK_NS_PER_US);
    }
    return slow;
}

static uint32_t collect_slow(const struct sl_server_view *view, struct slow *out)
{
    uint32_t count = 0;
    for (; count < view->slow_count && count < SL_SERVER_SLOW_REQUESTS; count++) {
        const uint64_t at = (view->slow_count - 1 - count) % SL_SERVER_SLOW_REQUESTS;
        out[count] = (struct slow){.request = &view->slow[at], .shard = view->shard_index};
    }
    return count;
}

json_t *sl_process_describe_slow(const struct sl_server_view *const *views, uint32_t view_count,
                                 const char *server, uint64_t threshold_ns, uint64_t now_ns,
                                 uint64_t unix_ms)
{
    struct slow *all = malloc((view_count + 1) * SL_SERVER_SLOW_REQUESTS * sizeof *all);
    if (all == NULL) {
        return NULL;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < view_count; i++) {
        count += collect_slow(views[i], all + count);
    }
    qsort(all, count, sizeof *all, compare_ends);
    json_t *list = json_array();
    for (uint32_t i = 0; i < count && i < SL_PROCESS_SLOW_MAX; i++) {
        const struct sl_report_slow slow =
            sl_process_describe_as_report(all[i].request, all[i].shard, now_ns, unix_ms);
        (void)json_array_append_new(
            list, sl_cluster_describe_request(&slow, server, all[i].request->table));
    }
    free(all);
    return json_pack("{s:I, s:o}", "threshold_us", (json_int_t)(threshold_ns / SL_CLOCK_NS_PER_US),
                     "requests", list);
}

/* Hot keys */

struct hot_key {
    const struct sl_hot_key *key;
    uint32_t shard;
};

static int compare_counts(const void *a, const void *b)
{
    const struct sl_hot_key *x = ((const struct hot_key *)a)->key;
    const struct sl_hot_key *y = ((const struct hot_key *)b)->key;
    const uint32_t more = x->count - x->error, less = y->count - y->error;
    return more < less ? 1 : more > less ? -1 : 0;
}

/* Describes the table of that id; NULL: no key of it was sampled. keys: room for those of all
 * views. */
static json_t *describe_table(const struct sl_server_view *const *views, uint32_t view_count,
                              uint32_t *next, uint32_t id, struct hot_key *keys)
{
    uint64_t sampled = 0;
    uint32_t count = 0;
    const char *name = NULL;
    for (uint32_t i = 0; i < view_count; i++) {
        const struct sl_shard_view *shard = &views[i]->shard;
        const struct sl_shard_table_view *table = &shard->tables[next[i]];
        if (next[i] == shard->table_count || table->id != id) {
            continue;
        }
        next[i]++;
        name = table->stats.name;
        sampled += table->hot.sampled;
        for (uint32_t k = 0; k < table->hot.count; k++) {
            keys[count++] = (struct hot_key){&table->hot.keys[k], views[i]->shard_index};
        }
    }
    if (sampled == 0) {
        return NULL;
    }
    qsort(keys, count, sizeof *keys, compare_counts);
    json_t *list = json_array();
    for (uint32_t i = 0; i < count && i < SL_PROCESS_HOT_MAX; i++) {
        const struct sl_hot_key *key = keys[i].key;
        (void)json_array_append_new(
            list,
            json_pack("{s:o, s:f, s:f, s:I}", "key", json_sprintf("%" PRIu64, key->key), "share",
                      (double)(key->count - key->error) / (double)sampled, "error",
                      (double)key->error / (double)sampled, "shard", (json_int_t)keys[i].shard));
    }
    return json_pack("{s:s, s:I, s:o}", "table", name, "sampled", (json_int_t)sampled, "keys",
                     list);
}

json_t *sl_process_describe_hot(const struct sl_server_view *const *views, uint32_t view_count)
{
    struct hot_key *keys = calloc((view_count + 1) * SL_HOT_KEYS_SHOWN, sizeof *keys);
    uint32_t *next = calloc(view_count + 1, sizeof *next); /* of each view: by ascending id */
    json_t *list = keys == NULL || next == NULL ? NULL : json_array();
    for (uint32_t id = 0; list != NULL && id < SL_LIMIT_TABLES; id++) {
        json_t *table = describe_table(views, view_count, next, id, keys);
        if (table != NULL) {
            (void)json_array_append_new(list, table);
        }
    }
    free(keys);
    free(next);
    return list == NULL ? NULL : json_pack("{s:o}", "tables", list);
}
