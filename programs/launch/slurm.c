#include "programs/launch/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/number.h"
#include "core/limits.h"
#include "core/log.h"

/* Ports below the kernel's usual range for outgoing connections, chosen by job number. */
#define PORTS_FIRST 10000U
#define PORTS_COUNT 20000U

#define TASKS_MAX   (SL_LIMIT_PS + SL_LIMIT_WORKERS) /* and nodes */

/* Slurm's variables and the resulting plan. */
struct slurm {
    const struct sl_launch_options *options;
    struct sl_words nodes;
    uint32_t job;
    uint32_t ps_count, worker_count;
    unsigned port;               /* of ps 0 */
    uint32_t node_of[TASKS_MAX]; /* index into nodes: of the servers, then of the workers */
    struct sl_reason *reason;
};

static int slurm_refuse(const struct slurm *slurm, int err, const char *name, const char *accepted)
{
    const char *value = getenv(name);
    return sl_reason_fail(slurm->reason, err, "--slurm: %s%s%.80s: %s", name,
                          value != NULL ? "=" : " is not set", value != NULL ? value : "",
                          accepted);
}

static int slurm_read_number(const struct slurm *slurm, const char *name, uint32_t most,
                             uint32_t *out)
{
    const char *value = getenv(name);
    if (value == NULL) {
        return slurm_refuse(slurm, SL_ERR_NOT_FOUND, name, "this runs in no Slurm allocation");
    }
    if (!sl_number_parse_u32(value, 0, most, out)) {
        return slurm_refuse(slurm, SL_ERR_INVALID, name, "accepts a whole number");
    }
    return 0;
}

/* Expands "node[1-3,7]" with scontrol, which knows Slurm's rules. */
static int expand_nodes(struct slurm *slurm, const char *variable)
{
    const char *list = getenv(variable);
    if (list == NULL) {
        return slurm_refuse(slurm, SL_ERR_NOT_FOUND, variable, "this runs in no Slurm allocation");
    }
    char *const words[] = {(char *)"scontrol", (char *)"show", (char *)"hostnames", (char *)list};
    char *command = sl_words_quote(words, 4);
    FILE *pipe = command == NULL ? NULL : popen(command, "re");
    free(command);
    if (pipe == NULL) {
        return slurm_refuse(slurm, SL_ERR_IO, variable, "cannot run scontrol show hostnames");
    }
    char line[300];
    int err = 0;
    while (err == 0 && slurm->nodes.count < TASKS_MAX && fgets(line, sizeof line, pipe) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        err = line[0] == '\0' ? 0 : sl_words_append(&slurm->nodes, line);
    }
    const int status = pclose(pipe);
    if (err == 0 && (status != 0 || slurm->nodes.count == 0)) {
        err = slurm_refuse(slurm, SL_ERR_NOT_FOUND, variable,
                           "scontrol show hostnames does not expand it");
    }
    return err;
}

/* Jobs on one host usually get different ports, by job number; --port-base resolves conflicts. Each
 * ps uses two ports, one for its launcher, and with --objects a third one. */
static int choose_port(struct slurm *slurm)
{
    const unsigned needed = (slurm->options->objects ? 3 : 2) * slurm->ps_count;
    slurm->port = slurm->options->port_base != 0
                      ? (unsigned)slurm->options->port_base
                      : PORTS_FIRST + slurm->job % (PORTS_COUNT / needed) * needed;
    if (slurm->port + needed - 1 > UINT16_MAX) {
        return sl_reason_fail(slurm->reason, SL_ERR_INVALID,
                              "--port-base=%u: the job needs %u ports, beyond 65535", slurm->port,
                              needed);
    }
    return 0;
}

/* Splits `tasks` into servers and workers. */
static int choose_counts(struct slurm *slurm, uint32_t tasks, bool exactly)
{
    const uint64_t ps = slurm->options->ps.count == 0 ? 1 : slurm->options->ps.count;
    const uint64_t workers = slurm->options->worker.count != 0 ? slurm->options->worker.count
                             : tasks > ps                      ? tasks - ps
                                                               : 1;
    if (exactly && ps + workers != tasks) {
        return sl_reason_fail(
            slurm->reason, SL_ERR_INVALID,
            "--slurm: srun started %u tasks, but %llu server%s and %llu worker%s need %llu", tasks,
            (unsigned long long)ps, sl_log_plural(ps), (unsigned long long)workers,
            sl_log_plural(workers), (unsigned long long)(ps + workers));
    }
    if (workers > SL_LIMIT_WORKERS) {
        return sl_reason_fail(slurm->reason, SL_ERR_INVALID,
                              "--slurm: %u tasks leave %llu workers beside %llu server%s; at most "
                              "%d are possible: give --workers or --ps",
                              tasks, (unsigned long long)workers, (unsigned long long)ps,
                              sl_log_plural(ps), SL_LIMIT_WORKERS);
    }
    slurm->ps_count = (uint32_t)ps;
    slurm->worker_count = (uint32_t)workers;
    return choose_port(slurm);
}

