#include <string.h>

#include "tests/support/unit.h"
#include "worker/client/scratch.h"
#include "worker/client/send_arena.h"

#define UNIT SL_SEND_ARENA_UNIT_BYTES

static struct sl_send_arena *make(size_t units)
{
    struct sl_send_arena *memory = NULL;
    assert_int_equal(sl_send_arena_create(units * UNIT, &memory), 0);
    return memory;
}

static bool is_of(const struct sl_send_arena *memory, const void *at)
{
    const struct sl_shared *shared = sl_send_arena_shared(memory);
    uintptr_t offset = (uintptr_t)at - (uintptr_t)shared->base;
    return offset < shared->bytes;
}

SL_CASE(wire_memory_take__gives_whole_units_until_there_are_none)
{
    struct sl_send_arena *memory = make(4);
    size_t first_bytes, second_bytes, third_bytes = 1;
    uint8_t *first = sl_send_arena_take(memory, 1, &first_bytes);
    uint8_t *second = sl_send_arena_take(memory, UNIT + 1, &second_bytes);
    assert_int_equal(first_bytes, UNIT);
    assert_int_equal(second_bytes, 2 * UNIT);
    memset(first, 1, first_bytes);
    memset(second, 2, second_bytes);
    assert_int_equal(first[UNIT - 1], 1);
    assert_true(is_of(memory, first) && is_of(memory, second + second_bytes - 1));
    assert_null(sl_send_arena_take(memory, UNIT + 1, &third_bytes));
    assert_int_equal(third_bytes, 1);
    /* Two units are free, not in a row; then three are. */
    sl_send_arena_put(memory, first, first_bytes);
    assert_null(sl_send_arena_take(memory, 2 * UNIT, &third_bytes));
    sl_send_arena_put(memory, second, second_bytes);
    void *all = sl_send_arena_take(memory, 4 * UNIT, &third_bytes);
    assert_non_null(all);
    sl_send_arena_put(memory, all, third_bytes);
    assert_null(sl_send_arena_take(memory, SIZE_MAX, &third_bytes));
    sl_send_arena_destroy(&memory);
    assert_null(memory);
    sl_send_arena_destroy(&memory);
}

/* Steps of any size come and go: what they took is there again, and more than there is comes from
 * the heap. */
SL_CASE(scratch__takes_wire_memory_and_gives_it_back)
{
    struct sl_send_arena *memory = make(16);
    struct sl_scratch scratch = {.arena = memory};
    for (size_t round = 0; round < 50; round++) {
        for (size_t piece = 0; piece < 1 + round % 7; piece++) {
            size_t bytes = 1 + round * 3000;
            uint8_t *at = sl_scratch_take(&scratch, bytes);
            assert_non_null(at);
            assert_int_equal((uintptr_t)at % SL_SCRATCH_ALIGNMENT, 0);
            memset(at, (int)round, bytes);
            if (round < 2) {
                assert_true(is_of(memory, at));
            }
        }
        sl_scratch_reset(&scratch);
    }
    void *huge = sl_scratch_take(&scratch, 20 * UNIT);
    assert_non_null(huge);
    assert_false(is_of(memory, huge));
    sl_scratch_fini(&scratch);
    size_t bytes;
    void *all = sl_send_arena_take(memory, 16 * UNIT, &bytes);
    assert_non_null(all); /* nothing has leaked */
    sl_send_arena_put(memory, all, bytes);
    sl_send_arena_destroy(&memory);
}
