/* A world is the network of a run and the processes on its hosts. Each member of it (a training
 * job, nodes of objects, ...) has a range of hosts, and the faults of its plan. Time is the
 * network's; it jumps from one event to the next. Processes are those of applications (app.h), or
 * the member's own, which it starts and steps itself. One thread. Allocates. */
#ifndef SL_TESTS_SIM_WORLD_H
#define SL_TESTS_SIM_WORLD_H

#include "tests/sim/app.h"
#include "tests/sim/plan.h"

#define SL_SIM_WORLD_HOSTS_MAX   16 /* of a member of applications */
#define SL_SIM_WORLD_MEMBERS_MAX 5

/* The first breach that the oracles of a run have found. */
struct sl_sim_breach {
    char of[32], what[512]; /* "": none */
};

void sl_sim_fail(struct sl_sim_breach *breach, const char *of, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct sl_sim_world;
struct sl_sim_member;

/* The functions of a member; NULL: it does nothing then. Hosts count from its first one. */
struct sl_sim_member_actions {
    /* Of applications: starts the process of a host. */
    struct sl_sim_app *(*start)(struct sl_sim_member *member, uint32_t host, uint64_t seed,
                                uint64_t offset_ns);
    /* Of other processes, instead: starts or steps the one of the host, if it is due, and keeps
     * `places` up to date. */
    void (*run)(struct sl_sim_member *member, uint32_t host);
    void (*moment)(struct sl_sim_member *member); /* before processes are stepped */
    void (*stepped)(struct sl_sim_member *member, uint32_t host);
    /* After that: whether the machine stops; another process starts there some time later. */
    bool (*stops)(struct sl_sim_member *member, uint32_t host);
    void (*look)(struct sl_sim_member *member); /* when processes were stepped */
    /* Whether a fault that is due begins later. */
    bool (*delays)(struct sl_sim_member *member, const struct sl_sim_fault *fault);
    /* After what the fault does to the network and to processes. broken_ns: of BREAK, until both
     * sides know. */
    void (*fault)(struct sl_sim_member *member, const struct sl_sim_fault *fault, bool begins,
                  uint64_t broken_ns);
    void (*frame)(struct sl_sim_member *member, const struct sl_sim_frame *frame);
    void (*ended)(struct sl_sim_member *member, uint32_t host); /* a connection of it */
    void (*sent)(struct sl_sim_member *member, uint32_t host, uint32_t bytes); /* of memory */
};

/* A host. */
struct sl_sim_world_place {
    struct sl_sim_process *process; /* NULL: no process runs there */
    struct sl_sim_app *app;         /* that it is; NULL: none */
    uint64_t start_ns;              /* when one starts there next; SL_CLOCK_NEVER: none does */
    struct sl_sim_member *member;   /* whose host it is */
};

struct sl_sim_member {
    /* Set by the owner, the rest zero. */
    const struct sl_sim_member_actions *actions;
    struct sl_sim_breach *breach;
    uint64_t random;
    const struct sl_sim_network_options *options; /* as its plan has them */
    const struct sl_sim_fault *faults;            /* a, b: its hosts */
    uint32_t fault_count;

    struct sl_sim_world *world;
    uint32_t first_host;
    struct sl_sim_world_place *places; /* [hosts] */
    bool is_background;                /* the run does not wait for its applications to end */
    bool has_begun;                    /* its faults are scheduled */
    uint64_t fault_begin_ns[SL_SIM_FAULTS_MAX], fault_end_ns[SL_SIM_FAULTS_MAX];
    uint64_t look_ns; /* the owner's: when something of it is due */
    uint64_t turns;
};

struct sl_sim_world {
    uint64_t seed;
    bool verbose;
    bool is_mixed;                         /* it has several members: no plan of one is calm */
    struct sl_sim_network_options options; /* those of the last member, with hosts for all */
    struct sl_sim_member *members[SL_SIM_WORLD_MEMBERS_MAX];
    uint32_t member_count;
    uint64_t now_ns, trace, frames, packets, operations;
    struct sl_sim_network *network;
    struct sl_sim_world_place *places; /* [hosts] */
    bool faults_are_over;              /* those of all members */
};

/* A kind of member. A run has at most one of each kind. */
struct sl_sim_kind {
    /* Draws the plan of the world's seed, and adds the member to the world. */
    void (*make)(const struct sl_sim_choice *choice, struct sl_sim_world *world);
    void (*begin)(void); /* the world is created; NULL: nothing */
    void (*run)(void);   /* until the member has nothing more to do; NULL: sl_sim_world_run does */
    void (*judge)(void); /* all applications have ended; NULL: nothing */
    void (*fini)(void);  /* kills processes that are no applications, and frees all */
};

extern const struct sl_sim_kind sl_sim_kind_job, sl_sim_kind_transfer, sl_sim_kind_objects,
    sl_sim_kind_publish, sl_sim_kind_serve, sl_sim_kind_elections;

/* Prints a line of the trace, if asked to, and adds it to the hash. */
void sl_sim_world_note(struct sl_sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Before the world is created. Its hosts follow those of the members before it. */
void sl_sim_world_add(struct sl_sim_world *world, struct sl_sim_member *member);

/* Nothing runs yet, and no fault is due. */
void sl_sim_world_create(struct sl_sim_world *world);

/* From now on. */
void sl_sim_world_schedule_faults(struct sl_sim_member *member);

/* Schedules the start of the member's applications, and its faults. */
void sl_sim_world_start(struct sl_sim_member *member);

/* Does all that is due now, and moves on to the next moment at which something is. */
void sl_sim_world_moment(struct sl_sim_world *world);

/* No member has a breach. */
bool sl_sim_world_is_good(const struct sl_sim_world *world);

/* Runs applications, and the faults, until all of them have ended, or a breach. */
void sl_sim_world_run(struct sl_sim_world *world);

/* Prints the breach, or with `verbose` what has happened. Returns whether there was no breach. */
bool sl_sim_world_report(const struct sl_sim_world *world);

/* Kills the application on that host, which runs. */
void sl_sim_world_kill_app(struct sl_sim_member *member, uint32_t host, bool silent);

/* Kills applications that still run. */
void sl_sim_world_kill(struct sl_sim_world *world);

/* All processes are gone. */
void sl_sim_world_fini(struct sl_sim_world *world);

/* Whether all applications of the member run, and are in the stage. */
bool sl_sim_member_all_are_in(const struct sl_sim_member *member, uint32_t stage);
void sl_sim_member_enter(struct sl_sim_member *member, uint32_t stage);

#endif
