#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/arena_ahead.h"
#include "core/arena_pages.h"
#include "core/clock.h"
#include "tests/support/huge_pages.h"
#include "tests/support/patience.h"
#include "tests/support/unit.h"

#define MIB ((size_t)1 << 20)

static void assert_zeroed(const uint8_t *chunk, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 512) {
        assert_int_equal(chunk[i], 0);
    }
    assert_int_equal(chunk[bytes - 1], 0);
}

SL_CASE(arena_map__huge_chunks_are_aligned_zeroed_and_writable)
{
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

SL_CASE(arena_map__ordinary_chunks_are_of_whole_pages)
{
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

SL_CASE(arena_map__stops_at_the_limit)
{
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

SL_CASE(arena_map__what_the_system_lacks_is_null)
{
    struct sl_arena arena;
    sl_arena_init(&arena, (size_t)1 << 62, 0, true);
    assert_null(sl_arena_map(&arena));
    assert_int_equal(arena.mapped_bytes, 0);
    sl_arena_fini(&arena);
}

static void wait_until_ready(const struct sl_arena *arena)
{
    const uint64_t start = sl_clock_now_ns(sl_clock_system());
    while (!sl_arena_ready(arena)) {
        const struct timespec nap = {.tv_nsec = 100000};
        assert_true(sl_clock_now_ns(sl_clock_system()) - start < SL_TEST_PATIENCE_NS);
        nanosleep(&nap, NULL);
    }
}

SL_CASE(arena_prepare__makes_chunks_ready)
{
    struct sl_arena arena;
    sl_arena_init(&arena, 2 * MIB, 0, true);
    assert_false(sl_arena_ready(&arena));
    assert_true(sl_arena_prepare(&arena));
    assert_true(sl_arena_prepare(&arena));
    assert_int_equal(arena.mapped_bytes, 4 * MIB);
    for (uint32_t left = 2; left > 0; left--) {
        assert_int_equal(arena.prepared_count, left);
        wait_until_ready(&arena);
        uint8_t *chunk = sl_arena_map(&arena);
        assert_non_null(chunk);
        assert_int_equal((uintptr_t)chunk % (2 * MIB), 0);
        assert_zeroed(chunk, 2 * MIB);
        assert_int_equal(arena.mapped_bytes, 4 * MIB);
        assert_int_equal(arena.chunks_late, 0);
    }
    /* None is prepared any more: this one is fresh. */
    assert_non_null(sl_arena_map(&arena));
    assert_int_equal(arena.mapped_bytes, 6 * MIB);
    assert_int_equal(arena.chunks_late, 1);
    sl_arena_fini(&arena);
    assert_int_equal(arena.mapped_bytes, 0);
}

SL_CASE(arena_prepare__keeps_the_limit)
{
    struct sl_arena arena;
    sl_arena_init(&arena, 2 * MIB, 5 * MIB, true);
    assert_non_null(sl_arena_map(&arena));
    assert_true(sl_arena_prepare(&arena));
    assert_false(sl_arena_prepare(&arena));
    assert_null(sl_arena_map_ordinary(&arena));
    assert_int_equal(arena.mapped_bytes, 4 * MIB);
    assert_non_null(sl_arena_map(&arena));
    assert_null(sl_arena_map(&arena));
    assert_int_equal(arena.mapped_bytes, 4 * MIB);
    sl_arena_fini(&arena);
}

SL_CASE(arena_prepare__what_the_system_lacks_is_null)
{
    struct sl_arena arena;
    sl_arena_init(&arena, (size_t)1 << 62, 0, true);
    assert_true(sl_arena_prepare(&arena));
    assert_null(sl_arena_map(&arena));
    assert_int_equal(arena.mapped_bytes, 0);
    assert_int_equal(arena.prepared_count, 0);
    sl_arena_fini(&arena);
}

SL_CASE(arena_map_ordinary__leaves_the_prepared)
{
    struct sl_arena arena;
    sl_arena_init(&arena, 2 * MIB, 0, true);
    assert_true(sl_arena_prepare(&arena));
    uint8_t *chunk = sl_arena_map_ordinary(&arena);
    assert_non_null(chunk);
    assert_zeroed(chunk, 2 * MIB);
    memset(chunk, 1, 2 * MIB);
    assert_int_equal(arena.prepared_count, 1);
    assert_int_equal(arena.chunks_late, 1);
    assert_int_equal(arena.mapped_bytes, 4 * MIB);
    wait_until_ready(&arena);
    assert_non_null(sl_arena_map(&arena));
    assert_int_equal(arena.chunks_late, 1);
    sl_arena_fini(&arena);
}

/* Bytes on transparent huge pages of all mappings that overlap the range. */
static size_t huge_bytes(const uint8_t *base, size_t bytes)
{
    FILE *maps = fopen("/proc/self/smaps", "re");
    assert_non_null(maps);
    char line[512];
    uintptr_t from = 0, to = 0;
    size_t sum = 0, kib;
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) != 2 &&
            sscanf(line, "AnonHugePages: %zu kB", &kib) == 1 && from < (uintptr_t)base + bytes &&
            (uintptr_t)base < to) {
            sum += kib * 1024;
        }
    }
    assert_int_equal(fclose(maps), 0);
    return sum;
}

