/* Ranges of dense tables. */
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "worker/client/encoder.h"
#include "worker/client/error_feedback.h"

/* A long range is sent in pieces that stay in the receiver's cache and delay other requests
 * little. */
#define PIECE_ELEMENTS_MAX    (((uint64_t)1 << 20) / sizeof(float))

/* A push over TCP: a server applies this much at once (SL_SERVER_PUSH_KEYS), while the kernel's
 * copy is in the second-level cache, and receives the next piece into the same memory. It slices a
 * longer push. Elsewhere there is no such copy, and more messages cost more. */
#define TCP_PUSH_ELEMENTS_MAX (((uint64_t)512 << 10) / sizeof(float))

/* A pull from this size on has its own request, so that the reply can be written directly to the
 * caller's memory. */
#define ALONE_ELEMENTS_MIN    (((uint64_t)128 << 10) / sizeof(float))

/* Writes the parts of the elements [start, end), in their order; returns the end of the parts. */
static struct sl_route_part *encode_dense_put_parts(struct sl_route_part *part,
                                                    const struct sl_table *table,
                                                    uint32_t shard_count, uint64_t start,
                                                    uint64_t end)
{
    while (start < end) {
        const uint64_t length = table->spec.length;
        const uint32_t range = sl_partition_range_of(length, shard_count, start);
        const uint64_t next = sl_partition_range_start(length, shard_count, range + 1);
        const uint64_t part_end = next < end ? next : end;
        *part++ = (struct sl_route_part){
            .shard = sl_partition_shard_of_range(table->id, range, shard_count),
            .start = start,
            .count = part_end - start};
        start = part_end;
    }
    return part;
}

