#include "objects/stored.h"

#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "objects/node.h"

static uint32_t row_of(const char *name, uint64_t version, uint32_t part)
{
    return sl_hash_bytes(name, strlen(name), sl_hash_key(version) + part) % SL_OBJECTS_STORED_ROWS;
}

void sl_objects_stored_init(struct sl_objects *node)
{
    sl_list_init(&node->stored);
    for (uint32_t i = 0; i < SL_OBJECTS_STORED_ROWS; i++) {
        sl_list_init(&node->stored_index.rows[i]);
    }
}

void sl_objects_stored_add(struct sl_objects *node, struct sl_objects_stored *stored)
{
    const uint32_t row = row_of(stored->name, stored->key.version, stored->key.part);
    sl_list_append(&node->stored, &stored->link);
    sl_list_append(&node->stored_index.rows[row], &stored->by_key);
}

void sl_objects_stored_remove(struct sl_objects_stored *stored)
{
    sl_list_remove(&stored->link);
    sl_list_remove(&stored->by_key);
}

struct sl_objects_stored *sl_objects_stored_find(const struct sl_objects *node, const char *name,
                                                 uint64_t version, uint32_t part)
{
    SL_LIST_FOREACH (link, &node->stored_index.rows[row_of(name, version, part)]) {
        struct sl_objects_stored *stored = SL_CONTAINER_OF(link, struct sl_objects_stored, by_key);
        if (!stored->is_dropped && stored->key.version == version && stored->key.part == part &&
            strcmp(stored->name, name) == 0) {
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

void sl_objects_stored_set_record(struct sl_objects_stored *stored,
                                  const struct sl_objects_record *record)
{
    (void)snprintf(stored->note, sizeof stored->note, "%s", record->note);
    stored->record = *record;
    stored->record.name = stored->name;
    stored->record.note = stored->note;
}
