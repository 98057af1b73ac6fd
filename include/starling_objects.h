/* libstarling_objects publishes, gets and serves versions of named objects.
 *
 * A version is immutable: one image, or one image for each part. An image is a sequence of tensors,
 * each at a multiple of 64 bytes, and zeros between them; its manifest has the tensors' names,
 * types and shapes, and the digest of each block. The newest version is the one with the highest
 * number. A node (struct sl_objects) has a thread of its own, and moves everything with a transfer
 * engine (starling_transfer.h). One node hosts the catalogue: the table of names, versions and
 * holders. A holder is a node that serves a whole version: its publisher, and each node that got
 * it. Nodes get blocks from holders, and from gets that are still running: their sources.
 *
 * Functions return 0 or a negative enum sl_err (starling.h): EXISTS stands for SL_ERR_EXISTS.
 * Outputs are written only on success. Strings and options are copied; memory of tensors and
 * extents is not. Any thread may call any function, but a publication, get or subscription belongs
 * to one thread at a time, a subscription together with its views; only sl_get_progress may run
 * beside a wait of another thread. Calls with timeout_ms, from 1 to SL_TRANSFER_TIMEOUT_MS_MAX (1
 * h), end by then with DEADLINE, and repeat requests until the catalogue answers.
 *
 * Promises:
 * - A get that succeeds has the bytes that were published: each block is verified by its XXH3-128
 *   before it is used and before it is served. This detects corruption, not tampering: nodes trust
 *   each other.
 * - While a version exists, no other bytes can be committed with its number.
 * - A version becomes visible with all its parts, or not at all. */
#ifndef STARLING_OBJECTS_H
#define STARLING_OBJECTS_H

#include <starling_transfer.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_OBJECTS_NAME_BYTES  192 /* of an object, with NUL; no space, no control byte, no '@' */
#define SL_OBJECTS_NOTE_BYTES  256 /* with NUL */
#define SL_OBJECTS_BLOCK_BYTES 262144
#define SL_OBJECTS_RANK_MAX    8
#define SL_OBJECTS_PARTS_MAX   64
#define SL_OBJECTS_EXTENTS_MAX 4096 /* of one call */

/* Node */

struct sl_objects;

struct sl_objects_options {
    uint32_t struct_size; /* sizeof(struct sl_objects_options) of the caller */
    /* The engine to use. It must outlive the node, which takes its notices whose names begin with
     * "objects". NULL: the node creates one with engine_options, which are ignored otherwise. */
    struct sl_transfer *engine;
    const struct sl_transfer_options *engine_options; /* NULL: all zero, which has no secret. A
                                                       * name NULL is on loopback if that is where
                                                       * the catalogue is */
    /* Address ("host:port") of the node that hosts the catalogue; that of this node: this node
     * hosts it, until destroy. NULL: the variable STARLING_OBJECTS_CATALOGUE that starling-launch
     * sets, as STARLING_OBJECTS_AGENT for the agent (neither is read if agent is given); else the
     * node that a key in the engine's metadata names, if that is etcd; else this node. */
    const char *catalogue;
    /* The agent of this host ("starling-objects serve --agent") whose pool the views of
     * subscriptions are in: its name (its --agent-name), or "off". NULL: the agent "default", if
     * one answers that has the same catalogue. Without an agent views are in this node's own pool.
     * A name, and neither catalogue nor engine nor engine_options: this process only subscribes and
     * opens views, without thread and engine; other calls fail with UNSUPPORTED. */
    const char *agent;
    const char *host;     /* a label: nodes with an equal label are on one host; NULL: found */
    const char *location; /* a label: sources with an equal label are preferred; NULL: none */
    /* Bytes of the pool: memory for versions of origin HOST and for gets without extents, allocated
     * with the first of these. A version that this node has published leaves the pool when it is
     * withdrawn or removed; another one also when it is unused and others need the memory. Each
     * manifest and each image take whole blocks. 0: 1 GiB. */
    uint64_t pool_bytes;
    /* Limit of the bytes per second that other nodes read here, all together; 0: none. They keep to
     * it, on every transport. */
    uint64_t rate_bytes;
};

