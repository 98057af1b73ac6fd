/* Long pulls of dense or KV arrays with chunked replies: a chunk is found in the table, or copied
 * to memory that the transport reads while it is cached. */
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
    if (request->prefix.section_count != 1 || !sl_flags_has(request->flags, SL_SHARD_IN_SECTION) ||
        request->phase != SL_SHARD_PHASE_NEW || request->reply_bytes < CHUNKED_BYTES_MIN ||
        shard->iteration.due || shard->tables[request->view.section.table_id]->dropped) {
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

static struct sl_shard_table *table_of(const struct sl_shard *shard,
                                       const struct sl_shard_request *request)
{
    return shard->tables[request->view.section.table_id];
}

static uint32_t value_bytes(const struct sl_shard_table *table)
{
    return table->kv != NULL ? table->spec.dim : (uint32_t)sizeof(float);
}

/* In the reply. */
static uint32_t sent_bytes(const struct sl_shard_table *table,
                           const struct sl_shard_request *request)
{
    const enum sl_precision precision = sl_request_returned(&request->view.section);
    return precision == SL_PRECISION_F32 ? value_bytes(table)
                                         : (uint32_t)sl_precision_row_bytes(precision, 1);
}

/* Returns how many values fit; padding may follow the last. */
static uint64_t values_that_fit(const struct sl_shard_request *request, uint64_t bytes,
                                uint32_t width)
{
    const uint64_t left = request->view.section.count - request->done;
    const uint64_t room = bytes / width;
    return left < room ? left : room;
}

/* The next `bytes` of the reply, with `count` values, are made. Returns their cost. */
static uint32_t shard_reply_chunks_pass(struct sl_shard_table *table,
                                        struct sl_shard_request *request, uint64_t count,
                                        uint32_t bytes)
{
    const struct sl_request_section *section = &request->view.section;
    request->phase = SL_SHARD_PHASE_READ;
    request->done += count;
    request->reply_done += bytes;
    if (request->reply_done == request->reply_bytes) {
        sl_assert(request->done == section->count);
        sl_flags_set(&request->flags, SL_SHARD_IN_SECTION, false);
        request->sections_left = 0;
        table->pulled_rows += table->kv != NULL ? section->key_count : section->count;
    }
    return (uint32_t)sl_shard_dense_cost(count * value_bytes(table) / sizeof(float));
}

bool sl_shard_is_dropped(const struct sl_shard *shard, const struct sl_shard_request *request)
{
    return table_of(shard, request)->dropped;
}

/* The first chunk begins the section. */
static void shard_reply_chunks_begin(struct sl_shard_request *request)
{
    request->done = request->phase == SL_SHARD_PHASE_NEW ? 0 : request->done;
}

uint32_t sl_shard_next_chunk(struct sl_shard *shard, struct sl_shard_request *request,
                             uint8_t *reply, uint32_t bytes)
{
    struct sl_shard_table *table = table_of(shard, request);
    const enum sl_precision precision = sl_request_returned(&request->view.section);
    const uint32_t width = sent_bytes(table, request);
    sl_assert(bytes % 8 == 0);
    sl_assert(bytes <= request->reply_bytes - request->reply_done);
    shard_reply_chunks_begin(request);
    const uint64_t count = values_that_fit(request, bytes, width);
    if (table->kv != NULL) {
        sl_shard_kv_write(precision, sl_shard_kv_next_values(shard, request), count,
                          table->spec.dim, reply);
    } else {
        sl_dense_table_read(table->dense, request->view.section.start + request->done, count,
                            precision, reply);
    }
    memset(reply + count * width, 0, bytes - count * width);
    return shard_reply_chunks_pass(table, request, count, bytes);
}

uint32_t sl_shard_next_values(const struct sl_shard *shard, struct sl_shard_request *request,
                              uint64_t bytes_max, struct iovec *parts, uint32_t parts_max)
{
    const struct sl_shard_table *table = table_of(shard, request);
    const uint32_t width = value_bytes(table);
    sl_assert(sl_request_returned(&request->view.section) == SL_PRECISION_F32);
    shard_reply_chunks_begin(request);
    const uint64_t count = values_that_fit(request, bytes_max, width);
    if (table->kv == NULL) {
        return sl_dense_table_find(table->dense, request->view.section.start + request->done, count,
                                   parts, parts_max);
    }
    parts[0] = (struct iovec){.iov_base = sl_shard_kv_next_values(shard, request),
                              .iov_len = count * width};
    return 1;
}

uint32_t sl_shard_pass_values(struct sl_shard *shard, struct sl_shard_request *request,
                              uint32_t bytes)
{
    struct sl_shard_table *table = table_of(shard, request);
    sl_assert(bytes % 8 == 0);
    return shard_reply_chunks_pass(table, request, bytes / value_bytes(table), bytes);
}
