/* The loader is a thread that reads and prepares batches ahead of the trainer. Batches follow the
 * order of the share, epoch after epoch, independent of timing. The threads exchange batches
 * through a fixed ring with counting semaphores and share nothing else. All functions: the
 * trainer's thread. */
#ifndef SL_PROGRAMS_TRAIN_LOADER_H
#define SL_PROGRAMS_TRAIN_LOADER_H

#include "programs/models/batch.h"
#include "programs/train/reader.h"

#define SL_LOADER_BATCHES 6 /* the trainer may hold four; two are prepared ahead */

struct sl_loader;

/* Reason of a failed sl_loader_create. */
#define SL_LOADER_NO_THREAD "no memory, or the limit on threads is reached (ulimit -u, pids.max)"

/* Owns the reader from now on, also on error. batch_rows and epochs are at least 1. Skips the first
 * `begin` batches, counted over all epochs. The caller owns *out. Errors: NO_MEMORY, IO (no
 * thread). */
int sl_loader_create(struct sl_reader *reader, uint32_t batch_rows, uint32_t epochs, uint32_t begin,
                     struct sl_loader **out);

/* Stops the thread at any point. No taken batch may still be in use. */
void sl_loader_destroy(struct sl_loader **loader);

/* Waits for the next batch, of at least one row. Returns 1 with *batch set, 0 after the last, or
 * the reader's error, again in later calls. At most SL_LOADER_BATCHES may be held. */
int sl_loader_take(struct sl_loader *loader, struct sl_batch **batch);

/* Returns the batch that was taken first of those held. */
void sl_loader_give(struct sl_loader *loader, struct sl_batch *batch);

/* CPU time of the loader's thread until it finished the batch taken last. */
uint64_t sl_loader_processor_ns(const struct sl_loader *loader);

/* Returns why sl_loader_take failed. */
const char *sl_loader_reason(const struct sl_loader *loader);

/* Bytes of all epochs together: done_bytes of the last batch. */
uint64_t sl_loader_bytes(const struct sl_loader *loader);

#endif