SL_CASE(arena_map_ordinary__becomes_huge)
{
    huge_pages_need();
    enum { CHUNKS = 3, PREPARED = 1 };
    const uint64_t before = sl_arena_pages_ordinary_bytes();
    struct sl_arena arena;
    sl_arena_init(&arena, 4 * MIB, 0, true);
    assert_true(sl_arena_prepare(&arena));
    uint32_t *chunks[CHUNKS];
    for (uint32_t i = 0; i < CHUNKS; i++) {
        chunks[i] = sl_arena_map_ordinary(&arena);
        assert_non_null(chunks[i]);
        assert_int_equal((uintptr_t)chunks[i] % (2 * MIB), 0);
    }
    assert_int_equal(sl_arena_pages_ordinary_bytes(), before + CHUNKS * 4 * MIB);
    /* The last 2 MiB stay untouched, and thus ordinary. */
    const size_t words = 4 * MIB / sizeof(uint32_t), touched = CHUNKS * words - words / 2;
    for (size_t word = 0; word < touched; word++) {
        chunks[word / words][word % words] = (uint32_t)word;
    }
    huge_pages_wait(before + 2 * MIB);
    size_t huge = sl_arena_ahead_refused_count() * 2 * MIB;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        huge += huge_bytes((uint8_t *)chunks[i], 4 * MIB);
    }
    assert_true(huge >= CHUNKS * 4 * MIB - 2 * MIB);
    for (size_t word = 0; word < CHUNKS * words; word++) {
        assert_int_equal(chunks[word / words][word % words], word < touched ? word : 0);
    }
    assert_int_equal(arena.mapped_bytes, (CHUNKS + PREPARED) * 4 * MIB);
    sl_arena_fini(&arena);
    assert_int_equal(sl_arena_pages_ordinary_bytes(), before);
}

/* The owner counts in every page, while these become huge, and closes at another moment each
 * time. */
SL_CASE(arena_map_ordinary__keeps_what_is_written_meanwhile)
{
    const uint64_t before = sl_arena_pages_ordinary_bytes();
    for (uint32_t round = 0; round < 8; round++) {
        struct sl_arena arenas[2];
        uint64_t *chunks[2];
        for (uint32_t i = 0; i < 2; i++) {
            sl_arena_init(&arenas[i], 8 * MIB, 0, true);
            assert_true(sl_arena_prepare(&arenas[i]));
            chunks[i] = sl_arena_map_ordinary(&arenas[i]);
            assert_non_null(chunks[i]);
        }
        const size_t words = 8 * MIB / sizeof(uint64_t), step = 4096 / sizeof(uint64_t);
        for (uint64_t pass = 0; pass < 4 * round + 1; pass++) {
            for (size_t word = 0; word < words; word += step) {
                for (uint32_t i = 0; i < 2; i++) {
                    assert_int_equal(chunks[i][word], pass * (i + 1));
                    chunks[i][word] += i + 1;
                }
            }
        }
        sl_arena_fini(&arenas[round % 2]);
        sl_arena_fini(&arenas[1 - round % 2]);
        assert_int_equal(sl_arena_pages_ordinary_bytes(), before);
    }
}

/* Late chunks make the arena prepare more than was asked for, yet change neither the count nor the
 * limit. */
SL_CASE(arena_prepare__spare_chunks_are_not_counted)
{
    enum { CHUNKS = 64 };
    struct sl_arena arena;
    sl_arena_init(&arena, 2 * MIB, (CHUNKS + 2) * 2 * MIB, true);
    arena.spare_max = 2;
    assert_true(sl_arena_prepare(&arena));
    assert_int_equal(arena.spare_count, 0);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        assert_non_null(sl_arena_map_ordinary(&arena)); /* late */
    }
    assert_int_equal(arena.spare_wanted, CHUNKS / 16);
    assert_true(sl_arena_prepare(&arena));
    assert_int_equal(arena.spare_count, 2);
    assert_int_equal(arena.prepared_count, 2);
    assert_int_equal(arena.mapped_bytes, (CHUNKS + 2) * 2 * MIB);
    assert_false(sl_arena_prepare(&arena));
    for (uint32_t i = 0; i < 2; i++) {
        assert_zeroed(sl_arena_map(&arena), 2 * MIB);
    }
    assert_null(sl_arena_map(&arena)); /* the limit excludes the spare chunks */
    assert_int_equal(arena.mapped_bytes, (CHUNKS + 2) * 2 * MIB);
    assert_int_equal(arena.prepared_count, 0);
    arena.bytes_max = 0;
    assert_zeroed(sl_arena_map(&arena), 2 * MIB);
    sl_arena_fini(&arena);
}

