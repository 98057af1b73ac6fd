/* The plan lists the processes of a job: their roles, commands, and how to end them. Before
 * start. */
#ifndef SL_PROGRAMS_LAUNCH_PLAN_H
#define SL_PROGRAMS_LAUNCH_PLAN_H

#include "config/cluster.h"
#include "core/reason.h"
#include "programs/launch/options.h"
#include "programs/launch/words.h"

/* How to ask a process to end. */
enum sl_plan_stop {
    SL_PLAN_STOP_SIGNAL, /* SIGINT if the launcher received SIGINT, else SIGTERM */
    SL_PLAN_STOP_INT,   /* always SIGINT: the only one that srun forwards; SIGTERM kills its step */
    SL_PLAN_STOP_STDIN, /* close its standard input: the wrapper forwards no signals */
};

/* Of a task that is an agent: a launcher starts no scheduler. */
#define SL_PLAN_AGENT       SL_CLUSTER_SCHEDULER
#define SL_PLAN_ROLES       3

#define SL_PLAN_MASTER_PORT 29500 /* of torch.distributed; on other hosts than this one */

struct sl_plan_task {
    enum sl_cluster_role role;
    uint32_t index;
    char name[24];             /* "worker/3" */
    char where[280];           /* "" or " on node7", for messages */
    struct sl_words argv;      /* without terminating NULL */
    struct sl_words variables; /* NAME=VALUE, beside the environment of the launcher */
    char *program;             /* of argv, before it is wrapped */
    enum sl_plan_stop stop;
};

struct sl_plan {
    struct sl_plan_task *tasks; /* servers, workers, agents; each role by index */
    uint32_t task_count;
};

/* Where the servers listen, and where the workers run. */
struct sl_plan_hosts {
    char *ps; /* "a:1,b:2" */
    uint32_t ps_count;
    uint32_t agent_count;    /* 0 without --agents */
    struct sl_words workers; /* hosts by task index, IPv6 in brackets */
    uint32_t master_port;    /* of MASTER_PORT */
    struct sl_words objects; /* where the servers' engines listen; none without --objects */
};

/* Allocates all tasks, with indices and names. Errors: NO_MEMORY. */
int sl_plan_init(struct sl_plan *plan, uint32_t ps_count, uint32_t worker_count,
                 uint32_t agent_count);
void sl_plan_fini(struct sl_plan *plan);

/* Appends a server; objects_port is not used without --objects. Errors: NO_MEMORY. */
int sl_plan_hosts_append(struct sl_plan_hosts *hosts, const struct sl_launch_options *options,
                         const char *host, unsigned port, unsigned objects_port);
void sl_plan_hosts_fini(struct sl_plan_hosts *hosts);

/* Appends the program, the cluster flags and the user's arguments for the role to the task's argv;
 * the user's command has its flags among the variables. Independent of how the host is reached.
 * Sets STARLING_OBJECTS_CATALOGUE, and _AGENT, for all tasks, if there is a catalogue, and if there
 * are agents. Errors, with reason: INVALID (DPDK devices), NO_MEMORY. */
int sl_plan_command(struct sl_plan_task *task, const struct sl_launch_options *options,
                    const struct sl_plan_hosts *hosts, struct sl_reason *reason);

/* Checks that a server reachable from other hosts has a secret, or --insecure, and that there is a
 * second server for backups. hosts->ps must be set. Errors, with reason: INVALID, and those of
 * config/hosts.h. */
int sl_plan_check(const struct sl_launch_options *options, const struct sl_plan_hosts *hosts,
                  struct sl_reason *reason);

/* Plans all processes, after sl_plan_check. Errors: those of the functions above. */
int sl_plan_fill(struct sl_plan *plan, const struct sl_launch_options *options,
                 const struct sl_plan_hosts *hosts, struct sl_reason *reason);

/* Collects the flags for all servers, workers and agents: given flags that they have too,
 * --ps-reactors and --worker-reactors, --ps-args. Errors, with reason: INVALID (--ps-args),
 * NO_MEMORY. */
int sl_plan_flags(const struct sl_cli *cli, struct sl_launch_options *options,
                  struct sl_reason *reason);

/* Appends NAME=VALUE, for env(1), for each of the job's variables that is set, then the variables
 * of the task: for processes that do not inherit this environment. Errors: NO_MEMORY. */
int sl_plan_append_variables(struct sl_words *words, const struct sl_plan_task *task);

/* Replaces the command by `outer`, which it takes over and which sets the variables. */
void sl_plan_wrap(struct sl_plan_task *task, const struct sl_words *outer, enum sl_plan_stop stop,
                  const char *host);

#endif
