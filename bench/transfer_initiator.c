/* The threads of an initiator. Request i of thread t uses block i x threads + t of the buffers. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/now.h"
#include "bench/transfer.h"
#include "core/log.h"

#define OPEN_TIMEOUT_MS 30000

/* Requests of the thread that writes beside the others: the second half of the buffers. */
#define BULK_REQUESTS   4U
#define BULK_BYTES      (16ULL << 20)

/* Of all threads. */
struct run {
    const struct sl_bench_transfer_options *options;
    const struct sl_bench_transfer_engine *engine;
    struct sl_transfer_segment *segment;
    struct sl_transfer_buffer remote[SL_BENCH_TRANSFER_NODES_MAX];
    uint32_t remote_count;
    bool prints;
    uint64_t until_ns;
    pthread_mutex_t lock;
    int err; /* the first, under the lock; ends all threads */
};

struct thread {
    struct run *run;
    pthread_t id;
    bool started;
    uint32_t index;
    struct sl_transfer_batch *batch;
    struct sl_transfer_request *requests; /* [request_count] */
    uint32_t request_count;
    uint64_t batches, wrong_bytes;
    struct sl_metric_histogram latency; /* ns, of batches */
};

static void fill_requests(struct thread *thread, enum sl_transfer_op op, uint64_t local_shift)
{
    const struct run *run = thread->run;
    const struct sl_bench_transfer_options *options = run->options;
    uint8_t *local = run->engine->buffers[thread->index % run->engine->count];
    const uint64_t remote = run->remote[thread->index % run->remote_count].address;
    for (uint64_t i = 0; i < thread->request_count; i++) {
        const uint64_t at = (i * options->threads + thread->index) * options->block_size;
        thread->requests[i] = (struct sl_transfer_request){
            .op = op,
            .local = local + local_shift + at,
            .segment = run->segment,
            .remote = remote + at,
            .bytes = options->block_size,
        };
    }
}

/* Logs the first failed request. */
static void log_failure(struct thread *thread, int err)
{
    for (uint32_t i = 0; i < thread->request_count; i++) {
        const char *text = sl_transfer_batch_error(thread->batch, i);
        if (text[0] != '\0') {
            sl_log_error("%s", text);
            return;
        }
    }
    sl_log_error("batch: %s: %s", sl_err_name(err), sl_transfer_last_error());
}

static void fail(struct run *run, int err, struct thread *thread)
{
    (void)pthread_mutex_lock(&run->lock);
    const bool is_first = run->err == 0;
    run->err = is_first ? err : run->err;
    (void)pthread_mutex_unlock(&run->lock);
    if (is_first && thread != NULL) {
        log_failure(thread, err);
    }
}

static bool has_failed(struct run *run)
{
    (void)pthread_mutex_lock(&run->lock);
    const bool failed = run->err != 0;
    (void)pthread_mutex_unlock(&run->lock);
    return failed;
}

static int move_batch(struct thread *thread)
{
    const struct sl_bench_transfer_options *options = thread->run->options;
    const uint64_t begin_ns = sl_bench_now_ns();
    int err = sl_transfer_batch_submit(thread->batch, thread->requests, thread->request_count,
                                       (uint32_t)(options->timeout_ns / SL_CLOCK_NS_PER_MS), NULL);
    err = err != 0 ? err : sl_transfer_batch_wait(thread->batch);
    if (err == 0) {
        thread->batches++;
        sl_metric_record(&thread->latency, sl_bench_now_ns() - begin_ns);
    } else {
        fail(thread->run, err, thread);
    }
    return err;
}

/* ---- Verification ---------------------------------------------------------------------------- */

/* The byte at this place of the remote buffer after this round. */
static uint8_t byte_at(uint64_t place, uint64_t round)
{
    const uint64_t mixed = (place + round * 0x9e3779b97f4a7c15ULL) * 0xbf58476d1ce4e5b9ULL;
    return (uint8_t)(mixed >> 56);
}

