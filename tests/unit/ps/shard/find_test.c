/* Finds: pulls that tell which keys have a row. */
#include <string.h>

#include "core/bytes.h"
#include "fixture.h"

#define KEYS 701 /* of an odd number, several slices */

static uint64_t keys[KEYS];

static const uint8_t *found(const struct fixture *f, uint32_t count)
{
    return f->reply + sl_bytes_pad8((uint64_t)count * DIM * sizeof(float));
}

static int find(struct fixture *f, uint32_t worker, uint32_t clock, uint16_t table, uint32_t count)
{
    shard_request_begin(&f->request, clock);
    shard_request_find(&f->request, table, keys, count);
    memset(f->reply, 0xff, sizeof f->reply);
    return fixture_run(f, worker);
}

CASE(find__tells_which_keys_have_a_row)
{
    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        if (i % 3 == 0) {
            assert_int_equal(fixture_push(f, NOBODY, 0, ASP, i, 2.0F), SL_SHARD_DONE);
        }
    }
    assert_int_equal(find(f, NOBODY, 0, ASP, KEYS), SL_SHARD_DONE);
    const uint64_t bytes = sl_bytes_pad8(KEYS * DIM * sizeof(float)) + sl_bytes_pad8(KEYS);
    assert_int_equal(f->work.reply_bytes, bytes);
    for (uint32_t i = 0; i < KEYS; i++) {
        float value;
        memcpy(&value, f->reply + i * DIM * sizeof value, sizeof value);
        assert_true(value == (i % 3 == 0 ? 2.0F : 0.0F));
        assert_int_equal(found(f, KEYS)[i], i % 3 == 0);
    }
    for (uint64_t i = KEYS; i < sl_bytes_pad8(KEYS); i++) {
        assert_int_equal(found(f, KEYS)[i], 0);
    }
    assert_int_equal(find(f, NOBODY, 0, ASP, 0), SL_SHARD_DONE);
    assert_int_equal(f->work.reply_bytes, 0);
}

CASE(find__waits_for_clocks_as_a_pull_does)
{
    keys[0] = 5;
    fixture_push_all(f, 0, BSP, 5, 1.0F);
    fixture_tick(f, 0, 0);
    assert_int_equal(find(f, 0, 1, BSP, 1), SL_SHARD_PARKED);
    for (uint32_t worker = 1; worker < WORKERS; worker++) {
        fixture_tick(f, worker, 0);
    }
    fixture_commit(f);
    assert_int_equal(find(f, 0, 1, BSP, 1), SL_SHARD_DONE);
    assert_int_equal(*found(f, 1), 1);
}

CASE(find__of_other_tables_is_refused)
{
    const struct sl_shard_client caller = {.has_clock = false};
    shard_request_begin(&f->request, 0);
    shard_request_find(&f->request, DENSE, keys, 1);
    assert_int_equal(sl_shard_begin(f->shard, &caller, f->request.payload, f->request.bytes,
                                    &f->work, &f->reason),
                     SL_ERR_PROTOCOL);
    assert_non_null(strstr(f->reason.text, "operation 16 on a dense table"));
}
