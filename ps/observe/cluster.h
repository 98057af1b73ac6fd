/* Cluster keeps the last reports of all members at the coordinator, with a history, and describes
 * the job as JSON for operators. A server or worker whose report is older than
 * SL_CLUSTER_FRESH_NS counts as unknown, and a restarted one begins anew. Kept reports
 * take at most SL_CLUSTER_BYTES_MAX, beside the history. Owner: the observer's thread. */
#ifndef SL_PS_OBSERVE_CLUSTER_H
#define SL_PS_OBSERVE_CLUSTER_H

#include "core/clock.h"
#include "net/session/report.h"
#include "ps/coordinator/view.h"
#include "ps/observe/cluster_inbox.h"

#define SL_CLUSTER_FRESH_NS  (5 * SL_CLOCK_NS_PER_S)
#define SL_CLUSTER_BYTES_MAX ((size_t)64 << 20)
#define SL_CLUSTER_SLOW_MAX  128  /* the newest slow requests */
#define SL_CLUSTER_HOT_MAX   16   /* hot keys of a table */
#define SL_CLUSTER_HOT_SHARE 0.01 /* least share of a hot key in the requests for its table */

struct sl_cluster;
struct json_t; /* of jansson */

/* Errors: NO_MEMORY. */
int sl_cluster_create(struct sl_cluster **out);
void sl_cluster_destroy(struct sl_cluster **cluster);

/* Takes a report. Reports of members that are neither server nor worker are ignored. Errors, with
 * the report dropped: PROTOCOL (net/session/report.h), TOO_LARGE (SL_CLUSTER_BYTES_MAX),
 * NO_MEMORY. */
int sl_cluster_take(struct sl_cluster *cluster, const struct sl_cluster_sender *sender,
                    const uint8_t *bytes, uint32_t byte_count, uint64_t now_ns);

/* Adds a point to the history. Call once a second, after the reports were taken. unix_s: the time
 * of day. */
void sl_cluster_tick(struct sl_cluster *cluster, const struct sl_coordinator_view *view,
                     uint64_t now_ns, uint64_t unix_s);

/* The job has ended: its state and its history stay as they are now. */
void sl_cluster_end(struct sl_cluster *cluster, uint64_t now_ns);

/* Facts of the job that the coordinator's process knows and the coordinator's view lacks. */
struct sl_cluster_host {
    const char *coordinator; /* the name of this process */
    const char *title;       /* of the job; "": none */
    bool is_store_away;      /* the cluster store does not answer */
    uint64_t view_age_ns;
    double unix_s; /* the time of day */
};

/* JSON of docs/observe.md, which the caller owns; NULL: no memory. */
struct json_t *sl_cluster_describe(const struct sl_cluster *cluster,
                                   const struct sl_coordinator_view *view,
                                   const struct sl_cluster_host *host, uint64_t now_ns);
struct json_t *sl_cluster_describe_slow(const struct sl_cluster *cluster);
struct json_t *sl_cluster_describe_hot(const struct sl_cluster *cluster, uint64_t now_ns);

/* For Prometheus: the HTTP servers of all members with fresh reports. */
struct json_t *sl_cluster_describe_targets(const struct sl_cluster *cluster, uint64_t now_ns);

/* of: "job", "shard:N" or "table:NAME". Errors: NOT_FOUND (it has no history), NO_MEMORY. */
int sl_cluster_describe_history(const struct sl_cluster *cluster, const char *of, uint64_t since,
                                struct json_t **out);

#endif
