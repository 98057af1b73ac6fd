/* A whole cluster in one thread: ps processes, an observer, workers that come and go, the network
 * between them, and the faults of the plan. Time is the network's; it jumps from one event to the
 * next. Run once. Allocates. */
#ifndef SL_TESTS_SIM_CLUSTER_H
#define SL_TESTS_SIM_CLUSTER_H

#include "core/secret.h"
#include "tests/sim/credits.h"
#include "tests/sim/oracle.h"
#include "tests/sim/ps.h"
#include "tests/sim/worker.h"

/* A task's place in the cluster: one process after another may fill it. */
struct sl_sim_place {
    struct sl_sim_worker *worker; /* NULL: nobody is there */
    uint32_t lives;               /* processes that may still come */
    uint64_t start_ns;            /* when the next comes; SL_CLOCK_NEVER: none does */
    bool crashes;                 /* how the next one that fails goes */
};

/* The shards of one ps, and their backups, as the coordinator has them. */
struct sl_sim_pair {
    uint64_t epoch;
    uint32_t primary;
    uint64_t holder;     /* incarnation of the primary; 0: nobody yet */
    uint64_t generation; /* of what the coordinator knows */
};

struct sl_sim_cluster {
    const struct sl_sim_plan *plan;
    bool verbose;
    uint64_t random;
    struct sl_sim_network *network;
    struct sl_sim_oracle oracle;
    struct sl_sim_credits credits;
    struct sl_secret secret;
    uint64_t now_ns;
    struct sl_sim_ps *ps; /* [server_count] */
    uint64_t ps_start_ns[SL_SIM_PS_MAX];
    struct sl_sim_ps scheduler;  /* the coordinator's process, where it has one of its own */
    uint64_t scheduler_start_ns; /* when the next comes; SL_CLOCK_NEVER: none does */
    struct sl_sim_records records;
    struct sl_sim_disk *disks;               /* [server_count]; NULL: there are none */
    uint32_t inspected_count;                /* checkpoints: inspect.h */
    uint64_t complete;                       /* checkpoint, as the coordinator has it */
    struct sl_sim_pair pairs[SL_SIM_PS_MAX]; /* with replicas */
    bool is_without_memory[SL_SIM_PS_MAX];   /* its backups can make no new rows */
    struct sl_sim_place observer;
    struct sl_sim_place *places; /* [tasks] */
    uint64_t *hurt_ns;           /* [hosts] for how long each was out of reach, at the worst */
    uint64_t hurt_all_ns;
    uint64_t fault_begin_ns[SL_SIM_FAULTS_MAX], fault_end_ns[SL_SIM_FAULTS_MAX];
    bool faults_are_over;
    bool is_final; /* the observer's steps are its last */
    uint32_t flood_count;
    uint64_t observe_ns; /* when the observer looks next */
    uint64_t views_ns;   /* when the readers of views look next; SL_CLOCK_NEVER: there are none */
    uint64_t trace;      /* hash over all that happened */
    uint64_t frames, packets, turns;
};

/* True: everything was as it must be. Else oracle.breach says what was not. */
bool sl_sim_cluster_run(struct sl_sim_cluster *cluster, const struct sl_sim_plan *plan,
                        bool verbose);

/* Frees what run has left, also after a breach. */
void sl_sim_cluster_fini(struct sl_sim_cluster *cluster);

/* In two steps: nothing runs yet; all ps are there, and the observer has opened the tables. False:
 * a breach. */
void sl_sim_cluster_create(struct sl_sim_cluster *cluster, const struct sl_sim_plan *plan,
                           bool verbose);
bool sl_sim_cluster_start(struct sl_sim_cluster *cluster);

