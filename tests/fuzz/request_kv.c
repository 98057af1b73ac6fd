#include "tests/fuzz/request_kv.h"

#include <string.h>

#include "core/partition.h"
#include "net/wire/request.h"
#include "tests/fuzz/request_make.h"

/* It looks at all that it is shown, and says AGAIN, or fails, by the command. */
static int handle(void *ctx, const struct sl_kv_request *request)
{
    const size_t bytes = request->value_count * request->value_bytes;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < request->key_count; i++) {
        sum += request->keys[i] + (request->lens != NULL ? request->lens[i] : 1);
    }
    for (size_t i = 0; request->push != NULL && i < bytes; i++) {
        sum += ((const uint8_t *)request->push)[i];
    }
    if (request->pull != NULL) {
        memset(request->pull, (int)(sum & 0xff), bytes);
    }
    switch (request->command % 4) {
    case 1:
        return SL_ERR_AGAIN;
    case 2:
        return SL_ERR_IO;
    default:
        return 0;
    }
}

const struct sl_kv_handler fuzz_request_kv_handler = {.handle = handle};

/* The keys of a KV table are few, so that they meet again, in two or three lengths. */
static void write_keys(struct sl_bytes_writer *writer, uint64_t first_key, uint32_t count,
                       struct sl_bytes *input)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = first_key + sl_bytes_u8(input) % 32;
        sl_bytes_put(writer, &key, sizeof key);
    }
}

static void write_lens(struct sl_bytes_writer *writer, const struct sl_request_section *section)
{
    uint32_t left = (uint32_t)section->count;
    for (uint32_t i = 0; i < sl_bytes_pad8(4ULL * section->key_count) / 4; i++) {
        uint32_t length = i < section->key_count ? 1 : 0;
        length = i + 1 == section->key_count ? left : length;
        left -= length;
        sl_bytes_put(writer, &length, sizeof length);
    }
}

/* What a section of whole arrays, or of a piece of one, says. */
static void choose_arrays(struct sl_request_section *section, uint8_t count, uint8_t how)
{
    section->command = how / 32;
    switch (how % 4) {
    case 0:
        section->flags = SL_REQUEST_FLAG_LENS;
        section->count = section->key_count + count % 8U;
        break;
    case 1: /* a piece */
        section->key_count = 1;
        section->bag_count = count % 8U == 0 ? 60000 : 8;
        section->start = section->bag_count / 4;
        section->count = section->bag_count / 8;
        break;
    case 2: /* long ones */
        section->key_count = section->key_count % 3 + 1;
        section->count = section->key_count * 3000ULL;
        break;
    default:
        section->count = section->key_count * (1 + count % 2ULL);
        if (section->op == SL_REQUEST_KV_PULL && (how & 8) != 0) {
            section->flags = SL_REQUEST_FLAG_LENGTHS;
        }
    }
    if (section->op == SL_REQUEST_KV_PULL && (how & 16) != 0) {
        section->flags |= SL_REQUEST_FLAG_ZEROS;
    }
}

void fuzz_request_kv_write(struct sl_bytes_writer *writer, uint32_t shard, uint32_t shard_count,
                           uint8_t op, uint32_t first, struct sl_bytes *input)
{
    uint8_t count = sl_bytes_u8(input);
    uint8_t how = sl_bytes_u8(input);
    struct sl_request_section section = {
        .op = op,
        .table_id = (uint16_t)(first + (count >= 128 && count < 240 ? 2 : count / 8 % 2)),
        .key_count = count >= 240 ? 300 : 1 + count % 16U, /* and more than are claimed at once */
    };
    if (op != SL_REQUEST_KV_LENGTHS) {
        choose_arrays(&section, count, how);
    }
    const uint32_t width = fuzz_request_kv_width(section.table_id, first);
    if (width == sizeof(float) && (count & 64) != 0 && op != SL_REQUEST_KV_LENGTHS &&
        (section.flags & SL_REQUEST_FLAG_LENGTHS) == 0) {
        fuzz_request_encode(&section, how >> 2 & 3, how >> 4 & 3);
    }
    sl_bytes_put(writer, &section, sizeof section);
    write_keys(writer, sl_partition_kv_first(shard, shard_count), section.key_count, input);
    if ((section.flags & SL_REQUEST_FLAG_LENS) != 0) {
        write_lens(writer, &section);
    }
    if (sl_request_pushes(op)) {
        fuzz_request_write_values(writer, &section, width);
    }
}
