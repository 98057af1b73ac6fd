/* starling-launch starts the processes of a job, here or on other hosts, supervises and ends
 * them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli.h"
#include "config/cluster_store_settings.h"
#include "config/dmlc.h"
#include "core/endpoint.h"
#include "core/limits.h"
#include "core/log.h"
#include "tools/launch/completion.h"
#include "tools/launch/local.h"
#include "tools/launch/slurm.h"
#include "tools/launch/ssh.h"
#include "tools/launch/supervisor.h"

#define EXIT_USAGE 2

static struct sl_launch_options options = {
    .bind = "127.0.0.1",
    .ssh = SL_SSH_COMMAND,
    .grace_s = 30,
};

static const struct sl_cli_option table[] = {
    {.kind = SL_CLI_SECTION, .name = "The job"},
    {.kind = SL_CLI_U64,
     .name = "ps",
     .target = &options.ps_count,
     .least = 1,
     .most = SL_LIMIT_PS,
     .help = "Parameter server processes. Default: one, or as many as the host list names."},
    {.kind = SL_CLI_U64,
     .name = "workers",
     .target = &options.worker_count,
     .least = 1,
     .most = SL_LIMIT_WORKERS,
     .help = "Worker processes. Default: one, or as many as the host list names, or, under Slurm, "
             "the tasks of the allocation that are left."},
    {.kind = SL_CLI_U64,
     .name = "ps-reactors",
     .target = &options.ps_reactors,
     .most = SL_LIMIT_REACTORS,
     .help =
         "Reactor threads of each server (NETWORK_PS_CORE_NUMBER); 0: as the environment says."},
    {.kind = SL_CLI_U64,
     .name = "worker-reactors",
     .target = &options.worker_reactors,
     .most = SL_LIMIT_REACTORS,
     .help = "Reactor threads of each worker (NETWORK_WORKER_CORE_NUMBER); 0: as the environment "
             "says."},
    {.kind = SL_CLI_U64,
     .name = "replicas",
     .target = &options.replicas,
     .metavar = "N",
     .most = 1,
     .help =
         "Backups of each shard, 0 or 1, each on another server: needs --ps 2 or more. If a server "
         "fails, the job continues on its backups; with --restart-ps, the server is restarted too. "
         "Server 0 hosts the coordinator: it may fail only with --cluster-store or --restart-ps."},
    {.kind = SL_CLI_STRING,
     .name = "ps-args",
     .target = &options.ps_args,
     .metavar = "ARGS",
     .help = "More arguments for every server, as one word; quotes and backslashes work as in a "
             "shell."},
    {.kind = SL_CLI_FLAG,
     .name = "rdma",
     .target = &options.rdma,
     .help = "Every server also serves over RDMA. Workers on other hosts use it; workers on the "
             "same host use shared memory."},
    {.kind = SL_CLI_STRING,
     .name = "ps-dpdk-device",
     .target = &options.ps_devices,
     .metavar = "DEVICE?addr=A;...",
     .help = "DPDK devices of each server, as in its --dpdk-device. {task} stands for the server's "
             "index, {task+N} for that plus N; a device with {worker} or {worker+N} is repeated "
             "for each worker."},
    {.kind = SL_CLI_STRING,
     .name = "worker-dpdk-device",
     .target = &options.worker_devices,
     .metavar = "DEVICE?addr=A;...",
     .help = "DPDK devices of each worker, with which it reaches such servers: "
             "0000:3b:00.0?addr=10.0.0.{task+10}/24."},
    {.kind = SL_CLI_STRING,
     .name = "bin-dir",
     .target = &options.bin_dir,
     .metavar = "DIR",
     .help = "Directory of starling-ps and starling-worker on every host. Default: the directory "
             "of this program, else the PATH."},
    {.kind = SL_CLI_SECTION, .name = "Where to run: on this host, unless one of these is given"},
    {.kind = SL_CLI_STRING,
     .name = "host-list",
     .target = &options.host_list,
     .metavar = "FILE",
     .help = "Run on other hosts over ssh: lines \"[user@]host[:slots] ps|worker\"."},
    {.kind = SL_CLI_FLAG,
     .name = "slurm",
     .target = &options.slurm,
     .help = "Run on the hosts of the current Slurm allocation."},
    {.kind = SL_CLI_STRING,
     .name = "bind",
     .target = &options.bind,
     .metavar = "ADDRESS",
     .help = "Address that the servers listen on, on this host: 127.0.0.1 or ::1."},
    {.kind = SL_CLI_STRING,
     .name = "ssh",
     .target = &options.ssh,
     .metavar = "COMMAND",
     .help = "Command that is run with a host and a command."},
    {.kind = SL_CLI_U64,
     .name = "port-base",
     .target = &options.port_base,
     .metavar = "PORT",
     .most = 65535,
     .help = "On other hosts: server 0 listens on this port, server 1 on the next, and so on; 0: "
             "20000, or, under Slurm, a port derived from the job's number."},
    {.kind = SL_CLI_SECTION, .name = "Failures"},
    {.kind = SL_CLI_U64,
     .name = "restart-workers",
     .target = &options.restarts,
     .metavar = "N",
     .most = 1e9,
     .help = "Restart a worker that a signal or an exit status other than 0 ended, up to N times "
             "in all. It continues where the job is."},
    {.kind = SL_CLI_CHOICE,
     .name = "on-worker-loss",
     .target = &options.on_worker_loss,
     .choices = "fail|continue",
     .help = "What happens to the job when a worker failed and is not restarted."},
    {.kind = SL_CLI_U64,
     .name = "lease",
     .target = &options.lease_s,
     .metavar = "S",
     .most = 3600,
     .help =
         "How long a process may send no heartbeat before it expires; 0: as starling-ps decides."},
    SL_CLUSTER_STORE_SETTINGS_OPTION(options.store),
    SL_SECURITY_OPTIONS(options.security),
    {.kind = SL_CLI_FLAG,
     .name = "insecure",
     .target = &options.insecure,
     .help = "Runs on a network without a secret: everyone who reaches the servers can read and "
             "change the parameters."},
    SL_CHECKPOINT_SETTINGS_OPTIONS(options.checkpoint),
    {.kind = SL_CLI_U64,
     .name = "restart-ps",
     .target = &options.ps_restarts,
     .metavar = "N",
     .most = 1e9,
     .help =
         "Restart a server that a signal or an exit status other than 0 ended, up to N times in "
         "all. Needs --replicas 1 (the server then receives backups again) or --restore newest (it "
         "loads the newest checkpoint; workers wait for it, up to their --timeout)."},
    {.kind = SL_CLI_SECTION, .name = "Supervision"},
    {.kind = SL_CLI_STRING,
     .name = "log-dir",
     .target = &options.log_dir,
     .metavar = "DIR",
     .help = "Write output to DIR/ps-0.log, DIR/worker-3.log and so on, instead of here with the "
             "process's name before each line. Worker 0's standard output is still shown."},
    {.kind = SL_CLI_U64,
     .name = "timeout",
     .target = &options.timeout_s,
     .metavar = "S",
     .most = 1e9,
     .help = "Stop the job after S seconds; 0: never."},
    {.kind = SL_CLI_U64,
     .name = "grace",
     .target = &options.grace_s,
     .metavar = "S",
     .most = 1e6,
     .help = "Seconds that a process has to exit before it is killed."},
};

static const struct sl_cli cli = {
    .program = "starling-launch",
    .summary = "Starts a Starling job, supervises it, and ends it.",
    .usage = "[options] -- [arguments of starling-worker]",
    .options = table,
    .option_count = sizeof table / sizeof table[0],
};

/* Secrets and keys are read only if the job runs on this host: they must be here then. */
static int check_security(char *reason, size_t reason_bytes)
{
    if (options.host_list != NULL || options.slurm) {
        return sl_security_check_flags(&options.security, reason, reason_bytes);
    }
    struct sl_security unused;
    int err = sl_security_resolve(&options.security, getenv(SL_SECURITY_SECRET_VARIABLE), &unused,
                                  reason, reason_bytes);
    explicit_bzero(&unused, sizeof unused);
    return err;
}

