/* A thread that reads and prepares batches ahead of the one that computes on them. Batches come in
 * the order of the share, epoch after epoch, and do not depend on timing. The two threads hand
 * batches over through a ring of fixed size with counting semaphores; nothing else is shared.
 *
 * All functions but the thread's own: the trainer's thread. */
#ifndef SL_WORKER_TRAIN_LOADER_H
#define SL_WORKER_TRAIN_LOADER_H

#include "worker/train/batch.h"

#define SL_LOADER_BATCHES 6 /* four that the trainer may hold, two being made ahead of it */

struct sl_loader;

/* Why sl_loader_create fails. */
#define SL_LOADER_NO_THREAD "no memory, or the limit on threads is reached (ulimit -u, pids.max)"

/* Owns the reader from now on, also when it fails. batch_rows and epochs are at least 1. The first
 * `begin` batches, counted through all epochs, are read over. *out is owned by the caller. Errors:
 * NO_MEMORY, IO (no thread). */
int sl_loader_create(struct sl_reader *reader, uint32_t batch_rows, uint32_t epochs, uint32_t begin,
                     struct sl_loader **out);

/* Ends the thread, however far it is. All batches taken must not be used any more. */
void sl_loader_destroy(struct sl_loader **loader);

/* The next batch, of at least one row; waits for it. 1 with *batch set, 0 after the last, or the
 * reader's error, which stays. At most SL_LOADER_BATCHES may be held. */
int sl_loader_take(struct sl_loader *loader, struct sl_batch **batch);

/* Gives back the batch that was taken first of those held. */
void sl_loader_give(struct sl_loader *loader, struct sl_batch *batch);

/* Processor time of the loader's thread until it had made what was last taken. */
uint64_t sl_loader_processor_ns(const struct sl_loader *loader);

/* Why take has failed. */
const char *sl_loader_reason(const struct sl_loader *loader);

/* Bytes to read in all epochs together: what done_bytes of the last batch comes to. */
uint64_t sl_loader_bytes(const struct sl_loader *loader);

#endif
