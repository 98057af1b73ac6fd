#include <string.h>

#include "bench/bare.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "core/arena_pages.h"
#include "core/assert.h"
#include "core/log.h"
#include "core/shared.h"

#define BYTES_A_LOOK    (1U << 20) /* copied between two looks at the clock, or one piece */
#define PIECE_BYTES_MIN 64
#define PIECE_BYTES_MAX (1ULL << 30)
#define PIECES_MAX      4096

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

/* Bytes per second. */
static double measure(const struct sl_bench_bare_memory *options,
                      const struct sl_bench_common *common, uint8_t *to, const uint8_t *from)
{
    const struct sl_clock *clock = sl_clock_system();
    const uint64_t times = options->bytes < BYTES_A_LOOK ? BYTES_A_LOOK / options->bytes : 1;
    const uint64_t warm_until_ns = sl_clock_now_ns(clock) + sl_bench_ns(common->warm_up);
    const uint64_t lasts_ns = sl_bench_ns(common->seconds);
    uint64_t first_ns = 0;
    uint64_t looks = 0;
    uint32_t piece = 0;
    for (;;) {
        const uint64_t now_ns = sl_clock_now_ns(clock);
        if (looks > 0 && now_ns - first_ns >= lasts_ns) {
            return (double)(looks * times * options->bytes) * 1e9 / (double)(now_ns - first_ns);
        }
        if (first_ns == 0 && now_ns >= warm_until_ns) {
            first_ns = now_ns;
        }
        copy(options, to, from, times, &piece);
        looks += first_ns != 0;
    }
}

int sl_bench_bare_memory_run(const struct sl_bench_bare_memory *options,
                             const struct sl_bench_common *common, double *bytes_per_s)
{
    sl_assert(options->bytes >= PIECE_BYTES_MIN);
    sl_assert(options->bytes <= PIECE_BYTES_MAX);
    sl_assert(options->pieces >= 1);
    sl_assert(options->pieces <= PIECES_MAX);
    const size_t huge = SL_ARENA_HUGE_PAGE_BYTES;
    const size_t side = options->bytes * options->pieces;
    const size_t bytes = (2 * side + huge - 1) / huge * huge;
    cpu_set_t before;
    int err = sl_bench_pin_begin(common->server_core, &before);
    if (err != 0) {
        return err;
    }
    struct sl_shared shared = {0};
    uint8_t *memory = NULL;
    if (!options->is_shared) {
        memory = sl_arena_pages_map(bytes, true);
    } else if (sl_shared_create("memcpy", bytes, SL_SHARED_WRITE, &shared) == 0) {
        memory = shared.base;
    }
    if (memory == NULL) {
        sl_log_error("baseline: no memory");
        err = SL_ERR_NO_MEMORY;
    } else {
        memset(memory, 1, bytes);
        *bytes_per_s = measure(options, common, memory + side, memory);
    }
    if (options->is_shared) {
        sl_shared_destroy(&shared);
    } else if (memory != NULL) {
        sl_arena_pages_unmap(memory, bytes);
    }
    sl_bench_pin_end(&before);
    return err;
}
