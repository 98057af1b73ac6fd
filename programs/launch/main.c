/* starling-launch starts the processes of a job, here or on other hosts, supervises and ends
 * them. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings_cli.h"
#include "core/limits.h"
#include "core/log.h"
#include "programs/launch/completion.h"
#include "programs/launch/local.h"
#include "programs/launch/slurm.h"
#include "programs/launch/ssh.h"
#include "programs/launch/supervisor.h"

static struct sl_launch_options options = {
    .bind = "127.0.0.1",
    .ssh = SL_SSH_COMMAND,
};

static const struct sl_cli_option table[] = {
    {.kind = SL_CLI_SECTION, .name = "Job"},
    SL_CLI_OPTION(
        U64, &options.ps.count, .name = "ps", .least = 1, .most = SL_LIMIT_PS,
        .help = "Parameter server processes. Default: one, or as many as the host list names."),
    SL_CLI_OPTION(
        U64, &options.worker.count, .name = "workers", .least = 1, .most = SL_LIMIT_WORKERS,
        .help =
            "Worker processes: COMMAND, else starling-worker. Default: one, or as many as the host "
            "list names, or, under Slurm, the tasks of the allocation that are left."),
    SL_CLI_OPTION(U32, &options.ps.reactors, .name = "ps-reactors",
                  .aliases = "NETWORK_PS_CORE_NUMBER", .refuses_empty = true, .least = 1,
                  .most = SL_LIMIT_REACTORS,
                  .help = "Reactor threads of each server, as in its --reactors."),
    SL_CLI_OPTION(U32, &options.worker.reactors, .name = "worker-reactors", .preset = "1",
                  .aliases = "NETWORK_WORKER_CORE_NUMBER", .refuses_empty = true,
                  .most = SL_LIMIT_REACTORS,
                  .help = "Reactor threads of each worker, as in its --reactors; 0: none."),
    SL_CLI_OPTION(BOOL, &options.ps.polling, .name = "ps-polling", .aliases = "PS_ENABLE_POLLING",
                  .refuses_empty = true, .help = "Idle reactors of servers spin."),
    SL_CLI_OPTION(BOOL, &options.worker.polling, .name = "worker-polling",
                  .aliases = "WORKER_ENABLE_POLLING", .refuses_empty = true,
                  .help = "Idle reactors of workers spin."),
    SL_CLI_OPTION(
        STRING, &options.ps_args, .name = "ps-args", .metavar = "ARGS",
        .help = "More arguments for every server, as one word; quotes and backslashes work as in a "
                "shell. Flags of starling-launch are refused."),
    SL_CLI_OPTION(
        STRING, &options.ps.devices, .name = "ps-dpdk-device", .metavar = "DEVICE?addr=A;...",
        .help =
            "DPDK devices of each server, as in its --dpdk-device. {task} stands for the server's "
            "index, {task+N} for that plus N; a device with {worker} or {worker+N} is repeated "
            "for each worker."),
    SL_CLI_OPTION(STRING, &options.worker.devices, .name = "worker-dpdk-device",
                  .metavar = "DEVICE?addr=A;...",
                  .help = "DPDK devices of each worker, with which it reaches such servers: "
                          "0000:3b:00.0?addr=10.0.0.{task+10}/24."),
    SL_CLI_OPTION(BOOL, &options.objects, .name = "objects",
                  .help =
                      "Every server stores objects; server 0 also hosts their catalogue, unless "
                      "--catalogue names another one. All processes get its address in "
                      "STARLING_OBJECTS_CATALOGUE."),
    SL_CLI_OPTION(BOOL, &options.agents, .name = "agents",
                  .help = "Start an agent on every host: its processes read objects from one copy "
                          "in shared memory. Needs --objects or --catalogue. Logs: agent-0.log."),
    SL_CLI_OPTION(
        STRING, &options.bin_dir, .name = "bin-dir", .metavar = "DIR",
        .help =
            "Directory of starling-ps and starling-worker on every host. Default: the directory "
            "of this program, else the PATH."),
    {.kind = SL_CLI_SECTION, .name = "Where to run: on this host, unless one of these is given"},
    SL_CLI_OPTION(STRING, &options.host_list, .name = "host-list", .metavar = "FILE",
                  .help = "Run on other hosts over ssh: lines \"[user@]host[:slots] ps|worker\"."),
    SL_CLI_OPTION(BOOL, &options.slurm, .name = "slurm",
                  .help = "Run on the hosts of the current Slurm allocation."),
    SL_CLI_OPTION(STRING, &options.bind, .name = "bind", .metavar = "ADDRESS",
                  .help = "Address that the servers listen on, on this host: 127.0.0.1 or ::1."),
    SL_CLI_OPTION(STRING, &options.ssh, .name = "ssh", .metavar = "COMMAND",
                  .help = "Command that replaces ssh; it gets a host and a command."),
    SL_CLI_OPTION(
        U64, &options.port_base, .name = "port-base", .metavar = "PORT", .most = 65535,
        .help =
            "On other hosts: server 0 listens on this port, server 1 on the next, and so on; 0: "
            "20000, or, under Slurm, a port derived from the job's number."),
    SL_CLI_OPTION(U32, &options.master_port, .name = "master-port", .metavar = "PORT", .least = 1,
                  .most = 65535,
                  .help = "MASTER_PORT of the workers, where torch.distributed meets on worker 0's "
                          "host. Default: a free port; on other hosts 29500."),
    {.kind = SL_CLI_SECTION, .name = "Failures"},
    SL_CLI_OPTION(
        U64, &options.worker.restarts, .name = "restart-workers", .metavar = "N", .most = 1e9,
        .help = "Restart a worker that ended with a signal or another exit status than 0, up to N "
                "times in all (if srun starts the launchers: N times each). It continues at the "
                "job's iteration."),
    SL_CLI_OPTION(CHOICE, &options.on_worker_loss, .name = "on-worker-loss",
                  .choices = "fail|continue",
                  .help = "What happens to the job when a worker failed and is not restarted."),
    SL_CLI_OPTION(
        U64, &options.ps.restarts, .name = "restart-ps", .metavar = "N", .most = 1e9,
        .help =
            "Restart a server that a signal or an exit status other than 0 ended, up to N times in "
            "all (if srun starts the launchers: N times each). Needs --replicas 1 (the server then "
            "receives backups again) or --restore newest (it loads the newest checkpoint; workers "
            "wait for it, up to their --timeout)."),
    {.kind = SL_CLI_SECTION, .name = "Supervision"},
    SL_CLI_OPTION(
        STRING, &options.log_dir, .name = "log-dir", .metavar = "DIR",
        .help =
            "Write output to DIR/ps-0.log, DIR/worker-3.log and so on, instead of here with the "
            "process's name before each line. Worker 0's standard output is still shown."),
    SL_CLI_OPTION(DURATION, &options.job_timeout_ns, .name = "job-timeout", .preset = "0",
                  .most = 1e9, .help = "Stop the job after this time; 0: never."),
    SL_CLI_OPTION(DURATION, &options.grace_ns, .name = "grace", .preset = "30s", .most = 1e6,
                  .help = "Longest time for a process to exit before it is killed."),
};

/* Secrets and keys are read only if the job runs on this host: they must be here then. */
static int check_security(struct sl_reason *reason)
{
    const struct sl_security_flags *flags = &options.settings.flags.security;
    if (options.host_list != NULL || options.slurm) {
        return sl_security_check_flags(flags, reason);
    }
    struct sl_security unused;
    int err = sl_security_resolve(flags, &unused, reason);
    explicit_bzero(&unused, sizeof unused);
    return err;
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0';
}