static int slurm_list_hosts(const struct slurm *slurm, struct sl_plan_hosts *hosts)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < slurm->ps_count + slurm->worker_count; i++) {
        const char *node = slurm->nodes.items[slurm->node_of[i]];
        err = i < slurm->ps_count
                  ? sl_plan_hosts_append(hosts, slurm->options, node, slurm->port + i,
                                         slurm->port + 2 * slurm->ps_count + i)
                  : sl_words_append(&hosts->workers, node);
    }
    hosts->master_port = slurm->options->master_port;
    return err;
}

/* Passes variables explicitly: srun passes no environment after --export=NONE to srun or sbatch.
 * With --disable-status the first SIGINT is forwarded to the task. */
static int wrap_srun(struct sl_plan_task *task, const char *node)
{
    char where[320];
    snprintf(where, sizeof where, "--nodelist=%s", node);
    const char *const begin[] = {"srun",    "--nodes=1",        "--ntasks=1", "--overlap",
                                 "--quiet", "--disable-status", where,        "env"};
    struct sl_words outer = {0};
    int err = sl_words_append_all(&outer, begin, sizeof begin / sizeof begin[0]);
    err = err != 0 ? err : sl_plan_append_variables(&outer, task);
    err = err != 0 ? err
                   : sl_words_append_all(&outer, (const char *const *)task->argv.items,
                                         task->argv.count);
    sl_plan_wrap(task, &outer, SL_PLAN_STOP_INT, node);
    return err;
}

static int plan_steps(struct slurm *slurm, struct sl_plan *plan)
{
    uint32_t tasks = 0;
    if (getenv("SLURM_NTASKS") != NULL) {
        int err = slurm_read_number(slurm, "SLURM_NTASKS", TASKS_MAX, &tasks);
        if (err != 0) {
            return err;
        }
    }
    int err = choose_counts(slurm, tasks, false);
    if (err != 0) {
        return err;
    }
    const uint32_t members = slurm->ps_count + slurm->worker_count, nodes = slurm->nodes.count;
    for (uint32_t i = 0; i < members; i++) {
        slurm->node_of[i] = i % nodes;
    }
    struct sl_plan_hosts hosts = {0};
    err = slurm_list_hosts(slurm, &hosts);
    hosts.agent_count = !slurm->options->agents ? 0 : members < nodes ? members : nodes;
    if (err == 0) {
        err = sl_plan_fill(plan, slurm->options, &hosts, slurm->reason);
    }
    for (uint32_t i = 0; err == 0 && i < plan->task_count; i++) {
        const uint32_t node = i < members ? slurm->node_of[i] : i - members; /* an agent on each */
        err = wrap_srun(&plan->tasks[i], slurm->nodes.items[node]);
    }
    sl_plan_hosts_fini(&hosts);
    return err;
}

/* Parses the next run of "4(x3),2": *tasks on each of *nodes nodes. False: at the end, or
 * invalid. */
static bool take_run(const char **text, uint32_t *tasks, uint32_t *nodes)
{
    int used = 0;
    *nodes = 1;
    if (sscanf(*text, "%6u%n", tasks, &used) != 1) {
        return false;
    }
    *text += used;
    used = 0;
    if (sscanf(*text, "(x%6u)%n", nodes, &used) == 1 && used > 0) {
        *text += used;
    }
    *text += **text == ',';
    return true;
}

/* Computes where Slurm placed the tasks. "block" fills one node after the other, by the list of
 * tasks per node; "cyclic" deals them out and skips full nodes. */
