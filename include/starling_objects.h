/* libstarling_objects publishes, gets and serves versions of named objects.
 *
 * A version is immutable, and has one part or several: a part is what one node publishes of it. Its
 * bytes are an image: a sequence of tensors, each at a multiple of 64 bytes, and zeros between
 * them. Its manifest has the tensors' names, types and shapes, and the digest of each block. The
 * newest version has the highest number. A node (struct sl_objects) has a thread and a transfer
 * engine (starling_transfer.h). One node hosts the catalogue: the table of names, versions and
 * holders. A holder is a node that serves all blocks of a part: that of enum sl_object_origin, and
 * each node that got the version and still has all of it. A source is a holder, or a node that has
 * some blocks, as during a get: it serves those that it has verified.
 *
 * Functions return 0 or a negative enum sl_err (starling.h): EXISTS stands for SL_ERR_EXISTS.
 * Outputs are written only on success. Options are not NULL, unless a function allows it; their
 * struct_size is the size of the struct, else INVALID; a member that is 0 has its default. Strings
 * and options are copied by the call. Functions that destroy, end, close or free set the pointer to
 * NULL, and do nothing if it is NULL. Any thread may call any function, but two threads must not
 * use one publication, one get, or one subscription with its views at the same time; except
 * sl_get_progress during sl_get_wait. All threads may read the bytes of an open view. timeout_ms is
 * 1 to SL_TRANSFER_TIMEOUT_MS_MAX (1 h), else INVALID: a call repeats its requests until the
 * catalogue answers, and returns DEADLINE when the time is over.
 *
 * Memory of the caller: extents of gets, and tensors of SL_ORIGIN_CALLER, are used after the call
 * by this node and by readers. Change or free them only after sl_object_withdraw of the version has
 * returned 0 or NOT_FOUND; also those of a get that failed, and of a version that was removed.
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
    uint32_t struct_size;
    /* It must outlive the node, and gives the node all notices whose names begin with "objects".
     * NULL: the node creates an engine with engine_options, which are ignored otherwise. */
    struct sl_transfer *engine;
    /* NULL: all zero, so no secret. If its `name` is NULL: a free port, on loopback if the
     * catalogue is on loopback, else at this host's address. */
    const struct sl_transfer_options *engine_options;
    /* Address ("host:port") of the node that hosts the catalogue. If it is this node's own, this
     * node hosts the catalogue until destroy. NULL: the first that there is of
     * - the variable STARLING_OBJECTS_CATALOGUE (not read if `agent` is given);
     * - if the engine's metadata is etcd: the node that etcd names, or this one if it names none;
     * - this node, with a catalogue that others find only by this node's address. */
    const char *catalogue;
    /* The agent of this host ("starling-objects serve --agent") in whose pool views are: its
     * --agent-name. NULL, and no `catalogue`: the variable STARLING_OBJECTS_AGENT, if it is set.
     *   agent  catalogue, engine or engine_options
     *   name   none      no node: a client of the agent, without thread and engine; it subscribes
     *                    and opens views, other calls fail with UNSUPPORTED
     *   name   some      a node; views are at the agent. To subscribe fails with DEADLINE if there
     *                    is none, with REFUSED if it has another catalogue
     *   NULL   any       a node; views are at the agent "default" if one with the same catalogue
     *                    answers within 1 s, else in the node's own pool
     *   "off"  any       a node; views and versions of HOST are in its own pool */
    const char *agent;
    /* Name of this machine: HOST uses the agent of the same name, and nodes of the same name fetch
     * a version once from other machines. NULL: the boot id of the kernel. */
    const char *host;
    const char *location; /* such as a rack: sources with the same text are preferred; NULL: none */
    /* Bytes of the pool: memory for versions of HOST, for views without an agent, for gets without
     * extents, and for what keepers and agents serve; allocated when first needed. A version that
     * this node published leaves it when it is withdrawn or removed; another one also loses blocks,
     * and this node is no holder then, while it is unused and others need the memory. Each manifest
     * and each image take whole blocks. 0: 1 GiB. */
    uint64_t pool_bytes;
    /* Limit of the bytes per second that all other nodes together read from this node; 0: none. The
     * readers keep to it, on every transport. */
    uint64_t rate_bytes;
};

