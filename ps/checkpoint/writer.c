#include "ps/checkpoint/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "core/assert.h"
#include "ps/checkpoint/directory.h"
#include "ps/checkpoint/format.h"

struct sl_checkpoint_writer {
    struct sl_disk_file file; /* temporary name */
    const struct sl_disk *disk;
    struct sl_format_header header;
    struct sl_format_end end; /* totals so far */
    uint32_t compression_level;
    ZSTD_CCtx *zstd; /* NULL: no compression */
    size_t buffer_bytes;
    uint8_t *buffer;                 /* a block's header and stored payload, written together */
    char subdir[SL_DISK_PATH_BYTES]; /* of this checkpoint */
    char path[SL_DISK_PATH_BYTES];
};

static int writer_no_memory(struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to write a checkpoint's file");
}

/* Compresses one block without writing it, so that zstd allocates all its memory now. */
static int prepare_packer(struct sl_checkpoint_writer *writer)
{
    writer->zstd = ZSTD_createCCtx();
    void *zeros = calloc(1, SL_FORMAT_RAW_BYTES_MAX);
    size_t bytes = 0;
    if (writer->zstd != NULL && zeros != NULL) {
        bytes = ZSTD_compressCCtx(writer->zstd, writer->buffer, writer->buffer_bytes, zeros,
                                  SL_FORMAT_RAW_BYTES_MAX, (int)writer->compression_level);
    }
    free(zeros);
    return bytes == 0 || ZSTD_isError(bytes) ? SL_ERR_NO_MEMORY : 0;
}

/* Allocates and touches all memory: blocks may be written by a thread that must not allocate
 * (reactor/idle_thread.h). */
static int make_memory(struct sl_checkpoint_writer *writer)
{
    const size_t packed = writer->compression_level == 0
                              ? SL_FORMAT_RAW_BYTES_MAX
                              : ZSTD_compressBound(SL_FORMAT_RAW_BYTES_MAX);
    writer->buffer_bytes = SL_FORMAT_BLOCK_BYTES + packed;
    writer->buffer = malloc(writer->buffer_bytes);
    if (writer->buffer == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(writer->buffer, 0, writer->buffer_bytes);
    return writer->compression_level == 0 ? 0 : prepare_packer(writer);
}

static void free_writer(struct sl_checkpoint_writer **writer)
{
    (void)ZSTD_freeCCtx((*writer)->zstd);
    free((*writer)->buffer);
    free(*writer);
    *writer = NULL;
}

/* Creates the checkpoint's directory durably. */
static int make_subdir(struct sl_checkpoint_writer *writer, const char *directory,
                       struct sl_reason *reason)
{
    int err = sl_disk_make_subdir(writer->disk, writer->subdir, reason);
    if (err != 0 && err != SL_ERR_EXISTS) {
        return err;
    }
    return sl_disk_sync_directory(writer->disk, directory, reason);
}

static int check_unpublished(const struct sl_checkpoint_writer *writer, const char *directory,
                             struct sl_reason *reason)
{
    char path[SL_DISK_PATH_BYTES];
    struct sl_disk_file file;
    int err = sl_checkpoint_directory_path(directory, writer->header.number,
                                           SL_CHECKPOINT_MANIFEST_NAME, path, reason);
    if (err != 0) {
        return err;
    }
    err = sl_disk_open(writer->disk, path, SL_DISK_READ, &file, reason);
    if (err == 0) {
        (void)sl_disk_close(&file, NULL);
        return sl_reason_fail(reason, SL_ERR_EXISTS, "%s has a manifest already", writer->subdir);
    }
    return err == SL_ERR_NOT_FOUND ? 0 : err;
}

static int set_paths(struct sl_checkpoint_writer *writer, const char *directory, char *part,
                     struct sl_reason *reason)
{
    char name[SL_CHECKPOINT_NAME_BYTES];
    char part_name[SL_CHECKPOINT_NAME_BYTES + 8];
    sl_checkpoint_file_name(writer->header.shard, writer->header.shard_count, name);
    (void)snprintf(part_name, sizeof part_name, "%s" SL_CHECKPOINT_PART_SUFFIX, name);
    int err = sl_checkpoint_directory_path(directory, writer->header.number, NULL, writer->subdir,
                                           reason);
    err = err != 0 ? err : sl_disk_join(writer->subdir, name, writer->path, reason);
    err = err != 0 ? err : sl_disk_join(writer->subdir, part_name, part, reason);
    return err;
}

/* Removes a temporary file of an earlier attempt, and creates a new one. */
static int open_file(struct sl_checkpoint_writer *writer, const char *directory,
                     struct sl_reason *reason)
{
    char part[SL_DISK_PATH_BYTES];
    int err = set_paths(writer, directory, part, reason);
    err = err != 0 ? err : check_unpublished(writer, directory, reason);
    err = err != 0 ? err : make_subdir(writer, directory, reason);
    if (err == 0) {
        err = sl_disk_remove(writer->disk, part, reason);
        err = err == SL_ERR_NOT_FOUND ? 0 : err;
    }
    if (err == 0) {
        err = sl_disk_open(writer->disk, part, SL_DISK_CREATE, &writer->file, reason);
    }
    return err;
}

static int write_header(struct sl_checkpoint_writer *writer, struct sl_reason *reason)
{
    uint8_t bytes[SL_FORMAT_HEADER_BYTES];
    sl_format_encode_header(&writer->header, bytes);
    writer->end.all_hash = writer->header.hash;
    writer->end.file_bytes = sizeof bytes;
    return sl_disk_write(&writer->file, bytes, sizeof bytes, reason);
}

int sl_checkpoint_writer_create(const struct sl_checkpoint_writer_options *options,
                                struct sl_checkpoint_writer **out, struct sl_reason *reason)
{
    sl_assert(options->number > options->base);
    sl_assert(options->shard < options->shard_count);
    sl_assert(options->shard_count <= SL_LIMIT_SHARDS);
    sl_assert(options->compression_level <= SL_CHECKPOINT_LEVEL_MAX);
    if (options->number > SL_LIMIT_CHECKPOINT_NUMBER) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "checkpoint %" PRIu64 ": numbers end at %llu", options->number,
                              SL_LIMIT_CHECKPOINT_NUMBER);
    }
    struct sl_checkpoint_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) {
        return writer_no_memory(reason);
    }
    writer->disk = options->disk;
    writer->compression_level = options->compression_level;
    writer->header = (struct sl_format_header){
        .number = options->number,
        .base = options->base,
        .shard = options->shard,
        .shard_count = options->shard_count,
        .time_s = options->time_s,
    };
    int err = make_memory(writer);
    if (err != 0) {
        (void)writer_no_memory(reason);
    } else {
        err = open_file(writer, options->directory, reason);
    }
    err = err != 0 ? err : write_header(writer, reason);
    if (err != 0) {
        sl_checkpoint_writer_discard(&writer);
        return err;
    }
    *out = writer;
    return 0;
}

