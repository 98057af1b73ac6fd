/* The metadata store of the simulated engines and elections (tests/support/memory_store.h), some
 * way off: a request takes effect after a delay, or an outage, and its answer takes as long again.
 * It may take effect when its process was answered DEADLINE, or has ended. A store that gets stuck
 * also executes requests long after later ones, or for a second time. One thread. Allocates. */
#ifndef SL_TESTS_SIM_TRANSFER_STORE_H
#define SL_TESTS_SIM_TRANSFER_STORE_H

#include "core/list.h"
#include "net/store/metastore.h"
#include "tests/sim/process.h"
#include "tests/sim/transfer_plan.h"

#define SL_SIM_TRANSFER_STORE_HANDLES_MAX 5

struct memory_store;

/* What one process has of it. */
struct sl_sim_transfer_handle {
    struct sl_metastore base;
    struct sl_sim_transfer_store *store;
    struct sl_reactor *reactor;
    uint64_t there_ns, back_ns; /* of the last request: they stay in order; the network's time */
    bool is_cut;                /* an outage for this process alone */
};

struct sl_sim_transfer_store {
    const struct sl_sim_transfer_plan *plan;
    struct sl_sim_network *network;
    struct memory_store *memory;
    struct sl_metastore *inner;
    struct sl_sim_transfer_handle handles[SL_SIM_TRANSFER_STORE_HANDLES_MAX];
    struct sl_list asks; /* in the order of their coming */
    uint64_t random;
    uint32_t outages;
    uint32_t stuck_permille; /* requests that are executed late, or without an answer, or twice */
    uint64_t stuck_ns_max;   /* so late */
    bool is_calm;            /* quick, from now on */
};

void sl_sim_transfer_store_init(struct sl_sim_transfer_store *store,
                                const struct sl_sim_transfer_plan *plan,
                                struct sl_sim_network *network);

/* No process is left. */
void sl_sim_transfer_store_fini(struct sl_sim_transfer_store *store);

/* A process begins there; its engine uses this. */
struct sl_metastore *sl_sim_transfer_store_open(struct sl_sim_transfer_store *store, uint32_t host,
                                                struct sl_reactor *reactor);

/* The engine is gone: it gets no answer. Its requests in flight may still take effect. */
void sl_sim_transfer_store_forget(struct sl_sim_transfer_store *store, uint32_t host);

/* The process has ended: its requests are answered CANCELLED, but may still take effect. */
void sl_sim_transfer_store_cancel(struct sl_sim_transfer_store *store, uint32_t host);

/* Carries out what is due, and ends leases. */
void sl_sim_transfer_store_advance(struct sl_sim_transfer_store *store);

/* The incarnation that the record of this name has; 0: there is none, or it is invalid. */
uint64_t sl_sim_transfer_store_incarnation(const struct sl_sim_transfer_store *store,
                                           const char *name);

/* How many records there are. */
uint32_t sl_sim_transfer_store_count(const struct sl_sim_transfer_store *store);

#endif
