/* Arrays of KV tables. Keys ascend and shards own key ranges, so the values of one shard, pushed or
 * pulled, are contiguous in the caller's arrays. */
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "worker/client/encoder.h"

/* An array longer than a message is sent in chunks that stay in the receiver's cache, where its
 * values are wide, and delay other requests little. A multiple of 8. */
#define PIECE_BYTES_MAX ((uint64_t)1 << 20)

static uint64_t width_of(const struct sl_operation *operation)
{
    return operation->table->spec.dim;
}

/* Bytes of so many values in a message. F32: as wide as the table has them. */
static uint64_t values_bytes(const struct sl_operation *operation, enum sl_precision precision,
                             uint64_t count)
{
    return precision == SL_PRECISION_F32 ? count * width_of(operation)
                                         : sl_precision_array_bytes(precision, count);
}

/* Most values for which these bytes suffice. */
static uint64_t values_in(const struct sl_operation *operation, enum sl_precision precision,
                          uint64_t bytes)
{
    bytes &= ~(uint64_t)7;
    return precision == SL_PRECISION_F32 ? bytes / width_of(operation)
                                         : sl_precision_array_count(precision, bytes);
}

static uint64_t len_of(const struct sl_operation *operation, uint32_t key)
{
    return operation->lens != NULL ? operation->lens[key] : operation->count / operation->key_count;
}

/* The section's count is the length of a single key. */
static bool sends_lens(const struct sl_operation *operation, uint32_t key_count)
{
    return operation->lens != NULL && key_count > 1;
}

/* Routing */

/* Returns the index in (from, key_count] behind the last key of the shard, which owns key `from`.
 */
static uint32_t end_of_shard(const struct sl_operation *operation, uint32_t from, uint32_t shard,
                             uint32_t shard_count)
{
    uint32_t end = operation->key_count;
    if (sl_partition_kv_owner(operation->keys[end - 1], shard_count) == shard) {
        return end;
    }
    while (from < end) {
        uint32_t middle = from + (end - from) / 2;
        if (sl_partition_kv_owner(operation->keys[middle], shard_count) == shard) {
            from = middle + 1;
        } else {
            end = middle;
        }
    }
    return from;
}

static uint64_t values_of(const struct sl_operation *operation, uint32_t first, uint32_t end)
{
    if (operation->lens == NULL) {
        return first == end ? 0 : (end - first) * len_of(operation, first);
    }
    uint64_t count = 0;
    for (uint32_t key = first; key < end; key++) {
        count += operation->lens[key];
    }
    return count;
}

