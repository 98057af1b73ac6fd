/* Pooled pulls: the part of each bag on one shard, and the partial sums. */
#include "core/assert.h"
#include "worker/client/encoder.h"

uint64_t sl_encode_bags_bytes(uint64_t key_count, uint64_t bag_count)
{
    return SL_ENCODER_SECTION_BYTES + key_count * sizeof(uint64_t) +
           sl_bytes_pad8(bag_count * sizeof(uint32_t));
}

/* Returns true when a bag, or the rest of a long one whose sum comes narrowed, begins at this key.
 */
static bool encode_bags_begins(const struct sl_operation *operation,
                               const struct sl_encoder_rows *rows, uint32_t key)
{
    return key == 0 || rows->labels[key] != rows->labels[key - 1] ||
           (operation->pull != SL_PRECISION_F32 && key % SL_REQUEST_NARROW_BAG_KEYS_MAX == 0);
}

/* Returns how many keys fit, and their number of bags. */
static uint32_t bags_that_fit(const struct sl_encoder *encoder,
                              const struct sl_operation *operation,
                              const struct sl_encoder_rows *rows, uint32_t *bag_count)
{
    const size_t bag_bytes = sl_precision_row_bytes(operation->pull, operation->table->spec.dim);
    uint64_t room = sl_encoder_section_room(encoder), replies = sl_encoder_reply_room(encoder);
    uint32_t keys = 0, bags = 0;
    for (; keys < rows->count; keys++) {
        uint32_t more = encode_bags_begins(operation, rows, keys) ? 1 : 0;
        uint64_t sums_bytes = (bags + more) * bag_bytes;
        if (sl_encode_bags_bytes((uint64_t)keys + 1, bags + more) > room ||
            sl_bytes_pad8(sums_bytes) > replies) {
            break;
        }
        bags += more;
    }
    *bag_count = bags;
    return keys;
}

static int put_bags(struct sl_encoder *encoder, struct sl_operation *operation,
                    const struct sl_encoder_rows *rows, uint32_t bag_count)
{
    uint32_t dim = operation->table->spec.dim;
    struct sl_scratch *notes = encoder->plan->notes;
    struct sl_partial *partial = sl_scratch_take(notes, sizeof *partial);
    uint32_t *bags = sl_scratch_take(notes, bag_count * sizeof *bags);
    float *sums = sl_scratch_take(notes, (size_t)bag_count * dim * sizeof *sums);
    if (partial == NULL || bags == NULL || sums == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_encoder_put_section(
        encoder, operation,
        (struct sl_request_section){.key_count = rows->count, .bag_count = bag_count});
    sl_bytes_put(&encoder->writer, rows->keys, rows->count * sizeof(uint64_t));
    uint32_t *ends = sl_encoder_put_array(encoder, bag_count * sizeof *ends);
    uint32_t bag = 0;
    for (uint32_t key = 0; key < rows->count; key++) {
        bag += key > 0 && encode_bags_begins(operation, rows, key);
        bags[bag] = rows->labels[key];
        ends[bag] = key + 1;
    }
    *partial = (struct sl_partial){.bags = bags, .bag_count = bag_count, .sums = sums};
    *operation->partials_end = partial;
    operation->partials_end = &partial->next;
    return sl_encoder_add_read(encoder, (struct sl_read){.to = sums,
                                                         .row_count = bag_count,
                                                         .row_bytes = dim * (uint32_t)sizeof(float),
                                                         .precision = operation->pull});
}

int sl_encode_bags(struct sl_encoder *encoder, struct sl_operation *operation,
                   struct sl_encoder_rows rows)
{
    while (rows.count > 0) {
        uint32_t bag_count;
        uint32_t fit = bags_that_fit(encoder, operation, &rows, &bag_count);
        if (fit < rows.count && encoder->request != NULL) {
            sl_encoder_close(encoder);
            continue;
        }
        sl_assert(fit > 0);
        int err = 0;
        if (encoder->request == NULL) {
            err = sl_encoder_open(encoder, sl_encode_bags_bytes(rows.count, rows.count));
        }
        struct sl_encoder_rows piece = rows;
        piece.count = fit;
        if (err != 0 || (err = put_bags(encoder, operation, &piece, bag_count)) != 0) {
            return err;
        }
        rows.keys += fit;
        rows.labels += fit;
        rows.count -= fit;
    }
    return 0;
}