/* Starts the node's thread, and its engine if it has none. Does not wait for the catalogue. The
 * caller owns *out. Errors: INVALID, NO_MEMORY, EXISTS (the engine has a node already), and those
 * of sl_transfer_create (REFUSED: without a secret only loopback is allowed). */
SL_API int sl_objects_create(const struct sl_objects_options *options, struct sl_objects **out);

/* Ends the node. First end its publications, gets and subscriptions, and calls of other threads.
 * Waits at most 10 s for each version whose bytes another node reads. If the node created its
 * engine, no memory is used any more; otherwise memory that is still read stays registered with the
 * engine, and the log says so. Nulls *objects. */
SL_API void sl_objects_destroy(struct sl_objects **objects);

/* The node's address, "host:port": the `catalogue` of other nodes if this node hosts it. Valid
 * until destroy. */
SL_API const char *sl_objects_address(const struct sl_objects *objects);

/* Text of the calling thread's last failed call of this header: it names the object, the node, the
 * option or what was waited for. Void functions leave it as it is; other calls may clear it. */
SL_API const char *sl_objects_last_error(void);

/* Publish */

/* These numbers are stored and sent: append only. */
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
    SL_OBJECT_F8_E4M3 = 13, /* e4m3fn, as in safetensors */
    SL_OBJECT_F8_E5M2 = 14
};

struct sl_object_tensor {
    const char *name; /* 1 to 255 bytes */
    uint32_t type;    /* enum sl_object_type */
    uint32_t rank;    /* 0: a scalar */
    uint64_t shape[SL_OBJECTS_RANK_MAX];
    const void *data; /* host memory, row-major */
    uint64_t bytes;   /* product of the shape and the size of the type; another value: INVALID */
};

struct sl_object_extent {
    void *base;
    uint64_t bytes;
};

enum sl_object_origin {
    /* Copied into the pool of this host's agent, which serves it also after the publisher's end;
     * without an agent into the node's pool. For memory that changes later. The catalogue removes
     * all but the newest 3 of these versions. */
    SL_ORIGIN_HOST = 0,
    /* Stored by keepers: servers of a job, or processes of `starling-objects serve --dir`. They
     * serve it also after the publisher's end. Removed as HOST's. */
    SL_ORIGIN_PS = 1,
    SL_ORIGIN_CALLER = 2 /* served in place, from the caller's memory, until withdraw or remove */
};

struct sl_publish_options {
    uint32_t struct_size;
    const char *name;
    const char *note; /* shown by lists; NULL: "" */
    /* Below 2^63. 0: a number above all before, which sl_publish_begin chooses (with one part
     * only). */
    uint64_t version;
    enum sl_object_origin origin;
    /* Several nodes may publish one version together: each commits another part, from 0, of the
     * same name, version and part_count. A get has the images of all parts, one after another. */
    uint32_t part;
    uint32_t part_count; /* 0: 1 */
    /* Replace the publisher of the name, whose commits fail with CLOSED from now on. A node is the
     * publisher from its first sl_publish_begin until its destroy; a killed one, 10 s longer. */
    bool take_over;
    bool new_name; /* EXISTS if the name has a version */
};

struct sl_publication;

/* Begins a version. Errors: EXISTS (new_name; or another node is the publisher and take_over is
 * false), DEADLINE, INVALID, NO_MEMORY, TOO_LARGE (a limit of the catalogue). */
SL_API int sl_publish_begin(struct sl_objects *objects, const struct sl_publish_options *options,
                            uint32_t timeout_ms, struct sl_publication **out);

/* Begins a group: a name for the tensors up to the next group (sl_view_group). Errors: INVALID
 * (also: after a commit), EXISTS, TOO_LARGE, NO_MEMORY. */
SL_API int sl_publish_group(struct sl_publication *publication, const char *name);

/* Appends a tensor to the image. The data stays the caller's, and must not be modified before
 * - HOST, PS: sl_publish_commit returns 0, or sl_publish_end returns;
 * - CALLER: sl_object_withdraw returns 0; without a commit that returned 0, sl_publish_end returns.
 * With CALLER and PS, nodes can also read the bytes between tensors that are less than 64 bytes
 * apart. Errors: INVALID (also: after a commit), EXISTS (the tensor's name), TOO_LARGE, NO_MEMORY.
 */
SL_API int sl_publish_tensor(struct sl_publication *publication,
                             const struct sl_object_tensor *tensor);

