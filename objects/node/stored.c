#include "objects/node/stored.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "objects/node/node.h"

#define ROWS_FIRST 64

/* Records */

uint32_t sl_objects_stored_encode(const struct sl_objects_record *record, uint32_t part,
                                  uint8_t to[SL_OBJECTS_MESSAGE_BYTES])
{
    struct sl_objects_message message = {.kind = SL_OBJECTS_HOLD,
                                         .name = record->name,
                                         .version = record->version,
                                         .part = part,
                                         .commit = {.record_count = 1, .record = *record}};
    if (record->time_ms == 0) {
        message.kind = SL_OBJECTS_STORE;
        message.part_count = record->part_count;
        message.timeout_ms = 1;
        message.commit.record.part_count = 1;
        message.commit.record.parts[0] = record->parts[part];
    }
    return sl_objects_message_encode(&message, to);
}

int sl_objects_stored_decode(const void *bytes, uint32_t byte_count,
                             struct sl_objects_message *hold, struct sl_reason *reason)
{
    struct sl_objects_record *record = &hold->commit.record;
    const int err = sl_objects_message_decode(bytes, byte_count, hold, reason);
    const bool is_store = err == 0 && hold->kind == SL_OBJECTS_STORE &&
                          hold->commit.record_count == 1 && record->part_count == 1;
    if (is_store) {
        const struct sl_objects_part part = record->parts[0];
        record->part_count = hold->part_count;
        record->parts[0] = (struct sl_objects_part){0};
        record->parts[hold->part] = part;
        hold->name = record->name;
        hold->version = record->version;
    }
    if (err == 0 && ((hold->kind != SL_OBJECTS_HOLD && !is_store) || hold->is_answer ||
                     hold->commit.record_count != 1 || (record->time_ms == 0) != is_store ||
                     hold->part >= record->part_count || strcmp(record->name, hold->name) != 0 ||
                     record->version != hold->version)) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "it is no record of a part");
    }
    hold->kind = SL_OBJECTS_HOLD;
    return err;
}

void sl_objects_stored_read(const struct sl_objects_stored *stored, struct sl_objects_message *hold)
{
    const int err = sl_objects_stored_decode(stored->record, stored->record_bytes, hold, NULL);
    sl_assert(err == 0);
    const struct sl_objects_part *part = &hold->commit.record.parts[hold->part];
    hold->commit.blocks = (uint32_t)(sl_objects_block_count(part->manifest_bytes) +
                                     sl_objects_block_count(part->bytes));
}

bool sl_objects_stored_set_record(struct sl_objects_stored *stored,
                                  const struct sl_objects_record *record, uint32_t part)
{
    uint8_t encoded[SL_OBJECTS_MESSAGE_BYTES];
    struct sl_objects_message hold;
    const uint32_t bytes = sl_objects_stored_encode(record, part, encoded);
    uint8_t *made = malloc(bytes);
    if (made == NULL) {
        return false;
    }
    memcpy(made, encoded, bytes);
    free(stored->record);
    stored->record = made;
    stored->record_bytes = bytes;
    sl_objects_stored_read(stored, &hold);
    stored->key = (struct sl_objects_pool_key){hold.name, hold.version, part};
    return true;
}

/* The index */

static struct sl_list *row_of(const struct sl_objects_stored_index *index, const char *name,
                              uint64_t version, uint32_t part)
{
    return &index->rows[sl_hash_bytes(name, strlen(name), sl_hash_key(version) + part) %
                        index->row_count];
}

/* Doubles the rows. Returns false if there is no memory. */
static bool grow(struct sl_objects *node)
{
    struct sl_objects_stored_index *index = &node->stored_index;
    const uint32_t count = index->row_count == 0 ? ROWS_FIRST : 2 * index->row_count;
    struct sl_list *rows = calloc(count, sizeof *rows), *before = index->rows;
    if (rows == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        sl_list_init(&rows[i]);
    }
    index->rows = rows;
    index->row_count = count;
    SL_LIST_EACH (struct sl_objects_stored, stored, link, &node->stored) {
        sl_list_append(row_of(index, stored->key.name, stored->key.version, stored->key.part),
                       &stored->by_key);
    }
    free(before);
    return true;
}

bool sl_objects_stored_add(struct sl_objects *node, struct sl_objects_stored *stored,
                           const struct sl_objects_record *record, uint32_t part)
{
    struct sl_objects_stored_index *index = &node->stored_index;
    if ((index->count >= index->row_count && !grow(node)) ||
        !sl_objects_stored_set_record(stored, record, part)) {
        return false;
    }
    index->count++;
    sl_list_append(&node->stored, &stored->link);
    sl_list_append(row_of(index, record->name, record->version, part), &stored->by_key);
    return true;
}

void sl_objects_stored_remove(struct sl_objects *node, struct sl_objects_stored *stored)
{
    node->stored_index.count--;
    sl_list_remove(&stored->link);
    sl_list_remove(&stored->by_key);
    free(stored->record);
}

void sl_objects_stored_fini(struct sl_objects *node)
{
    free(node->stored_index.rows);
    node->stored_index = (struct sl_objects_stored_index){0};
}

struct sl_objects_stored *sl_objects_stored_find(const struct sl_objects *node, const char *name,
                                                 uint64_t version, uint32_t part)
{
    if (node->stored_index.count == 0) {
        return NULL;
    }
    SL_LIST_EACH (struct sl_objects_stored, stored, by_key,
                  row_of(&node->stored_index, name, version, part)) {
        if (!stored->is_dropped && stored->key.version == version && stored->key.part == part &&
            strcmp(stored->key.name, name) == 0) {
            return stored;
        }
    }
    return NULL;
}

struct sl_objects_stored *sl_objects_stored_in_file(const struct sl_objects *node, const char *name,
                                                    uint64_t version, uint32_t part)
{
    struct sl_objects_stored *stored = sl_objects_stored_find(node, name, version, part);
    return stored != NULL && stored->is_kept && stored->has_file ? stored : NULL;
}

bool sl_objects_stored_is_of(const struct sl_objects_stored *stored, struct sl_hash_128 digest)
{
    struct sl_objects_message hold;
    sl_objects_stored_read(stored, &hold);
    return sl_hash_128_equal(hold.commit.record.parts[hold.part].digest, digest);
}

struct sl_objects_stored *sl_objects_stored_of_copy(const struct sl_objects *node,
                                                    const struct sl_objects_copy *copy)
{
    struct sl_objects_stored *stored =
        sl_objects_stored_in_file(node, copy->name, copy->version, copy->part);
    return stored != NULL && sl_objects_stored_is_of(stored, copy->info.digest) ? stored : NULL;
}
