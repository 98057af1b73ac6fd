/* Starling's objects: named, versioned byte images that processes publish, fetch from each other,
 * and serve on.
 *
 * A version is immutable. Its publisher commits it; every process that fetched it is one more
 * holder, and serves it to others. A struct sl_objects is the node of one process: it has its own
 * thread, and moves all bytes and messages with a transfer engine (starling_transfer.h).
 *
 * Functions return 0 or a negative enum sl_err (starling.h). Outputs are written only on success.
 * Strings and structs that are passed in are copied; memory of tensors and extents is not. Any
 * thread may call any function, but a publication, get or subscription belongs to one thread at a
 * time. Nothing here waits without a deadline: timeout_ms is from 1 to
 * SL_TRANSFER_TIMEOUT_MS_MAX, another value is INVALID. The text of a DEADLINE names the process
 * that did not answer.
 *
 * Promises:
 * - A version that a commit acknowledged has, at every getter, the bytes that were published: each
 *   block of 256 KiB is verified by its XXH3-128 before it counts and before it is served.
 * - A number of a name has one content: a second commit of it succeeds with the same bytes only.
 * - A version becomes visible at once, with all its parts, or not at all.
 *
 * XXH3 finds accidents, not forgery: members of a cluster are trusted. */
#ifndef STARLING_OBJECTS_H
#define STARLING_OBJECTS_H

#include <starling_transfer.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_OBJECTS_NAME_BYTES  192 /* of an object, with NUL; without blanks and without '@' */
#define SL_OBJECTS_NOTE_BYTES  256 /* with NUL */
#define SL_OBJECTS_BLOCK_BYTES 262144
#define SL_OBJECTS_RANK_MAX    8
#define SL_OBJECTS_PARTS_MAX   64
#define SL_OBJECTS_EXTENTS_MAX 4096

/* Node */

struct sl_objects;

struct sl_objects_options {
    uint32_t struct_size; /* sizeof(struct sl_objects_options) of the caller */
    /* The engine to use; it must outlive the node, which takes its notices whose names begin with
     * "objects". NULL: the node creates one from `engine`. */
    struct sl_transfer *transfer;
    const struct sl_transfer_options *engine; /* NULL: the defaults */
    /* "host:port": the name of the engine whose node hosts the catalogue of names. NULL, or this
     * node's own engine: this node hosts it, for as long as it lives. */
    const char *catalogue;
    const char *location; /* a label: sources with the same one are preferred; NULL: none */
    /* Memory for versions of origin HOST and for gets without extents; allocated with the first of
     * these. 0: 1 GiB. */
    uint64_t pool_bytes;
};

/* Starts the node's thread, and its engine if it has none. Does not wait for the catalogue: calls
 * that need it do. The caller owns *out. Errors: INVALID, NO_MEMORY, EXISTS (the engine has a node
 * already), and those of sl_transfer_create. */
SL_API int sl_objects_create(const struct sl_objects_options *options, struct sl_objects **out);

/* Ends the node. Publications, gets and subscriptions were ended before, and no other thread is in
 * a call. Peers that fetch from this node go on with other holders. Unregisters all memory, waiting
 * at most 10 s for each version whose bytes a peer reads. Nulls *objects. */
SL_API void sl_objects_destroy(struct sl_objects **objects);

/* The name of the node's engine, "host:port": `catalogue` of other nodes if this one hosts it.
 * Valid until destroy. */
SL_API const char *sl_objects_address(const struct sl_objects *objects);

/* Text of the calling thread's last failed call of this header: it names the object, the process
 * or the option. Functions without a result leave it as it is; other calls may clear it. */
SL_API const char *sl_objects_last_error(void);

/* Publish */

/* Numbers of the manifest: never renumber, only append. */
enum sl_object_type {
    SL_OBJECT_BOOL = 0, /* 1 byte */
    SL_OBJECT_U8 = 1,
    SL_OBJECT_I8 = 2,
    SL_OBJECT_U16 = 3,
    SL_OBJECT_I16 = 4,
    SL_OBJECT_U32 = 5,
    SL_OBJECT_I32 = 6,
    SL_OBJECT_U64 = 7,
    SL_OBJECT_I64 = 8,
    SL_OBJECT_F16 = 9,
    SL_OBJECT_BF16 = 10,
    SL_OBJECT_F32 = 11,
    SL_OBJECT_F64 = 12,
    SL_OBJECT_F8_E4M3 = 13,
    SL_OBJECT_F8_E5M2 = 14
};

