#include "worker/client/encoder.h"

#include <string.h>

#include "core/assert.h"

int sl_encoder_open(struct sl_encoder *encoder, uint64_t bytes)
{
    const struct sl_encode_plan *plan = encoder->plan;
    /* Overestimates: step_bytes includes operations already encoded. Closing the request trims the
     * unused part. */
    uint64_t capacity = SL_ENCODER_PREFIX_BYTES + bytes + encoder->step_bytes;
    if (capacity > plan->payload_bytes_max) {
        capacity = plan->payload_bytes_max;
    }
    struct sl_request *request = sl_scratch_take(plan->notes, sizeof *request);
    encoder->base = sl_scratch_take(plan->wire, (size_t)capacity);
    if (request == NULL || encoder->base == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *request = (struct sl_request){
        .shard = encoder->shard, .body = encoder->base, .priority = plan->priority};
    encoder->request = request;
    encoder->writer = sl_bytes_writer_over(encoder->base, (size_t)capacity);
    encoder->prefix = (struct sl_request_prefix){.clock = encoder->clock};
    encoder->main_size = 0;
    encoder->reads_end = &request->first_read;
    encoder->read_count = 0;
    void *prefix = sl_bytes_reserve(&encoder->writer, SL_ENCODER_PREFIX_BYTES);
    sl_assert(prefix != NULL);
    return 0;
}

/* Returns where the transport can write the whole reply directly, or NULL. */
static void *reply_memory_of(const struct sl_encoder *encoder)
{
    const struct sl_read *read = encoder->request->first_read;
    if (encoder->read_count != 1 || read->places != NULL || read->grouped != NULL ||
        read->precision != SL_PRECISION_F32) {
        return NULL;
    }
    uint64_t bytes = sl_read_bytes(read);
    return bytes % 8 == 0 && (uintptr_t)read->to % 8 == 0 ? read->to : NULL;
}

void sl_encoder_close(struct sl_encoder *encoder)
{
    struct sl_request *request = encoder->request;
    if (request == NULL) {
        return;
    }
    sl_assert(!encoder->writer.bad);
    memcpy(encoder->base, &encoder->prefix, SL_ENCODER_PREFIX_BYTES);
    request->body_bytes = (uint32_t)(encoder->writer.next - encoder->base);
    request->reply_memory = reply_memory_of(encoder);
    sl_scratch_trim(encoder->plan->wire, encoder->base, request->body_bytes);
    encoder->request = NULL;

    struct sl_encode_list *list = encoder->list;
    if (list->last == NULL) {
        list->first = request;
    } else {
        list->last->next = request;
    }
    list->last = request;
    list->count++;
}

void sl_encoder_put_section(struct sl_encoder *encoder, const struct sl_operation *operation,
                            struct sl_request_section section)
{
    if (operation != NULL) {
        section.op = (uint8_t)operation->op;
        section.table_id = (uint16_t)operation->table->id;
        section.command = operation->command;
        section.flags |= (uint8_t)(operation->push << SL_REQUEST_PUSHED_SHIFT |
                                   operation->pull << SL_REQUEST_RETURNED_SHIFT);
    }
    sl_bytes_put(&encoder->writer, &section, sizeof section);
    const uint64_t size = section.key_count + section.count;
    if (encoder->prefix.section_count == 0 || size > encoder->main_size) {
        encoder->main_size = size;
        encoder->request->kind = sl_request_kind_of(section.op);
    }
    encoder->prefix.section_count++;
    encoder->request->writes =
        encoder->request->writes ||
        !(section.op == SL_REQUEST_PULL || section.op == SL_REQUEST_PULL_POOLED ||
          section.op == SL_REQUEST_DENSE_PULL || section.op == SL_REQUEST_KV_PULL ||
          section.op == SL_REQUEST_KV_LENGTHS || section.op == SL_REQUEST_FIND ||
          section.op == SL_REQUEST_SCAN || section.op == SL_REQUEST_EVICT);
    encoder->request->is_once |= section.op == SL_REQUEST_EVICT;
}

void *sl_encoder_put_array(struct sl_encoder *encoder, uint64_t bytes)
{
    uint64_t padded = sl_bytes_pad8(bytes);
    uint8_t *array = sl_bytes_reserve(&encoder->writer, (size_t)padded);
    sl_assert(array != NULL);
    memset(array + bytes, 0, (size_t)(padded - bytes));
    return array;
}

int sl_encoder_add_read(struct sl_encoder *encoder, struct sl_read read)
{
    struct sl_read *kept = sl_scratch_take(encoder->plan->notes, sizeof *kept);
    if (kept == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *kept = read;
    *encoder->reads_end = kept;
    encoder->reads_end = &kept->next;
    encoder->read_count++;
    encoder->request->clock = encoder->clock;
    encoder->request->reply_bytes += sl_bytes_pad8(sl_read_bytes(&read));
    return 0;
}
