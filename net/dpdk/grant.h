/* What a reactor lets its peers send: each connection may have `unscheduled_bytes` (about one
 * bandwidth-delay product) on their way or waiting, unasked; beyond that it sends what it is
 * granted here, so that the sum of what many may send at once stays within what this reactor's
 * queues hold, and incast does not collapse. Those with much to send share equally, in turns; none
 * has more than half. unscheduled_bytes must be more than the longest message that waits whole to
 * be consumed, or that would never be. Owner reactor; pure. */
#ifndef SL_NET_DPDK_GRANT_H
#define SL_NET_DPDK_GRANT_H

#include <stdbool.h>
#include <stdint.h>

struct sl_dpdk_grants;

/* One connection's; lives in the connection. */
struct sl_dpdk_grant {
    uint32_t granted;    /* message bytes that it may send in all: what headers say; runs over */
    uint32_t advertised; /* the last that left in a packet: whoever writes headers sets it */
    uint32_t arrived;    /* message bytes that came, each once: never beyond granted */
    uint32_t consumed;   /* delivered, or copied to where `sink` said: never beyond arrived */
    uint32_t requested; /* bytes that it is known to have yet to send: of the message in progress */
    bool waits;         /* in the ring of those that want more than they have */
    bool update_pending; /* in the list of those of which the peer should hear */
    struct sl_dpdk_grant *next, *previous, *tells_next;
};

struct sl_dpdk_grants {
    uint64_t
        budget_bytes; /* of all connections, granted beyond unscheduled_bytes and not consumed */
    uint64_t scheduled_bytes; /* of it in use */
    uint32_t unscheduled_bytes, step_bytes;
    struct sl_dpdk_grant waiting; /* head of a ring, in the order of turns */
    uint32_t waiting_count;
    struct sl_dpdk_grant *telling;
};

/* step_bytes: what one gets in its turn; at most half of budget_bytes. */
void sl_dpdk_grants_init(struct sl_dpdk_grants *grants, uint64_t budget_bytes,
                         uint32_t unscheduled_bytes, uint32_t step_bytes);
/* granted is unscheduled_bytes then. */
void sl_dpdk_grant_open(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant);
/* Gives back what is not consumed. The numbers stay. */
void sl_dpdk_grant_close(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant);
/* Instead of grant_open, for a connection that comes from another reactor: with what its grant
 * there had been when it was closed. */
void sl_dpdk_grant_adopt(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                         const struct sl_dpdk_grant *before);

/* Whether these bytes, new ones, may come. False: the peer sends more than it was granted. */
static inline bool sl_dpdk_grant_allows(const struct sl_dpdk_grant *grant, uint32_t bytes)
{
    return bytes <= grant->granted - grant->arrived;
}

/* Bytes came, in any order, for the first time; allowed. */
void sl_dpdk_grant_arrived(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                           uint32_t bytes);
/* So many of those have been consumed. */
void sl_dpdk_grant_consumed(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                            uint32_t bytes);
/* So many, in place of what was said before, are known to follow; what arrives is taken off. */
void sl_dpdk_grant_wants(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                         uint32_t bytes);

/* That many at least, as far as it may be guessed: nothing when a quarter of the budget is in use.
 */
void sl_dpdk_grant_wants_more(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                              uint32_t bytes);

/* Deals out what there is; for each connection whose grant grew by so much that the peer should
 * hear of it soon, tell(ctx, grant): at the latest when it could send nothing more. tell calls
 * nothing of this file. Once a turn. */
void sl_dpdk_grants_deal(struct sl_dpdk_grants *grants,
                         void (*tell)(void *ctx, struct sl_dpdk_grant *grant), void *ctx);

#endif
