#include "ps/checkpoint/format.h"

#include <string.h>

#include "core/bytes.h"
#include "core/hash.h"

#define HEADER_MAGIC 0x50434b4843524c53ULL /* "SLRCHKCP" */
#define BLOCK_MAGIC  0x4b424c53U           /* "SLBK" */
#define END_MAGIC    0x444e4c53U           /* "SLND" */
#define HASH_BYTES   8

uint64_t sl_format_hash_bytes(const void *from, size_t bytes, uint64_t seed)
{
    return sl_hash_bytes(from, bytes, seed);
}

uint64_t sl_format_hash_on(uint64_t all, uint64_t next)
{
    return sl_hash_bytes(&next, sizeof next, all);
}

/* Writes the hash of the preceding bytes into the last eight. */
static uint64_t format_seal(uint8_t *to, size_t bytes, uint64_t seed)
{
    uint64_t hash = sl_hash_bytes(to, bytes - HASH_BYTES, seed);
    memcpy(to + bytes - HASH_BYTES, &hash, sizeof hash);
    return hash;
}

/* Returns false if the last eight bytes are not that hash. */
static bool format_sealed(const uint8_t *from, size_t bytes, uint64_t seed, uint64_t *hash)
{
    memcpy(hash, from + bytes - HASH_BYTES, sizeof *hash);
    return *hash == sl_hash_bytes(from, bytes - HASH_BYTES, seed);
}

