/* What process.c (its life), process_listen.c (where it is reached), process_job.c (why its life is
 * over) and process_report.c (what it prints) share. */
#ifndef SL_PS_PROCESS_INTERNAL_H
#define SL_PS_PROCESS_INTERNAL_H

#include <inttypes.h>

#include "net/shm/shm.h"
#include "ps/agent/agent.h"
#include "ps/coordinator/coordinator.h"
#include "ps/process/memory_plan.h"
#include "ps/process/process.h"
#include "ps/server/server.h"

#define SL_PROCESS_STAGES (SL_COORDINATOR_OVER + 1)

struct sl_process;
struct sl_process_checkpoints;
struct sl_process_restore;
struct sl_process_store;

/* What a simulation does in place of process.c, where it puts a process together by itself. */
struct sl_process_sim_hooks {
    int (*join)(void *ctx);
    void (*answer)(void *ctx, uint32_t core, int result);
    int64_t (*time_s)(void *ctx);
    void *ctx;
};

struct sl_process_core;

/* A server of a core: its own, or, with replicas, the guest. */
struct sl_process_hosted {
    struct sl_process_core *core;
    uint32_t which; /* SL_PROCESS_HOME, SL_PROCESS_PARTNER */
};

enum { SL_PROCESS_HOME, SL_PROCESS_PARTNER, SL_PROCESS_HOSTED_MAX };

/* One reactor, with its servers. Its thread's, but for what is set before start. */
struct sl_process_core {
    struct sl_process *process;
    uint32_t index;
    struct sl_reactor *reactor;
    struct sl_server *server;
    struct sl_server *partner; /* with replicas: that has the backup of another ps's shard */
    struct sl_process_hosted seats[SL_PROCESS_HOSTED_MAX];
    uint32_t loads; /* which of them are loaded from a checkpoint: bits */
    uint32_t drains_left;
    struct sl_mailbox_lane *to_core; /* the main thread's */
    struct sl_mailbox_lane *to_main; /* the reactor's */
    struct sl_message_stats stats;   /* written when it stops, read after join */
};

enum sl_process_report {
    SL_PROCESS_REPORT_NOTHING,
    SL_PROCESS_REPORT_IN_SYNC,
    SL_PROCESS_REPORT_FAILED,
};

/* The shards of a ps and their backups, of which this process has one or the other: reactor 0's. */
struct sl_process_replica_group {
    struct sl_message_ps ps;     /* whose they are, as told last */
    struct sl_message_ps backup; /* who has the backups, where anybody has */
    uint64_t told_epoch;         /* to the cores */
    uint32_t in_sync_count;      /* of the cores */
    enum sl_process_report report;
};

#define SL_PROCESS_IN_SYNC ((uint64_t)1 << 32)

struct sl_process {
    struct sl_process_options options;
    struct sl_memory_plan memory;
    uint64_t incarnation;
    struct sl_process_core *cores;
    struct sl_reactor **reactors;
    struct sl_server **servers; /* with replicas, guests behind the own ones */
    uint32_t created_count;     /* of reactors */
    uint32_t started_count;
    struct sl_coordinator *coordinator;
    struct sl_endpoint bound_control, bound_data, bound_bypass;
    char host[SL_SHM_HOST_BYTES]; /* "": nobody comes through shared memory */
    char name[16];                /* "ps/1", "scheduler"; "ps" as long as it has no task */

    /* Reactor 0's; the numbers are read by others after the mail that says they are there. */
    struct sl_agent *member;
    uint32_t first_shard, shard_count, partner_first_shard;
    struct sl_process_replica_group
        pairs[SL_PROCESS_HOSTED_MAX]; /* of the own shards, and of the guests */
    bool has_shards;                  /* the cores have been told their numbers */
    uint64_t lease_ns;
    uint32_t task_index;                                /* since the cluster is known */
    char why[SL_PROCESS_STAGES][SL_MESSAGE_TEXT_BYTES]; /* each written once, before the mail */
    struct sl_process_checkpoints *checkpoints;         /* NULL: there is no folder for them */
    struct sl_process_restore *restore;                 /* likewise */
    bool is_open;                                /* clients are welcomed, or are about to be */
    struct sl_process_store *metastore;          /* NULL: there is none */
    bool ends_job;                               /* of a scheduler: the signal has come */
    const struct sl_process_sim_hooks *stand_in; /* NULL: this is a process */
    bool abandoned; /* the last reactor's: there is nobody any more whom it serves */

