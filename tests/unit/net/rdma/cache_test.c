#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net/rdma/cache.h"
#include "net/rdma/unmapped.h"
#include "tests/support/unit.h"
#include "tests/unit/net/rdma/fake.h"

#define PAGES 8

struct fixture {
    struct rdma_fake fake;
    struct sl_rdma_cache *cache;
    size_t page;
    bool watches; /* the kernel tells of unmapping */
};

static uint8_t *map(const struct fixture *fixture, void *at, uint32_t pages, int flags)
{
    int fixed = at != NULL ? MAP_FIXED_NOREPLACE : 0;
    uint8_t *memory = mmap(at, pages * fixture->page, PROT_READ | PROT_WRITE,
                           MAP_ANONYMOUS | flags | fixed, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    if (at != NULL) {
        assert_ptr_equal(memory, at);
    }
    return memory;
}

static void unmap(const struct fixture *fixture, void *at, uint32_t pages)
{
    assert_int_equal(munmap(at, pages * fixture->page), 0);
}

/* The thread that reads the kernel's events maps memory of its own when it starts, which may come
 * to lie where a test has just unmapped some. It runs once something was unmapped. */
static void wait_for_watcher(const struct fixture *fixture)
{
    uint8_t *memory = map(fixture, NULL, 1, MAP_PRIVATE);
    struct sl_rdma_unmapped *watch = sl_rdma_unmapped_watch(memory, fixture->page);
    assert_non_null(watch);
    unmap(fixture, memory, 1);
    assert_true(sl_rdma_unmapped_seen(watch));
    sl_rdma_unmapped_forget(&watch);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    rdma_fake_init(&fixture->fake);
    fixture->page = (size_t)sysconf(_SC_PAGESIZE);
    fixture->watches = sl_rdma_unmapped_open();
    if (fixture->watches) {
        sl_rdma_unmapped_close();
    }
    fixture->cache = sl_rdma_cache_open(&fixture->fake.nic, 16 * fixture->page, 4);
    assert_non_null(fixture->cache);
    fixture->fake.nic.cache = fixture->cache;
    if (fixture->watches) {
        wait_for_watcher(fixture);
    }
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    sl_rdma_cache_close(&fixture->cache);
    rdma_fake_fini(&fixture->fake);
    free(fixture);
    return 0;
}

static void skip_unless_watched(const struct fixture *fixture)
{
    if (!fixture->watches) {
        skip();
    }
}

/* Used once and idle: kept, if it is watched. */
static void use(struct fixture *fixture, const void *at, size_t bytes)
{
    struct sl_rdma_hold *hold =
        sl_rdma_cache_get(fixture->cache, at, bytes, IBV_ACCESS_REMOTE_READ);
    assert_non_null(hold);
    sl_rdma_cache_put(fixture->cache, hold);
}

SL_CASE_WITH(get__registers_what_is_asked_for, setup, teardown)
{
    struct fixture *fixture = *state;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    struct sl_rdma_hold *hold =
        sl_rdma_cache_get(fixture->cache, memory + 100, 1000, IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(hold);
    const struct rdma_fake_region *region =
        rdma_fake_region_of(&fixture->fake, sl_rdma_cache_region(hold)->rkey);
    assert_non_null(region);
    assert_int_equal(region->at, (uintptr_t)memory + 100);
    assert_int_equal(region->bytes, 1000);
    assert_true((region->access & IBV_ACCESS_REMOTE_WRITE) != 0);
    sl_rdma_cache_put(fixture->cache, hold);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__does_not_let_peers_write_unasked, setup, teardown)
{
    struct fixture *fixture = *state;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    struct sl_rdma_hold *reads = sl_rdma_cache_get(fixture->cache, memory, 1000, 0);
    struct sl_rdma_hold *writes =
        sl_rdma_cache_get(fixture->cache, memory, 1000, IBV_ACCESS_REMOTE_WRITE);
    assert_ptr_not_equal(reads, writes);
    uint32_t key = sl_rdma_cache_region(reads)->rkey;
    assert_int_equal(rdma_fake_region_of(&fixture->fake, key)->access & IBV_ACCESS_REMOTE_WRITE, 0);
    sl_rdma_cache_put(fixture->cache, reads);
    sl_rdma_cache_put(fixture->cache, writes);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__is_shared_while_in_use, setup, teardown)
{
    struct fixture *fixture = *state;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_SHARED); /* never kept */
    struct sl_rdma_hold *first = sl_rdma_cache_get(fixture->cache, memory, fixture->page, 0);
    struct sl_rdma_hold *second = sl_rdma_cache_get(fixture->cache, memory + 8, 100, 0);
    assert_ptr_equal(first, second);
    sl_rdma_cache_put(fixture->cache, first);
    assert_int_equal(fixture->fake.deregistered, 0);
    sl_rdma_cache_put(fixture->cache, second);
    assert_int_equal(fixture->fake.deregistered, 1);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__finds_what_was_pins, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    use(fixture, memory, PAGES * fixture->page);
    use(fixture, memory, PAGES * fixture->page);
    use(fixture, memory + fixture->page, 17);
    assert_int_equal(fixture->fake.registered, 1);
    use(fixture, memory + fixture->page, PAGES * fixture->page - fixture->page);
    assert_int_equal(fixture->fake.registered, 1);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__what_reaches_beyond_is_registered, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    use(fixture, memory + fixture->page, 100);
    use(fixture, memory + fixture->page, 101);
    use(fixture, memory + fixture->page - 1, 100);
    assert_int_equal(fixture->fake.registered, 3);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__memory_mapped_anew_is_registered_anew, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    for (uint32_t round = 1; round <= 20; round++) {
        use(fixture, memory, PAGES * fixture->page);
        use(fixture, memory, PAGES * fixture->page);
        assert_int_equal(fixture->fake.registered, round);
        unmap(fixture, memory, PAGES);
        assert_ptr_equal(map(fixture, memory, PAGES, MAP_PRIVATE), memory);
    }
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__a_hole_is_noticed, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    use(fixture, memory, PAGES * fixture->page);
    unmap(fixture, memory + 3 * fixture->page, 1);
    (void)map(fixture, memory + 3 * fixture->page, 1, MAP_PRIVATE);
    use(fixture, memory, PAGES * fixture->page);
    assert_int_equal(fixture->fake.registered, 2);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__what_replaces_memory_is_registered, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    use(fixture, memory, PAGES * fixture->page);
    void *again = mmap(memory, PAGES * fixture->page, PROT_READ | PROT_WRITE,
                       MAP_ANONYMOUS | MAP_PRIVATE | MAP_FIXED, -1, 0);
    assert_ptr_equal(again, memory);
    use(fixture, memory, PAGES * fixture->page);
    assert_int_equal(fixture->fake.registered, 2);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__memory_that_was_emptied_is_registered_anew, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    use(fixture, memory, PAGES * fixture->page);
    assert_int_equal(madvise(memory + fixture->page, fixture->page, MADV_DONTNEED), 0);
    use(fixture, memory, PAGES * fixture->page);
    assert_int_equal(fixture->fake.registered, 2);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__memory_that_was_moved_is_not_there, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    size_t bytes = PAGES * fixture->page;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    uint8_t *other = map(fixture, NULL, PAGES, MAP_PRIVATE);
    use(fixture, memory, bytes);
    use(fixture, other, bytes);
    assert_ptr_equal(mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, other), other);
    use(fixture, other, bytes);
    assert_int_equal(fixture->fake.registered, 3);
    (void)map(fixture, memory, PAGES, MAP_PRIVATE);
    use(fixture, memory, bytes);
    assert_int_equal(fixture->fake.registered, 4);
    unmap(fixture, memory, PAGES);
    unmap(fixture, other, PAGES);
}

