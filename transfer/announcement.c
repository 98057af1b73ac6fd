#include "transfer/announcement.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define RENEW_NS (SL_ANNOUNCEMENT_TTL_S * SL_CLOCK_NS_PER_S / 3)
#define RETRY_NS (500 * SL_CLOCK_NS_PER_MS) /* while the key is taken */

bool sl_announcement_is_loopback(const char *host)
{
    struct in_addr in;
    struct in6_addr in6;
    return strcmp(host, "localhost") == 0 || strncmp(host, "localhost.", 10) == 0 ||
           (inet_pton(AF_INET, host, &in) == 1 && ntohl(in.s_addr) >> 24 == 127) ||
           (inet_pton(AF_INET6, host, &in6) == 1 && IN6_IS_ADDR_LOOPBACK(&in6));
}

static void finish(struct sl_announcement *self, int err, const char *reason)
{
    void (*done)(void *ctx, int err, const char *reason) = self->done;
    if (done != NULL) {
        self->done = NULL;
        sl_reactor_disarm(self->reactor, &self->deadline);
        done(self->ctx, err, reason);
    }
}

/* Requests to the store */

static void on_answer(void *ctx, struct sl_metastore_request *ask);

static void send_ask(struct sl_announcement *self, struct sl_metastore_request ask)
{
    const uint64_t now_ns = sl_reactor_now_ns(self->reactor);
    const bool is_awaited = self->done != NULL && self->deadline.due_ns > now_ns;
    self->state = SL_ANNOUNCEMENT_ASKING;
    self->ask = ask;
    self->ask.timeout_ns = is_awaited ? self->deadline.due_ns - now_ns : RENEW_NS;
    self->ask.done = on_answer;
    self->ask.ctx = self;
    sl_metastore_request(self->metastore, &self->ask);
}

/* Writes or removes the record. */
static void send_change(struct sl_announcement *self, bool removes, enum sl_metastore_guard guard,
                        uint64_t revision)
{
    struct sl_metastore_request ask = {.kind = SL_METASTORE_WRITE,
                                       .guard = guard,
                                       .revision = revision,
                                       .changes = &self->change,
                                       .change_count = 1};
    self->change = (struct sl_metastore_change){
        .removes = removes,
        .value = removes ? NULL : (uint8_t *)(uintptr_t)self->text,
        .value_bytes = removes ? 0 : strlen(self->text),
        .lease = removes ? 0 : self->lease,
    };
    memcpy(self->change.key, self->key, sizeof self->change.key);
    memcpy(ask.key, self->key, sizeof ask.key);
    send_ask(self, ask);
}

static void withdraw(struct sl_announcement *self)
{
    if (self->has_no_leases) {
        send_change(self, true, SL_METASTORE_ALWAYS, 0);
        self->state = SL_ANNOUNCEMENT_REMOVING;
    } else if (self->lease != 0) {
        send_ask(self, (struct sl_metastore_request){.kind = SL_METASTORE_LEASE_REVOKE,
                                                     .lease = self->lease});
        self->state = SL_ANNOUNCEMENT_REMOVING;
    } else {
        self->state = SL_ANNOUNCEMENT_NONE;
        finish(self, 0, "");
    }
}

/* Sends what is missing: a lease, then the record. A lease that was not granted or renewed just now
 * may be at its end: it is renewed first. */
static void proceed(struct sl_announcement *self, bool is_fresh)
{
    if (self->is_ending) {
        withdraw(self);
    } else if (self->has_no_leases) {
        send_change(self, false, SL_METASTORE_ALWAYS, 0);
    } else if (self->lease == 0) {
        send_ask(self, (struct sl_metastore_request){.kind = SL_METASTORE_LEASE_GRANT,
                                                     .ttl_s = SL_ANNOUNCEMENT_TTL_S});
    } else if (!is_fresh) {
        send_ask(self, (struct sl_metastore_request){.kind = SL_METASTORE_LEASE_RENEW,
                                                     .lease = self->lease});
    } else {
        send_change(self, false, SL_METASTORE_ABSENT, 0);
    }
}

/* Answers */

/* The time is over. An earlier answer may have been that the key is taken. */
static void finish_late(struct sl_announcement *self, const char *reason)
{
    const bool is_taken = self->reason[0] != '\0';
    finish(self, is_taken ? SL_ERR_EXISTS : SL_ERR_DEADLINE, is_taken ? self->reason : reason);
}

/* The first attempt ends with the error; a later one is repeated. */
static void fail(struct sl_announcement *self, int err, const char *reason)
{
    if (self->done != NULL) {
        self->state = SL_ANNOUNCEMENT_NONE;
        if (err == SL_ERR_DEADLINE) {
            finish_late(self, reason);
        } else {
            finish(self, err, reason);
        }
        return;
    }
    if (!self->has_logged) {
        self->has_logged = true;
        sl_log_warn(self->is_written
                        ? "the metadata store does not renew the record of %s, which will "
                          "disappear there; trying again: %s"
                        : "the metadata store has no record of %s any more, so peers cannot find "
                          "it; trying again: %s",
                    self->record.name, reason);
    }
    sl_reactor_arm(self->reactor, &self->timer, RENEW_NS);
}

static void hold(struct sl_announcement *self)
{
    self->is_written = true;
    self->reason[0] = '\0';
    if (self->has_logged) {
        self->has_logged = false;
        sl_log_info("the metadata store has the record of %s again", self->record.name);
    }
    if (self->lease != 0) {
        sl_reactor_arm(self->reactor, &self->timer, RENEW_NS);
    }
    finish(self, 0, "");
}

/* The key has a record. It may be this one, from an attempt whose answer was lost, or whose lease
 * still exists. Or that of a process that has ended: this one now has its address. Addresses of
 * loopback are the same on all hosts, and say nothing. */
