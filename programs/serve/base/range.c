#include "programs/serve/base/range.h"

#include "core/assert.h"

static struct sl_serve_range *range_at(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_serve_range, link);
}

void sl_serve_ranges_init(struct sl_serve_ranges *ranges, uint64_t bytes)
{
    *ranges = (struct sl_serve_ranges){.bytes = bytes};
    sl_list_init(&ranges->used);
}

bool sl_serve_range_take(struct sl_serve_ranges *ranges, uint64_t bytes,
                         struct sl_serve_range *range)
{
    uint64_t offset = 0;
    *range = (struct sl_serve_range){0};
    if (bytes == 0 || bytes > ranges->bytes) {
        return bytes == 0;
    }
    bytes = (bytes + SL_SERVE_RANGE_ALIGN - 1) / SL_SERVE_RANGE_ALIGN * SL_SERVE_RANGE_ALIGN;
    struct sl_list_link *next = ranges->used.head.next;
    while (next != &ranges->used.head && range_at(next)->offset - offset < bytes) {
        offset = range_at(next)->offset + range_at(next)->bytes;
        next = next->next;
    }
    if (bytes > ranges->bytes - offset) {
        return false;
    }
    range->offset = offset;
    range->bytes = bytes;
    ranges->used_bytes += bytes;
    sl_list_insert(next, &range->link);
    return true;
}

void sl_serve_range_put(struct sl_serve_ranges *ranges, struct sl_serve_range *range)
{
    if (sl_list_linked(&range->link)) {
        sl_assert(ranges->used_bytes >= range->bytes);
        ranges->used_bytes -= range->bytes;
        sl_list_remove(&range->link);
    }
}
