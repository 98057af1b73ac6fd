/* Long pulls of dense or KV arrays with chunked replies. A chunk is still cached when the transport
 * reads it, and the next chunk reuses the same memory. */
#include <string.h>

#include "core/assert.h"
#include "ps/shard/admit.h"
#include "ps/shard/kv.h"

#define CHUNKED_BYTES_MIN (128U << 10)

/* Returns true when no iteration of the table can be applied before the caller's next tick, so that
 * all chunks show the same whole iterations. */
static bool stands_still(const struct sl_shard *shard, const struct sl_shard_request *request)
{
    const struct sl_shard_table *table = shard->tables[request->view.section.table_id];
    const struct sl_shard_client *caller = &request->caller;
    return table->spec.consistency.mode != SL_CONSISTENCY_BSP ||
           (sl_shard_buffers_pushes(shard, table, caller) &&
            sl_clocks_of(&shard->clocks, caller->worker) <= request->prefix.clock);
}

bool sl_shard_is_chunked(const struct sl_shard *shard, const struct sl_shard_request *request)
{
    if (request->prefix.section_count != 1 || !request->in_section ||
        request->phase != SL_SHARD_PHASE_NEW || request->reply_bytes < CHUNKED_BYTES_MIN ||
        shard->iteration.due) {
        return false;
    }
    switch (request->view.section.op) {
    case SL_REQUEST_DENSE_PULL:
        return stands_still(shard, request);
    case SL_REQUEST_KV_PULL:
        return sl_shard_kv_is_chunked(shard, request);
    default:
        return false;
    }
}

/* Returns how many values fit into the chunk; padding may follow the last. */
static uint64_t values_that_fit(const struct sl_shard_request *request, uint32_t bytes,
                                uint32_t value_bytes)
{
    const uint64_t left = request->view.section.count - request->done;
    const uint64_t room = bytes / value_bytes;
    return left < room ? left : room;
}

uint32_t sl_shard_next_chunk(struct sl_shard *shard, struct sl_shard_request *request,
                             uint8_t *reply, uint32_t bytes)
{
    const struct sl_request_section *section = &request->view.section;
    struct sl_shard_table *table = shard->tables[section->table_id];
    sl_assert(bytes % 8 == 0);
    sl_assert(bytes <= request->reply_bytes - request->reply_done);
    if (request->phase == SL_SHARD_PHASE_NEW) {
        request->phase = SL_SHARD_PHASE_READ;
        request->done = 0;
    }
    const uint32_t value_bytes = table->kv != NULL ? table->spec.dim : sizeof(float);
    const uint64_t count = values_that_fit(request, bytes, value_bytes);
    const uint64_t filled = count * value_bytes;
    if (table->kv != NULL) {
        sl_shard_kv_next_chunk(shard, request, count, reply);
    } else {
        sl_dense_table_read(table->dense, section->start + request->done, count,
                            (float *)(void *)reply);
    }
    memset(reply + filled, 0, bytes - filled);
    request->done += count;
    request->reply_done += bytes;
    if (request->reply_done == request->reply_bytes) {
        sl_assert(request->done == section->count);
        request->in_section = false;
        request->sections_left = 0;
        table->pulled_rows += table->kv != NULL ? section->key_count : section->count;
    }
    return (uint32_t)sl_shard_dense_cost(filled / sizeof(float));
}
