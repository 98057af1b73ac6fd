#include "ps/observe/cluster_state.h"

#include <jansson.h>
#include <math.h>

const struct sl_cluster_member *sl_cluster_fresh(const struct sl_cluster_member *member,
                                                 uint64_t now_ns)
{
    return member != NULL && now_ns <= member->received_ns + SL_CLUSTER_FRESH_NS ? member : NULL;
}

double sl_cluster_seconds(const struct sl_cluster_member *member)
{
    return member->has_earlier
               ? (double)(member->report.uptime_ms - member->earlier.uptime_ms) / 1000
               : 0;
}

double sl_cluster_rate(uint64_t now, uint64_t earlier, double seconds)
{
    return seconds == 0 ? (double)NAN : now < earlier ? 0 : (double)(now - earlier) / seconds;
}

static const struct sl_report_shard *find_shard(const struct sl_report *report, uint32_t shard)
{
    for (uint32_t i = 0; i < report->shard_count; i++) {
        if (report->shards[i].shard == shard && !report->shards[i].is_backup) {
            return &report->shards[i];
        }
    }
    return NULL;
}

struct sl_cluster_shard sl_cluster_find_shard(const struct sl_cluster *cluster, uint32_t server,
                                              uint32_t shard, uint64_t now_ns)
{
    const struct sl_cluster_member *member = sl_cluster_fresh(cluster->servers[server], now_ns);
    struct sl_cluster_shard found = {0};
    if (member != NULL) {
        found.now = find_shard(&member->report, shard);
        found.earlier = find_shard(&member->earlier, shard);
        found.seconds = found.earlier == NULL ? 0 : sl_cluster_seconds(member);
        found.earlier = found.earlier == NULL ? found.now : found.earlier;
    }
    return found;
}

bool sl_cluster_is_running(const struct sl_coordinator_view *view, uint32_t worker)
{
    return view->workers[worker].state == SL_COORDINATOR_VIEW_RUNNING ||
           view->workers[worker].state == SL_COORDINATOR_VIEW_DISCONNECTED;
}

json_t *sl_cluster_describe_number(double value)
{
    const double size = fabs(value);
    if (!isfinite(value) || size >= 9e18) {
        return json_null();
    }
    if (size >= 1000) {
        return json_integer((json_int_t)llround(value));
    }
    const double scale = size >= 0.1 || size == 0 ? 1000 : pow(10, 2 - floor(log10(size)));
    return json_real(round(value * scale) / scale);
}