SL_CASE_WITH(get__memory_whose_pages_went_elsewhere_is_registered_anew, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    size_t bytes = PAGES * fixture->page;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    use(fixture, memory, bytes);
    void *there = mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    assert_ptr_not_equal(there, MAP_FAILED);
    use(fixture, memory, bytes);
    assert_int_equal(fixture->fake.registered, 2);
    unmap(fixture, memory, PAGES);
    unmap(fixture, there, PAGES);
}

SL_CASE_WITH(get__what_other_memory_loses_does_not_matter, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    use(fixture, memory, fixture->page);
    use(fixture, memory + 4 * fixture->page, fixture->page);
    unmap(fixture, memory, 4);
    use(fixture, memory + 4 * fixture->page, fixture->page);
    assert_int_equal(fixture->fake.registered, 2);
    unmap(fixture, memory + 4 * fixture->page, PAGES - 4);
}

/* Its user said that the memory stays until put: the device may still look at it, and the
 * registration is of nothing that comes there later. */
SL_CASE_WITH(put__what_was_unmapped_in_use_goes_with_its_last_use, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    struct sl_rdma_hold *hold = sl_rdma_cache_get(fixture->cache, memory, fixture->page, 0);
    unmap(fixture, memory, PAGES);
    (void)map(fixture, memory, PAGES, MAP_PRIVATE);
    struct sl_rdma_hold *fresh = sl_rdma_cache_get(fixture->cache, memory, fixture->page, 0);
    assert_ptr_not_equal(hold, fresh);
    assert_int_equal(fixture->fake.deregistered, 0);
    sl_rdma_cache_put(fixture->cache, hold);
    assert_int_equal(fixture->fake.deregistered, 1);
    sl_rdma_cache_put(fixture->cache, fresh);
    assert_int_equal(fixture->fake.deregistered, 1);
    unmap(fixture, memory, PAGES);
}

