#include "net/dpdk/grant.h"

#include <stddef.h>

#include "core/assert.h"

void sl_dpdk_grants_init(struct sl_dpdk_grants *grants, uint64_t budget_bytes,
                         uint32_t unscheduled_bytes, uint32_t step_bytes)
{
    sl_assert(step_bytes > 0);
    sl_assert(step_bytes <= budget_bytes / 2);
    *grants = (struct sl_dpdk_grants){.budget_bytes = budget_bytes,
                                      .unscheduled_bytes = unscheduled_bytes,
                                      .step_bytes = step_bytes};
    sl_list_init(&grants->waiting);
    sl_list_init(&grants->telling);
}

/* The account of one connection */

/* The part of the budget that it uses. */
static uint32_t share_of(const struct sl_dpdk_grants *grants, const struct sl_dpdk_grant *grant)
{
    uint32_t held = grant->granted - grant->consumed;
    return held > grants->unscheduled_bytes ? held - grants->unscheduled_bytes : 0;
}

/* The known need beyond its grant. */
static uint32_t need_of(const struct sl_dpdk_grant *grant)
{
    uint32_t left = grant->granted - grant->arrived;
    return grant->requested > left ? grant->requested - left : 0;
}

/* Whether the peer should be notified: the grant grew by half of the unscheduled bytes, which is
 * reached before the peer has used them all; or a smaller step covers the rest of its data. */
static bool is_news(const struct sl_dpdk_grants *grants, const struct sl_dpdk_grant *grant)
{
    uint32_t grown = grant->granted - grant->advertised;
    uint32_t half = grants->unscheduled_bytes / 2;
    uint32_t enough = grants->step_bytes < half ? grants->step_bytes : half;
    return grown > 0 &&
           (grown >= enough ||
            (grant->requested > grant->advertised - grant->arrived && need_of(grant) == 0));
}

/* Ring and list */

static void ring_remove(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant)
{
    grants->waiting_count -= sl_list_linked(&grant->waiting);
    sl_list_remove(&grant->waiting);
}

static void ring_add(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant)
{
    sl_list_append(&grants->waiting, &grant->waiting);
    grants->waiting_count++;
}

/* Called after any change of its numbers. */
static void review(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant)
{
    bool waits = need_of(grant) > 0;
    if (waits && !sl_list_linked(&grant->waiting)) {
        ring_add(grants, grant);
    } else if (!waits) {
        ring_remove(grants, grant);
    }
    if (!sl_list_linked(&grant->telling) && is_news(grants, grant)) {
        sl_list_prepend(&grants->telling, &grant->telling);
    }
}

/* Open and close */

void sl_dpdk_grant_open(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant)
{
    *grant = (struct sl_dpdk_grant){.granted = grants->unscheduled_bytes,
                                    .advertised = grants->unscheduled_bytes};
}

void sl_dpdk_grant_close(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant)
{
    ring_remove(grants, grant);
    sl_list_remove(&grant->telling);
    grants->scheduled_bytes -= share_of(grants, grant);
}

/* The unscheduled bytes do not depend on other connections. */
static void raise_to_unscheduled(const struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant)
{
    if (grant->granted - grant->consumed < grants->unscheduled_bytes) {
        grant->granted = grant->consumed + grants->unscheduled_bytes;
    }
}

void sl_dpdk_grant_arrived(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                           uint32_t bytes)
{
    sl_assert(sl_dpdk_grant_allows(grant, bytes));
    grant->arrived += bytes;
    grant->requested -= bytes < grant->requested ? bytes : grant->requested;
    review(grants, grant);
}

void sl_dpdk_grant_consumed(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                            uint32_t bytes)
{
    sl_assert(bytes <= grant->arrived - grant->consumed);
    uint32_t share = share_of(grants, grant);
    grant->consumed += bytes;
    raise_to_unscheduled(grants, grant);
    grants->scheduled_bytes -= share - share_of(grants, grant);
    review(grants, grant);
}

void sl_dpdk_grant_wants(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant, uint32_t bytes)
{
    grant->requested = bytes;
    review(grants, grant);
}

void sl_dpdk_grant_wants_more(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant,
                              uint32_t bytes)
{
    if (grant->requested < bytes && grants->scheduled_bytes < grants->budget_bytes / 4) {
        sl_dpdk_grant_wants(grants, grant, bytes);
    }
}

/* Distribution */

/* The grant of its turn: its need, at most a step; 0 if it would exceed half of the budget. */
static uint32_t portion_of(const struct sl_dpdk_grants *grants, const struct sl_dpdk_grant *grant)
{
    uint32_t need = need_of(grant);
    uint32_t portion = need < grants->step_bytes ? need : grants->step_bytes;
    return share_of(grants, grant) + portion <= grants->budget_bytes / 2 ? portion : 0;
}

/* Round-robin until the budget is used or no connection can get more. A connection that has half of
 * the budget is skipped. */
static void deal(struct sl_dpdk_grants *grants)
{
    for (uint32_t passed = 0; passed < grants->waiting_count;) {
        struct sl_dpdk_grant *grant =
            SL_CONTAINER_OF(sl_list_first(&grants->waiting), struct sl_dpdk_grant, waiting);
        uint32_t portion = portion_of(grants, grant);
        if (grants->scheduled_bytes + portion > grants->budget_bytes) {
            return;
        }
        passed = portion > 0 ? 0 : passed + 1;
        uint32_t share = share_of(grants, grant);
        grant->granted += portion;
        grants->scheduled_bytes += share_of(grants, grant) - share;
        ring_remove(grants, grant);
        ring_add(grants, grant);
        review(grants, grant);
    }
}

void sl_dpdk_grants_deal(struct sl_dpdk_grants *grants,
                         void (*tell)(void *ctx, struct sl_dpdk_grant *grant), void *ctx)
{
    deal(grants);
    SL_LIST_TAKE (struct sl_dpdk_grant, grant, telling, &grants->telling) {
        if (is_news(grants, grant)) {
            tell(ctx, grant);
        }
    }
}
