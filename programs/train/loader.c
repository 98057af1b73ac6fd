#include "programs/train/loader.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/thread.h"
#include "programs/train/cpu_time.h"

#define PASS_ROWS 1024 /* between two checks of `stop` */

struct slot {
    struct sl_batch batch;
    int result;            /* 1: a batch; 0: the end; or an error */
    uint64_t processor_ns; /* of the thread, when the batch was ready */
};

struct sl_loader {
    struct sl_reader *reader;
    struct sl_key_index set;
    uint32_t batch_rows, epochs, begin;
    struct slot slots[SL_LOADER_BATCHES];
    sem_t empty, full; /* slots for the thread to fill; for the trainer to take */
    sem_t stop;        /* nonzero: the thread must end */
    uint64_t taken, given;
    uint64_t processor_ns; /* of the slot taken last */
    char reason[640];      /* written by the thread before it posts the failed slot */
    pthread_t thread;
    bool started;
};

static void semaphore_wait(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
        sl_assert(errno == EINTR);
    }
}

static int loader_fail(struct sl_loader *loader, int err, const char *text)
{
    (void)snprintf(loader->reason, sizeof loader->reason, "%s", text);
    return err;
}

/* The thread's position: the next batch. */
struct place {
    uint32_t epoch, index; /* the index-th batch of the epoch, both from 0 */
};

static void next_epoch(struct sl_loader *loader, struct place *place)
{
    sl_reader_rewind(loader->reader);
    place->epoch++;
    place->index = 0;
}

/* Skips up to `count` batches of the epoch. Returns how many there were, or an error. */
static int64_t pass_batches(struct sl_loader *loader, uint32_t count)
{
    const struct sl_reader_row *row;
    uint64_t rows = 0;
    const uint64_t rows_max = (uint64_t)count * loader->batch_rows;
    int got = 1;
    while (rows < rows_max && (got = sl_reader_next(loader->reader, &row)) == 1) {
        rows++;
        int stops = 0;
        if (rows % PASS_ROWS == 0 && sem_getvalue(&loader->stop, &stops) == 0 && stops > 0) {
            return SL_ERR_CANCELLED; /* the loader is being destroyed */
        }
    }
    if (got < 0) {
        return loader_fail(loader, got, sl_reader_reason(loader->reader));
    }
    return (int64_t)((rows + loader->batch_rows - 1) / loader->batch_rows);
}

/* Moves to batch loader->begin, counted over all epochs. The first epoch read to its end gives the
 * number of batches of each. Errors with the reason. */
static int go_to_begin(struct sl_loader *loader, struct place *place)
{
    uint32_t left = loader->begin;
    while (left > 0 && place->epoch < loader->epochs) {
        int64_t passed = pass_batches(loader, left);
        if (passed < 0) {
            return (int)passed;
        }
        left -= (uint32_t)passed;
        place->index = (uint32_t)passed;
        if (left > 0) {
            next_epoch(loader, place);
            uint32_t epochs_left = loader->epochs - place->epoch;
            uint32_t whole = passed == 0 ? epochs_left : left / (uint32_t)passed;
            whole = whole > epochs_left ? epochs_left : whole;
            left -= whole * (uint32_t)passed;
            place->epoch += whole;
        }
    }
    return 0;
}

/* Fills one batch. Returns 1, 0 if the epoch has no row left, or an error. */
static int fill(struct sl_loader *loader, struct place *place, struct sl_batch *batch)
{
    const struct sl_reader_row *row;
    int got = 1;
    sl_batch_clear(batch, &loader->set);
    while (batch->row_count < loader->batch_rows &&
           (got = sl_reader_next(loader->reader, &row)) == 1) {
        int err = sl_batch_add(batch, &loader->set, row);
        if (err != 0) {
            return loader_fail(loader, err,
                               err == SL_ERR_TOO_LARGE
                                   ? "a batch has more than 2^31 features: choose a smaller "
                                     "--batch-size"
                                   : "no memory for a batch: choose a smaller --batch-size");
        }
    }
    if (got < 0) {
        return loader_fail(loader, got, sl_reader_reason(loader->reader));
    }
    batch->epoch = place->epoch;
    batch->index = place->index++;
    batch->done_bytes =
        sl_reader_share_bytes(loader->reader) * place->epoch + sl_reader_done_bytes(loader->reader);
    return batch->row_count > 0 ? 1 : 0;
}

