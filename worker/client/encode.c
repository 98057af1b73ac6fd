#include "worker/client/encode.h"

#include "core/assert.h"
#include "worker/client/encoder.h"

static bool is_kv(const struct sl_operation *operation)
{
    return operation->table->spec.kind == SL_TABLE_KV;
}

static bool is_dense(const struct sl_operation *operation)
{
    return operation->table->spec.kind == SL_TABLE_DENSE;
}

/* Returns true for an operation of one shard, which fits into one message. */
static bool is_of_shard(const struct sl_operation *operation)
{
    return operation->op == SL_REQUEST_SCAN || operation->op == SL_REQUEST_EVICT;
}

static int route_shard(const struct sl_encode_plan *plan, struct sl_operation *operation)
{
    struct sl_route_part *parts = sl_route_take_parts(plan->notes, 1, plan->shard_count);
    if (parts == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    parts[0].shard = operation->shard;
    parts[1].shard = SL_ROUTE_END;
    operation->route = (struct sl_route){.next = parts};
    return 0;
}

static int encode_route_operation(const struct sl_encode_plan *plan, struct sl_operation *operation)
{
    if (is_of_shard(operation)) {
        return route_shard(plan, operation);
    }
    if (is_kv(operation)) {
        return sl_encode_kv_route(plan, operation);
    }
    if (is_dense(operation)) {
        return sl_encode_dense_route(plan, operation);
    }
    if (operation->op != SL_REQUEST_PULL_POOLED) {
        return sl_route_rows(plan->notes, operation->keys, operation->key_count, plan->shard_count,
                             &operation->route);
    }
    operation->first_partial = NULL;
    operation->partials_end = &operation->first_partial;
    return sl_route_bags(plan->notes, operation->keys, operation->key_count, operation->bag_ends,
                         plan->shard_count, &operation->route);
}

int sl_encode_route(const struct sl_encode_plan *plan)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < plan->operation_count; i++) {
        err = encode_route_operation(plan, &plan->operations[i]);
    }
    return err;
}

uint32_t sl_encode_next(const struct sl_encode_plan *plan, uint32_t from)
{
    uint32_t next = plan->tick != SL_TICK_NONE ? from : SL_ROUTE_END;
    for (uint32_t i = 0; next > from && i < plan->operation_count; i++) {
        const uint32_t touched = plan->operations[i].route.next->shard;
        next = touched < next ? touched : next;
    }
    return next;
}

static struct sl_encoder_rows encode_rows_of(const struct sl_operation *operation)
{
    const struct sl_route *route = &operation->route;
    const uint32_t first = route->next->first;
    return (struct sl_encoder_rows){.keys = route->keys + first,
                                    .labels = route->labels == NULL ? NULL : route->labels + first,
                                    .first_label = first,
                                    .count = route->next->key_count};
}

static struct sl_encoder_arrays encode_arrays_of(const struct sl_operation *operation)
{
    const struct sl_route_part *part = operation->route.next;
    return (struct sl_encoder_arrays){.key = part->first,
                                      .key_count = part->key_count,
                                      .start = part->start,
                                      .count = part->count};
}

/* Upper bound of the bytes of the operation's next part if it is not split. */
static uint64_t encode_part_bytes(const struct sl_operation *operation)
{
    if (is_of_shard(operation)) {
        return SL_ENCODER_SECTION_BYTES + sizeof(struct sl_request_scan);
    }
    if (is_dense(operation)) {
        return sl_encode_dense_bytes(operation, operation->route.next->count);
    }
    if (is_kv(operation)) {
        const struct sl_encoder_arrays arrays = encode_arrays_of(operation);
        return sl_encode_kv_bytes(operation, &arrays);
    }
    const uint64_t count = operation->route.next->key_count;
    return operation->op == SL_REQUEST_PULL_POOLED ? sl_encode_bags_bytes(count, count)
                                                   : sl_encode_rows_bytes(operation, count);
}

/* Upper bound of its reply. */
static uint64_t encode_part_reply_bytes(const struct sl_operation *operation)
{
    if (!sl_encoder_pulls(operation)) {
        return 0;
    }
    if (is_of_shard(operation)) {
        return sl_encode_scan_reply_bytes(operation);
    }
    if (is_dense(operation)) {
        return sl_precision_array_bytes(operation->pull, operation->route.next->count);
    }
    if (is_kv(operation)) {
        const struct sl_encoder_arrays arrays = encode_arrays_of(operation);
        return sl_encode_kv_reply_bytes(operation, &arrays);
    }
    uint64_t rows = operation->route.next->key_count;
    if (operation->op == SL_REQUEST_PULL_POOLED && rows > operation->bag_count) {
        rows = operation->bag_count;
    }
    return sl_encode_rows_reply_bytes(operation, rows);
}

