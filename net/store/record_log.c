#include "net/store/record_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"

/* Per write; etcd's limit is 1.5 MiB, and base64 adds a third. */
#define WRITE_BYTES_MAX    (700U << 10)
#define READ_TIMEOUTS      10
#define RETRY_NS           (200 * SL_CLOCK_NS_PER_MS)
#define HELD_BYTES_DEFAULT ((size_t)256 << 20)

/* A change that is not written yet. */
struct change {
    struct sl_list_link link;
    uint64_t number;
    uint8_t *value; /* NULL: not encoded yet, or the record is removed */
    size_t value_bytes;
    char key[]; /* without the prefix */
};

/* One term of the leader. It outlives its end until the request in flight is answered. */
struct sl_record_log_term {
    struct sl_record_log *log; /* NULL: it has ended */
    bool is_loaded;
    struct sl_list changes, held;            /* held: messages */
    uint64_t changed_number, written_number; /* of the last change, and the last one written */
    size_t held_bytes;

    struct sl_metastore_request ask;
    bool has_request, is_asking; /* a request is repeated until it is answered */
    uint64_t retry_at_ns;
    /* The term key with its next value, and the first changes. */
    struct sl_metastore_change batch[SL_METASTORE_CHANGES_MAX];
    uint64_t revision; /* at which the term key was created */
    uint64_t turn;     /* number of the write */
    size_t value_bytes;
    char value[SL_RECORD_LOG_VALUE_BYTES], next_value[SL_RECORD_LOG_VALUE_BYTES]; /* of the key */
};

static void *ctx_of(const struct sl_record_log *log)
{
    return log->options.key.ctx;
}

static uint64_t record_log_now(const struct sl_record_log *log)
{
    return log->options.key.now_ns(ctx_of(log));
}

void sl_record_log_fail(struct sl_record_log *log, const char *why)
{
    if (log->failure[0] == '\0') {
        (void)snprintf(log->failure, sizeof log->failure, "%s", why);
        log->options.wake(ctx_of(log));
    }
}

bool sl_record_log_leads(const struct sl_record_log *log)
{
    return log->term != NULL && log->term->is_loaded && log->failure[0] == '\0' &&
           log->ending == SL_RECORD_LOG_OPEN && sl_held_key_holds(&log->key, record_log_now(log));
}

/* Messages */

uint8_t *sl_record_log_message_add(struct sl_list *messages, uint64_t number, uint64_t to,
                                   size_t bytes)
{
    struct sl_record_log_message *held = malloc(sizeof *held + bytes);
    if (held == NULL) {
        return NULL;
    }
    *held = (struct sl_record_log_message){.number = number, .to = to, .bytes = bytes};
    sl_list_append(messages, &held->link);
    return held->message;
}

struct sl_record_log_message *sl_record_log_message_pop(struct sl_list *messages, uint64_t number)
{
    struct sl_record_log_message *held =
        SL_LIST_FIRST(struct sl_record_log_message, link, messages);
    if (held == NULL || held->number > number) {
        return NULL;
    }
    sl_list_remove(&held->link);
    return held;
}

bool sl_record_log_waits(const struct sl_record_log *log)
{
    const struct sl_record_log_term *term = log->term;
    return term != NULL &&
           (term->written_number != term->changed_number || !sl_list_empty(&term->held));
}

uint8_t *sl_record_log_hold(struct sl_record_log *log, uint64_t to, size_t bytes)
{
    struct sl_record_log_term *term = log->term;
    const size_t bytes_max =
        log->options.held_bytes_max == 0 ? HELD_BYTES_DEFAULT : log->options.held_bytes_max;
    uint8_t *held = term->held_bytes + bytes > bytes_max
                        ? NULL
                        : sl_record_log_message_add(&term->held, term->changed_number, to, bytes);
    if (held == NULL) {
        sl_record_log_fail(log, "no memory for messages that wait for the store");
    } else {
        term->held_bytes += bytes;
    }
    return held;
}

void sl_record_log_drop(struct sl_record_log *log, uint64_t to)
{
    if (log->term == NULL) {
        return;
    }
    SL_LIST_EACH (struct sl_record_log_message, held, link, &log->term->held) {
        if (held->to == to) {
            sl_list_remove(&held->link);
            log->term->held_bytes -= held->bytes;
            free(held);
        }
    }
}

