/* World is the network of a run, the processes on its hosts, and the faults of its plan. Time is
 * the network's; it jumps from one event to the next. Processes are those of applications (app.h),
 * or the owner's own, which it starts and steps itself. One thread. Allocates. */
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

/* What the owner does. NULL where nothing is to be done. */
struct sl_sim_world_actions {
    /* Of applications: starts the process of a host. */
    struct sl_sim_app *(*start)(struct sl_sim_world *world, uint32_t host, uint64_t seed,
                                uint64_t offset_ns);
    /* Of other processes, instead: starts or steps the one of the host, if it is due, and keeps
     * `places` up to date. */
    void (*run)(struct sl_sim_world *world, uint32_t host);
    void (*moment)(struct sl_sim_world *world); /* before processes are stepped */
    void (*stepped)(struct sl_sim_world *world, uint32_t host);
    /* After that: whether the machine stops; another process starts there some time later. */
    bool (*stops)(struct sl_sim_world *world, uint32_t host);
    void (*look)(struct sl_sim_world *world); /* when processes were stepped */
    /* Whether a fault that is due begins later. */
    bool (*delays)(struct sl_sim_world *world, const struct sl_sim_fault *fault);
    /* After what the fault does to the network and to processes. broken_ns: of BREAK, until both
     * sides know. */
    void (*fault)(struct sl_sim_world *world, const struct sl_sim_fault *fault, bool begins,
                  uint64_t broken_ns);
    void (*frame)(struct sl_sim_world *world, const struct sl_sim_frame *frame);
    void (*ended)(struct sl_sim_world *world, uint32_t host); /* a connection of it */
    void (*sent)(struct sl_sim_world *world, uint32_t host, uint32_t bytes); /* of memory */
};

/* A host. */
struct sl_sim_world_place {
    struct sl_sim_process *process; /* NULL: no process runs there */
    struct sl_sim_app *app;         /* that it is; NULL: none */
    uint64_t start_ns;              /* when one starts there next; SL_CLOCK_NEVER: none does */
};

struct sl_sim_world {
    /* Set by the owner, the rest zero. */
    const struct sl_sim_world_actions *actions;
    struct sl_sim_breach *breach;
    uint64_t seed, random;
    const struct sl_sim_network_options *options;
    const struct sl_sim_fault *faults; /* a, b: hosts */
    uint32_t fault_count;
    bool verbose;

    uint64_t now_ns, trace, frames, packets, operations, turns;
    struct sl_sim_network *network;
    struct sl_sim_world_place *places; /* [hosts] */
    uint64_t fault_begin_ns[SL_SIM_FAULTS_MAX], fault_end_ns[SL_SIM_FAULTS_MAX];
    bool faults_are_over;
    uint64_t look_ns; /* the owner's: when something of it is due */
};

/* Prints a line of the trace, if asked to, and adds it to the hash. */
void sl_sim_world_note(struct sl_sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Nothing runs yet, and no fault is due. */
void sl_sim_world_create(struct sl_sim_world *world);

/* From now on. */
void sl_sim_world_schedule_faults(struct sl_sim_world *world);

/* Does all that is due now, and moves on to the next moment at which something is. */
void sl_sim_world_moment(struct sl_sim_world *world);

static inline bool sl_sim_world_is_good(const struct sl_sim_world *world)
{
    return world->breach->what[0] == '\0';
}

/* Runs applications, and the faults, until all processes have ended, or a breach. */
void sl_sim_world_run(struct sl_sim_world *world);

/* Prints the breach, or with `verbose` what has happened. Returns whether there was no breach. */
bool sl_sim_world_report(const struct sl_sim_world *world);

/* Kills applications that still run; other processes are gone. */
void sl_sim_world_fini(struct sl_sim_world *world);

/* Whether all applications run, and are in the stage. */
bool sl_sim_world_all_are_in(const struct sl_sim_world *world, uint32_t stage);
void sl_sim_world_enter(struct sl_sim_world *world, uint32_t stage);

#endif
