#include "ps/shard/kv_measured.h"

#include <string.h>

#include "core/bytes.h"

void sl_shard_kv_measured_write(const struct sl_shard_table *table,
                                const struct sl_shard_request *request, uint32_t index,
                                const void *values, uint32_t length, uint8_t *reply)
{
    const struct sl_request_section *section = &request->view.section;
    const size_t width = table->spec.dim;
    const uint32_t room = (uint32_t)(section->count / section->key_count);
    const size_t bytes = length <= room ? length * width : 0;
    uint8_t *to = reply + request->reply_done;
    uint8_t *slot = to + (size_t)index * room * width;
    uint32_t *lengths = (uint32_t *)(void *)(to + sl_bytes_pad8(section->count * width));
    if (bytes > 0 && slot != values) {
        memcpy(slot, values, bytes);
    }
    memset(slot + bytes, 0, room * width - bytes);
    lengths[index] = length;
}