/* Changes */

static void free_change(struct change *change)
{
    free(change->value);
    free(change);
}

/* Drops the changes that are not in the write that waits for its answer. */
static void forget_changes(struct sl_record_log_term *term)
{
    size_t kept = term->has_request ? term->ask.change_count : 0;
    SL_LIST_EACH (struct change, change, link, &term->changes) {
        if (kept > 1) {
            kept--; /* the first one is of the term key */
        } else {
            sl_list_remove(&change->link);
            free_change(change);
        }
    }
}

void sl_record_log_change(struct sl_record_log *log, const char *key, const void *value,
                          size_t value_bytes)
{
    const size_t key_bytes = strlen(key) + 1;
    if (log->term == NULL) {
        return;
    }
    struct change *change = malloc(sizeof *change + key_bytes);
    uint8_t *copy = value == NULL ? NULL : malloc(value_bytes + 1);
    sl_assert(strlen(log->options.prefix) + key_bytes <= SL_METASTORE_KEY_BYTES);
    if (change == NULL || (value != NULL && copy == NULL)) { /* without it the records are wrong */
        free(change);
        free(copy);
        sl_record_log_fail(log, "no memory for a record");
        return;
    }
    *change = (struct change){
        .number = ++log->term->changed_number, .value = copy, .value_bytes = value_bytes};
    memcpy(change->key, key, key_bytes);
    if (value != NULL) {
        memcpy(copy, value, value_bytes);
    }
    if (key[0] == '\0') {
        forget_changes(log->term);
    }
    sl_list_append(&log->term->changes, &change->link);
    log->options.wake(ctx_of(log));
}

/* Requests */

static void record_log_on_answer(void *ctx, struct sl_metastore_request *ask);

static void ask_metastore(struct sl_record_log_term *term)
{
    term->has_request = term->is_asking = true;
    sl_metastore_request(term->log->options.key.metastore, &term->ask);
}

/* Prepares the change of the term key, the first of each write. */
static void take_turn(struct sl_record_log_term *term)
{
    const char *value = term->log->options.key.value;
    const size_t size = sizeof term->next_value;
    const int length =
        value[0] == '{'
            ? snprintf(term->next_value, size, "%.*s,\"turn\":\"%" PRIx64 "\"}",
                       (int)strlen(value) - 1, value, ++term->turn)
            : snprintf(term->next_value, size, "%s%c%" PRIx64, value, '\0', ++term->turn);
    sl_assert(length < SL_RECORD_LOG_VALUE_BYTES);
    term->batch[0] = (struct sl_metastore_change){.value = (uint8_t *)term->next_value,
                                                  .value_bytes = (size_t)length,
                                                  .lease = sl_held_key_lease(&term->log->key)};
    memcpy(term->batch[0].key, term->log->options.key.key, sizeof term->batch[0].key);
}

/* Adds a change to the write. Returns false if it belongs to a later one: etcd rejects two changes
 * of one key. */
static bool take_change(struct sl_record_log_term *term, struct change *change)
{
    const struct sl_record_log_options *options = &term->log->options;
    struct sl_metastore_change *to = &term->batch[term->ask.change_count];
    *to = (struct sl_metastore_change){.is_prefix = change->key[0] == '\0'};
    (void)snprintf(to->key, sizeof to->key, "%s%s", options->prefix, change->key);
    for (size_t i = 1; i < term->ask.change_count; i++) {
        if (to->is_prefix || term->batch[i].is_prefix || strcmp(term->batch[i].key, to->key) == 0) {
            return false;
        }
    }
    if (change->value == NULL && options->encode != NULL && !to->is_prefix &&
        options->encode(ctx_of(term->log), change->key, &change->value, &change->value_bytes) !=
            0) {
        sl_record_log_fail(term->log, "no memory for a record");
    }
    to->removes = change->value == NULL;
    to->value = change->value;
    to->value_bytes = change->value_bytes;
    term->ask.change_count++;
    return true;
}

