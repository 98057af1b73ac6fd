/* One batch of a simulated application: draws its requests, submits them, and judges what has
 * become of them. Local memory is a place of its own for each batch, with guards. One thread. */
#ifndef SL_TESTS_SIM_TRANSFER_BATCH_H
#define SL_TESTS_SIM_TRANSFER_BATCH_H

#include <starling_transfer.h>

#include "tests/sim/transfer_oracle.h"

#define SL_SIM_TRANSFER_SLOTS_MAX    4
#define SL_SIM_TRANSFER_REQUESTS_MAX 40

struct sl_sim_transfer_app;

struct sl_sim_transfer_request {
    enum sl_transfer_op op;
    uint32_t peer, target, target_life; /* peer: of the app's segments; target: its host */
    uint32_t first, words;              /* of the target's memory */
    uint32_t local;                     /* word of the batch's local memory */
    uint32_t origin;                    /* WRITE: its number */
    bool is_invalid;
    struct sl_sim_transfer_floor *floors; /* READ: as of its submission */
};

struct sl_sim_transfer_batch {
    struct sl_sim_transfer_app *app;
    uint64_t *local;
    uint32_t local_words;
    struct sl_transfer_batch *batch;
    struct sl_sim_transfer_request requests[SL_SIM_TRANSFER_REQUESTS_MAX];
    uint32_t count;
    bool is_running, is_cancelled, must_succeed;
    uint32_t timeout_ms;
    uint64_t begun_ns, cancelled_ns; /* the network's time */
    uint64_t paused_ns;              /* of the process, when it was begun */
    uint64_t hash;                   /* of the local memory, when it was over */
    bool saw_closed;                 /* some segment has to be opened again */
    bool has_failed, has_notice;
    uint32_t notice; /* its number */
};

/* index: of the app's batches. Maps the local memory, which the caller registers. */
void sl_sim_transfer_batch_init(struct sl_sim_transfer_batch *batch,
                                struct sl_sim_transfer_app *app, uint32_t index);
void sl_sim_transfer_batch_fini(struct sl_sim_transfer_batch *batch);

/* Submits requests at random to the open segments of the app. must_succeed: one WRITE and one READ
 * for the `peer`; else ignored. */
void sl_sim_transfer_batch_begin(struct sl_sim_transfer_batch *batch, bool must_succeed,
                                 uint32_t peer);

void sl_sim_transfer_batch_cancel(struct sl_sim_transfer_batch *batch);

/* Judges it if it is over, or too late. */
void sl_sim_transfer_batch_poll(struct sl_sim_transfer_batch *batch);

/* Judges that nobody has touched the local memory since it was over. */
void sl_sim_transfer_batch_judge_local(struct sl_sim_transfer_batch *batch);

#endif
