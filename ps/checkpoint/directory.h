/* Checkpoint directory manages all checkpoints of a job: DIRECTORY/checkpoint-000012/ holds one
 * file per shard and manifest.json. Servers may share a directory. A server with its own holds the
 * files of its shards, and the manifest of all.
 *
 * A checkpoint is published if its directory has an undamaged manifest, and intact if also the
 * files of the range have the sizes in it and its base is intact. It is complete if all servers
 * have published it, which only the coordinator knows. File contents are checked only when they are
 * read: verify, or reader.h. Names are derived from shard and checkpoint numbers, never read from a
 * file: no manifest can make this code touch anything outside the directory. Blocks. Any thread,
 * one at a time per process; in a server an offload thread, or the main thread before start. */
#ifndef SL_PS_CHECKPOINT_DIRECTORY_H
#define SL_PS_CHECKPOINT_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/reason.h"
#include "ps/checkpoint/manifest.h"
#include "reactor/disk.h"

#define SL_CHECKPOINT_CHAIN_MAX 1000 /* longest chain of bases */

/* The shards whose files must exist: [first, first + count); count 0: all of the checkpoint. */
struct sl_checkpoint_shard_range {
    uint32_t first, count;
};

/* Called for each damaged or missing path. */
struct sl_checkpoint_report {
    void (*find)(void *ctx, const char *path, const char *why);
    void *ctx;
};

enum sl_checkpoint_state {
    SL_CHECKPOINT_INCOMPLETE, /* no manifest: being written, or left by a crash or an abort */
    SL_CHECKPOINT_PUBLISHED,  /* has an undamaged manifest */
    SL_CHECKPOINT_INTACT,     /* is published, and sl_checkpoint_select found it intact */
    SL_CHECKPOINT_DAMAGED     /* its manifest cannot be read, or its checksum is wrong */
};

struct sl_checkpoint_found {
    uint64_t number, base; /* base: of a published one */
    enum sl_checkpoint_state state;
};

struct sl_checkpoint_list {
    struct sl_checkpoint_found *items; /* by ascending number; sl_checkpoint_list_fini */
    uint32_t count;
};

/* Lists all checkpoints. Errors, with a reason: NOT_FOUND (no such directory), TOO_LARGE,
 * NO_MEMORY, IO. */
int sl_checkpoint_directory_list(const struct sl_disk *disk, const char *directory,
                                 struct sl_checkpoint_list *out, struct sl_reason *reason);
void sl_checkpoint_list_fini(struct sl_checkpoint_list *list);

/* A directory without an undamaged manifest whose number exceeds the newest manifest's by more than
 * this is a stray: no job can have counted that far. */
#define SL_CHECKPOINT_STRAY_GAP 1000000000ULL

/* Removes strays from the list, so that numbering continues below them. Returns their number;
 * *first: the least of them, if any. Pure. */
uint32_t sl_checkpoint_list_drop_strays(struct sl_checkpoint_list *list, uint64_t *first);

/* Reads the manifest of checkpoint `number`. Errors, with a reason: NOT_FOUND, CORRUPT (also: it
 * has another number), VERSION, NO_MEMORY, IO. */
int sl_checkpoint_directory_manifest(const struct sl_disk *disk, const char *directory,
                                     uint64_t number, struct sl_checkpoint_manifest *out,
                                     struct sl_reason *reason);

/* The manifests needed to restore a checkpoint: a full one, then its incrementals in order. */
struct sl_checkpoint_chain {
    struct sl_checkpoint_manifest *items; /* [count]: items[0] is full; sl_checkpoint_chain_fini */
    uint32_t count;
};

/* Reads all manifests of a chain, and checks the links to their bases and the file sizes of the
 * range. A checkpoint with fewer shards than the range is CORRUPT. Every finding is reported
 * (report may be NULL); the first is the reason. Errors: NOT_FOUND (`number` has no manifest),
 * CORRUPT (not intact), VERSION, NO_MEMORY, IO. On success *out needs chain_fini;
 * out may be NULL. */
int sl_checkpoint_directory_chain(const struct sl_disk *disk, const char *directory,
                                  uint64_t number, struct sl_checkpoint_shard_range range,
                                  const struct sl_checkpoint_report *report,
                                  struct sl_checkpoint_chain *out, struct sl_reason *reason);
