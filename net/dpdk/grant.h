/* Receiver-driven credit of a reactor. Each connection may have `unscheduled_bytes` (about one
 * bandwidth-delay product) in flight or unconsumed without asking. Beyond that it sends only
 * granted bytes. So all senders together stay within the capacity of this reactor's queues, and
 * incast does not collapse. Connections with much to send share the budget equally, in turns; none
 * gets more than half. unscheduled_bytes must exceed the longest message that is consumed only as a
 * whole, or such a message would never complete. Owner reactor; pure. */
#ifndef SL_NET_DPDK_GRANT_H
#define SL_NET_DPDK_GRANT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/list.h"

struct sl_dpdk_grants;

/* The grant of one connection; a member of the connection. */
struct sl_dpdk_grant {
    uint32_t
        granted; /* message bytes that the peer may send in total, as in headers; wraps around */
    uint32_t
        advertised;     /* `granted` in the last packet sent; set by the code that writes headers */
    uint32_t arrived;   /* message bytes received, each once; never beyond granted */
    uint32_t consumed;  /* delivered or copied to the sink; never beyond arrived */
    uint32_t requested; /* bytes that the peer still has to send, as far as known */
    struct sl_list_link waiting; /* in the list of the same name: needs more than is granted */
    struct sl_list_link telling; /* likewise: the peer should be notified */
};

struct sl_dpdk_grants {
    uint64_t budget_bytes;    /* limit for all connections: granted beyond unscheduled_bytes and not
                                 consumed */
    uint64_t scheduled_bytes; /* used part of budget_bytes */
    uint32_t unscheduled_bytes, step_bytes;
    struct sl_list waiting; /* in round-robin order */
    uint32_t waiting_count;
    struct sl_list telling;
};

/* step_bytes: grant per turn; at most half of budget_bytes. */
void sl_dpdk_grants_init(struct sl_dpdk_grants *grants, uint64_t budget_bytes,
                         uint32_t unscheduled_bytes, uint32_t step_bytes);
/* Sets granted to unscheduled_bytes. */
void sl_dpdk_grant_open(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant);
/* Returns the unconsumed part to the budget. The numbers stay. */
void sl_dpdk_grant_close(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant);
/* Whether this many new bytes may arrive. False: the peer exceeds its grant. */
static inline bool sl_dpdk_grant_allows(const struct sl_dpdk_grant *grant, uint32_t bytes)
{
    return bytes <= grant->granted - grant->arrived;
}

/* New bytes arrived, in any order; sl_dpdk_grant_allows holds. */
void sl_dpdk_grant_arrived(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                           uint32_t bytes);
/* Arrived bytes were consumed. */
void sl_dpdk_grant_consumed(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                            uint32_t bytes);
/* Sets `requested`; arriving bytes reduce it. */
void sl_dpdk_grant_wants(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                         uint32_t bytes);

/* Raises `requested` to this estimate, unless a quarter of the budget is in use. */
void sl_dpdk_grant_wants_more(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                              uint32_t bytes);

/* Distributes the budget, once a turn. Calls tell(ctx, grant) for each connection whose peer should
 * be notified soon, at the latest when it could send nothing more. tell must not call functions of
 * this file. */
void sl_dpdk_grants_deal(struct sl_dpdk_grants *grants,
                         void (*tell)(void *ctx, struct sl_dpdk_grant *grant), void *ctx);

#endif
