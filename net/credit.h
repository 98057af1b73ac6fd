/* Credits of one direction of one connection, in requests and bytes. The receiver of requests
 * grants, the sender spends; a sender that overspends breaks the protocol. Pure; owner reactor. */
#ifndef SL_NET_CREDIT_H
#define SL_NET_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

struct sl_credit {
    uint64_t bytes;
    uint32_t requests;
};

/* Takes one request of this many bytes if there is credit for it. */
static inline bool sl_credit_spend(struct sl_credit *credit, uint64_t bytes)
{
    if (credit->requests == 0 || credit->bytes < bytes) {
        return false;
    }
    credit->requests--;
    credit->bytes -= bytes;
    return true;
}

static inline void sl_credit_grant(struct sl_credit *credit, uint64_t bytes, uint32_t requests)
{
    credit->bytes += bytes;
    credit->requests += requests;
}

#endif
