/* A ring of whole cache lines with one writer and one reader, each of which keeps what it last saw
 * of the other's place, so that a line of places moves between the cores once for many messages. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bare.h"
#include "bench/bare_pin.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define SLOTS        1024U
#define BATCH_MAX    64U
#define LINE         64
#define TURNS_A_LOOK 1024U      /* at the clock */
#define NUMBER_LAST  UINT64_MAX /* of the message that ends all */

struct message {
    _Alignas(LINE) uint64_t number;
    uint8_t rest[LINE - sizeof(uint64_t)];
};

struct ring {
    _Alignas(LINE) _Atomic uint64_t written; /* messages made known so far */
    uint64_t read_seen;                      /* the writer's view of `read` */
    _Alignas(LINE) _Atomic uint64_t read;
    uint64_t written_seen; /* the reader's view of `written` */
    struct message slots[SLOTS];
};

struct pair {
    struct ring there, back;
    uint32_t batch;
    bool answers; /* the reader sends each message back */
    int reader_core;
    int err; /* of the reader */
};

/* ---- The ring -------------------------------------------------------------------------------- */

/* Waits for room for `count`. */
static void put(struct ring *ring, const struct message *message, uint32_t count)
{
    const uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    while (at + count - ring->read_seen > SLOTS) {
        ring->read_seen = atomic_load_explicit(&ring->read, memory_order_acquire);
    }
    for (uint32_t i = 0; i < count; i++) {
        ring->slots[(at + i) % SLOTS] = message[i];
    }
    atomic_store_explicit(&ring->written, at + count, memory_order_release);
}

/* Waits for a message; takes up to `most` of those that are there. */
static uint32_t take(struct ring *ring, struct message *messages, uint32_t most)
{
    const uint64_t at = atomic_load_explicit(&ring->read, memory_order_relaxed);
    while (at == ring->written_seen) {
        ring->written_seen = atomic_load_explicit(&ring->written, memory_order_acquire);
    }
    const uint64_t there = ring->written_seen - at;
    const uint32_t count = there < most ? (uint32_t)there : most;
    for (uint32_t i = 0; i < count; i++) {
        messages[i] = ring->slots[(at + i) % SLOTS];
    }
    atomic_store_explicit(&ring->read, at + count, memory_order_release);
    return count;
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* A reader that cannot run where it should reads all the same, since the writer waits for it. */
static void *read_all(void *argument)
{
    struct pair *pair = argument;
    struct message messages[BATCH_MAX];
    pair->err = sl_bench_bare_pin_thread(pair->reader_core);
    for (;;) {
        const uint32_t count = take(&pair->there, messages, pair->batch);
        __asm__ volatile("" : : "r"(messages) : "memory");
        if (messages[count - 1].number == NUMBER_LAST) {
            return NULL;
        }
        if (pair->answers) {
            put(&pair->back, messages, count);
        }
    }
}

static void turn(struct pair *pair, struct message *messages)
{
    put(&pair->there, messages, pair->batch);
    if (pair->answers) {
        (void)take(&pair->back, messages, 1);
    }
}

/* ns of a turn, of those that began after the warm-up. */
static double write_all(struct pair *pair, const struct sl_bench_common *common)
{
    const struct sl_clock *clock = sl_clock_system();
    const uint64_t warm_until_ns = sl_clock_now_ns(clock) + (uint64_t)(common->warm_up * 1e9);
    const uint64_t lasts_ns = (uint64_t)(common->seconds * 1e9);
    struct message messages[BATCH_MAX] = {0};
    uint64_t first_ns = 0;
    uint64_t looks = 0;
    double ns = 0;
    while (ns == 0) {
        const uint64_t now_ns = sl_clock_now_ns(clock);
        if (first_ns == 0 && now_ns >= warm_until_ns) {
            first_ns = now_ns;
        } else if (looks > 0 && now_ns - first_ns >= lasts_ns) {
            ns = (double)(now_ns - first_ns) / ((double)looks * TURNS_A_LOOK);
        }
        for (uint32_t i = 0; i < TURNS_A_LOOK; i++) {
            turn(pair, messages);
        }
        looks += first_ns != 0;
    }
    const struct message last = {.number = NUMBER_LAST};
    put(&pair->there, &last, 1);
    return ns;
}

static int run(uint32_t batch, bool answers, const struct sl_bench_common *common, double *ns)
{
    struct pair *pair = aligned_alloc(LINE, sizeof *pair);
    struct sl_bench_bare_pin pin;
    pthread_t reader;
    if (pair == NULL) {
        sl_log_error("baseline: no memory");
        return SL_ERR_NO_MEMORY;
    }
    memset(pair, 0, sizeof *pair);
    pair->batch = batch;
    pair->answers = answers;
    pair->reader_core = common->client_core;
    int err = sl_bench_bare_pin_begin(&pin, common->server_core);
    if (err == 0 && pthread_create(&reader, NULL, read_all, pair) != 0) {
        sl_log_error("baseline: no thread can be started");
        err = SL_ERR_NO_MEMORY;
    } else if (err == 0) {
        *ns = write_all(pair, common);
        (void)pthread_join(reader, NULL);
        err = pair->err;
    }
    sl_bench_bare_pin_end(&pin);
    free(pair);
    return err;
}

int sl_bench_bare_spsc_run(uint32_t batch, const struct sl_bench_common *common,
                           double *messages_per_s)
{
    sl_assert(batch >= 1);
    sl_assert(batch <= BATCH_MAX);
    double ns = 0;
    int err = run(batch, false, common, &ns);
    if (err == 0) {
        *messages_per_s = batch * 1e9 / ns;
    }
    return err;
}

int sl_bench_bare_spsc_round_trip(const struct sl_bench_common *common, double *ns)
{
    return run(1, true, common, ns);
}