/* Prints a line of the trace, when asked to, and adds it to the hash. */
void sl_sim_cluster_trace(struct sl_sim_cluster *cluster, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline bool sl_sim_cluster_is_scheduler(const struct sl_sim_cluster *cluster, uint32_t host)
{
    return cluster->plan->replica.apart && host == sl_sim_plan_coordinator_host(cluster->plan);
}

/* That a ps has, alone or, with backups, with all others. There are disks. */
static inline struct sl_sim_disk *sl_sim_cluster_disk(const struct sl_sim_cluster *cluster,
                                                      uint32_t ps)
{
    return &cluster->disks[cluster->plan->replica.is_there ? 0 : ps];
}

/* NULL: it is not there now. */
struct sl_coordinator *sl_sim_cluster_coordinator(const struct sl_sim_cluster *cluster);

/* That serves the shard; NULL: nobody does, now. */
struct sl_server *sl_sim_cluster_primary(const struct sl_sim_cluster *cluster, uint32_t shard);

/* The process on a host; NULL: none. */
struct sl_sim_process *sl_sim_cluster_process(const struct sl_sim_cluster *cluster, uint32_t host);

void sl_sim_cluster_start_ps(struct sl_sim_cluster *cluster, uint32_t index);
void sl_sim_cluster_kill_ps(struct sl_sim_cluster *cluster, uint32_t index, bool silent);
void sl_sim_cluster_start_worker(struct sl_sim_cluster *cluster, struct sl_sim_place *place,
                                 uint32_t task);

/* Its process is gone; another may come after a while. */
void sl_sim_cluster_kill_worker(struct sl_sim_cluster *cluster, struct sl_sim_place *place,
                                bool silent);

/* faults.c: begins and ends what is due; returns when the next is. */
void sl_sim_faults_schedule(struct sl_sim_cluster *cluster);
uint64_t sl_sim_faults_run(struct sl_sim_cluster *cluster);

/* A ps with a disk was killed: the next one knows its sessions, but not for how long. */
void sl_sim_faults_restored(struct sl_sim_cluster *cluster);

/* disks: what all ps have, and what befalls them. True: the ps has crashed. */
bool sl_sim_cluster_look_at_disk(struct sl_sim_cluster *cluster, uint32_t index);

/* There are disks, and the job has lost no values: checkpoints are to become complete. */
bool sl_sim_cluster_saves(const struct sl_sim_cluster *cluster);

/* The coordinator has had a turn: a checkpoint may be complete. */
void sl_sim_cluster_look_at_complete(struct sl_sim_cluster *cluster);

/* That ps could not begin. Where nothing is whole on its disk, and it is refused for what others
 * have that are about to begin, too, who starts them has all of these begin with nothing. */
void sl_sim_cluster_begin_anew(struct sl_sim_cluster *cluster, uint32_t index);
void sl_sim_cluster_make_disks(struct sl_sim_cluster *cluster);
void sl_sim_cluster_free_disks(struct sl_sim_cluster *cluster);
void sl_sim_cluster_calm_disks(struct sl_sim_cluster *cluster);

/* Books which requests the pushes that are under way went in. */
void sl_sim_cluster_note_requests(struct sl_sim_cluster *cluster);

/* replicas: without them, nothing is done. The coordinator's process begins, or takes a turn. */
void sl_sim_cluster_start_scheduler(struct sl_sim_cluster *cluster);
void sl_sim_cluster_run_scheduler(struct sl_sim_cluster *cluster);
void sl_sim_cluster_kill_scheduler(struct sl_sim_cluster *cluster, bool silent, uint64_t for_ns);

/* What the coordinator has decided since, and who believes it. After each moment. */
/* Once a moment: whoever is a backup, or is one still, on a ps whose backups have no memory. */
void sl_sim_cluster_limit_backups(struct sl_sim_cluster *cluster);
void sl_sim_cluster_look_at_pairs(struct sl_sim_cluster *cluster);

/* Of the oracle: a push was acknowledged; ctx: the cluster. */
void sl_sim_cluster_acknowledged(void *ctx, const struct sl_sim_unit *unit);

/* All is healed, and nothing goes on: every shard has a backup, and that has what the shard has. */
void sl_sim_cluster_compare_pairs(struct sl_sim_cluster *cluster);

/* Whether the host may have been believed lost by now. */
bool sl_sim_faults_taint(const struct sl_sim_cluster *cluster, uint32_t host);

#endif
