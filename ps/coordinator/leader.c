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
#include "core/reason.h"
#include "net/store/record_log.h"

#define POLLS_A_TTL 4

/* First component of the key of each kind of record; the second one is the index. */
static const char *const KINDS[] = {
    [SL_COORDINATOR_RECORD_JOB] = "job",       [SL_COORDINATOR_RECORD_PS] = "ps",
    [SL_COORDINATOR_RECORD_WORKER] = "worker", [SL_COORDINATOR_RECORD_TABLE] = "table",
    [SL_COORDINATOR_RECORD_DONE] = "done",     [SL_COORDINATOR_RECORD_SHARDS] = "shards",
};
#define KIND_COUNT  (sizeof KINDS / sizeof KINDS[0])
#define INDEX_COUNT SL_LIMIT_WORKERS /* of any kind, at most */

struct sl_leader {
    struct sl_leader_options options;
    struct sl_record_log log;
    char value[512];                    /* of the term key */
    struct sl_leader_record leader;     /* as the key was seen last */
    struct sl_coordinator *coordinator; /* NULL: not the leader */
    uint64_t term;
    uint64_t elections;
    int store_err;   /* of the last request; 0: it answers */
    bool is_loaded;  /* the coordinator has all records */
    bool is_elected; /* the owner was notified by `elected` */
    /* The log has a change of the record, not encoded yet. */
    bool changed[KIND_COUNT][INDEX_COUNT];
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

/* Other programs can write to the key: the value is checked like a peer's message. */
static bool parse_record(const struct sl_metastore_item *item, struct sl_leader_record *out)
{
    struct sl_endpoint parsed;
    const char *name, *endpoint, *id;
    char *end = "";
    json_t *root = json_loadb((const char *)item->value, item->value_bytes, 0, NULL);
    bool is_good = root != NULL && json_unpack(root, "{ss ss ss}", "name", &name, "endpoint",
                                               &endpoint, "id", &id) == 0;
    if (is_good) {
        errno = 0;
        *out = (struct sl_leader_record){.term = item->created, .id = strtoull(id, &end, 16)};
        is_good = errno == 0 && *end == '\0' && out->id != 0 &&
                  snprintf(out->name, sizeof out->name, "%s", name) < (int)sizeof out->name &&
                  snprintf(out->endpoint, sizeof out->endpoint, "%s", endpoint) <
                      (int)sizeof out->endpoint &&
                  sl_endpoint_parse(endpoint, &parsed, NULL) == 0;
    }
    json_decref(root);
    return is_good;
}

static int write_value(struct sl_leader *self)
{
    const struct sl_leader_options *options = &self->options;
    char id[24];
    (void)snprintf(id, sizeof id, "%016" PRIx64, options->id);
    json_t *root =
        json_pack("{ss ss ss}", "name", options->name, "endpoint", options->endpoint, "id", id);
    const size_t length = root == NULL
                              ? SIZE_MAX
                              : json_dumpb(root, self->value, sizeof self->value - 1, JSON_COMPACT);
    json_decref(root);
    return length > 0 && length < sizeof self->value ? 0 : SL_ERR_NO_MEMORY;
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
                    self->log.options.key.key);
        leader = (struct sl_leader_record){0};
    }
    set_leader(self, &leader);
}

static void leader_on_trouble(void *ctx, int err, const char *reason)
{
    struct sl_leader *self = ctx;
    const bool is_out = err == SL_ERR_DEADLINE || err == SL_ERR_IO;
    self->store_err = err;
    if (err == 0) {
        sl_log_event(SL_LOG_INFO, SL_EVENT("store_reachable"), "the cluster store answers again");
    } else {
        sl_log_event(SL_LOG_WARN, SL_EVENT("store_unreachable", SL_EVENT_TEXT("reason", reason)),
                     "the cluster store %s: %s; serving continues, membership waits",
                     is_out ? "is out of reach" : "does not do what it is asked for", reason);
    }
}

bool sl_leader_store_is_away(const struct sl_leader *self)
{
    return self->store_err != 0;
}

/* Outgoing messages */

static void leader_on_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct sl_leader *self = ctx;
    if (sl_record_log_leads(&self->log) && sl_record_log_waits(&self->log)) {
        uint8_t *held = sl_record_log_hold(&self->log, peer, sl_message_encoded_bytes(message));
        if (held != NULL) {
            sl_message_encode(message, held);
        }
    } else if (sl_record_log_leads(&self->log)) {
        self->options.coordinator.send(self->options.coordinator.ctx, peer, message);
    }
}

