#include "objects/node/follow.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "objects/node/board_residency.h"
#include "objects/node/node.h"
#include "objects/node/pin.h"

#define FETCH_NS (60 * SL_CLOCK_NS_PER_S) /* then it begins anew */
#define RETRY_NS SL_CLOCK_NS_PER_S

static void notify(struct sl_objects_follow *follow, int err, const char *reason)
{
    SL_LIST_FOREACH (link, &follow->waits) {
        struct sl_objects_follow_wait *wait =
            SL_CONTAINER_OF(link, struct sl_objects_follow_wait, link);
        wait->changed(wait, err, reason);
    }
}

/* Fetches */

static void look_for_fetch(struct sl_objects_follow *follow);
static void follow_send(struct sl_objects_follow *follow);

void sl_objects_follow_completed(struct sl_objects_follow *follow, uint64_t version)
{
    if (version > sl_objects_board_complete(follow->entry)) {
        sl_objects_board_set_complete(follow->entry, version);
        notify(follow, 0, "");
    }
}

/* Why the newest version is not complete. Logged once, as long as it does not change. */
static void follow_set_reason(struct sl_objects_follow *follow, uint64_t version,
                              const char *reason)
{
    if (strncmp(follow->reason, reason, sizeof follow->reason - 1) != 0) {
        sl_log_warn("objects: %s@%" PRIu64 " is followed, and was not fetched: %s", follow->name,
                    version, reason);
        (void)snprintf(follow->reason, sizeof follow->reason, "%.*s",
                       (int)sizeof follow->reason - 1, reason);
    }
}

static void fetched(struct sl_objects_pin *pin)
{
    struct sl_objects_follow *follow = pin->ctx;
    const uint64_t version = pin->version;
    const int err = pin->err;
    if (err != 0 && err != SL_ERR_CANCELLED) { /* it was not removed */
        follow_set_reason(follow, version, pin->reason);
    } else if (err == 0 && follow->is_kept) {
        sl_objects_pin_close(&follow->kept);
        follow->kept = pin;
        follow->fetching = NULL;
    }
    sl_objects_pin_close(&follow->fetching);
    if (err == 0) {
        sl_backoff_reset(&follow->backoff);
        follow->reason[0] = '\0';
        sl_objects_follow_completed(follow, version);
    }
    if (err == 0 || sl_objects_board_announced(follow->entry) > version) {
        look_for_fetch(follow);
    } else {
        sl_reactor_arm(follow->node->reactor, &follow->retry,
                       sl_backoff_next(&follow->backoff, sl_reactor_random(follow->node->reactor)));
    }
}

static void follow_fetch(struct sl_objects_follow *follow, const struct sl_objects_message *news)
{
    struct sl_objects *node = follow->node;
    struct sl_reason reason;
    const int err = sl_objects_pin_open(node, news, sl_reactor_now_ns(node->reactor) + FETCH_NS,
                                        &follow->fetching, &reason);
    if (err != 0) {
        follow_set_reason(follow, news->commit.record.version, reason.text);
        if (err != SL_ERR_TOO_LARGE) { /* a newer one may fit */
            sl_reactor_arm(node->reactor, &follow->retry,
                           sl_backoff_next(&follow->backoff, sl_reactor_random(node->reactor)));
        }
        return;
    }
    follow->fetching->ctx = follow;
    follow->fetching->ended = fetched;
    if (news->commit.image.manifest != NULL &&
        sl_objects_pin_verified(follow->fetching) == news->commit.record.parts[0].bytes) {
        sl_objects_follow_completed(follow, follow->fetching->version); /* `ended` runs later */
    }
}

static void follow_found(struct sl_objects_ask *ask, const struct sl_objects_message *answer,
                         int err, const char *reason)
{
    struct sl_objects_follow *follow = SL_CONTAINER_OF(ask, struct sl_objects_follow, find);
    if (err == 0 && answer->commit.record_count == 1) {
        follow_fetch(follow, answer);
    } else if (sl_objects_board_announced(follow->entry) > follow->find.message.version) {
        look_for_fetch(follow); /* it was removed, and a newer one came meanwhile */
    }
}

