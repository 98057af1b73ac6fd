#include "ps/checkpoint/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "core/assert.h"
#include "core/format.h"
#include "ps/checkpoint/directory.h"
#include "ps/checkpoint/format.h"

struct buffer {
    uint8_t *at;
    uint32_t capacity;
};

struct sl_checkpoint_reader {
    struct sl_disk_file file;
    struct sl_checkpoint_entry entry;
    struct sl_format_header header;
    struct sl_format_end seen; /* totals so far, to compare with the end */
    uint32_t kinds;
    bool at_end;
    int failed; /* error that all later calls return */
    ZSTD_DCtx *zstd;
    struct buffer compressed;
    struct sl_snapshot_block *block; /* NULL: not allocated yet */
    struct sl_reason reason;         /* of `failed` */
};

static int checkpoint_reader_refuse(struct sl_checkpoint_reader *reader, int err,
                                    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* E.g. "PATH: block 3: why". */
static int checkpoint_reader_refuse(struct sl_checkpoint_reader *reader, int err,
                                    const char *format, ...)
{
    char why[200];
    SL_FORMAT(why, format);
    sl_reason_set(&reader->reason, "%s: %s", reader->file.path, why);
    return err;
}

static int refuse_block(struct sl_checkpoint_reader *reader, const char *why)
{
    return checkpoint_reader_refuse(reader, SL_ERR_CORRUPT, "block %" PRIu64 ": %s",
                                    reader->seen.blocks, why);
}

/* Reads the next bytes of the file; fewer are an error. */
static int read_next(struct sl_checkpoint_reader *reader, void *to, size_t bytes)
{
    size_t got;
    int err =
        sl_disk_read(&reader->file, reader->seen.file_bytes, to, bytes, &got, &reader->reason);
    if (err == 0 && got < bytes) {
        err = checkpoint_reader_refuse(reader, SL_ERR_CORRUPT,
                                       "it is cut short after %" PRIu64 " bytes",
                                       reader->seen.file_bytes + got);
    }
    if (err == 0) {
        reader->seen.file_bytes += bytes;
    }
    return err;
}

static int check_size(struct sl_checkpoint_reader *reader)
{
    uint64_t bytes;
    int err = sl_disk_size(&reader->file, &bytes, &reader->reason);
    if (err == 0 && bytes != reader->entry.bytes) {
        err = checkpoint_reader_refuse(reader, SL_ERR_CORRUPT,
                                       "it has %" PRIu64 " bytes; the manifest says %" PRIu64,
                                       bytes, reader->entry.bytes);
    }
    return err;
}

static int read_header(struct sl_checkpoint_reader *reader,
                       const struct sl_checkpoint_manifest *manifest)
{
    uint8_t bytes[SL_FORMAT_HEADER_BYTES];
    const char *why;
    struct sl_format_header *header = &reader->header;
    int err = read_next(reader, bytes, sizeof bytes);
    if (err != 0) {
        return err;
    }
    err = sl_format_decode_header(bytes, header, &why);
    if (err != 0) {
        return checkpoint_reader_refuse(reader, err, "%s", why);
    }
    if (header->number != manifest->number ||
        (header->base != manifest->base && header->base != 0) ||
        header->shard != reader->entry.shard || header->shard_count != manifest->shard_count) {
        return checkpoint_reader_refuse(
            reader, SL_ERR_CORRUPT,
            "it is shard %u of %u of checkpoint %" PRIu64 " with base %" PRIu64
            "; expected shard %u of %u of %" PRIu64 " with base %" PRIu64,
            header->shard, header->shard_count, header->number, header->base, reader->entry.shard,
            manifest->shard_count, manifest->number, manifest->base);
    }
    reader->seen.all_hash = header->hash;
    return 0;
}

static int open_file(struct sl_checkpoint_reader *reader, const struct sl_disk *disk,
                     const char *directory, const struct sl_checkpoint_manifest *manifest)
{
    char name[SL_CHECKPOINT_NAME_BYTES];
    char path[SL_DISK_PATH_BYTES];
    sl_checkpoint_file_name(reader->entry.shard, manifest->shard_count, name);
    int err =
        sl_checkpoint_directory_path(directory, manifest->number, name, path, &reader->reason);
    if (err == 0) {
        err = sl_disk_open(disk, path, SL_DISK_READ, &reader->file, &reader->reason);
    }
    err = err != 0 ? err : check_size(reader);
    return err != 0 ? err : read_header(reader, manifest);
}

int sl_checkpoint_reader_open(const struct sl_disk *disk, const char *directory,
                              const struct sl_checkpoint_manifest *manifest, uint32_t shard,
                              uint32_t kinds, struct sl_checkpoint_reader **out,
                              struct sl_reason *reason)
{
    sl_assert(shard < manifest->shard_count);
    struct sl_checkpoint_reader *reader = calloc(1, sizeof *reader);
    if (reader != NULL) {
        reader->zstd = ZSTD_createDCtx();
    }
    if (reader == NULL || reader->zstd == NULL) {
        sl_reason_set(reason, "no memory to read a checkpoint's file");
        sl_checkpoint_reader_close(&reader);
        return SL_ERR_NO_MEMORY;
    }
    reader->kinds = kinds;
    reader->entry = manifest->files[shard];
    int err = open_file(reader, disk, directory, manifest);
    if (err != 0) {
        sl_reason_set(reason, "%s", reader->reason.text);
        sl_checkpoint_reader_close(&reader);
        return err;
    }
    *out = reader;
    return 0;
}

int sl_checkpoint_reader_first(const struct sl_disk *disk, const char *directory,
                               const struct sl_checkpoint_chain *chain, uint32_t shard,
                               uint32_t *item, struct sl_reason *reason)
{
    uint32_t at = chain->count - 1;
    for (bool is_full = false; at > 0 && !is_full; at -= !is_full) {
        const struct sl_checkpoint_manifest *base = &chain->items[at - 1];
        struct sl_checkpoint_reader *reader;
        if (shard >= base->shard_count) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT,
                                  "checkpoint %" PRIu64 " has %u shards, one based on it has more",
                                  base->number, base->shard_count);
        }
        const int err = sl_checkpoint_reader_open(disk, directory, &chain->items[at], shard, 0,
                                                  &reader, reason);
        if (err != 0) {
            return err;
        }
        is_full = reader->header.base == 0;
        sl_checkpoint_reader_close(&reader);
    }
    *item = at;
    return 0;
}