/* Fills `report` if this is one of several launchers. */
static int plan_job(struct sl_plan *plan, struct sl_completion *report, char *reason,
                    size_t reason_bytes)
{
    if (options.slurm && options.host_list != NULL) {
        snprintf(reason, reason_bytes, "--slurm and --host-list contradict each other: say one");
        return SL_ERR_INVALID;
    }
    if (strcmp(options.bind, "127.0.0.1") != 0 && strcmp(options.bind, "::1") != 0) {
        snprintf(reason, reason_bytes, "--bind=%.80s: accepts 127.0.0.1 or ::1", options.bind);
        return SL_ERR_INVALID;
    }
    struct sl_dmlc dmlc;
    int err = sl_dmlc_read(&dmlc, reason, reason_bytes);
    if (err == 0 && dmlc.in_use) {
        snprintf(reason, reason_bytes,
                 "DMLC_ROLE or DMLC_PS_ROOT_URI is set: that job has a scheduler, and one process "
                 "is started for each role; starling-launch starts a job of its own: unset them");
        err = SL_ERR_INVALID;
    }
    if (err != 0) {
        return err;
    }
    sl_plan_environment(&options);
    err = check_security(reason, reason_bytes);
    struct sl_checkpoint_settings checkpoint;
    if (err == 0) {
        err = sl_checkpoint_settings_read(&options.checkpoint, false, &checkpoint, reason,
                                          reason_bytes);
    }
    if (err == 0 && options.ps_restarts > 0 && options.replicas == 0 &&
        checkpoint.restore != SL_CHECKPOINT_RESTORE_NEWEST) {
        snprintf(reason, reason_bytes,
                 "--restart-ps says nothing without --checkpoint-dir and --restore newest, or "
                 "--replicas 1: a ps that is started again would start empty");
        err = SL_ERR_INVALID;
    }
    const char *store = getenv(SL_CLUSTER_STORE_SETTINGS_VARIABLE);
    options.has_store = options.store != NULL || (store != NULL && store[0] != '\0');
    if (err != 0) {
        return err;
    }
    if (options.host_list != NULL) {
        return sl_ssh_plan(&options, plan, reason, reason_bytes);
    }
    if (options.slurm) {
        return sl_slurm_plan(&options, plan, report, reason, reason_bytes);
    }
    options.ps_count = options.ps_count == 0 ? 1 : options.ps_count;
    options.worker_count = options.worker_count == 0 ? 1 : options.worker_count;
    return sl_local_plan(&options, plan, reason, reason_bytes);
}

int main(int argc, char **argv)
{
    char reason[1024] = "";
    int own = 1;
    while (own < argc && strcmp(argv[own], "--") != 0) {
        own++;
    }
    options.worker_args = own < argc ? argv + own + 1 : argv + argc;
    sl_log_setup(SL_LOG_INFO, "launch");
    int result = sl_cli_parse(&cli, own, argv, reason, sizeof reason);
    if (result == SL_CLI_EXIT_OK) {
        return 0;
    }
    struct sl_plan plan = {0};
    struct sl_completion report = SL_COMPLETION_NONE;
    if (result == SL_CLI_RUN) {
        result = plan_job(&plan, &report, reason, sizeof reason);
    }
    if (result != 0) {
        fprintf(stderr, "starling-launch: %s\n", reason);
        sl_completion_fini(&report);
        sl_plan_fini(&plan);
        return EXIT_USAGE;
    }
    const int status = sl_supervisor_run(&plan, &options, &report);
    sl_completion_send(&report, status);
    sl_completion_fini(&report);
    sl_plan_fini(&plan);
    return status;
}
