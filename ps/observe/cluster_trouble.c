/* What an operator should look at: members that are away, shards without a backup. */
#include <jansson.h>

#include "ps/observe/cluster_state.h"

#define TROUBLE_MAX 16 /* further ones are counted */

struct trouble {
    json_t *list;
    uint32_t count;
};

static void add(struct trouble *trouble, json_t *text)
{
    if (trouble->count++ < TROUBLE_MAX) {
        (void)json_array_append_new(trouble->list, text);
    } else {
        json_decref(text);
    }
}

static void add_member(struct trouble *trouble, const char *role, uint32_t task,
                       enum sl_coordinator_view_state state)
{
    if (state == SL_COORDINATOR_VIEW_DISCONNECTED || state == SL_COORDINATOR_VIEW_EXPIRED) {
        add(trouble,
            json_sprintf("%s/%u is %s", role, task,
                         state == SL_COORDINATOR_VIEW_EXPIRED ? "expired" : "disconnected"));
    }
}

static const char *trouble_of_shard(const struct sl_coordinator_view *view, uint32_t shard)
{
    const struct sl_coordinator_view_shard *placed = &view->shards[shard];
    const bool moves = placed->moves_to != SL_COORDINATOR_NO_TASK;
    return view->servers[placed->primary].member.state != SL_COORDINATOR_VIEW_RUNNING ? "not served"
           : view->replicas == 0 || placed->in_sync || moves                          ? NULL
           : placed->backup != SL_COORDINATOR_NO_TASK ? "not in sync with the backup"
                                                      : "without a backup";
}

/* Adds the shards, neighbours with the same trouble together. */
static void add_shards(struct trouble *trouble, const struct sl_coordinator_view *view)
{
    for (uint32_t first = 0, end; first < view->shard_count; first = end) {
        const char *what = trouble_of_shard(view, first);
        for (end = first + 1; end < view->shard_count && trouble_of_shard(view, end) == what;
             end++) {
        }
        if (what != NULL) {
            add(trouble, end == first + 1
                             ? json_sprintf("shard %u is %s", first, what)
                             : json_sprintf("shards %u to %u are %s", first, end - 1, what));
        }
    }
}

json_t *sl_cluster_describe_trouble(const struct sl_coordinator_view *view, bool is_store_away)
{
    struct trouble trouble = {.list = json_array()};
    if (is_store_away) {
        add(&trouble, json_string("the cluster store is out of reach"));
    }
    for (uint32_t i = 0; i < view->missing.missing_count && view->stage < SL_COORDINATOR_ENDING;
         i++) {
        add(&trouble, json_sprintf("%s is missing", view->missing.missing[i]));
    }
    for (uint32_t task = 0; task < view->ps_count; task++) {
        if (view->servers[task].is_part) {
            add_member(&trouble, "ps", task, view->servers[task].member.state);
        }
    }
    if (view->stage == SL_COORDINATOR_RUNNING) {
        add_shards(&trouble, view);
    }
    for (uint32_t task = 0; task < view->worker_end; task++) {
        add_member(&trouble, "worker", task, view->workers[task].state);
    }
    if (trouble.count > TROUBLE_MAX) {
        (void)json_array_append_new(trouble.list,
                                    json_sprintf("%u more", trouble.count - TROUBLE_MAX));
    }
    return trouble.list;
}
