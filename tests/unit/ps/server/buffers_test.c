#include <string.h>

#include "core/hash.h"
#include "ps/server/buffers.h"
#include "tests/support/resident.h"
#include "tests/support/unit.h"

#define TOP      ((size_t)SL_LIMIT_FRAME_PAYLOAD_BYTES)
#define LIVE_MAX 256

SL_CASE(server_buffers__blocks_never_overlap_and_merge_again)
{
    struct sl_server_buffers buffers;
    assert_int_equal(sl_server_buffers_init(&buffers, 4 * TOP), 0);
    uint8_t *live[LIVE_MAX];
    size_t bytes[LIVE_MAX];
    uint8_t mark[LIVE_MAX];
    uint32_t count = 0;
    uint32_t refused = 0;
    uint64_t seed = 9;
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t shift = (uint32_t)(sl_hash_random(&seed) % 23);
        size_t wanted = 1 + sl_hash_random(&seed) % ((size_t)1 << shift);
        uint8_t *block =
            count < LIVE_MAX ? sl_server_buffers_get(&buffers, wanted, SIZE_MAX) : NULL;
        refused += block == NULL;
        if (block != NULL) {
            assert_true(sl_server_buffers_size(&buffers, block) >= wanted);
            assert_int_equal((uintptr_t)block % 4096, 0);
            mark[count] = (uint8_t)round;
            block[0] = block[wanted - 1] = block[wanted / 2] = (uint8_t)round;
            bytes[count] = wanted;
            live[count++] = block;
        }
        if (count > 0 && (block == NULL || sl_hash_random(&seed) % 2 == 0)) {
            uint32_t at = (uint32_t)(sl_hash_random(&seed) % count);
            assert_int_equal(live[at][0], mark[at]);
            assert_int_equal(live[at][bytes[at] - 1], mark[at]);
            assert_int_equal(live[at][bytes[at] / 2], mark[at]);
            sl_server_buffers_put(&buffers, live[at]);
            count--;
            live[at] = live[count];
            bytes[at] = bytes[count];
            mark[at] = mark[count];
        }
    }
    assert_true(refused > 10);
    while (count > 0) {
        sl_server_buffers_put(&buffers, live[--count]);
    }
    assert_int_equal(buffers.used_bytes, 0);
    for (int i = 0; i < 4; i++) {
        live[i] = sl_server_buffers_get(&buffers, TOP, SIZE_MAX);
        assert_non_null(live[i]);
    }
    assert_null(sl_server_buffers_get(&buffers, 1, SIZE_MAX));
    for (int i = 0; i < 4; i++) {
        sl_server_buffers_put(&buffers, live[i]);
    }
    sl_server_buffers_fini(&buffers);
}

SL_CASE(server_buffers_get__stops_at_the_callers_limit)
{
    struct sl_server_buffers buffers;
    assert_int_equal(sl_server_buffers_init(&buffers, 0), 0); /* at least one largest block */
    uint8_t *first = sl_server_buffers_get(&buffers, 5000, 16384);
    assert_non_null(first);
    assert_int_equal(buffers.used_bytes, 8192);
    uint8_t *second = sl_server_buffers_get(&buffers, 8192, 16384);
    assert_non_null(second);
    assert_null(sl_server_buffers_get(&buffers, 1, 16384));
    sl_server_buffers_put(&buffers, first);
    sl_server_buffers_put(&buffers, second);
    sl_server_buffers_fini(&buffers);
}

/* One block stays in use; the rest goes back, and can be taken again. */
SL_CASE(server_buffers_give_back__blocks_that_are_free)
{
    enum { BLOCKS = 6 };
    struct sl_server_buffers buffers;
    uint8_t *blocks[BLOCKS];
    assert_int_equal(sl_server_buffers_init(&buffers, BLOCKS * TOP), 0);
    assert_false(sl_server_buffers_give_back(&buffers));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = sl_server_buffers_get(&buffers, TOP, SIZE_MAX);
            assert_non_null(blocks[i]);
            memset(blocks[i], 1, TOP);
        }
        for (int look = 0; look < 50; look++) {
            assert_true(sl_server_buffers_give_back(&buffers));
        }
        assert_int_equal(resident_bytes(buffers.base, buffers.bytes), BLOCKS * TOP);
        for (int i = 1; i < BLOCKS; i++) {
            sl_server_buffers_put(&buffers, blocks[i]);
        }
        for (int look = 0; look < 50; look++) {
            (void)sl_server_buffers_give_back(&buffers);
        }
        assert_true(resident_bytes(buffers.base, buffers.bytes) < TOP + (size_t)BLOCKS * 4097);
        assert_int_equal(blocks[0][TOP - 1], 1);
        sl_server_buffers_put(&buffers, blocks[0]);
    }
    sl_server_buffers_fini(&buffers);
}
