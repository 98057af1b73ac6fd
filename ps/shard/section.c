#include "ps/shard/section.h"

#include <stdio.h>

#include "core/format.h"
#include "core/partition.h"

uint64_t sl_shard_dense_step(uint64_t at, uint64_t end, uint32_t budget)
{
    uint64_t count = (uint64_t)budget * SL_SHARD_ELEMENTS_PER_KEY;
    count = count < SL_PARTITION_BLOCK_ELEMENTS ? SL_PARTITION_BLOCK_ELEMENTS : count;
    if (count >= end - at) {
        return end - at;
    }
    uint64_t stop = at + count;
    return stop - stop % SL_PARTITION_BLOCK_ELEMENTS - at;
}

const char *sl_shard_limit_text(const struct sl_shard *shard, char text[static 64])
{
    if (shard->options.memory_bytes_max == 0) {
        (void)snprintf(text, 64, "and the system gives no more (no --memory-limit is set)");
    } else {
        (void)snprintf(text, 64, "the limit is %zu", shard->options.memory_bytes_max);
    }
    return text;
}

int sl_shard_fail(const struct sl_shard *shard, const struct sl_shard_request *request,
                  struct sl_shard_slice *slice, int err, const char *format, ...)
{
    char what[256];
    SL_FORMAT(what, format);
    const struct sl_request_section *section = &request->view.section;
    uint32_t index = request->prefix.section_count - request->sections_left;
    const struct sl_shard_table *table = shard->tables[section->table_id];
    return sl_reason_fail(slice->reason, err, "shard %u, section %u (%s%s): %s",
                          shard->options.index, index,
                          section->op == SL_REQUEST_TICK ? "tick" : "table ",
                          section->op == SL_REQUEST_TICK ? ""
                          : table == NULL                ? "?"
                                                         : table->spec.name,
                          what);
}
