/* Replies to KV pulls that ask for the lengths of the arrays. Owner reactor. */
#ifndef SL_PS_SHARD_KV_MEASURED_H
#define SL_PS_SHARD_KV_MEASURED_H

#include "ps/shard/section.h"

/* Writes the array of key `index` to the reply of a section that asks for lengths: the values, if
 * they fit into its room, and the length. values: in the table's width; length 0: none. */
void sl_shard_kv_measured_write(const struct sl_shard_table *table,
                                const struct sl_shard_request *request, uint32_t index,
                                const void *values, uint32_t length, uint8_t *reply);

#endif