static bool is_mapped(const void *base)
{
    unsigned char present;
    return mincore((void *)base, 1, &present) == 0;
}

/* Without a thread at once; else the thread does it, whether the chunk is prepared, half prepared
 * or late. */
SL_CASE(arena_unmap_newest__returns_memory)
{
    const uint64_t before = sl_arena_pages_ordinary_bytes();
    struct sl_arena arena;
    sl_arena_init(&arena, 4 * MIB, 0, true);
    uint8_t *chunk = sl_arena_map_ordinary(&arena);
    uint8_t *next = sl_arena_map(&arena);
    sl_arena_unmap_newest(&arena);
    assert_int_equal(arena.mapped_bytes, 4 * MIB);
    assert_false(is_mapped(next));
    assert_true(is_mapped(chunk));
    sl_arena_unmap_newest(&arena);
    assert_int_equal(arena.mapped_bytes, 0);
    assert_null(arena.chunks);
    for (uint32_t round = 0; round < 20; round++) {
        assert_true(sl_arena_prepare(&arena));
        if (round % 4 == 0) {
            wait_until_ready(&arena);
        }
        chunk = round % 2 == 0 ? sl_arena_map(&arena) : sl_arena_map_ordinary(&arena);
        assert_non_null(chunk);
        memset(chunk, 1, round % 3 * MIB);
        sl_arena_unmap_newest(&arena);
        if (round % 8 == 7) {
            huge_pages_wait(before); /* the late ones are gone */
        }
    }
    assert_int_equal(arena.mapped_bytes, 10 * 4 * MIB); /* prepared ones that late ones left */
    sl_arena_fini(&arena);
    assert_int_equal(sl_arena_pages_ordinary_bytes(), before);
}

/* Chunks go while the thread turns them, and those before them, into huge pages. */
SL_CASE(arena_unmap_newest__beside_late_chunks)
{
    enum { CHUNKS = 6 };
    huge_pages_need();
    const uint64_t before = sl_arena_pages_ordinary_bytes();
    struct sl_arena arena;
    sl_arena_init(&arena, 4 * MIB, 0, true);
    assert_true(sl_arena_prepare(&arena));
    for (uint32_t round = 0; round < 10; round++) {
        uint8_t *chunks[CHUNKS];
        for (uint32_t i = 0; i < CHUNKS; i++) {
            chunks[i] = sl_arena_map_ordinary(&arena);
            assert_non_null(chunks[i]);
            memset(chunks[i], (int)i + 1, 4 * MIB);
        }
        const struct timespec nap = {.tv_nsec = round * 2000000};
        nanosleep(&nap, NULL);
        for (uint32_t i = CHUNKS; i-- > 0;) {
            assert_int_equal(chunks[i][round * 100000], i + 1);
            assert_int_equal(chunks[i][4 * MIB - 1], i + 1);
            sl_arena_unmap_newest(&arena);
        }
        huge_pages_wait(before); /* none of them counts any more */
    }
    assert_int_equal(arena.mapped_bytes, 4 * MIB);
    sl_arena_fini(&arena);
}

SL_CASE(arena_unprepare__cancels)
{
    struct sl_arena arena;
    sl_arena_init(&arena, 2 * MIB, 0, true);
    assert_false(sl_arena_unprepare(&arena));
    for (uint32_t round = 0; round < 20; round++) {
        assert_true(sl_arena_prepare(&arena));
        assert_true(sl_arena_prepare(&arena));
        if (round % 2 == 0) {
            wait_until_ready(&arena);
        }
        assert_true(sl_arena_unprepare(&arena));
        assert_int_equal(arena.prepared_count, 1);
        assert_int_equal(arena.mapped_bytes, 2 * MIB);
        assert_true(sl_arena_unprepare(&arena));
        assert_false(sl_arena_unprepare(&arena));
    }
    assert_int_equal(arena.mapped_bytes, 0);
    assert_zeroed(sl_arena_map(&arena), 2 * MIB);
    sl_arena_fini(&arena);
}

