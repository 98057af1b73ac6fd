/* A process of the simulation of transfer engines: an engine, unmodified, and the application's
 * threads, which are fibers. One thread (life) creates the engine, serves memory, unregisters and
 * registers it, and destroys the engine; another (driver) opens the segments of its peers and
 * submits batches; the third (taker) takes notices, unless a reactor outside the engine does.
 * Allocates. */
#ifndef SL_TESTS_SIM_TRANSFER_APP_H
#define SL_TESTS_SIM_TRANSFER_APP_H

#include <starling_transfer.h>

#include "tests/sim/fiber.h"
#include "tests/sim/process.h"
#include "tests/sim/transfer_batch.h"
#include "tests/sim/transfer_store.h"
#include "transfer/engine.h"

enum sl_sim_transfer_stage {
    SL_SIM_TRANSFER_WORKING, /* batches, while there are faults */
    SL_SIM_TRANSFER_DONE,    /* waits for the others */
    SL_SIM_TRANSFER_PROVING, /* one WRITE and one READ for each peer must succeed */
    SL_SIM_TRANSFER_PROVED,
    SL_SIM_TRANSFER_ENDING, /* closes everything */
};

#define SL_SIM_TRANSFER_THREADS 3

/* A thread of the application. */
struct sl_sim_transfer_thread {
    struct sl_sim_transfer_app *app;
    struct sl_sim_fiber *fiber;
    const struct sl_completion *completion; /* that it waits for; NULL: none */
    uint64_t wake_ns;                       /* by the clock of the process */
};

struct sl_sim_transfer_app_options {
    struct sl_sim_network *network;
    struct sl_sim_transfer_oracle *oracle;
    struct sl_sim_transfer_store *store; /* NULL: none */
    const struct sl_sim_transfer_plan *plan;
    uint32_t host;
    uint64_t seed, offset_ns;
};

struct sl_sim_transfer_app {
    struct sl_sim_process process;
    struct sl_sim_transfer_app_options options;
    uint64_t random, incarnation;
    bool incarnation_drawn;
    uint32_t life; /* of the oracle */
    enum sl_sim_transfer_stage stage;
    bool dying; /* killed: its threads end as soon as they can */
    struct sl_transfer *engine;
    struct sl_transfer_async *async; /* of the reactor outside; NULL: none */
    bool async_ended;
    bool serves; /* its memory is registered */
    struct sl_sim_transfer_thread threads[SL_SIM_TRANSFER_THREADS];
    struct sl_sim_transfer_thread *running;
    struct sl_transfer_segment *segments[SL_SIM_TRANSFER_PEERS_MAX];
    uint32_t lives[SL_SIM_TRANSFER_PEERS_MAX]; /* of those */
    uint32_t batches_left;
    bool naps;
    uint32_t nap_at; /* batches left when it naps; UINT32_MAX: it does not */
    struct sl_sim_transfer_batch batches[SL_SIM_TRANSFER_SLOTS_MAX];
};

void sl_sim_transfer_app_start(struct sl_sim_transfer_app *app,
                               const struct sl_sim_transfer_app_options *options);

/* Runs its reactors and threads, as far as they have something to do. Returns the turns. */
uint32_t sl_sim_transfer_app_step(struct sl_sim_transfer_app *app);

/* When to step it next. */
uint64_t sl_sim_transfer_app_due(const struct sl_sim_transfer_app *app);

/* All threads have ended. */
bool sl_sim_transfer_app_ended(const struct sl_sim_transfer_app *app);

/* Frees what has ended. */
void sl_sim_transfer_app_fini(struct sl_sim_transfer_app *app);

/* It is gone from one moment to the next, and its memory is freed. */
void sl_sim_transfer_app_kill(struct sl_sim_transfer_app *app, bool silent);

/* Judges, when nothing is in progress, that lanes, slices, credit and memory have returned. */
void sl_sim_transfer_app_judge_rest(struct sl_sim_transfer_app *app);

#define SL_SIM_TRANSFER_NAME_BYTES (SL_LIMIT_ENDPOINT_BYTES + 8)

/* "10.0.0.1:3333" */
void sl_sim_transfer_app_name(uint32_t host, char name[SL_SIM_TRANSFER_NAME_BYTES]);

/* In a thread: sleeps. Outside of threads, no effect. */
void sl_sim_transfer_app_sleep(struct sl_sim_transfer_app *app, uint64_t ns);

#endif
