/* Declarations shared by the files of a process only. process.c has startup and shutdown; each
 * other file has its section below. */
#ifndef SL_PS_PROCESS_INTERNAL_H
#define SL_PS_PROCESS_INTERNAL_H

#include <inttypes.h>

#include "net/shm/shm.h"
#include "ps/agent/agent.h"
#include "ps/coordinator/coordinator.h"
#include "ps/process/memory_plan.h"
#include "ps/process/process.h"
#include "ps/server/checkpoint.h"
#include "ps/server/server.h"
#include "reactor/offload.h"

#define SL_PROCESS_STAGES (SL_COORDINATOR_OVER + 1)

struct sl_process;
struct sl_process_checkpoints;
struct sl_process_restore;
struct sl_process_store;

/* Hooks by which a simulation replaces process.c. */
struct sl_process_sim_hooks {
    int (*join)(void *ctx);
    void (*answer)(void *ctx, uint32_t core, int result);
    int64_t (*time_s)(void *ctx);
    void *ctx;
};

struct sl_process_core;

/* The shards of which a process has copies: its own and, with replicas, those of the previous
 * server. */
enum { SL_PROCESS_HOME, SL_PROCESS_PARTNER, SL_PROCESS_HOSTED_MAX };

/* Names one server of a core for a callback. */
struct sl_process_seat {
    struct sl_process_core *core;
    uint32_t which; /* SL_PROCESS_HOME or SL_PROCESS_PARTNER */
};

/* One reactor and its servers. Used by its thread, except what is set before start. */
struct sl_process_core {
    struct sl_process *process;
    uint32_t index;
    struct sl_reactor *reactor;
    struct sl_process_seat seats[SL_PROCESS_HOSTED_MAX];
    bool loads[SL_PROCESS_HOSTED_MAX]; /* the server loads a checkpoint */
    uint32_t drains_left;
    struct sl_mailbox_lane *to_core; /* used by the main thread */
    struct sl_mailbox_lane *to_main; /* used by the reactor */
    struct sl_message_stats stats;   /* written at stop, read after join */
};

enum sl_process_report {
    SL_PROCESS_REPORT_NOTHING,
    SL_PROCESS_REPORT_IN_SYNC,
    SL_PROCESS_REPORT_FAILED,
};

/* A replica group of which this process has one copy. Reactor 0. */
struct sl_process_replica_group {
    struct sl_message_ps ps;     /* owner of the shards, as last received */
    struct sl_message_ps backup; /* holder of the backups, if any */
    uint64_t told_epoch;         /* last epoch sent to the cores */
    uint32_t in_sync_count;      /* cores that reported in sync */
    enum sl_process_report report;
};

#define SL_PROCESS_IN_SYNC ((uint64_t)1 << 32)

/* One set of hosted shards. Reactor 0; the cores read it after the mail that announces it. */
struct sl_process_hosted {
    uint32_t first_shard;
    bool restores;      /* the cores load a checkpoint */
    bool switches_over; /* the coordinator will promote the backup when this process leaves */
    struct sl_process_replica_group group; /* with replicas */
};

struct sl_process {
    struct sl_process_options options;
    struct sl_memory_plan memory;
    uint64_t incarnation;
    struct sl_process_core *cores;
    struct sl_reactor **reactors;
    struct sl_server **servers; /* by HOME, PARTNER, then by core: sl_process_server */
    uint32_t created_count;     /* reactors */
    uint32_t started_count;
    struct sl_coordinator *coordinator;
    struct sl_endpoint bound_control, bound_data, bound_bypass;
    char host[SL_SHM_HOST_BYTES]; /* "": shared memory is not used */
    char name[16];                /* "ps/1", "scheduler"; "ps" until the task is known */

    /* Reactor 0. Other threads read the numbers after the mail that announces them. */
    struct sl_agent *member;
    uint32_t shard_count;
    struct sl_process_hosted hosted[SL_PROCESS_HOSTED_MAX]; /* by HOME, PARTNER */
    bool has_shards;                                        /* the cores have their shard numbers */
    uint64_t lease_ns;
    uint32_t task_index;                                /* valid once the cluster is known */
    char why[SL_PROCESS_STAGES][SL_MESSAGE_TEXT_BYTES]; /* each written once, before its mail */
    struct sl_process_checkpoints *checkpoints;         /* NULL: no checkpoint directory */
    struct sl_process_restore *restore;                 /* likewise */
    bool is_open;                                /* clients are welcomed, or will be at once */
    struct sl_process_store *metastore;          /* NULL: none */
    bool ends_job;                               /* SCHEDULER: a signal ends the job */
    const struct sl_process_sim_hooks *stand_in; /* NULL: a real process */
    bool abandoned; /* last reactor: no scheduler and no worker is left */

