/* The cluster and this process's place in it. Sources, the first that says anything wins for each
 * item; two that contradict each other in what both say are an error that names both:
 *   1. flags: --ps-hosts, --worker-hosts, --job-name, --task-index, --endpoint-map
 *   2. TF_CONFIG: {"cluster": {"ps": [...], "worker": [...], "chief": [...]},
 *                  "task": {"type": "ps", "index": 0}}; chief is worker 0, its workers follow
 *   3. ps-lite's variables (config/dmlc.h), where they are in use: the coordinator is in a
 *      scheduler of its own, and the ps have no control endpoints, so that whatever names ps hosts
 *      contradicts them; its "server" is a ps
 *   4. the endpoint map (--endpoint-map FILE, else ./.endpoint_map when it exists), which adds the
 *      data endpoints of each ps; when nothing else names the ps hosts, its control endpoints, in
 *      the order of the lines, are the ps hosts. Without a map the control endpoint serves both.
 * Before start. */
#ifndef SL_CONFIG_CLUSTER_H
#define SL_CONFIG_CLUSTER_H

#include <stdbool.h>

#include "core/endpoint.h"
#include "core/err.h"

struct sl_dmlc;

enum sl_cluster_role { SL_CLUSTER_PS, SL_CLUSTER_WORKER, SL_CLUSTER_SCHEDULER };

struct sl_cluster_ps {
    struct sl_endpoint control;
    struct sl_endpoint data;   /* equal to control where no map says otherwise */
    struct sl_endpoint bypass; /* of rdma or dpdk, beside data, which is tcp then */
    bool has_bypass;
};

struct sl_cluster {
    enum sl_cluster_role role;
    bool has_scheduler;             /* then the coordinator is not on ps 0, and nobody has said
                                     * where the ps are */
    struct sl_endpoint coordinator; /* its control endpoint */
    uint32_t task_index;            /* a scheduler's: 0 */
    bool any_task;                  /* the coordinator chooses it; task_index is 0 */
    struct sl_cluster_ps *ps;       /* [server_count]; NULL with a scheduler */
    uint32_t ps_count;
    uint32_t worker_count;           /* 0: nothing says it */
    const char *worker_count_source; /* "--worker-hosts", ...: the first that says it; or NULL */
};

/* What the flags said; NULL (task_index: -1) where they said nothing. */
struct sl_cluster_flags {
    const char *ps_hosts;     /* "host:port,host:port" */
    const char *worker_hosts; /* likewise; only their number counts, ports are optional */
    const char *job_name;     /* "ps", "worker", "chief" or, with a scheduler, "scheduler" */
    const char *endpoint_map;
    int64_t task_index;
    bool joins; /* a worker whose task index may be beyond the workers that are said */
};

/* The task index counts from 0 within the role, a chief being worker 0; where nothing says it, it
 * is chosen by a scheduler, and without one it is 0 when at most one task of the role is known.
 * Control endpoints are tcp with a port other than 0. role: of the program, PS or WORKER; another
 * source that says otherwise is an error, but for SCHEDULER in the place of PS. tf_config: the
 * variable's value or NULL; "" says nothing. dmlc: NULL says nothing. On error, reason names the
 * source, what it says and what is accepted. Errors: INVALID, NOT_FOUND (the endpoint map), IO,
 * TOO_LARGE, NO_MEMORY. */
int sl_cluster_resolve(enum sl_cluster_role role, const struct sl_cluster_flags *flags,
                       const char *tf_config, const struct sl_dmlc *dmlc, struct sl_cluster *out,
                       char *reason, size_t reason_bytes);

/* Where the coordinator may be, for struct sl_client_options: its endpoint; with a cluster store
 * (has_metastore), and no scheduler, those of all ps, with commas between. The caller's to free;
 * NULL: no memory. */
char *sl_cluster_places(const struct sl_cluster *cluster, bool has_store);

void sl_cluster_fini(struct sl_cluster *cluster);

#endif
