/* A process of the simulation of objects: an engine and a node, unmodified, and the application's
 * threads, which are fibers. One thread (life) creates and destroys both; the others publish, get,
 * withdraw, remove, list, follow and view. Allocates. */
#ifndef SL_TESTS_SIM_OBJECTS_APP_H
#define SL_TESTS_SIM_OBJECTS_APP_H

#include <starling_objects.h>

#include "tests/sim/app.h"
#include "tests/sim/objects_oracle.h"

enum sl_sim_objects_stage {
    SL_SIM_OBJECTS_WORKING, /* while there are faults */
    SL_SIM_OBJECTS_DONE,    /* waits for the others */
    SL_SIM_OBJECTS_PROVING, /* what a name's first node publishes arrives everywhere */
    SL_SIM_OBJECTS_PROVED,
    SL_SIM_OBJECTS_ENDING, /* withdraws everything */
    SL_SIM_OBJECTS_EMPTY,
    SL_SIM_OBJECTS_LEAVING = SL_SIM_APP_LEAVING,
};

#define SL_SIM_OBJECTS_HELD_MAX 64

/* A version that the application has and serves. */
struct sl_sim_objects_held {
    uint32_t content; /* 0: this place is free */
    uint64_t version;
    bool is_busy;       /* a thread is about to withdraw it */
    uint8_t *memory;    /* NULL: in the pool */
    struct sl_get *got; /* keeps it there; NULL: it may be evicted */
    uint64_t bytes;
};

struct sl_sim_objects_app;

/* A thread of the application, besides `life`. */
struct sl_sim_objects_worker {
    struct sl_sim_objects_app *app;
    uint32_t actions_left;
    bool is_done;
};

struct sl_sim_objects_app_options {
    struct sl_sim_network *network;
    struct sl_sim_objects_oracle *oracle;
    const struct sl_sim_objects_plan *plan;
    uint32_t host;
    uint64_t seed, offset_ns;
    const struct sl_disk *disk; /* of a keeper; NULL: none */
    bool verbose;
};

struct sl_sim_objects_app {
    struct sl_sim_app base; /* stage: enum sl_sim_objects_stage */
    struct sl_sim_objects_app_options options;
    bool is_ready;
    struct sl_transfer *engine;
    struct sl_objects *node; /* NULL: not yet, or no more */
    struct sl_sim_objects_worker workers[SL_SIM_OBJECTS_THREADS_MAX];
    struct sl_sim_objects_held held[SL_SIM_OBJECTS_HELD_MAX];
};

void sl_sim_objects_app_start(struct sl_sim_objects_app *app,
                              const struct sl_sim_objects_app_options *options);

/* Judges that nothing is left of what the application has withdrawn. */
void sl_sim_objects_app_judge_rest(struct sl_sim_objects_app *app);

#endif