/* Closes the open request if this operation would make the request or its reply a long frame:
 * receiving one costs a copy, more than another message. Leaves room for a tick. */
static void close_if_long(struct sl_encoder *encoder, const struct sl_operation *operation)
{
    const uint64_t bytes_max = SL_LIMIT_INLINE_PAYLOAD_BYTES - SL_ENCODER_SECTION_BYTES;
    if (encoder->request == NULL) {
        return;
    }
    uint64_t bytes =
        (uint64_t)(encoder->writer.next - encoder->base) + encode_part_bytes(operation);
    uint64_t reply_bytes = encoder->request->reply_bytes + encode_part_reply_bytes(operation);
    if (bytes > bytes_max || reply_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        sl_encoder_close(encoder);
    }
}

static int encode_part(struct sl_encoder *encoder, struct sl_operation *operation)
{
    close_if_long(encoder, operation);
    if (is_of_shard(operation)) {
        return sl_encode_scan(encoder, operation);
    }
    if (is_dense(operation)) {
        const struct sl_route_part *part = operation->route.next;
        return sl_encode_dense(encoder, operation,
                               (struct sl_encoder_range){part->start, part->count});
    }
    if (is_kv(operation)) {
        return sl_encode_kv(encoder, operation, encode_arrays_of(operation));
    }
    const struct sl_encoder_rows rows = encode_rows_of(operation);
    return operation->op == SL_REQUEST_PULL_POOLED ? sl_encode_bags(encoder, operation, rows)
                                                   : sl_encode_rows(encoder, operation, rows);
}

/* Adds a tick; a finishing tick has its own request. */
static int encode_tick(struct sl_encoder *encoder)
{
    const struct sl_encode_plan *plan = encoder->plan;
    bool separate = !plan->batched || plan->tick == SL_TICK_FINISH;
    if (separate || sl_encoder_section_room(encoder) < SL_ENCODER_SECTION_BYTES) {
        sl_encoder_close(encoder);
    }
    if (encoder->request == NULL) {
        int err = sl_encoder_open(encoder, SL_ENCODER_SECTION_BYTES);
        if (err != 0) {
            return err;
        }
    }
    sl_encoder_put_section(encoder, NULL, (struct sl_request_section){.op = SL_REQUEST_TICK});
    encoder->request->tick = plan->tick;
    encoder->request->tick_clock = plan->clock;
    if (plan->tick == SL_TICK_FINISH) {
        encoder->prefix.clock = SL_REQUEST_CLOCK_FINISHED;
    }
    if (separate) {
        sl_encoder_close(encoder);
    }
    encoder->clock++;
    return 0;
}

static int encode_operations(struct sl_encoder *encoder, uint32_t first, uint32_t end)
{
    const struct sl_encode_plan *plan = encoder->plan;
    for (uint32_t i = first; i < end; i++) {
        struct sl_operation *operation = &plan->operations[i];
        if (operation->route.next->shard != encoder->shard) {
            continue;
        }
        int err = encode_part(encoder, operation);
        if (err != 0) {
            return err;
        }
        operation->route.next++;
        if (!plan->batched) {
            sl_encoder_close(encoder);
        }
    }
    return 0;
}

int sl_encode_shard(const struct sl_encode_plan *plan, uint32_t shard, struct sl_encode_list *list)
{
    sl_assert(plan->payload_bytes_max >= SL_ENCODE_PAYLOAD_BYTES_MIN);
    sl_assert(plan->tick != SL_TICK_ITERATION || plan->tick_at <= plan->operation_count);
    struct sl_encoder encoder = {.plan = plan, .list = list, .shard = shard, .clock = plan->clock};
    for (uint32_t i = 0; plan->batched && i < plan->operation_count; i++) {
        const struct sl_operation *operation = &plan->operations[i];
        encoder.step_bytes +=
            operation->route.next->shard == shard ? encode_part_bytes(operation) : 0;
    }
    const bool ticks = plan->tick == SL_TICK_ITERATION;
    encoder.step_bytes += ticks ? SL_ENCODER_SECTION_BYTES : 0;
    uint32_t before = ticks ? plan->tick_at : plan->operation_count;
    int err = encode_operations(&encoder, 0, before);
    if (err == 0 && plan->tick != SL_TICK_NONE) {
        err = encode_tick(&encoder);
    }
    err = err != 0 ? err : encode_operations(&encoder, before, plan->operation_count);
    if (err == 0) {
        sl_encoder_close(&encoder);
    }
    return err;
}