struct sl_object_tensor {
    const char *name;
    uint32_t type; /* enum sl_object_type */
    uint32_t rank; /* 0: a scalar */
    uint64_t shape[SL_OBJECTS_RANK_MAX];
    const void *data; /* row-major */
    uint64_t bytes;   /* product of the shape and the size of the type */
};

struct sl_object_extent {
    void *base;
    uint64_t bytes;
};

enum sl_object_origin {
    SL_ORIGIN_HOST = 0,  /* copied into the node's pool; the caller's memory is free after commit */
    SL_ORIGIN_CALLER = 2 /* served in place, from the caller's memory */
};

struct sl_publish_options {
    uint32_t struct_size;
    const char *name;
    const char *note; /* shown by lists; NULL: "" */
    uint64_t version; /* below 2^63; 0: the newest plus 1 (with one part only) */
    enum sl_object_origin origin;
    uint32_t part;       /* below part_count */
    uint32_t part_count; /* processes that publish this version together; 0: 1 */
    /* Become the publisher of a name that another process published: commits of that one get
     * CLOSED from now on. */
    bool take_over;
    bool new_name; /* EXISTS if the name exists */
};

struct sl_publication;

/* Begins a version. Errors: EXISTS (new_name; or another process publishes the name: take_over),
 * CLOSED (a newer publisher took over), DEADLINE, INVALID, NO_MEMORY. */
SL_API int sl_publish_begin(struct sl_objects *objects, const struct sl_publish_options *options,
                            uint32_t timeout_ms, struct sl_publication **out);

/* Names the group of the tensors after it: a range of the image, in the order of calls. Errors:
 * INVALID (also: a commit was tried before), EXISTS, TOO_LARGE, NO_MEMORY. */
SL_API int sl_publish_group(struct sl_publication *publication, const char *name);

/* Appends a tensor to the image, at the next multiple of 64 bytes. Its data stays the caller's and
 * is not modified before commit returns; with SL_ORIGIN_CALLER not before sl_object_withdraw
 * returned for it, and bytes between two tensors that are less than 64 apart in memory are
 * registered with them. Errors: INVALID (also: a commit was tried before), EXISTS (the name of a
 * tensor), TOO_LARGE, NO_MEMORY. */
SL_API int sl_publish_tensor(struct sl_publication *publication,
                             const struct sl_object_tensor *tensor);

/* Appends the bytes of `count` extents, in order, as one tensor of u8 with the name "bytes". Memory
 * and errors: as sl_publish_tensor. */
SL_API int sl_publish_bytes(struct sl_publication *publication,
                            const struct sl_object_extent *extents, uint32_t count);

/* Registers (CALLER) or copies (HOST) the data and computes its digests on the calling thread, then
 * commits. 0: the version is visible; with several parts, once all of them have committed, which
 * this call waits for. *version: its number. Errors: EXISTS (the number has other bytes), CLOSED (a
 * newer publisher took over; the text names it), DEADLINE (whether it was committed is unknown:
 * commit again), NO_MEMORY (HOST: the pool), TOO_LARGE (also CALLER: tensors in more than
 * SL_TRANSFER_BUFFERS_MAX places of memory), INVALID; of the memory: sl_transfer_register. */
SL_API int sl_publish_commit(struct sl_publication *publication, uint32_t timeout_ms,
                             uint64_t *version);

/* Frees the publication. If it was not committed, nothing was published, and the memory is not in
 * use any more. A committed version stays served. Nulls *publication. */
SL_API void sl_publish_end(struct sl_publication **publication);

/* Get */

struct sl_get;

/* Starts to fetch a version into `count` extents of the caller, in order; together they are as
 * large as the images of all parts (sl_object_entry.bytes). Waits for the catalogue's answer and
 * registers the extents on the calling thread; the bytes arrive later. The memory stays the
 * caller's: it is not read before sl_get_wait returned 0, and not modified before sl_get_close (a
 * get that failed) or sl_object_withdraw (one that succeeded: this process serves it to others).
 * count 0: into the node's pool, from where it is served.
 * version: 0: the newest. timeout_ms: of the whole get. Errors: NOT_FOUND (the text has the oldest
 * and the newest version), INVALID (extents overlap, or have another size than the text says),
 * EXISTS (this node has a copy already, or fetches one; or, from sl_transfer_register, the memory
 * is registered already), DEADLINE, TOO_LARGE, NO_MEMORY. */
SL_API int sl_get_start(struct sl_objects *objects, const char *name, uint64_t version,
                        const struct sl_object_extent *extents, uint32_t count, uint32_t timeout_ms,
                        struct sl_get **out);

