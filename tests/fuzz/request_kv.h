/* What the requests of the fuzz target say to KV tables, and a handler that may answer them. There
 * are three: the first, table id `first`, of floats, then one of bytes and one of halves. */
#ifndef SL_TESTS_FUZZ_REQUEST_KV_H
#define SL_TESTS_FUZZ_REQUEST_KV_H

#include <starling_kv.h>

#include "core/bytes.h"

static inline uint32_t fuzz_request_kv_width(uint32_t table_id, uint32_t first)
{
    return table_id == first ? 4 : table_id == first + 1 ? 1 : 2;
}

extern const struct sl_kv_handler fuzz_request_kv_handler;

/* One section that fits its table, of keys of the shard. */
void fuzz_request_kv_write(struct sl_bytes_writer *writer, uint32_t shard, uint32_t shard_count,
                           uint8_t op, uint32_t first, struct sl_bytes *input);

#endif
