/* The directory of all checkpoints of a job: DIRECTORY/checkpoint-000012/ holds a shard's file each
 * and manifest.json. Several ps may share it, or each have one of its own, which then holds the
 * files of its own shards and the manifest of all.
 *
 * A checkpoint is complete when it has a manifest that is as it was written, the files of the
 * scope have the sizes that it says, and the same is true of the checkpoint that it adds to. That
 * the bytes in the files are right is found when they are read: verify, or reader.h.
 *
 * Names come from the numbers of shards and checkpoints only, never out of a file: nothing outside
 * the directory is opened, written or removed, whatever a manifest says. Blocking: any thread, one
 * at a time in a process; in a ps an aside, or the main thread before start. */
#ifndef SL_PS_CHECKPOINT_DIRECTORY_H
#define SL_PS_CHECKPOINT_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ps/checkpoint/disk.h"
#include "ps/checkpoint/manifest.h"

#define SL_CHECKPOINT_CHAIN_MAX 1000 /* checkpoints that one may stand on */

/* Whose files must be there: of shards [first, first + count); count 0: all of the checkpoint. */
struct sl_checkpoint_shard_range {
    uint32_t first, count;
};

/* What is wrong with which path; called for each finding. */
struct sl_checkpoint_report {
    void (*find)(void *ctx, const char *path, const char *why);
    void *ctx;
};

enum sl_checkpoint_state {
    SL_CHECKPOINT_INCOMPLETE, /* no manifest: being written, or left so by a crash */
    SL_CHECKPOINT_PUBLISHED,  /* it has a manifest, as it was written */
    SL_CHECKPOINT_DAMAGED     /* its manifest cannot be read, or is not as it was written */
};

struct sl_checkpoint_found {
    uint64_t number, base; /* base: of a published one */
    enum sl_checkpoint_state state;
};

struct sl_checkpoint_list {
    struct sl_checkpoint_found *items; /* by ascending number; list_fini */
    uint32_t count;
};

/* All checkpoints. Errors: NOT_FOUND (no such directory), TOO_LARGE, NO_MEMORY, IO; with a reason.
 */
int sl_checkpoint_directory_list(const struct sl_disk *disk, const char *directory,
                                 struct sl_checkpoint_list *out, char *reason, size_t reason_bytes);
void sl_checkpoint_list_fini(struct sl_checkpoint_list *list);

/* A folder without a manifest whose number is farther above the newest manifest than this is a
 * stray: no job has counted up to there. */
#define SL_CHECKPOINT_STRAY_GAP 1000000000ULL

/* Takes strays out of the list, so that numbers go on below them. Returns how many; *first: the
 * least of them, where there is one. Pure. */
uint32_t sl_checkpoint_list_drop_strays(struct sl_checkpoint_list *list, uint64_t *first);

/* The manifest of a checkpoint, which is of that number. Errors: NOT_FOUND (there is none),
 * CORRUPT, VERSION, NO_MEMORY, IO; with a reason. */
int sl_checkpoint_directory_manifest(const struct sl_disk *disk, const char *directory,
                                     uint64_t number, struct sl_checkpoint_manifest *out,
                                     char *reason, size_t reason_bytes);

/* What is read to have checkpoint `number`: a full one and, in order, those that add to it. */
struct sl_checkpoint_chain {
    struct sl_checkpoint_manifest *items; /* [count]: items[0] is full; chain_fini */
    uint32_t count;
};

/* Reads all manifests, checks that they are each other's bases, and that the files of the scope
 * have the right sizes. The scope is of the checkpoints' own shards; one with fewer shards than
 * that is CORRUPT. All findings are reported (report may be NULL), and the first is the reason.
 * Errors: NOT_FOUND (`number` has no manifest), CORRUPT (it is not complete), VERSION, NO_MEMORY,
 * IO; *out needs chain_fini on success only. */
int sl_checkpoint_directory_chain(const struct sl_disk *disk, const char *directory,
                                  uint64_t number, struct sl_checkpoint_shard_range range,
                                  const struct sl_checkpoint_report *report,
                                  struct sl_checkpoint_chain *out, char *reason,
                                  size_t reason_bytes);
void sl_checkpoint_chain_fini(struct sl_checkpoint_chain *chain);