/* Starts the node's thread, and its engine if none is given. Does not wait for the catalogue. The
 * caller owns *out. Errors: INVALID, NO_MEMORY, EXISTS (the engine has a node already), and those
 * of sl_transfer_create (REFUSED: without a secret only loopback is allowed). */
SL_API int sl_objects_create(const struct sl_objects_options *options, struct sl_objects **out);

/* Ends the node, and its catalogue (with etcd another node takes that over). First end its
 * publications, gets and subscriptions, and calls of other threads. Waits up to 10 s for readers of
 * each version, one after another. If the node created its engine, no memory is used any more. Else
 * memory may stay registered, as the log says: then change or free none of versions that were not
 * withdrawn before sl_transfer_destroy. */
SL_API void sl_objects_destroy(struct sl_objects **objects);

/* The node's "host:port", until destroy: the `catalogue` of other nodes if this node hosts it. */
SL_API const char *sl_objects_address(const struct sl_objects *objects);

/* Text of the calling thread's last failed call of this header: it names the object, the node, the
 * option or what was waited for. Void functions leave it as it is; other calls may clear it. */
SL_API const char *sl_objects_last_error(void);

/* Writes what the node counts of the bytes that it has read, and has not: the text format 0.0.4 of
 * Prometheus, with NUL; docs/metrics.md. Returns the length without NUL; if that is not below
 * `room`, nothing was written. Errors: NO_MEMORY. */
SL_API int sl_objects_metrics(const struct sl_objects *objects, char *text, size_t room);

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
    SL_OBJECT_F8_E5M2 = 14,
    SL_OBJECT_F8_E8M0 = 15, /* those of safetensors 0.6; the bits of F4 and F6 fill whole bytes */
    SL_OBJECT_F8_E4M3FNUZ = 16,
    SL_OBJECT_F8_E5M2FNUZ = 17,
    SL_OBJECT_C64 = 18, /* two f32 */
    SL_OBJECT_F4 = 19,
    SL_OBJECT_F6_E2M3 = 20,
    SL_OBJECT_F6_E3M2 = 21
};

struct sl_object_tensor {
    const char *name; /* 1 to 255 bytes */
    uint32_t type;    /* enum sl_object_type */
    uint32_t rank;    /* 0: a scalar */
    uint64_t shape[SL_OBJECTS_RANK_MAX];
    const void *data; /* host memory, row-major */
    uint64_t bytes;   /* product of the shape and the type's bits, in whole bytes; else INVALID */
};

struct sl_object_extent {
    void *base;
    uint64_t bytes;
};

enum sl_object_origin {
    /* Copied into the pool of this host's agent, which is its holder, also after the publisher has
     * ended; without an agent into the publisher's pool. For memory that changes later. A commit
     * removes all but the newest 3 versions of HOST and PS (--keep-versions of the catalogue). */
    SL_ORIGIN_HOST = 0,
    /* Stored by keepers, which are its holders, also after the publisher has ended: servers of a
     * job, or processes of `starling-objects serve --dir`. */
    SL_ORIGIN_PS = 1,
    SL_ORIGIN_CALLER = 2 /* the publisher is its holder, and serves the caller's memory */
};

