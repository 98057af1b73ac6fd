#include "config/cluster.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/endpoint_map.h"
#include "config/hosts.h"
#include "config/tf_config.h"
#include "core/assert.h"
#include "core/limits.h"

#define MAP_DEFAULT ".endpoint_map"

static const char *const role_names[] = {
    [SL_CLUSTER_PS] = "ps",
    [SL_CLUSTER_WORKER] = "worker",
};

/* What the sources say, gathered before it is weighed. */
struct sources {
    const struct sl_cluster_flags *flags;
    struct sl_hosts flag_ps;
    uint32_t flag_workers; /* 0: not said */
    int64_t flag_index;    /* in Starling's numbering; -1: not said */
    bool has_tf;
    struct sl_tf_config tf;
    struct sl_endpoint_map map; /* empty where there is none */
    const char *map_path;
    char *reason;
    size_t reason_bytes;
};

static int refuse(const struct sources *sources, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int refuse(const struct sources *sources, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sources->reason, sources->reason_bytes, format, arguments);
    va_end(arguments);
    return SL_ERR_INVALID;
}

/* --job-name says what the program knows already; a chief is worker 0. */
static int read_job_name(struct sources *sources, enum sl_cluster_role role)
{
    const char *job = sources->flags->job_name;
    if (job == NULL) {
        return 0;
    }
    const bool chief = strcmp(job, "chief") == 0;
    if (!chief && strcmp(job, "worker") != 0 && strcmp(job, "ps") != 0) {
        return refuse(sources, "--job-name=%.80s: accepts ps, worker or chief", job);
    }
    if ((strcmp(job, "ps") == 0) != (role == SL_CLUSTER_PS)) {
        return refuse(sources,
                      "--job-name=%s: this program is starling-%s, which accepts %s; a %s is "
                      "started with starling-%s",
                      job, role_names[role], role == SL_CLUSTER_PS ? "ps" : "worker or chief", job,
                      role == SL_CLUSTER_PS ? "worker" : "ps");
    }
    if (chief && sources->flag_index > 0) {
        return refuse(sources,
                      "--task-index=%lld contradicts --job-name=chief: there is one chief, index 0",
                      (long long)sources->flag_index);
    }
    if (chief) {
        sources->flag_index = 0;
    }
    return 0;
}

static int read_flags(struct sources *sources, enum sl_cluster_role role)
{
    const struct sl_cluster_flags *flags = sources->flags;
    int err = 0;
    if (flags->task_index < -1) {
        return refuse(sources, "--task-index=%lld: accepts an index from 0",
                      (long long)flags->task_index);
    }
    sources->flag_index = flags->task_index;
    if (flags->ps_hosts != NULL) {
        err = sl_hosts_append_list(&sources->flag_ps, flags->ps_hosts, "--ps-hosts",
                                   sources->reason, sources->reason_bytes);
    }
    if (err == 0 && flags->worker_hosts != NULL) {
        err = sl_hosts_count_workers(flags->worker_hosts, "--worker-hosts", &sources->flag_workers,
                                     sources->reason, sources->reason_bytes);
    }
    return err != 0 ? err : read_job_name(sources, role);
}

static int read_tf_config(struct sources *sources, enum sl_cluster_role role, const char *text)
{
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    int err = sl_tf_config_parse(text, &sources->tf, sources->reason, sources->reason_bytes);
    if (err != 0) {
        return err;
    }
    sources->has_tf = true;
    if (sources->tf.has_task && sources->tf.role != role) {
        return refuse(sources,
                      "TF_CONFIG: \"task\".\"type\" is of a %s, but this program is starling-%s; "
                      "start starling-%s, or correct TF_CONFIG",
                      role_names[sources->tf.role], role_names[role], role_names[sources->tf.role]);
    }
    return 0;
}

static int read_map(struct sources *sources)
{
    sources->map_path = sources->flags->endpoint_map;
    if (sources->map_path == NULL) {
        if (access(MAP_DEFAULT, F_OK) != 0) {
            return 0;
        }
        sources->map_path = MAP_DEFAULT;
    }
    return sl_endpoint_map_read(sources->map_path, &sources->map, sources->reason,
                                sources->reason_bytes);
}

/* Flags and TF_CONFIG must agree on every item that both name. */
static int compare_ps(const struct sources *sources)
{
    const struct sl_hosts *flag = &sources->flag_ps;
    const struct sl_hosts *tf = &sources->tf.ps;
    if (flag->count == 0 || tf->count == 0) {
        return 0;
    }
    if (flag->count != tf->count) {
        return refuse(sources, "--ps-hosts names %u ps, but TF_CONFIG names %u; they must agree",
                      flag->count, tf->count);
    }
    for (uint32_t i = 0; i < flag->count; i++) {
        if (!sl_hosts_same(&flag->items[i], &tf->items[i])) {
            char one[SL_LIMIT_ENDPOINT_BYTES], other[SL_LIMIT_ENDPOINT_BYTES];
            sl_endpoint_format(&flag->items[i], one, sizeof one);
            sl_endpoint_format(&tf->items[i], other, sizeof other);
            return refuse(sources,
                          "ps %u is %s by --ps-hosts, but %s by TF_CONFIG; they must agree", i, one,
                          other);
        }
    }
    return 0;
}

