#include "programs/launch/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/hosts.h"
#include "config/number.h"
#include "programs/launch/child.h"
#include "programs/launch/device.h"
#include "programs/launch/worker_variables.h"

#define AGENT_NAME_MAX 63

static void name_tasks(struct sl_plan_task *tasks, uint32_t count, enum sl_cluster_role role)
{
    for (uint32_t i = 0; i < count; i++) {
        tasks[i].role = role;
        tasks[i].index = i;
        snprintf(tasks[i].name, sizeof tasks[i].name, "%s/%u",
                 role == SL_CLUSTER_PS       ? "ps"
                 : role == SL_CLUSTER_WORKER ? "worker"
                                             : "agent",
                 i);
    }
}

int sl_plan_init(struct sl_plan *plan, uint32_t ps_count, uint32_t worker_count,
                 uint32_t agent_count)
{
    const uint32_t count = ps_count + worker_count + agent_count;
    struct sl_plan_task *tasks = calloc(count, sizeof *tasks);
    if (tasks == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    name_tasks(tasks, ps_count, SL_CLUSTER_PS);
    name_tasks(tasks + ps_count, worker_count, SL_CLUSTER_WORKER);
    name_tasks(tasks + ps_count + worker_count, agent_count, SL_PLAN_AGENT);
    *plan = (struct sl_plan){.tasks = tasks, .task_count = count};
    return 0;
}

void sl_plan_fini(struct sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->task_count; i++) {
        sl_words_fini(&plan->tasks[i].argv);
        sl_words_fini(&plan->tasks[i].variables);
        free(plan->tasks[i].program);
    }
    free(plan->tasks);
    *plan = (struct sl_plan){0};
}

int sl_plan_hosts_append(struct sl_plan_hosts *hosts, const struct sl_launch_options *options,
                         const char *host, unsigned port, unsigned objects_port)
{
    char *list = NULL, address[320];
    if (asprintf(&list, "%s%s%s:%u", hosts->ps == NULL ? "" : hosts->ps,
                 hosts->ps == NULL ? "" : ",", host, port) < 0) {
        return SL_ERR_NO_MEMORY;
    }
    free(hosts->ps);
    hosts->ps = list;
    hosts->ps_count++;
    snprintf(address, sizeof address, "%s:%u", host, objects_port);
    return options->objects ? sl_words_append(&hosts->objects, address) : 0;
}

void sl_plan_hosts_fini(struct sl_plan_hosts *hosts)
{
    free(hosts->ps);
    sl_words_fini(&hosts->workers);
    sl_words_fini(&hosts->objects);
}

static int append_words(struct sl_words *to, const struct sl_words *words)
{
    return sl_words_append_all(to, (const char *const *)words->items, words->count);
}

int sl_plan_append_variables(struct sl_words *words, const struct sl_plan_task *task)
{
    char name[SL_CLI_NAME_BYTES];
    int err = 0;
    for (char *const *variable = environ; err == 0 && *variable != NULL; variable++) {
        const size_t length = strcspn(*variable, "=");
        (void)snprintf(name, sizeof name, "%.*s", (int)length, *variable);
        if (length < sizeof name && sl_settings_is_passed(name)) {
            err = sl_words_append(words, *variable);
        }
    }
    return err != 0 ? err : append_words(words, &task->variables);
}

void sl_plan_wrap(struct sl_plan_task *task, const struct sl_words *outer, enum sl_plan_stop stop,
                  const char *host)
{
    sl_words_fini(&task->argv);
    sl_words_fini(&task->variables);
    task->argv = *outer;
    task->stop = stop;
    snprintf(task->where, sizeof task->where, " on %s", host);
}

/* Appends "--name value"; of a boolean "--name" or "--name=false". */
static int append_flag(struct sl_words *words, const struct sl_cli_option *option,
                       const char *value)
{
    char flag[80];
    bool is_on = true;
    const bool is_boolean = option->kind == SL_CLI_BOOL;
    if (is_boolean) {
        (void)sl_number_parse_bool(value, &is_on);
    }
    snprintf(flag, sizeof flag, "--%s%s", option->name, is_on ? "" : "=false");
    int err = sl_words_append(words, flag);
    return err != 0 || is_boolean ? err : sl_words_append(words, value);
}

