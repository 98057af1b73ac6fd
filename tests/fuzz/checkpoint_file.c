/* Files of checkpoints: any bytes are read to their end or refused with a reason that names the
 * file; so are files that were is_fixed, so that every checksum is right; and of a file that was
 * written and then changed, nothing is taken. */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/checkpoint/format.h"
#include "ps/checkpoint/reader.h"
#include "ps/checkpoint/writer.h"
#include "tests/fuzz/input.h"
#include "tests/support/memory_disk.h"

#define PATH "/c/checkpoint-000001/shard-0000-of-0001.slc"

static struct memory_disk disk;

/* Reads all of the file by the manifest; the number of blocks, or an error. */
static int64_t read_all(const struct sl_checkpoint_manifest *manifest, uint32_t kinds)
{
    struct sl_checkpoint_reader *reader;
    const struct sl_snapshot_block *block;
    struct sl_reason reason = {0};
    uint32_t sum = 0;
    int64_t blocks = 0;
    int err = sl_checkpoint_reader_open(&disk.disk, "/c", manifest, 0, kinds, &reader, &reason);
    if (err == 0) {
        while ((err = sl_checkpoint_reader_next(reader, &block, &reason)) == 0 && block != NULL) {
            sl_assert(block->bytes <= SL_FORMAT_RAW_BYTES_MAX);
            sl_assert((kinds >> block->kind & 1) != 0);
            sl_assert((uintptr_t)block->payload % 8 == 0);
            for (uint32_t i = 0; i < block->bytes; i++) {
                sum += block->payload[i];
            }
            blocks++;
        }
        sl_checkpoint_reader_close(&reader);
    }
    sl_assert(err == 0 || strstr(reason.text, PATH) != NULL);
    sl_assert(disk.open_files == 0);
    return err == 0 ? blocks + (sum & 0) : err;
}

/* The manifest that fits the file as far as one can. */
static void fit(struct sl_checkpoint_manifest *manifest, const uint8_t *bytes, size_t byte_count)
{
    manifest->number = 1;
    manifest->files[0].bytes = byte_count;
    if (byte_count >= sizeof manifest->files[0].hash) {
        memcpy(&manifest->files[0].hash, bytes + byte_count - sizeof manifest->files[0].hash,
               sizeof manifest->files[0].hash);
    }
}

/* Makes the checksums of header, blocks and end right; what else they say stays, but for what the
 * end must say when `totals`. */
static void fix_checksums(uint8_t *bytes, size_t byte_count, bool totals)
{
    struct sl_format_header header = {.number = 1, .shard_count = 1};
    struct sl_format_end end = {0};
    size_t at = SL_FORMAT_HEADER_BYTES;
    if (byte_count < at) {
        return;
    }
    sl_format_encode_header(&header, bytes);
    end.all_hash = header.hash;
    while (byte_count - at >= SL_FORMAT_END_BYTES + SL_FORMAT_BLOCK_BYTES) {
        uint8_t *place = bytes + at;
        struct sl_format_block block = {
            .kind = place[4], .compressed = place[5] & 1, .index = end.blocks};
        memcpy(&block.table_id, place + 8, 4);
        memcpy(&block.count, place + 12, 4);
        memcpy(&block.raw_bytes, place + 16, 4);
        memcpy(&block.packed_bytes, place + 20, 4);
        const size_t left = byte_count - at - SL_FORMAT_BLOCK_BYTES - SL_FORMAT_END_BYTES;
        block.packed_bytes = block.packed_bytes < left ? block.packed_bytes : (uint32_t)left;
        if (!block.compressed) {
            block.raw_bytes = block.packed_bytes;
        }
        at += SL_FORMAT_BLOCK_BYTES;
        block.bytes_hash = sl_format_hash_bytes(bytes + at, block.packed_bytes, header.hash);
        sl_format_encode_block(&block, header.hash, place);
        end.all_hash = sl_format_hash_on(end.all_hash, block.hash);
        end.blocks++;
        end.raw_bytes += block.raw_bytes;
        end.records[block.kind % SL_FORMAT_KINDS] += block.count;
        at += block.packed_bytes;
    }
    if (totals && byte_count - at >= SL_FORMAT_END_BYTES) {
        end.file_bytes = byte_count;
        sl_format_encode_end(&end, header.hash, bytes + byte_count - SL_FORMAT_END_BYTES);
    }
}

/* Blocks of the input's pieces, written and read; then one byte is another. */
static void write_and_change(struct sl_bytes *input, struct sl_checkpoint_manifest *manifest)
{
    struct sl_reason reason;
    struct sl_checkpoint_writer *writer;
    const struct sl_checkpoint_writer_options options = {.disk = &disk.disk,
                                                         .directory = "/c",
                                                         .number = 1,
                                                         .shard_count = 1,
                                                         .compression_level =
                                                             sl_bytes_u8(input) % 4};
    const uint32_t place = sl_bytes_u32(input);
    const uint8_t change = sl_bytes_u8(input);
    int64_t blocks = 0;
    manifest->number = 1;
    sl_assert(sl_checkpoint_writer_create(&options, &writer, &reason) == 0);
    while (fuzz_input_has_more(input)) {
        struct sl_snapshot_block block = {.kind = (uint8_t)(1 + sl_bytes_u8(input) % 15),
                                          .count = sl_bytes_u8(input)};
        struct sl_bytes piece = fuzz_input_piece(input, 4096);
        block.payload = (uint8_t *)(uintptr_t)piece.next;
        block.bytes = (uint32_t)piece.left;
        sl_assert(sl_checkpoint_writer_write(writer, &block, &reason) == 0);
        blocks++;
    }
    sl_assert(sl_checkpoint_writer_finish(&writer, manifest->files, &reason) == 0);
    sl_assert(read_all(manifest, SL_CHECKPOINT_ALL_KINDS) == blocks);
    sl_assert(read_all(manifest, 0) == 0);
    struct memory_disk_node *node = memory_disk_find(&disk, PATH);
    sl_assert(node->count == manifest->files[0].bytes);
    node->bytes[place % node->count] ^= change;
    sl_assert(change == 0 || read_all(manifest, SL_CHECKPOINT_ALL_KINDS) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    const uint8_t mode = sl_bytes_u8(&input) % 4;
    struct sl_checkpoint_manifest manifest;
    char why[SL_DISK_WHY_BYTES];
    sl_assert(sl_checkpoint_manifest_init(1, &manifest) == 0);
    memory_disk_init(&disk);
    if (mode == 3) {
        write_and_change(&input, &manifest);
    } else {
        uint8_t *copy = malloc(input.left + 1);
        sl_assert(copy != NULL);
        memcpy(copy, input.next, input.left);
        if (mode > 0) {
            fix_checksums(copy, input.left, mode == 2);
        }
        sl_assert(disk.disk.ops->make_subdir(&disk, "/c/checkpoint-000001", why) == 0);
        memory_disk_put(&disk, PATH, copy, input.left);
        fit(&manifest, copy, input.left);
        const int64_t all = read_all(&manifest, SL_CHECKPOINT_ALL_KINDS);
        const int64_t few = read_all(&manifest, 1U << 2);
        sl_assert(all < 0 || (few >= 0 && few <= all));
        free(copy);
    }
    sl_checkpoint_manifest_fini(&manifest);
    memory_disk_fini(&disk);
    return 0;
}
