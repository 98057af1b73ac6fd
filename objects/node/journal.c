#include "objects/node/journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/list.h"
#include "core/log.h"

#define VALUE_BYTES (SL_OBJECTS_ADDRESS_BYTES + 24)

#define MARK_KEY    "@" /* no name is empty */

enum state { LOADING, READY, FAILED, DESTROYED };

/* A version whose record has changed, or whose record is to be removed. */
struct change {
    struct sl_list_link link;
    uint64_t number;
    struct sl_metastore_change write;
    uint8_t record[]; /* encoded */
};

struct held {
    struct sl_list_link link;
    uint64_t number;
    char address[SL_OBJECTS_ADDRESS_BYTES];
    uint32_t bytes;
    uint8_t message[]; /* encoded */
};

struct sl_objects_journal {
    struct sl_objects_journal_options options;
    enum state state;
    struct sl_list changes; /* not written yet */
    struct sl_list held;
    uint64_t changed_number, written_number; /* of the last change, and the last one written */
    bool is_asking, has_no_memory;
    struct sl_metastore_request ask;
    /* The host's key with its next value, and the first changes. */
    struct sl_metastore_change batch[SL_METASTORE_CHANGES_MAX];
    uint64_t turn; /* number of the write */
    char value[VALUE_BYTES], next_value[VALUE_BYTES];
    size_t value_bytes; /* that the key has */
};

static void journal_fail(struct sl_objects_journal *self, const char *why)
{
    char copy[SL_METASTORE_REASON_BYTES];
    (void)snprintf(copy, sizeof copy, "%s", why);
    self->state = FAILED;
    self->options.failed(self->options.ctx, copy);
}

static void journal_destroy(struct sl_objects_journal *self)
{
    struct sl_list_link *link;
    while ((link = sl_list_pop(&self->changes)) != NULL) {
        free(SL_CONTAINER_OF(link, struct change, link));
    }
    sl_objects_journal_release(&self->held, UINT64_MAX, 0, NULL, NULL, NULL);
    free(self);
}

/* Messages */

void sl_objects_journal_send(struct sl_objects_journal *journal, const char *address,
                             const struct sl_objects_message *message)
{
    if (journal->has_no_memory) {
        return; /* as a message that is lost */
    }
    if (sl_list_empty(&journal->changes)) {
        journal->options.send(journal->options.ctx, address, message);
        return;
    }
    sl_objects_journal_hold(&journal->held, journal->changed_number, address, message);
}

void sl_objects_journal_hold(struct sl_list *list, uint64_t number, const char *address,
                             const struct sl_objects_message *message)
{
    uint8_t encoded[SL_OBJECTS_MESSAGE_BYTES];
    const uint32_t bytes = sl_objects_message_encode(message, encoded);
    struct held *held = malloc(sizeof *held + bytes);
    if (held == NULL) {
        return; /* as a message that is lost */
    }
    *held = (struct held){.number = number, .bytes = bytes};
    (void)snprintf(held->address, sizeof held->address, "%s", address);
    memcpy(held->message, encoded, bytes);
    sl_list_append(list, &held->link);
}

void sl_objects_journal_release(struct sl_list *list, uint64_t number, int err, const char *reason,
                                sl_objects_journal_send_fn *send, void *ctx)
{
    struct sl_list_link *link;
    while ((link = sl_list_first(list)) != NULL) {
        struct held *held = SL_CONTAINER_OF(link, struct held, link);
        struct sl_objects_message message;
        if (held->number > number) {
            return;
        }
        sl_list_remove(link);
        if (send != NULL &&
            sl_objects_message_decode(held->message, held->bytes, &message, NULL) == 0) {
            message.err = err != 0 ? err : message.err;
            message.text = err != 0 ? reason : message.text;
            send(ctx, held->address, &message);
        }
        free(held);
    }
}

/* Changes */

static void journal_on_answer(void *ctx, struct sl_metastore_request *ask);

