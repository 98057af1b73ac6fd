/* Scans and evictions: the operation has one shard, and fits into one message. */
#include "core/assert.h"
#include "worker/client/encoder.h"

static struct sl_request_section section_of(const struct sl_operation *operation)
{
    return (struct sl_request_section){.op = (uint8_t)operation->op,
                                       .bag_count = operation->width,
                                       .start = operation->start,
                                       .count = operation->count};
}

uint64_t sl_encode_scan_reply_bytes(const struct sl_operation *operation)
{
    const struct sl_request_section section = section_of(operation);
    return sl_request_reply_bytes(&section, operation->table->spec.dim);
}

int sl_encode_scan(struct sl_encoder *encoder, const struct sl_operation *operation)
{
    const size_t body_bytes = operation->scan != NULL ? sizeof *operation->scan : 0;
    const uint64_t bytes = SL_ENCODER_SECTION_BYTES + body_bytes;
    const uint64_t reply_bytes = sl_encode_scan_reply_bytes(operation);
    if (sl_encoder_section_room(encoder) < bytes || sl_encoder_reply_room(encoder) < reply_bytes) {
        sl_encoder_close(encoder);
    }
    sl_assert(reply_bytes <= sl_encoder_reply_room(encoder));
    const int err = encoder->request != NULL ? 0 : sl_encoder_open(encoder, bytes);
    if (err != 0) {
        return err;
    }
    sl_encoder_put_section(encoder, operation, section_of(operation));
    sl_bytes_put(&encoder->writer, operation->scan, body_bytes);
    return sl_encoder_add_read(encoder, (struct sl_read){.to = operation->values,
                                                         .row_count = 1,
                                                         .row_bytes = (uint32_t)reply_bytes});
}
