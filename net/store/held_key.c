#include "net/store/held_key.h"

#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"

#define KEEPS_A_TTL    4
#define RETRY_NS       (200 * SL_CLOCK_NS_PER_MS)

#define TOO_LATE       "the store did not renew its lease in time"
#define LOST           "the store has lost its key"

/* Safety margin: a holder gives up a fifth of the lease early, more than two clocks can differ by
 * in one lease. */
#define MARGIN_DIVISOR 5

enum trouble {
    NO_TROUBLE,
    OUT_OF_REACH,   /* ends with any answer */
    REFUSES_CHANGES /* a change failed: a successful read does not end it */
};

static uint64_t held_key_now_of(const struct sl_held_key *held)
{
    return held->options.now_ns(held->options.ctx);
}

/* Reachability of the metastore */

static bool changes(enum sl_metastore_kind kind)
{
    return kind == SL_METASTORE_LEASE_GRANT || kind == SL_METASTORE_WRITE;
}

/* Reports a failure once. A full metastore answers reads and refuses changes. So a failed change
 * counts as repaired when a change succeeds, or when a read shows another holder and no change is
 * needed. */
static void note_answer(struct sl_held_key *held, enum sl_metastore_kind kind,
                        const struct sl_metastore_answer *answer)
{
    const bool is_held = kind == SL_METASTORE_READ && answer->item_count > 0;
    const int before = held->trouble;
    if (answer->err == SL_ERR_CANCELLED || answer->err == SL_ERR_UNSUPPORTED) {
        return;
    }
    if (answer->err != 0 && answer->err != SL_ERR_NOT_FOUND) {
        const bool refuses = changes(kind) || before == REFUSES_CHANGES;
        held->trouble = refuses ? REFUSES_CHANGES : OUT_OF_REACH;
        if (before == NO_TROUBLE) {
            held->options.trouble(held->options.ctx, answer->err, answer->reason);
        }
    } else if (before == OUT_OF_REACH ||
               (before == REFUSES_CHANGES && (changes(kind) || is_held))) {
        held->trouble = NO_TROUBLE;
        held->options.trouble(held->options.ctx, 0, "");
    }
}

/* Requests */

static void held_key_on_answer(void *ctx, struct sl_metastore_request *ask);

static void held_key_ask_metastore(struct sl_held_key *held, enum sl_held_key_state state,
                                   enum sl_metastore_kind kind)
{
    sl_assert(!held->ask.in_flight);
    struct sl_metastore_request *ask = &held->ask.request;
    *ask = (struct sl_metastore_request){
        .kind = kind,
        .timeout_ns = held->ttl_ns / 2,
        .ttl_s = held->options.ttl_s,
        .lease = held->lease,
        .done = held_key_on_answer,
        .ctx = held,
    };
    memcpy(ask->key, held->options.key, sizeof ask->key);
    if (kind == SL_METASTORE_WRITE) {
        ask->guard = held->has_no_leases   ? SL_METASTORE_ALWAYS
                     : held->replaced != 0 ? SL_METASTORE_CREATED
                                           : SL_METASTORE_ABSENT;
        ask->revision = held->replaced;
        ask->changes = &held->change;
        ask->change_count = 1;
        held->change.lease = held->lease;
        held->change.removes = state == SL_HELD_KEY_RELEASED;
    }
    held->state = state;
    held->ask.in_flight = true;
    if (kind != SL_METASTORE_WRITE) {
        held->ask.asked_ns = held_key_now_of(held); /* a lease counts from its request */
    }
    sl_metastore_request(held->options.metastore, ask);
}

static void watch_again(struct sl_held_key *held, uint64_t pause_ns)
{
    held->state = SL_HELD_KEY_WATCHING;
    held->look_at_ns = held_key_now_of(held) + pause_ns;
}

static void revoke(struct sl_held_key *held, uint64_t pause_ns)
{
    held->pause_ns = pause_ns;
    if (!held->ask.in_flight && held->lease != 0) { /* else the lease expires by itself */
        held_key_ask_metastore(held, SL_HELD_KEY_REVOKING, SL_METASTORE_LEASE_REVOKE);
    }
}

static void set_until(struct sl_held_key *held, uint64_t asked_ns)
{
    held->until_ns = asked_ns + held->ttl_ns - held->ttl_ns / MARGIN_DIVISOR;
    held->keep_at_ns = asked_ns + held->ttl_ns / KEEPS_A_TTL;
    if (held->has_no_leases) {
        held->until_ns = SL_CLOCK_NEVER;
    }
}

static void win(struct sl_held_key *held, uint64_t term)
{
    held->state = SL_HELD_KEY_HOLDING;
    held->is_unread = false;
    set_until(held, held->ask.asked_ns);
    held->options.won(held->options.ctx, term);
}

static void held_key_lose(struct sl_held_key *held, const char *why, uint64_t pause_ns)
{
    watch_again(held, pause_ns);
    held->options.lost(held->options.ctx, why);
    if (held->state == SL_HELD_KEY_WATCHING) {
        revoke(held, pause_ns); /* other candidates need not wait for its expiry */
    }
}