static void fill_block(uint8_t *block, uint64_t place, uint64_t bytes, uint64_t round)
{
    for (uint64_t i = 0; i < bytes; i++) {
        block[i] = byte_at(place + i, round);
    }
}

static uint64_t count_wrong(const uint8_t *block, uint64_t place, uint64_t bytes, uint64_t round)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        wrong += block[i] != byte_at(place + i, round);
    }
    return wrong;
}

/* Writes the thread's blocks and reads them back into the second half of the local buffer. */
static int verify_once(struct thread *thread, uint64_t round)
{
    const struct sl_bench_transfer_options *options = thread->run->options;
    const uint64_t bytes = options->block_size;
    fill_requests(thread, SL_TRANSFER_WRITE, 0);
    for (uint64_t i = 0; i < options->batch_size; i++) {
        fill_block(thread->requests[i].local, thread->requests[i].remote, bytes, round);
    }
    int err = move_batch(thread);
    fill_requests(thread, SL_TRANSFER_READ, options->buffer_size);
    for (uint64_t i = 0; err == 0 && i < options->batch_size; i++) {
        memset(thread->requests[i].local, 0, bytes);
    }
    err = err != 0 ? err : move_batch(thread);
    for (uint64_t i = 0; err == 0 && i < options->batch_size; i++) {
        thread->wrong_bytes +=
            count_wrong(thread->requests[i].local, thread->requests[i].remote, bytes, round);
    }
    return err;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *run_thread(void *ctx)
{
    struct thread *thread = ctx;
    struct run *run = thread->run;
    int err = 0;
    fill_requests(thread, (enum sl_transfer_op)run->options->operation, 0);
    for (uint64_t round = 1; err == 0 && !has_failed(run); round++) {
        err = run->options->verify ? verify_once(thread, round) : move_batch(thread);
        if (sl_bench_now_ns() >= run->until_ns) {
            break;
        }
    }
    if (run->prints) {
        printf("Worker %u stopped!\n", thread->index);
    }
    return NULL;
}

static void *run_bulk(void *ctx)
{
    struct thread *thread = ctx;
    struct run *run = thread->run;
    for (uint32_t i = 0; i < BULK_REQUESTS; i++) {
        const uint64_t at = (BULK_REQUESTS + i) * BULK_BYTES;
        thread->requests[i] = (struct sl_transfer_request){
            .op = SL_TRANSFER_WRITE,
            .local = run->engine->buffers[0] + at,
            .segment = run->segment,
            .remote = run->remote[0].address + at,
            .bytes = BULK_BYTES,
        };
    }
    while (sl_bench_now_ns() < run->until_ns && !has_failed(run) && move_batch(thread) == 0) {
    }
    return NULL;
}

static int start_thread(struct thread *thread, struct run *run, void *(*body)(void *ctx),
                        uint32_t index, uint32_t request_count)
{
    *thread = (struct thread){.run = run, .index = index, .request_count = request_count};
    sl_metric_init(&thread->latency);
    thread->requests = calloc(request_count, sizeof *thread->requests);
    if (thread->requests == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    const int err = sl_transfer_batch_create(run->engine->transfer, request_count, &thread->batch);
    if (err != 0) {
        sl_log_error("%s: %s", sl_err_name(err), sl_transfer_last_error());
        return err;
    }
    thread->started = pthread_create(&thread->id, NULL, body, thread) == 0;
    return thread->started ? 0 : SL_ERR_NO_MEMORY;
}

static void end_thread(struct thread *thread)
{
    if (thread->started) {
        (void)pthread_join(thread->id, NULL);
    }
    if (thread->batch != NULL) {
        sl_transfer_batch_free(&thread->batch);
    }
    free(thread->requests);
}

static int run_threads(struct run *run, struct sl_bench_transfer_moved *moved)
{
    const struct sl_bench_transfer_options *options = run->options;
    struct thread *threads = calloc(options->threads + 1, sizeof *threads);
    struct thread *bulk = &threads[options->threads];
    if (threads == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    const uint64_t begin_ns = sl_bench_now_ns();
    run->until_ns = begin_ns + sl_bench_ns(options->duration);
    int err = options->has_bulk ? start_thread(bulk, run, run_bulk, 0, BULK_REQUESTS) : 0;
    for (uint32_t i = 0; err == 0 && i < options->threads; i++) {
        err = start_thread(&threads[i], run, run_thread, i, (uint32_t)options->batch_size);
    }
    if (err != 0) {
        fail(run, err, NULL);
    }
    *moved = (struct sl_bench_transfer_moved){0};
    sl_metric_init(&moved->latency);
    for (uint32_t i = 0; i < options->threads; i++) {
        end_thread(&threads[i]);
        moved->batches += threads[i].batches;
        moved->wrong_bytes += threads[i].wrong_bytes;
        moved->seconds = sl_bench_seconds(sl_bench_now_ns() - begin_ns);
        sl_metric_merge(&moved->latency, &threads[i].latency);
    }
    end_thread(bulk);
    moved->bulk_bytes = bulk->batches * BULK_REQUESTS * BULK_BYTES;
    free(threads);
    moved->bytes = moved->batches * options->batch_size * options->block_size;
    return run->err;
}

/* The target's buffers are as large as this side's options ask for. */
static int check_remote(struct run *run, const char *segment_id)
{
    int err = sl_transfer_segment_buffers(run->segment, run->remote, SL_BENCH_TRANSFER_NODES_MAX,
                                          &run->remote_count);
    if (err == 0 && run->remote_count == 0) {
        sl_log_error("%s has no registered memory", segment_id);
        err = SL_ERR_NOT_FOUND;
    }
    run->remote_count = run->remote_count < SL_BENCH_TRANSFER_NODES_MAX
                            ? run->remote_count
                            : SL_BENCH_TRANSFER_NODES_MAX;
    const uint64_t blocks =
        run->options->threads * run->options->batch_size * run->options->block_size;
    const uint64_t needed = run->options->has_bulk ? 2 * BULK_REQUESTS * BULK_BYTES : blocks;
    for (uint32_t i = 0; err == 0 && i < run->remote_count; i++) {
        if (run->remote[i].bytes < needed) {
            sl_log_error("%s has a buffer of %" PRIu64 " bytes; threads x batch_size x block_size "
                         "is %" PRIu64,
                         segment_id, run->remote[i].bytes, needed);
            err = SL_ERR_INVALID;
        }
    }
    return err;
}

static void print_rails(const struct run *run)
{
    struct sl_transfer_info info;
    if (sl_transfer_segment_info(run->segment, &info) != 0) {
        return;
    }
    for (uint32_t i = 0; i < info.rail_count; i++) {
        const struct sl_transfer_rail *rail = &info.rails[i];
        printf("Rail %s: %" PRIu64 " bytes read, %" PRIu64 " written\n", rail->remote,
               rail->bytes_read, rail->bytes_written);
    }
}

int sl_bench_transfer_initiate(struct sl_bench_transfer_engine *engine,
                               const struct sl_bench_transfer_options *options,
                               const char *segment_id, bool prints,
                               struct sl_bench_transfer_moved *moved)
{
    struct run run = {
        .options = options, .engine = engine, .prints = prints, .lock = PTHREAD_MUTEX_INITIALIZER};
    int err = sl_transfer_segment_open(engine->transfer, segment_id, OPEN_TIMEOUT_MS, &run.segment);
    if (err != 0) {
        sl_log_error("%s: %s", sl_err_name(err), sl_transfer_last_error());
        return err;
    }
    if (prints) {
        sl_log_info("%s is open: %" PRIu64 " thread%s blocks for %g s", segment_id,
                    options->threads, options->threads == 1 ? " moves" : "s move",
                    options->duration);
    }
    err = check_remote(&run, segment_id);
    err = err != 0 ? err : run_threads(&run, moved);
    if (prints && options->verify) {
        print_rails(&run);
    }
    sl_transfer_segment_close(&run.segment);
    return err;
}