static int place_tasks(struct slurm *slurm)
{
    const uint32_t count = slurm->ps_count + slurm->worker_count;

    const char *variable = "SLURM_STEP_TASKS_PER_NODE";
    const char *text = getenv(variable);
    const char *distribution = getenv("SLURM_DISTRIBUTION");
    const bool cyclic = distribution != NULL && strncmp(distribution, "cyclic", 6) == 0;
    if (distribution != NULL && !cyclic && strncmp(distribution, "block", 5) != 0) {
        return slurm_refuse(slurm, SL_ERR_INVALID, "SLURM_DISTRIBUTION", "accepts block or cyclic");
    }
    uint32_t *room = calloc(slurm->nodes.count, sizeof *room);
    if (room == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    uint32_t tasks, nodes, node = 0;
    while (text != NULL && take_run(&text, &tasks, &nodes)) {
        for (uint32_t i = 0; i < nodes && node < slurm->nodes.count; i++) {
            room[node++] = tasks;
        }
    }
    uint32_t placed = 0;
    for (bool any = true; any && placed < count;) {
        any = false;
        for (node = 0; node < slurm->nodes.count && placed < count; node++) {
            const uint32_t here = cyclic && room[node] > 0 ? 1 : room[node];
            for (uint32_t i = 0; i < here && placed < count; i++) {
                slurm->node_of[placed++] = node;
            }
            room[node] -= here;
            any = any || here > 0;
        }
    }
    free(room);
    if (placed < count) {
        return slurm_refuse(slurm, SL_ERR_INVALID, variable, "does not say where every task is");
    }
    return 0;
}

static int plan_completion(struct slurm *slurm, const struct sl_plan_task *task, uint32_t step,
                           struct sl_completion *completion)
{
    const unsigned first = slurm->port + slurm->ps_count;
    snprintf(completion->token, sizeof completion->token, "%u.%u", slurm->job, step);
    if (task->role == SL_CLUSTER_PS) {
        return sl_completion_listen(completion, (uint16_t)(first + task->index),
                                    slurm->worker_count, slurm->reason);
    }
    char peer[320];
    int err = 0;
    completion->worker = task->index;
    for (uint32_t i = 0; err == 0 && i < slurm->ps_count; i++) {
        snprintf(peer, sizeof peer, "%s:%u", slurm->nodes.items[slurm->node_of[i]], first + i);
        err = sl_words_append(&completion->peers, peer);
    }
    return err;
}

/* Plans task `proc` of the step: servers first, then workers. */
static int plan_task(struct slurm *slurm, uint32_t proc, struct sl_plan *plan)
{
    const bool is_ps = proc < slurm->ps_count;
    if (slurm->options->agents) {
        return sl_reason_fail(slurm->reason, SL_ERR_INVALID,
                              "--agents: srun starts these launchers: start the agents with "
                              "srun --ntasks-per-node=1 starling-ps agent");
    }
    int err = sl_plan_init(plan, is_ps, !is_ps, 0);
    if (err != 0) {
        return err;
    }
    struct sl_plan_task *task = &plan->tasks[0];
    task->index = is_ps ? proc : proc - slurm->ps_count;
    snprintf(task->name, sizeof task->name, "%s/%u", is_ps ? "ps" : "worker", task->index);
    struct sl_plan_hosts hosts = {0};
    err = slurm_list_hosts(slurm, &hosts);
    if (err == 0) {
        err = sl_plan_check(slurm->options, &hosts, slurm->reason);
    }
    if (err == 0) {
        err = sl_plan_command(task, slurm->options, &hosts, slurm->reason);
    }
    sl_plan_hosts_fini(&hosts);
    return err;
}

static int plan_inside(struct slurm *slurm, uint32_t tasks, struct sl_plan *plan,
                       struct sl_completion *completion)
{
    uint32_t proc = 0, step = 0;
    int err = slurm_read_number(slurm, "SLURM_PROCID", TASKS_MAX, &proc);
    err = err != 0 ? err : slurm_read_number(slurm, "SLURM_STEP_ID", UINT32_MAX, &step);
    err = err != 0 ? err : choose_counts(slurm, tasks, true);
    err = err != 0 ? err : place_tasks(slurm);
    if (err == 0 && proc >= tasks) {
        err =
            slurm_refuse(slurm, SL_ERR_INVALID, "SLURM_PROCID", "is not below the number of tasks");
    }
    err = err != 0 ? err : plan_task(slurm, proc, plan);
    return err != 0 ? err : plan_completion(slurm, &plan->tasks[0], step, completion);
}

int sl_slurm_plan(const struct sl_launch_options *options, struct sl_plan *plan,
                  struct sl_completion *completion, struct sl_reason *reason)
{
    struct slurm slurm = {.options = options, .reason = reason};
    sl_reason_set(reason, "out of memory");
    /* salloc's shell and the batch script are not steps, or steps of one task. */
    uint32_t tasks = 0;
    const bool is_step = getenv("SLURM_STEP_ID") != NULL;
    int err = slurm_read_number(&slurm, "SLURM_JOB_ID", UINT32_MAX, &slurm.job);
    if (err == 0 && is_step) {
        const char *number =
            getenv("SLURM_STEP_NUM_TASKS") != NULL ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
        err = slurm_read_number(&slurm, number, TASKS_MAX, &tasks);
    }
    const bool inside = tasks > 1;
    if (err == 0) {
        err = expand_nodes(&slurm, inside && getenv("SLURM_STEP_NODELIST") != NULL
                                       ? "SLURM_STEP_NODELIST"
                                       : "SLURM_JOB_NODELIST");
    }
    if (err == 0) {
        err = inside ? plan_inside(&slurm, tasks, plan, completion) : plan_steps(&slurm, plan);
    }
    sl_words_fini(&slurm.nodes);
    return err;
}