/* Answers */

static bool held_key_replaces(struct sl_held_key *held, const struct sl_metastore_item *item)
{
    return held->options.replaces != NULL && held->options.replaces(held->options.ctx, item);
}

static void read_came(struct sl_held_key *held, const struct sl_metastore_answer *answer)
{
    const struct sl_metastore_item *item = answer->item_count == 0 ? NULL : &answer->pairs[0];
    watch_again(held, held->options.poll_ns);
    if (answer->err != 0) {
        return;
    }
    held->options.seen(held->options.ctx, item);
    if (held->state == SL_HELD_KEY_WATCHING && held->options.campaigns &&
        (item == NULL || held_key_replaces(held, item))) {
        held_key_ask_metastore(held, SL_HELD_KEY_GRANTING, SL_METASTORE_LEASE_GRANT);
    }
}

static void grant_came(struct sl_held_key *held, const struct sl_metastore_answer *answer)
{
    watch_again(held, RETRY_NS);
    held->has_no_leases = held->is_unread = answer->err == SL_ERR_UNSUPPORTED;
    if (answer->err == 0 || held->has_no_leases) {
        held->lease = answer->lease;
        held->replaced = 0;
        held_key_ask_metastore(held, SL_HELD_KEY_CLAIMING, SL_METASTORE_WRITE);
    }
}

static void claim_came(struct sl_held_key *held, const struct sl_metastore_answer *answer)
{
    /* etcd may have run our claim twice: then the guard fails on our own key. */
    const struct sl_metastore_item *item = answer->item_count == 0 ? NULL : &answer->pairs[0];
    watch_again(held, RETRY_NS);
    if (answer->err == 0 && answer->held) {
        win(held, held->replaced != 0 ? held->replaced : answer->revision);
    } else if (answer->err == 0 && item != NULL && item->lease == held->lease) {
        win(held, item->created);
    } else if (answer->err == 0 && item != NULL && held_key_replaces(held, item)) {
        held->replaced = item->created;
        held_key_ask_metastore(held, SL_HELD_KEY_CLAIMING, SL_METASTORE_WRITE);
    } else {
        if (answer->err == 0) {
            held->options.seen(held->options.ctx, item);
        }
        if (held->state == SL_HELD_KEY_WATCHING) {
            revoke(held, RETRY_NS);
        }
    }
}

static void look_over(struct sl_held_key *held)
{
    void (*released)(void *ctx, int err, const char *reason) = held->released;
    if (released != NULL && !held->ask.in_flight && !held->keep.in_flight) {
        held->released = NULL;
        released(held->released_ctx, held->release_err, held->release_reason);
    }
}

/* Gives up the key; without leases, by its removal. */
static void held_key_give_up(struct sl_held_key *held)
{
    held_key_ask_metastore(held, SL_HELD_KEY_RELEASED,
                           held->has_no_leases ? SL_METASTORE_WRITE : SL_METASTORE_LEASE_REVOKE);
}

/* Gives up what a request in flight created before sl_held_key_release. */
static void answer_released(struct sl_held_key *held, const struct sl_metastore_answer *answer)
{
    const enum sl_metastore_kind kind = held->ask.request.kind;
    const bool is_end =
        kind == SL_METASTORE_LEASE_REVOKE || (kind == SL_METASTORE_WRITE && held->change.removes);
    if (is_end) {
        held->release_err = answer->err;
        memcpy(held->release_reason, answer->reason, sizeof held->release_reason);
        return;
    }
    held->lease = kind == SL_METASTORE_LEASE_GRANT ? answer->lease : held->lease;
    if (kind != SL_METASTORE_READ &&
        (held->lease != 0 || (held->has_no_leases && kind == SL_METASTORE_WRITE))) {
        held_key_give_up(held);
    }
}

static void held_key_on_answer(void *ctx, struct sl_metastore_request *ask)
{
    struct sl_held_key *held = ctx;
    struct sl_metastore_answer answer = ask->answer; /* a callback may reuse the request */
    ask->answer = (struct sl_metastore_answer){0};
    held->ask.in_flight = false;
    if (answer.err == SL_ERR_CANCELLED || held->options.metastore == NULL) {
        held->state = SL_HELD_KEY_RELEASED; /* the metastore is closing: send no more requests */
        sl_metastore_answer_fini(&answer);
        look_over(held);
        return;
    }
    note_answer(held, ask->kind, &answer);
    switch (held->state) {
    case SL_HELD_KEY_READING:
        read_came(held, &answer);
        break;
    case SL_HELD_KEY_GRANTING:
        grant_came(held, &answer);
        break;
    case SL_HELD_KEY_CLAIMING:
        claim_came(held, &answer);
        break;
    case SL_HELD_KEY_REVOKING:
        watch_again(held, held->pause_ns);
        break;
    case SL_HELD_KEY_RELEASED:
        answer_released(held, &answer);
        break;
    case SL_HELD_KEY_WATCHING:
    case SL_HELD_KEY_HOLDING:
        break;
    }
    sl_metastore_answer_fini(&answer);
    look_over(held);
}

