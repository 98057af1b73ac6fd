#include "shard_request.h"

#include <string.h>

#include "core/assert.h"
#include "core/bytes.h"

static void put(struct shard_request *request, const void *from, size_t bytes)
{
    size_t padded = sl_bytes_pad8(bytes);
    sl_assert(request->bytes + padded <= sizeof request->payload);
    memset(request->payload + request->bytes, 0, padded);
    if (bytes > 0) {
        memcpy(request->payload + request->bytes, from, bytes);
    }
    request->bytes += padded;
}

/* Writes `count` f32 values in rows of `row`, as the section has them. */
static void put_values(struct shard_request *request, uint8_t op, const float *values,
                       uint64_t count, uint32_t row)
{
    const bool is_assign = op == SL_REQUEST_ASSIGN || op == SL_REQUEST_DENSE_ASSIGN;
    if (is_assign || request->pushed == SL_PRECISION_F32) {
        put(request, values, count * sizeof *values);
        return;
    }
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_SCALAR);
    static _Alignas(8) uint8_t encoded[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    size_t bytes = 0;
    for (uint64_t done = 0; done < count; done += row) {
        const uint32_t here = count - done < row ? (uint32_t)(count - done) : row;
        sl_assert(bytes + sl_precision_row_bytes(request->pushed, here) <= sizeof encoded);
        kernels->narrow(request->pushed, values + done, here, encoded + bytes);
        bytes += sl_precision_row_bytes(request->pushed, here);
    }
    put(request, encoded, bytes);
}

static uint8_t flags_of(const struct shard_request *request, uint8_t op)
{
    const uint32_t pushes =
        1U << SL_REQUEST_PUSH | 1U << SL_REQUEST_DENSE_PUSH | 1U << SL_REQUEST_KV_PUSH;
    const uint32_t pulls = 1U << SL_REQUEST_PULL | 1U << SL_REQUEST_PULL_POOLED |
                           1U << SL_REQUEST_DENSE_PULL | 1U << SL_REQUEST_KV_PULL;
    const uint32_t both = 1U << SL_REQUEST_PUSH_PULL | 1U << SL_REQUEST_DENSE_PUSH_PULL |
                          1U << SL_REQUEST_KV_PUSH_PULL;
    const uint32_t pushed = (pushes | both) >> op & 1 ? request->pushed : 0;
    const uint32_t returned = (pulls | both) >> op & 1 ? request->returned : 0;
    return (uint8_t)(pushed << SL_REQUEST_PUSHED_SHIFT | returned << SL_REQUEST_RETURNED_SHIFT);
}

static void put_section(struct shard_request *request, struct sl_request_section *section)
{
    section->flags |= flags_of(request, section->op);
    struct sl_request_prefix prefix;
    memcpy(&prefix, request->payload, sizeof prefix);
    prefix.section_count++;
    memcpy(request->payload, &prefix, sizeof prefix);
    put(request, section, sizeof *section);
}

void shard_request_begin(struct shard_request *request, uint32_t clock)
{
    request->bytes = 0;
    request->rate = 1;
    request->pushed = request->returned = SL_PRECISION_F32;
    struct sl_request_prefix prefix = {.clock = clock};
    put(request, &prefix, sizeof prefix);
}

void shard_request_pull(struct shard_request *request, uint16_t table, const uint64_t *keys,
                        uint32_t key_count)
{
    struct sl_request_section section = {
        .op = SL_REQUEST_PULL, .table_id = table, .key_count = key_count};
    put_section(request, &section);
    put(request, keys, key_count * sizeof *keys);
}

void shard_request_set_flags(struct shard_request *request, uint8_t flags)
{
    request
        ->payload[sizeof(struct sl_request_prefix) + offsetof(struct sl_request_section, flags)] =
        flags;
}

void shard_request_find(struct shard_request *request, uint16_t table, const uint64_t *keys,
                        uint32_t key_count)
{
    struct sl_request_section section = {
        .op = SL_REQUEST_FIND, .table_id = table, .key_count = key_count};
    put_section(request, &section);
    put(request, keys, key_count * sizeof *keys);
}

void shard_request_scan(struct shard_request *request, struct sl_request_section section,
                        const struct sl_request_scan *scan)
{
    section.op = SL_REQUEST_SCAN;
    put_section(request, &section);
    put(request, scan, sizeof *scan);
}

void shard_request_evict(struct shard_request *request, struct sl_request_section section)
{
    section.op = SL_REQUEST_EVICT;
    put_section(request, &section);
}

void shard_request_pooled(struct shard_request *request, uint16_t table, const uint64_t *keys,
                          uint32_t key_count, const uint32_t *bag_ends, uint32_t bag_count)
{
    struct sl_request_section section = {.op = SL_REQUEST_PULL_POOLED,
                                         .table_id = table,
                                         .key_count = key_count,
                                         .bag_count = bag_count};
    put_section(request, &section);
    put(request, keys, key_count * sizeof *keys);
    put(request, bag_ends, bag_count * sizeof *bag_ends);
}

static uint32_t rate_bits(const struct shard_request *request, uint8_t op)
{
    return sl_request_takes_rate(op) ? sl_rate_to_bits(request->rate) : 0;
}

void shard_request_push(struct shard_request *request, uint8_t op, uint16_t table,
                        const uint64_t *keys, uint32_t key_count, const float *gradients,
                        uint32_t dim)
{
    struct sl_request_section section = {
        .op = op, .table_id = table, .key_count = key_count, .command = rate_bits(request, op)};
    put_section(request, &section);
    put(request, keys, key_count * sizeof *keys);
    put_values(request, op, gradients, (uint64_t)key_count * dim, dim);
}

void shard_request_dense(struct shard_request *request, uint8_t op, uint16_t table, uint64_t start,
                         uint64_t count, const float *gradients)
{
    struct sl_request_section section = {.op = op,
                                         .table_id = table,
                                         .command = rate_bits(request, op),
                                         .start = start,
                                         .count = count};
    put_section(request, &section);
    if (gradients != NULL) {
        put_values(request, op, gradients, count, SL_PRECISION_ARRAY_ROW);
    }
}

void shard_request_kv(struct shard_request *request, struct sl_request_section section,
                      const uint64_t *keys, uint32_t key_count, const uint32_t *lens,
                      const void *values, uint32_t value_bytes)
{
    section.key_count = key_count;
    section.flags = lens != NULL ? SL_REQUEST_FLAG_LENS : 0;
    put_section(request, &section);
    put(request, keys, key_count * sizeof *keys);
    if (lens != NULL) {
        put(request, lens, key_count * sizeof *lens);
    }
    if (values != NULL && value_bytes == sizeof(float)) {
        put_values(request, section.op, values, section.count, SL_PRECISION_ARRAY_ROW);
    } else if (values != NULL) {
        put(request, values, section.count * value_bytes);
    }
}

void shard_request_tick(struct shard_request *request)
{
    struct sl_request_section section = {.op = SL_REQUEST_TICK};
    put_section(request, &section);
}

void shard_request_erase(struct shard_request *request, uint16_t table, const uint64_t *keys,
                         uint32_t key_count)
{
    struct sl_request_section section = {
        .op = SL_REQUEST_ERASE, .table_id = table, .key_count = key_count};
    put_section(request, &section);
    put(request, keys, key_count * sizeof *keys);
}