/* An arena that shrinks keeps no spare chunks for its former size. */
SL_CASE(arena_unmap_newest__spare_chunks_go)
{
    enum { CHUNKS = 64 };
    struct sl_arena arena;
    sl_arena_init(&arena, 2 * MIB, 0, true);
    arena.spare_max = 4;
    assert_true(sl_arena_prepare(&arena));
    for (uint32_t i = 0; i < CHUNKS; i++) {
        assert_non_null(sl_arena_map_ordinary(&arena)); /* late */
    }
    assert_true(sl_arena_prepare(&arena));
    assert_int_equal(arena.spare_count, 4);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        sl_arena_unmap_newest(&arena);
    }
    assert_int_equal(arena.spare_count, 0);
    assert_int_equal(arena.prepared_count, 2);
    assert_int_equal(arena.mapped_bytes, 2 * 2 * MIB);
    sl_arena_fini(&arena);
}

/* Takes chunks at once, whether the thread has begun with them or not, and writes to them while it
 * may still be touching them: every word must come to stay. */
static void take_and_write(struct sl_arena *arena, uint32_t count, uint64_t *late)
{
    enum { KEPT = 8 };
    uint32_t *kept[KEPT] = {NULL};
    const size_t words = arena->chunk_bytes / sizeof(uint32_t);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t ahead = 0; ahead <= i % 3; ahead++) {
            sl_arena_prepare(arena);
        }
        uint32_t *chunk = sl_arena_map(arena);
        assert_non_null(chunk);
        for (size_t word = 0; word < words; word += 64) {
            assert_int_equal(chunk[word], 0);
            chunk[word] = i + 1;
        }
        if (i < KEPT) {
            kept[i] = chunk;
        }
    }
    for (uint32_t i = 0; i < KEPT && i < count; i++) {
        for (size_t word = 0; word < words; word += 64) {
            assert_int_equal(kept[i][word], i + 1);
        }
    }
    *late += arena->chunks_late;
}

SL_CASE(arena_map__early_or_late_the_same)
{
    uint64_t late = 0;
    for (uint32_t round = 0; round < 20; round++) {
        struct sl_arena arena;
        sl_arena_init(&arena, 64 << 10, 0, false);
        take_and_write(&arena, 40, &late);
        sl_arena_fini(&arena);
    }
    assert_true(late <= 20 * 40);
    struct sl_arena huge;
    sl_arena_init(&huge, 4 * MIB, 0, true);
    take_and_write(&huge, 8, &late);
    sl_arena_fini(&huge);
}

/* One arena keeps the thread busy; what another asks for meanwhile is late, and is there. */
SL_CASE(arena_map__does_not_wait)
{
    const uint64_t start = sl_clock_now_ns(sl_clock_system());
    uint64_t late = 0;
    while (late == 0) {
        struct sl_arena busy;
        struct sl_arena arena;
        sl_arena_init(&busy, 16 * MIB, 0, true);
        sl_arena_init(&arena, 2 * MIB, 0, true);
        assert_true(sl_arena_prepare(&busy));
        assert_true(sl_arena_prepare(&arena));
        uint8_t *chunk = sl_arena_map(&arena);
        assert_non_null(chunk);
        assert_zeroed(chunk, 2 * MIB);
        late = arena.chunks_late;
        sl_arena_fini(&arena);
        sl_arena_fini(&busy);
        assert_true(sl_clock_now_ns(sl_clock_system()) - start < SL_TEST_PATIENCE_NS);
    }
}

static void *owner_main(void *arg)
{
    uint64_t *late = arg;
    for (uint32_t round = 0; round < 20; round++) {
        struct sl_arena arenas[4];
        for (uint32_t i = 0; i < 4; i++) {
            sl_arena_init(&arenas[i], 16 << 10, 0, false);
            sl_arena_prepare(&arenas[i]);
        }
        for (uint32_t i = 0; i < 4; i++) {
            take_and_write(&arenas[i], 10, late);
        }
        for (uint32_t i = 0; i < 4; i++) {
            sl_arena_fini(&arenas[i]);
        }
    }
    return NULL;
}

/* The thread starts and ends many times meanwhile. */
SL_CASE(arena_prepare__many_owners)
{
    enum { OWNERS = 4 };
    pthread_t owners[OWNERS];
    uint64_t late[OWNERS] = {0};
    for (uint32_t i = 0; i < OWNERS; i++) {
        assert_int_equal(pthread_create(&owners[i], NULL, owner_main, &late[i]), 0);
    }
    for (uint32_t i = 0; i < OWNERS; i++) {
        assert_int_equal(pthread_join(owners[i], NULL), 0);
    }
}
