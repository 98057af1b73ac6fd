

#include "core/hash.h"
#include "tests/support/unit.h"
#include "worker/client/inflight.h"
#include "worker/client/operation.h"

static struct sl_inflight inflight;
static struct sl_request requests[SL_INFLIGHT_MAX];

#define CASE(name) SL_CASE_WITH(name, inflight = (struct sl_inflight){0}, )

CASE(inflight_find__finds_what_was_added)
{
    assert_null(sl_inflight_find(&inflight, 0));
    assert_null(sl_inflight_find(&inflight, 1));
    assert_null(sl_inflight_any(&inflight));
    for (uint64_t id = 1; id <= SL_INFLIGHT_MAX; id++) {
        assert_false(sl_inflight_full(&inflight));
        sl_inflight_add(&inflight, id, &requests[id - 1]);
    }
    assert_true(sl_inflight_full(&inflight));
    for (uint64_t id = 1; id <= SL_INFLIGHT_MAX; id++) {
        assert_ptr_equal(sl_inflight_find(&inflight, id)->request, &requests[id - 1]);
    }
    assert_null(sl_inflight_find(&inflight, SL_INFLIGHT_MAX + 1));
    assert_null(sl_inflight_find(&inflight, 1 + SL_INFLIGHT_SLOTS));
}

/* Old requests stay parked while thousands pass, so that ids far apart share slots. */
CASE(inflight_remove__keeps_parked_ids_reachable)
{
    uint64_t ids[SL_INFLIGHT_MAX];
    uint32_t count = 0;
    uint64_t seed = 3;
    for (uint64_t id = 1; id < 100000; id++) {
        if (count == SL_INFLIGHT_MAX) {
            /* Mostly the newest is answered; now and then any. */
            uint32_t at = id % 50 == 0 ? (uint32_t)(sl_hash_random(&seed) % count) : count - 1;
            struct sl_inflight_entry *entry = sl_inflight_find(&inflight, ids[at]);
            assert_non_null(entry);
            assert_ptr_equal(entry->request, &requests[ids[at] % SL_INFLIGHT_MAX]);
            sl_inflight_remove(&inflight, entry);
            assert_null(sl_inflight_find(&inflight, ids[at]));
            ids[at] = ids[--count];
        }
        sl_inflight_add(&inflight, id, &requests[id % SL_INFLIGHT_MAX]);
        ids[count++] = id;
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_non_null(sl_inflight_find(&inflight, ids[i]));
    }
    struct sl_inflight_entry *entry;
    while ((entry = sl_inflight_any(&inflight)) != NULL) {
        sl_inflight_remove(&inflight, entry);
        count--;
    }
    assert_int_equal(count, 0);
    assert_int_equal(inflight.displaced, 0);
}
