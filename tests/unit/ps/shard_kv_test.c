/* KV tables of a shard: what pushes and pulls of arrays do, and what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "core/partition.h"
#include "shard_kv_fixture.h"

static const uint64_t keys[] = {2, 5, UINT64_MAX};
static const uint32_t lens[] = {1, 3, 2};
static const float six[] = {1, 2, 3, 4, 5, 6};

static void shard_run__adds_floats_and_replaces_bytes(void **state)
{
    struct kv_fixture *f = *state;
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH, keys, 3, lens, six, 6), SL_SHARD_DONE);
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH_PULL, keys, 3, lens, six, 6),
                     SL_SHARD_DONE);
    const float twice[] = {2, 4, 6, 8, 10, 12};
    assert_memory_equal(f->reply, twice, sizeof twice);
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PULL, keys + 1, 1, NULL, NULL, 3),
                     SL_SHARD_DONE);
    assert_memory_equal(f->reply, twice + 1, 3 * sizeof(float));
    assert_int_equal(f->work.reply_bytes, 16);
    assert_int_equal(f->reply[12] | f->reply[13] | f->reply[14] | f->reply[15], 0);
    assert_int_equal(kv_run(f, BYTES, SL_REQUEST_KV_PUSH, keys, 3, lens, "abcdef", 6),
                     SL_SHARD_DONE);
    assert_int_equal(kv_run(f, BYTES, SL_REQUEST_KV_PUSH_PULL, keys, 3, lens, "uvwxyz", 6),
                     SL_SHARD_DONE);
    assert_memory_equal(f->reply, "uvwxyz\0", 8);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, kv_setup, kv_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(shard_run__adds_floats_and_replaces_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