    struct sl_mailbox *mailbox; /* the main thread's */
    int signal_fd;
    int signal;              /* that arrived; 0: none */
    uint32_t answers_wanted; /* from cores */
    int result;              /* the first error that a core reported */
    bool over;               /* the job has ended, and so shall this process */
    bool job_failed;         /* of a scheduler: its job has not ended well */
    bool is_unsaved;         /* the last checkpoint could not be made: reactor 0, until it stops */
};

/* ---- process.c ---- */

/* Tells the main thread that what it asked for is done, or that something failed. The core's
 * reactor. */
void sl_process_answer(struct sl_process_core *core, int result);

/* Registers with the coordinator. Reactor 0. Errors: as of sl_agent_open. */
int sl_process_join(struct sl_process *process);

/* ---- process_memory.c ---- */

/* The pools of a server, as the plan has them. */
void sl_process_memory_apply(const struct sl_memory_plan *plan, struct sl_server_options *server);

/* ---- process_checkpoint.c ---- */

/* The core's server makes checkpoints, where there is a folder; what is the whole process's begins
 * with the first core. The core's reactor. Errors: NO_MEMORY, IO, TOO_LARGE. */
int sl_process_checkpoint_open(struct sl_process_core *core);

/* Of the member. */
void sl_process_on_checkpoint(void *process, const struct sl_message_checkpoint *begun);
void sl_process_on_checkpoint_complete(void *process,
                                       const struct sl_message_checkpoint_complete *complete);

/* Where the checkpoints are. Any thread. */
const struct sl_disk *sl_process_disk(const struct sl_process_checkpoint *options);

/* A mail to the first core: nothing is written any more, and what no checkpoint holds is to be in
 * a last one. One answer follows. */
void sl_process_checkpoint_last(void *core, uint64_t unused, uint64_t unused_too);

/* The member is gone. Reactor 0. */
void sl_process_checkpoint_close(struct sl_process *process);

/* ---- process_restore.c ---- */

/* Looks what there is in the folder, then joins. Reactor 0. Errors: NO_MEMORY, IO, TOO_LARGE; what
 * comes later is answered. */
int sl_process_restore_begin(struct sl_process *process);

/* What was found. */
struct sl_process_restore_candidate {
    uint64_t number;                      /* that it shall begin from; 0: nothing */
    uint64_t greatest;                    /* in the folder, whole or not; 0: none */
    struct sl_message_numbers complete;   /* as they are registered */
    struct sl_message_numbers unfinished; /* likewise */
};

/* All of it 0 before, and without a folder. Reactor 0. */
struct sl_process_restore_candidate sl_process_restore_found(const struct sl_process *process);

/* The cluster is known: what this process begins from, 0: nothing. Reactor 0. */
uint64_t sl_process_restore_joined(struct sl_process *process);

/* The core has its shards: those of `seats`, which it serves, are loaded, if there is a number; the
 * others are opened as they are. Answers follow, one for each core. */
void sl_process_restore_core(struct sl_process_core *core, uint64_t number, uint32_t seats);

/* Reactor 0. */
void sl_process_restore_close(struct sl_process *process);

/* What a coordinator of this process is made with. */
struct sl_coordinator_options sl_process_coordinator_options(struct sl_process *process);

/* ---- process_store.c: reactor 0; without a store nothing is done ---- */

/* Opens the store, behind the server. Errors: NO_MEMORY, IO, TOO_LARGE, INVALID; logged. */
int sl_process_store_open(struct sl_process_core *core);

/* Campaigns from now on, where this process can host the coordinator: it listens. */
void sl_process_store_begin(struct sl_process *process);

/* Where the coordinator is, as far as is known. */
struct sl_endpoint sl_process_store_coordinator(const struct sl_process *process);

/* Of the server: a member's connection is gone. */
void sl_process_store_gone(void *process, uint64_t peer);

/* Gives the seat away; then done(core). */
void sl_process_store_end(struct sl_process_core *core, void (*done)(void *core));