/* Reads the end, whose first bytes are `begun`, and compares it with the totals. */
static int read_end(struct sl_checkpoint_reader *reader, const uint8_t begun[SL_FORMAT_BLOCK_BYTES])
{
    uint8_t bytes[SL_FORMAT_END_BYTES];
    struct sl_format_end end;
    const struct sl_format_end *seen = &reader->seen;
    const char *why;
    memcpy(bytes, begun, SL_FORMAT_BLOCK_BYTES);
    int err =
        read_next(reader, bytes + SL_FORMAT_BLOCK_BYTES, sizeof bytes - SL_FORMAT_BLOCK_BYTES);
    if (err != 0) {
        return err;
    }
    err = sl_format_decode_end(bytes, reader->header.hash, &end, &why);
    if (err != 0) {
        return checkpoint_reader_refuse(reader, err, "%s", why);
    }
    if (end.blocks != seen->blocks || end.raw_bytes != seen->raw_bytes ||
        end.all_hash != seen->all_hash ||
        memcmp(end.records, seen->records, sizeof end.records) != 0) {
        return checkpoint_reader_refuse(reader, SL_ERR_CORRUPT,
                                        "its end speaks of other blocks than are in it");
    }
    if (end.file_bytes != seen->file_bytes || seen->file_bytes != reader->entry.bytes) {
        return checkpoint_reader_refuse(reader, SL_ERR_CORRUPT, "there are bytes behind its end");
    }
    if (end.hash != reader->entry.hash) {
        return checkpoint_reader_refuse(reader, SL_ERR_CORRUPT,
                                        "it is whole, but not the file that the manifest names");
    }
    reader->at_end = true;
    return 0;
}

/* Makes room for compressed bytes; the old content is lost. */
static int make_room(struct sl_checkpoint_reader *reader, uint32_t bytes)
{
    struct buffer *buffer = &reader->compressed;
    if (buffer->at != NULL && bytes <= buffer->capacity) {
        return 0;
    }
    free(buffer->at);
    buffer->capacity = bytes;
    buffer->at = malloc(bytes + 1); /* not NULL for 0 bytes either */
    return buffer->at != NULL
               ? 0
               : checkpoint_reader_refuse(reader, SL_ERR_NO_MEMORY, "no memory to read it");
}

