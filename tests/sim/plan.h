/* What a seed means: the cluster's size, its tables, what its workers do, the network's manners,
 * and the faults that befall it. Pure. */
#ifndef SL_TESTS_SIM_PLAN_H
#define SL_TESTS_SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <starling.h>

#include "core/clock.h"
#include "tests/sim/disks.h"
#include "tests/sim/network.h"

#define SL_SIM_TABLES_MAX 4
#define SL_SIM_PS_MAX     4
#define SL_SIM_FAULTS_MAX 48

/* How a worker goes through an iteration. */
enum sl_sim_shape {
    SL_SIM_SHAPE_PULL_PUSH, /* pull; then push and tick */
    SL_SIM_SHAPE_PIPELINE,  /* push, tick, and pull for the next, in one step */
    SL_SIM_SHAPE_PUSH_PULL, /* push_pull and tick, in one step */
    SL_SIM_SHAPE_SCATTERED, /* several pushes, a pull, a tick, each a step of its own */
    SL_SIM_SHAPE_COUNT
};

enum sl_sim_fault_kind {
    SL_SIM_FAULT_BREAK,     /* connections of a host */
    SL_SIM_FAULT_PARTITION, /* between two hosts, or one and all others */
    SL_SIM_FAULT_PAUSE,     /* a process stands still */
    SL_SIM_FAULT_SLOW,      /* its turns take long */
    SL_SIM_FAULT_JUMP,      /* its clock goes ahead */
    SL_SIM_FAULT_REFUSE,    /* connects to a host fail */
    SL_SIM_FAULT_KILL_WORKER,
    SL_SIM_FAULT_KILL_PS,
    SL_SIM_FAULT_JOIN, /* one more worker comes */
    SL_SIM_FAULT_LEAVE,
    SL_SIM_FAULT_KIND_COUNT,
    /* Not drawn as the others are. */
    SL_SIM_FAULT_DISKS = SL_SIM_FAULT_KIND_COUNT, /* what befalls the disks: plan_disk.c */
    SL_SIM_FAULT_MEMORY, /* the backups that a ps has cannot make new rows: plan_replicas.c */
    SL_SIM_FAULT_STORE,  /* the metadata store of transfer engines cannot be reached */
    /* Somebody asks the coordinator: plan_moves.c. No harm comes from these. */
    SL_SIM_FAULT_MOVE,    /* that shard b moves to ps a */
    SL_SIM_FAULT_BALANCE, /* that all ps have as many shards */
    SL_SIM_FAULT_DRAIN,   /* that ps a gives all shards away, and ends; it may join again */
    SL_SIM_FAULT_SCALE    /* ps a joins */
};

#define SL_SIM_FAULTS_OF_DISKS (1U << SL_SIM_FAULT_DISKS)

struct sl_sim_fault {
    enum sl_sim_fault_kind kind;
    uint64_t at_ns, duration_ns;
    uint32_t a, b;   /* hosts, a ps or a task; UINT32_MAX as b: all others */
    bool one_way;    /* a to b */
    bool all;        /* connections */
    bool silent;     /* a machine and not only a process goes */
    uint32_t amount; /* told_us_max, microseconds of a turn */
    uint32_t rail;   /* of a partition between transfer engines; SL_SIM_RAILS_MAX: all */
};

/* With it each shard has a backup on the next ps. */
struct sl_sim_replica_plan {
    bool is_there;
    uint32_t snapshot_keys; /* that a turn of a snapshot copies; 0: as many as the product does */
    bool apart; /* the coordinator has a host of its own, the last; else it is on ps 0 */
};

struct sl_sim_plan {
    uint64_t seed;
    uint32_t ps_count, shards_of_ps, shard_count;
    uint32_t ps_at_start;                /* those behind join later, and bring no shards */
    bool moves;                          /* shards move */
    uint32_t reactors_of_ps;             /* at most shards_of_ps */
    uint32_t worker_count, joiner_count; /* tasks: worker_count, and those that may join */
    uint32_t hubs;                       /* reactors of a client */
    uint32_t iterations;
    enum sl_protocol protocol;
    enum sl_sim_shape shape;
    bool mixed_shapes; /* each worker has its own */
    bool barriers, checksum, secret;
    bool impatient;        /* some steps have deadlines that will pass */
    bool has_views;        /* somebody reads views of all servers and of the coordinator */
    bool floods;           /* the observer asks for more than its credit at a time */
    bool leaves_early;     /* workers do not finish their clock before they close */
    uint32_t lives_max;    /* of one task: processes that may take its place */
    uint32_t keys_of_push; /* shared ones, of each shard */
    uint32_t step_timeout_ms, impatient_timeout_ms;
    uint64_t lease_ns;
    uint32_t peer_timeout_ms;
    uint64_t start_timeout_ns;
    uint32_t think_us_max; /* between two steps of a worker */
    uint64_t gap_ns;       /* of a turn */
    bool offset_clocks;
    struct sl_sim_network_options network;
    struct sl_sim_disk_plan disk; /* of each ps */
    struct sl_sim_replica_plan replica;
    struct sl_table_spec tables[SL_SIM_TABLES_MAX];
    uint32_t table_count;
    struct sl_sim_fault faults[SL_SIM_FAULTS_MAX];
    uint32_t fault_count;
    uint64_t horizon_ns;     /* no fault begins later, after the start */
    size_t memory_bytes_max; /* of a shard's tables; 0: no limit */
    uint32_t keys_aside;     /* of a sparse push to each shard, that nobody looks at */
};