/* Puts the payload into the buffer, compressed if that saves bytes. Errors: NO_MEMORY. */
static int pack(struct sl_checkpoint_writer *writer, const struct sl_snapshot_block *block,
                struct sl_format_block *out)
{
    uint8_t *to = writer->buffer + SL_FORMAT_BLOCK_BYTES;
    const size_t room = writer->buffer_bytes - SL_FORMAT_BLOCK_BYTES;
    out->packed_bytes = block->bytes;
    if (writer->zstd != NULL) {
        const size_t bytes = ZSTD_compressCCtx(writer->zstd, to, room, block->payload, block->bytes,
                                               (int)writer->compression_level);
        if (ZSTD_isError(bytes)) {
            return SL_ERR_NO_MEMORY; /* room suffices: no other error is possible */
        }
        if (bytes < block->bytes) {
            out->compressed = true;
            out->packed_bytes = (uint32_t)bytes;
        }
    }
    if (!out->compressed && block->bytes != 0) {
        memcpy(to, block->payload, block->bytes);
    }
    out->bytes_hash = sl_format_hash_bytes(to, out->packed_bytes, writer->header.hash);
    return 0;
}

int sl_checkpoint_writer_write(struct sl_checkpoint_writer *writer,
                               const struct sl_snapshot_block *block, struct sl_reason *reason)
{
    sl_assert(block->kind > 0 && block->kind < SL_FORMAT_KINDS);
    if (block->bytes > SL_FORMAT_RAW_BYTES_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "a block of %u bytes for %s; at most %u are accepted", block->bytes,
                              writer->path, SL_FORMAT_RAW_BYTES_MAX);
    }
    struct sl_format_block header = {
        .kind = block->kind,
        .table_id = block->table_id,
        .count = block->count,
        .raw_bytes = block->bytes,
        .index = writer->end.blocks,
    };
    if (pack(writer, block, &header) != 0) {
        return writer_no_memory(reason);
    }
    sl_format_encode_block(&header, writer->header.hash, writer->buffer);
    const size_t bytes = SL_FORMAT_BLOCK_BYTES + header.packed_bytes;
    int err = sl_disk_write(&writer->file, writer->buffer, bytes, reason);
    if (err != 0) {
        return err;
    }
    writer->end.all_hash = sl_format_hash_on(writer->end.all_hash, header.hash);
    writer->end.blocks++;
    writer->end.raw_bytes += block->bytes;
    writer->end.file_bytes += bytes;
    writer->end.records[block->kind] += block->count;
    return 0;
}

/* Writes the end and syncs the file. */
static int end_file(struct sl_checkpoint_writer *writer, struct sl_reason *reason)
{
    uint8_t bytes[SL_FORMAT_END_BYTES];
    writer->end.file_bytes += sizeof bytes;
    sl_format_encode_end(&writer->end, writer->header.hash, bytes);
    int err = sl_disk_write(&writer->file, bytes, sizeof bytes, reason);
    err = err != 0 ? err : sl_disk_sync(&writer->file, reason);
    err = err != 0 ? err : sl_disk_close(&writer->file, reason);
    return err;
}

int sl_checkpoint_writer_finish(struct sl_checkpoint_writer **writer,
                                struct sl_checkpoint_entry *out, struct sl_reason *reason)
{
    struct sl_checkpoint_writer *self = *writer;
    int err = end_file(self, reason);
    if (err == 0) {
        err = sl_disk_rename(self->disk, self->file.path, self->path, reason);
    }
    if (err == 0) {
        self->file.path[0] = '\0'; /* nothing left to remove */
        err = sl_disk_sync_directory(self->disk, self->subdir, reason);
    }
    if (err != 0) {
        sl_checkpoint_writer_discard(writer);
        return err;
    }
    *out = (struct sl_checkpoint_entry){
        .shard = self->header.shard,
        .bytes = self->end.file_bytes,
        .hash = self->end.hash,
        .rows = self->end.records[SL_SNAPSHOT_ROWS],
    };
    sl_checkpoint_file_name(self->header.shard, self->header.shard_count, out->name);
    free_writer(writer);
    return 0;
}

void sl_checkpoint_writer_discard(struct sl_checkpoint_writer **writer)
{
    struct sl_checkpoint_writer *self = *writer;
    if (self == NULL) {
        return;
    }
    (void)sl_disk_close(&self->file, NULL);
    if (self->file.path[0] != '\0') {
        (void)sl_disk_remove(self->disk, self->file.path, NULL);
    }
    free_writer(writer);
}