/* The launcher must know the flags that it has too: it acts by them, and gives them to workers. */
static int append_ps_args(struct sl_launch_options *options, struct sl_reason *reason)
{
    struct sl_words words = {0};
    int err = sl_words_split(options->ps_args, &words);
    if (err == SL_ERR_INVALID) {
        sl_reason_set(reason, "--ps-args=%.120s: a quote is not closed", options->ps_args);
    }
    for (uint32_t i = 0; err == 0 && i < words.count; i++) {
        char *word = words.items[i];
        char flag[80];
        snprintf(flag, sizeof flag, "%.*s", (int)strcspn(word, "="), word);
        if (strncmp(flag, "--", 2) == 0 &&
            (sl_settings_programs(flag + 2) & SL_PROGRAM_LAUNCH) != 0) {
            err = sl_reason_fail(reason, SL_ERR_INVALID,
                                 "--ps-args has %s: give it to starling-launch, which passes it on",
                                 flag);
        }
        err = err != 0 ? err : sl_words_append(&options->ps.flags, word);
    }
    sl_words_fini(&words);
    return err;
}

int sl_plan_flags(const struct sl_cli *cli, struct sl_launch_options *options,
                  struct sl_reason *reason)
{
    static const struct sl_cli_option reactors = {.kind = SL_CLI_U32, .name = "reactors"};
    static const struct sl_cli_option polling = {.kind = SL_CLI_BOOL, .name = "polling"};
    sl_reason_set(reason, "out of memory");
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < cli->option_count; i++) {
        const struct sl_cli_option *option = &cli->options[i];
        const struct sl_cli_given *given = &cli->given[i];
        const bool is_launchers =
            given->from == SL_CLI_FROM_FILE && strcmp(given->section, "launch") == 0;
        if (given->from != SL_CLI_FROM_FLAG && !is_launchers) {
            continue; /* variables reach the processes as variables, other sections in --config */
        }
        const bool of_ps =
            option->target == &options->ps.reactors || option->target == &options->ps.polling;
        const bool of_worker = option->target == &options->worker.reactors ||
                               option->target == &options->worker.polling;
        const struct sl_cli_option *passed = !of_ps && !of_worker          ? option
                                             : option->kind == SL_CLI_BOOL ? &polling
                                                                           : &reactors;
        const uint32_t programs = sl_settings_programs(option->name);
        const bool is_shared = (programs & SL_PROGRAM_LAUNCH) != 0;
        if (of_ps || (is_shared && (programs & SL_PROGRAM_PS) != 0)) {
            err = append_flag(&options->ps.flags, passed, given->text);
        }
        if (err == 0 && (of_worker || (is_shared && (programs & SL_PROGRAM_WORKER) != 0))) {
            err = options->worker_program.is_command
                      ? sl_worker_variables_append_flag(&options->worker.flags, option, given->text)
                      : append_flag(&options->worker.flags, passed, given->text);
        }
        if (err == 0 && is_shared && (programs & SL_PROGRAM_OBJECTS) != 0) {
            err = append_flag(&options->agent_flags, passed, given->text);
        }
    }
    return err != 0 || options->ps_args == NULL ? err : append_ps_args(options, reason);
}

static int append_devices(struct sl_plan_task *task, const struct sl_launch_options *options,
                          const struct sl_plan_hosts *hosts, struct sl_reason *reason)
{
    const bool is_ps = task->role == SL_CLUSTER_PS;
    return sl_device_append(is_ps ? "--ps-dpdk-device" : "--worker-dpdk-device",
                            is_ps ? options->ps.devices : options->worker.devices, task->index,
                            hosts->workers.count, &task->argv, reason);
}

static int check_security(const struct sl_launch_options *options,
                          const struct sl_plan_hosts *hosts, struct sl_reason *reason)
{
    if (options->settings.insecure || options->settings.flags.security.secret_file != NULL) {
        return 0;
    }
    struct sl_hosts ps = {0};
    int err = sl_hosts_append_list(&ps, hosts->ps, "the servers", reason);
    for (uint32_t i = 0; err == 0 && i < ps.count; i++) {
        char what[40];
        snprintf(what, sizeof what, "ps/%u: control", i);
        err = sl_security_check_exposure(false, what, &ps.items[i], reason);
    }
    sl_hosts_fini(&ps);
    return err;
}

int sl_plan_check(const struct sl_launch_options *options, const struct sl_plan_hosts *hosts,
                  struct sl_reason *reason)
{
    if (options->settings.replicas != 0 && hosts->ps_count < 2) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "--replicas 1 needs a second server for the backups: --ps 2 or more");
    }
    return check_security(options, hosts, reason);
}

/* Variables, because workers that are programs of the user read them too. Jobs of one host have
 * agents of their own. */
