/* A download reads a part from one peer, its source: what the source has (WANT, HAVE), the READs
 * that are in flight, and the digests of what they brought. It decides neither which blocks are
 * read nor what happens to them. Owner: the node's reactor; digests of READs of more than one block
 * are computed on the node's offload thread. */
#ifndef SL_OBJECTS_NODE_DOWNLOAD_H
#define SL_OBJECTS_NODE_DOWNLOAD_H

#include "objects/node/copy.h"
#include "objects/node/link.h"

#define SL_OBJECTS_READ_BLOCKS 16 /* of one batch */

struct sl_objects_download;

/* A stretch of the stored part that the source has: its manifest, or one block of the image. */
struct sl_objects_stretch {
    uint64_t offset, bytes; /* of the stored part */
    uint32_t range;         /* in which it begins */
    uint32_t block;         /* of the image; SL_OBJECTS_MANIFEST_STRETCH */
    bool is_wrong;          /* a block that has arrived, and does not match its digest */
};
#define SL_OBJECTS_MANIFEST_STRETCH UINT32_MAX

struct sl_objects_download_events {
    /* The source has more, or more may be in flight. */
    void (*grown)(struct sl_objects_download *download);
    /* The source has sent its manifest, of info.manifest_bytes. */
    void (*described)(struct sl_objects_download *download, const void *manifest);
    /* A READ is over: the stretches have arrived, and their blocks were compared with their
     * digests, or not (err). */
    void (*arrived)(struct sl_objects_download *download,
                    const struct sl_objects_stretch *stretches, uint32_t count, int err,
                    const char *reason);
    /* It cannot be reached, or refuses. Once; READs may still be in flight. */
    void (*failed)(struct sl_objects_download *download, int err, const char *reason);
    /* It is closed and freed: no READ of it is in flight any more. */
    void (*closed)(void *ctx);
};

/* The rate of READs that the source allows. Pure. */
struct sl_objects_pace {
    uint64_t rate;   /* bytes per second; 0: no limit */
    uint64_t due_ns; /* no READ begins before */
};

void sl_objects_pace_set(struct sl_objects_pace *pace, uint64_t rate, uint64_t now_ns);

/* A READ of `bytes` begins. READs make up for pauses of up to 20 ms. */
void sl_objects_pace_take(struct sl_objects_pace *pace, uint64_t bytes, uint64_t now_ns);

struct sl_objects_download {
    struct sl_list_link link; /* the owner's */
    void *ctx;                /* the owner's */
    struct sl_objects *node;
    struct sl_objects_copy *copy; /* that is filled */
    const struct sl_objects_download_events *events;
    uint64_t id;
    char address[SL_OBJECTS_ADDRESS_BYTES];
    uint64_t deadline_ns;

    struct sl_objects_peer_use peer;
    struct sl_transfer_segment *segment; /* NULL: not open */
    struct sl_objects_request want;
    struct sl_timer want_again;
    uint64_t wanted_ns;
    bool is_closing;

    struct {
        struct sl_objects_range *ranges; /* in the order of arrival */
        uint32_t count, capacity;
        uint32_t wanted_at; /* the count when WANT was sent; 0 once it is answered */
        uint32_t next;      /* with next_offset: where the search for the next block begins */
        uint64_t next_offset;
    } offered;

    struct sl_list reads;
    uint32_t flying_count;    /* blocks of them that have not arrived */
    uint32_t digesting_count; /* blocks that the offload thread has */
    uint32_t blocks_max;      /* of one READ */
    uint64_t arrived_ns;      /* when it last brought something */
    uint64_t block_ns;        /* time between two blocks, smoothed; 0: none yet */
    uint64_t over_ns;         /* when the last READ was over, by a clock that moves in a turn */
    struct sl_objects_pace pace;
    struct sl_timer paced; /* until the next READ may begin */
};

/* Opens the peer's segment and sends WANT; with the id of this node, reads its file (store.h).
 * Errors: NO_MEMORY. */
int sl_objects_download_create(struct sl_objects *node, struct sl_objects_copy *copy, uint64_t id,
                               const char *address, uint64_t deadline_ns,
                               const struct sl_objects_download_events *events, void *ctx,
                               struct sl_objects_download **out);

/* Cancels READs; when they are over, and no digest is computed, sends DONE; then `closed` runs, in
 * a later turn. Until then `arrived` may run. */
void sl_objects_download_close(struct sl_objects_download *download);

/* A HAVE of this peer. */
void sl_objects_download_have(struct sl_objects_download *download,
                              const struct sl_objects_message *have);

/* Finds the manifest; the next block of the image, by the order of ranges, that the source has
 * completely. False: it has not (yet). rewind: blocks are found again from the first one on. */
bool sl_objects_download_manifest(const struct sl_objects_download *download,
                                  struct sl_objects_stretch *out);
bool sl_objects_download_next(struct sl_objects_download *download, struct sl_objects_stretch *out);
void sl_objects_download_rewind(struct sl_objects_download *download);

/* Blocks that may be in flight, at most 16 MiB: what the source sends in 20 ms; 0: the pace of the
 * source allows none now, and `grown` runs when it does; or as many wait for their digests. */
uint32_t sl_objects_download_window(struct sl_objects_download *download);

/* Blocks of the next READ, with this window. Those of a stream are what a transfer moves at one
 * time (slice_bytes): READs that are in progress take turns, and longer ones would end together. */
uint32_t sl_objects_download_read_max(const struct sl_objects_download *download, uint32_t window);

/* Reads the stretches, up to blocks_max, into the memory of the copy. Errors: NO_MEMORY; TOO_LARGE:
 * they lie in too many places, and blocks_max is 1 from now on. Nothing was read. */
int sl_objects_download_read(struct sl_objects_download *download,
                             const struct sl_objects_stretch *stretches, uint32_t count);

/* When the source counts as too slow, if it owes blocks: it has brought nothing for max(50 ms, 4
 * times what the blocks in flight take). Without blocks in flight it may wait for its own source,
 * as all nodes below that one do: if they were all to leave it at once, for the same holder, that
 * would be the source of all from then on. So it has 500 ms. */
uint64_t sl_objects_download_slow_ns(const struct sl_objects_download *download);

#endif
