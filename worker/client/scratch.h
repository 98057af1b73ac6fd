/* Scratch memory of one step: allocated piece by piece, reset all at once. A reset keeps the memory
 * and joins it into one chunk, so that steps of steady size allocate nothing. One thread writes at
 * a time. */
#ifndef SL_WORKER_CLIENT_SCRATCH_H
#define SL_WORKER_CLIENT_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#define SL_SCRATCH_ALIGNMENT 16U

struct sl_send_arena;

struct sl_scratch_chunk {
    struct sl_scratch_chunk *next;
    size_t bytes, used; /* of data */
    size_t arena_bytes; /* size in the send arena; 0: from the heap */
    _Alignas(SL_SCRATCH_ALIGNMENT) uint8_t data[];
};

struct sl_scratch {
    struct sl_scratch_chunk *chunks; /* the first is being filled */
    struct sl_send_arena *arena;     /* preferred source of chunks; NULL: the heap only */
};

/* A zeroed struct (`arena` may be set) is empty and ready. Frees everything. */
void sl_scratch_fini(struct sl_scratch *scratch);

/* Slow path of sl_scratch_take: opens a new chunk. */
void *sl_scratch_take_fresh(struct sl_scratch *scratch, size_t bytes);

/* Returns `bytes` bytes, aligned to 16, undefined, valid until reset; NULL: out of memory. */
static inline void *sl_scratch_take(struct sl_scratch *scratch, size_t bytes)
{
    struct sl_scratch_chunk *chunk = scratch->chunks;
    size_t padded = (bytes + SL_SCRATCH_ALIGNMENT - 1) & ~(size_t)(SL_SCRATCH_ALIGNMENT - 1);
    if (chunk == NULL || padded < bytes || chunk->bytes - chunk->used < padded) {
        return sl_scratch_take_fresh(scratch, bytes);
    }
    void *piece = chunk->data + chunk->used;
    chunk->used += padded;
    return piece;
}

/* Shrinks the last piece to its first `bytes` bytes. */
void sl_scratch_trim(struct sl_scratch *scratch, const void *piece, size_t bytes);

/* Frees every piece. */
void sl_scratch_reset(struct sl_scratch *scratch);

#endif
