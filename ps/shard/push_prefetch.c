#include "ps/shard/push_prefetch.h"

#include <string.h>

#include "ps/shard/state.h"

struct sl_shard_push_prefetch sl_shard_push_prefetch_begin(const struct sl_shard *shard,
                                                           const uint8_t *payload,
                                                           size_t payload_bytes)
{
    struct {
        struct sl_request_prefix prefix;
        struct sl_request_section section;
        uint64_t key;
    } head;
    struct sl_shard_push_prefetch ahead = {.is_push = false};
    if (payload == NULL || payload_bytes < sizeof head) {
        return ahead;
    }
    memcpy(&head, payload, sizeof head);
    const struct sl_request_section *section = &head.section;
    if ((section->op != SL_REQUEST_PUSH && section->op != SL_REQUEST_PUSH_PULL) ||
        section->key_count == 0 || section->table_id >= SL_LIMIT_TABLES) {
        return ahead;
    }
    const struct sl_shard_table *table = shard->tables[section->table_id];
    if (table != NULL && table->sparse != NULL) {
        ahead = (struct sl_shard_push_prefetch){
            .hash = sl_sparse_table_fetch_bucket(table->sparse, head.key),
            .table_id = section->table_id,
            .is_push = true,
        };
    }
    return ahead;
}

void sl_shard_push_prefetch_end(const struct sl_shard *shard,
                                const struct sl_shard_push_prefetch *ahead)
{
    const struct sl_shard_table *table = ahead->is_push ? shard->tables[ahead->table_id] : NULL;
    if (table != NULL && table->sparse != NULL) {
        sl_sparse_table_fetch_record(table->sparse, ahead->hash);
    }
}