/* The pages of a file are taken away through the file, and nobody is told. */
SL_CASE_WITH(put__shared_memory_is_not_pins, setup, teardown)
{
    struct fixture *fixture = *state;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_SHARED);
    use(fixture, memory, fixture->page);
    assert_int_equal(fixture->fake.deregistered, 1);
    use(fixture, memory, fixture->page);
    assert_int_equal(fixture->fake.registered, 2);
    unmap(fixture, memory, PAGES);
}

/* A key that lets peers write is good for one use. */
SL_CASE_WITH(put__what_peers_may_write_is_not_pins, setup, teardown)
{
    struct fixture *fixture = *state;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    struct sl_rdma_hold *hold =
        sl_rdma_cache_get(fixture->cache, memory, 1000, IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(hold);
    sl_rdma_cache_put(fixture->cache, hold);
    assert_int_equal(fixture->fake.deregistered, 1);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(put__the_least_recently_used_goes_first, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    for (uint32_t i = 0; i < 4; i++) {
        use(fixture, memory + i * fixture->page, fixture->page);
    }
    use(fixture, memory, fixture->page); /* the first is the newest now */
    assert_int_equal(fixture->fake.deregistered, 0);
    use(fixture, memory + 4 * fixture->page, fixture->page); /* the fifth of four */
    assert_int_equal(fixture->fake.deregistered, 1);
    use(fixture, memory, fixture->page);
    use(fixture, memory + 2 * fixture->page, fixture->page);
    assert_int_equal(fixture->fake.registered, 5);
    use(fixture, memory + fixture->page, fixture->page); /* had to go */
    assert_int_equal(fixture->fake.registered, 6);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(put__bytes_are_limited, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, 32, MAP_PRIVATE);
    use(fixture, memory, 10 * fixture->page);
    use(fixture, memory + 10 * fixture->page, 6 * fixture->page);
    assert_int_equal(fixture->fake.live_bytes, 16 * fixture->page);
    use(fixture, memory + 16 * fixture->page, 1);
    assert_int_equal(fixture->fake.live_bytes, 6 * fixture->page + 1);
    use(fixture, memory, 32 * fixture->page); /* more than may be kept */
    assert_int_equal(fixture->fake.live_bytes, 0);
    unmap(fixture, memory, 32);
}

SL_CASE_WITH(put__what_is_in_use_is_not_evicted, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    struct sl_rdma_hold *holds[PAGES];
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    for (uint32_t i = 0; i < PAGES; i++) {
        holds[i] = sl_rdma_cache_get(fixture->cache, memory + i * fixture->page, fixture->page, 0);
        assert_non_null(holds[i]);
    }
    assert_int_equal(fixture->fake.deregistered, 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        assert_non_null(rdma_fake_region_of(&fixture->fake, sl_rdma_cache_region(holds[i])->lkey));
        sl_rdma_cache_put(fixture->cache, holds[i]);
    }
    assert_int_equal(fixture->fake.registered - fixture->fake.deregistered, 4);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__what_is_pins_makes_room, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    fixture->fake.live_bytes_max = 4 * fixture->page;
    use(fixture, memory, 3 * fixture->page);
    use(fixture, memory + 4 * fixture->page, 2 * fixture->page);
    assert_int_equal(fixture->fake.live_bytes, 2 * fixture->page);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__is_refused_when_nothing_can_be_locked, setup, teardown)
{
    struct fixture *fixture = *state;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    fixture->fake.live_bytes_max = 1;
    assert_null(sl_rdma_cache_get(fixture->cache, memory, fixture->page, 0));
    fixture->fake.live_bytes_max = 0;
    for (uint32_t i = 0; i < 3; i++) { /* the system is not asked each time */
        assert_null(sl_rdma_cache_get(fixture->cache, memory, fixture->page, 0));
    }
    use(fixture, memory, fixture->page - 1); /* less may be there */
    assert_int_equal(fixture->fake.registered, 1);
    rdma_fake_sleep(&fixture->fake, 20);
    use(fixture, memory + fixture->page, fixture->page);
    unmap(fixture, memory, PAGES);
}

/* Of another reactor's, that ran short: what is in use here stays. */
SL_CASE_WITH(relieve__gives_back_what_nobody_uses, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    struct sl_rdma_nic other = fixture->fake.nic;
    other.cache = NULL;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    sl_rdma_memory_relieve(&fixture->fake.nic);
    struct sl_rdma_hold *used = sl_rdma_cache_get(fixture->cache, memory, 100, 0);
    use(fixture, memory + fixture->page, 100);
    sl_rdma_memory_relieve(&fixture->fake.nic);
    assert_int_equal(fixture->fake.deregistered, 0);
    fixture->fake.live_bytes_max = 200;
    assert_null(sl_rdma_memory_pin(&other, memory + 2 * fixture->page, 100, 0));
    sl_rdma_memory_relieve(&fixture->fake.nic);
    assert_int_equal(fixture->fake.live_bytes, 100);
    sl_rdma_cache_put(fixture->cache, used);
    unmap(fixture, memory, PAGES);
}

SL_CASE_WITH(get__memory_that_cannot_be_written_can_be_sent, setup, teardown)
{
    struct fixture *fixture = *state;
    uint8_t *memory = map(fixture, NULL, PAGES, MAP_PRIVATE);
    fixture->fake.read_only = (uintptr_t)memory;
    use(fixture, memory, 100);
    assert_null(sl_rdma_cache_get(fixture->cache, memory, 100, IBV_ACCESS_LOCAL_WRITE));
    use(fixture, memory + fixture->page, 100); /* what is wrong with one is not with others */
    unmap(fixture, memory, PAGES);
}

#define RACE_ROUNDS 2000

struct race {
    struct fixture *fixture;
    uint8_t *memory;
    atomic_uint turn; /* even: the other thread maps anew; odd: this one uses it */
};

static void *map_anew(void *arg)
{
    struct race *race = arg;
    for (uint32_t round = 0; round < RACE_ROUNDS; round++) {
        while (atomic_load(&race->turn) != 2 * round) {
            sched_yield();
        }
        if (munmap(race->memory, PAGES * race->fixture->page) != 0 ||
            mmap(race->memory, PAGES * race->fixture->page, PROT_READ | PROT_WRITE,
                 MAP_ANONYMOUS | MAP_PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) != race->memory) {
            abort();
        }
        atomic_store(&race->turn, 2 * round + 1);
    }
    return NULL;
}

/* Once munmap has returned to another thread, the old registration is used no more, however soon
 * after: the thread that reads the kernel's events may be still at it. */
SL_CASE_WITH(get__never_sees_what_another_thread_unmapped, setup, teardown)
{
    struct fixture *fixture = *state;
    skip_unless_watched(fixture);
    struct race race = {.fixture = fixture, .memory = map(fixture, NULL, PAGES, MAP_PRIVATE)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, map_anew, &race), 0);
    for (uint32_t round = 0; round < RACE_ROUNDS; round++) {
        while (atomic_load(&race.turn) != 2 * round + 1) {
            sched_yield();
        }
        use(fixture, race.memory, PAGES * fixture->page);
        assert_int_equal(fixture->fake.registered, round + 1);
        atomic_store(&race.turn, 2 * round + 2);
    }
    pthread_join(thread, NULL);
    unmap(fixture, race.memory, PAGES);
}