/* Waits for the end of the get, at most until its deadline. 0: all bytes are there, verified.
 * Errors: DEADLINE (the text has the blocks that are missing, of how many, and the last holder),
 * CANCELLED (withdrawn, removed, or closed), CORRUPT (the manifest), NO_MEMORY; and with count 0
 * TOO_LARGE (the pool is smaller), EXISTS (it has the version with other bytes). */
SL_API int sl_get_wait(struct sl_get *get);

struct sl_get_progress {
    uint64_t version;
    uint64_t bytes;            /* of all parts */
    uint64_t verified_bytes;   /* blocks that have arrived and match their digests */
    uint64_t corrupt_blocks;   /* that did not match, and were fetched elsewhere */
    uint64_t replaced_parents; /* sources that ended, refused, or were too slow */
    bool over;                 /* sl_get_wait does not wait any more */
};

/* What has arrived so far; does not wait. */
SL_API int sl_get_progress(struct sl_get *get, struct sl_get_progress *out);

/* The next tensor of a get that succeeded, in the order of the image and over all parts: sets *out
 * (its name is valid until sl_get_close; data is NULL unless it lies in one extent) and its place
 * in the extents. *cursor: 0 at the beginning. Errors: NOT_FOUND (no more), AGAIN (the get is not
 * over, or failed). */
SL_API int sl_get_next_tensor(struct sl_get *get, uint64_t *cursor, struct sl_object_tensor *out,
                              uint64_t *image_offset);

/* Ends the get, waiting for READs that still write to the memory (at most 100 ms); one that failed,
 * also for processes that read what had arrived (at most 10 s: after that, sl_object_withdraw says
 * when the memory is free). A version that was fetched stays served until sl_object_withdraw.
 * Nulls *get. */
SL_API void sl_get_close(struct sl_get **get);

/* Versions */

/* This node's copy is no longer served. Afterwards no process reads it, and the caller may change
 * or free its memory. Also cancels a get of it. Errors: NOT_FOUND (this node has no copy), DEADLINE
 * (a peer still reads it; it gets no new access: call again), INVALID. */
SL_API int sl_object_withdraw(struct sl_objects *objects, const char *name, uint64_t version,
                              uint32_t timeout_ms);

/* Removes a version at the catalogue and at all its holders; version 0: the name with all of them.
 * Holders in memory of a caller keep that memory registered until they withdraw. Errors:
 * NOT_FOUND, DEADLINE, INVALID. */
SL_API int sl_object_remove(struct sl_objects *objects, const char *name, uint64_t version,
                            uint32_t timeout_ms);

/* Waits until `holders` nodes have the whole version. version 0: the newest. Errors: NOT_FOUND,
 * DEADLINE (the text has their present number), INVALID. */
SL_API int sl_object_wait_held(struct sl_objects *objects, const char *name, uint64_t version,
                               uint32_t holders, uint32_t timeout_ms);

struct sl_object_entry {
    char name[SL_OBJECTS_NAME_BYTES];
    uint64_t version;
    uint64_t bytes;   /* of all parts' images */
    uint64_t time_ms; /* of the commit: Unix time in milliseconds */
    uint32_t holders; /* nodes that have all of it */
    uint32_t part_count;
    enum sl_object_origin origin;
    char note[SL_OBJECTS_NOTE_BYTES];
};

struct sl_object_list {
    uint64_t count;
    struct sl_object_entry *entries; /* by name, then by version, ascending */
};

/* Lists the versions of all names that begin with `prefix` (NULL or "": all). The caller owns *out:
 * free it with sl_object_list_free. Errors: DEADLINE, NO_MEMORY, INVALID. */
SL_API int sl_object_list(struct sl_objects *objects, const char *prefix, uint32_t timeout_ms,
                          struct sl_object_list **out);

/* Nulls *list. */
SL_API void sl_object_list_free(struct sl_object_list **list);

/* Follow */

struct sl_subscription;

/* Follows the newest version of a name, which need not exist yet. Errors: INVALID, NO_MEMORY,
 * DEADLINE. */
SL_API int sl_subscription_open(struct sl_objects *objects, const char *name, uint32_t timeout_ms,
                                struct sl_subscription **out);

/* The newest version that the catalogue announced; 0: none yet. Never goes back. */
SL_API uint64_t sl_subscription_newest(const struct sl_subscription *subscription);

/* Waits until the newest version is above `above`, and sets *version to it. Errors: DEADLINE,
 * INVALID. */
SL_API int sl_subscription_wait(struct sl_subscription *subscription, uint64_t above,
                                uint32_t timeout_ms, uint64_t *version);

/* Nulls *subscription. */
SL_API void sl_subscription_close(struct sl_subscription **subscription);

#ifdef __cplusplus
}
#endif
#endif
