#include <stdlib.h>

#include "core/hash.h"
#include "net/dpdk/grant.h"
#include "tests/support/unit.h"

#define BLIND  65536U
#define BUDGET (4U << 20)
#define STEP   32768U
#define LONG   (4U << 20)

static void on_tell(void *ctx, struct sl_dpdk_grant *grant)
{
    uint32_t *told = ctx;
    grant->advertised = grant->granted;
    ++*told;
}

/* Returns of how many the peer should hear. */
static uint32_t deal(struct sl_dpdk_grants *grants)
{
    uint32_t told = 0;
    sl_dpdk_grants_deal(grants, on_tell, &told);
    return told;
}

static void come(struct sl_dpdk_grants *grants, struct sl_dpdk_grant *grant, uint32_t bytes)
{
    assert_true(sl_dpdk_grant_allows(grant, bytes));
    sl_dpdk_grant_arrived(grants, grant, bytes);
    sl_dpdk_grant_consumed(grants, grant, bytes);
}

SL_CASE(grant__unscheduled_bytes_need_no_budget)
{
    struct sl_dpdk_grants grants;
    struct sl_dpdk_grant grant;
    sl_dpdk_grants_init(&grants, BUDGET, BLIND, STEP);
    sl_dpdk_grant_open(&grants, &grant);
    assert_int_equal(grant.granted, BLIND);
    assert_true(sl_dpdk_grant_allows(&grant, BLIND));
    assert_false(sl_dpdk_grant_allows(&grant, BLIND + 1));
    uint32_t told = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        come(&grants, &grant, 1000);
        assert_int_equal(grant.granted - grant.consumed, BLIND);
        assert_int_equal(grants.scheduled_bytes, 0);
        told += deal(&grants);
        assert_true(grant.advertised - grant.arrived > 0); /* the peer is never at its end */
    }
    assert_in_range(told, 1000000 / STEP - 2, 1000000 / STEP + 1); /* not for every message */
    sl_dpdk_grant_close(&grants, &grant);
}

SL_CASE(grant__a_long_message_alone_has_what_half_of_the_budget_gives)
{
    struct sl_dpdk_grants grants;
    struct sl_dpdk_grant grant;
    sl_dpdk_grants_init(&grants, BUDGET, BLIND, STEP);
    sl_dpdk_grant_open(&grants, &grant);
    sl_dpdk_grant_wants(&grants, &grant, LONG);
    assert_int_equal(grant.granted, BLIND);
    assert_int_equal(deal(&grants), 1);
    assert_int_equal(grant.granted, BLIND + BUDGET / 2);
    assert_int_equal(grants.scheduled_bytes, BUDGET / 2);
    assert_int_equal(deal(&grants), 0);
    for (uint32_t came = 0; came < LONG; came += 8192) {
        come(&grants, &grant, 8192);
        deal(&grants);
        assert_true(grant.granted - grant.arrived >= (LONG - came - 8192 < BLIND ? 0 : BLIND));
    }
    /* No more than that message needed, and what is blind. */
    assert_true(grant.granted <= LONG + BLIND);
    assert_int_equal(grants.scheduled_bytes, 0);
    assert_int_equal(grants.waiting_count, 0);
    sl_dpdk_grant_close(&grants, &grant);
}

SL_CASE(grant__the_tail_of_a_message_is_told_however_small)
{
    struct sl_dpdk_grants grants;
    struct sl_dpdk_grant grant;
    sl_dpdk_grants_init(&grants, BUDGET, BLIND, STEP);
    sl_dpdk_grant_open(&grants, &grant);
    sl_dpdk_grant_arrived(&grants, &grant, BLIND);
    sl_dpdk_grant_wants(&grants, &grant, 100);
    assert_int_equal(deal(&grants), 1);
    assert_int_equal(grant.advertised, BLIND + 100);
    sl_dpdk_grant_close(&grants, &grant);
    assert_int_equal(grants.scheduled_bytes, 0);
}