static int compare(const struct sources *sources)
{
    int err = compare_ps(sources);
    if (err != 0) {
        return err;
    }
    const struct sl_tf_config *tf = &sources->tf;
    if (sources->flag_workers != 0 && tf->worker_count != 0 &&
        sources->flag_workers != tf->worker_count) {
        return refuse(sources,
                      "--worker-hosts names %u workers, but TF_CONFIG names %u (a chief is one); "
                      "they must agree",
                      sources->flag_workers, tf->worker_count);
    }
    if (sources->flag_index >= 0 && tf->has_task && sources->flag_index != tf->task_index) {
        return refuse(sources,
                      "--task-index is %lld, but TF_CONFIG's \"task\" is %s %u (a chief is worker "
                      "0); they must agree",
                      (long long)sources->flag_index, role_names[tf->role], tf->task_index);
    }
    return 0;
}

/* The source of the ps hosts: flags, else TF_CONFIG, else the map's control endpoints. */
static int choose_ps(const struct sources *sources, struct sl_cluster *cluster)
{
    const struct sl_hosts *hosts =
        sources->flag_ps.count != 0 ? &sources->flag_ps : &sources->tf.ps;
    const bool from_map = hosts->count == 0;
    cluster->ps_count = from_map ? sources->map.count : hosts->count;
    if (cluster->ps_count == 0) {
        return refuse(sources,
                      "no ps hosts: give --ps-hosts host:port,host:port, or TF_CONFIG, or an "
                      "endpoint map (--endpoint-map FILE, else ./" MAP_DEFAULT ")%s%s%s",
                      sources->map_path != NULL ? "; " : "",
                      sources->map_path != NULL ? sources->map_path : "",
                      sources->map_path != NULL ? " has no lines" : "");
    }
    cluster->ps = calloc(cluster->ps_count, sizeof *cluster->ps);
    if (cluster->ps == NULL) {
        refuse(sources, "out of memory for %u ps", cluster->ps_count);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        struct sl_cluster_ps *ps = &cluster->ps[i];
        ps->control = from_map ? sources->map.entries[i].control : hosts->items[i];
        const struct sl_endpoint *data = sl_endpoint_map_find(&sources->map, &ps->control);
        ps->data = data != NULL ? *data : ps->control;
    }
    return 0;
}

static int choose_task(const struct sources *sources, struct sl_cluster *cluster)
{
    const struct sl_tf_config *tf = &sources->tf;
    const char *role = role_names[cluster->role];
    const bool is_ps = cluster->role == SL_CLUSTER_PS;
    const uint32_t count = is_ps ? cluster->ps_count : cluster->worker_count;
    int64_t index = sources->flag_index;
    if (index < 0 && tf->has_task) {
        index = tf->task_index;
    }
    if (index < 0 && count > 1) {
        return refuse(sources,
                      "no task index for this %s of %u: give --task-index, or \"task\" in "
                      "TF_CONFIG",
                      role, count);
    }
    /* The only one of its role, as far as anyone has said. */
    index = index < 0 ? 0 : index;
    if (count != 0 && index >= count && !sources->flags->joins) {
        return refuse(sources, "--task-index=%lld: there are %u %s tasks, so it accepts 0 to %u%s",
                      (long long)index, count, role, count - 1,
                      is_ps ? "" : ", or, with --join, more");
    }
    if (index >= SL_LIMIT_WORKERS) {
        return refuse(sources, "--task-index=%lld: accepts 0 to %d", (long long)index,
                      SL_LIMIT_WORKERS - 1);
    }
    cluster->task_index = (uint32_t)index;
    return 0;
}

int sl_cluster_resolve(enum sl_cluster_role role, const struct sl_cluster_flags *flags,
                       const char *tf_config, struct sl_cluster *out, char *reason,
                       size_t reason_bytes)
{
    sl_assert(role == SL_CLUSTER_PS || role == SL_CLUSTER_WORKER);
    sl_assert(flags != NULL);
    struct sources sources = {.flags = flags, .reason = reason, .reason_bytes = reason_bytes};
    struct sl_cluster cluster = {.role = role};
    int err = read_flags(&sources, role);
    if (err == 0) {
        err = read_tf_config(&sources, role, tf_config);
    }
    if (err == 0) {
        err = compare(&sources);
    }
    if (err == 0) {
        err = read_map(&sources);
    }
    if (err == 0) {
        cluster.worker_count =
            sources.flag_workers != 0 ? sources.flag_workers : sources.tf.worker_count;
        err = choose_ps(&sources, &cluster);
    }
    if (err == 0) {
        err = choose_task(&sources, &cluster);
    }
    sl_endpoint_map_fini(&sources.map);
    sl_tf_config_fini(&sources.tf);
    sl_hosts_fini(&sources.flag_ps);
    if (err != 0) {
        sl_cluster_fini(&cluster);
        return err;
    }
    *out = cluster;
    return 0;
}

void sl_cluster_fini(struct sl_cluster *cluster)
{
    free(cluster->ps);
    *cluster = (struct sl_cluster){0};
}
