/* World of applications' processes (app.h), the network between them, and the faults of a plan.
 * Time is the network's; it jumps from one event to the next. One thread. */
#ifndef SL_TESTS_SIM_WORLD_H
#define SL_TESTS_SIM_WORLD_H

#include "tests/sim/app.h"
#include "tests/sim/plan.h"

#define SL_SIM_WORLD_HOSTS_MAX 16

/* The first breach that the oracles of a run have found. */
struct sl_sim_breach {
    char of[32], what[512]; /* "": none */
};

void sl_sim_fail(struct sl_sim_breach *breach, const char *of, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct sl_sim_world;

/* What the processes are. NULL where nothing is to be done. */
struct sl_sim_world_actions {
    struct sl_sim_app *(*start)(struct sl_sim_world *world, uint32_t host, uint64_t seed,
                                uint64_t offset_ns);
    void (*moment)(struct sl_sim_world *world); /* before processes are stepped */
    void (*stepped)(struct sl_sim_world *world, uint32_t host);
    /* After that: whether the machine stops; another process starts there some time later. */
    bool (*stops)(struct sl_sim_world *world, uint32_t host);
    void (*look)(struct sl_sim_world *world); /* at the stages, when processes were stepped */
    /* In addition to what it does to the network and to processes. */
    void (*fault)(struct sl_sim_world *world, const struct sl_sim_fault *fault, bool begins);
    void (*sent)(struct sl_sim_world *world, uint32_t host, uint32_t bytes); /* of memory */
};

struct sl_sim_world {
    /* Set by the owner, the rest zero. */
    const struct sl_sim_world_actions *actions;
    struct sl_sim_breach *breach;
    uint64_t seed, random;
    const struct sl_sim_network_options *options; /* one process for each of its hosts */
    const struct sl_sim_fault *faults;            /* a, b: hosts; KILL_PS, LEAVE: a process */
    uint32_t fault_count;
    bool verbose;

    uint64_t now_ns, trace, frames, operations, turns;
    struct sl_sim_network *network;
    struct {
        struct sl_sim_app *app; /* NULL: no process runs there */
        uint64_t start_ns;      /* when one starts there next; SL_CLOCK_NEVER: none does */
    } places[SL_SIM_WORLD_HOSTS_MAX];
    uint64_t fault_begin_ns[SL_SIM_FAULTS_MAX], fault_end_ns[SL_SIM_FAULTS_MAX];
    bool faults_are_over;
    uint64_t look_ns; /* the owner's: when it looks at the stages again */
};

/* Prints a line of the trace, if asked to, and adds it to the hash. */
void sl_sim_world_note(struct sl_sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void sl_sim_world_create(struct sl_sim_world *world);

/* Runs until all processes have ended, or a breach. */
void sl_sim_world_run(struct sl_sim_world *world);

/* Prints the breach, or with `verbose` what has happened. Kills what still runs. Returns whether
 * there was no breach. */
bool sl_sim_world_fini(struct sl_sim_world *world);

/* Whether all processes run, and are in the stage. */
bool sl_sim_world_all_are_in(const struct sl_sim_world *world, uint32_t stage);
void sl_sim_world_enter(struct sl_sim_world *world, uint32_t stage);

#endif
