/* Where BSP pushes are kept until their iteration is complete: a ring of entries in arrival order,
 * freed in any order and reclaimed from the oldest on. Entries are freed an iteration at a time, so
 * nothing stays long behind an entry that is still wanted, and an empty ring starts over in warm
 * memory. Owner reactor. Lazily mapped at init. */
#ifndef SL_PS_SHARD_PUSH_BUFFER_H
#define SL_PS_SHARD_PUSH_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/warm.h"

/* One push section kept aside, with its repeated keys already summed. Records (sparse) and then
 * gradients lie behind it. */
struct sl_shard_buffered_push {
    size_t bytes;                        /* of the ring, this header included */
    struct sl_shard_buffered_push *next; /* of the same worker and table, in order of arrival */
    uint32_t *records;                   /* [count]; NULL: dense */
    float *gradients;                    /* [count][dim]; dense: [count] */
    uint64_t start;                      /* dense only: first element */
    uint64_t order;                      /* among all that were queued: ascends */
    uint32_t count;                      /* records or elements */
    uint32_t clock;
    uint32_t put_by; /* number of the last cut that has copied it; 0: none */
    bool freed;
};

struct sl_shard_push_buffer {
    uint8_t *base;
    size_t bytes_max;
    size_t head, tail; /* newest and oldest byte in use */
    uint32_t entry_count;
    size_t touched; /* up to here the ring has memory */
    struct sl_warm warm;
};

/* bytes_max is rounded up to a page. Errors: NO_MEMORY. */
int sl_shard_push_buffer_init(struct sl_shard_push_buffer *push_buffer, size_t bytes_max);
void sl_shard_push_buffer_fini(struct sl_shard_push_buffer *push_buffer);

/* Room for `record_count` records (0: dense) and `float_count` gradients; fills in bytes, records
 * and gradients, zeroes the rest. NULL when the ring is full. */
struct sl_shard_buffered_push *sl_shard_push_buffer_get(struct sl_shard_push_buffer *push_buffer,
                                                        uint32_t record_count,
                                                        uint64_t float_count);

/* Gives back the room behind the entry's first `float_count` gradients, where that is possible. */
void sl_shard_push_buffer_trim(struct sl_shard_push_buffer *push_buffer,
                               struct sl_shard_buffered_push *entry, uint64_t float_count);

/* To be called once a second: memory that has not been used for some seconds goes back to the
 * system, a part at a time, while the ring is empty. False: there is none to give back. */
bool sl_shard_push_buffer_give_back(struct sl_shard_push_buffer *push_buffer);

void sl_shard_push_buffer_put(struct sl_shard_push_buffer *push_buffer,
                              struct sl_shard_buffered_push *entry);

#endif
