/* The bytes of a shard's checkpoint file: a header, blocks, an end. All little-endian.
 *
 *     header  64: u64 magic, u32 version, u32 0, u64 number, u64 base, u32 shard, u32 shard_count,
 *                 u64 time_s, u64 0, u64 hash of what is before it
 *     block   48: u32 magic, u8 kind, u8 packing (0 as it is, 1 zstd), u16 0, u32 table_id,
 *                 u32 count, u32 raw_bytes, u32 packed_bytes, u64 index (from 0), u64 hash of the
 *                 packed bytes, u64 hash of what is before it; then the packed bytes
 *     end    184: u32 magic, u32 0, u64 blocks, u64 raw_bytes of all, u64 file_bytes, end included,
 *                 u64 records[16] by kind, u64 hash of all (of the header and each block's header),
 *                 u64 0, u64 hash of what is before it
 *
 * Hashes are XXH3-64; those of blocks and of the end are seeded with the file header's own, so that
 * no block of another file is taken for one of this. Since a block's header has its bytes' hash,
 * the hash of all covers every byte. Pure; any thread. */
#ifndef SL_PS_CHECKPOINT_FORMAT_H
#define SL_PS_CHECKPOINT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "ps/snapshot/block.h"

#define SL_FORMAT_VERSION       1
#define SL_FORMAT_HEADER_BYTES  64
#define SL_FORMAT_BLOCK_BYTES   48
#define SL_FORMAT_END_BYTES     184
#define SL_FORMAT_KINDS         16 /* kinds of blocks are 1 to 15 */

/* Of one block's payload, before and after packing. */
#define SL_FORMAT_RAW_BYTES_MAX SL_SNAPSHOT_BLOCK_BYTES

struct sl_format_header {
    uint64_t number, base;
    uint32_t shard, shard_count;
    int64_t time_s;
    uint64_t hash; /* seeds all others of the file */
};

struct sl_format_block {
    uint8_t kind;
    bool compressed; /* by zstd */
    uint32_t table_id, count;
    uint32_t raw_bytes, packed_bytes; /* equal when not packed */
    uint64_t index;
    uint64_t bytes_hash;
    uint64_t hash;
};

struct sl_format_end {
    uint64_t blocks, raw_bytes, file_bytes;
    uint64_t records[SL_FORMAT_KINDS];
    uint64_t all_hash;
    uint64_t hash; /* covers the whole file: the manifest has it */
};

/* Each encoder sets the struct's hash where it has one. */
void sl_format_encode_header(struct sl_format_header *header, uint8_t to[SL_FORMAT_HEADER_BYTES]);
void sl_format_encode_block(struct sl_format_block *block, uint64_t seed,
                            uint8_t to[SL_FORMAT_BLOCK_BYTES]);
void sl_format_encode_end(struct sl_format_end *end, uint64_t seed,
                          uint8_t to[SL_FORMAT_END_BYTES]);

/* Errors: CORRUPT, and VERSION of a header; *why is then a sentence of static storage. */
int sl_format_decode_header(const uint8_t from[SL_FORMAT_HEADER_BYTES],
                            struct sl_format_header *out, const char **why);
int sl_format_decode_block(const uint8_t from[SL_FORMAT_BLOCK_BYTES], uint64_t seed,
                           struct sl_format_block *out, const char **why);
int sl_format_decode_end(const uint8_t from[SL_FORMAT_END_BYTES], uint64_t seed,
                         struct sl_format_end *out, const char **why);

/* Whether an end, not a block, begins here. */
bool sl_format_is_end(const uint8_t from[SL_FORMAT_BLOCK_BYTES]);

uint64_t sl_format_hash_bytes(const void *from, size_t bytes, uint64_t seed);

/* The hash of all, continued with a header's. */
uint64_t sl_format_hash_on(uint64_t all, uint64_t next);

#endif
