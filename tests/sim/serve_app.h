/* A process of the simulation of model serving: the catalogue with a publisher, a gateway with its
 * clients, or a worker with a node of its own as its agent; each unmodified, with engines on
 * stepped reactors. The application's threads, clients, and the jobs of gateway and worker are
 * fibers. A stand-in for an engine computes: it spends time, and its outputs say what it has read.
 */
#ifndef SL_TESTS_SIM_SERVE_APP_H
#define SL_TESTS_SIM_SERVE_APP_H

#include <starling_objects.h>

#include "programs/serve/engine/engine.h"
#include "programs/serve/gateway/gateway.h"
#include "programs/serve/worker/worker.h"
#include "tests/sim/jobs.h"
#include "tests/sim/serve_plan.h"
#include "tests/sim/world.h"

enum sl_sim_serve_stage {
    SL_SIM_SERVE_WORKING, /* while there are faults */
    SL_SIM_SERVE_DONE,
    SL_SIM_SERVE_PROVING, /* each model is answered by each gateway */
    SL_SIM_SERVE_PROVED,
    SL_SIM_SERVE_ENDING, /* gateways drain */
    SL_SIM_SERVE_EMPTY,
    SL_SIM_SERVE_LEAVING = SL_SIM_APP_LEAVING,
};

enum sl_sim_serve_role { SL_SIM_SERVE_STORE, SL_SIM_SERVE_GATEWAY, SL_SIM_SERVE_WORKER };

/* What all processes know: which versions may have been published. */
struct sl_sim_serve_oracle {
    const struct sl_sim_serve_plan *plan;
    const struct sl_sim_world *world;
    uint64_t newest[SL_SIM_SERVE_MODELS_MAX]; /* that was begun */
    uint64_t next_input;                      /* each row of a request is one number */
    bool is_published;                        /* the first version of all models */
    uint32_t answered, refused, late;
    struct sl_sim_breach breach;
};

struct sl_sim_serve_app_options {
    struct sl_sim_network *network;
    struct sl_sim_serve_oracle *oracle;
    const struct sl_sim_serve_plan *plan;
    enum sl_sim_serve_role role;
    uint32_t host;
    uint64_t seed, offset_ns;
    bool verbose;
};

struct sl_sim_serve_client {
    struct sl_sim_serve_app *app;
    uint32_t requests_left;
    bool is_done;
};

struct sl_sim_serve_app {
    struct sl_sim_app base; /* stage: enum sl_sim_serve_stage */
    struct sl_sim_serve_app_options options;
    bool is_ready;
    struct sl_transfer *engine;
    struct sl_objects *node;
    struct sl_mailbox_lane *lane; /* to the reactor */
    struct sl_serve_gateway *gateway;
    struct sl_serve_worker *worker;
    struct sl_sim_jobs jobs[2]; /* of a gateway, or a worker */
    struct sl_sim_serve_client clients[SL_SIM_SERVE_CLIENTS_MAX];
    struct sl_completion ended;
};

void sl_sim_serve_app_start(struct sl_sim_serve_app *app,
                            const struct sl_sim_serve_app_options *options);

/* In a fiber: runs the function in a turn of the reactor, and returns after it. */
void sl_sim_serve_app_run(struct sl_sim_serve_app *app, void (*run)(void *ctx), void *ctx);

/* serve_client.c: the fiber of a client. */
void sl_sim_serve_client_run(void *ctx);

/* serve_engine.c: the stand-in that computes for this host, and the images that it reads. */
const struct sl_engine *sl_sim_serve_engine(uint32_t worker, struct sl_sim_serve_app *app);
void sl_sim_serve_engine_fill(uint32_t model, uint64_t version, uint8_t *weights, uint64_t bytes);

#endif
