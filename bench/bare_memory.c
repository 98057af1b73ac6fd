#include <pthread.h>
#include <string.h>

#include "bench/bare.h"
#include "bench/bare_pin.h"
#include "core/arena_pages.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define THREADS_MAX     2
#define BYTES_A_LOOK    (1U << 20) /* copied between two looks at the clock, or one piece */
#define PIECE_BYTES_MIN 64
#define PIECE_BYTES_MAX (1ULL << 30)
#define PIECES_MAX      4096

struct copier {
    const struct sl_bench_bare_memory *options;
    uint64_t warm_until_ns, lasts_ns;
    int core;
    int err;
    double bytes_per_s;
};

/* Hidden from the compiler, which would not copy the same bytes twice. *piece is where it goes on.
 */
static void copy(const struct sl_bench_bare_memory *options, uint8_t *to, const uint8_t *from,
                 uint64_t times, uint32_t *piece)
{
    for (uint64_t i = 0; i < times; i++) {
        const size_t at = *piece * (size_t)options->bytes;
        memcpy(to + at, from + at, options->bytes);
        __asm__ volatile("" : : "r"(to), "r"(from) : "memory");
        *piece = *piece + 1 == options->pieces ? 0 : *piece + 1;
    }
}

static void measure(struct copier *copier, uint8_t *to, const uint8_t *from)
{
    const struct sl_clock *clock = sl_clock_system();
    const size_t bytes = copier->options->bytes;
    uint32_t piece = 0;
    const uint64_t times = bytes < BYTES_A_LOOK ? BYTES_A_LOOK / bytes : 1;
    uint64_t first_ns = 0;
    uint64_t looks = 0;
    for (;;) {
        const uint64_t now_ns = sl_clock_now_ns(clock);
        if (looks > 0 && now_ns - first_ns >= copier->lasts_ns) {
            copier->bytes_per_s =
                (double)(looks * times * bytes) * 1e9 / (double)(now_ns - first_ns);
            return;
        }
        if (first_ns == 0 && now_ns >= copier->warm_until_ns) {
            first_ns = now_ns;
        }
        copy(copier->options, to, from, times, &piece);
        looks += first_ns != 0;
    }
}

static void *run(void *argument)
{
    struct copier *copier = argument;
    const size_t huge = SL_ARENA_HUGE_PAGE_BYTES;
    const size_t side = copier->options->bytes * copier->options->pieces;
    const size_t bytes = (2 * side + huge - 1) / huge * huge;
    copier->err = sl_bench_bare_pin_thread(copier->core);
    if (copier->err != 0) {
        return NULL;
    }
    uint8_t *memory = sl_arena_pages_map(bytes, true);
    if (memory == NULL) {
        sl_log_error("baseline: no memory");
        copier->err = SL_ERR_NO_MEMORY;
        return NULL;
    }
    memset(memory, 1, bytes);
    measure(copier, memory + side, memory);
    sl_arena_pages_unmap(memory, bytes);
    return NULL;
}

int sl_bench_bare_memory_run(const struct sl_bench_bare_memory *options,
                             const struct sl_bench_common *common, double *bytes_per_s)
{
    sl_assert(options->bytes >= PIECE_BYTES_MIN);
    sl_assert(options->bytes <= PIECE_BYTES_MAX);
    sl_assert(options->pieces >= 1);
    sl_assert(options->pieces <= PIECES_MAX);
    sl_assert(options->threads >= 1);
    sl_assert(options->threads <= THREADS_MAX);
    struct copier copiers[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    uint32_t started = 0;
    int err = 0;
    for (; started < options->threads && err == 0; started += err == 0) {
        copiers[started] = (struct copier){
            .options = options,
            .warm_until_ns = now_ns + (uint64_t)(common->warm_up * 1e9),
            .lasts_ns = (uint64_t)(common->seconds * 1e9),
            .core = started == 0 ? common->server_core : common->client_core,
        };
        if (pthread_create(&threads[started], NULL, run, &copiers[started]) != 0) {
            sl_log_error("baseline: no thread can be started");
            err = SL_ERR_NO_MEMORY;
        }
    }
    double sum = 0;
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
        err = err != 0 ? err : copiers[i].err;
        sum += copiers[i].bytes_per_s;
    }
    if (err == 0) {
        *bytes_per_s = sum;
    }
    return err;
}
