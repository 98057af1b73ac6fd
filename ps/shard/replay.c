/* Requests whose writes this shard or another copy of it has executed. */
#include "core/assert.h"
#include "ps/shard/section.h"

void sl_shard_skip_writes(struct sl_shard_request *request)
{
    sl_assert(!sl_shard_skips_writes(request));
    sl_assert(!sl_shard_has_begun(request));
    request->write_to = 0;
    request->cost -= request->push_cost;
    request->push_cost = 0;
}

void sl_shard_skip_writes_before(struct sl_shard_request *request, uint32_t sections)
{
    sl_assert(!sl_shard_skips_writes(request));
    sl_assert(!sl_shard_has_begun(request));
    request->write_from = sections;
}

uint32_t sl_shard_written(const struct sl_shard_request *request)
{
    const bool reads =
        sl_flags_has(request->flags, SL_SHARD_IN_SECTION) && request->phase == SL_SHARD_PHASE_READ;
    const uint32_t written = sl_shard_sections_done(request) + reads;
    return written > request->write_from ? written : request->write_from;
}

void sl_shard_apply_only(struct sl_shard_request *request, uint32_t end)
{
    sl_assert(!sl_shard_skips_writes(request));
    sl_assert(!sl_shard_has_begun(request));
    sl_assert(end <= request->sections_left);
    sl_flags_set(&request->flags, SL_SHARD_READS, false);
    request->prefix.section_count = end;
    request->sections_left = end;
    request->reply_bytes = 0;
    if (sl_flags_has(request->flags, SL_SHARD_IN_SECTION)) {
        sl_shard_drop_pull_part(request);
    }
}

bool sl_shard_stop_writes(struct sl_shard_request *request)
{
    bool is_half =
        sl_flags_has(request->flags, SL_SHARD_IN_SECTION) &&
        (request->phase == SL_SHARD_PHASE_APPLY || sl_flags_has(request->flags, SL_SHARD_IN_PART));
    request->write_to = 0;
    return !is_half;
}