/* Whether the newest version is neither here nor on its way. */
static bool wants_fetch(const struct sl_objects_follow *follow)
{
    return follow->fetchers > 0 && follow->fetching == NULL &&
           !sl_list_linked(&follow->find.link) &&
           sl_objects_board_announced(follow->entry) > sl_objects_board_complete(follow->entry);
}

static void look_for_fetch(struct sl_objects_follow *follow)
{
    if (wants_fetch(follow)) {
        follow->find.message =
            (struct sl_objects_message){.kind = SL_OBJECTS_FIND,
                                        .name = follow->name,
                                        .version = sl_objects_board_announced(follow->entry)};
        follow->find.answered = follow_found;
        sl_objects_ask(follow->node, &follow->find, SL_CLOCK_NEVER);
    }
}

static void follow_retry(struct sl_timer *timer, uint64_t now_ns)
{
    look_for_fetch(SL_CONTAINER_OF(timer, struct sl_objects_follow, retry));
}

static void report_unfound(struct sl_objects_follow *follow)
{
    if (sl_list_linked(&follow->find.link)) {
        sl_objects_ask_cancel(&follow->find);
        sl_objects_report_none(follow->node, follow->name, follow->find.message.version, 0);
    }
}

static void stop_fetch(struct sl_objects_follow *follow)
{
    report_unfound(follow);
    sl_reactor_disarm(follow->node->reactor, &follow->retry);
    sl_objects_pin_close(&follow->fetching);
    sl_objects_pin_close(&follow->kept);
}

static void follow_announce(struct sl_objects_follow *follow, const struct sl_objects_message *news)
{
    const uint64_t now_ns = sl_reactor_now_ns(follow->node->reactor);
    const uint64_t age_ns = news->news.age_ms * SL_CLOCK_NS_PER_MS;
    sl_objects_board_announce(follow->entry, follow->announced_count++, news->commit.record.version,
                              age_ns < now_ns ? now_ns - age_ns : 0);
}

void sl_objects_follow_removed(struct sl_objects *node, const char *name, uint64_t version)
{
    struct sl_objects_follow *follow = sl_objects_follow_find(&node->follows, name);
    if (follow != NULL && version >= sl_objects_board_announced(follow->entry)) {
        follow->removed = version;
        sl_objects_ask_cancel(&follow->ask);
        follow_send(follow);
    }
}

/* The newest version was removed: that of the news is it now, or there is none. */
static void retreat(struct sl_objects_follow *follow, const struct sl_objects_message *news)
{
    const uint64_t newest = news->commit.record_count > 0 ? news->commit.record.version : 0;
    sl_objects_board_retreat(follow->entry, newest);
    if (newest != 0) {
        follow_announce(follow, news);
    }
    if (follow->kept != NULL && follow->kept->version > newest) {
        sl_objects_pin_close(&follow->kept);
    }
    if (newest != 0 && wants_fetch(follow)) {
        follow_fetch(follow, news);
    } else if (newest != 0) {
        sl_objects_report_none(follow->node, follow->name, newest, news->part);
    }
    sl_objects_board_residency_changed(follow->node, follow->name);
}

void sl_objects_follow_news(struct sl_objects *node, const struct sl_objects_message *news)
{
    const struct sl_objects_record *record = &news->commit.record;
    if (news->commit.record_count == 0) {
        return;
    }
    struct sl_objects_follow *follow = sl_objects_follow_find(&node->follows, record->name);
    const bool is_newer =
        follow != NULL && record->version > sl_objects_board_announced(follow->entry);
    if (is_newer) {
        follow_announce(follow, news);
    }
    if (is_newer && wants_fetch(follow)) {
        follow_fetch(follow, news);
    } else { /* the catalogue counts this node as a fetcher of the version */
        sl_objects_report_none(node, record->name, record->version, news->part);
    }
    if (is_newer) {
        sl_objects_board_residency_changed(node, follow->name);
        notify(follow, 0, "");
    }
}

/* FOLLOW */

static void followed(struct sl_objects_ask *ask, const struct sl_objects_message *answer, int err,
                     const char *reason)
{
    struct sl_objects_follow *follow = SL_CONTAINER_OF(ask, struct sl_objects_follow, ask);
    if (err == 0) {
        const bool is_removed =
            follow->removed != 0 && follow->removed == sl_objects_board_announced(follow->entry);
        follow->is_known = true;
        follow->removed = 0;
        if (is_removed) {
            retreat(follow, answer);
        } else {
            sl_objects_follow_news(follow->node, answer);
        }
    }
    notify(follow, err, reason);
}

