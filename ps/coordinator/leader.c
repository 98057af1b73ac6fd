#include "ps/coordinator/leader.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/endpoint.h"
#include "core/event.h"
#include "core/log.h"
#include "net/store/held_key.h"
#include "ps/coordinator/coordinator_log.h"

#define POLLS_A_TTL 4

enum ending { NOT_ENDING, WRITING, LEAVING, ENDED };

struct sl_leader {
    struct sl_leader_options options;
    char prefix[SL_METASTORE_KEY_BYTES];
    struct sl_held_key key;
    char value[512];                /* of the key */
    struct sl_leader_record leader; /* as the key was seen last */
    struct sl_coordinator_log *log; /* NULL: not the leader */
    uint64_t term;
    bool is_elected;                         /* the owner was notified by `elected` */
    char failure[SL_METASTORE_REASON_BYTES]; /* of the log, which cannot be destroyed inside its
                                                callback; "": none */

    enum ending ending;
    uint64_t ending_until_ns;
    bool has_left; /* the election has finished */
    void (*done)(void *ctx);
    void *done_ctx;
};

static uint64_t leader_now_of(const struct sl_leader *self)
{
    return self->options.now_ns(self->options.ctx);
}

static uint64_t leader_on_now(void *ctx)
{
    return leader_now_of(ctx);
}

/* The leader's record */

static bool read_string(const json_t *root, const char *name, char *to, size_t bytes)
{
    const char *text = json_string_value(json_object_get(root, name));
    if (text == NULL || strlen(text) >= bytes) {
        return false;
    }
    memcpy(to, text, strlen(text) + 1);
    return true;
}

/* Other programs can write to the key: the value is checked like a peer's message. */
static bool parse_record(const struct sl_metastore_item *item, struct sl_leader_record *out)
{
    struct sl_leader_record leader = {.term = item->created};
    struct sl_endpoint endpoint;
    char id[24];
    json_t *root = json_loadb((const char *)item->value, item->value_bytes, 0, NULL);
    bool is_good = read_string(root, "name", leader.name, sizeof leader.name) &&
                   read_string(root, "endpoint", leader.endpoint, sizeof leader.endpoint) &&
                   read_string(root, "id", id, sizeof id) &&
                   sl_endpoint_parse(leader.endpoint, &endpoint, NULL) == 0;
    json_decref(root);
    if (!is_good) {
        return false;
    }
    char *end;
    errno = 0;
    leader.id = strtoull(id, &end, 16);
    *out = leader;
    return errno == 0 && *end == '\0' && leader.id != 0;
}

static int write_value(struct sl_leader *self)
{
    const struct sl_leader_options *options = &self->options;
    char id[24];
    (void)snprintf(id, sizeof id, "%016" PRIx64, options->id);
    json_t *root =
        json_pack("{ss ss ss}", "name", options->name, "endpoint", options->endpoint, "id", id);
    char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (text == NULL || strlen(text) >= sizeof self->value) {
        free(text);
        return SL_ERR_NO_MEMORY;
    }
    memcpy(self->value, text, strlen(text) + 1);
    free(text);
    return 0;
}

/* The revisions of a store that lost its records begin anew: two leaders may have the same term. */
static void set_leader(struct sl_leader *self, const struct sl_leader_record *leader)
{
    if (self->leader.term != leader->term || self->leader.id != leader->id) {
        self->leader = *leader;
        self->options.leader(self->options.ctx, &self->leader);
    }
}

static void leader_on_seen(void *ctx, const struct sl_metastore_item *item)
{
    struct sl_leader *self = ctx;
    struct sl_leader_record leader = {0};
    if (item != NULL && !parse_record(item, &leader)) {
        sl_log_warn("%s in the cluster store is not what a coordinator writes",
                    self->key.options.key);
        leader = (struct sl_leader_record){0};
    }
    set_leader(self, &leader);
}

static void leader_on_trouble(void *ctx, int err, const char *reason)
{
    const bool is_out = err == SL_ERR_DEADLINE || err == SL_ERR_IO;
    if (err == 0) {
        sl_log_event(SL_LOG_INFO, SL_EVENT("store_reachable"), "the cluster store answers again");
    } else {
        sl_log_event(SL_LOG_WARN, SL_EVENT("store_unreachable", SL_EVENT_TEXT("reason", reason)),
                     "the cluster store %s: %s; serving continues, membership waits",
                     is_out ? "is out of reach" : "does not do what it is asked for", reason);
    }
}

/* Term */

static void leader_on_ready(void *ctx, bool anew)
{
    struct sl_leader *self = ctx;
    struct sl_coordinator *coordinator = sl_coordinator_log_coordinator(self->log);
    sl_coordinator_record_end(coordinator, leader_now_of(self));
    if (self->ending == NOT_ENDING) {
        self->is_elected = true;
        sl_log_event(SL_LOG_INFO, SL_EVENT("leader_elected", SL_EVENT_NUMBER("term", self->term)),
                     "is elected leader and hosts the coordinator (term %" PRIu64 ")", self->term);
        self->options.elected(self->options.ctx, coordinator, anew);
    }
}