struct sl_publish_options {
    uint32_t struct_size;
    const char *name;
    const char *note; /* shown by lists; NULL: "" */
    /* Below 2^63; it may be below the newest. 0: sl_publish_begin chooses a number above all before
     * (with one part only). */
    uint64_t version;
    enum sl_object_origin origin;
    /* Each part, from 0, has a publisher: all of them use the same name, version and part_count. A
     * get has the images of all parts, one after another. */
    uint32_t part;
    uint32_t part_count; /* 0: 1 */
    /* Replace another publisher of this part, or of any part if its part_count differs: what was
     * begun before, of every part, fails with CLOSED. A node is the publisher from its first
     * sl_publish_begin until it is replaced or destroyed; if it is killed, 10 s longer. */
    bool take_over;
    bool new_name; /* EXISTS if the name has a version */
    /* HOST: publishes, beside the version, its difference from the version before, if that is less
     * than 0.7 of the blocks that differ: nodes that have that one in their pool fetch the
     * difference instead. Both versions are in the publisher's own pool, whatever the agent. */
    bool delta;
};

struct sl_publication;

/* Begins a version. Errors: EXISTS (new_name; or take_over is false, and another node is publisher
 * of this part, or of any part with another part_count), DEADLINE, INVALID, NO_MEMORY, TOO_LARGE
 * (the limits of docs/objects.md). */
SL_API int sl_publish_begin(struct sl_objects *objects, const struct sl_publish_options *options,
                            uint32_t timeout_ms, struct sl_publication **out);

/* Begins a group: a name of 1 to 255 bytes for the tensors that follow, up to the next group
 * (sl_view_group). Errors: INVALID (also: after a commit; the group before has no tensor),
 * TOO_LARGE, NO_MEMORY. */
SL_API int sl_publish_group(struct sl_publication *publication, const char *name);

/* Appends a tensor to the image. Its data must not be changed or freed before
 * - a commit returns 0 (HOST, PS), or after it sl_object_withdraw returns 0 or NOT_FOUND (CALLER);
 * - if no commit returned 0: sl_publish_end returns.
 * Other nodes can also read bytes between tensors that are less than 64 bytes apart in memory (not
 * HOST without an agent). Errors: INVALID (also: after a commit), EXISTS (the part has a tensor of
 * this name), TOO_LARGE, NO_MEMORY. */
SL_API int sl_publish_tensor(struct sl_publication *publication,
                             const struct sl_object_tensor *tensor);

/* Appends the bytes of `count` extents, in order, as one tensor of u8 with the name "bytes", so
 * once a part. Memory and errors: as sl_publish_tensor. */
SL_API int sl_publish_bytes(struct sl_publication *publication,
                            const struct sl_object_extent *extents, uint32_t count);

/* Within timeout_ms:
 * 1. computes the digests, and copies or registers the data, on the calling thread;
 * 2. PS: waits until all keepers of the part have stored it; HOST with an agent: until it has it;
 * 3. commits, and waits until all parts are committed: the version is visible.
 * Returns 0 also if the version exists with the same bytes. After DEADLINE it may be visible, or
 * become so: call sl_publish_commit again, which continues with the same number and copy, or
 * sl_publish_end. Errors: EXISTS (the number has other bytes), CLOSED (another publisher took
 * over), DEADLINE, NO_MEMORY (also: the pool is full), TOO_LARGE (also CALLER, PS: more than
 * SL_TRANSFER_BUFFERS_MAX, 4096, separate ranges), INVALID, IO (a keeper's disk is full), and those
 * of sl_transfer_register. */
SL_API int sl_publish_commit(struct sl_publication *publication, uint32_t timeout_ms,
                             uint64_t *version);

/* Publishes rows of tables, "a,b", of a job: a run of the parameter server (starling.h) with
 * --objects. Each server takes a snapshot of its shards, and commits and serves a part, with two
 * tensors for each table and shard S: "TABLE/keys.S" (u64, ascending) and "TABLE/rows.S" (as
 * stored: f32, f16, bf16, or u8: an int8 row's scale, f32, and values; dense: a key is the number
 * of a block of 1024 elements); a server without shards has one without elements, ".part.N". A
 * shard's rows are of one moment; those of BSP tables of one iteration. It does not use origin,
 * part and part_count, and takes over the name. Waits until the version is visible. Errors:
 * NOT_FOUND (a table), UNSUPPORTED (a KV table; a keeper is no server), CLOSED (another publisher
 * took over), DEADLINE, AGAIN (at the deadline: a shard is at no server or at two, iterations end
 * too fast, or a checkpoint runs), INVALID, NO_MEMORY, TOO_LARGE (also: over 64 servers). */
