/* Memory of one step: taken piece by piece, given back all at once. It keeps what it has across
 * resets and joins it into one chunk, so that steps of a steady size allocate nothing. Used by one
 * thread at a time; read by others while they were told to. */
#ifndef SL_WORKER_SCRATCH_H
#define SL_WORKER_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#define SL_SCRATCH_ALIGNMENT 16U

struct sl_send_arena;

struct sl_scratch_chunk {
    struct sl_scratch_chunk *next;
    size_t bytes, used; /* of data */
    size_t wire_bytes;  /* of wire memory that it is; 0: it is from the heap */
    _Alignas(SL_SCRATCH_ALIGNMENT) uint8_t data[];
};

struct sl_scratch {
    struct sl_scratch_chunk *chunks; /* the first is the one being filled */
    struct sl_send_arena *memory;    /* what chunks are, as far as it goes; NULL: the heap */
};

/* A struct sl_scratch that is zeroed, but for `memory`, is empty and ready. Frees everything. */
void sl_scratch_fini(struct sl_scratch *scratch);

/* What take does when the chunk being filled has no room. */
void *sl_scratch_take_fresh(struct sl_scratch *scratch, size_t bytes);

/* `bytes` bytes, aligned to 16, contents undefined, valid until reset; NULL: out of memory. */
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

/* Shrinks the piece that was taken last to its first `bytes` bytes. */
void sl_scratch_trim(struct sl_scratch *scratch, const void *piece, size_t bytes);

/* Takes every piece back. */
void sl_scratch_reset(struct sl_scratch *scratch);

#endif