static bool is_in_batch(const struct sl_objects_journal *self, const char *key)
{
    for (size_t i = 0; i < self->ask.change_count; i++) {
        if (strcmp(self->batch[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds the change of the host's key, the first of each write. */
static void take_turn(struct sl_objects_journal *self)
{
    struct sl_metastore_change *change = &self->batch[self->ask.change_count++];
    const size_t address_bytes = strlen(self->options.value) + 1;
    memcpy(self->next_value, self->options.value, address_bytes);
    const int length = snprintf(self->next_value + address_bytes, VALUE_BYTES - address_bytes,
                                "%" PRIx64, ++self->turn);
    *change = (struct sl_metastore_change){.value = (uint8_t *)self->next_value,
                                           .value_bytes = address_bytes + (size_t)length,
                                           .lease = self->options.lease};
    memcpy(change->key, self->ask.key, sizeof change->key);
}

/* True if the write took effect, now or in an earlier attempt that was not answered. */
static bool is_written(const struct sl_objects_journal *self,
                       const struct sl_metastore_answer *answer)
{
    const struct sl_metastore_item *item = answer->item_count == 0 ? NULL : &answer->pairs[0];
    return answer->held || (item != NULL && item->created == self->options.term &&
                            item->value_bytes == self->batch[0].value_bytes &&
                            memcmp(item->value, self->batch[0].value, item->value_bytes) == 0);
}

/* Writes the first changes, of each key one. */
static void write_changes(struct sl_objects_journal *self)
{
    const struct sl_objects_journal_options *options = &self->options;
    self->ask = (struct sl_metastore_request){.kind = SL_METASTORE_WRITE,
                                              .timeout_ns = options->timeout_ns,
                                              .guard = SL_METASTORE_CREATED,
                                              .revision = options->term,
                                              .was = self->value,
                                              .was_bytes = self->value_bytes,
                                              .changes = self->batch,
                                              .done = journal_on_answer,
                                              .ctx = self};
    (void)snprintf(self->ask.key, sizeof self->ask.key, "%s", options->key);
    take_turn(self);
    SL_LIST_FOREACH (link, &self->changes) {
        const struct change *change = SL_CONTAINER_OF(link, struct change, link);
        if (self->ask.change_count == SL_METASTORE_CHANGES_MAX ||
            is_in_batch(self, change->write.key)) {
            break;
        }
        self->batch[self->ask.change_count++] = change->write;
    }
    self->is_asking = true;
    sl_metastore_request(options->metastore, &self->ask);
}

static void journal_load(struct sl_objects_journal *self)
{
    self->ask = (struct sl_metastore_request){.kind = SL_METASTORE_READ,
                                              .timeout_ns = 4 * self->options.timeout_ns,
                                              .is_prefix = true,
                                              .done = journal_on_answer,
                                              .ctx = self};
    memcpy(self->ask.key, self->options.prefix, sizeof self->ask.key);
    self->is_asking = true;
    sl_metastore_request(self->options.metastore, &self->ask);
}

void sl_objects_journal_tick(struct sl_objects_journal *journal)
{
    if (journal->is_asking) {
        return;
    }
    if (journal->state == LOADING) {
        journal_load(journal);
    } else if (journal->state == READY && journal->has_no_memory) {
        journal_fail(journal, "no memory for a record");
    } else if (journal->state == READY && journal->ask.change_count > 0) { /* it is repeated */
        journal->is_asking = true;
        sl_metastore_request(journal->options.metastore, &journal->ask);
    } else if (journal->state == READY && !sl_list_empty(&journal->changes)) {
        write_changes(journal);
    }
}

bool sl_objects_journal_is_ready(const struct sl_objects_journal *journal)
{
    return journal != NULL && journal->state == READY;
}

/* key: below the prefix. value NULL: it is removed. */
static void add_change(struct sl_objects_journal *self, const char *key, const void *value,
                       uint32_t bytes)
{
    struct change *change = malloc(sizeof *change + bytes);
    if (change == NULL) { /* without it the journal is wrong */
        self->has_no_memory = true;
        return;
    }
    *change = (struct change){.number = ++self->changed_number,
                              .write = {.removes = value == NULL, .value_bytes = bytes}};
    if (value != NULL) {
        change->write.value = change->record;
        memcpy(change->record, value, bytes);
    }
    const int length =
        snprintf(change->write.key, sizeof change->write.key, "%s%s", self->options.prefix, key);
    sl_assert(length < (int)sizeof change->write.key);
    sl_list_append(&self->changes, &change->link);
}

void sl_objects_journal_change(struct sl_objects_journal *journal, const char *name,
                               uint64_t version, const struct sl_objects_record *record)
{
    uint8_t encoded[SL_OBJECTS_MESSAGE_BYTES];
    char key[SL_OBJECTS_NAME_BYTES + 24];
    uint32_t bytes = 0;
    if (record != NULL) {
        const struct sl_objects_message message = {
            .kind = SL_OBJECTS_COMMIT,
            .is_answer = true,
            .commit = {.record_count = 1, .record = *record}};
        bytes = sl_objects_message_encode(&message, encoded);
    }
    (void)snprintf(key, sizeof key, "%s@%" PRIu64, name, version);
    add_change(journal, key, record != NULL ? encoded : NULL, bytes);
}

void sl_objects_journal_mark(struct sl_objects_journal *journal, uint64_t number)
{
    char text[24];
    const int length = snprintf(text, sizeof text, "%" PRIu64, number);
    add_change(journal, MARK_KEY, text, (uint32_t)length);
}

/* True if the item is the mark. */
static bool read_mark(struct sl_objects_journal *self, const struct sl_metastore_item *item)
{
    const size_t prefix_bytes = strlen(self->options.prefix);
    if (strncmp(item->key, self->options.prefix, prefix_bytes) != 0 ||
        strcmp(item->key + prefix_bytes, MARK_KEY) != 0) {
        return false;
    }
    self->options.marked(self->options.ctx, strtoull((const char *)item->value, NULL, 10));
    return true;
}

/* Answers */

static void read_records(struct sl_objects_journal *self, const struct sl_metastore_answer *answer)
{
    for (size_t i = 0; i < answer->item_count; i++) {
        const struct sl_metastore_item *item = &answer->pairs[i];
        struct sl_objects_message message;
        struct sl_reason reason = {.text = "it is no record"};
        if (read_mark(self, item)) {
            continue;
        }
        if (item->value_bytes > SL_OBJECTS_MESSAGE_BYTES ||
            sl_objects_message_decode(item->value, (uint32_t)item->value_bytes, &message,
                                      &reason) != 0 ||
            message.kind != SL_OBJECTS_COMMIT || !message.is_answer ||
            message.commit.record_count == 0) {
            sl_log_error("objects: %s in the metadata store is ignored: %s", item->key,
                         reason.text);
        } else {
            self->options.loaded(self->options.ctx, &message.commit.record);
        }
    }
    self->state = READY;
    self->options.ready(self->options.ctx);
}

static void written(struct sl_objects_journal *self, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct change *change = SL_CONTAINER_OF(sl_list_pop(&self->changes), struct change, link);
        self->written_number = change->number;
        free(change);
    }
    sl_objects_journal_release(&self->held, self->written_number, 0, NULL, self->options.send,
                               self->options.ctx);
    sl_objects_journal_tick(self);
}

static void journal_on_answer(void *ctx, struct sl_metastore_request *ask)
{
    struct sl_objects_journal *self = ctx;
    struct sl_metastore_answer answer = ask->answer; /* a callback may reuse the request */
    ask->answer = (struct sl_metastore_answer){0};
    self->is_asking = false;
    if (self->state == DESTROYED) {
        journal_destroy(self);
    } else if (answer.err == SL_ERR_DEADLINE || answer.err == SL_ERR_IO ||
               answer.err == SL_ERR_CANCELLED) {
        /* It is tried again while the lease lasts. */
    } else if (answer.err != 0) {
        journal_fail(self, answer.reason);
    } else if (ask->kind == SL_METASTORE_READ) {
        read_records(self, &answer);
    } else if (!is_written(self, &answer)) {
        journal_fail(self, "another process hosts it");
    } else {
        memcpy(self->value, self->next_value, self->batch[0].value_bytes);
        self->value_bytes = self->batch[0].value_bytes;
        const size_t written_count = ask->change_count - 1;
        ask->change_count = 0;
        written(self, written_count);
    }
    sl_metastore_answer_fini(&answer);
}

/* Create and destroy */

int sl_objects_journal_create(const struct sl_objects_journal_options *options,
                              struct sl_objects_journal **out)
{
    struct sl_objects_journal *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    made->options = *options;
    sl_assert(strlen(options->value) < SL_OBJECTS_ADDRESS_BYTES);
    made->value_bytes = strlen(options->value);
    memcpy(made->value, options->value, made->value_bytes + 1);
    sl_list_init(&made->changes);
    sl_list_init(&made->held);
    journal_load(made);
    *out = made;
    return 0;
}

void sl_objects_journal_destroy(struct sl_objects_journal **journal)
{
    struct sl_objects_journal *gone = *journal;
    *journal = NULL;
    gone->state = DESTROYED;
    if (!gone->is_asking) {
        journal_destroy(gone);
    }
}
