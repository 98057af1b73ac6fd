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

/* The shards of a server, from `first` on. */
static void add_shards(struct trouble *trouble, const struct sl_coordinator_view *view,
                       uint32_t task, uint32_t first)
{
    const struct sl_coordinator_view_group *group = &view->servers[task].group;
    const uint32_t count = view->servers[task].shard_count;
    const bool is_served =
        view->servers[sl_cluster_primary(view, task)].member.state == SL_COORDINATOR_VIEW_RUNNING;
    const bool has_backup = group->backup != SL_COORDINATOR_NO_BACKUP;
    const char *what = !is_served                            ? "not served"
                       : group->epoch == 0 || group->in_sync ? NULL
                       : has_backup                          ? "not in sync with the backup"
                                                             : "without a backup";
    if (count > 0 && what != NULL) {
        add(trouble, count == 1
                         ? json_sprintf("shard %u is %s", first, what)
                         : json_sprintf("shards %u to %u are %s", first, first + count - 1, what));
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
        add_member(&trouble, "ps", task, view->servers[task].member.state);
    }
    uint32_t shard = 0;
    for (uint32_t task = 0; task < view->ps_count && view->stage == SL_COORDINATOR_RUNNING;
         task++) {
        add_shards(&trouble, view, task, shard);
        shard += view->servers[task].shard_count;
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
