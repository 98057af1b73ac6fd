/* The processes of a job, before any of them runs: who they are, what to execute, how to end them.
 * Before start. */
#ifndef SL_TOOLS_LAUNCH_PLAN_H
#define SL_TOOLS_LAUNCH_PLAN_H

#include "config/cluster.h"
#include "tools/launch/options.h"
#include "tools/launch/shell_split.h"

/* How a process is asked to end. */
enum sl_plan_stop {
    SL_PLAN_STOP_SIGNAL, /* the signal that the launcher was sent itself, else SIGTERM */
    SL_PLAN_STOP_TERM,   /* always SIGTERM: what stands between passes only that on */
    SL_PLAN_STOP_STDIN, /* by closing its standard input: what stands between passes no signal on */
};

struct sl_plan_task {
    enum sl_cluster_role role;
    uint32_t index;
    char name[24];              /* "worker/3" */
    char where[280];            /* "" or " on node7", for messages */
    struct sl_shell_words argv; /* without the terminating NULL */
    enum sl_plan_stop stop;
};

struct sl_plan {
    struct sl_plan_task *tasks; /* ps first, each role in the order of indices */
    uint32_t task_count;
};

/* The two host lists of the cluster, "a:1,b:2". */
struct sl_plan_hosts {
    char *ps;
    char *workers;
};

/* Makes room for all tasks, numbered and named. Errors: NO_MEMORY. */
int sl_plan_init(struct sl_plan *plan, uint32_t ps_count, uint32_t worker_count);
void sl_plan_fini(struct sl_plan *plan);

/* Appends to the task's argv the program, the cluster flags, and the user's arguments for its role:
 * the same whatever way leads to the machine. Errors: INVALID (--ps-args, --replicas), NO_MEMORY,
 * with reason. */
int sl_plan_command(struct sl_plan_task *task, const struct sl_launch_options *options,
                    const struct sl_plan_hosts *hosts, char *reason, size_t reason_bytes);

/* A ps that listens where other machines reach it needs a secret, or --insecure. hosts: the ps are
 * filled in. Errors: INVALID, and those of config/hosts.h, with reason. */
int sl_plan_check_security(const struct sl_launch_options *options,
                           const struct sl_plan_hosts *hosts, char *reason, size_t reason_bytes);

/* Appends "item" to a list joined by commas; *list begins as NULL and is the caller's to free.
 * Errors: NO_MEMORY. */
int sl_plan_join(char **list, const char *item);

/* Sets the variables that --ps-reactors and --worker-reactors stand for, and removes TF_CONFIG: the
 * launcher says the cluster by flags. */
void sl_plan_environment(const struct sl_launch_options *options);

/* Appends NAME=VALUE, for env(1), of every variable of the job that is set here: what a process
 * needs that does not inherit this environment. Errors: NO_MEMORY. */
int sl_plan_append_variables(struct sl_shell_words *words);

#endif
