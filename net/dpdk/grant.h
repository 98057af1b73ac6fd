/* What a reactor lets its peers send: each connection may have SL_DPDK_BLIND_BYTES (about one
 * bandwidth-delay product) unasked; beyond that it sends what it is granted here, so that the sum
 * of what many may send at once stays within what this reactor's queues hold, and incast does not
 * collapse. Those with much to send share equally, in turns. Owner reactor; pure. */
#ifndef SL_NET_DPDK_GRANT_H
#define SL_NET_DPDK_GRANT_H

#include <stdbool.h>
#include <stdint.h>

struct sl_dpdk_grants;

/* One connection's; lives in the connection. */
struct sl_dpdk_grant {
    uint32_t granted;  /* message bytes that it may send in all: what headers say; runs over */
    uint32_t told;     /* the last that left in a packet */
    uint32_t arrived;  /* message bytes that came, the furthest place: never beyond granted */
    uint32_t consumed; /* delivered, or copied to where `sink` said */
    uint32_t wanted;   /* bytes that it is known to have yet to send: of the message in progress */
    bool waits;        /* in the list of those that want more than they have */
    struct sl_dpdk_grant *next, *previous;
};

struct sl_dpdk_grants {
    uint64_t
        budget_bytes; /* that may be granted and not arrived, of all connections' scheduled share */
    uint64_t scheduled_bytes; /* of it in use */
    uint32_t blind_bytes, step_bytes;
    struct sl_dpdk_grant waiting; /* head of a ring, in the order of turns */
    uint32_t waiting_count;
};

void sl_dpdk_grants_init(struct sl_dpdk_grants *grants, uint64_t budget_bytes, uint32_t blind_bytes,
                         uint32_t step_bytes);
void sl_dpdk_grant_open(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant);
void sl_dpdk_grant_close(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant);
/* Instead of grant_open, for a connection that comes from another reactor: with what its grant
 * there had been when it was closed. */
void sl_dpdk_grant_adopt(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                         const struct sl_dpdk_grant *before);

/* Bytes came (anywhere), were consumed, or are known to follow. */
void sl_dpdk_grant_arrived(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                           uint32_t bytes);
void sl_dpdk_grant_consumed(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                            uint32_t bytes);
void sl_dpdk_grant_wants(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                         uint32_t bytes);

/* Deals out what there is; for each connection whose grant grew by so much that the peer should
 * hear of it soon, tell(ctx, grant). Once a turn. */
void sl_dpdk_grants_deal(struct sl_dpdk_grants *grants,
                         void (*tell)(void *ctx, struct sl_dpdk_grant *grant), void *ctx);

#endif
