/* Memory of one step: taken piece by piece, given back all at once. It keeps what it has across
 * resets and joins it into one chunk, so that steps of a steady size allocate nothing. Used by one
 * thread at a time. */
#ifndef SL_WORKER_SCRATCH_H
#define SL_WORKER_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

struct sl_scratch_chunk;

struct sl_scratch {
    struct sl_scratch_chunk *chunks; /* the first is the one being filled */
};

/* A zeroed struct sl_scratch is empty and ready. Frees everything. */
void sl_scratch_fini(struct sl_scratch *scratch);

/* `bytes` bytes, aligned to 16, contents undefined, valid until reset; NULL: out of memory. */
void *sl_scratch_take(struct sl_scratch *scratch, size_t bytes);

/* Shrinks the piece that was taken last to its first `bytes` bytes. */
void sl_scratch_trim(struct sl_scratch *scratch, const void *piece, size_t bytes);

/* Takes every piece back. */
void sl_scratch_reset(struct sl_scratch *scratch);

#endif
