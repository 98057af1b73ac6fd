#include "config/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/dmlc.h"
#include "config/endpoint_map.h"
#include "config/hosts.h"
#include "config/tf_config.h"
#include "core/assert.h"
#include "core/limits.h"
#include "core/log.h"

static const char *const role_names[] = {
    [SL_CLUSTER_PS] = "ps",
    [SL_CLUSTER_WORKER] = "worker",
    [SL_CLUSTER_SCHEDULER] = "scheduler",
};

/* Of a server that no source describes. */
#define HOSTS_DEFAULT "127.0.0.1:3333"

/* The contents of all sources. */
struct sources {
    const struct sl_cluster_flags *flags;
    struct sl_hosts flag_ps;
    uint32_t flag_workers; /* 0: not given */
    int64_t flag_index;    /* Starling's numbering; -1: not given */
    int flag_role;         /* enum sl_cluster_role; -1: not given */
    struct sl_tf_config tf;
    const struct sl_dmlc *dmlc; /* NULL: not in use */
    struct sl_endpoint_map map; /* empty without a file */
    const char *map_path;
    struct sl_reason *reason;
};

/* An item's value in one source. */
struct claim {
    const char *source; /* "DMLC_RANK" */
    const char *prefix; /* start of the text: "DMLC_RANK is" */
    int64_t value;      /* -1: none */
    const char *suffix; /* end of the text, after the value: what it counts; or NULL */
};

#define refuse(sources, ...) sl_reason_fail((sources)->reason, SL_ERR_INVALID, __VA_ARGS__)

static int parse_job_name(const char *job, int *role)
{
    static const struct {
        const char *name;
        enum sl_cluster_role role;
    } jobs[] = {
        {"ps", SL_CLUSTER_PS},
        {"worker", SL_CLUSTER_WORKER},
        {"chief", SL_CLUSTER_WORKER},
        {"scheduler", SL_CLUSTER_SCHEDULER},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        if (strcmp(job, jobs[i].name) == 0) {
            *role = (int)jobs[i].role;
            return 0;
        }
    }
    return SL_ERR_INVALID;
}

/* The ps program also runs a scheduler. */
static bool runs(enum sl_cluster_role program, int role)
{
    return role == (int)program || (program == SL_CLUSTER_PS && role == (int)SL_CLUSTER_SCHEDULER);
}

/* Checks --job-name against the program. A chief is worker 0. */
static int read_job_name(struct sources *sources, enum sl_cluster_role program)
{
    const char *job = sources->flags->job_name;
    const char *accepted = program == SL_CLUSTER_PS ? "ps or scheduler" : "worker or chief";
    if (job == NULL) {
        return 0;
    }
    if (parse_job_name(job, &sources->flag_role) != 0) {
        return refuse(sources, "--job-name=%.80s: accepts %s", job, accepted);
    }
    if (!runs(program, sources->flag_role)) {
        return refuse(sources,
                      "--job-name=%s: this program is starling-%s, which accepts %s; a %s is "
                      "started with starling-%s",
                      job, role_names[program], accepted, job,
                      program == SL_CLUSTER_PS ? "worker" : "ps");
    }
    const bool chief = strcmp(job, "chief") == 0;
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

static int read_flags(struct sources *sources, enum sl_cluster_role program)
{
    const struct sl_cluster_flags *flags = sources->flags;
    int err = 0;
    if (flags->task_index < -1) {
        return refuse(sources, "--task-index=%lld: accepts an index from 0",
                      (long long)flags->task_index);
    }
    sources->flag_index = flags->task_index;
    sources->flag_role = -1;
    if (flags->ps_hosts != NULL) {
        err =
            sl_hosts_append_list(&sources->flag_ps, flags->ps_hosts, "--ps-hosts", sources->reason);
    }
    if (err == 0 && flags->worker_hosts != NULL) {
        err = sl_hosts_count_workers(flags->worker_hosts, "--worker-hosts", &sources->flag_workers,
                                     sources->reason);
    }
    return err != 0 ? err : read_job_name(sources, program);
}

static int read_tf_config(struct sources *sources, enum sl_cluster_role role, const char *text)
{
    if (sl_tf_config_is_unset(text)) {
        return 0;
    }
    int err = sl_tf_config_parse(text, &sources->tf, sources->reason);
    if (err != 0) {
        return err;
    }
    if (sources->tf.is_evaluator && !sources->flags->takes_first) {
        return refuse(sources,
                      "TF_CONFIG: \"task\".\"type\" is \"evaluator\"; accepted are ps, worker, "
                      "chief; a client of the library has no task then");
    }
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
        if (access(SL_ENDPOINT_MAP_DEFAULT, F_OK) != 0) {
            return 0;
        }
        sources->map_path = SL_ENDPOINT_MAP_DEFAULT;
    }
    return sl_endpoint_map_read(sources->map_path, &sources->map, sources->reason);
}