/* Two 32-bit fields; the low half comes first in the file. */
static uint64_t both(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

void sl_format_encode_header(struct sl_format_header *header, uint8_t to[SL_FORMAT_HEADER_BYTES])
{
    const uint64_t words[] = {
        HEADER_MAGIC,
        both(SL_FORMAT_VERSION, 0),
        header->number,
        header->base,
        both(header->shard, header->shard_count),
        (uint64_t)header->time_s,
        0,
    };
    _Static_assert(sizeof words + HASH_BYTES == SL_FORMAT_HEADER_BYTES, "the header's layout");
    memcpy(to, words, sizeof words);
    header->hash = format_seal(to, SL_FORMAT_HEADER_BYTES, 0);
}

void sl_format_encode_block(struct sl_format_block *block, uint64_t seed,
                            uint8_t to[SL_FORMAT_BLOCK_BYTES])
{
    const uint32_t what = block->kind | (uint32_t)block->compressed << 8;
    const uint64_t words[] = {
        both(BLOCK_MAGIC, what),
        both(block->table_id, block->count),
        both(block->raw_bytes, block->packed_bytes),
        block->index,
        block->bytes_hash,
    };
    _Static_assert(sizeof words + HASH_BYTES == SL_FORMAT_BLOCK_BYTES, "a block header's layout");
    memcpy(to, words, sizeof words);
    block->hash = format_seal(to, SL_FORMAT_BLOCK_BYTES, seed);
}

void sl_format_encode_end(struct sl_format_end *end, uint64_t seed, uint8_t to[SL_FORMAT_END_BYTES])
{
    const uint64_t words[] = {both(END_MAGIC, 0), end->blocks, end->raw_bytes, end->file_bytes};
    const uint64_t last[] = {end->all_hash, 0};
    _Static_assert(sizeof words + sizeof end->records + sizeof last + HASH_BYTES ==
                       SL_FORMAT_END_BYTES,
                   "the end's layout");
    memcpy(to, words, sizeof words);
    memcpy(to + sizeof words, end->records, sizeof end->records);
    memcpy(to + sizeof words + sizeof end->records, last, sizeof last);
    end->hash = format_seal(to, SL_FORMAT_END_BYTES, seed);
}

static int format_refuse(int err, const char *text, const char **why)
{
    *why = text;
    return err;
}

int sl_format_decode_header(const uint8_t from[SL_FORMAT_HEADER_BYTES],
                            struct sl_format_header *out, const char **why)
{
    struct sl_bytes cursor = sl_bytes_over(from, SL_FORMAT_HEADER_BYTES);
    struct sl_format_header header;
    if (sl_bytes_u64(&cursor) != HEADER_MAGIC) {
        return format_refuse(SL_ERR_CORRUPT, "it does not begin as a checkpoint's file does", why);
    }
    const uint32_t version = sl_bytes_u32(&cursor);
    const uint32_t zero = sl_bytes_u32(&cursor);
    header.number = sl_bytes_u64(&cursor);
    header.base = sl_bytes_u64(&cursor);
    header.shard = sl_bytes_u32(&cursor);
    header.shard_count = sl_bytes_u32(&cursor);
    header.time_s = (int64_t)sl_bytes_u64(&cursor);
    const uint64_t zeros = sl_bytes_u64(&cursor);
    if (!format_sealed(from, SL_FORMAT_HEADER_BYTES, 0, &header.hash)) {
        return format_refuse(SL_ERR_CORRUPT, "the checksum of its header does not match", why);
    }
    if (version == 0 || version > SL_FORMAT_VERSION || zero != 0 || zeros != 0) {
        return format_refuse(SL_ERR_VERSION, "its format is of another version than 1 or 2", why);
    }
    *out = header;
    return 0;
}

bool sl_format_is_end(const uint8_t from[SL_FORMAT_BLOCK_BYTES])
{
    struct sl_bytes cursor = sl_bytes_over(from, SL_FORMAT_BLOCK_BYTES);
    return sl_bytes_u32(&cursor) == END_MAGIC;
}

static bool block_fits(const struct sl_format_block *block, uint8_t packing, uint16_t zero)
{
    const bool sizes = packing == 0
                           ? block->packed_bytes == block->raw_bytes
                           : block->packed_bytes > 0 && block->packed_bytes < block->raw_bytes;
    return sizes && packing <= 1 && zero == 0 && block->kind > 0 && block->kind < SL_FORMAT_KINDS &&
           block->raw_bytes <= SL_FORMAT_RAW_BYTES_MAX;
}

int sl_format_decode_block(const uint8_t from[SL_FORMAT_BLOCK_BYTES], uint64_t seed,
                           struct sl_format_block *out, const char **why)
{
    struct sl_bytes cursor = sl_bytes_over(from, SL_FORMAT_BLOCK_BYTES);
    struct sl_format_block block;
    if (sl_bytes_u32(&cursor) != BLOCK_MAGIC) {
        return format_refuse(SL_ERR_CORRUPT, "no block begins where one must", why);
    }
    block.kind = sl_bytes_u8(&cursor);
    const uint8_t packing = sl_bytes_u8(&cursor);
    const uint16_t zero = sl_bytes_u16(&cursor);
    block.compressed = packing != 0;
    block.table_id = sl_bytes_u32(&cursor);
    block.count = sl_bytes_u32(&cursor);
    block.raw_bytes = sl_bytes_u32(&cursor);
    block.packed_bytes = sl_bytes_u32(&cursor);
    block.index = sl_bytes_u64(&cursor);
    block.bytes_hash = sl_bytes_u64(&cursor);
    if (!format_sealed(from, SL_FORMAT_BLOCK_BYTES, seed, &block.hash)) {
        return format_refuse(SL_ERR_CORRUPT, "the checksum of its header does not match", why);
    }
    if (!block_fits(&block, packing, zero)) {
        return format_refuse(SL_ERR_CORRUPT, "its kind or its sizes are not ones that exist", why);
    }
    *out = block;
    return 0;
}

int sl_format_decode_end(const uint8_t from[SL_FORMAT_END_BYTES], uint64_t seed,
                         struct sl_format_end *out, const char **why)
{
    struct sl_bytes cursor = sl_bytes_over(from, SL_FORMAT_END_BYTES);
    struct sl_format_end end;
    const bool magic = sl_bytes_u32(&cursor) == END_MAGIC;
    const bool zero = sl_bytes_u32(&cursor) == 0;
    end.blocks = sl_bytes_u64(&cursor);
    end.raw_bytes = sl_bytes_u64(&cursor);
    end.file_bytes = sl_bytes_u64(&cursor);
    sl_bytes_copy(&cursor, end.records, sizeof end.records);
    end.all_hash = sl_bytes_u64(&cursor);
    const bool zeros = sl_bytes_u64(&cursor) == 0;
    if (!format_sealed(from, SL_FORMAT_END_BYTES, seed, &end.hash) || !magic || !zero || !zeros) {
        return format_refuse(SL_ERR_CORRUPT, "the checksum of its end does not match", why);
    }
    *out = end;
    return 0;
}
