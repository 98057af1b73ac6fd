/* A stored part is one that this node keeps for its publisher (store.h), in a file or in the pool.
 * Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_STORED_H
#define SL_OBJECTS_NODE_STORED_H

#include "core/list.h"
#include "objects/catalogue/message.h"
#include "objects/node/pool.h"

struct sl_objects;
struct sl_objects_copy;

struct sl_objects_stored {
    struct sl_list_link link, by_key; /* of the node's list, and of its index */
    struct sl_objects_pool_key key;   /* its name is in `record` */
    uint8_t *record;                  /* encoded as in its file */
    uint32_t record_bytes;
    uint32_t reported_round; /* reports.h */
    bool is_kept;            /* it was committed */
    bool has_file;           /* that has the whole part, as far as is known */
    bool is_dropped;         /* it is not found any more */
};

/* The parts by their keys: rows of a hash table that grows. Zero: empty. */
struct sl_objects_stored_index {
    struct sl_list *rows; /* [row_count] */
    uint32_t row_count, count;
};

/* Encodes the record of a part: a HOLD; before the commit, when only this part of it is set, a
 * STORE. Returns the length. */
uint32_t sl_objects_stored_encode(const struct sl_objects_record *record, uint32_t part,
                                  uint8_t to[SL_OBJECTS_MESSAGE_BYTES]);

/* Decodes it: a STORE becomes a HOLD without time. Errors: PROTOCOL; CORRUPT: another message. */
int sl_objects_stored_decode(const void *bytes, uint32_t byte_count,
                             struct sl_objects_message *hold, struct sl_reason *reason);

/* Adds the zeroed part to the node's list and index. Returns false if there is no memory. */
bool sl_objects_stored_add(struct sl_objects *node, struct sl_objects_stored *stored,
                           const struct sl_objects_record *record, uint32_t part);

/* Removes it, and frees its record. */
void sl_objects_stored_remove(struct sl_objects *node, struct sl_objects_stored *stored);

/* Frees the index. */
void sl_objects_stored_fini(struct sl_objects *node);

/* NULL: there is none. */
struct sl_objects_stored *sl_objects_stored_find(const struct sl_objects *node, const char *name,
                                                 uint64_t version, uint32_t part);

/* That is committed, and in a file; NULL: there is none. */
struct sl_objects_stored *sl_objects_stored_in_file(const struct sl_objects *node, const char *name,
                                                    uint64_t version, uint32_t part);

/* Whether its part has this digest. Other bytes may have the same key (catalogue.h). */
bool sl_objects_stored_is_of(const struct sl_objects_stored *stored, struct sl_hash_128 digest);

/* The one in a file with the bytes of the copy; NULL: there is none. */
struct sl_objects_stored *sl_objects_stored_of_copy(const struct sl_objects *node,
                                                    const struct sl_objects_copy *copy);

/* Replaces the record. Returns false, and changes nothing, if there is no memory. */
bool sl_objects_stored_set_record(struct sl_objects_stored *stored,
                                  const struct sl_objects_record *record, uint32_t part);

/* Fills the HOLD of the whole part, whose texts are the stored part's. */
void sl_objects_stored_read(const struct sl_objects_stored *stored,
                            struct sl_objects_message *hold);

#endif
