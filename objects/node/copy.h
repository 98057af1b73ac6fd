/* A copy is what this node has of one part of one version: its manifest and blocks of its image, in
 * memory of a caller or in the node's pool (cache.h). The copy of a publisher is whole; a fetch
 * fills in that of a getter, block by block. Children read what `ranges` lists (serve.h).
 *
 * Memory is registered and unregistered on threads of the application. Everything else belongs to
 * the node's reactor once the copy is in the node's list. */
#ifndef SL_OBJECTS_NODE_COPY_H
#define SL_OBJECTS_NODE_COPY_H

#include <string.h>

#include "core/list.h"
#include "objects/catalogue/manifest.h"
#include "objects/catalogue/message.h"

struct sl_objects;
struct sl_objects_fetch;
struct sl_objects_pool_version;

struct sl_objects_fetch_counts {
    uint64_t verified_bytes; /* of the image */
    uint64_t corrupt_blocks;
    uint64_t replaced_parents;
};

/* Ranges that are registered for READs of peers. Zero: none. */
struct sl_objects_memory {
    void **bases;
    uint32_t count;
};

struct sl_objects_copy {
    struct sl_list_link link; /* of the node's copies */
    char name[SL_OBJECTS_NAME_BYTES];
    uint64_t version;
    uint32_t part;
    struct sl_objects_part info; /* of the record: digest, sizes */
    /* Reported to a catalogue that has restarted; NULL: not known. Its texts are name and note. */
    struct sl_objects_record *record;
    char note[SL_OBJECTS_NOTE_BYTES];
    uint32_t uses; /* the node's list, and an open get; the last one frees it */
    uint64_t withdrawn_ns;
    bool is_withdrawn;       /* not served; its memory may still be registered */
    bool is_uncommitted;     /* between publisher and keepers (store.h): not reported */
    uint32_t reported_round; /* reports.h */

    struct sl_objects_manifest manifest; /* empty until it is verified */
    struct sl_objects_place *places;     /* of the stored part: of the manifest, then the image */
    uint32_t place_count;
    /* Memory of a caller: registered; the manifest, and SL_OBJECTS_TENSOR_ALIGNMENT zeros. */
    struct sl_objects_memory memory;
    uint8_t *stored_manifest;
    /* The pool: the places are slots, one for each block. NULL: memory of a caller. */
    struct sl_objects_pool_version *pooled;
    struct {
        struct sl_list uses; /* cache.h */
        uint32_t use_count;
    } cache;
    void (*grown)(
        struct sl_objects_copy *copy); /* it has more verified blocks; NULL: of no interest */

    struct sl_objects_fetch *fetch; /* fills it; NULL: whole, failed, or blocks were evicted */
    struct sl_objects_fetch_counts counts; /* of the last fetch */
    struct {
        uint32_t count;     /* blocks of the image that are listed in `ranges` */
        uint32_t beginning; /* in the pool: blocks of the image from the first one on */
        /* Places of bytes, for children, in the order in which they were verified. */
        struct sl_objects_range *ranges;
        uint32_t range_count, range_capacity;
        uint32_t sent; /* ranges that some child knows: they do not change any more */
    } verified;
    struct {
        struct sl_list list;
        bool pins; /* they pin it in the pool (serve.c) */
    } children;
    struct {
        uint64_t *offsets; /* ascending, in the image, where READs end; NULL: none */
        uint32_t count;
    } stops;
};

/* Without memory for the part. Any thread. Errors: NO_MEMORY. */
int sl_objects_copy_create(const char *name, uint64_t version, uint32_t part,
                           const struct sl_objects_part *info, struct sl_objects_copy **out);

/* The image lies in memory of a caller; the manifest is allocated. Any thread. Errors: NO_MEMORY.
 */
int sl_objects_copy_set_places(struct sl_objects_copy *copy, const struct sl_objects_place *image,
                               uint32_t count);

/* A thread of the application: unregisters the memory of a copy that is in no list, and frees it.
 * Errors: DEADLINE: peers still read the memory; all of it stays, and the log says so. */
int sl_objects_copy_discard(struct sl_objects *node, struct sl_objects_copy *copy,
                            uint32_t timeout_ms);

/* Keeps the record. Without memory for it, nothing is kept. */
void sl_objects_copy_set_record(struct sl_objects_copy *copy,
                                const struct sl_objects_record *record);

/* Its memory is not registered, and it is in no list. NULL is allowed. */
void sl_objects_copy_free(struct sl_objects_copy *copy);

