/* Reads a shard's file of a checkpoint block by block, and checks all of it: against its manifest,
 * and every byte against the file's hashes, before anything is made of it. A reason names the file,
 * the block, and what is wrong with it.
 *
 * Blocking: any thread, one at a time; in a ps an aside, or the main thread before start. Memory:
 * two blocks, of at most SL_FORMAT_RAW_BYTES_MAX each, whatever the file says. */
#ifndef SL_PS_CHECKPOINT_READER_H
#define SL_PS_CHECKPOINT_READER_H

#include <stddef.h>
#include <stdint.h>

#include "ps/checkpoint/disk.h"
#include "ps/checkpoint/manifest.h"
#include "ps/snapshot/block.h"

struct sl_checkpoint_reader;

#define SL_CHECKPOINT_ALL_KINDS UINT32_MAX

/* Opens the file of `shard` < manifest->shard_count in the checkpoint's folder in the directory.
 * kinds: a bit (1U << kind) for each kind that `next` shall give; the bytes of others are passed
 * over, and not checked. manifest and disk need not outlive the reader's creation and the reader.
 * Errors: NOT_FOUND (no such file), CORRUPT (another size than the manifest's, a header that does
 * not fit), VERSION, NO_MEMORY, IO; with a reason. */
int sl_checkpoint_reader_open(const struct sl_disk *disk, const char *directory,
                              const struct sl_checkpoint_manifest *manifest, uint32_t shard,
                              uint32_t kinds, struct sl_checkpoint_reader **out, char *reason,
                              size_t reason_bytes);

/* *block: the next one, the reader's until the next call, its payload aligned to 8; NULL at the
 * end, which has been checked then: the file is whole. Errors: CORRUPT, NO_MEMORY, IO; with a
 * reason, and again whenever it is asked. */
int sl_checkpoint_reader_next(struct sl_checkpoint_reader *reader,
                              const struct sl_snapshot_block **block, char *reason,
                              size_t reason_bytes);

/* The block that `next` has just given is the caller's from now on. The reader reads into `other`
 * in its place, which is the reader's then: a block that it has given before, or NULL. */
struct sl_snapshot_block *sl_checkpoint_reader_take(struct sl_checkpoint_reader *reader,
                                                    struct sl_snapshot_block *other);

/* Nulls *reader; NULL is allowed. */
void sl_checkpoint_reader_close(struct sl_checkpoint_reader **reader);

#endif
