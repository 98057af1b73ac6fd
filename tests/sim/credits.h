/* Watches every connection's credit from outside: what the server grants, what the client spends.
 * One thread. Allocates. */
#ifndef SL_TESTS_SIM_CREDITS_H
#define SL_TESTS_SIM_CREDITS_H

#include "tests/sim/network.h"

struct sl_sim_oracle;

struct sl_sim_credit {
    int64_t granted_requests; /* by the welcome; 0: none has come */
    int64_t requests, bytes;  /* that the client may still spend, at least */
};

struct sl_sim_credits {
    struct sl_sim_credit *pairs;
    uint64_t pair_capacity;
};

/* Breaches go to the oracle. */
void sl_sim_credits_frame(struct sl_sim_credits *credits, struct sl_sim_oracle *oracle,
                          const struct sl_sim_frame *frame);
void sl_sim_credits_fini(struct sl_sim_credits *credits);

#endif