SL_API int sl_publish_tables(struct sl_objects *objects, const struct sl_publish_options *options,
                             const char *tables, uint32_t timeout_ms, uint64_t *version);

/* Frees the publication. If a commit returned 0, the version's holders serve it. If not, this node
 * serves nothing of it, and uses its memory no more; if the log says that a keeper still reads it,
 * first call sl_object_withdraw. A version that became visible in spite of DEADLINE stays if a
 * keeper, an agent or a reader has it; else it is deleted, at most 10 s later. */
SL_API void sl_publish_end(struct sl_publication **publication);

/* Get */

struct sl_get;

/* Starts to get a version (0: the newest) into `count` extents, in order, which together have as
 * many bytes as the version: pass number and size of one sl_object_entry. Registers them on the
 * calling thread; bytes arrive later. The caller reads them after sl_get_wait returns 0. If this
 * call fails, the extents are not used; else, also if the get fails or is closed, until
 * sl_object_withdraw of the version returns 0 or NOT_FOUND. count 0: into the pool, where it stays
 * at least until sl_get_close; nothing is fetched if this node has it. timeout_ms: of the whole
 * get. Errors: NOT_FOUND, INVALID (extents overlap, or have another size), EXISTS (memory is
 * registered already; or this node has or gets the version, also in its pool, or has not withdrawn
 * it: copy it from a view), DEADLINE, TOO_LARGE, NO_MEMORY. */
SL_API int sl_get_start(struct sl_objects *objects, const char *name, uint64_t version,
                        const struct sl_object_extent *extents, uint32_t count, uint32_t timeout_ms,
                        struct sl_get **out);

/* Waits for the end of the get, at most until its deadline. 0: all bytes are verified. Errors:
 * DEADLINE (also: no source was left, and none came), CANCELLED (this node withdrew the version, or
 * published it; or it was removed), CORRUPT (the manifest), NO_MEMORY (with count 0 also: the pool
 * is in use). */
SL_API int sl_get_wait(struct sl_get *get);

struct sl_get_progress {
    uint64_t version;
    uint64_t bytes; /* of all parts */
    uint64_t verified_bytes;
    uint64_t corrupt_blocks;   /* failed verification; the node got them again elsewhere */
    uint64_t replaced_sources; /* sources that ended, refused, or were too slow */
    bool done;                 /* sl_get_wait returns at once */
};

/* Reports the bytes that have arrived so far; does not wait. */
SL_API int sl_get_progress(struct sl_get *get, struct sl_get_progress *out);

/* Sets *out to the next tensor of a get that succeeded, in the order of the images, and
 * *image_offset to its offset in the extents taken together. *cursor: 0 at first. out->name is
 * valid until sl_get_close; out->data, the caller's memory, is NULL if the tensor is split over
 * extents (count 0: over blocks). Errors: NOT_FOUND (no more), AGAIN (the get is still running),
 * that of sl_get_wait (it failed). */
SL_API int sl_get_next_tensor(struct sl_get *get, uint64_t *cursor, struct sl_object_tensor *out,
                              uint64_t *image_offset);

/* Frees the get. If it succeeded, the node continues to serve the version. If it failed, or is
 * running and so cancelled here, withdraws it, within 10 s. For the extents see sl_get_start. */
SL_API void sl_get_close(struct sl_get **get);

/* Versions */

/* Stops serving this node's copy, and cancels a get of it. After 0 or NOT_FOUND no node uses memory
 * of the caller for this version, but for a publication that has not ended. The catalogue deletes a
 * version when no node has blocks of it. Errors: NOT_FOUND (this node has no copy, as a publisher
 * of PS, or of HOST with an agent: use sl_object_remove), DEADLINE (a node still reads the memory:
 * call again), INVALID (also version 0). */
