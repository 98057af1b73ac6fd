/* Credits of one direction of a connection, in requests and bytes. The receiver of requests grants,
 * the sender spends; overspending violates the protocol. Pure; owner reactor. */
#ifndef SL_NET_CREDIT_H
#define SL_NET_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

struct sl_credit {
    uint64_t bytes;
    uint32_t requests;
};

/* Spends one request of `bytes` (sl_request_credit_bytes). False, without effect, if there is too
 * little credit. */
static inline bool sl_credit_spend(struct sl_credit *credit, uint64_t bytes)
{
    if (credit->requests == 0 || credit->bytes < bytes) {
        return false;
    }
    credit->requests--;
    credit->bytes -= bytes;
    return true;
}

/* Saturates, because a peer sends the grants: a wrap-around would leave too little. */
static inline void sl_credit_grant(struct sl_credit *credit, uint64_t bytes, uint32_t requests)
{
    if (__builtin_add_overflow(credit->bytes, bytes, &credit->bytes)) {
        credit->bytes = UINT64_MAX;
    }
    if (__builtin_add_overflow(credit->requests, requests, &credit->requests)) {
        credit->requests = UINT32_MAX;
    }
}

#endif