/* Returns an enum sl_cluster_role, or -1. A joint process runs both programs, each in its role. */
static int role_of(enum sl_dmlc_role role, enum sl_cluster_role program)
{
    static const enum sl_cluster_role roles[] = {
        [SL_DMLC_SCHEDULER] = SL_CLUSTER_SCHEDULER,
        [SL_DMLC_SERVER] = SL_CLUSTER_PS,
        [SL_DMLC_WORKER] = SL_CLUSTER_WORKER,
    };
    return role == SL_DMLC_ROLE_UNSET ? -1
           : role == SL_DMLC_JOINT    ? (int)program
                                      : (int)roles[role];
}

static int read_dmlc(struct sources *sources, enum sl_cluster_role program,
                     const struct sl_dmlc *dmlc)
{
    if (dmlc == NULL || !dmlc->in_use) {
        return 0;
    }
    sources->dmlc = dmlc;
    if (dmlc->role != SL_DMLC_ROLE_UNSET && !runs(program, role_of(dmlc->role, program))) {
        return refuse(sources,
                      "DMLC_ROLE=%s: this program is starling-%s, which accepts %s; a %s is "
                      "started with starling-%s",
                      sl_dmlc_role_name(dmlc->role), role_names[program],
                      program == SL_CLUSTER_PS ? "scheduler, server or joint" : "worker or joint",
                      sl_dmlc_role_name(dmlc->role), program == SL_CLUSTER_PS ? "worker" : "ps");
    }
    return 0;
}

/* Sources that have the same item must agree */

static int compare_ps(const struct sources *sources)
{
    const struct sl_hosts *flag = &sources->flag_ps;
    const struct sl_hosts *tf = &sources->tf.ps;
    if (flag->count == 0 || tf->count == 0 || sources->flags->takes_first) {
        return 0;
    }
    if (flag->count != tf->count) {
        return refuse(sources,
                      "--ps-hosts names %u server%s, but TF_CONFIG names %u; they must agree",
                      flag->count, sl_log_plural(flag->count), tf->count);
    }
    for (uint32_t i = 0; i < flag->count; i++) {
        if (!sl_hosts_same(&flag->items[i], &tf->items[i])) {
            char one[SL_LIMIT_ENDPOINT_BYTES], other[SL_LIMIT_ENDPOINT_BYTES];
            sl_endpoint_format(&flag->items[i], one, sizeof one);
            sl_endpoint_format(&tf->items[i], other, sizeof other);
            return refuse(sources,
                          "ps/%u is %s in --ps-hosts, but %s in TF_CONFIG; they must agree", i, one,
                          other);
        }
    }
    return 0;
}

/* With a scheduler, the coordinator is there and not on a listed ps. */
static int compare_places(const struct sources *sources)
{
    const struct sl_dmlc *dmlc = sources->dmlc;
    const struct sl_endpoint *first = sources->flag_ps.count != 0 ? sources->flag_ps.items
                                      : sources->tf.ps.count != 0 ? sources->tf.ps.items
                                      : sources->map.count != 0   ? &sources->map.entries[0].control
                                                                  : NULL;
    if (dmlc == NULL || first == NULL || sources->flags->takes_first) {
        return 0;
    }
    char one[SL_LIMIT_ENDPOINT_BYTES], other[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(first, one, sizeof one);
    sl_endpoint_format(&dmlc->root, other, sizeof other);
    return refuse(sources,
                  "the coordinator is ps/0 at %s in %s, but a scheduler at %s in DMLC_PS_ROOT_URI; "
                  "give one of the two",
                  one,
                  sources->flag_ps.count != 0 ? "--ps-hosts"
                  : sources->tf.ps.count != 0 ? "TF_CONFIG"
                                              : sources->map_path,
                  other);
}

/* Sets *out to the value that all sources agree on, or that the first has, and its source; -1: none
 * has it. */
static int agree(const struct sources *sources, const struct claim *claims, uint32_t count,
                 int64_t *out, const char **source)
{
    const struct claim *first = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const struct claim *other = &claims[i];
        if (other->value < 0) {
            continue;
        }
        if (first != NULL && first->value != other->value && !sources->flags->takes_first) {
            return refuse(sources, "%s %lld%s, but %s %lld%s; they must agree", first->prefix,
                          (long long)first->value, first->suffix == NULL ? "" : first->suffix,
                          other->prefix, (long long)other->value,
                          other->suffix == NULL ? "" : other->suffix);
        }
        first = first == NULL ? other : first;
    }
    *out = first == NULL ? -1 : first->value;
    *source = first == NULL ? NULL : first->source;
    return 0;
}

