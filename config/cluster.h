/* The cluster and this process's place in it. Sources, the first that says anything wins for each
 * item; two that contradict each other in what both say are an error that names both:
 *   1. flags: --ps-hosts, --worker-hosts, --job-name, --task-index, --endpoint-map
 *   2. TF_CONFIG: {"cluster": {"ps": [...], "worker": [...], "chief": [...]},
 *                  "task": {"type": "ps", "index": 0}}; chief is worker 0, its workers follow
 *   3. the endpoint map (--endpoint-map FILE, else ./.endpoint_map when it exists), which adds the
 *      data endpoint of each ps; when nothing else names the ps hosts, its control endpoints, in
 * the order of the lines, are the ps hosts. Without a map the control endpoint serves both. Before
 * start. */
#ifndef SL_CONFIG_CLUSTER_H
#define SL_CONFIG_CLUSTER_H

#include <stdbool.h>

#include "core/endpoint.h"
#include "core/err.h"

enum sl_cluster_role { SL_CLUSTER_PS, SL_CLUSTER_WORKER };

struct sl_cluster_ps {
    struct sl_endpoint control;
    struct sl_endpoint data; /* equal to control where no map says otherwise */
};

struct sl_cluster {
    enum sl_cluster_role role;
    uint32_t task_index;
    struct sl_cluster_ps *ps;
    uint32_t ps_count;
    uint32_t worker_count; /* 0: nothing says it */
};

/* What the flags said; NULL (task_index: -1) where they said nothing. */
struct sl_cluster_flags {
    const char *ps_hosts;     /* "host:port,host:port" */
    const char *worker_hosts; /* likewise; only their number counts, ports are optional */
    const char *job_name;     /* "ps", "worker" or "chief" */
    const char *endpoint_map;
    int64_t task_index;
    bool joins; /* a worker whose task index may be beyond the workers that are said */
};

/* The task index counts from 0 within the role, a chief being worker 0; where nothing says it, and
 * at most one task of the role is known, it is 0. Control endpoints are tcp with a port other than
 * 0. role: of the program; a --job-name or TF_CONFIG that says otherwise is an error. tf_config:
 * the variable's value or NULL; "" says nothing. On error, reason names the source, what it says
 * and what is accepted. Errors: INVALID, NOT_FOUND (the endpoint map), IO, TOO_LARGE, NO_MEMORY. */
int sl_cluster_resolve(enum sl_cluster_role role, const struct sl_cluster_flags *flags,
                       const char *tf_config, struct sl_cluster *out, char *reason,
                       size_t reason_bytes);
void sl_cluster_fini(struct sl_cluster *cluster);

#endif