SL_API int sl_object_withdraw(struct sl_objects *objects, const char *name, uint64_t version,
                              uint32_t timeout_ms);

/* Removes a version, or with version 0 ALL versions of the name: holders stop serving, and gets are
 * cancelled. Memory of callers stays in use until sl_object_withdraw. Errors: NOT_FOUND, DEADLINE,
 * INVALID. */
SL_API int sl_object_remove(struct sl_objects *objects, const char *name, uint64_t version,
                            uint32_t timeout_ms);

/* Waits until each part of the version (0: the newest) has so many holders. Errors: NOT_FOUND,
 * DEADLINE, INVALID. */
SL_API int sl_object_wait_held(struct sl_objects *objects, const char *name, uint64_t version,
                               uint32_t holders, uint32_t timeout_ms);

struct sl_object_entry {
    char name[SL_OBJECTS_NAME_BYTES];
    uint64_t version;
    uint64_t bytes;   /* of the images of all parts */
    uint64_t time_ms; /* of the commit, at the catalogue: Unix time in milliseconds */
    uint32_t holders; /* of the part that has the fewest */
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
 * DEADLINE (also: no agent), TOO_LARGE, REFUSED (the agent has another user or catalogue). */
SL_API int sl_subscription_open(struct sl_objects *objects, const char *name,
                                const struct sl_subscribe_options *options, uint32_t timeout_ms,
                                struct sl_subscription **out);

/* The newest version: with `follow` the newest that is complete on this host, else the newest that
 * the catalogue announced. 0: none yet. Only reads memory: after the agent ended, it returns the
 * same number until another call of this subscription has found the next agent. Decreases only if
 * newer versions were removed (sl_object_remove); with `follow` it is 0 for a moment then. */
SL_API uint64_t sl_subscription_newest(const struct sl_subscription *subscription);

/* Waits until sl_subscription_newest is above `above`, and sets *version to it: it may skip some.
 * Errors: DEADLINE (the text says whether the catalogue answers), INVALID. */
SL_API int sl_subscription_wait(struct sl_subscription *subscription, uint64_t above,
                                uint32_t timeout_ms, uint64_t *version);

/* What this host has of the newest announced version, and what the rest costs: for estimates of the
 * time of a load. Only reads memory. */
struct sl_residency {
    uint64_t version; /* sl_subscription_newest */
    uint64_t bytes;   /* verified, in the pool: of its images, from the beginning */
    /* A READ of x MiB takes about read_us + x mib_us, by this host's last 64. 0: none yet. */
    double read_us, mib_us;
};

SL_API void sl_subscription_residency(const struct sl_subscription *subscription,
                                      struct sl_residency *out);

SL_API void sl_subscription_close(struct sl_subscription **subscription); /* after its views */

#define SL_STALENESS_BUCKETS 44 /* [0]: 0; [i]: 2^(i - 1) to 2^i - 1; [43]: also all above */

/* How old the version in use is: the version of the view that was opened last. `behind` is the
 * number of the newest announced version minus that of the version in use. `behind_us` is the time
 * since the first newer version was committed. The catalogue sends the age of each commit, by its
 * own clock; this host adds the time since then, by its own: clocks need not agree. If more than 32
 * versions appear between two views, the times of older ones are estimated. */
struct sl_staleness {
    uint64_t version, newest;   /* 0: none */
    uint64_t behind, behind_us; /* now */
    /* Since the first view, weighted by time. */
    uint64_t measured_us;
    double behind_mean, behind_us_mean;
    uint64_t behind_histogram[SL_STALENESS_BUCKETS];    /* us in which `behind` had this value */
    uint64_t behind_us_histogram[SL_STALENESS_BUCKETS]; /* us in which behind_us had this value */
    uint64_t opened_count;
    uint64_t skipped_count; /* numbers between versions that were opened */
    uint64_t visible_us_histogram[SL_STALENESS_BUCKETS]; /* versions: us from commit to open view */
};

/* Of views of this subscription; does not wait. */
SL_API void sl_subscription_staleness(const struct sl_subscription *subscription,
                                      struct sl_staleness *out);

/* Views */

struct sl_view;

struct sl_view_options {
    uint32_t struct_size;
    uint64_t version; /* 0: the newest, for whose first appearance the call waits */
    /* With version 0: the newest version that is complete on this host is opened without a fetch,
     * if at most so many announced versions are newer. */
    uint64_t behind_max;
    /* Open before the blocks are there: sl_view_wait waits for them, in the order of the images. */
    bool stream;
    uint32_t stop_count; /* at most 64 */
    /* Offsets over the images of all parts, ascending. Blocks are fetched in order, many with one
     * read; no read goes on behind a stop, so the bytes before it can be used earlier. */
    const uint64_t *stops;
};

/* Maps a version read-only: fetches what the pool does not have, and keeps all of it there until
 * close. Verified bytes never change, also after the version was removed or the agent has ended.
 * But of a version in the caller's memory at this node the view shows that memory: close it before
 * sl_object_withdraw. options: NULL: all zero. The caller owns *out. Errors: NOT_FOUND (a given
 * version; the text names the oldest and the newest), CANCELLED (a given version was removed),
 * DEADLINE, TOO_LARGE (the pool), NO_MEMORY (also: other views fill the pool), AGAIN (this process
 * is getting or publishing it in its own memory: call again when that has ended), INVALID. */
SL_API int sl_view_open(struct sl_subscription *subscription, const struct sl_view_options *options,
                        uint32_t timeout_ms, struct sl_view **out);

/* Unmaps: pointers into the view end here. */
SL_API void sl_view_close(struct sl_view **view);

SL_API uint64_t sl_view_version(const struct sl_view *view);

/* The note of the version. Valid until close. */
SL_API const char *sl_view_note(const struct sl_view *view);

/* Waits until the first image_bytes bytes of the images of all parts are verified; if it is above
 * the version's size, all bytes. Without `stream` returns 0 at once. Errors: DEADLINE, INVALID,
 * and, if the rest will never come, CANCELLED (removed) or CLOSED (the agent has ended). */
SL_API int sl_view_wait(struct sl_view *view, uint64_t image_bytes, uint32_t timeout_ms);

/* Sets *out to the tensor with the name, or to the next one as sl_get_next_tensor does; out->data
 * is valid until sl_view_close. *image_offset (NULL: not wanted): its offset in the images taken
 * together. With `stream` its bytes may be read once sl_view_wait has returned 0 for image_offset +
 * bytes. Errors: NOT_FOUND, EXISTS (several parts have a tensor with the name). */
SL_API int sl_view_tensor(const struct sl_view *view, const char *name,
                          struct sl_object_tensor *out, uint64_t *image_offset);
SL_API int sl_view_next_tensor(const struct sl_view *view, uint64_t *cursor,
                               struct sl_object_tensor *out, uint64_t *image_offset);

/* Where a group's tensors begin and end in the images. Errors: NOT_FOUND, EXISTS (several). */
SL_API int sl_view_group(const struct sl_view *view, const char *name, uint64_t *image_offset,
                         uint64_t *bytes);

/* Looks up rows of a table in a version of sl_publish_tables: copies the row of keys[i] to
 * rows[i][dim], as f32, and sets found[i] to 1; if there is none, sets found[i] to 0, and rows[i]
 * stays as it is. With `stream` first wait for all bytes. Errors: NOT_FOUND (the table), INVALID
 * (dim is not that of the table), CORRUPT (the table's tensors), NO_MEMORY. */
SL_API int sl_view_rows(struct sl_view *view, const char *table, const uint64_t *keys,
                        uint64_t count, uint32_t dim, float *rows, uint8_t *found);

#ifdef __cplusplus
}
#endif
#endif