    struct sl_mailbox *mailbox; /* of the main thread */
    int signal_fd;
    int signal;              /* received; 0: none */
    uint32_t answers_wanted; /* from cores */
    int result;              /* first error of a core */
    bool over;               /* the job has ended, and this process stops */
    bool job_failed;         /* SCHEDULER: the job ended with an error */
    bool is_unsaved;         /* the last checkpoint failed; written by reactor 0 until it stops */
};

/* Number of hosted sets of shards. */
static inline uint32_t sl_process_hosted_count(const struct sl_process *process)
{
    return 1 + process->options.replicas;
}

/* Any thread. */
static inline struct sl_server *sl_process_server(const struct sl_process *process, uint32_t which,
                                                  uint32_t core)
{
    return process->servers[which * process->options.reactor_count + core];
}

/* process.c */

/* Reports to the main thread that its request is done, or that something failed. The core's
 * reactor. */
void sl_process_answer(struct sl_process_core *core, int result);

/* Registers with the coordinator. Reactor 0. Errors: as of sl_agent_open. */
int sl_process_join(struct sl_process *process);

/* memory.c */

/* Sets the pool sizes of a server from the plan. */
void sl_process_memory_apply(const struct sl_memory_plan *plan, struct sl_server_options *server);

/* checkpoint.c */

/* Prepares the core's servers for checkpoints, if there is a directory. The first core also creates
 * the state of the process. The core's reactor. Errors: NO_MEMORY, IO, TOO_LARGE. */
int sl_process_checkpoint_open(struct sl_process_core *core);

/* Callbacks of the agent. */
void sl_process_on_checkpoint(void *process, const struct sl_message_checkpoint *begun);
void sl_process_on_checkpoint_complete(void *process,
                                       const struct sl_message_checkpoint_complete *complete);

/* Returns the disk of the checkpoints. Any thread. */
const struct sl_disk *sl_process_disk(const struct sl_process_checkpoint *options);

/* A job on the directory of the checkpoints. Owned by the offload thread while posted. */
struct sl_process_disk_job {
    struct sl_offload_job job; /* must be first */
    void (*work)(struct sl_process_disk_job *job);
    void (*done)(struct sl_process_disk_job *job);
    struct sl_process *process;
    const struct sl_disk *disk;
    const char *directory;
    int err; /* set by `work`, or because there is no thread */
    char reason[SL_SERVER_CHECKPOINT_REASON_BYTES];
};

/* Posts a zeroed job. `work` runs on the offload thread, then `done` on reactor 0, which frees the
 * job. */
void sl_process_disk_job_post(struct sl_process *process, struct sl_offload *offload,
                              struct sl_process_disk_job *job,
                              void (*work)(struct sl_process_disk_job *job),
                              void (*done)(struct sl_process_disk_job *job));

/* A mail to the first core: fences writes, and makes a last checkpoint if there are writes to save.
 * One answer follows. */
void sl_process_checkpoint_last(void *core, uint64_t unused, uint64_t unused_too);

/* Call when the agent is closed. Reactor 0. */
void sl_process_checkpoint_close(struct sl_process *process);

/* restore.c */

/* Searches the directory for checkpoints, then joins the cluster. Reactor 0. Errors: NO_MEMORY, IO,
 * TOO_LARGE; later errors are answered. */
int sl_process_restore_begin(struct sl_process *process);

/* Result of the search. */
struct sl_process_restore_candidate {
    uint64_t number;   /* checkpoint to restore; 0: none */
    uint64_t greatest; /* greatest number in the directory, complete or not; 0: none */
    struct sl_message_numbers complete;   /* to be registered */
    struct sl_message_numbers unfinished; /* likewise */
};

/* Returns the result; zeros before the search ends, and without a directory. Reactor 0. */
struct sl_process_restore_candidate sl_process_restore_found(const struct sl_process *process);

/* Call when the cluster is known. Returns the checkpoint to restore; 0: none. Reactor 0. */
uint64_t sl_process_restore_joined(struct sl_process *process);

/* Call when the core has its shards. Loads checkpoint `number` into the servers whose hosted shards
 * are to be restored; the others start serving. An answer follows from each core. */
void sl_process_restore_core(struct sl_process_core *core, uint64_t number);

/* Reactor 0. */
void sl_process_restore_close(struct sl_process *process);