static int name_catalogue(const struct sl_launch_options *options,
                          const struct sl_plan_hosts *hosts)
{
    const char *given = options->settings.objects.catalogue;
    const char *catalogue = given != NULL               ? given
                            : hosts->objects.count != 0 ? hosts->objects.items[0]
                                                        : NULL;
    if (catalogue == NULL) {
        return 0;
    }
    const size_t length = strlen(catalogue);
    const char *agent = catalogue + (length > AGENT_NAME_MAX ? length - AGENT_NAME_MAX : 0);
    const bool is_set = setenv("STARLING_OBJECTS_CATALOGUE", catalogue, 1) == 0 &&
                        (!options->agents || setenv("STARLING_OBJECTS_AGENT", agent, 1) == 0);
    return is_set ? 0 : SL_ERR_NO_MEMORY;
}

static int append_agent(struct sl_plan_task *task, const struct sl_launch_options *options)
{
    const char *const words[] = {task->program, "agent", "--agent-name",
                                 getenv("STARLING_OBJECTS_AGENT")};
    const int err = sl_words_append_all(&task->argv, words, sizeof words / sizeof words[0]);
    return err != 0 ? err : append_words(&task->argv, &options->agent_flags);
}

static int append_member(struct sl_plan_task *task, const struct sl_launch_options *options,
                         const struct sl_plan_hosts *hosts, struct sl_reason *reason)
{
    const bool is_ps = task->role == SL_CLUSTER_PS;
    char workers[16], index[16];
    snprintf(workers, sizeof workers, "%u", hosts->workers.count);
    snprintf(index, sizeof index, "%u", task->index);
    const char *const words[] = {task->program,           "--ps-hosts",   hosts->ps,
                                 "--num-workers",         workers,        "--job-name",
                                 is_ps ? "ps" : "worker", "--task-index", index};
    int err = sl_words_append_all(&task->argv, words, sizeof words / sizeof words[0]);
    if (err == 0 && is_ps && hosts->objects.count > 0) {
        const char *const flag[] = {"--objects", hosts->objects.items[task->index]};
        err = sl_words_append_all(&task->argv, flag, sizeof flag / sizeof flag[0]);
    }
    if (err == 0) {
        err = append_words(&task->argv, is_ps ? &options->ps.flags : &options->worker.flags);
    }
    return err != 0 ? err : append_devices(task, options, hosts, reason);
}

/* ps/0 alone, which has the page of the job, gets the port of STARLING_HTTP; others a free one. */
static int append_http(struct sl_plan_task *task)
{
    const char *given = getenv("STARLING_HTTP");
    const char *port = given == NULL ? NULL : strrchr(given, ':');
    if (port == NULL || (task->role == SL_CLUSTER_PS && task->index == 0)) {
        return 0;
    }
    return sl_words_append_format(&task->variables, "STARLING_HTTP=%.*s:0", (int)(port - given),
                                  given);
}

int sl_plan_command(struct sl_plan_task *task, const struct sl_launch_options *options,
                    const struct sl_plan_hosts *hosts, struct sl_reason *reason)
{
    const bool is_worker = task->role == SL_CLUSTER_WORKER;
    const bool is_command = is_worker && options->worker_program.is_command;
    task->program = is_command
                        ? strdup(options->worker_program.args[0])
                        : sl_child_find_program(is_worker ? "starling-worker" : "starling-ps",
                                                options->bin_dir);
    sl_reason_set(reason, "out of memory");
    int err = task->program == NULL ? SL_ERR_NO_MEMORY : name_catalogue(options, hosts);
    err = err != 0 ? err : append_http(task);
    if (err == 0 && is_worker) {
        err = sl_worker_variables_append(&task->variables, options, hosts, task->index);
    }
    if (err == 0 && is_command) {
        err = append_words(&task->variables, &options->worker.flags);
    } else if (err == 0 && task->role == SL_PLAN_AGENT) {
        err = append_agent(task, options);
    } else if (err == 0) {
        err = append_member(task, options, hosts, reason);
    }
    for (char **argument = options->worker_program.args; is_worker && err == 0 && *argument != NULL;
         argument++) {
        err = sl_words_append(&task->argv, *argument);
    }
    return err;
}

int sl_plan_fill(struct sl_plan *plan, const struct sl_launch_options *options,
                 const struct sl_plan_hosts *hosts, struct sl_reason *reason)
{
    int err = sl_plan_check(options, hosts, reason);
    err = err != 0 ? err
                   : sl_plan_init(plan, hosts->ps_count, hosts->workers.count, hosts->agent_count);
    for (uint32_t i = 0; err == 0 && i < plan->task_count; i++) {
        err = sl_plan_command(&plan->tasks[i], options, hosts, reason);
    }
    return err;
}