/* On the reactor: the node's copy of the version and part that is not withdrawn; NULL. */
struct sl_objects_copy *sl_objects_copy_find(struct sl_objects *node, const char *name,
                                             uint64_t version, uint32_t part);

/* On the reactor: whether the node's list has a copy of the version; also a withdrawn one, if that
 * uses memory of a caller. */
bool sl_objects_copy_exists(const struct sl_objects *node, const char *name, uint64_t version);

/* On the reactor: ends a use of a copy; the last one frees it. */
void sl_objects_copy_put(struct sl_objects_copy *copy);

static inline bool sl_objects_copy_is_of(const struct sl_objects_copy *copy, const char *name,
                                         uint64_t version)
{
    return copy->version == version && strcmp(copy->name, name) == 0;
}

/* Where the image begins in what is stored of a part: behind the blocks of the manifest. */
static inline uint64_t sl_objects_copy_image_at(const struct sl_objects_copy *copy)
{
    return sl_objects_block_count(copy->info.manifest_bytes) * SL_OBJECTS_BLOCK_BYTES;
}

static inline uint32_t sl_objects_copy_manifest_blocks(const struct sl_objects_copy *copy)
{
    return (uint32_t)sl_objects_block_count(copy->info.manifest_bytes);
}

static inline uint32_t sl_objects_copy_block_count(const struct sl_objects_copy *copy)
{
    return (uint32_t)sl_objects_block_count(copy->info.bytes);
}

/* The slot of a block of the image. The copy is in the pool. */
static inline uint8_t *sl_objects_copy_block(const struct sl_objects_copy *copy, uint32_t block)
{
    return copy->places[sl_objects_copy_manifest_blocks(copy) + block].base;
}

/* The manifest, or a block of the image, is verified: lists its places. Errors: NO_MEMORY. */
int sl_objects_copy_add_manifest(struct sl_objects_copy *copy);
int sl_objects_copy_add_block(struct sl_objects_copy *copy, uint32_t block);

/* The same for the manifest and the first `count` blocks; nothing is listed yet. Also on any
 * thread, before the copy is in a list. */
int sl_objects_copy_add_first(struct sl_objects_copy *copy, uint32_t count);

/* On the reactor: a publisher's copy is whole. Nodes may know no other one: in the pool it is not
 * evicted before it is withdrawn or retired. */
void sl_objects_copy_keep(struct sl_objects_copy *copy);

/* Verified bytes of the image, from the first one on; while it is fetched into memory of a caller,
 * 0. */
static inline uint64_t sl_objects_copy_beginning(const struct sl_objects_copy *copy)
{
    return copy->verified.count == sl_objects_copy_block_count(copy)
               ? copy->info.bytes
               : copy->verified.beginning * (uint64_t)SL_OBJECTS_BLOCK_BYTES;
}

/* READs end at these offsets of the image, so that each piece is verified without waiting for the
 * next one. Replaces earlier ones; no effect without stops, or without memory for them. */
void sl_objects_copy_set_stops(struct sl_objects_copy *copy, const uint64_t *stops, uint32_t count);

/* Whether a READ of one stripe ends with this block of it. */
bool sl_objects_copy_stops_behind(const struct sl_objects_copy *copy, uint32_t block);

/* A thread of the application: allocates the node's pool, once. Errors: those of
 * sl_transfer_memory_create. */
int sl_objects_copy_open_pool(struct sl_objects *node);

/* Gives a copy in the pool slots for the manifest and, once it is known, for the image, and pins it
 * if it had none before. Blocks that share their slot with an older version are verified already.
 * On the reactor. Errors, with a reason: those of sl_objects_pool_reserve. */
int sl_objects_copy_reserve(struct sl_objects *node, struct sl_objects_copy *copy,
                            struct sl_reason *reason);

/* Registers the extents of a caller, and each manifest as a range of its own; the first copy keeps
 * all of it. Extents that overlap, or are less than 64 bytes apart, become one range. A thread of
 * the application. Errors, with the text in sl_objects_last_error: TOO_LARGE (too many ranges),
 * NO_MEMORY, and those of sl_transfer_register. */
struct sl_transfer;
int sl_objects_copy_register(struct sl_transfer *transfer, struct sl_objects_copy *const *copies,
                             uint32_t copy_count, const struct sl_object_extent *extents,
                             uint32_t count);

/* A thread of the application. Zeroes *memory. Errors: DEADLINE: peers still read it, and it stays
 * registered. */
int sl_objects_memory_unregister(struct sl_transfer *transfer, struct sl_objects_memory *memory,
                                 uint32_t timeout_ms);

#endif