/* Checks the flags together. Errors: INVALID; those of the security files. */
static int check(const struct sl_cli *cli, struct sl_reason *reason)
{
    const struct sl_settings *settings = &options.settings;
    int err = 0;
    if (options.slurm && options.host_list != NULL) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "--slurm contradicts --host-list: give one of them");
    } else if (strcmp(options.bind, "127.0.0.1") != 0 && strcmp(options.bind, "::1") != 0) {
        err = sl_reason_fail(reason, SL_ERR_INVALID, "--bind=%.80s: accepts 127.0.0.1 or ::1",
                             options.bind);
    } else if (options.agents && !options.objects && settings->objects.catalogue == NULL) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "--agents needs --objects, or --catalogue: where objects are listed");
    } else if (options.worker_program.is_command &&
               strchr(options.worker_program.args[0], '=') != NULL) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "%.120s: accepts a command without =; for a variable write: env "
                             "NAME=VALUE COMMAND",
                             options.worker_program.args[0]);
    } else if (options.worker_program.is_command && options.worker.devices != NULL) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "--worker-dpdk-device is for starling-worker: a command finds its "
                             "devices in STARLING_DPDK_DEVICE");
    } else if (is_set("DMLC_ROLE") || is_set("DMLC_PS_ROOT_URI")) {
        err = sl_reason_fail(
            reason, SL_ERR_INVALID,
            "DMLC_ROLE or DMLC_PS_ROOT_URI is set: it describes a job with a scheduler, whose "
            "processes are started one by one; unset it for starling-launch");
    } else {
        err = check_security(reason);
    }
    if (err == 0) {
        err = sl_settings_check_checkpoint_flags(cli, settings, false, reason);
    }
    if (err == 0 && options.ps.restarts > 0 && settings->replicas == 0 &&
        settings->checkpoint.restore != SL_CHECKPOINT_RESTORE_NEWEST) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "--restart-ps has no effect without --checkpoint-dir and --restore "
                             "newest, or --replicas 1: a restarted server would start empty");
    }
    return err;
}

