/* Writes a shard's file of a checkpoint: DIRECTORY/checkpoint-000012/shard-0000-of-0002.slc. The
 * file is written under a temporary name, synced, and renamed by `finish`, which returns when all
 * of it would survive a crash; without a manifest (folder.h) it is not a checkpoint yet.
 *
 * Blocking: any thread, one at a time; in a ps the aside of the reactor that owns the shard.
 * Memory: two blocks and zstd's (a few MiB at usual levels). */
#ifndef SL_PS_CHECKPOINT_WRITER_H
#define SL_PS_CHECKPOINT_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "ps/checkpoint/disk.h"
#include "ps/checkpoint/manifest.h"
#include "ps/snapshot/block.h"

struct sl_checkpoint_writer;

#define SL_CHECKPOINT_LEVEL_MAX 19 /* of zstd; 0: blocks are not packed */

struct sl_checkpoint_writer_options {
    const struct sl_disk *disk; /* outlives the writer */
    const char *directory;      /* of all checkpoints; it is there */
    uint64_t number, base;      /* as in the manifest; base 0: full */
    int64_t time_s;
    uint32_t shard, shard_count;
    uint32_t compression_level; /* up to SL_CHECKPOINT_LEVEL_MAX */
};

/* Makes the checkpoint's folder unless it is there, and begins the file. What an earlier attempt
 * left of it is replaced. Errors: EXISTS (the checkpoint has a manifest: it is complete and stays
 * as it is), NOT_FOUND (the directory), NO_MEMORY, TOO_LARGE (the path, the
 * number), IO; with a reason. */
int sl_checkpoint_writer_create(const struct sl_checkpoint_writer_options *options,
                                struct sl_checkpoint_writer **out, char *reason,
                                size_t reason_bytes);

/* Appends the block, whose payload may be reused at once: kind 1 to 15, at most
 * SL_FORMAT_RAW_BYTES_MAX (TOO_LARGE). The payload is opaque here. After an error nothing but
 * abandon is allowed. Errors: TOO_LARGE, NO_MEMORY, IO; with a reason. */
int sl_checkpoint_writer_write(struct sl_checkpoint_writer *writer,
                               const struct sl_snapshot_block *block, char *reason,
                               size_t reason_bytes);

/* Ends the file: it has its name and survives a crash now. Frees the writer, also on an error,
 * after which the file's name is what it was, or this file, whole: never a part. Nulls *writer.
 * Errors: IO; with a reason. */
int sl_checkpoint_writer_finish(struct sl_checkpoint_writer **writer,
                                struct sl_checkpoint_entry *out, char *reason, size_t reason_bytes);

/* Removes what was written, as far as the disk does. Nulls *writer; NULL is allowed. */
void sl_checkpoint_writer_abandon(struct sl_checkpoint_writer **writer);

#endif
