/* The push buffer holds BSP pushes until their iteration is complete. It is a ring of entries in
 * order of arrival, freed in any order and reclaimed from the oldest on. Pushes are freed by whole
 * iterations, so an entry in use blocks little freed space. An empty ring restarts at its
 * beginning, in warm memory. Owner reactor. Init maps memory, which the kernel provides on first
 * use. */
#ifndef SL_PS_SHARD_PUSH_BUFFER_H
#define SL_PS_SHARD_PUSH_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/warm.h"

/* Entries are aligned to a cache line. */
#define SL_SHARD_PUSH_BUFFER_ALIGNMENT 64

/* A buffered push section with repeated keys already summed. Its gradients follow the record
 * indexes. */
struct sl_shard_buffered_push {
    size_t bytes;                        /* in the ring, with this header */
    struct sl_shard_buffered_push *next; /* next of the same worker and table */
    float *gradients;                    /* [count][dim]; dense: [count] */
    uint64_t start;                      /* dense: first element */
    uint64_t order;                      /* ascending over all queued pushes of the shard */
    uint32_t count;                      /* distinct keys or elements */
    uint32_t clock;
    float rate;      /* as in struct sl_optimizer_push */
    uint32_t put_by; /* number of the last snapshot that copied it; 0: none */
    bool freed;
    _Alignas(SL_SHARD_PUSH_BUFFER_ALIGNMENT) uint32_t records[]; /* [count]; dense: none */
};

struct sl_shard_push_buffer {
    uint8_t *base;
    size_t bytes_max;
    size_t head, tail; /* end of the newest and start of the oldest entry */
    uint32_t entry_count;
    size_t touched; /* high-water mark of touched memory */
    struct sl_warm warm;
};

/* Rounds bytes_max up to a page. Errors: NO_MEMORY. */
int sl_shard_push_buffer_init(struct sl_shard_push_buffer *push_buffer, size_t bytes_max);
void sl_shard_push_buffer_fini(struct sl_shard_push_buffer *push_buffer);

/* Allocates an entry for record_count record indexes (0: dense) and float_count gradients. Sets
 * bytes and gradients, rate to 1, and the other fields to 0. NULL: the ring is full. */
struct sl_shard_buffered_push *sl_shard_push_buffer_get(struct sl_shard_push_buffer *push_buffer,
                                                        uint32_t record_count,
                                                        uint64_t float_count);

/* Frees the space after the first float_count gradients if the entry is the newest. */
void sl_shard_push_buffer_trim(struct sl_shard_push_buffer *push_buffer,
                               struct sl_shard_buffered_push *entry, uint64_t float_count);

/* Returns unused memory to the system, in parts, if the ring has been empty for some seconds. Call
 * once a second. Returns false when there is none left. */
bool sl_shard_push_buffer_give_back(struct sl_shard_push_buffer *push_buffer);

void sl_shard_push_buffer_put(struct sl_shard_push_buffer *push_buffer,
                              struct sl_shard_buffered_push *entry);

#endif
