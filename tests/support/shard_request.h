/* Builds requests for the tests of the shard and the server. */
#ifndef SL_TESTS_SUPPORT_SHARD_REQUEST_H
#define SL_TESTS_SUPPORT_SHARD_REQUEST_H

#include "core/limits.h"
#include "net/wire/request.h"

struct shard_request {
    _Alignas(8) uint8_t payload[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    size_t bytes;
    float rate; /* of the pushes that follow; 1 after begin */
    /* Of the sections that follow, as far as their operations push or return values; F32 after
     * begin. Pushed values are rounded to the nearest. */
    enum sl_precision pushed, returned;
};

void shard_request_begin(struct shard_request *request, uint32_t clock);
void shard_request_pull(struct shard_request *request, uint16_t table, const uint64_t *keys,
                        uint32_t key_count);
void shard_request_pooled(struct shard_request *request, uint16_t table, const uint64_t *keys,
                          uint32_t key_count, const uint32_t *bag_ends, uint32_t bag_count);
/* Of the first section. */
void shard_request_set_flags(struct shard_request *request, uint8_t flags);
/* op: PUSH or PUSH_PULL. */
void shard_request_push(struct shard_request *request, uint8_t op, uint16_t table,
                        const uint64_t *keys, uint32_t key_count, const float *gradients,
                        uint32_t dim);
void shard_request_erase(struct shard_request *request, uint16_t table, const uint64_t *keys,
                         uint32_t key_count);
void shard_request_find(struct shard_request *request, uint16_t table, const uint64_t *keys,
                        uint32_t key_count);
/* count, bag_count, start and command of the section are given. */
void shard_request_scan(struct shard_request *request, struct sl_request_section section,
                        const struct sl_request_scan *scan);
/* bag_count, command and start of the section are given. */
void shard_request_evict(struct shard_request *request, struct sl_request_section section);
/* Any dense op; gradients NULL for a pull. */
void shard_request_dense(struct shard_request *request, uint8_t op, uint16_t table, uint64_t start,
                         uint64_t count, const float *gradients);
/* Any operation of a KV table: of `section`, flags and key_count are filled in. lens NULL: without;
 * values NULL: none, else section->count of them, of so many bytes each. */
void shard_request_kv(struct shard_request *request, struct sl_request_section section,
                      const uint64_t *keys, uint32_t key_count, const uint32_t *lens,
                      const void *values, uint32_t value_bytes);
void shard_request_tick(struct shard_request *request);

#endif
