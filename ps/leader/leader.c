#include "ps/leader/leader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "ps/leader/coordinator_log.h"

enum ending { NOT_ENDING, WRITING, LEAVING, ENDED };

struct sl_leader {
    struct sl_leader_options options;
    char prefix[SL_METASTORE_KEY_BYTES];
    struct sl_election *election;
    struct sl_coordinator_log *log; /* NULL: not the leader */
    uint64_t term;
    bool is_seated;                          /* the owner was notified by `seated` */
    char failure[SL_METASTORE_REASON_BYTES]; /* of the log, which cannot be destroyed inside its
                                                callback; "": none */

    enum ending ending;
    uint64_t ending_until_ns;
    bool has_left; /* the election has finished */
    void (*done)(void *ctx);
    void *done_ctx;
};

static uint64_t now_of(const struct sl_leader *self)
{
    return self->options.now_ns(self->options.ctx);
}

static uint64_t on_now(void *ctx)
{
    return now_of(ctx);
}

/* Term */

static void on_ready(void *ctx, bool anew)
{
    struct sl_leader *self = ctx;
    struct sl_coordinator *coordinator = sl_coordinator_log_coordinator(self->log);
    sl_coordinator_record_end(coordinator, now_of(self));
    if (self->ending == NOT_ENDING) {
        self->is_seated = true;
        sl_log_info("is elected leader and hosts the coordinator (term %" PRIu64 ")", self->term);
        self->options.seated(self->options.ctx, coordinator, anew);
    }
}

static void on_failed(void *ctx, const char *why)
{
    struct sl_leader *self = ctx;
    (void)snprintf(self->failure, sizeof self->failure, "%s", why);
    self->options.wake(self->options.ctx);
}

static void on_wake(void *ctx)
{
    const struct sl_leader *self = ctx;
    self->options.wake(self->options.ctx);
}

static bool on_may_act(void *ctx)
{
    const struct sl_leader *self = ctx;
    return self->ending == NOT_ENDING && self->failure[0] == '\0' &&
           sl_election_holds(self->election, now_of(self));
}

static void on_won(void *ctx, uint64_t term)
{
    struct sl_leader *self = ctx;
    const struct sl_coordinator_log_options log = {
        .metastore = self->options.metastore,
        .prefix = self->prefix,
        .key = sl_election_key(self->election),
        .value = sl_election_value(self->election),
        .lease = sl_election_lease(self->election),
        .term = term,
        .timeout_ns = self->options.ttl_s * SL_CLOCK_NS_PER_S / 2,
        .bytes_max = self->options.coordinator_log_bytes_max,
        .coordinator = self->options.coordinator,
        .ready = on_ready,
        .failed = on_failed,
        .wake = on_wake,
        .may_act = on_may_act,
        .ctx = self,
    };
    self->term = term;
    self->failure[0] = '\0';
    int err = sl_coordinator_log_create(&log, &self->log);
    if (err != 0) {
        on_failed(self, sl_err_name(err));
    }
}

/* Destroys the log. Not from inside one of its callbacks. */
static void end_term(struct sl_leader *self, const char *why)
{
    if (self->is_seated) {
        self->is_seated = false;
        sl_log_warn("does not host the coordinator any more: %s", why);
        self->options.unseated(self->options.ctx, why);
    } else {
        sl_log_warn("cannot host the coordinator: %s", why);
    }
    self->failure[0] = '\0';
    if (self->log != NULL) {
        sl_coordinator_log_destroy(&self->log);
    }
}

static void on_lost(void *ctx, const char *why)
{
    end_term(ctx, why);
}

static void on_leader(void *ctx, const struct sl_election_leader *leader)
{
    const struct sl_leader *self = ctx;
    self->options.leader(self->options.ctx, leader);
}

/* Resignation */

static void finish(struct sl_leader *self)
{
    self->ending = ENDED;
    self->done(self->done_ctx);
}

static void go_on_ending(struct sl_leader *self)
{
    bool is_late = now_of(self) >= self->ending_until_ns;
    bool is_written =
        self->log == NULL || self->failure[0] != '\0' || sl_coordinator_log_is_clean(self->log);
    if (self->ending == WRITING && (is_written || is_late)) {
        self->ending = LEAVING;
        sl_election_resign(self->election, &self->has_left);
    }
    if (self->ending == LEAVING && (self->has_left || is_late)) {
        finish(self);
    }
}

void sl_leader_resign(struct sl_leader *self, bool erases, uint64_t timeout_ns,
                      void (*done)(void *ctx), void *ctx)
{
    sl_assert(self->ending == NOT_ENDING);
    self->ending = WRITING;
    self->ending_until_ns = now_of(self) + timeout_ns;
    self->is_seated = false;
    self->done = done;
    self->done_ctx = ctx;
    if (erases && self->log != NULL) {
        sl_coordinator_log_erase(self->log);
    }
    self->options.wake(self->options.ctx);
}

/* Time */

void sl_leader_run(struct sl_leader *self)
{
    if (self->failure[0] != '\0' && self->ending == NOT_ENDING) {
        char why[sizeof self->failure];
        memcpy(why, self->failure, sizeof why);
        sl_election_depose(self->election, why); /* calls on_lost */
    }
    if (self->log != NULL) {
        sl_coordinator_log_run(self->log);
    }
    if (self->ending == WRITING || self->ending == LEAVING) {
        go_on_ending(self);
    }
}

void sl_leader_tick(struct sl_leader *self)
{
    sl_election_tick(self->election, now_of(self));
    sl_leader_run(self);
}

void sl_leader_gone(struct sl_leader *self, sl_coordinator_peer peer)
{
    if (self->log != NULL) {
        sl_coordinator_log_gone(self->log, peer);
    }
}

const struct sl_election_leader *sl_leader_leader(const struct sl_leader *self)
{
    return sl_election_leader(self->election);
}

/* Create and destroy */

int sl_leader_create(const struct sl_leader_options *options, struct sl_leader **out)
{
    struct sl_leader *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    self->options = *options;
    int length = snprintf(self->prefix, sizeof self->prefix, "%s", options->prefix);
    self->options.prefix = self->prefix;
    struct sl_election_options election = {
        .metastore = options->metastore,
        .prefix = self->prefix,
        .campaigns = options->campaigns,
        .id = options->id,
        .ttl_s = options->ttl_s,
        .now_ns = on_now,
        .won = on_won,
        .lost = on_lost,
        .leader = on_leader,
        .ctx = self,
    };
    memcpy(election.name, options->name, sizeof election.name);
    memcpy(election.endpoint, options->endpoint, sizeof election.endpoint);
    int err = length < (int)sizeof self->prefix ? 0 : SL_ERR_INVALID;
    err = err != 0 ? err : sl_election_create(&election, &self->election);
    if (err != 0) {
        free(self);
        return err;
    }
    *out = self;
    return 0;
}

void sl_leader_destroy(struct sl_leader **self)
{
    struct sl_leader *gone = *self;
    *self = NULL;
    if (gone->log != NULL) {
        sl_coordinator_log_destroy(&gone->log);
    }
    sl_election_destroy(&gone->election);
    free(gone);
}