/* Fills `completion` if this is one of several launchers. */
static int plan_job(struct sl_plan *plan, struct sl_completion *completion,
                    struct sl_reason *reason)
{
    const bool is_elsewhere = options.host_list != NULL || options.slurm;
    if (is_elsewhere && options.master_port == 0) {
        options.master_port = SL_PLAN_MASTER_PORT;
    }
    if (is_elsewhere) {
        return options.slurm ? sl_slurm_plan(&options, plan, completion, reason)
                             : sl_ssh_plan(&options, plan, reason);
    }
    options.ps.count = options.ps.count == 0 ? 1 : options.ps.count;
    options.worker.count = options.worker.count == 0 ? 1 : options.worker.count;
    return sl_local_plan(&options, plan, reason);
}

static uint32_t core_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1024;
}

/* Parses the flags and checks them. Returns as sl_cli_parse. */
static int parse(int argc, char **argv, struct sl_reason *reason)
{
    static struct sl_settings_cli all;
    const struct sl_cli own = {
        .program = "starling-launch",
        .summary = "Starts a Starling job, supervises it, and ends it.",
        .usage = "[options] -- COMMAND [ARG...]\n"
                 "       starling-launch [options] [-- arguments of starling-worker]",
        .options = table,
        .option_count = sizeof table / sizeof table[0],
    };
    options.core_count = core_count();
    sl_settings_cli_init(SL_PROGRAM_LAUNCH, options.core_count, &own, &options.settings, &all);
    options.ps.reactors = options.settings.reactors.count;
    int result = sl_cli_parse(&all.cli, argc, argv, reason);
    if (result == SL_CLI_RUN) {
        result = check(&all.cli, reason);
    }
    return result != SL_CLI_RUN ? result : sl_plan_flags(&all.cli, &options, reason);
}

int main(int argc, char **argv)
{
    struct sl_reason reason = {.text = "out of memory"};
    int own = 1;
    while (own < argc && strcmp(argv[own], "--") != 0) {
        own++;
    }
    options.worker_program.args = own < argc ? argv + own + 1 : argv + argc;
    options.worker_program.is_command =
        options.worker_program.args[0] != NULL && options.worker_program.args[0][0] != '-';
    sl_log_setup(SL_LOG_INFO, "launch");
    int result = parse(own, argv, &reason);
    if (result == SL_CLI_EXIT_OK) {
        return 0;
    }
    struct sl_plan plan = {0};
    struct sl_completion completion = SL_COMPLETION_NONE;
    if (result == SL_CLI_RUN) {
        unsetenv("TF_CONFIG"); /* flags describe the cluster */
        unsetenv("STARLING_TASK_INDEX");
        result = plan_job(&plan, &completion, &reason);
    }
    int status = SL_CLI_EXIT_USAGE;
    if (result != 0) {
        fprintf(stderr, "starling-launch: %s\n", reason.text);
    } else {
        status = sl_supervisor_run(&plan, &options, &completion);
        sl_completion_send(&completion, status);
    }
    sl_completion_fini(&completion);
    sl_plan_fini(&plan);
    sl_words_fini(&options.ps.flags);
    sl_words_fini(&options.worker.flags);
    sl_words_fini(&options.agent_flags);
    return status;
}