/* Before the server is destroyed. */
void sl_process_store_close(struct sl_process *process);

/* ---- process_listen.c ---- */

/* Before any core is there: a fast endpoint that cannot be is dropped, with a warning. Errors:
 * UNSUPPORTED (there is no other way to the shards), logged. */
int sl_process_listen_check(struct sl_process *process);

/* The transports that a server of the process needs. */
void sl_process_listen_choose(const struct sl_process *process, struct sl_server_options *server);

/* The core's server was created with them, or was not: what that means for a fast endpoint. The
 * core's reactor; the first core's comes before the others'. */
void sl_process_listen_created(struct sl_process_core *core, int err);

/* Listens at all endpoints of the process. Reactor 0. Errors: those of sl_server_listen for the
 * control and the data endpoint, logged. */
int sl_process_listen(struct sl_process_core *core);

/* ---- process_job.c: on reactor 0 ---- */

/* Of the member: the scheduler says that the job has ended. It may say so again, after another
 * connection. */
void sl_process_on_ended(void *process, const char *why);

/* Of the member: there has been no scheduler for long. The process is over when there is no worker
 * either. */
void sl_process_on_absent(void *process);

/* Of a scheduler's coordinator: each stage comes once. */
void sl_process_on_stage(void *process, enum sl_coordinator_stage stage, int err, const char *why);

/* A mail to a scheduler's core: the signal came. sl_process_on_stage follows. */
void sl_process_end_job(void *core, uint64_t signal, uint64_t unused);

/* Any thread. */
const char *sl_process_signal_name(int signal);

/* The main thread's: SIGTERM and SIGINT come through signal_fd from now on. Errors: IO. */
int sl_process_block_signals(struct sl_process *process);

/* signal_fd is readable. */
void sl_process_take_signal(struct sl_process *process);

/* ---- process_drain.c ---- */

/* A mail to core 0: the process leaves the cluster, and drains its servers; each core answers. */
void sl_process_drain(void *core, uint64_t a, uint64_t b);

/* ---- process_replica.c ---- */

/* Whether the shards of this process have tables: each table is on all shards. Reactor 0. */
bool sl_process_has_tables(const struct sl_process *process);

/* Reactor 0: the process ends. Has every core run this, and says to it in `a` which of its pairs
 * hand their shards over to their backups, for sl_process_replica_switch_over. */
void sl_process_replica_end(struct sl_process *process, sl_mail_fn *run);

/* Of a core: its servers are told so. */
void sl_process_replica_switch_over(struct sl_process_core *core, uint64_t handovers);

/* The seats whose shards this process serves, as the coordinator says, as bits: with replicas both,
 * one, or none. Reactor 0. */
uint32_t sl_process_replica_hosted(const struct sl_process *process);

/* The first shard of a seat. */
uint32_t sl_process_replica_first(const struct sl_process *process, uint32_t which);

/* Any thread. */
struct sl_server *sl_process_replica_server(const struct sl_process *process, uint32_t which,
                                            uint32_t core);

/* Of the member: the cluster, perhaps anew. */
void sl_process_on_cluster(void *process, const struct sl_message_cluster *cluster);

/* Tells the cores of epochs that they have not been told of, once they know their shards. Reactor
 * 0. */
void sl_process_replica_tell(struct sl_process *process);

/* Of a server; ctx: its core. */
void sl_process_on_replica_state_changed(void *core, uint32_t local_index, uint64_t epoch,
                                         bool in_sync);
void sl_process_on_replica_failed(void *core, int err);

/* What the core's backup has served, once it was a primary, goes to the core's counters. */
void sl_process_replica_count(struct sl_process_core *core);

/* ---- process_report.c: on the main thread ---- */

/* What it is called until its task is known, and then. */
void sl_process_report_name(struct sl_process *process);

/* The line that says that it can be connected to. */
void sl_process_report_ready(const struct sl_process *process);

/* A scheduler's job has come to the stage. */
void sl_process_report_stage(const struct sl_process *process, enum sl_coordinator_stage stage,
                             int err);

/* It could not start. */
void sl_process_report_failure(const struct sl_process *process, int err);

/* The last line. */
void sl_process_report_totals(const struct sl_process *process);

#endif