static void follow_send(struct sl_objects_follow *follow)
{
    const uint64_t known = sl_objects_board_announced(follow->entry);
    follow->ask.message =
        (struct sl_objects_message){.kind = SL_OBJECTS_FOLLOW,
                                    .name = follow->name,
                                    .version = known == follow->removed ? 0 : known};
    follow->ask.answered = followed;
    sl_objects_ask(follow->node, &follow->ask, SL_CLOCK_NEVER);
}

void sl_objects_follow_again(struct sl_objects *node)
{
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_FOLLOWS; i++) {
        struct sl_objects_follow *follow = node->follows.items[i];
        if (follow != NULL) {
            sl_objects_ask_cancel(&follow->ask);
            follow_send(follow);
        }
    }
}

/* Uses */

int sl_objects_follow_open_board(struct sl_objects *node)
{
    struct sl_shared *board = &node->follows.board;
    return board->base != NULL
               ? 0
               : sl_shared_create("starling-objects-board", sizeof(struct sl_objects_board),
                                  SL_SHARED_READ, board);
}

static int add(struct sl_objects *node, const char *name, struct sl_objects_follow **out)
{
    struct sl_objects_follows *follows = &node->follows;
    uint32_t index = 0;
    while (index < SL_LIMIT_OBJECTS_FOLLOWS && follows->items[index] != NULL) {
        index++;
    }
    if (index == SL_LIMIT_OBJECTS_FOLLOWS) {
        return SL_ERR_TOO_LARGE;
    }
    struct sl_objects_follow *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    made->node = node;
    made->index = index;
    made->entry = &((struct sl_objects_board *)(void *)follows->board.base)->entries[index];
    (void)snprintf(made->name, sizeof made->name, "%s", name);
    sl_list_init(&made->waits);
    made->retry.run = follow_retry;
    made->backoff.least_ns = RETRY_NS;
    follows->items[index] = made;
    follow_send(made);
    *out = made;
    return 0;
}

int sl_objects_follow_get(struct sl_objects *node, const char *name, bool fetches,
                          struct sl_objects_follow **out)
{
    int err = sl_objects_follow_open_board(node);
    struct sl_objects_follow *follow =
        err == 0 ? sl_objects_follow_find(&node->follows, name) : NULL;
    if (err == 0 && follow == NULL) {
        err = add(node, name, &follow);
    }
    if (err == 0) {
        follow->uses++;
        if (fetches && follow->fetchers++ == 0) {
            look_for_fetch(follow);
        }
        *out = follow;
    }
    return err;
}

void sl_objects_follow_put(struct sl_objects_follow *follow, bool fetches)
{
    struct sl_objects *node = follow->node;
    sl_assert(follow->uses > 0);
    if (fetches && --follow->fetchers == 0) {
        stop_fetch(follow);
    }
    if (--follow->uses == follow->always) {
        follow->in_use = 0;
    }
    if (follow->uses == 0) {
        sl_assert(sl_list_empty(&follow->waits));
        sl_objects_ask_cancel(&follow->ask);
        sl_objects_report_none(node, follow->name, 0, 0);
        sl_objects_board_clear(follow->entry);
        node->follows.items[follow->index] = NULL;
        free(follow);
    }
}

void sl_objects_follow_always(struct sl_objects *node, const char *name, bool is_kept)
{
    struct sl_objects_follow *follow;
    const int err = sl_objects_follow_get(node, name, true, &follow);
    if (err != 0) {
        sl_log_error("objects: cannot follow %s: %s", name, sl_err_name(err));
        return;
    }
    follow->is_kept |= is_kept;
    follow->always++;
}

void sl_objects_follow_stop(struct sl_objects *node)
{
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_FOLLOWS; i++) {
        struct sl_objects_follow *follow = node->follows.items[i];
        while (follow != NULL && node->follows.items[i] == follow) {
            sl_objects_follow_put(follow, true);
        }
    }
}

void sl_objects_follow_fini(struct sl_objects *node)
{
    sl_shared_destroy(&node->follows.board);
}