struct sl_sim_choice {
    uint32_t faults; /* bit k allows those of kind k */
    bool packets;    /* the transport is DPDK's */
    bool strangers;  /* with it: there are some; else in some seeds */
    bool disks;      /* ps hosts have disks, and make checkpoints; else those of some seeds do */
    bool replicas;   /* shards have backups, where there are no packets */
    bool policies;   /* sparse tables have policies; else those of some seeds do */
    bool publish;    /* versions of the tables are served */
    bool moves;      /* shards move, in seeds that can have it; else in some of these */
    bool link;       /* all hosts share a slow link, on which much is sent; none of the former */
};

void sl_sim_plan_make(struct sl_sim_plan *plan, uint64_t seed, const struct sl_sim_choice *choice);

/* A fault of applications: of any of their kinds, on any of so many hosts, before horizon_ns; of so
 * many of 1,000 for 0.2 s to long_ms, else for up to 0.2 s. */
void sl_sim_plan_draw_fault(struct sl_sim_fault *fault, uint32_t hosts, uint64_t horizon_ns,
                            uint32_t long_permille, uint64_t long_ms, uint64_t *random);

void sl_sim_plan_print_network(const struct sl_sim_network_options *network);
void sl_sim_plan_print_faults(const struct sl_sim_fault *faults, uint32_t count);

/* plan_link.c: in the end. */
void sl_sim_plan_draw_link(struct sl_sim_plan *plan, const struct sl_sim_choice *choice);

/* plan_disk.c */
void sl_sim_plan_draw_disk(struct sl_sim_plan *plan, const struct sl_sim_choice *choice);
void sl_sim_plan_print_disk(const struct sl_sim_disk_plan *disk);

/* plan_policies.c: in the end. */
void sl_sim_plan_draw_policies(struct sl_sim_plan *plan, const struct sl_sim_choice *choice);

/* plan_moves.c: before the network is drawn; in the end. */
void sl_sim_plan_draw_moves(struct sl_sim_plan *plan, const struct sl_sim_choice *choice);
void sl_sim_plan_draw_changes(struct sl_sim_plan *plan, const struct sl_sim_choice *choice);

/* plan_replicas.c: before the network is drawn, and in the end. */
void sl_sim_plan_draw_replicas(struct sl_sim_plan *plan, const struct sl_sim_choice *choice);
void sl_sim_plan_draw_losses(struct sl_sim_plan *plan, const struct sl_sim_choice *choice);

static inline uint64_t sl_sim_us(uint64_t ns)
{
    return ns / SL_CLOCK_NS_PER_US;
}

static inline uint64_t sl_sim_ms(uint64_t ns)
{
    return ns / SL_CLOCK_NS_PER_MS;
}

/* Hosts: the ps processes, the observer, the tasks, then the coordinator, when it is apart. */
static inline uint32_t sl_sim_plan_observer_host(const struct sl_sim_plan *plan)
{
    return plan->ps_count;
}

static inline uint32_t sl_sim_plan_task_host(const struct sl_sim_plan *plan, uint32_t task)
{
    return plan->ps_count + 1 + task;
}

static inline uint32_t sl_sim_plan_tasks(const struct sl_sim_plan *plan)
{
    return plan->worker_count + plan->joiner_count;
}

static inline uint32_t sl_sim_plan_coordinator_host(const struct sl_sim_plan *plan)
{
    return plan->replica.apart ? sl_sim_plan_task_host(plan, sl_sim_plan_tasks(plan)) : 0;
}

/* Prints it, a line an item. */
void sl_sim_plan_print(const struct sl_sim_plan *plan);

#endif