/* Writes the first changes. */
static void write_changes(struct sl_record_log_term *term)
{
    const struct sl_record_log_options *options = &term->log->options;
    size_t bytes = 0;
    term->ask = (struct sl_metastore_request){.kind = SL_METASTORE_WRITE,
                                              .timeout_ns = term->log->key.ttl_ns / 2,
                                              .guard = SL_METASTORE_CREATED,
                                              .revision = term->revision,
                                              .was = term->value,
                                              .was_bytes = term->value_bytes,
                                              .changes = term->batch,
                                              .change_count = 1,
                                              .done = record_log_on_answer,
                                              .ctx = term};
    memcpy(term->ask.key, options->key.key, sizeof term->ask.key);
    take_turn(term);
    SL_LIST_EACH (struct change, change, link, &term->changes) {
        if (term->ask.change_count == SL_METASTORE_CHANGES_MAX || bytes >= WRITE_BYTES_MAX ||
            !take_change(term, change)) {
            break;
        }
        bytes += change->value_bytes;
    }
    if (term->log->failure[0] == '\0') {
        ask_metastore(term);
    }
}

/* Answers */

static void load(struct sl_record_log *log, const struct sl_metastore_answer *answer)
{
    const struct sl_record_log_options *options = &log->options;
    const size_t prefix_bytes = strlen(options->prefix);
    for (size_t i = 0; i < answer->item_count && log->failure[0] == '\0'; i++) {
        options->loaded(ctx_of(log), answer->pairs[i].key + prefix_bytes, &answer->pairs[i]);
    }
    log->term->has_request = false;
    log->term->is_loaded = log->failure[0] == '\0';
    if (log->term->is_loaded && log->ending == SL_RECORD_LOG_OPEN) {
        options->ready(ctx_of(log), answer->item_count == 0);
    }
}

/* Sends the messages that have waited. */
static void written(struct sl_record_log_term *term)
{
    struct sl_record_log *log = term->log;
    struct sl_record_log_message *held;
    term->has_request = false;
    term->value_bytes = term->batch[0].value_bytes;
    memcpy(term->value, term->next_value, term->value_bytes);
    for (size_t i = 1; i < term->ask.change_count; i++) {
        struct change *change = SL_LIST_POP(struct change, link, &term->changes);
        term->written_number = change->number;
        free_change(change);
    }
    while ((held = sl_record_log_message_pop(&term->held, term->written_number)) != NULL) {
        term->held_bytes -= held->bytes;
        if (sl_record_log_leads(log)) {
            log->options.send(ctx_of(log), held->to, held->message, held->bytes);
        }
        free(held);
    }
}

/* True if the write took effect, now or in an earlier attempt that was not answered. */
static bool is_written(const struct sl_record_log_term *term,
                       const struct sl_metastore_answer *answer)
{
    const struct sl_metastore_item *item = answer->item_count == 0 ? NULL : &answer->pairs[0];
    return answer->held || (item != NULL && item->created == term->revision &&
                            item->value_bytes == term->batch[0].value_bytes &&
                            memcmp(item->value, term->batch[0].value, item->value_bytes) == 0);
}

static void term_free(struct sl_record_log_term *term)
{
    SL_LIST_TAKE (struct sl_record_log_message, message, link, &term->held) {
        free(message);
    }
    SL_LIST_TAKE (struct change, change, link, &term->changes) {
        free_change(change);
    }
    free(term);
}

static void record_log_on_answer(void *ctx, struct sl_metastore_request *ask)
{
    struct sl_record_log_term *term = ctx;
    struct sl_record_log *log = term->log;
    struct sl_metastore_answer answer = ask->answer;
    term->is_asking = false;
    if (log == NULL) {
        term_free(term);
    } else if (answer.err == SL_ERR_DEADLINE || answer.err == SL_ERR_IO ||
               answer.err == SL_ERR_CANCELLED) {
        term->retry_at_ns = record_log_now(log) + RETRY_NS; /* the lease decides when to give up */
    } else if (answer.err != 0) {
        sl_record_log_fail(log, answer.reason);
    } else if (ask->kind == SL_METASTORE_READ) {
        load(log, &answer);
    } else if (!is_written(term, &answer)) {
        sl_record_log_fail(log, "another process hosts it");
    } else {
        written(term);
    }
    sl_metastore_answer_fini(&answer);
    if (log != NULL) {
        log->options.wake(ctx_of(log));
    }
}

