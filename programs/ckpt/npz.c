#include "programs/ckpt/npz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/bytes.h"

#define SUFFIX             ".npy"
#define LOCAL_BYTES        30
#define LOCAL_EXTRA_BYTES  20
#define ENTRY_BYTES        46
#define ENTRY_EXTRA_BYTES  28
#define END64_BYTES        56
#define END_BYTES          (END64_BYTES + 20 + 22)
#define VERSION            45     /* ZIP64 */
#define DATE_1980          0x0021 /* 1 January: same tensors, same file */
#define ARRAY_HEAD_ALIGNED 64

static const char *type_text(enum sl_tensor_type type)
{
    switch (type) {
    case SL_TENSOR_F32:
        return "<f4";
    case SL_TENSOR_F16:
        return "<f2";
    case SL_TENSOR_I64:
        return "<i8";
    case SL_TENSOR_U64:
        return "<u8";
    default:
        return "|u1";
    }
}

size_t sl_npz_array_head(const struct sl_tensor *tensor, uint8_t *to)
{
    char text[512];
    int length = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          type_text(tensor->type));
    for (uint32_t i = 0; i < tensor->rank; i++) {
        length += snprintf(text + length, sizeof text - (size_t)length, "%" PRIu64 ",%s",
                           tensor->shape[i], i + 1 < tensor->rank ? " " : "");
    }
    length += snprintf(text + length, sizeof text - (size_t)length, "), }");
    /* Magic, version 1.0 and length; then the text, padded with spaces to a multiple of 64, and a
     * newline. */
    const size_t whole = (10 + (size_t)length + 1 + ARRAY_HEAD_ALIGNED - 1) / ARRAY_HEAD_ALIGNED *
                         ARRAY_HEAD_ALIGNED;
    sl_assert(whole <= sizeof text);
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, sizeof text);
    sl_bytes_put(&writer, "\x93NUMPY\x01", 8);
    sl_bytes_put_u16(&writer, (uint16_t)(whole - 10));
    memset(writer.next, ' ', whole - 10);
    sl_bytes_put(&writer, text, (size_t)length);
    to[whole - 1] = '\n';
    return whole;
}

static size_t local_bytes(const struct sl_tensor *tensor)
{
    return LOCAL_BYTES + strlen(tensor->name) + strlen(SUFFIX) + LOCAL_EXTRA_BYTES;
}

static uint64_t local_at(const struct sl_tensor *tensor)
{
    uint8_t head[512];
    return tensor->at - sl_npz_array_head(tensor, head) - local_bytes(tensor);
}

uint64_t sl_npz_layout(struct sl_tensors *tensors)
{
    uint8_t head[512];
    uint64_t at = 0;
    for (uint32_t i = 0; i < tensors->count; i++) {
        struct sl_tensor *tensor = &tensors->items[i];
        tensor->at = at + local_bytes(tensor) + sl_npz_array_head(tensor, head);
        at = tensor->at + tensor->bytes;
    }
    return at;
}

/* Writes the common part of local header and directory entry. The ZIP64 extra field has the
 * sizes. */
static void put_common(struct sl_bytes_writer *writer, uint32_t crc, const struct sl_tensor *tensor,
                       uint16_t extra_bytes)
{
    sl_bytes_put_u16(writer, VERSION);
    sl_bytes_put_u16(writer, 0); /* no flags */
    sl_bytes_put_u16(writer, 0); /* stored */
    sl_bytes_put_u16(writer, 0); /* midnight */
    sl_bytes_put_u16(writer, DATE_1980);
    sl_bytes_put_u32(writer, crc);
    sl_bytes_put_u32(writer, UINT32_MAX);
    sl_bytes_put_u32(writer, UINT32_MAX);
    sl_bytes_put_u16(writer, (uint16_t)(strlen(tensor->name) + strlen(SUFFIX)));
    sl_bytes_put_u16(writer, extra_bytes);
}

static void put_name(struct sl_bytes_writer *writer, const struct sl_tensor *tensor)
{
    sl_bytes_put(writer, tensor->name, strlen(tensor->name));
    sl_bytes_put(writer, SUFFIX, strlen(SUFFIX));
}

