/* A whole cluster: ps processes, an observer and workers that come and go, in a world (world.h).
 * Run once. Allocates. */
#ifndef SL_TESTS_SIM_CLUSTER_H
#define SL_TESTS_SIM_CLUSTER_H

#include "core/list.h"
#include "core/secret.h"
#include "tests/sim/credits.h"
#include "tests/sim/oracle.h"
#include "tests/sim/ps.h"
#include "tests/sim/worker.h"

/* A task's place in the cluster: one process after another may fill it. */
struct sl_sim_place {
    uint32_t host;
    struct sl_sim_worker *worker; /* NULL: nobody is there */
    uint32_t lives;               /* processes that may still come */
    bool crashes;                 /* how the next one that fails goes */
};

/* A shard, as the coordinator has it. */
struct sl_sim_place_of_shard {
    uint64_t epoch;
    uint32_t primary;
    uint64_t holder;     /* incarnation of the primary; 0: nobody yet */
    uint64_t generation; /* of what the coordinator knows */
    uint32_t backup;     /* that is in sync; SL_COORDINATOR_NO_TASK: none is */
    uint64_t keeper;     /* incarnation of that */
};

/* Whether a ps belongs to the job. */
enum sl_sim_membership {
    SL_SIM_PS_AT_START,
    SL_SIM_PS_JOINS, /* it has joined, or will join at its next start */
    SL_SIM_PS_NONE   /* it has not joined yet, or was drained: it is not started */
};

struct sl_sim_cluster {
    const struct sl_sim_plan *plan;
    struct sl_sim_world *world;
    struct sl_sim_member member; /* of the world, the first: hosts are those of the world */
    struct sl_sim_oracle oracle;
    struct sl_sim_credits credits;
    struct sl_secret secret;
    struct sl_sim_ps *ps;       /* [ps_count] */
    struct sl_sim_ps scheduler; /* the coordinator's process, where it has one of its own */
    struct sl_sim_records records;
    struct sl_sim_disk *disks;            /* [ps_count]; NULL: there are none */
    uint32_t inspected_count;             /* checkpoints: inspect.h */
    uint64_t complete;                    /* checkpoint, as the coordinator has it */
    struct sl_sim_place_of_shard *shards; /* [shard_count] */
    enum sl_sim_membership memberships[SL_SIM_PS_MAX];
    uint32_t forgotten;                    /* of the records, as the memberships follow */
    bool is_without_memory[SL_SIM_PS_MAX]; /* its backups can make no new rows */
    struct sl_sim_place observer;
    struct sl_sim_place *places; /* [tasks] */
    uint64_t *hurt_ns;           /* [hosts] for how long each was out of reach, at the worst */
    uint64_t hurt_all_ns;
    void (*ps_started)(struct sl_sim_ps *ps); /* of sl_sim_ps_options */
    void (*ps_ends)(struct sl_sim_ps *ps, bool silent);
    bool is_final; /* the observer's steps are its last */
    uint32_t flood_count;
    uint64_t observe_ns; /* when the observer looks next */
    struct sl_sim_scan scan;
    uint64_t views_ns; /* when the readers of views look next; SL_CLOCK_NEVER: there are none */
};

/* Frees what is left, also after a breach. */
void sl_sim_cluster_fini(struct sl_sim_cluster *cluster);

/* In two steps: nothing runs yet, and the world is not created; all ps are there, and the observer
 * has opened the tables. False: a breach. */
void sl_sim_cluster_create(struct sl_sim_cluster *cluster, const struct sl_sim_plan *plan,
                           struct sl_sim_world *world);
bool sl_sim_cluster_start(struct sl_sim_cluster *cluster);

static inline struct sl_sim_cluster *sl_sim_cluster_of(struct sl_sim_member *member)
{
    return SL_CONTAINER_OF(member, struct sl_sim_cluster, member);
}

static inline bool sl_sim_cluster_is_scheduler(const struct sl_sim_cluster *cluster, uint32_t host)
{
    return cluster->plan->replica.apart && host == sl_sim_plan_coordinator_host(cluster->plan);
}

/* That a ps has, alone or with all others. There are disks. */
static inline struct sl_sim_disk *sl_sim_cluster_disk(const struct sl_sim_cluster *cluster,
                                                      uint32_t ps)
{
    return &cluster->disks[cluster->disks[0].is_shared ? 0 : ps];
}

/* NULL: it is not there now. */
struct sl_coordinator *sl_sim_cluster_coordinator(const struct sl_sim_cluster *cluster);

/* That serves the shard; NULL: nobody does, now. */
struct sl_server *sl_sim_cluster_primary(const struct sl_sim_cluster *cluster, uint32_t shard);

void sl_sim_cluster_start_ps(struct sl_sim_cluster *cluster, uint32_t index);
void sl_sim_cluster_kill_ps(struct sl_sim_cluster *cluster, uint32_t index, bool silent);
void sl_sim_cluster_start_worker(struct sl_sim_cluster *cluster, struct sl_sim_place *place,
                                 uint32_t task);

/* Its process is gone; another may come after a while. */
void sl_sim_cluster_kill_worker(struct sl_sim_cluster *cluster, struct sl_sim_place *place,
                                bool silent);

/* faults.c: what a fault means to the cluster (world.h). */
void sl_sim_faults_change(struct sl_sim_member *member, const struct sl_sim_fault *fault,
                          bool begins, uint64_t broken_ns);
bool sl_sim_faults_delays(struct sl_sim_member *member, const struct sl_sim_fault *fault);

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

/* Once a moment: the backups, and those that are about to end, on a ps that has no memory for
 * backups. */
void sl_sim_cluster_limit_backups(struct sl_sim_cluster *cluster);

/* What the coordinator has decided since, and who believes it. After each moment. */
void sl_sim_cluster_look_at_shards(struct sl_sim_cluster *cluster);

/* moves. An operator asks the coordinator, if one runs, for a move, a drain or a balance. */
void sl_sim_cluster_change_placement(struct sl_sim_cluster *cluster,
                                     const struct sl_sim_fault *change);

/* The job has begun anew since: it needs all ps that were there at its start. After each moment. */
void sl_sim_cluster_look_at_members(struct sl_sim_cluster *cluster);

/* The ps, which was drained or has never been there, joins. */
void sl_sim_cluster_join_ps(struct sl_sim_cluster *cluster, uint32_t index);

/* The ps has ended, or is about to start: whether it was drained, and is not started again. */
bool sl_sim_cluster_look_at_drained(struct sl_sim_cluster *cluster, uint32_t index);

/* All is healed: no shard moves, each has one primary, and no ps has a shard that is none of its.
 */
void sl_sim_cluster_check_places(struct sl_sim_cluster *cluster);

/* Of the oracle of a cluster: a push was acknowledged. */
void sl_sim_cluster_acknowledged(struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit);

/* All is healed, and nothing goes on: with replicas, every shard has a backup, and that has what
 * the shard has. */
void sl_sim_cluster_compare_backups(struct sl_sim_cluster *cluster);

/* Whether the host may have been believed lost by now. */
bool sl_sim_faults_taint(const struct sl_sim_cluster *cluster, uint32_t host);

#endif