static int64_t unless_zero(uint32_t value)
{
    return value == 0 ? -1 : (int64_t)value;
}

static int agree_on_workers(const struct sources *sources, struct sl_cluster *cluster)
{
    const struct sl_cluster_flags *flags = sources->flags;
    const struct sl_dmlc *dmlc = sources->dmlc;
    const struct claim claims[] = {
        {"--num-workers", "--num-workers is", unless_zero(flags->worker_count), NULL},
        {"--worker-hosts", "--worker-hosts names", unless_zero(sources->flag_workers), " workers"},
        {"TF_CONFIG", "TF_CONFIG names", unless_zero(sources->tf.worker_count),
         " (a chief is one)"},
        {"DMLC_NUM_WORKER", "DMLC_NUM_WORKER is", dmlc == NULL ? -1 : (int64_t)dmlc->worker_count,
         NULL},
        {"WORLD_SIZE", "WORLD_SIZE is", unless_zero(flags->world_size), NULL},
        {"SLURM_NTASKS", "SLURM_NTASKS is", unless_zero(flags->slurm_tasks), NULL},
    };
    int64_t count = -1;
    int err = agree(sources, claims, sizeof claims / sizeof claims[0], &count,
                    &cluster->worker_count_source);
    if (err == 0 && count >= 0) {
        cluster->worker_count = (uint32_t)count;
    }
    return err;
}

static int agree_on_index(const struct sources *sources, int64_t *out, const char **source)
{
    const struct sl_cluster_flags *flags = sources->flags;
    const struct sl_dmlc *dmlc = sources->dmlc;
    const char *dmlc_name = dmlc == NULL || dmlc->rank < 0 ? "" : dmlc->rank_variable;
    char task[64], rank[32];
    snprintf(task, sizeof task, "TF_CONFIG's \"task\" is %s",
             sources->tf.has_task ? role_names[sources->tf.role] : "nothing");
    snprintf(rank, sizeof rank, "%s is", dmlc_name);
    const struct claim claims[] = {
        {flags->takes_first ? "--starling-task-index" : "--task-index", "--task-index is",
         sources->flag_index, NULL},
        {"TF_CONFIG's task", task, sources->tf.has_task ? (int64_t)sources->tf.task_index : -1,
         " (a chief is worker 0)"},
        {dmlc_name, rank, dmlc == NULL ? -1 : dmlc->rank, NULL},
        {"RANK", "RANK is", flags->world_size == 0 ? -1 : flags->rank, NULL},
        {"SLURM_PROCID", "SLURM_PROCID is", flags->slurm_tasks == 0 ? -1 : flags->slurm_task, NULL},
    };
    return agree(sources, claims, sizeof claims / sizeof claims[0], out, source);
}

/* Chooses ps or scheduler; the default is the program's role. */
static int agree_on_role(const struct sources *sources, enum sl_cluster_role program,
                         enum sl_cluster_role *out)
{
    const int dmlc_role = sources->dmlc == NULL ? -1 : role_of(sources->dmlc->role, program);
    const struct {
        const char *prefix;
        int role;
    } claims[] = {
        {"--job-name", sources->flag_role},
        {"TF_CONFIG's \"task\"", sources->tf.has_task ? (int)sources->tf.role : -1},
        {"DMLC_ROLE", dmlc_role},
    };
    int first = -1;
    for (int i = 0; i < 3; i++) {
        if (claims[i].role < 0) {
            continue;
        }
        if (first >= 0 && claims[i].role != claims[first].role) {
            return refuse(sources, "%s is %s, but %s is %s; they must agree", claims[first].prefix,
                          role_names[claims[first].role], claims[i].prefix,
                          i == 2 ? sl_dmlc_role_name(sources->dmlc->role)
                                 : role_names[claims[i].role]);
        }
        first = first < 0 ? i : first;
    }
    *out = first < 0 ? program : (enum sl_cluster_role)claims[first].role;
    if (*out == SL_CLUSTER_SCHEDULER && sources->dmlc == NULL) {
        return refuse(sources, "--job-name=scheduler needs DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT, "
                               "DMLC_NUM_SERVER and DMLC_NUM_WORKER, which are not set");
    }
    if (program == SL_CLUSTER_PS && first < 0 && sources->dmlc != NULL) {
        return refuse(sources, "DMLC_ROLE is not set, but DMLC_PS_ROOT_URI is: it accepts "
                               "scheduler or server here (or use --job-name)");
    }
    return 0;
}

