/* Checkpoint writer writes a shard's file, e.g. DIRECTORY/checkpoint-000012/shard-0000-of-0002.slc.
 * The file has a temporary name until `finish` syncs and renames it; then it survives a crash. It
 * belongs to a checkpoint once there is a manifest (directory.h). Blocks. Any thread, one at a
 * time; in a server the offload thread of the shard's reactor. Allocates in create: a buffer of
 * one block, and zstd's memory (a few MiB at usual levels). */
#ifndef SL_PS_CHECKPOINT_WRITER_H
#define SL_PS_CHECKPOINT_WRITER_H

#include <stdint.h>

#include "core/reason.h"
#include "ps/checkpoint/manifest.h"
#include "ps/snapshot/block.h"
#include "reactor/disk.h"

struct sl_checkpoint_writer;

#define SL_CHECKPOINT_LEVEL_MAX 19 /* of zstd; 0: no compression */

struct sl_checkpoint_writer_options {
    const struct sl_disk *disk; /* outlives the writer */
    const char *directory;      /* of all checkpoints; must exist */
    uint64_t number, base;      /* as in the manifest; base 0: full */
    int64_t time_s;
    uint32_t shard, shard_count;
    uint32_t compression_level; /* 0 to SL_CHECKPOINT_LEVEL_MAX */
};

/* Creates the checkpoint's directory if needed, and starts the file. Replaces an earlier attempt.
 * Errors, with a reason: EXISTS (the checkpoint has a manifest and is not changed), NOT_FOUND (the
 * directory), NO_MEMORY, TOO_LARGE (the path, the number), IO. */
int sl_checkpoint_writer_create(const struct sl_checkpoint_writer_options *options,
                                struct sl_checkpoint_writer **out, struct sl_reason *reason);

/* Appends a block of kind 1 to 15; its payload may be reused afterwards, and is opaque here. After
 * an error only sl_checkpoint_writer_discard may be called. Errors, with a reason: TOO_LARGE (more
 * than SL_FORMAT_RAW_BYTES_MAX), NO_MEMORY, IO. */
int sl_checkpoint_writer_write(struct sl_checkpoint_writer *writer,
                               const struct sl_snapshot_block *block, struct sl_reason *reason);

/* Completes the file durably. Frees the writer, also on an error; then the name has its old content
 * or this complete file, never a part. Nulls *writer. Errors: IO, with a reason. */
int sl_checkpoint_writer_finish(struct sl_checkpoint_writer **writer,
                                struct sl_checkpoint_entry *out, struct sl_reason *reason);

/* Removes the unfinished file, if the disk allows. Nulls *writer; NULL is allowed. */
void sl_checkpoint_writer_discard(struct sl_checkpoint_writer **writer);

#endif