/* Returns the options for a coordinator in this process. */
struct sl_coordinator_options sl_process_coordinator_options(struct sl_process *process);

/* leadership.c: reactor 0; no effect without a metastore */

/* Opens the metastore. Call after the server is created. Errors: NO_MEMORY, IO, TOO_LARGE, INVALID;
 * logged. */
int sl_process_store_open(struct sl_process_core *core);

/* Starts to campaign, if this process can host the coordinator. Call when it listens. */
void sl_process_store_begin(struct sl_process *process);

/* Returns the last known endpoint of the coordinator. */
struct sl_endpoint sl_process_store_coordinator(const struct sl_process *process);

/* Callback of the server: the connection of a member is closed. */
void sl_process_store_gone(void *process, uint64_t peer);

/* Resigns the leadership, then calls done(core). */
void sl_process_store_end(struct sl_process_core *core, void (*done)(void *core));

/* Call before the server is destroyed. */
void sl_process_store_close(struct sl_process *process);

/* listen.c */

/* Drops a bypass endpoint that cannot work, with a warning. Call before cores exist. Errors,
 * logged: UNSUPPORTED (the shards have no other endpoint). */
int sl_process_listen_check(struct sl_process *process);

/* Selects the transports of a server. */
void sl_process_listen_choose(const struct sl_process *process, struct sl_server_options *server);

/* Handles the result of creating a core's server: drops or explains a failed bypass transport. The
 * core's reactor; the first core calls it first. */
void sl_process_listen_created(struct sl_process_core *core, int err);

/* Listens at all endpoints of the process. Reactor 0. Errors, logged: those of sl_server_listen for
 * the control and the data endpoint. */
int sl_process_listen(struct sl_process_core *core);

/* job.c: on reactor 0 */

/* Callback of the agent: the job has ended. May be repeated after a reconnect. */
void sl_process_on_ended(void *process, const char *why);

/* Callback of the agent: no connection to the scheduler for long. Ends the process if no worker is
 * left. */
void sl_process_on_absent(void *process);

/* Callback of a scheduler's coordinator: a new stage of the job, once each. */
void sl_process_on_stage(void *process, enum sl_coordinator_stage stage, int err, const char *why);

/* A mail to a scheduler's core: a signal came. sl_process_on_stage follows. */
void sl_process_end_job(void *core, uint64_t signal, uint64_t unused);

/* Any thread. */
const char *sl_process_signal_name(int signal);

/* Blocks SIGTERM and SIGINT, and delivers them through signal_fd. Main thread. Errors: IO. */
int sl_process_block_signals(struct sl_process *process);

/* Reads a signal; signal_fd is readable. */
void sl_process_take_signal(struct sl_process *process);

/* A mail to core 0: leaves the cluster and drains all servers; each core answers. */
void sl_process_drain(void *core, uint64_t a, uint64_t b);

/* replica_groups.c */

/* Returns true if this process has tables; each table is on all shards. Reactor 0. */
bool sl_process_has_tables(const struct sl_process *process);

/* Runs `run` on every core when the process stops, with hosted[].switches_over set for
 * sl_process_replica_switch_over. Reactor 0. */
void sl_process_replica_end(struct sl_process *process, sl_mail_fn *run);

/* Passes switches_over to the servers of a core. */
void sl_process_replica_switch_over(struct sl_process_core *core);

/* Returns true if this process is the primary of those shards. Without replicas it is that of its
 * own. Reactor 0. */
bool sl_process_replica_is_primary(const struct sl_process *process, uint32_t which);

/* Callback of the agent: a new version of the cluster. */
void sl_process_on_cluster(void *process, const struct sl_message_cluster *cluster);

/* Sends new epochs to the cores, once they know their shards. Reactor 0. */
void sl_process_replica_tell(struct sl_process *process);

/* Callbacks of a server; `core` is its core. */
void sl_process_on_replica_state_changed(void *core, uint32_t local_index, uint64_t epoch,
                                         bool in_sync);
void sl_process_on_replica_failed(void *core, int err);

/* report.c: on the main thread */

/* Sets the name of the process, and again when its task is known. */
void sl_process_report_name(struct sl_process *process);

/* Prints the line that the process accepts connections. */
void sl_process_report_ready(const struct sl_process *process);

/* Prints a new stage of a scheduler's job. */
void sl_process_report_stage(const struct sl_process *process, enum sl_coordinator_stage stage,
                             int err);

/* Logs that the process could not start. */
void sl_process_report_failure(const struct sl_process *process, int err);

/* Prints the last line. */
void sl_process_report_totals(const struct sl_process *process);

#endif