static void on_send_held(void *ctx, uint64_t peer, const uint8_t *held, size_t bytes)
{
    struct sl_leader *self = ctx;
    struct sl_message message;
    if (sl_message_decode(held, bytes, &message) != 0) {
        sl_record_log_fail(&self->log, "no memory for a message that waited for the cluster store");
        return;
    }
    self->options.coordinator.send(self->options.coordinator.ctx, peer, &message);
    sl_message_fini(&message);
}

static void on_close(void *ctx, sl_coordinator_peer peer, const char *why)
{
    struct sl_leader *self = ctx;
    const struct sl_coordinator_options *options = &self->options.coordinator;
    sl_record_log_drop(&self->log, peer);
    if (options->close != NULL) {
        options->close(options->ctx, peer, why);
    }
}

static void on_stage(void *ctx, enum sl_coordinator_stage stage, int err, const char *why)
{
    const struct sl_coordinator_options *options = &((struct sl_leader *)ctx)->options.coordinator;
    options->stage_changed(options->ctx, stage, err, why);
}

static bool leader_on_report(void *ctx, const struct sl_message_hello *member,
                             const struct sl_message_report *report)
{
    const struct sl_coordinator_options *options = &((struct sl_leader *)ctx)->options.coordinator;
    return options->report(options->ctx, member, report);
}

/* Records of the coordinator */

/* E.g. "worker/00012". */
static bool parse_key(const char *text, enum sl_coordinator_record *kind, uint32_t *index)
{
    for (size_t k = 0; k < KIND_COUNT; k++) {
        const size_t length = strlen(KINDS[k]);
        if (strncmp(text, KINDS[k], length) == 0 && text[length] == '/') {
            const char *digits = text + length + 1;
            *kind = (enum sl_coordinator_record)k;
            *index = (uint32_t)strtoul(digits, NULL, 10);
            return strspn(digits, "0123456789") == 5 && digits[5] == '\0' && *index < INDEX_COUNT;
        }
    }
    return false;
}

static void leader_erase(struct sl_leader *self)
{
    memset(self->changed, 0, sizeof self->changed);
    sl_record_log_change(&self->log, "", NULL, 0);
}

static void leader_on_changed(void *ctx, enum sl_coordinator_record kind, uint32_t index)
{
    struct sl_leader *self = ctx;
    if (!self->is_loaded) {
        return; /* loaded records do not count as changes */
    }
    if (kind == SL_COORDINATOR_RECORD_ALL) {
        leader_erase(self);
        return;
    }
    char key[24];
    bool *changed = &self->changed[kind][index];
    if (!*changed) {
        *changed = true;
        (void)snprintf(key, sizeof key, "%s/%05u", KINDS[kind], index);
        sl_record_log_change(&self->log, key, NULL, 0);
    }
}

static int on_encode(void *ctx, const char *key, uint8_t **value, size_t *value_bytes)
{
    struct sl_leader *self = ctx;
    enum sl_coordinator_record kind;
    uint32_t index;
    const bool is_known = parse_key(key, &kind, &index);
    sl_assert(is_known);
    self->changed[kind][index] = false;
    return sl_coordinator_record_write(self->coordinator, kind, index, value, value_bytes);
}

static void leader_on_loaded(void *ctx, const char *key, const struct sl_metastore_item *item)
{
    struct sl_leader *self = ctx;
    enum sl_coordinator_record kind;
    uint32_t index;
    struct sl_reason reason = {.text = "it is none of a coordinator's keys"};
    if (!parse_key(key, &kind, &index) ||
        sl_coordinator_record_read(self->coordinator, kind, index, item->value, item->value_bytes,
                                   &reason) != 0) {
        sl_log_error("%s in the cluster store: %s", item->key, reason.text);
        sl_record_log_fail(&self->log, "the records of the job cannot be used: give another "
                                       "prefix, or remove them");
    }
}

/* Term */

static void leader_on_ready(void *ctx, bool anew)
{
    struct sl_leader *self = ctx;
    self->is_loaded = self->is_elected = true;
    sl_coordinator_record_end(self->coordinator, leader_now_of(self));
    sl_log_event(SL_LOG_INFO, SL_EVENT("leader_elected", SL_EVENT_NUMBER("term", self->term)),
                 "is elected leader and hosts the coordinator (term %" PRIu64 ")", self->term);
    self->options.elected(self->options.ctx, self->coordinator, anew);
}