/* The choice */

/* Takes the ps hosts from the flags, else TF_CONFIG, else the map's control endpoints. With a
 * scheduler they are unknown until they register. */
static int choose_ps(struct sources *sources, struct sl_cluster *cluster)
{
    const bool has_list = sources->flag_ps.count != 0 || sources->tf.ps.count != 0;
    if (sources->flags->coordinator != NULL) {
        return 0;
    }
    if (sources->dmlc != NULL && !(sources->flags->takes_first && has_list)) {
        cluster->has_scheduler = true;
        cluster->coordinator = sources->dmlc->root;
        cluster->ps_count = sources->dmlc->server_count;
        return 0;
    }
    cluster->is_default = !has_list && cluster->role == SL_CLUSTER_PS && sources->map_path == NULL;
    if (cluster->is_default) {
        int err =
            sl_hosts_append_list(&sources->flag_ps, HOSTS_DEFAULT, "--ps-hosts", sources->reason);
        if (err != 0) {
            return err;
        }
    }
    const struct sl_hosts *hosts =
        sources->flag_ps.count != 0 ? &sources->flag_ps : &sources->tf.ps;
    const bool from_map = hosts->count == 0;
    cluster->ps_count = from_map ? sources->map.count : hosts->count;
    if (cluster->ps_count == 0 && sources->flags->takes_first) {
        return sl_reason_fail(
            sources->reason, SL_ERR_NOT_FOUND,
            "no coordinator: give --starling-coordinator=HOST:PORT, or set STARLING_COORDINATOR, "
            "TF_CONFIG, or DMLC_PS_ROOT_URI with the other variables of ps-lite, or start this "
            "program with starling-launch");
    }
    if (cluster->ps_count == 0) {
        return refuse(sources,
                      "no servers: give --ps-hosts host:port,host:port, or TF_CONFIG, or an "
                      "endpoint map (--endpoint-map FILE, else ./" SL_ENDPOINT_MAP_DEFAULT
                      ")%s%s%s",
                      sources->map_path != NULL ? "; " : "",
                      sources->map_path != NULL ? sources->map_path : "",
                      sources->map_path != NULL ? " has no lines" : "");
    }
    cluster->ps = calloc(cluster->ps_count, sizeof *cluster->ps);
    if (cluster->ps == NULL) {
        return sl_reason_fail(sources->reason, SL_ERR_NO_MEMORY, "out of memory for %u servers",
                              cluster->ps_count);
    }
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        struct sl_cluster_ps *ps = &cluster->ps[i];
        ps->control = from_map ? sources->map.entries[i].control : hosts->items[i];
        ps->data = ps->control;
        const struct sl_endpoint_map_entry *entry =
            sl_endpoint_map_find(&sources->map, &ps->control);
        if (entry != NULL) {
            ps->data = entry->data;
            ps->bypass = entry->bypass;
            ps->has_bypass = entry->has_bypass;
        }
    }
    cluster->coordinator = cluster->ps[0].control;
    cluster->map_path = sources->map_path;
    return 0;
}

