/* A process whose application calls functions that block: its threads are fibers. What it runs is
 * in transfer_app.h and objects_app.h. One thread. Allocates. */
#ifndef SL_TESTS_SIM_APP_H
#define SL_TESTS_SIM_APP_H

#include "core/limits.h"
#include "reactor/completion.h"
#include "tests/sim/fiber.h"
#include "tests/sim/process.h"

struct sl_objects;
struct sl_objects_setup;
struct sl_sim_breach;
struct sl_transfer;

#define SL_SIM_APP_THREADS_MAX 8
#define SL_SIM_APP_NAME_BYTES  (SL_LIMIT_ENDPOINT_BYTES + 8)
#define SL_SIM_APP_LEAVING     100 /* a stage: the application ends */

struct sl_sim_app;

struct sl_sim_app_actions {
    void (*poll)(struct sl_sim_app *app); /* before threads run; NULL: none */
    /* The process has ended, or is killed: `dying`. Its threads may still run. */
    void (*ended)(struct sl_sim_app *app);
    void (*fini)(struct sl_sim_app *app); /* frees what the threads had */
};

/* A thread of the application. */
struct sl_sim_thread {
    struct sl_sim_app *app;
    struct sl_sim_fiber *fiber;
    const struct sl_completion *completion; /* that it waits for; NULL: none */
    uint64_t wake_ns;                       /* by the clock of the process */
};

/* The first member of the process that it is. */
struct sl_sim_app {
    struct sl_sim_process process;
    const struct sl_sim_app_actions *actions;
    struct sl_sim_thread threads[SL_SIM_APP_THREADS_MAX]; /* the first one waits for the others */
    uint32_t thread_count;
    struct sl_sim_thread *running;
    uint64_t random;
    uint32_t stage; /* an enum of the process that it is */
    bool dying;     /* killed: its threads end as soon as they can */
};

/* "10.0.0.1:3333": of the engine on that host. */
void sl_sim_app_name(uint32_t host, char name[SL_SIM_APP_NAME_BYTES]);

/* In a thread: creates an engine with the name of the process's endpoint, on its reactor. */
struct sl_transfer *sl_sim_app_engine(struct sl_sim_app *app, const char *name);

/* Fills in the parts of a node's setup that the simulation replaces. */
void sl_sim_app_setup(struct sl_sim_app *app, struct sl_objects_setup *setup);

/* Judges that each slot of the node's pool is free or has a user. The node may be NULL. */
void sl_sim_app_judge_pool(const struct sl_sim_app *app, const struct sl_objects *node,
                           struct sl_sim_breach *breach);

/* Adds a thread, which does not run yet. */
void sl_sim_app_thread(struct sl_sim_app *app, void (*run)(void *ctx), void *ctx);

/* In a thread: waits. ctx: the process. */
void sl_sim_app_wait(void *ctx, struct sl_completion *completion);
void sl_sim_app_sleep(struct sl_sim_app *app, uint64_t ns);

/* Whether all threads but the first one have ended. */
bool sl_sim_app_others_ended(const struct sl_sim_app *app);

/* Runs its reactors and threads, as far as they have something to do. Returns the turns. */
uint32_t sl_sim_app_step(struct sl_sim_app *app);

/* When to step it next. */
uint64_t sl_sim_app_due(const struct sl_sim_app *app);

/* All threads have ended. */
bool sl_sim_app_ended(const struct sl_sim_app *app);

/* Frees what has ended. */
void sl_sim_app_fini(struct sl_sim_app *app);

/* It is gone from one moment to the next, and its memory is freed. */
void sl_sim_app_kill(struct sl_sim_app *app, bool silent);

#endif