/* Appends the bytes of `count` extents, in order, as one tensor of u8 with the name "bytes": once a
 * version. Memory and errors: as sl_publish_tensor. */
SL_API int sl_publish_bytes(struct sl_publication *publication,
                            const struct sl_object_extent *extents, uint32_t count);

/* Computes digests and copies (HOST) or registers (CALLER, PS) the data on the calling thread,
 * which counts for timeout_ms; with PS waits until all keepers have stored it; then commits.
 * Returns 0, and sets *version, when all parts are committed: the version is visible. After
 * DEADLINE the outcome is unknown: commit again, with the same number and without another copy, or
 * call sl_publish_end. Errors: EXISTS (the number has other bytes), CLOSED (another publisher took
 * over), DEADLINE, NO_MEMORY (also: the pool is full), TOO_LARGE (also CALLER, PS: more than
 * SL_TRANSFER_BUFFERS_MAX, 4096, separate ranges), INVALID, IO (a keeper's disk is full), and those
 * of sl_transfer_register. */
SL_API int sl_publish_commit(struct sl_publication *publication, uint32_t timeout_ms,
                             uint64_t *version);

/* Publishes rows of tables, "a,b", of a job whose servers run with --objects: each server takes a
 * snapshot of its shards, and commits and serves a part of the version, with two tensors for each
 * table and shard S: "TABLE/keys.S" (u64, ascending) and "TABLE/rows.S" (f32, a row for each key;
 * of a dense table a key is the number of a block of 1024 elements). A shard's rows are of one
 * moment; all rows of BSP tables are of one iteration. origin, part and part_count of the options
 * are not used; it takes over the name. Waits until the version is visible. Errors: NOT_FOUND (a
 * table), UNSUPPORTED (a KV table; a keeper is no server), AGAIN (until the deadline: the keepers
 * have not each shard of the job once, or iterations end too fast), CLOSED (another publisher took
 * over), DEADLINE, INVALID, NO_MEMORY, TOO_LARGE (also: over 64 servers). */
SL_API int sl_publish_tables(struct sl_objects *objects, const struct sl_publish_options *options,
                             const char *tables, uint32_t timeout_ms, uint64_t *version);

/* Frees the publication. If its commit returned 0, the node continues to serve the version. If not,
 * the node does not serve it, also after a DEADLINE, and no longer uses the memory. Nulls
 * *publication. */
SL_API void sl_publish_end(struct sl_publication **publication);

/* Get */

struct sl_get;

/* Starts to get a version (0: the newest) into `count` extents, in order. Together they have as
 * many bytes as the version (sl_object_entry.bytes). Registers them on the calling thread; bytes
 * arrive later. The caller reads them after sl_get_wait returns 0. The node uses the memory, after
 * a failure too, until sl_object_withdraw of the version returns 0 or NOT_FOUND; if this call
 * fails, the node does not use it. count 0: into the pool, where it stays at least until
 * sl_get_close; nothing is fetched if this node has it. timeout_ms: of the whole get. Errors:
 * NOT_FOUND, INVALID (extents overlap, or have another size), EXISTS (this node has or gets the
 * version, or has not withdrawn it; or memory is registered already), DEADLINE, TOO_LARGE,
 * NO_MEMORY. */
SL_API int sl_get_start(struct sl_objects *objects, const char *name, uint64_t version,
                        const struct sl_object_extent *extents, uint32_t count, uint32_t timeout_ms,
                        struct sl_get **out);

/* Waits for the end of the get, at most until its deadline. 0: all bytes are verified. Errors:
 * DEADLINE (also: all holders have ended), CANCELLED (withdrawn, removed, or published here),
 * CORRUPT (the manifest), NO_MEMORY (with count 0 also: the pool is in use). */
SL_API int sl_get_wait(struct sl_get *get);

struct sl_get_progress {
    uint64_t version;
    uint64_t bytes; /* of all parts */
    uint64_t verified_bytes;
    uint64_t corrupt_blocks;   /* failed verification; the node got them again elsewhere */
    uint64_t replaced_sources; /* sources that ended, refused, or were too slow */
    bool done;                 /* sl_get_wait returns at once */
};