/* Without this error, a ps missing in the map would silently use its control endpoint for data. */
static int check_map(const struct sources *sources, const struct sl_cluster *cluster)
{
    if (cluster->role != SL_CLUSTER_PS || sources->map_path == NULL || cluster->ps == NULL) {
        return 0;
    }
    const struct sl_endpoint *control = &cluster->ps[cluster->task_index].control;
    if (sl_endpoint_map_find(&sources->map, control) != NULL) {
        return 0;
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(control, text, sizeof text);
    return refuse(
        sources,
        "%s: no line for ps/%u, which is this process: add \"%s=DATA_URI\", or remove the map",
        sources->map_path, cluster->task_index, text + strlen("tcp://"));
}

static int choose_task(const struct sources *sources, int64_t index, const char *source,
                       struct sl_cluster *cluster)
{
    const char *role = role_names[cluster->role];
    const bool is_ps = cluster->role == SL_CLUSTER_PS;
    const uint32_t count = is_ps ? cluster->ps_count : cluster->worker_count;
    if (cluster->role == SL_CLUSTER_SCHEDULER) {
        return 0; /* there is only one */
    }
    if (sources->tf.is_evaluator && sources->flag_index < 0) {
        cluster->task = SL_CLUSTER_TASK_NONE;
        return 0;
    }
    if (index < 0 && cluster->has_scheduler) {
        cluster->task = SL_CLUSTER_TASK_ANY;
        return 0;
    }
    if (index < 0 && count > 1) {
        return refuse(
            sources,
            "no task index for this %s of %u: give --task-index%s, or \"task\" in TF_CONFIG", role,
            count, sources->flags->takes_first ? ", RANK and WORLD_SIZE" : "");
    }
    /* The only task of its role, as far as known. */
    index = index < 0 ? 0 : index;
    /* A server finds its own endpoint in the list, unless it gets one from the scheduler. */
    const bool may_exceed = sources->flags->joins && (!is_ps || cluster->has_scheduler);
    if (count != 0 && index >= count && !may_exceed) {
        return refuse(sources, "%s=%lld: there %s %u %s task%s, so it accepts 0 to %u%s", source,
                      (long long)index, count == 1 ? "is" : "are", count, role,
                      sl_log_plural(count), count - 1, is_ps ? "" : ", or, with --join, more");
    }
    if (index >= SL_LIMIT_WORKERS) {
        return refuse(sources, "--task-index=%lld: accepts 0 to %d", (long long)index,
                      SL_LIMIT_WORKERS - 1);
    }
    cluster->task_index = (uint32_t)index;
    return 0;
}

static int read_sources(struct sources *sources, enum sl_cluster_role program,
                        const char *tf_config, const struct sl_dmlc *dmlc)
{
    int err = read_flags(sources, program);
    err = err != 0 ? err : read_tf_config(sources, program, tf_config);
    err = err != 0 ? err : read_dmlc(sources, program, dmlc);
    err = err != 0 ? err : compare_ps(sources);
    /* A client that has the coordinator's address needs no list of servers. */
    return err != 0 || sources->flags->coordinator != NULL ? err : read_map(sources);
}

static int choose(struct sources *sources, enum sl_cluster_role program, struct sl_cluster *cluster)
{
    int64_t index = -1;
    const char *source = NULL;
    int err = compare_places(sources);
    err = err != 0 ? err : agree_on_role(sources, program, &cluster->role);
    err = err != 0 ? err : agree_on_workers(sources, cluster);
    err = err != 0 ? err : agree_on_index(sources, &index, &source);
    err = err != 0 ? err : choose_ps(sources, cluster);
    err = err != 0 ? err : choose_task(sources, index, source, cluster);
    return err != 0 ? err : check_map(sources, cluster);
}

int sl_cluster_resolve(enum sl_cluster_role role, const struct sl_cluster_flags *flags,
                       const char *tf_config, const struct sl_dmlc *dmlc, struct sl_cluster *out,
                       struct sl_reason *reason)
{
    sl_assert(role == SL_CLUSTER_PS || role == SL_CLUSTER_WORKER);
    sl_assert(flags != NULL);
    struct sources sources = {.flags = flags, .reason = reason};
    struct sl_cluster cluster = {.role = role};
    int err = read_sources(&sources, role, tf_config, dmlc);
    err = err != 0 ? err : choose(&sources, role, &cluster);
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

char *sl_cluster_places(const struct sl_cluster *cluster, bool has_store)
{
    const uint32_t count = has_store && !cluster->has_scheduler ? cluster->ps_count : 1;
    const size_t bytes = (size_t)count * (SL_LIMIT_ENDPOINT_BYTES + 16);
    char *text = malloc(bytes);
    size_t used = 0;
    for (uint32_t i = 0; text != NULL && i < count; i++) {
        const struct sl_endpoint *place =
            count == 1 ? &cluster->coordinator : &cluster->ps[i].control;
        if (i > 0) {
            text[used++] = ',';
        }
        sl_endpoint_format(place, text + used, SL_LIMIT_ENDPOINT_BYTES + 8);
        used += strlen(text + used);
    }
    return text;
}

void sl_cluster_fini(struct sl_cluster *cluster)
{
    free(cluster->ps);
    *cluster = (struct sl_cluster){0};
}