/* What is only guessed has a quarter of the budget, and never makes less of what is known. */
SL_CASE(grant_wants_more__of_what_few_use)
{
    struct sl_dpdk_grants grants;
    struct sl_dpdk_grant grant, other;
    sl_dpdk_grants_init(&grants, BUDGET, BLIND, STEP);
    sl_dpdk_grant_open(&grants, &grant);
    sl_dpdk_grant_open(&grants, &other);
    sl_dpdk_grant_wants_more(&grants, &grant, BUDGET / 4);
    assert_int_equal(deal(&grants), 1);
    assert_int_equal(grant.granted, BUDGET / 4);
    sl_dpdk_grant_wants(&grants, &grant, BUDGET / 2);
    sl_dpdk_grant_wants_more(&grants, &grant, 100);
    assert_int_equal(grant.requested, BUDGET / 2);
    deal(&grants);
    sl_dpdk_grant_wants_more(&grants, &other, LONG);
    assert_int_equal(other.requested, 0);
    come(&grants, &grant, BUDGET / 2);
    sl_dpdk_grant_wants_more(&grants, &other, LONG);
    assert_int_equal(other.requested, LONG);
    sl_dpdk_grant_close(&grants, &grant);
    sl_dpdk_grant_close(&grants, &other);
    assert_int_equal(grants.scheduled_bytes, 0);
}

SL_CASE(grant_close__gives_back)
{
    struct sl_dpdk_grants grants;
    struct sl_dpdk_grant some[4];
    sl_dpdk_grants_init(&grants, BUDGET, BLIND, STEP);
    for (uint32_t i = 0; i < 4; i++) {
        sl_dpdk_grant_open(&grants, &some[i]);
        sl_dpdk_grant_wants(&grants, &some[i], LONG);
    }
    deal(&grants);
    assert_int_equal(grants.scheduled_bytes, BUDGET);
    assert_int_equal(some[2].granted, BLIND + BUDGET / 4);
    sl_dpdk_grant_consumed(&grants, &some[1], 0);
    sl_dpdk_grant_arrived(&grants, &some[1], BLIND);
    sl_dpdk_grant_consumed(&grants, &some[1], BLIND); /* is to be told */
    sl_dpdk_grant_close(&grants, &some[1]);
    assert_int_equal(grants.scheduled_bytes, BUDGET - BUDGET / 4);
    assert_int_equal(grants.waiting_count, 3);
    for (uint32_t i = 0; i < 4; i++) {
        if (i != 1) {
            sl_dpdk_grant_close(&grants, &some[i]);
        }
    }
    assert_int_equal(grants.scheduled_bytes, 0);
    assert_int_equal(grants.waiting_count, 0);
    assert_int_equal(deal(&grants), 0);
}

/* What waits to be consumed uses the budget up: two such connections all of it, and the others
 * still have their blind bytes. */
SL_CASE(grant__who_consumes_nothing_has_half_at_most)
{
    struct sl_dpdk_grants grants;
    struct sl_dpdk_grant stuck, other;
    sl_dpdk_grants_init(&grants, BUDGET, BLIND, STEP);
    sl_dpdk_grant_open(&grants, &stuck);
    sl_dpdk_grant_open(&grants, &other);
    for (uint32_t i = 0; i < 10; i++) {
        sl_dpdk_grant_wants(&grants, &stuck, LONG);
        deal(&grants);
        sl_dpdk_grant_arrived(&grants, &stuck, stuck.granted - stuck.arrived);
    }
    assert_int_equal(stuck.granted, BLIND + BUDGET / 2);
    for (uint32_t i = 0; i < 100; i++) {
        sl_dpdk_grant_wants(&grants, &other, LONG);
        deal(&grants);
        assert_int_equal(other.granted - other.arrived, BLIND + BUDGET / 2);
        come(&grants, &other, BUDGET / 2);
    }
    sl_dpdk_grant_close(&grants, &stuck);
    sl_dpdk_grant_close(&grants, &other);
    assert_int_equal(grants.scheduled_bytes, 0);
}

/* ---- many senders to one port ------------------------------------------------------------------
 */

#define SENDERS 100U

