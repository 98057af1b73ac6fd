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

int sl_encode_route(const struct sl_encode_plan *plan)
{
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        struct sl_operation *operation = &plan->operations[i];
        int err = 0;
        if (operation->op == SL_REQUEST_PULL_POOLED) {
            operation->first_partial = NULL;
            operation->partials_end = &operation->first_partial;
            err = sl_route_bags(plan->notes, operation->keys, operation->key_count,
                                operation->bag_ends, plan->shard_count, &operation->route);
        } else if (is_kv(operation)) {
            err = sl_encode_kv_route(plan, operation);
        } else if (!is_dense(operation) && !is_of_shard(operation)) {
            err = sl_route_rows(plan->notes, operation->keys, operation->key_count,
                                plan->shard_count, &operation->route);
        }
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

static struct sl_encoder_rows rows_of_shard(const struct sl_operation *operation, uint32_t shard)
{
    const struct sl_route *route = &operation->route;
    uint32_t first = route->starts[shard];
    if (route->starts[shard + 1] == first) {
        return (struct sl_encoder_rows){0}; /* keys may be NULL */
    }
    return (struct sl_encoder_rows){.keys = route->keys + first,
                                    .labels = route->labels == NULL ? NULL : route->labels + first,
                                    .first_label = first,
                                    .count = route->starts[shard + 1] - first};
}

/* Upper bound of the operation's bytes on this shard if it is not split. */
static uint64_t operation_bytes(const struct sl_encode_plan *plan, uint32_t shard,
                                const struct sl_operation *operation)
{
    if (is_of_shard(operation)) {
        return SL_ENCODER_SECTION_BYTES + sizeof(struct sl_request_scan);
    }
    if (is_dense(operation)) {
        return sl_encode_dense_bytes(operation,
                                     sl_encode_dense_range(plan, shard, operation).count);
    }
    if (is_kv(operation)) {
        struct sl_encoder_arrays arrays = sl_encode_kv_arrays(operation, shard);
        return sl_encode_kv_bytes(operation, &arrays);
    }
    const uint32_t *starts = operation->route.starts;
    uint64_t count = starts[shard + 1] - starts[shard];
    return operation->op == SL_REQUEST_PULL_POOLED ? sl_encode_bags_bytes(count, count)
                                                   : sl_encode_rows_bytes(operation, count);
}

/* Upper bound of its reply. */
static uint64_t operation_reply_bytes(const struct sl_encode_plan *plan, uint32_t shard,
                                      const struct sl_operation *operation)
{
    if (!sl_encoder_pulls(operation)) {
        return 0;
    }
    if (is_of_shard(operation)) {
        return sl_encode_scan_reply_bytes(operation);
    }
    if (is_dense(operation)) {
        return sl_precision_array_bytes(operation->pull,
                                        sl_encode_dense_range(plan, shard, operation).count);
    }
    if (is_kv(operation)) {
        struct sl_encoder_arrays arrays = sl_encode_kv_arrays(operation, shard);
        return sl_encode_kv_reply_bytes(operation, &arrays);
    }
    const uint32_t *starts = operation->route.starts;
    uint64_t rows = starts[shard + 1] - starts[shard];
    if (operation->op == SL_REQUEST_PULL_POOLED && rows > operation->bag_count) {
        rows = operation->bag_count;
    }
    return sl_encode_rows_reply_bytes(operation, rows);
}

/* Closes the open request if this operation would make the request or its reply a long frame:
 * receiving one costs a copy, more than another message. Leaves room for a tick. */
static void close_if_long(struct sl_encoder *encoder, const struct sl_operation *operation)
{
    const struct sl_encode_plan *plan = encoder->plan;
    const uint64_t bytes_max = SL_LIMIT_INLINE_PAYLOAD_BYTES - SL_ENCODER_SECTION_BYTES;
    if (encoder->request == NULL) {
        return;
    }
    uint64_t bytes = (uint64_t)(encoder->writer.next - encoder->base) +
                     operation_bytes(plan, encoder->shard, operation);
    uint64_t reply_bytes =
        encoder->request->reply_bytes + operation_reply_bytes(plan, encoder->shard, operation);
    if (bytes > bytes_max || reply_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        sl_encoder_close(encoder);
    }
}

static int encode_operation(struct sl_encoder *encoder, struct sl_operation *operation)
{
    if (is_of_shard(operation) && operation->shard != encoder->shard) {
        return 0;
    }
    close_if_long(encoder, operation);
    if (is_of_shard(operation)) {
        return sl_encode_scan(encoder, operation);
    }
    if (is_dense(operation)) {
        return sl_encode_dense(encoder, operation,
                               sl_encode_dense_range(encoder->plan, encoder->shard, operation));
    }
    if (is_kv(operation)) {
        return sl_encode_kv(encoder, operation, sl_encode_kv_arrays(operation, encoder->shard));
    }
    struct sl_encoder_rows rows = rows_of_shard(operation, encoder->shard);
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
        int err = encode_operation(encoder, operation);
        if (err != 0) {
            return err;
        }
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
        encoder.step_bytes += operation_bytes(plan, shard, &plan->operations[i]);
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