static void on_taken(struct sl_announcement *self, const struct sl_metastore_item *item)
{
    struct sl_transfer_record other;
    struct sl_reason why;
    char age[SL_TRANSFER_RECORD_AGE_BYTES];
    if (sl_transfer_record_decode((const char *)item->value, item->value_bytes, self->record.name,
                                  &other, &why) != 0) {
        (void)snprintf(self->reason, sizeof self->reason,
                       "the name is taken by a record that is invalid: %.400s", why.text);
    } else if (other.incarnation == self->record.incarnation ||
               (strcmp(other.host, self->record.host) == 0 && other.port == self->record.port &&
                !sl_announcement_is_loopback(other.host))) {
        send_change(self, false, SL_METASTORE_CREATED, item->created);
        return;
    } else {
        sl_transfer_record_age(&other, (int64_t)time(NULL), age);
        (void)snprintf(self->reason, sizeof self->reason,
                       "the name is taken by another engine, incarnation %" PRIx64
                       " at %s port %u, %s",
                       other.incarnation, other.host, other.port, age);
    }
    if (self->done != NULL) {
        sl_reactor_arm(self->reactor, &self->timer, RETRY_NS);
    } else {
        fail(self, SL_ERR_EXISTS, self->reason);
    }
}

static void take_answer(struct sl_announcement *self, enum sl_metastore_kind kind,
                        const struct sl_metastore_answer *answer)
{
    const bool is_grant = kind == SL_METASTORE_LEASE_GRANT;
    self->state = SL_ANNOUNCEMENT_WAITING; /* unless a request is sent */
    self->lease = is_grant ? answer->lease : self->lease;
    if (self->is_ending) {
        withdraw(self);
    } else if (is_grant && answer->err == SL_ERR_UNSUPPORTED) {
        self->has_no_leases = true;
        proceed(self, true);
    } else if (!is_grant && answer->err == SL_ERR_NOT_FOUND) { /* the lease has ended */
        self->lease = 0;
        self->is_written = false;
        proceed(self, true);
    } else if (answer->err != 0) {
        fail(self, answer->err, answer->reason);
    } else if (kind == SL_METASTORE_WRITE ? answer->held : self->is_written) {
        hold(self);
    } else if (answer->item_count > 0) {
        on_taken(self, &answer->pairs[0]);
    } else {
        if (kind == SL_METASTORE_WRITE) { /* the key is free again */
            self->reason[0] = '\0';
        }
        proceed(self, true);
    }
}

static void on_answer(void *ctx, struct sl_metastore_request *ask)
{
    struct sl_announcement *self = ctx;
    struct sl_metastore_answer answer = ask->answer; /* the next request has the same storage */
    ask->answer = (struct sl_metastore_answer){0};
    if (self->metastore == NULL) {
        self->state = SL_ANNOUNCEMENT_NONE; /* dropped */
    } else if (self->state == SL_ANNOUNCEMENT_REMOVING) {
        self->state = SL_ANNOUNCEMENT_NONE;
        finish(self, answer.err, answer.reason);
    } else {
        sl_assert(self->state == SL_ANNOUNCEMENT_ASKING);
        take_answer(self, ask->kind, &answer);
    }
    sl_metastore_answer_fini(&answer);
}

/* Time */

static void on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    proceed(SL_CONTAINER_OF(timer, struct sl_announcement, timer), false);
}

static void on_deadline(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_announcement *self = SL_CONTAINER_OF(timer, struct sl_announcement, deadline);
    self->is_ending = true;
    if (self->state == SL_ANNOUNCEMENT_WAITING) {
        sl_reactor_arm(self->reactor, &self->timer, 0); /* removes what there is */
    }
    finish_late(self, "no answer in time");
}

static void await(struct sl_announcement *self, uint64_t timeout_ns,
                  void (*done)(void *ctx, int err, const char *reason), void *ctx)
{
    sl_assert(self->done == NULL);
    self->done = done;
    self->ctx = ctx;
    self->deadline.run = on_deadline;
    sl_reactor_arm(self->reactor, &self->deadline, timeout_ns);
}

void sl_announcement_start(struct sl_announcement *announcement, struct sl_reactor *reactor,
                           struct sl_metastore *metastore, const char *key,
                           const struct sl_transfer_record *record, const char *text,
                           uint64_t timeout_ns,
                           void (*done)(void *ctx, int err, const char *reason), void *ctx)
{
    sl_reactor_assert_owner(reactor);
    *announcement = (struct sl_announcement){
        .reactor = reactor, .metastore = metastore, .record = *record, .text = text};
    (void)snprintf(announcement->key, sizeof announcement->key, "%s", key);
    announcement->timer.run = on_timer;
    await(announcement, timeout_ns, done, ctx);
    proceed(announcement, true);
}

void sl_announcement_stop(struct sl_announcement *announcement, uint64_t timeout_ns,
                          void (*done)(void *ctx, int err, const char *reason), void *ctx)
{
    sl_reactor_assert_owner(announcement->reactor);
    await(announcement, timeout_ns, done, ctx);
    announcement->is_ending = true;
    announcement->reason[0] = '\0';
    if (announcement->state == SL_ANNOUNCEMENT_NONE ||
        announcement->state == SL_ANNOUNCEMENT_WAITING) {
        sl_reactor_arm(announcement->reactor, &announcement->timer, 0);
    }
}

void sl_announcement_drop(struct sl_announcement *announcement)
{
    announcement->metastore = NULL;
    announcement->done = NULL;
    sl_reactor_disarm(announcement->reactor, &announcement->timer);
    sl_reactor_disarm(announcement->reactor, &announcement->deadline);
}