struct sender {
    struct sl_dpdk_grant grant;
    uint32_t known;        /* of the grant: what it was told */
    uint32_t sent;         /* in all; runs over, as the grant */
    uint32_t message_left; /* of the message in progress, not sent */
    uint32_t to_come;      /* of it, not arrived */
    uint64_t total;
};

struct incast {
    struct sl_dpdk_grants grants;
    struct sender senders[SENDERS];
    uint32_t count, message_bytes;
    uint64_t random;
};

static void hear(void *ctx, struct sl_dpdk_grant *grant)
{
    struct sender *sender = (struct sender *)(void *)grant; /* its first member */
    grant->advertised = grant->granted;
    sender->known = grant->granted;
}

static void check_budget(const struct incast *incast)
{
    uint64_t shares = 0;
    for (uint32_t i = 0; i < incast->count; i++) {
        const struct sl_dpdk_grant *grant = &incast->senders[i].grant;
        uint32_t held = grant->granted - grant->consumed;
        assert_true(held >= BLIND);
        assert_true(held - BLIND <= BUDGET / 2);
        shares += held - BLIND;
    }
    assert_true(shares == incast->grants.scheduled_bytes);
    assert_true(shares <= BUDGET);
}

/* The port takes one packet from a sender that may send, chosen by chance. */
static bool one_packet(struct incast *incast)
{
    uint32_t start = (uint32_t)(sl_hash_random(&incast->random) % incast->count);
    for (uint32_t i = 0; i < incast->count; i++) {
        struct sender *sender = &incast->senders[(start + i) % incast->count];
        uint32_t bytes = sender->known - sender->sent;
        if (sender->message_left == 0) {
            sender->message_left = sender->to_come = incast->message_bytes;
        }
        bytes = bytes < 8192 ? bytes : 8192;
        bytes = bytes < sender->message_left ? bytes : sender->message_left;
        if (bytes > 0) {
            sender->sent += bytes;
            sender->total += bytes;
            sender->message_left -= bytes;
            sender->to_come -= bytes;
            come(&incast->grants, &sender->grant, bytes);
            sl_dpdk_grant_wants(&incast->grants, &sender->grant, sender->to_come);
            return true;
        }
    }
    return false;
}

static void run_incast(uint32_t count, uint32_t message_bytes, uint32_t first)
{
    struct incast *incast = calloc(1, sizeof *incast);
    assert_non_null(incast);
    incast->count = count;
    incast->message_bytes = message_bytes;
    sl_dpdk_grants_init(&incast->grants, BUDGET, BLIND, STEP);
    for (uint32_t i = 0; i < count; i++) {
        struct sender *sender = &incast->senders[i];
        sl_dpdk_grant_open(&incast->grants, &sender->grant);
        sender->grant.granted = sender->grant.advertised = first + BLIND;
        sender->grant.arrived = sender->grant.consumed = first;
        sender->known = first + BLIND;
        sender->sent = first;
    }
    uint32_t packets = 40000;
    for (uint32_t i = 0; i < packets; i++) {
        if (i % 8 == 0 || !one_packet(incast)) {
            sl_dpdk_grants_deal(&incast->grants, hear, NULL);
            assert_true(one_packet(incast)); /* then somebody may */
        }
        if (i % 64 == 0) {
            check_budget(incast);
        }
    }
    uint64_t checksum = 0, least = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        struct sender *sender = &incast->senders[i];
        checksum += sender->total;
        least = sender->total < least ? sender->total : least;
        sl_dpdk_grant_close(&incast->grants, &sender->grant);
    }
    assert_true(least >= checksum / count / 2); /* half of the fair share */
    assert_true(incast->grants.scheduled_bytes == 0);
    free(incast);
}

SL_CASE(grants_deal__is_fair_within_the_budget)
{
    run_incast(1, 1U << 20, 0);
    run_incast(8, 1U << 20, 0U - 1000000U);
    run_incast(8, LONG, 0U - 1U);
    run_incast(SENDERS, LONG, 0x7fff0000U);
    run_incast(SENDERS, 100000, 0xfffffff0U);
    run_incast(SENDERS, 3000, 0U - 50000U);
}