/* The same, continuing with later epochs. Returns 0 if no epoch has a row left. */
static int fill_any(struct sl_loader *loader, struct place *place, struct sl_batch *batch)
{
    int result = 0;
    while (place->epoch < loader->epochs && (result = fill(loader, place, batch)) == 0) {
        next_epoch(loader, place);
    }
    return result;
}

static void *loader_run(void *ctx)
{
    struct sl_loader *loader = ctx;
    struct place place = {0};
    uint32_t at = 0;
    int begun = go_to_begin(loader, &place);
    int result = 1;
    while (result > 0) {
        semaphore_wait(&loader->empty);
        if (sem_trywait(&loader->stop) == 0) {
            break;
        }
        result = begun != 0 ? begun : fill_any(loader, &place, &loader->slots[at].batch);
        loader->slots[at].result = result;
        loader->slots[at].processor_ns = sl_cpu_time_ns(CLOCK_THREAD_CPUTIME_ID);
        at = (at + 1) % SL_LOADER_BATCHES;
        (void)sem_post(&loader->full);
    }
    return NULL;
}

static int start_thread(struct sl_loader *loader)
{
    loader->started = sl_thread_start(&loader->thread, NULL, loader_run, loader) == 0;
    return loader->started ? 0 : SL_ERR_IO;
}

int sl_loader_create(struct sl_reader *reader, uint32_t batch_rows, uint32_t epochs, uint32_t begin,
                     struct sl_loader **out)
{
    sl_assert(batch_rows > 0);
    sl_assert(epochs > 0);
    struct sl_loader *loader = calloc(1, sizeof *loader);
    if (loader == NULL) {
        sl_reader_close(&reader);
        return SL_ERR_NO_MEMORY;
    }
    loader->reader = reader;
    loader->batch_rows = batch_rows;
    loader->epochs = epochs;
    loader->begin = begin;
    (void)sem_init(&loader->empty, 0, SL_LOADER_BATCHES);
    (void)sem_init(&loader->full, 0, 0);
    (void)sem_init(&loader->stop, 0, 0);
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < SL_LOADER_BATCHES; i++) {
        err = sl_batch_init(&loader->slots[i].batch, batch_rows);
    }
    err = err != 0 ? err : start_thread(loader);
    if (err != 0) {
        sl_loader_destroy(&loader);
        return err;
    }
    *out = loader;
    return 0;
}

void sl_loader_destroy(struct sl_loader **loader_)
{
    struct sl_loader *loader = *loader_;
    if (loader == NULL) {
        return;
    }
    if (loader->started) {
        (void)sem_post(&loader->stop);
        (void)sem_post(&loader->empty);
        (void)pthread_join(loader->thread, NULL);
    }
    for (uint32_t i = 0; i < SL_LOADER_BATCHES; i++) {
        sl_batch_fini(&loader->slots[i].batch);
    }
    sl_key_index_fini(&loader->set);
    sl_reader_close(&loader->reader);
    (void)sem_destroy(&loader->empty);
    (void)sem_destroy(&loader->full);
    (void)sem_destroy(&loader->stop);
    free(loader);
    *loader_ = NULL;
}

int sl_loader_take(struct sl_loader *loader, struct sl_batch **batch)
{
    sl_assert(loader->taken - loader->given < SL_LOADER_BATCHES);
    struct slot *slot = &loader->slots[loader->taken % SL_LOADER_BATCHES];
    semaphore_wait(&loader->full);
    loader->processor_ns = slot->processor_ns;
    if (slot->result <= 0) {
        (void)sem_post(&loader->full); /* the next call returns the same */
        return slot->result;
    }
    loader->taken++;
    *batch = &slot->batch;
    return 1;
}

void sl_loader_give(struct sl_loader *loader, struct sl_batch *batch)
{
    sl_assert(loader->given < loader->taken);
    sl_assert(batch == &loader->slots[loader->given % SL_LOADER_BATCHES].batch);
    loader->given++;
    (void)sem_post(&loader->empty);
}

uint64_t sl_loader_processor_ns(const struct sl_loader *loader)
{
    return loader->processor_ns;
}

const char *sl_loader_reason(const struct sl_loader *loader)
{
    return loader->reason;
}

uint64_t sl_loader_bytes(const struct sl_loader *loader)
{
    return sl_reader_share_bytes(loader->reader) * loader->epochs;
}