int sl_encode_kv_route(const struct sl_encode_plan *plan, struct sl_operation *operation)
{
    const uint32_t shard_count = plan->shard_count;
    struct sl_route_part *part =
        sl_route_take_parts(plan->notes, operation->key_count, shard_count);
    if (part == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    operation->route = (struct sl_route){.keys = operation->keys, .next = part};
    uint64_t start = 0;
    for (uint32_t first = 0; first < operation->key_count; part++) {
        const uint32_t shard = sl_partition_kv_owner(operation->keys[first], shard_count);
        const uint32_t end = end_of_shard(operation, first, shard, shard_count);
        *part = (struct sl_route_part){.shard = shard,
                                       .first = first,
                                       .key_count = end - first,
                                       .start = start,
                                       .count = values_of(operation, first, end)};
        start += part->count;
        first = end;
    }
    part->shard = SL_ROUTE_END;
    return 0;
}

/* Sizes */

/* Bytes of a section without its values. */
static uint64_t head_bytes(const struct sl_operation *operation, uint32_t key_count)
{
    return SL_ENCODER_SECTION_BYTES + key_count * sizeof(uint64_t) +
           (sends_lens(operation, key_count) ? sl_bytes_pad8(key_count * sizeof(uint32_t)) : 0);
}

uint64_t sl_encode_kv_bytes(const struct sl_operation *operation,
                            const struct sl_encoder_arrays *arrays)
{
    return head_bytes(operation, arrays->key_count) +
           (sl_encoder_pushes(operation)
                ? sl_bytes_pad8(values_bytes(operation, operation->push, arrays->count))
                : 0);
}

uint64_t sl_encode_kv_reply_bytes(const struct sl_operation *operation,
                                  const struct sl_encoder_arrays *arrays)
{
    if (operation->op == SL_REQUEST_KV_LENGTHS) {
        return sl_bytes_pad8(arrays->key_count * sizeof(uint32_t));
    }
    const uint64_t lengths_bytes =
        operation->lengths == NULL ? 0 : sl_bytes_pad8(arrays->key_count * sizeof(uint32_t));
    return sl_encoder_pulls(operation)
               ? sl_bytes_pad8(values_bytes(operation, operation->pull, arrays->count)) +
                     lengths_bytes
               : 0;
}

static bool fits(const struct sl_encoder *encoder, const struct sl_operation *operation,
                 const struct sl_encoder_arrays *arrays)
{
    return sl_encode_kv_bytes(operation, arrays) <= sl_encoder_section_room(encoder) &&
           sl_encode_kv_reply_bytes(operation, arrays) <= sl_encoder_reply_room(encoder);
}

/* Returns as many whole arrays as fit into the open request, or else into a new one. */
static struct sl_encoder_arrays arrays_that_fit(const struct sl_encoder *encoder,
                                                const struct sl_operation *operation,
                                                const struct sl_encoder_arrays *wanted)
{
    if (fits(encoder, operation, wanted)) {
        return *wanted;
    }
    struct sl_encoder_arrays fit = {.key = wanted->key, .start = wanted->start};
    for (;;) {
        struct sl_encoder_arrays more = fit;
        more.count += len_of(operation, more.key + more.key_count);
        more.key_count++;
        if (!fits(encoder, operation, &more)) {
            return fit;
        }
        fit = more;
    }
}

/* Sections */

/* A tail cannot be padded, and the body before it is copied, so it must be short. */
static bool goes_as_tail(const struct sl_encoder *encoder, const struct sl_operation *operation,
                         const struct sl_encoder_arrays *arrays)
{
    const struct sl_encode_plan *plan = encoder->plan;
    const bool is_lone = plan->operation_count == 1 && plan->tick == SL_TICK_NONE;
    const uint64_t bytes_min = is_lone ? SL_ENCODE_LONE_BYTES_MIN : SL_ENCODE_TAIL_BYTES_MIN;
    uint64_t bytes = arrays->count * width_of(operation);
    return sl_encoder_pushes(operation) && operation->push == SL_PRECISION_F32 &&
           bytes >= bytes_min && bytes % 8 == 0 &&
           SL_ENCODER_PREFIX_BYTES + head_bytes(operation, arrays->key_count) <=
               SL_ENCODE_TAIL_BODY_BYTES_MAX;
}

static int open_for(struct sl_encoder *encoder, const struct sl_operation *operation,
                    const struct sl_encoder_arrays *arrays, bool as_tail)
{
    if (as_tail) {
        sl_encoder_close(encoder);
    }
    if (encoder->request != NULL) {
        return 0;
    }
    return sl_encoder_open(encoder, as_tail ? head_bytes(operation, arrays->key_count)
                                            : sl_encode_kv_bytes(operation, arrays));
}

static int add_read(struct sl_encoder *encoder, const struct sl_operation *operation,
                    const struct sl_encoder_arrays *arrays)
{
    bool lengths = operation->op == SL_REQUEST_KV_LENGTHS;
    uint64_t row_bytes = lengths ? sizeof(uint32_t) : width_of(operation);
    uint64_t first = lengths ? arrays->key : arrays->start;
    const int err = sl_encoder_add_read(
        encoder,
        (struct sl_read){.to = (uint8_t *)operation->values + first * row_bytes,
                         .row_count = lengths ? arrays->key_count : (uint32_t)arrays->count,
                         .row_bytes = (uint32_t)row_bytes,
                         .precision = operation->pull});
    return err != 0 || operation->lengths == NULL
               ? err
               : sl_encoder_add_read(encoder,
                                     (struct sl_read){.to = operation->lengths + arrays->key,
                                                      .row_count = arrays->key_count,
                                                      .row_bytes = sizeof(uint32_t)});
}

static void put_values(struct sl_encoder *encoder, const struct sl_operation *operation,
                       const struct sl_encoder_arrays *arrays, bool as_tail)
{
    const uint64_t bytes = values_bytes(operation, operation->push, arrays->count);
    const uint8_t *values =
        (const uint8_t *)operation->gradients + arrays->start * width_of(operation);
    if (as_tail) {
        encoder->request->tail = values;
        encoder->request->tail_bytes = (uint32_t)bytes;
        sl_encoder_close(encoder);
    } else if (operation->push != SL_PRECISION_F32) {
        sl_precision_narrow_array_random(operation->push, (const float *)(const void *)values,
                                         arrays->count, operation->seed + arrays->start,
                                         sl_encoder_put_array(encoder, bytes));
    } else {
        memcpy(sl_encoder_put_array(encoder, bytes), values, (size_t)bytes);
    }
}

/* Writes a section. Its `start` and `bag_count` describe a chunk, or are 0. */
static int put_section(struct sl_encoder *encoder, const struct sl_operation *operation,
                       const struct sl_encoder_arrays *arrays, struct sl_request_section section)
{
    bool as_tail = goes_as_tail(encoder, operation, arrays);
    bool with_lens = sends_lens(operation, arrays->key_count);
    int err = open_for(encoder, operation, arrays, as_tail);
    if (err != 0) {
        return err;
    }
    section.flags = (uint8_t)((with_lens ? SL_REQUEST_FLAG_LENS : 0) |
                              (operation->lengths != NULL ? SL_REQUEST_FLAG_LENGTHS : 0) |
                              (operation->zeros ? SL_REQUEST_FLAG_ZEROS : 0));
    section.key_count = arrays->key_count;
    section.count = arrays->count;
    sl_encoder_put_section(encoder, operation, section);
    sl_bytes_put(&encoder->writer, operation->keys + arrays->key,
                 arrays->key_count * sizeof(uint64_t));
    if (with_lens) {
        uint64_t bytes = arrays->key_count * sizeof(uint32_t);
        memcpy(sl_encoder_put_array(encoder, bytes), operation->lens + arrays->key, (size_t)bytes);
    }
    if (sl_encoder_pulls(operation)) {
        err = add_read(encoder, operation, arrays);
    }
    if (sl_encoder_pushes(operation)) {
        put_values(encoder, operation, arrays, as_tail);
    }
    return err;
}

/* An array longer than a message */

/* Upper bound of a chunk's values; where they can be a tail, a multiple of 8 bytes. */
static uint64_t piece_count_max(const struct sl_encoder *encoder,
                                const struct sl_operation *operation)
{
    const uint64_t room = sl_encoder_section_room(encoder) - head_bytes(operation, 1);
    const uint64_t sent = values_in(operation, operation->push, room);
    const uint64_t returned = values_in(operation, operation->pull, sl_encoder_reply_room(encoder));
    const uint64_t most = PIECE_BYTES_MAX / width_of(operation);
    const uint64_t fit = sent < returned ? sent : returned;
    return fit < most ? fit : most;
}

/* Encodes the first array in chunks. */
static int encode_pieces(struct sl_encoder *encoder, const struct sl_operation *operation,
                         const struct sl_encoder_arrays *arrays)
{
    sl_assert(encoder->request == NULL);
    uint64_t whole = len_of(operation, arrays->key), at = 0;
    int err = 0;
    while (err == 0 && at < whole) {
        uint64_t count = piece_count_max(encoder, operation);
        count = count < whole - at ? count : whole - at;
        struct sl_encoder_arrays piece = {
            .key = arrays->key, .key_count = 1, .start = arrays->start + at, .count = count};
        err = put_section(encoder, operation, &piece,
                          (struct sl_request_section){.bag_count = (uint32_t)whole, .start = at});
        sl_encoder_close(encoder);
        at += count;
    }
    return err;
}

int sl_encode_kv(struct sl_encoder *encoder, const struct sl_operation *operation,
                 struct sl_encoder_arrays arrays)
{
    int err = 0;
    while (err == 0 && arrays.key_count > 0) {
        struct sl_encoder_arrays some = arrays_that_fit(encoder, operation, &arrays);
        if (some.key_count < arrays.key_count && encoder->request != NULL) {
            sl_encoder_close(encoder);
            continue;
        }
        if (some.key_count > 0) {
            err = put_section(encoder, operation, &some, (struct sl_request_section){0});
        } else {
            some.key_count = 1;
            some.count = len_of(operation, arrays.key);
            err = encode_pieces(encoder, operation, &arrays);
        }
        arrays.key += some.key_count;
        arrays.key_count -= some.key_count;
        arrays.start += some.count;
        arrays.count -= some.count;
    }
    return err;
}
