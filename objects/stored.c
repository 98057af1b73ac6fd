#include "objects/stored.h"

#include <stdio.h>
#include <string.h>

#include "objects/node.h"

struct sl_objects_stored *sl_objects_stored_find(const struct sl_objects *node, const char *name,
                                                 uint64_t version, uint32_t part)
{
    SL_LIST_FOREACH (link, &node->stored) {
        struct sl_objects_stored *stored = SL_CONTAINER_OF(link, struct sl_objects_stored, link);
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
