/* Checkpoint reader reads a shard's file block by block. It checks the file against its manifest,
 * and every byte against the file's hashes, before any data is used. Reasons name the file, the
 * block and the cause. Blocks. Any thread, one at a time; in a server an offload thread, or the
 * main thread before start. Allocates two blocks of at most SL_FORMAT_RAW_BYTES_MAX each, whatever
 * the file contains. */
#ifndef SL_PS_CHECKPOINT_READER_H
#define SL_PS_CHECKPOINT_READER_H

#include <stdint.h>

#include "core/reason.h"
#include "ps/checkpoint/directory.h"
#include "ps/snapshot/block.h"
#include "reactor/disk.h"

struct sl_checkpoint_reader;

#define SL_CHECKPOINT_ALL_KINDS UINT32_MAX

/* Opens the file of `shard` < manifest->shard_count. kinds: bits (1U << kind) of the blocks that
 * `next` returns; the payload of others is skipped unchecked. The manifest is only used during the
 * call; disk outlives the reader. Errors, with a reason: NOT_FOUND, CORRUPT (the size or the header
 * does not match), VERSION, NO_MEMORY, IO. */
int sl_checkpoint_reader_open(const struct sl_disk *disk, const char *directory,
                              const struct sl_checkpoint_manifest *manifest, uint32_t shard,
                              uint32_t kinds, struct sl_checkpoint_reader **out,
                              struct sl_reason *reason);

/* Finds the first file of a chain that a restore of `shard` needs: the last one that holds
 * everything. *item: its index in the chain. Errors: as above; CORRUPT (a base has fewer shards).
 */
int sl_checkpoint_reader_first(const struct sl_disk *disk, const char *directory,
                               const struct sl_checkpoint_chain *chain, uint32_t shard,
                               uint32_t *item, struct sl_reason *reason);

/* Returns the next block, owned by the reader until the next call, payload aligned to 8. NULL: the
 * end, and the whole file is intact. Errors, with a reason, repeated on every later call: CORRUPT,
 * NO_MEMORY, IO. */
int sl_checkpoint_reader_next(struct sl_checkpoint_reader *reader,
                              const struct sl_snapshot_block **block, struct sl_reason *reason);

/* Transfers the last block of `next` to the caller. The reader continues with `other`, which it
 * then owns: a block from an earlier call, or NULL. */
struct sl_snapshot_block *sl_checkpoint_reader_take(struct sl_checkpoint_reader *reader,
                                                    struct sl_snapshot_block *other);

/* Nulls *reader; NULL is allowed. */
void sl_checkpoint_reader_close(struct sl_checkpoint_reader **reader);

#endif
