#include <string.h>

#include "core/hash.h"
#include "ps/shard/push_buffer.h"
#include "tests/support/resident.h"
#include "tests/support/unit.h"

#define RING_BYTES 65536
#define LIVE_MAX   64

/* Entries of random sizes, put back in random order: their contents stay whole, and an empty ring
 * takes its full size again. */
SL_CASE(shard_push_buffer__entries_never_overlap)
{
    struct sl_shard_push_buffer push_buffer;
    assert_int_equal(sl_shard_push_buffer_init(&push_buffer, RING_BYTES), 0);
    struct sl_shard_buffered_push *live[LIVE_MAX];
    uint32_t floats[LIVE_MAX];
    uint32_t count = 0;
    uint32_t refused = 0;
    uint64_t seed = 4;
    for (uint32_t round = 1; round < 20000; round++) {
        uint32_t wanted = (uint32_t)(sl_hash_random(&seed) % 3000);
        struct sl_shard_buffered_push *entry =
            count < LIVE_MAX ? sl_shard_push_buffer_get(&push_buffer, wanted % 50, wanted) : NULL;
        refused += entry == NULL;
        if (entry != NULL) {
            uint32_t used = wanted - wanted / 3;
            sl_shard_push_buffer_trim(&push_buffer, entry, used);
            entry->clock = round;
            for (uint32_t i = 0; i < used; i++) {
                entry->gradients[i] = (float)round;
            }
            for (uint32_t i = 0; i < wanted % 50; i++) {
                entry->records[i] = round;
            }
            live[count] = entry;
            floats[count++] = used;
        }
        while (count > 0 && (entry == NULL || sl_hash_random(&seed) % 3 == 0)) {
            uint32_t at = (uint32_t)(sl_hash_random(&seed) % count);
            for (uint32_t i = 0; i < floats[at]; i++) {
                assert_true(live[at]->gradients[i] == (float)live[at]->clock);
            }
            sl_shard_push_buffer_put(&push_buffer, live[at]);
            live[at] = live[--count];
            floats[at] = floats[count];
            if (entry == NULL && sl_hash_random(&seed) % 2 == 0) {
                break;
            }
        }
    }
    assert_true(refused > 10);
    while (count > 0) {
        sl_shard_push_buffer_put(&push_buffer, live[--count]);
    }
    assert_int_equal(push_buffer.entry_count, 0);
    struct sl_shard_buffered_push *all =
        sl_shard_push_buffer_get(&push_buffer, 0, (RING_BYTES - 64) / sizeof(float));
    assert_non_null(all);
    assert_null(sl_shard_push_buffer_get(&push_buffer, 0, 1));
    sl_shard_push_buffer_put(&push_buffer, all);
    sl_shard_push_buffer_fini(&push_buffer);
}

SL_CASE(shard_push_buffer_get__refuses_what_could_never_fit)
{
    struct sl_shard_push_buffer push_buffer;
    assert_int_equal(sl_shard_push_buffer_init(&push_buffer, RING_BYTES), 0);
    assert_null(sl_shard_push_buffer_get(&push_buffer, 0, RING_BYTES / sizeof(float)));
    assert_null(sl_shard_push_buffer_get(&push_buffer, 0, UINT64_MAX));
    assert_null(sl_shard_push_buffer_get(&push_buffer, UINT32_MAX, 1));
    assert_int_equal(push_buffer.entry_count, 0);
    sl_shard_push_buffer_fini(&push_buffer);
}

SL_CASE(shard_push_buffer_give_back__an_empty_ring)
{
    struct sl_shard_push_buffer push_buffer;
    assert_int_equal(sl_shard_push_buffer_init(&push_buffer, 16 * RING_BYTES), 0);
    assert_false(sl_shard_push_buffer_give_back(&push_buffer));
    for (int round = 0; round < 2; round++) {
        const uint32_t floats = 12 * RING_BYTES / sizeof(float);
        struct sl_shard_buffered_push *entry = sl_shard_push_buffer_get(&push_buffer, 0, floats);
        assert_non_null(entry);
        memset(entry->gradients, 1, floats * sizeof(float));
        for (int look = 0; look < 200; look++) {
            assert_true(sl_shard_push_buffer_give_back(&push_buffer));
        }
        assert_true(resident_bytes(push_buffer.base, push_buffer.bytes_max) >=
                    (size_t)12 * RING_BYTES);
        sl_shard_push_buffer_put(&push_buffer, entry);
        for (int look = 0; look < 200; look++) {
            (void)sl_shard_push_buffer_give_back(&push_buffer);
        }
        assert_false(sl_shard_push_buffer_give_back(&push_buffer));
        assert_int_equal(resident_bytes(push_buffer.base, push_buffer.bytes_max), 0);
    }
    sl_shard_push_buffer_fini(&push_buffer);
}