size_t sl_npz_head(const struct sl_tensor *tensor, uint32_t crc, uint8_t *to)
{
    uint8_t array_head[512];
    const size_t array_bytes = sl_npz_array_head(tensor, array_head);
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, SL_NPZ_HEAD_BYTES_MAX);
    sl_bytes_put_u32(&writer, 0x04034b50);
    put_common(&writer, crc, tensor, LOCAL_EXTRA_BYTES);
    put_name(&writer, tensor);
    sl_bytes_put_u16(&writer, 1); /* ZIP64 */
    sl_bytes_put_u16(&writer, LOCAL_EXTRA_BYTES - 4);
    sl_bytes_put_u64(&writer, array_bytes + tensor->bytes);
    sl_bytes_put_u64(&writer, array_bytes + tensor->bytes);
    sl_bytes_put(&writer, array_head, array_bytes);
    sl_assert(!writer.bad);
    return SL_NPZ_HEAD_BYTES_MAX - writer.left;
}

static void put_entry(struct sl_bytes_writer *writer, const struct sl_tensor *tensor, uint32_t crc)
{
    uint8_t head[512];
    const uint64_t bytes = sl_npz_array_head(tensor, head) + tensor->bytes;
    sl_bytes_put_u32(writer, 0x02014b50);
    sl_bytes_put_u16(writer, VERSION);
    put_common(writer, crc, tensor, ENTRY_EXTRA_BYTES);
    sl_bytes_put_u16(writer, 0); /* no comment */
    sl_bytes_put_u16(writer, 0); /* one disk */
    sl_bytes_put_u16(writer, 0);
    sl_bytes_put_u32(writer, 0);
    sl_bytes_put_u32(writer, UINT32_MAX); /* offset: in the ZIP64 extra field */
    put_name(writer, tensor);
    sl_bytes_put_u16(writer, 1);
    sl_bytes_put_u16(writer, ENTRY_EXTRA_BYTES - 4);
    sl_bytes_put_u64(writer, bytes);
    sl_bytes_put_u64(writer, bytes);
    sl_bytes_put_u64(writer, local_at(tensor));
}

static void put_end(struct sl_bytes_writer *writer, uint64_t count, uint64_t at, uint64_t bytes)
{
    sl_bytes_put_u32(writer, 0x06064b50);
    sl_bytes_put_u64(writer, END64_BYTES - 12);
    sl_bytes_put_u16(writer, VERSION);
    sl_bytes_put_u16(writer, VERSION);
    sl_bytes_put_u32(writer, 0);
    sl_bytes_put_u32(writer, 0);
    sl_bytes_put_u64(writer, count);
    sl_bytes_put_u64(writer, count);
    sl_bytes_put_u64(writer, bytes);
    sl_bytes_put_u64(writer, at);
    sl_bytes_put_u32(writer, 0x07064b50); /* ZIP64 end locator */
    sl_bytes_put_u32(writer, 0);
    sl_bytes_put_u64(writer, at + bytes);
    sl_bytes_put_u32(writer, 1);
    sl_bytes_put_u32(writer, 0x06054b50); /* classic end record, which refers to the ZIP64 one */
    sl_bytes_put_u32(writer, 0);
    sl_bytes_put_u16(writer, UINT16_MAX);
    sl_bytes_put_u16(writer, UINT16_MAX);
    sl_bytes_put_u32(writer, UINT32_MAX);
    sl_bytes_put_u32(writer, UINT32_MAX);
    sl_bytes_put_u16(writer, 0);
}

uint8_t *sl_npz_directory(const struct sl_tensors *tensors, const uint32_t *crcs, uint64_t at,
                          size_t *bytes)
{
    size_t room = END_BYTES;
    for (uint32_t i = 0; i < tensors->count; i++) {
        room += ENTRY_BYTES + strlen(tensors->items[i].name) + strlen(SUFFIX) + ENTRY_EXTRA_BYTES;
    }
    uint8_t *to = malloc(room);
    if (to == NULL) {
        return NULL;
    }
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, room);
    for (uint32_t i = 0; i < tensors->count; i++) {
        put_entry(&writer, &tensors->items[i], crcs[i]);
    }
    put_end(&writer, tensors->count, at, room - END_BYTES);
    sl_assert(!writer.bad);
    sl_assert(writer.left == 0);
    *bytes = room;
    return to;
}
