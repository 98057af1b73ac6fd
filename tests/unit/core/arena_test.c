#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "core/arena.h"

#define MIB ((size_t)1 << 20)

static void assert_zeroed(const uint8_t *chunk, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 512) {
        assert_int_equal(chunk[i], 0);
    }
    assert_int_equal(chunk[bytes - 1], 0);
}

static void arena_map__huge_chunks_are_aligned_zeroed_and_writable(void **state)
{
    (void)state;
    struct sl_arena arena;
    sl_arena_init(&arena, 4 * MIB, 0, true);
    for (size_t i = 1; i <= 3; i++) {
        uint8_t *chunk = sl_arena_map(&arena);
        assert_non_null(chunk);
        assert_int_equal((uintptr_t)chunk % (2 * MIB), 0);
        assert_zeroed(chunk, 4 * MIB);
        chunk[0] = chunk[4 * MIB - 1] = 1;
        assert_int_equal(arena.mapped_bytes, i * 4 * MIB);
    }
    sl_arena_fini(&arena);
    assert_int_equal(arena.mapped_bytes, 0);
    assert_null(arena.chunks);
}

static void arena_map__ordinary_chunks_are_of_whole_pages(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct sl_arena arena;
    sl_arena_init(&arena, page + 1, 0, false);
    assert_int_equal(arena.chunk_bytes, 2 * page);
    uint8_t *chunk = sl_arena_map(&arena);
    assert_non_null(chunk);
    assert_int_equal((uintptr_t)chunk % page, 0);
    assert_zeroed(chunk, 2 * page);
    sl_arena_fini(&arena);
}

static void arena_init__huge_rounds_up_to_huge_pages(void **state)
{
    (void)state;
    struct sl_arena arena;
    sl_arena_init(&arena, 2 * MIB + 1, 0, true);
    assert_int_equal(arena.chunk_bytes, 4 * MIB);
    sl_arena_fini(&arena);
}

static void arena_map__stops_at_the_limit(void **state)
{
    (void)state;
    struct sl_arena arena;
    /* Two chunks and a half: the third would pass the limit. */
    sl_arena_init(&arena, 2 * MIB, 5 * MIB, true);
    assert_non_null(sl_arena_map(&arena));
    assert_non_null(sl_arena_map(&arena));
    assert_null(sl_arena_map(&arena));
    assert_null(sl_arena_map(&arena));
    assert_int_equal(arena.mapped_bytes, 4 * MIB);
    sl_arena_fini(&arena);
}

static void arena_map__limit_below_one_chunk_gives_nothing(void **state)
{
    (void)state;
    struct sl_arena arena;
    sl_arena_init(&arena, 2 * MIB, 1, true);
    assert_null(sl_arena_map(&arena));
    sl_arena_fini(&arena);
}

static void arena_map__what_the_system_lacks_is_null(void **state)
{
    (void)state;
    struct sl_arena arena;
    sl_arena_init(&arena, (size_t)1 << 62, 0, true);
    assert_null(sl_arena_map(&arena));
    assert_int_equal(arena.mapped_bytes, 0);
    sl_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_map__huge_chunks_are_aligned_zeroed_and_writable),
        cmocka_unit_test(arena_map__ordinary_chunks_are_of_whole_pages),
        cmocka_unit_test(arena_init__huge_rounds_up_to_huge_pages),
        cmocka_unit_test(arena_map__stops_at_the_limit),
        cmocka_unit_test(arena_map__limit_below_one_chunk_gives_nothing),
        cmocka_unit_test(arena_map__what_the_system_lacks_is_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
