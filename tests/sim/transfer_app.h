/* A process of the simulation of transfer engines: an engine, unmodified, and the application's
 * threads, which are fibers. One thread (life) creates the engine, serves memory, unregisters and
 * registers it, and destroys the engine; another (driver) opens the segments of its peers and
 * submits batches; the third (taker) takes notices, unless async.h does.
 * Allocates. */
#ifndef SL_TESTS_SIM_TRANSFER_APP_H
#define SL_TESTS_SIM_TRANSFER_APP_H

#include <starling_transfer.h>

#include "net/transfer/engine.h"
#include "tests/sim/app.h"
#include "tests/sim/transfer_batch.h"
#include "tests/sim/transfer_store.h"

enum sl_sim_transfer_stage {
    SL_SIM_TRANSFER_WORKING, /* batches, while there are faults */
    SL_SIM_TRANSFER_DONE,    /* waits for the others */
    SL_SIM_TRANSFER_PROVING, /* one WRITE and one READ for each peer must succeed */
    SL_SIM_TRANSFER_PROVED,
    SL_SIM_TRANSFER_ENDING, /* closes everything */
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
    struct sl_sim_app base; /* stage: enum sl_sim_transfer_stage */
    struct sl_sim_transfer_app_options options;
    uint64_t incarnation;
    bool incarnation_drawn;
    uint32_t life; /* of the oracle */
    struct sl_transfer *engine;
    struct sl_transfer_async *async; /* that reads notices; NULL: none */
    bool serves;                     /* its memory is registered */
    struct sl_transfer_segment *segments[SL_SIM_TRANSFER_PEERS_MAX];
    uint32_t lives[SL_SIM_TRANSFER_PEERS_MAX]; /* of those */
    uint32_t batches_left;
    bool naps;
    uint32_t nap_at; /* batches left when it naps; UINT32_MAX: it does not */
    struct sl_sim_transfer_batch batches[SL_SIM_TRANSFER_SLOTS_MAX];
};

void sl_sim_transfer_app_start(struct sl_sim_transfer_app *app,
                               const struct sl_sim_transfer_app_options *options);

/* Judges, when nothing is in progress, that lanes, slices, credit and memory have returned. */
void sl_sim_transfer_app_judge_rest(struct sl_sim_transfer_app *app);

#endif