/* The greatest number below `below` (0: of all) that is complete. Those without a manifest do not
 * count. One that has a manifest, but is damaged or lacks files, is an error CORRUPT, unless
 * fall_back: then it is reported, and passed over. Errors: NOT_FOUND (no complete checkpoint
 * there), CORRUPT, VERSION, NO_MEMORY, IO; with a reason. */
struct sl_checkpoint_newest_options {
    struct sl_checkpoint_shard_range range;
    uint64_t below;
    bool fall_back;
    const struct sl_checkpoint_report *report; /* NULL: nobody */
};
int sl_checkpoint_directory_newest(const struct sl_disk *disk, const char *directory,
                                   const struct sl_checkpoint_newest_options *options,
                                   uint64_t *number, char *reason, size_t reason_bytes);

/* As chain, and reads every byte of the files of the scope. Every damaged, truncated or missing
 * file is reported with what is wrong with it. Errors: as of chain. */
int sl_checkpoint_directory_verify(const struct sl_disk *disk, const char *directory,
                                   uint64_t number, struct sl_checkpoint_shard_range range,
                                   const struct sl_checkpoint_report *report, char *reason,
                                   size_t reason_bytes);

/* Writes the manifest: from then on, and through any crash after this has returned, the checkpoint
 * exists. manifest->base_id and id are set here. Several ps may do so at once, each with another
 * `writer`, such as its task index; whose manifest remains does not matter. The files of the scope
 * must be there. Errors: NOT_FOUND (a file, or the base's manifest), CORRUPT (another size, the
 * base's manifest), NO_MEMORY, IO; with a reason. */
int sl_checkpoint_directory_publish(const struct sl_disk *disk, const char *directory,
                                    struct sl_checkpoint_manifest *manifest,
                                    struct sl_checkpoint_shard_range range, uint32_t writer,
                                    char *reason, size_t reason_bytes);

/* Removes complete checkpoints but the newest `keep` and those that they add to; and what is
 * without a manifest and older than the newest complete one. Those with a manifest that are damaged
 * stay, for people to look at; so do files that are none of ours, and their folder. With `newest`,
 * none above that counts as kept, and those between `above` and `below` go too, if `newest` is
 * complete here. *removed: checkpoints removed. Errors: NO_MEMORY, IO (some may be removed); with a
 * reason. */
struct sl_checkpoint_prune_options {
    struct sl_checkpoint_shard_range range;
    uint32_t keep;   /* at least 1 */
    uint64_t newest; /* 0: the newest that is found */
    uint64_t above;  /* with newest, not less than that: what lies between this and `below`, */
    uint64_t below;  /* which is greater, was given up by the cluster */
};
int sl_checkpoint_directory_prune(const struct sl_disk *disk, const char *directory,
                                  const struct sl_checkpoint_prune_options *options,
                                  uint32_t *removed, char *reason, size_t reason_bytes);

/* Removes the files of those below `below` that have no manifest: they were given up. The folders
 * of the newest `folders` of them stay: by these it is known that they were never complete, whoever
 * else has their manifests. What is set aside (see abandon) stays too, and so do files that are
 * none of ours. Several ps may do so at once. Errors: NOT_FOUND (no such directory), TOO_LARGE,
 * NO_MEMORY, IO (some may be done); with a reason. */
int sl_checkpoint_directory_remove_incomplete(const struct sl_disk *disk, const char *directory,
                                              uint64_t below, uint32_t folders, char *reason,
                                              size_t reason_bytes);

/* The name that the manifest of a checkpoint has which a job did not go on from. */
#define SL_CHECKPOINT_ABANDONED_NAME "manifest.json.abandoned"

/* Checkpoints above `above` and up to `to` are none any more: their manifests get another name, by
 * which people can have them back until they are pruned. Those whose manifests are damaged stay as
 * they are. Several ps may do so at once. *count: how many. Errors: NOT_FOUND (no such directory),
 * NO_MEMORY, IO (some may be done); with a reason. */
int sl_checkpoint_directory_abandon(const struct sl_disk *disk, const char *directory,
                                    uint64_t above, uint64_t to, uint32_t *count, char *reason,
                                    size_t reason_bytes);

/* The path of a checkpoint's folder, or of a file in it (name may be NULL), in
 * path[SL_DISK_PATH_BYTES]. Errors: TOO_LARGE, with a reason. */
int sl_checkpoint_directory_path(const char *directory, uint64_t number, const char *name,
                                 char *path, char *reason, size_t reason_bytes);

#endif