static void leader_on_wake(void *ctx)
{
    const struct sl_leader *self = ctx;
    self->options.wake(self->options.ctx);
}

static void leader_on_won(void *ctx, uint64_t term)
{
    struct sl_leader *self = ctx;
    struct sl_leader_record own = {.term = term, .id = self->options.id};
    memcpy(own.name, self->options.name, sizeof own.name);
    memcpy(own.endpoint, self->options.endpoint, sizeof own.endpoint);
    set_leader(self, &own);
    struct sl_coordinator_options options = self->options.coordinator;
    options.send = leader_on_send;
    options.close = on_close;
    options.stage_changed = options.stage_changed == NULL ? NULL : on_stage;
    options.changed = leader_on_changed;
    options.report = options.report == NULL ? NULL : leader_on_report;
    options.elections = ++self->elections;
    options.ctx = self;
    self->term = term;
    sl_record_log_begin(&self->log, term, sl_coordinator_create(&options, &self->coordinator));
}

static void leader_on_lost(void *ctx, const char *why)
{
    struct sl_leader *self = ctx;
    const struct sl_leader_record nobody = {0};
    set_leader(self, &nobody);
    if (self->is_elected) {
        sl_log_event(SL_LOG_WARN, SL_EVENT("leader_resigned", SL_EVENT_TEXT("reason", why)),
                     "does not host the coordinator any more: %s", why);
        self->options.term_ended(self->options.ctx, why);
    } else {
        sl_log_warn("cannot host the coordinator: %s", why);
    }
    if (self->coordinator != NULL) {
        sl_coordinator_destroy(&self->coordinator);
    }
    sl_record_log_end(&self->log);
    memset(self->changed, 0, sizeof self->changed);
    self->is_loaded = self->is_elected = false;
}

/* Calls of the owner */

static void leader_on_resigned(void *ctx)
{
    const struct sl_leader *self = ctx;
    self->done(self->done_ctx);
}

void sl_leader_resign(struct sl_leader *self, bool erases, uint64_t timeout_ns,
                      void (*done)(void *ctx), void *ctx)
{
    self->is_elected = false;
    self->done = done;
    self->done_ctx = ctx;
    if (erases && self->coordinator != NULL) {
        leader_erase(self);
    }
    sl_record_log_resign(&self->log, timeout_ns, leader_on_resigned);
}

void sl_leader_run(struct sl_leader *self)
{
    sl_record_log_run(&self->log);
}

void sl_leader_tick(struct sl_leader *self)
{
    sl_record_log_tick(&self->log);
}

void sl_leader_gone(struct sl_leader *self, sl_coordinator_peer peer)
{
    sl_record_log_drop(&self->log, peer);
}

const struct sl_leader_record *sl_leader_leader(const struct sl_leader *self)
{
    return &self->leader;
}

int sl_leader_create(const struct sl_leader_options *options, struct sl_leader **out)
{
    struct sl_leader *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    self->options = *options;
    struct sl_record_log_options log = {
        .key = {.metastore = options->metastore,
                .value = self->value,
                .campaigns = options->campaigns,
                .ttl_s = options->ttl_s,
                .poll_ns = options->ttl_s * SL_CLOCK_NS_PER_S / POLLS_A_TTL,
                .now_ns = leader_on_now,
                .won = leader_on_won,
                .lost = leader_on_lost,
                .seen = leader_on_seen,
                .trouble = leader_on_trouble,
                .ctx = self},
        .held_bytes_max = options->coordinator_log_bytes_max,
        .wake = leader_on_wake,
        .loaded = leader_on_loaded,
        .ready = leader_on_ready,
        .send = on_send_held,
        .encode = on_encode,
    };
    const int length = snprintf(log.key.key, sizeof log.key.key, "%s/coordinator", options->prefix);
    (void)snprintf(log.prefix, sizeof log.prefix, "%s/state/", options->prefix);
    const bool is_short = (size_t)length + sizeof "worker/00000" < sizeof log.prefix;
    const int err = is_short ? write_value(self) : SL_ERR_INVALID;
    if (err != 0) {
        free(self);
        return err;
    }
    sl_record_log_init(&self->log, &log);
    *out = self;
    return 0;
}

void sl_leader_destroy(struct sl_leader **self)
{
    struct sl_leader *gone = *self;
    *self = NULL;
    if (gone->coordinator != NULL) {
        sl_coordinator_destroy(&gone->coordinator);
    }
    sl_record_log_close(&gone->log);
    free(gone);
}
