/* A stored part is one that this node keeps for its publisher (store.h), in a file or in the pool.
 * Owner: the node's reactor. */
#ifndef SL_OBJECTS_STORED_H
#define SL_OBJECTS_STORED_H

#include "core/list.h"
#include "objects/message.h"
#include "objects/pool.h"

struct sl_objects;

struct sl_objects_stored {
    struct sl_list_link link;       /* of the node's list */
    struct sl_objects_pool_key key; /* its name: `name` */
    char name[SL_OBJECTS_NAME_BYTES], note[SL_OBJECTS_NOTE_BYTES];
    struct sl_objects_record record; /* before the commit, only this part of it is set */
    bool is_kept;                    /* it was committed */
    bool has_file;                   /* that has the whole part, as far as is known */
    bool is_dropped;                 /* it is not found any more */
    uint32_t reported_round;         /* reports.h */
    struct sl_list_link by_key;      /* of the node's index */
};

/* The parts by their keys. */
#define SL_OBJECTS_STORED_ROWS 4096
struct sl_objects_stored_index {
    struct sl_list rows[SL_OBJECTS_STORED_ROWS];
};

/* Before the first add. */
void sl_objects_stored_init(struct sl_objects *node);

/* Its key is set. To the node's list and index; and from there. */
void sl_objects_stored_add(struct sl_objects *node, struct sl_objects_stored *stored);
void sl_objects_stored_remove(struct sl_objects_stored *stored);

/* NULL: there is none. */
struct sl_objects_stored *sl_objects_stored_find(const struct sl_objects *node, const char *name,
                                                 uint64_t version, uint32_t part);

/* That is committed, and in a file; NULL: there is none. */
struct sl_objects_stored *sl_objects_stored_in_file(const struct sl_objects *node, const char *name,
                                                    uint64_t version, uint32_t part);

void sl_objects_stored_set_record(struct sl_objects_stored *stored,
                                  const struct sl_objects_record *record);

static inline const struct sl_objects_part *
sl_objects_stored_part(const struct sl_objects_stored *stored)
{
    return &stored->record.parts[stored->key.part];
}

#endif
