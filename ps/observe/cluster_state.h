/* State of a cluster, shared by the files of this room. */
#ifndef SL_PS_OBSERVE_CLUSTER_STATE_H
#define SL_PS_OBSERVE_CLUSTER_STATE_H

#include "net/session/report.h"
#include "ps/observe/cluster.h"
#include "ps/observe/history.h"

struct sl_cluster_member {
    struct sl_report report, earlier; /* the last two */
    bool has_earlier;                 /* of the same process: there are rates */
    uint64_t received_ns;
    uint64_t begin_ns; /* the base of the time that the training of a worker still takes, */
    float begin_epoch; /* with the epochs that it had done then */
    size_t bytes;
};

/* Of all workers that train. */
struct sl_cluster_training {
    bool is_known;
    struct sl_training figures; /* epoch: of the slowest worker; loss: the mean */
    double samples_s, eta_s;    /* NAN: not known */
};

/* Sums over all servers, as of the last tick. */
struct sl_cluster_table {
    char name[SL_TABLE_NAME_BYTES];
    uint64_t second; /* when a server last reported it */
    uint64_t rows, memory, sampled_keys, waiting_keys;
    double pulled_s, pushed_s, evicted_s;
    struct sl_history_track track;
};

struct sl_cluster_slow {
    struct sl_report_slow request;
    char table[SL_TABLE_NAME_BYTES];
    uint32_t server; /* task */
};

struct sl_cluster {
    struct sl_cluster_member *servers[SL_LIMIT_PS];      /* by task; NULL: no report */
    struct sl_cluster_member *workers[SL_LIMIT_WORKERS]; /* by task; NULL: no report */
    size_t bytes;                                        /* of all members */
    uint64_t end_ns;                                     /* of the job; 0: it runs */
    struct sl_cluster_slow slow[SL_CLUSTER_SLOW_MAX];    /* ring */
    uint64_t slow_count;
    uint64_t second, unix_offset; /* of the last tick; second + unix_offset: Unix time */
    struct sl_history history;
    struct sl_history_point totals; /* of the last tick */
    struct sl_cluster_training training;
    struct sl_history_track job, shards[SL_LIMIT_SHARDS];
    struct sl_cluster_table tables[SL_LIMIT_TABLES];
    uint32_t table_count;
};

/* The last report of a shard. */
struct sl_cluster_shard {
    const struct sl_report_shard *now; /* NULL: nothing fresh */
    const struct sl_report_shard *earlier;
    double seconds; /* between the two; 0: no rates */
};

/* Returns the member if its report is fresh, else NULL. */
const struct sl_cluster_member *sl_cluster_fresh(const struct sl_cluster_member *member,
                                                 uint64_t now_ns);

/* Returns the time between the member's two reports; 0: it has one only. */
double sl_cluster_seconds(const struct sl_cluster_member *member);

/* Returns the increase a second; NAN if seconds is 0. */
double sl_cluster_rate(uint64_t now, uint64_t earlier, double seconds);

/* Finds a shard in the report of the server that serves it. */
struct sl_cluster_shard sl_cluster_find_shard(const struct sl_cluster *cluster, uint32_t server,
                                              uint32_t shard, uint64_t now_ns);

/* Returns true unless the worker has never come, has left or has expired. */
bool sl_cluster_is_running(const struct sl_coordinator_view *view, uint32_t worker);

/* Sums up the training figures of the workers, for the totals and the training of this tick. */
void sl_cluster_sum_training(struct sl_cluster *cluster, const struct sl_coordinator_view *view,
                             uint64_t now_ns);

/* NAN: null. Three decimals at most; small numbers have as many significant digits. */
struct json_t *sl_cluster_describe_number(double value);

/* "training" and "trouble" of the job. */
struct json_t *sl_cluster_describe_training(const struct sl_cluster *cluster);
struct json_t *sl_cluster_describe_trouble(const struct sl_coordinator_view *view,
                                           bool is_store_away);

#endif
