/* Format of a shard's checkpoint file: a header, blocks, an end; all little-endian.
 *
 *     header  64: u64 magic, u32 version, u32 0, u64 number, u64 base, u32 shard, u32 shard_count,
 *                 u64 time_s, u64 0, u64 hash of the preceding bytes
 *     block   48: u32 magic, u8 kind, u8 compression (0 none, 1 zstd), u16 0, u32 table_id,
 *                 u32 count, u32 raw_bytes, u32 packed_bytes, u64 index (from 0), u64 hash of the
 *                 payload as stored, u64 hash of the preceding bytes; then packed_bytes of payload
 *     end    184: u32 magic, u32 0, u64 blocks, u64 total raw_bytes, u64 file_bytes with the end,
 *                 u64 records[16] by kind, u64 all_hash (of the hashes of the file header and of
 *                 each block header), u64 0, u64 hash of the preceding bytes
 *
 * base: the checkpoint that the file is based on; 0: it holds everything of its shard, so that
 * earlier files of the chain are not needed. The checkpoint may have a base in both cases. Version
 * 1, which is read too, has no ERASED blocks, and the base of the checkpoint in each file.
 *
 * Hashes are XXH3-64. Those of blocks and of the end are seeded with the file header's hash, so
 * that a block of another file is not accepted. A block header contains its payload's hash, so
 * all_hash covers every byte. Pure; any thread; allocates nothing. */
#ifndef SL_PS_CHECKPOINT_FORMAT_H
#define SL_PS_CHECKPOINT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "ps/snapshot/block.h"

#define SL_FORMAT_VERSION       2
#define SL_FORMAT_HEADER_BYTES  64
#define SL_FORMAT_BLOCK_BYTES   48
#define SL_FORMAT_END_BYTES     184
#define SL_FORMAT_KINDS         16 /* valid kinds are 1 to 15 */

/* Limit of one block's payload, compressed or not. */
#define SL_FORMAT_RAW_BYTES_MAX SL_SNAPSHOT_BLOCK_BYTES

struct sl_format_header {
    uint64_t number, base;
    uint32_t shard, shard_count;
    int64_t time_s;
    uint64_t hash; /* seed of all others in the file */
};

struct sl_format_block {
    uint8_t kind;
    bool compressed; /* with zstd */
    uint32_t table_id, count;
    uint32_t raw_bytes, packed_bytes; /* equal if not compressed */
    uint64_t index;
    uint64_t bytes_hash;
    uint64_t hash;
};

struct sl_format_end {
    uint64_t blocks, raw_bytes, file_bytes;
    uint64_t records[SL_FORMAT_KINDS];
    uint64_t all_hash;
    uint64_t hash; /* covers the whole file; stored in the manifest */
};

/* Encoders set the hash field of their struct. */
void sl_format_encode_header(struct sl_format_header *header, uint8_t to[SL_FORMAT_HEADER_BYTES]);
void sl_format_encode_block(struct sl_format_block *block, uint64_t seed,
                            uint8_t to[SL_FORMAT_BLOCK_BYTES]);
void sl_format_encode_end(struct sl_format_end *end, uint64_t seed,
                          uint8_t to[SL_FORMAT_END_BYTES]);

/* Errors: CORRUPT; VERSION (header only). *why is then a static text. */
int sl_format_decode_header(const uint8_t from[SL_FORMAT_HEADER_BYTES],
                            struct sl_format_header *out, const char **why);
int sl_format_decode_block(const uint8_t from[SL_FORMAT_BLOCK_BYTES], uint64_t seed,
                           struct sl_format_block *out, const char **why);
int sl_format_decode_end(const uint8_t from[SL_FORMAT_END_BYTES], uint64_t seed,
                         struct sl_format_end *out, const char **why);

/* Returns true if an end begins here instead of a block. */
bool sl_format_is_end(const uint8_t from[SL_FORMAT_BLOCK_BYTES]);

uint64_t sl_format_hash_bytes(const void *from, size_t bytes, uint64_t seed);

/* Continues all_hash with the hash of a block header. */
uint64_t sl_format_hash_on(uint64_t all, uint64_t next);

#endif