/* True if the store, which has no leases, answered with what this process wrote. */
static bool is_own(const struct sl_held_key *held, const struct sl_metastore_answer *answer)
{
    const struct sl_metastore_item *item = answer->item_count > 0 ? &answer->pairs[0] : NULL;
    return item != NULL && item->value_bytes == held->change.value_bytes &&
           memcmp(item->value, held->change.value, item->value_bytes) == 0;
}

/* Handles an answer to `keep` in this term. */
static void kept(struct sl_held_key *held, const struct sl_metastore_answer *answer)
{
    const int err = answer->err;
    if (held_key_now_of(held) >= held->until_ns) {
        held_key_lose(held, TOO_LATE, RETRY_NS); /* messages sent since until_ns were dropped */
    } else if (err == 0 && held->has_no_leases && !is_own(held, answer)) {
        held_key_lose(held, answer->item_count == 0 ? LOST : "another process has written its key",
                      0);
    } else if (err == 0) {
        set_until(held, held->keep.asked_ns);
    } else if (err == SL_ERR_NOT_FOUND) {
        held_key_lose(held, "the store has ended its lease", RETRY_NS);
    } else {
        held->keep_at_ns = held_key_now_of(held) + RETRY_NS; /* until_ns decides when to give up */
    }
}

static void on_kept(void *ctx, struct sl_metastore_request *ask)
{
    struct sl_held_key *held = ctx;
    held->keep.in_flight = false;
    if (ask->answer.err == SL_ERR_CANCELLED || held->options.metastore == NULL) {
        held->state = SL_HELD_KEY_RELEASED;
    } else {
        /* An answer about the lease of an earlier term, revoked when that term ended, does not
         * concern this one. A store that answers without the key does not end the trouble first. */
        if (held->state == SL_HELD_KEY_HOLDING && ask->lease == held->lease) {
            kept(held, &ask->answer);
        }
        note_answer(held, ask->kind, &ask->answer);
    }
    sl_metastore_answer_fini(&ask->answer);
    look_over(held);
}

/* Time */

static void keep(struct sl_held_key *held, uint64_t now_ns)
{
    held->keep.in_flight = true;
    held->keep.asked_ns = now_ns;
    held->keep.request = (struct sl_metastore_request){
        .kind = held->has_no_leases ? SL_METASTORE_READ : SL_METASTORE_LEASE_RENEW,
        .timeout_ns = held->ttl_ns / 3,
        .lease = held->lease,
        .done = on_kept,
        .ctx = held,
    };
    memcpy(held->keep.request.key, held->options.key, sizeof held->keep.request.key);
    sl_metastore_request(held->options.metastore, &held->keep.request);
}

void sl_held_key_tick(struct sl_held_key *held, uint64_t now_ns)
{
    const bool is_holding = held->state == SL_HELD_KEY_HOLDING;
    if (is_holding && now_ns >= held->until_ns) {
        held_key_lose(held, TOO_LATE, RETRY_NS);
    } else if (is_holding && !held->keep.in_flight && now_ns >= held->keep_at_ns) {
        keep(held, now_ns);
    } else if (held->state == SL_HELD_KEY_WATCHING && !held->ask.in_flight &&
               now_ns >= held->look_at_ns) {
        held_key_ask_metastore(held, held->is_unread ? SL_HELD_KEY_GRANTING : SL_HELD_KEY_READING,
                               held->is_unread ? SL_METASTORE_LEASE_GRANT : SL_METASTORE_READ);
    }
}

bool sl_held_key_holds(const struct sl_held_key *held, uint64_t now_ns)
{
    return held->state == SL_HELD_KEY_HOLDING && now_ns < held->until_ns;
}

void sl_held_key_depose(struct sl_held_key *held, const char *why)
{
    if (held->state == SL_HELD_KEY_HOLDING) {
        held_key_lose(held, why, held->ttl_ns); /* gives other candidates time to win */
    }
}

/* Begin and end */

void sl_held_key_init(struct sl_held_key *held, const struct sl_held_key_options *options)
{
    sl_assert(options->ttl_s >= 2);
    *held = (struct sl_held_key){.options = *options,
                                 .ttl_ns = options->ttl_s * SL_CLOCK_NS_PER_S,
                                 .is_unread = options->claims_unread};
    held->change = (struct sl_metastore_change){.value = (uint8_t *)(uintptr_t)options->value,
                                                .value_bytes = strlen(options->value)};
    memcpy(held->change.key, options->key, sizeof held->change.key);
}

void sl_held_key_release(struct sl_held_key *held,
                         void (*released)(void *ctx, int err, const char *reason), void *ctx)
{
    const bool holds = held->state == SL_HELD_KEY_HOLDING;
    held->released = released;
    held->released_ctx = ctx;
    held->state = SL_HELD_KEY_RELEASED;
    if (holds && !held->ask.in_flight) {
        held_key_give_up(held);
    }
    look_over(held);
}

void sl_held_key_drop(struct sl_held_key *held)
{
    held->state = SL_HELD_KEY_RELEASED;
    held->released = NULL;
    held->options.metastore = NULL;
}