void sl_checkpoint_chain_fini(struct sl_checkpoint_chain *chain);

/* Like chain, but reads every byte of the files in the range. Reports every damaged, truncated or
 * missing file. Errors: as for chain. */
int sl_checkpoint_directory_verify(const struct sl_disk *disk, const char *directory,
                                   uint64_t number, struct sl_checkpoint_shard_range range,
                                   const struct sl_checkpoint_report *report,
                                   struct sl_reason *reason);

/* Writes the manifest, which makes the checkpoint exist; it survives any crash after this returned.
 * Sets manifest->base_id and id. Several servers may publish at once, each with its own `writer`,
 * e.g. the task index; it does not matter whose manifest remains. The files of the range must
 * exist. Errors, with a reason: NOT_FOUND (a file, or the base's manifest), CORRUPT (a size, or the
 * base's manifest), NO_MEMORY, IO. */
int sl_checkpoint_directory_publish(const struct sl_disk *disk, const char *directory,
                                    struct sl_checkpoint_manifest *manifest,
                                    struct sl_checkpoint_shard_range range, uint32_t writer,
                                    struct sl_reason *reason);

struct sl_checkpoint_prune_options {
    struct sl_checkpoint_shard_range range;
    uint32_t keep;   /* at least 1; those above `newest` do not count */
    uint64_t newest; /* newest complete one of the job; 0: the newest intact one here */
    /* With `newest`: checkpoints between these two numbers were aborted or abandoned. They are
     * removed if `newest` is intact here. */
    uint64_t above; /* at least newest */
    uint64_t below;
};

/* Removes intact checkpoints except the newest `keep` and their bases, and those without a manifest
 * that are older than the newest intact one. Kept ones do not count. Damaged ones stay for
 * inspection; so do foreign files and their directory. *removed: number of intact checkpoints that
 * were. Errors, with a reason: NO_MEMORY, IO (some may be removed). */
int sl_checkpoint_directory_prune(const struct sl_disk *disk, const char *directory,
                                  const struct sl_checkpoint_prune_options *options,
                                  uint32_t *removed, struct sl_reason *reason);

/* Removes the files of aborted checkpoints: those below `below` without a manifest. The directories
 * of the newest `subdirs` of them stay as markers: they never completed, even if another server has
 * their manifest. Abandoned and kept checkpoints and foreign files stay. Several servers may run
 * this at once. Errors, with a reason: NOT_FOUND (no such directory), TOO_LARGE, NO_MEMORY, IO
 * (partly done). */
int sl_checkpoint_directory_remove_incomplete(const struct sl_disk *disk, const char *directory,
                                              uint64_t below, uint32_t subdirs,
                                              struct sl_reason *reason);

/* Retention neither counts nor removes a checkpoint with a file of this name in its directory. */
#define SL_CHECKPOINT_KEPT_NAME "kept"

/* Marks the checkpoints up to `to`, also damaged and abandoned ones, as kept: they are of earlier
 * jobs. Several servers may run this at once. Errors, with a reason: TOO_LARGE, NO_MEMORY, IO
 * (partly done). */
int sl_checkpoint_directory_keep(const struct sl_disk *disk, const char *directory, uint64_t to,
                                 struct sl_reason *reason);

/* Name of the manifest of an abandoned checkpoint. */
#define SL_CHECKPOINT_ABANDONED_NAME "manifest.json.abandoned"

/* Abandons the checkpoints above `above` and up to `to`: renames their manifests, which an operator
 * can undo until they are pruned. Those with damaged manifests stay unchanged. Several servers may
 * run this at once. *count: number of checkpoints. Errors, with a reason: NOT_FOUND (no such
 * directory), NO_MEMORY, IO (partly done). */
int sl_checkpoint_directory_abandon(const struct sl_disk *disk, const char *directory,
                                    uint64_t above, uint64_t to, uint32_t *count,
                                    struct sl_reason *reason);

/* Writes the path of a checkpoint's directory, or of a file in it (name may be NULL), into
 * path[SL_DISK_PATH_BYTES]. Errors: TOO_LARGE, with a reason. */
int sl_checkpoint_directory_path(const char *directory, uint64_t number, const char *name,
                                 char *path, struct sl_reason *reason);

#endif
