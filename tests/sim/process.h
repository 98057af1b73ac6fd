/* A process of a simulated cluster: a host of the network, a clock of its own, and reactors that
 * the simulation steps. What runs on them is in ps.h and worker.h. One thread. */
#ifndef SL_TESTS_SIM_PROCESS_H
#define SL_TESTS_SIM_PROCESS_H

#include "tests/sim/network.h"

#define SL_SIM_REACTORS_MAX 8

struct sl_sim_process {
    struct sl_sim_network *network;
    uint32_t host;
    struct sl_clock clock;
    uint64_t offset_ns; /* of its clock from the network's */
    struct sl_reactor *reactors[SL_SIM_REACTORS_MAX];
    uint64_t turned_ns[SL_SIM_REACTORS_MAX]; /* when each had its last turn */
    uint32_t reactor_count;
    uint64_t gap_ns;       /* a turn takes so long */
    uint64_t usual_gap_ns; /* while it is not slow */
    uint32_t aside_us_max; /* jobs beside the reactors wait so long, at most */
    uint64_t aside_random;
    uint64_t paused_until_ns; /* it stands still; the network's time */
    uint64_t paused_ns;       /* for how long it has, in all */
    uint64_t due_ns;          /* when to step it next; the network's time */
};

/* The process stays where it is until fini: its reactors read its clock. */
void sl_sim_process_init(struct sl_sim_process *process, struct sl_sim_network *network,
                         uint32_t host, const char *name, uint32_t reactor_count, uint64_t seed,
                         uint64_t offset_ns, uint64_t gap_ns);

/* Nothing runs on the reactors any more. */
void sl_sim_process_fini(struct sl_sim_process *process);

/* The process's own time. */
uint64_t sl_sim_process_now(const struct sl_sim_process *process);

/* Gives a turn to each reactor that has something to do, and finds out when the next is due.
 * Returns whether one had. */
bool sl_sim_process_step(struct sl_sim_process *process);

/* Its due_ns, from nothing: after something was asked of it from outside. */
void sl_sim_process_look(struct sl_sim_process *process);

/* Something comes to its host at that time. */
static inline void sl_sim_process_wake(struct sl_sim_process *process, uint64_t at_ns)
{
    process->due_ns = at_ns < process->due_ns ? at_ns : process->due_ns;
}

/* When to step it next: not while it stands still. */
static inline uint64_t sl_sim_process_due(const struct sl_sim_process *process)
{
    return process->due_ns > process->paused_until_ns ? process->due_ns : process->paused_until_ns;
}

/* Turns of all reactors until done(ctx), while its clock alone goes on and no other process moves:
 * for one that has been cut off from the network. Asserts that it ends. */
void sl_sim_process_drain(struct sl_sim_process *process, bool (*done)(void *ctx), void *ctx);

#endif
