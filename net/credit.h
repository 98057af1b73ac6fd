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

/* Takes one request of this many bytes (sl_request_credit_bytes) if there is credit for it, else
 * nothing and returns false. */
static inline bool sl_credit_spend(struct sl_credit *credit, uint64_t bytes)
{
    if (credit->requests == 0 || credit->bytes < bytes) {
        return false;
    }
    credit->requests--;
    credit->bytes -= bytes;
    return true;
}

/* Grants come from a peer: they stop at the greatest value instead of wrapping round to little. */
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
