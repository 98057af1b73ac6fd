/* The cluster and this process's task in it. Sources that give the same item must agree; else
 * the error names both. Sources:
 *
 *   1. Flags: --ps-hosts, --num-workers, --worker-hosts, --job-name, --task-index, --endpoint-map.
 *   2. TF_CONFIG: {"cluster": {"ps": [...], "worker": [...], "chief": [...]},
 *                  "task": {"type": "ps", "index": 0}}; the chief is worker 0, workers follow.
 *   3. ps-lite's variables (config/dmlc.h), if in use. A scheduler hosts the coordinator, servers
 *      have no control endpoints, and a list of ps hosts is a contradiction. Its "server" is a ps.
 *   4. The endpoint map (--endpoint-map FILE, else ./.endpoint_map if it exists) adds the data
 *      endpoints of each ps. If no other source names the ps hosts, its control endpoints do, in
 *      order. Without a map the control endpoint serves both purposes.
 *   5. A server without any of these serves 127.0.0.1:3333 alone, for any number of workers.
 *
 * Before start. */
#ifndef SL_CONFIG_CLUSTER_H
#define SL_CONFIG_CLUSTER_H

#include <stdbool.h>

#include "core/endpoint.h"
#include "core/reason.h"

struct sl_dmlc;

enum sl_cluster_role { SL_CLUSTER_PS, SL_CLUSTER_WORKER, SL_CLUSTER_SCHEDULER };

struct sl_cluster_ps {
    struct sl_endpoint control;
    struct sl_endpoint data;   /* equal to control without a map */
    struct sl_endpoint bypass; /* over rdma or dpdk; data is then tcp */
    bool has_bypass;
};

enum sl_cluster_task {
    SL_CLUSTER_TASK_GIVEN, /* task_index */
    SL_CLUSTER_TASK_ANY,   /* chosen by the coordinator; task_index is 0 */
    SL_CLUSTER_TASK_NONE   /* an evaluator: a client without a clock; task_index is 0 */
};

struct sl_cluster {
    enum sl_cluster_role role;
    bool has_scheduler; /* The coordinator is not on ps 0, and the ps hosts are unknown. */
    struct sl_endpoint coordinator; /* its control endpoint */
    uint32_t task_index;            /* 0 for a scheduler */
    enum sl_cluster_task task;
    struct sl_cluster_ps *ps; /* [ps_count]; NULL with a scheduler */
    uint32_t ps_count;
    bool is_default;                 /* no source names a server: this one is alone, on loopback */
    const char *map_path;            /* the endpoint map that was read; NULL: none */
    uint32_t worker_count;           /* 0: unknown */
    const char *worker_count_source; /* "--worker-hosts", ...: the first source; or NULL */
};

/* Values of the flags; NULL (task_index: -1): not given. */
struct sl_cluster_flags {
    const char *ps_hosts;     /* "host:port,host:port" */
    const char *worker_hosts; /* HOST[:PORT],...: only the count is used */
    uint32_t worker_count;    /* --num-workers; 0: not given */
    const char *job_name;     /* "ps", "worker", "chief" or, with a scheduler, "scheduler" */
    const char *endpoint_map;
    int64_t task_index;
    bool joins; /* a running job, whose count of such processes the index may exceed */

    /* Of clients (config/client_options.h). */
    bool takes_first;         /* of several sources of an item, the first counts; none need agree */
    const char *coordinator;  /* "host:port,...", the first of the sources; or NULL */
    int64_t rank, slurm_task; /* RANK, SLURM_PROCID; -1: unset */
    uint32_t world_size, slurm_tasks; /* WORLD_SIZE, SLURM_NTASKS; without them, no rank counts */
};

/* Resolves the cluster. The task index counts from 0 within the role; a chief is worker 0. If no
 * source has it, the coordinator chooses it; without a scheduler it is 0 if at most one task of the
 * role is known. Control endpoints are tcp with a port other than 0. role: of the program, PS or
 * WORKER; another role in a source is an error, except SCHEDULER instead of PS. tf_config: the
 * variable's value; NULL or "": none. dmlc: NULL: none. reason: the source, its value, what is
 * accepted. Errors: INVALID, NOT_FOUND (the endpoint map), IO, TOO_LARGE, NO_MEMORY. */
int sl_cluster_resolve(enum sl_cluster_role role, const struct sl_cluster_flags *flags,
                       const char *tf_config, const struct sl_dmlc *dmlc, struct sl_cluster *out,
                       struct sl_reason *reason);

/* Returns the candidate coordinator endpoints for struct sl_client_options: the coordinator's; with
 * has_store and no scheduler those of all ps, comma-separated. The caller frees it. NULL: no
 * memory. */
char *sl_cluster_places(const struct sl_cluster *cluster, bool has_store);

void sl_cluster_fini(struct sl_cluster *cluster);

#endif