/* Terms */

void sl_record_log_begin(struct sl_record_log *log, uint64_t revision, int err)
{
    const struct sl_record_log_options *options = &log->options;
    struct sl_record_log_term *term = err != 0 ? NULL : calloc(1, sizeof *term);
    log->term = term;
    log->failure[0] = '\0';
    if (term == NULL) {
        sl_record_log_fail(log, sl_err_name(err != 0 ? err : SL_ERR_NO_MEMORY));
        return;
    }
    term->log = log;
    term->revision = revision;
    term->value_bytes = strlen(options->key.value);
    memcpy(term->value, options->key.value, term->value_bytes);
    sl_list_init(&term->changes);
    sl_list_init(&term->held);
    term->ask = (struct sl_metastore_request){.kind = SL_METASTORE_READ,
                                              .timeout_ns = READ_TIMEOUTS * log->key.ttl_ns / 2,
                                              .is_prefix = true,
                                              .done = record_log_on_answer,
                                              .ctx = term};
    memcpy(term->ask.key, options->prefix, sizeof term->ask.key);
    ask_metastore(term);
}

void sl_record_log_end(struct sl_record_log *log)
{
    struct sl_record_log_term *term = log->term;
    log->term = NULL;
    if (term != NULL && term->is_asking) {
        term->log = NULL;
    } else if (term != NULL) {
        term_free(term);
    }
}

static void record_log_on_released(void *ctx, int err, const char *reason)
{
    struct sl_record_log *log = ctx;
    if (log->ending == SL_RECORD_LOG_LEAVING) {
        log->ending = SL_RECORD_LOG_LEFT;
        log->options.wake(ctx_of(log));
    }
}

static void go_on_ending(struct sl_record_log *log)
{
    const struct sl_record_log_term *term = log->term;
    const bool is_late = record_log_now(log) >= log->ending_until_ns;
    const bool is_over = term == NULL || log->failure[0] != '\0' ||
                         (!term->has_request && sl_list_empty(&term->changes));
    if (log->ending == SL_RECORD_LOG_WRITING && (is_over || is_late)) {
        log->ending = SL_RECORD_LOG_LEAVING;
        sl_held_key_release(&log->key, record_log_on_released, log);
    }
    if (log->ending == SL_RECORD_LOG_LEFT || (log->ending == SL_RECORD_LOG_LEAVING && is_late)) {
        log->ending = SL_RECORD_LOG_ENDED;
        log->done(ctx_of(log));
    }
}

void sl_record_log_run(struct sl_record_log *log)
{
    if (log->failure[0] != '\0' && log->ending == SL_RECORD_LOG_OPEN) {
        sl_held_key_depose(&log->key, log->failure);
    }
    struct sl_record_log_term *term = log->term;
    if (term != NULL && !term->is_asking && log->failure[0] == '\0' &&
        record_log_now(log) >= term->retry_at_ns) {
        if (term->has_request) {
            ask_metastore(term);
        } else if (!sl_list_empty(&term->changes)) {
            write_changes(term);
        }
    }
    if (log->ending != SL_RECORD_LOG_OPEN) {
        go_on_ending(log);
    }
}

void sl_record_log_tick(struct sl_record_log *log)
{
    sl_held_key_tick(&log->key, record_log_now(log));
    sl_record_log_run(log);
}

/* Begin and end */

void sl_record_log_init(struct sl_record_log *log, const struct sl_record_log_options *options)
{
    *log = (struct sl_record_log){.options = *options};
    sl_held_key_init(&log->key, &options->key);
}

void sl_record_log_resign(struct sl_record_log *log, uint64_t timeout_ns, void (*done)(void *ctx))
{
    sl_assert(log->ending == SL_RECORD_LOG_OPEN);
    log->ending = SL_RECORD_LOG_WRITING;
    log->ending_until_ns = record_log_now(log) + timeout_ns;
    log->done = done;
    log->options.wake(ctx_of(log));
}

void sl_record_log_close(struct sl_record_log *log)
{
    sl_record_log_end(log);
    sl_held_key_drop(&log->key);
}
