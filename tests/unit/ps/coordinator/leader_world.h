/* Several processes that could host the coordinator, over one store in memory, which is cut off
 * from them, answers late or not at all; processes die, or stand still, by seed. At no time does
 * one act whose term is over, and what anybody was told stays true in every later term. */
#ifndef SL_TESTS_UNIT_PS_COORDINATOR_LEADER_WORLD_H
#define SL_TESTS_UNIT_PS_COORDINATOR_LEADER_WORLD_H

#include "core/clock.h"
#include "ps/coordinator/leader.h"
#include "tests/support/memory_store.h"

#define MS        SL_CLOCK_NS_PER_MS
#define STEP      (20 * MS)
#define SEEDS     (30 / STRIDE)
#define STEPS     6000
#define PROCESSES 3
#define TTL_S     3
#define NAMES     250
#define KEY       "jobs/a/coordinator"

struct world;

/* One that could host the coordinator. */
struct process {
    struct world *world;
    struct sl_metastore *metastore;
    struct sl_leader *leader; /* NULL: it is dead */
    uint64_t back_ns;         /* when it stands up, or is started again; 0: it runs */
    bool stands_still;
    struct sl_coordinator *coordinator; /* NULL: not here */
    bool woken, resigned;
    uint64_t leader_term; /* that it was told */
    struct sl_coordinator_report_cells report_cells;
    uint32_t report_count; /* reports of members that came here */
};

/* A ps and a worker of the job, which outlive every coordinator, and open tables. */
struct member {
    enum sl_message_role role;
    uint64_t client_id;
    struct process *at; /* that it is connected to; NULL: nobody */
    uint64_t peer;
    uint64_t request; /* 0: it waits for no answer */
    uint32_t name;
};

struct world {
    uint64_t random, now_ns, peer_next, request_next, id_next;
    struct memory_store *memory;
    struct process processes[PROCESSES];
    struct member members[2];
    int64_t ids[NAMES]; /* that somebody was told; -1: nobody */
    uint32_t told_count, term_count;
    uint64_t last_term;
};

void world_cause_trouble(struct world *world);
uint32_t world_count_leaders(const struct world *world);
void world_disconnect(struct world *world, const struct process *process);
void world_end_process(struct world *world, struct process *process, bool erases);
void world_heal(struct world *world);
struct process *world_holder(struct world *world);
void world_on_resigned(void *ctx);
void world_run_for(struct world *world, uint64_t ns);
void world_step(struct world *world);
void world_end(struct world *world);
void world_make(struct world *world, uint64_t seed);

#endif
