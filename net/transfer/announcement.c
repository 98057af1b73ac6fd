#include "net/transfer/announcement.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define TICK_NS (200 * SL_CLOCK_NS_PER_MS)
#define POLL_NS (500 * SL_CLOCK_NS_PER_MS) /* while the key is taken */

bool sl_announcement_is_loopback(const char *host)
{
    struct in_addr in;
    struct in6_addr in6;
    return strcmp(host, "localhost") == 0 || strncmp(host, "localhost.", 10) == 0 ||
           (inet_pton(AF_INET, host, &in) == 1 && ntohl(in.s_addr) >> 24 == 127) ||
           (inet_pton(AF_INET6, host, &in6) == 1 && IN6_IS_ADDR_LOOPBACK(&in6));
}

static void announcement_finish(struct sl_announcement *self, int err, const char *reason)
{
    void (*done)(void *ctx, int err, const char *reason) = self->done;
    if (done != NULL) {
        self->done = NULL;
        sl_reactor_disarm(self->reactor, &self->deadline);
        done(self->ctx, err, reason);
    }
}

static void announcement_on_released(void *ctx, int err, const char *reason)
{
    struct sl_announcement *self = ctx;
    sl_reactor_disarm(self->reactor, &self->timer);
    announcement_finish(self, err, reason);
}

/* Nothing is announced any more. */
static void announcement_stop(struct sl_announcement *self)
{
    self->is_stopping = true;
    sl_held_key_release(&self->key, announcement_on_released, self);
}

/* An error before the record was written for the first time. An earlier answer may have been that
 * the key is taken. */
static void announcement_fail(struct sl_announcement *self, int err, const char *reason)
{
    const bool is_taken = self->reason[0] != '\0' && err == SL_ERR_DEADLINE;
    announcement_finish(self, is_taken ? SL_ERR_EXISTS : err, is_taken ? self->reason : reason);
    announcement_stop(self);
}

/* The key */

static void announcement_on_won(void *ctx, uint64_t term)
{
    struct sl_announcement *self = ctx;
    self->reason[0] = '\0';
    if (self->has_logged) {
        self->has_logged = false;
        sl_log_info("the metadata store has the record of %s again", self->record.name);
    }
    announcement_finish(self, 0, "");
}

static void log_loss(struct sl_announcement *self, const char *reason)
{
    if (!self->has_logged && !self->is_stopping && self->done == NULL) {
        self->has_logged = true;
        sl_log_warn("the metadata store does not keep the record of %s, so peers will not find it; "
                    "trying again: %s",
                    self->record.name, reason);
    }
}

static void announcement_on_lost(void *ctx, const char *why)
{
    log_loss(ctx, why);
}

static void announcement_on_trouble(void *ctx, int err, const char *reason)
{
    struct sl_announcement *self = ctx;
    if (err != 0 && self->done != NULL && !self->is_stopping) {
        announcement_fail(self, err, reason);
    } else if (err != 0) {
        log_loss(self, reason);
    } else if (sl_held_key_holds(&self->key, sl_reactor_now_ns(self->reactor))) {
        announcement_on_won(self, 0);
    }
}

/* The key has a record. It may be this one, whose lease has not ended yet. Or that of a process
 * that has ended: this one now has its address. Addresses of loopback are the same on all hosts,
 * and say nothing. */
static bool on_replaces(void *ctx, const struct sl_metastore_item *item)
{
    struct sl_announcement *self = ctx;
    const struct sl_transfer_record *own = &self->record;
    struct sl_transfer_record other;
    struct sl_reason why;
    char age[SL_TRANSFER_RECORD_AGE_BYTES];
    if (sl_transfer_record_decode((const char *)item->value, item->value_bytes, own->name, &other,
                                  &why) != 0) {
        (void)snprintf(self->reason, sizeof self->reason,
                       "the name is taken by a record that is invalid: %.400s", why.text);
        return false;
    }
    sl_transfer_record_age(&other, (int64_t)time(NULL), age);
    (void)snprintf(self->reason, sizeof self->reason,
                   "the name is taken by another engine, incarnation %" PRIx64 " at %s port %u, %s",
                   other.incarnation, other.host, other.port, age);
    return other.incarnation == own->incarnation ||
           (strcmp(other.host, own->host) == 0 && other.port == own->port &&
            !sl_announcement_is_loopback(other.host));
}

static void announcement_on_seen(void *ctx, const struct sl_metastore_item *item)
{
    struct sl_announcement *self = ctx;
    if (item == NULL) {
        self->reason[0] = '\0';
    } else if (!on_replaces(self, item)) {
        log_loss(self, self->reason);
    }
}

/* Time */

static uint64_t announcement_on_now(void *ctx)
{
    return sl_reactor_now_ns(((struct sl_announcement *)ctx)->reactor);
}

static void announcement_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_announcement *self = SL_CONTAINER_OF(timer, struct sl_announcement, timer);
    if (self->is_stopping) {
        announcement_stop(self);
        return;
    }
    sl_reactor_arm(self->reactor, timer, TICK_NS);
    sl_held_key_tick(&self->key, now_ns);
}

static void on_deadline(struct sl_timer *timer, uint64_t now_ns)
{
    announcement_fail(SL_CONTAINER_OF(timer, struct sl_announcement, deadline), SL_ERR_DEADLINE,
                      "no answer in time");
}

static void announcement_await(struct sl_announcement *self, uint64_t timeout_ns,
                               void (*done)(void *ctx, int err, const char *reason), void *ctx)
{
    sl_assert(self->done == NULL);
    self->done = done;
    self->ctx = ctx;
    self->deadline.run = on_deadline;
    sl_reactor_arm(self->reactor, &self->deadline, timeout_ns);
    sl_reactor_arm(self->reactor, &self->timer, 0);
}

void sl_announcement_start(struct sl_announcement *announcement, struct sl_reactor *reactor,
                           struct sl_metastore *metastore, const char *key,
                           const struct sl_transfer_record *record, const char *text,
                           uint64_t timeout_ns,
                           void (*done)(void *ctx, int err, const char *reason), void *ctx)
{
    sl_reactor_assert_owner(reactor);
    struct sl_held_key_options options = {.metastore = metastore,
                                          .value = text,
                                          .campaigns = true,
                                          .claims_unread = true,
                                          .ttl_s = SL_ANNOUNCEMENT_TTL_S,
                                          .poll_ns = POLL_NS,
                                          .now_ns = announcement_on_now,
                                          .won = announcement_on_won,
                                          .lost = announcement_on_lost,
                                          .seen = announcement_on_seen,
                                          .replaces = on_replaces,
                                          .trouble = announcement_on_trouble,
                                          .ctx = announcement};
    (void)snprintf(options.key, sizeof options.key, "%s", key);
    *announcement = (struct sl_announcement){
        .reactor = reactor, .record = *record, .timer.run = announcement_on_timer};
    sl_held_key_init(&announcement->key, &options);
    announcement_await(announcement, timeout_ns, done, ctx);
}

void sl_announcement_stop(struct sl_announcement *announcement, uint64_t timeout_ns,
                          void (*done)(void *ctx, int err, const char *reason), void *ctx)
{
    sl_reactor_assert_owner(announcement->reactor);
    announcement->is_stopping = true;
    announcement->reason[0] = '\0';
    announcement_await(announcement, timeout_ns, done, ctx);
}

void sl_announcement_drop(struct sl_announcement *announcement)
{
    sl_held_key_drop(&announcement->key);
    announcement->done = NULL;
    sl_reactor_disarm(announcement->reactor, &announcement->timer);
    sl_reactor_disarm(announcement->reactor, &announcement->deadline);
}