/* What has arrived so far; does not wait. */
SL_API int sl_get_progress(struct sl_get *get, struct sl_get_progress *out);

/* Sets *out to the next tensor of a get that succeeded, in the order of the images, and
 * *image_offset to its offset in the extents taken together. *cursor: 0 at first. out->name is
 * valid until sl_get_close; out->data, the caller's memory, is NULL if the tensor is split over
 * extents (count 0: over blocks). Errors: NOT_FOUND (no more), AGAIN (the get is still running),
 * that of sl_get_wait (it failed). */
SL_API int sl_get_next_tensor(struct sl_get *get, uint64_t *cursor, struct sl_object_tensor *out,
                              uint64_t *image_offset);

/* Cancels a get that is running, and frees it. A version that arrived is still served. If the get
 * failed, withdraws the version, waiting at most 10 s; see sl_get_start for its memory. Nulls *get.
 */
SL_API void sl_get_close(struct sl_get **get);

/* Versions */

/* Stops serving this node's copy, and cancels a get of it. After 0 no node reads memory of the
 * caller: it may be changed or freed. The catalogue deletes a version with its last copy. Errors:
 * NOT_FOUND (this node has no copy), DEADLINE (a node still reads it: call again), INVALID (also
 * version 0).
 */
SL_API int sl_object_withdraw(struct sl_objects *objects, const char *name, uint64_t version,
                              uint32_t timeout_ms);

/* Removes a version, or with version 0 ALL versions of the name: holders stop serving, and gets are
 * cancelled. Memory of callers is in use until they call sl_object_withdraw. Errors: NOT_FOUND,
 * DEADLINE, INVALID. */
SL_API int sl_object_remove(struct sl_objects *objects, const char *name, uint64_t version,
                            uint32_t timeout_ms);

/* Waits until the version (0: the newest) has `holders` holders, the publisher included. Errors:
 * NOT_FOUND, DEADLINE, INVALID. */
SL_API int sl_object_wait_held(struct sl_objects *objects, const char *name, uint64_t version,
                               uint32_t holders, uint32_t timeout_ms);