int sl_encode_dense_route(const struct sl_encode_plan *plan, struct sl_operation *operation)
{
    const struct sl_table *table = operation->table;
    const uint32_t shard_count = plan->shard_count;
    struct sl_route_part *part = sl_route_take_parts(
        plan->notes, operation->count / SL_PARTITION_BLOCK_ELEMENTS + 2, shard_count);
    if (part == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    operation->route = (struct sl_route){.next = part};
    /* Ranges ascend with shards, except where those begin again with shard 0. */
    const uint64_t turn = sl_partition_range_start(
        table->spec.length, shard_count, sl_partition_range_of_shard(table->id, 0, shard_count));
    const uint64_t start = operation->start, end = start + operation->count;
    part = encode_dense_put_parts(part, table, shard_count, start > turn ? start : turn, end);
    part = encode_dense_put_parts(part, table, shard_count, start, end < turn ? end : turn);
    part->shard = SL_ROUTE_END;
    return 0;
}

uint64_t sl_encode_dense_bytes(const struct sl_operation *operation, uint64_t count)
{
    return SL_ENCODER_SECTION_BYTES +
           (sl_encoder_pushes(operation)
                ? sl_bytes_pad8(sl_precision_array_bytes(operation->push, count))
                : 0);
}

/* A split range ends at a block boundary, if possible: each section that touches a block counts as
 * a visit of it (ps/table/dense_table.h). */
static uint64_t whole_blocks(struct sl_encoder_range range)
{
    const uint64_t beyond = (range.start + range.count) % SL_PARTITION_BLOCK_ELEMENTS;
    return range.count > beyond ? range.count - beyond : range.count;
}

/* Pushed pieces have about the same size: a short last one would cost as much as the others. */
static uint64_t piece_elements(const struct sl_encoder *encoder,
                               const struct sl_operation *operation, uint64_t wanted)
{
    if (!encoder->plan->over_tcp || !sl_encoder_pushes(operation)) {
        return wanted < PIECE_ELEMENTS_MAX ? wanted : PIECE_ELEMENTS_MAX;
    }
    const uint64_t pieces = (wanted + TCP_PUSH_ELEMENTS_MAX - 1) / TCP_PUSH_ELEMENTS_MAX;
    const uint64_t part = (wanted + pieces - 1) / pieces + SL_PARTITION_BLOCK_ELEMENTS - 1;
    return pieces == 1 ? wanted : part - part % SL_PARTITION_BLOCK_ELEMENTS;
}

static uint64_t dense_that_fits(const struct sl_encoder *encoder,
                                const struct sl_operation *operation, struct sl_encoder_range range)
{
    const uint64_t wanted = range.count;
    uint64_t room = sl_encoder_section_room(encoder);
    if (room < sl_encode_dense_bytes(operation, 1)) {
        return 0;
    }
    uint64_t fit = piece_elements(encoder, operation, wanted);
    const uint64_t sent =
        sl_precision_array_count(operation->push, (room - SL_ENCODER_SECTION_BYTES) & ~(uint64_t)7);
    const uint64_t returned =
        sl_precision_array_count(operation->pull, sl_encoder_reply_room(encoder) & ~(uint64_t)7);
    if (sl_encoder_pushes(operation) && fit > sent) {
        fit = sent;
    }
    if (sl_encoder_pulls(operation) && fit > returned) {
        fit = returned;
    }
    return fit < wanted ? whole_blocks((struct sl_encoder_range){range.start, fit}) : fit;
}

static void narrow_range(const struct sl_operation *operation, struct sl_encoder_range piece,
                         const float *gradients, void *to)
{
    if (operation->table->feedback != NULL) {
        sl_error_feedback_narrow_range(operation->table->feedback, operation->push, piece.start,
                                       piece.count, gradients, to);
    } else {
        sl_precision_narrow_array_random(operation->push, gradients, piece.count,
                                         operation->seed + piece.start, to);
    }
}

static int put_dense(struct sl_encoder *encoder, const struct sl_operation *operation,
                     struct sl_encoder_range piece, bool as_tail)
{
    uint64_t from = (piece.start - operation->start) * sizeof(float);
    const uint64_t bytes = sl_precision_array_bytes(operation->push, piece.count);
    const uint8_t *gradients = operation->gradients;
    uint8_t *values = operation->values;
    sl_encoder_put_section(encoder, operation,
                           (struct sl_request_section){.start = piece.start, .count = piece.count});
    int err = 0;
    if (sl_encoder_pulls(operation)) {
        err = sl_encoder_add_read(encoder, (struct sl_read){.to = values + from,
                                                            .row_count = (uint32_t)piece.count,
                                                            .row_bytes = sizeof(float),
                                                            .precision = operation->pull});
    }
    if (!sl_encoder_pushes(operation)) {
        return err;
    }
    if (as_tail) {
        encoder->request->tail = gradients + from;
        encoder->request->tail_bytes = (uint32_t)bytes;
        sl_encoder_close(encoder);
    } else if (operation->push != SL_PRECISION_F32) {
        narrow_range(operation, piece, (const float *)(const void *)(gradients + from),
                     sl_encoder_put_array(encoder, bytes));
    } else {
        memcpy(sl_encoder_put_array(encoder, bytes), gradients + from, (size_t)bytes);
    }
    return err;
}

/* A tail cannot be padded, so it needs an even number of elements. Odd elements at either end, up
 * to the next block boundary, are sent separately. */
static uint64_t dense_wanted(struct sl_encoder_range range, bool *as_tail)
{
    if (*as_tail && range.start % 2 != 0) {
        *as_tail = false;
        return SL_PARTITION_BLOCK_ELEMENTS - range.start % SL_PARTITION_BLOCK_ELEMENTS;
    }
    return *as_tail && range.count % 2 != 0 ? whole_blocks(range) : range.count;
}

static int encode_dense_piece(struct sl_encoder *encoder, const struct sl_operation *operation,
                              struct sl_encoder_range range, uint64_t *taken)
{
    bool as_tail = sl_encoder_pushes(operation) && operation->push == SL_PRECISION_F32 &&
                   range.count * sizeof(float) >= SL_ENCODE_TAIL_BYTES_MIN;
    range.count = dense_wanted(range, &as_tail);
    const uint64_t wanted = range.count;
    uint64_t fit = dense_that_fits(encoder, operation, range);
    bool body_too_long = as_tail && encoder->request != NULL &&
                         encoder->writer.next > encoder->base + SL_ENCODE_TAIL_BODY_BYTES_MAX -
                                                    SL_ENCODER_SECTION_BYTES;
    bool separate = !sl_encoder_pushes(operation) && wanted >= ALONE_ELEMENTS_MIN;
    if ((fit < wanted || body_too_long || separate) && encoder->request != NULL) {
        sl_encoder_close(encoder);
        fit = dense_that_fits(encoder, operation, range);
    }
    sl_assert(fit > 0);
    int err = 0;
    if (encoder->request == NULL) {
        err = sl_encoder_open(encoder, as_tail ? SL_ENCODER_SECTION_BYTES
                                               : sl_encode_dense_bytes(operation, fit));
    }
    if (err == 0) {
        err = put_dense(encoder, operation, (struct sl_encoder_range){range.start, fit}, as_tail);
    }
    if (err == 0 && separate) {
        sl_encoder_close(encoder);
    }
    *taken = fit;
    return err;
}

int sl_encode_dense(struct sl_encoder *encoder, const struct sl_operation *operation,
                    struct sl_encoder_range range)
{
    while (range.count > 0) {
        uint64_t taken;
        int err = encode_dense_piece(encoder, operation, range, &taken);
        if (err != 0) {
            return err;
        }
        range.start += taken;
        range.count -= taken;
    }
    return 0;
}