/* Makes room for any block. */
static int make_block(struct sl_checkpoint_reader *reader)
{
    if (reader->block != NULL) {
        return 0;
    }
    const int err = sl_snapshot_block_create(SL_FORMAT_RAW_BYTES_MAX, &reader->block);
    return err == 0 ? 0 : checkpoint_reader_refuse(reader, err, "no memory to read it");
}

/* Reads the payload, decompressed, into reader->block. */
static int read_payload(struct sl_checkpoint_reader *reader, const struct sl_format_block *block)
{
    int err = make_block(reader);
    if (err == 0 && block->compressed) {
        err = make_room(reader, block->packed_bytes);
    }
    if (err != 0) {
        return err;
    }
    uint8_t *to = block->compressed ? reader->compressed.at : reader->block->payload;
    err = read_next(reader, to, block->packed_bytes);
    if (err != 0) {
        return err;
    }
    if (sl_format_hash_bytes(to, block->packed_bytes, reader->header.hash) != block->bytes_hash) {
        return refuse_block(reader, "the checksum of its bytes does not match");
    }
    if (!block->compressed) {
        return 0;
    }
    size_t bytes = ZSTD_decompressDCtx(reader->zstd, reader->block->payload, block->raw_bytes, to,
                                       block->packed_bytes);
    if (ZSTD_isError(bytes) || bytes != block->raw_bytes) {
        return refuse_block(reader, "it cannot be unpacked");
    }
    return 0;
}

/* Reads one block. *taken: its kind was requested. */
static int read_block(struct sl_checkpoint_reader *reader, const uint8_t *bytes, bool *taken)
{
    struct sl_format_block block;
    const char *why;
    int err = sl_format_decode_block(bytes, reader->header.hash, &block, &why);
    if (err == 0 && block.index != reader->seen.blocks) {
        err = SL_ERR_CORRUPT;
        why = "it stands at another place than its own";
    }
    if (err != 0) {
        return refuse_block(reader, why);
    }
    *taken = (reader->kinds >> block.kind & 1) != 0;
    if (*taken) {
        err = read_payload(reader, &block);
    } else {
        reader->seen.file_bytes += block.packed_bytes;
    }
    if (err != 0) {
        return err;
    }
    reader->seen.all_hash = sl_format_hash_on(reader->seen.all_hash, block.hash);
    reader->seen.blocks++;
    reader->seen.raw_bytes += block.raw_bytes;
    reader->seen.records[block.kind] += block.count;
    if (*taken) {
        reader->block->kind = block.kind;
        reader->block->table_id = block.table_id;
        reader->block->count = block.count;
        reader->block->bytes = block.raw_bytes;
    }
    return 0;
}

int sl_checkpoint_reader_next(struct sl_checkpoint_reader *reader,
                              const struct sl_snapshot_block **block, struct sl_reason *reason)
{
    uint8_t bytes[SL_FORMAT_BLOCK_BYTES];
    bool taken = false;
    while (reader->failed == 0 && !reader->at_end && !taken) {
        int err = read_next(reader, bytes, sizeof bytes);
        if (err == 0) {
            err = sl_format_is_end(bytes) ? read_end(reader, bytes)
                                          : read_block(reader, bytes, &taken);
        }
        reader->failed = err;
    }
    if (reader->failed != 0) {
        sl_reason_set(reason, "%s", reader->reason.text);
        return reader->failed;
    }
    *block = taken ? reader->block : NULL;
    return 0;
}

struct sl_snapshot_block *sl_checkpoint_reader_take(struct sl_checkpoint_reader *reader,
                                                    struct sl_snapshot_block *other)
{
    sl_assert(reader->block != NULL);
    sl_assert(other == NULL || other->capacity >= SL_FORMAT_RAW_BYTES_MAX);
    struct sl_snapshot_block *block = reader->block;
    reader->block = other;
    return block;
}

void sl_checkpoint_reader_close(struct sl_checkpoint_reader **reader)
{
    struct sl_checkpoint_reader *self = *reader;
    if (self == NULL) {
        return;
    }
    (void)sl_disk_close(&self->file, NULL);
    (void)ZSTD_freeDCtx(self->zstd);
    free(self->compressed.at);
    sl_snapshot_block_destroy(&self->block);
    free(self);
    *reader = NULL;
}
