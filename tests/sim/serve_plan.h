/* What a seed means for the simulation of model serving. Pure. */
#ifndef SL_TESTS_SIM_SERVE_PLAN_H
#define SL_TESTS_SIM_SERVE_PLAN_H

#include "tests/sim/plan.h"

#define SL_SIM_SERVE_GATEWAYS_MAX 2
#define SL_SIM_SERVE_WORKERS_MAX  4
#define SL_SIM_SERVE_MODELS_MAX   6
#define SL_SIM_SERVE_CLIENTS_MAX  4 /* of a gateway */
/* Least numbers of a row of outputs: model, version, the number of the row of inputs, which is
 * repeated behind it. */
#define SL_SIM_SERVE_OUT          3

/* Host 0 has the catalogue, and publishes. Then come gateways, then workers. */
struct sl_sim_serve_plan {
    uint64_t seed;
    uint32_t first_host; /* in the world */
    uint32_t gateway_count, worker_count, model_count;
    uint32_t model_bytes;
    uint32_t pool_bytes;     /* of a worker, which is its own agent; for one model at least */
    uint32_t client_count;   /* of a gateway */
    uint32_t request_count;  /* of a client */
    uint32_t think_us_max;   /* between its requests */
    uint32_t timeout_ms_max; /* of a request */
    uint32_t compute_us_max; /* of a layer */
    uint32_t version_count;  /* of each model, besides the first */
    uint32_t batch_max;
    /* Numbers of a row. Few rows of few numbers ride in the messages; else they are written before.
     */
    uint32_t input_numbers, output_numbers;
    bool has_tables; /* models are versions of the tables of a job: publish.h */
    bool is_basic;   /* the strategy */
    bool calm;       /* nothing fails */
    uint64_t gap_ns; /* of a turn */
    struct sl_sim_network_options network;
    struct sl_sim_fault faults[SL_SIM_FAULTS_MAX]; /* a, b: hosts; KILL_PS: a process */
    uint32_t fault_count;
};

void sl_sim_serve_plan_make(struct sl_sim_serve_plan *plan, uint64_t seed,
                            const struct sl_sim_choice *choice);

void sl_sim_serve_plan_print(const struct sl_sim_serve_plan *plan);

#endif