struct sl_object_entry {
    char name[SL_OBJECTS_NAME_BYTES];
    uint64_t version;
    uint64_t bytes;   /* of the images of all parts */
    uint64_t time_ms; /* of the commit, at the catalogue: Unix time in milliseconds */
    uint32_t holders; /* with the publisher; of the part that has the fewest */
    uint32_t part_count;
    enum sl_object_origin origin; /* at the publisher */
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

/* Subscribe */

struct sl_subscription;

struct sl_subscribe_options {
    uint32_t struct_size;
    /* Fetch each new version into the pool before a view asks for it. Versions that become old
     * during the fetch of another one are skipped. */
    bool follow;
};

/* Subscribes to a name, which need not exist yet. options: NULL: all zero. The caller owns *out. If
 * the agent ends, calls of the subscription wait for the next one. Errors: INVALID, NO_MEMORY,
 * DEADLINE (also: no agent), TOO_LARGE, REFUSED (the agent is another user's). */
SL_API int sl_subscription_open(struct sl_objects *objects, const char *name,
                                const struct sl_subscribe_options *options, uint32_t timeout_ms,
                                struct sl_subscription **out);

/* The highest number that is complete on this host (follow), or that the catalogue announced. 0:
 * none yet. A load from memory, which only other calls notice to be that of an agent that has
 * ended. Never decreases: if all holders and the catalogue ended and numbers begin at 1 again, open
 * another subscription. */
SL_API uint64_t sl_subscription_newest(const struct sl_subscription *subscription);

/* Waits until sl_subscription_newest is above `above`, and sets *version to it: it may skip some.
 * Errors: DEADLINE (the text says whether the catalogue answers), INVALID. */
SL_API int sl_subscription_wait(struct sl_subscription *subscription, uint64_t above,
                                uint32_t timeout_ms, uint64_t *version);

/* First close its views. Nulls *subscription. */
SL_API void sl_subscription_close(struct sl_subscription **subscription);

#define SL_STALENESS_BUCKETS 44 /* [0]: 0; [i]: from 2^(i - 1) to below 2^i; [43]: and above */

/* How old the version in use is: that of the view which was opened last. `behind` versions is the
 * number of the newest announced version minus its number. It is behind in time since the commit of
 * the oldest version that is newer. Commits are timed by the catalogue's clock, and their age by
 * that of this host. If more than 32 versions appear between two views, the times of older ones are
 * estimated. */
struct sl_staleness {
    uint64_t version, newest;   /* 0: none */
    uint64_t behind, behind_us; /* now */
    /* Since the first view, weighted by time. */
    uint64_t measured_us;
    double behind_mean, behind_us_mean;
    uint64_t behind_histogram[SL_STALENESS_BUCKETS];    /* us with so many versions behind */
    uint64_t behind_us_histogram[SL_STALENESS_BUCKETS]; /* us with so many us behind */
    /* Versions. */
    uint64_t opened_count, skipped_count; /* skipped: numbers between two that were opened */
    uint64_t visible_us_histogram[SL_STALENESS_BUCKETS]; /* from commit until a view was open */
};

/* Of views of this subscription; does not wait. */
SL_API void sl_subscription_staleness(const struct sl_subscription *subscription,
                                      struct sl_staleness *out);

/* Views */

struct sl_view;

struct sl_view_options {
    uint32_t struct_size;
    uint64_t version; /* 0: the newest, for whose first appearance the call waits */
    /* With version 0: a version that is complete on this host, and not more than this older than
     * the newest, is opened without a fetch. */
    uint64_t behind_max;
    /* Open before the blocks are there: sl_view_wait waits for them, in the order of the images. */
    bool stream;
    uint32_t stop_count; /* at most 64 */
    /* Offsets in the images taken together, ascending, where reads of sources end, one after the
     * other: so the bytes before come as early as possible. */
    const uint64_t *stops;
};

/* Maps a version read-only: fetches what the pool does not have, and keeps all of it there until
 * close. The bytes never change, also after the version was removed or the agent has ended.
 * options: NULL: all zero. The caller owns *out. Errors: NOT_FOUND (a given version; the text names
 * the oldest and the newest), CANCELLED (a given version was removed), DEADLINE, TOO_LARGE (the
 * pool), NO_MEMORY (also: other views fill the pool), AGAIN (this process gets or publishes it in
 * its own memory just now), INVALID. */
SL_API int sl_view_open(struct sl_subscription *subscription, const struct sl_view_options *options,
                        uint32_t timeout_ms, struct sl_view **out);

/* Unmaps: pointers into the view end here. Nulls *view. */
SL_API void sl_view_close(struct sl_view **view);

SL_API uint64_t sl_view_version(const struct sl_view *view);

/* Waits until the first image_bytes bytes of the images, taken together, are verified; more than
 * the version has: all. Without `stream` they are. Errors: DEADLINE, CANCELLED (removed), CLOSED
 * (the agent has ended: open another view), INVALID. */
SL_API int sl_view_wait(struct sl_view *view, uint64_t image_bytes, uint32_t timeout_ms);

/* Sets *out to the tensor with the name, or to the next one as sl_get_next_tensor does; out->data
 * is valid until sl_view_close. *image_offset (NULL: not wanted): its offset in the images taken
 * together. With `stream` its bytes may be read once sl_view_wait has returned 0 for image_offset +
 * bytes. Errors: NOT_FOUND. */
SL_API int sl_view_tensor(const struct sl_view *view, const char *name,
                          struct sl_object_tensor *out, uint64_t *image_offset);
SL_API int sl_view_next_tensor(const struct sl_view *view, uint64_t *cursor,
                               struct sl_object_tensor *out, uint64_t *image_offset);

/* Where the tensors of a group begin and end in the images taken together. Errors: NOT_FOUND. */
SL_API int sl_view_group(const struct sl_view *view, const char *name, uint64_t *image_offset,
                         uint64_t *bytes);

/* Looks up rows of a table of a parameter server: copies those of keys[count] to
 * rows[count][dim], and sets found[count]; a row that is not found stays as it is. Errors:
 * NOT_FOUND (the table), INVALID (dim is not that of the table), CORRUPT (the table's tensors),
 * NO_MEMORY. */
SL_API int sl_view_rows(struct sl_view *view, const char *table, const uint64_t *keys,
                        uint64_t count, uint32_t dim, float *rows, uint8_t *found);

#ifdef __cplusplus
}
#endif
#endif