static void leader_on_failed(void *ctx, const char *why)
{
    struct sl_leader *self = ctx;
    (void)snprintf(self->failure, sizeof self->failure, "%s", why);
    self->options.wake(self->options.ctx);
}

static void leader_on_wake(void *ctx)
{
    const struct sl_leader *self = ctx;
    self->options.wake(self->options.ctx);
}

static bool on_may_act(void *ctx)
{
    const struct sl_leader *self = ctx;
    return self->ending == NOT_ENDING && self->failure[0] == '\0' &&
           sl_held_key_holds(&self->key, leader_now_of(self));
}

static void leader_on_won(void *ctx, uint64_t term)
{
    struct sl_leader *self = ctx;
    struct sl_leader_record own = {.term = term, .id = self->options.id};
    memcpy(own.name, self->options.name, sizeof own.name);
    memcpy(own.endpoint, self->options.endpoint, sizeof own.endpoint);
    set_leader(self, &own);
    const struct sl_coordinator_log_options log = {
        .metastore = self->options.metastore,
        .prefix = self->prefix,
        .key = self->key.options.key,
        .value = self->value,
        .lease = sl_held_key_lease(&self->key),
        .term = term,
        .timeout_ns = self->options.ttl_s * SL_CLOCK_NS_PER_S / 2,
        .bytes_max = self->options.coordinator_log_bytes_max,
        .coordinator = self->options.coordinator,
        .ready = leader_on_ready,
        .failed = leader_on_failed,
        .wake = leader_on_wake,
        .may_act = on_may_act,
        .ctx = self,
    };
    self->term = term;
    self->failure[0] = '\0';
    int err = sl_coordinator_log_create(&log, &self->log);
    if (err != 0) {
        leader_on_failed(self, sl_err_name(err));
    }
}

/* Destroys the log. Not from inside one of its callbacks. */
static void end_term(struct sl_leader *self, const char *why)
{
    if (self->is_elected) {
        self->is_elected = false;
        sl_log_event(SL_LOG_WARN, SL_EVENT("leader_resigned", SL_EVENT_TEXT("reason", why)),
                     "does not host the coordinator any more: %s", why);
        self->options.term_ended(self->options.ctx, why);
    } else {
        sl_log_warn("cannot host the coordinator: %s", why);
    }
    self->failure[0] = '\0';
    if (self->log != NULL) {
        sl_coordinator_log_destroy(&self->log);
    }
}

static void leader_on_lost(void *ctx, const char *why)
{
    const struct sl_leader_record nobody = {0};
    set_leader(ctx, &nobody);
    end_term(ctx, why);
}

/* Resignation */

static void finish(struct sl_leader *self)
{
    self->ending = ENDED;
    self->done(self->done_ctx);
}

static void leader_on_released(void *ctx, int err, const char *reason)
{
    ((struct sl_leader *)ctx)->has_left = true;
}

static void go_on_ending(struct sl_leader *self)
{
    bool is_late = leader_now_of(self) >= self->ending_until_ns;
    bool is_written =
        self->log == NULL || self->failure[0] != '\0' || sl_coordinator_log_is_clean(self->log);
    if (self->ending == WRITING && (is_written || is_late)) {
        self->ending = LEAVING;
        sl_held_key_release(&self->key, leader_on_released);
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
    self->ending_until_ns = leader_now_of(self) + timeout_ns;
    self->is_elected = false;
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
        sl_held_key_depose(&self->key, why); /* calls leader_on_lost */
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
    sl_held_key_tick(&self->key, leader_now_of(self));
    sl_leader_run(self);
}

void sl_leader_gone(struct sl_leader *self, sl_coordinator_peer peer)
{
    if (self->log != NULL) {
        sl_coordinator_log_gone(self->log, peer);
    }
}

const struct sl_leader_record *sl_leader_leader(const struct sl_leader *self)
{
    return &self->leader;
}

/* Create and destroy */

int sl_leader_create(const struct sl_leader_options *options, struct sl_leader **out)
{
    struct sl_leader *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    self->options = *options;
    (void)snprintf(self->prefix, sizeof self->prefix, "%s", options->prefix);
    self->options.prefix = self->prefix;
    struct sl_held_key_options key = {
        .metastore = options->metastore,
        .value = self->value,
        .campaigns = options->campaigns,
        .ttl_s = options->ttl_s,
        .poll_ns = options->ttl_s * SL_CLOCK_NS_PER_S / POLLS_A_TTL,
        .now_ns = leader_on_now,
        .won = leader_on_won,
        .lost = leader_on_lost,
        .seen = leader_on_seen,
        .trouble = leader_on_trouble,
        .ctx = self,
    };
    const int length = snprintf(key.key, sizeof key.key, "%s/coordinator", options->prefix);
    const int err = length < (int)sizeof key.key ? write_value(self) : SL_ERR_INVALID;
    if (err != 0) {
        free(self);
        return err;
    }
    sl_held_key_init(&self->key, &key);
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
    free(gone);
}
