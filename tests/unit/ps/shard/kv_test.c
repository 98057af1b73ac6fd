/* KV tables of a shard: what pushes and pulls of arrays do, and what they refuse. */

#include <stdlib.h>
#include <string.h>

#include "core/partition.h"
#include "kv_fixture.h"
#include "tests/support/unit.h"

#define CASE(name) SL_CASE_USING(name, struct kv_fixture, f, kv_setup, kv_teardown)

#define LONG       300000 /* values of an array that is visited in slices, and streamed */
#define MANY       1500   /* keys of a push that is claimed in slices */

static const uint64_t keys[] = {2, 5, UINT64_MAX};
static const uint32_t lens[] = {1, 3, 2};
static const float six[] = {1, 2, 3, 4, 5, 6};

static float *numbers(uint32_t count, float first)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = first + (float)i;
    }
    return values;
}

/* The error names the key, and what it has. */
static void assert_fails(struct kv_fixture *f, int err, const char *why)
{
    assert_int_equal(kv_run_request(f), err);
    if (strstr(f->reason.text, why) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", why, f->reason.text);
    }
}

CASE(shard_begin__refuses_operations_of_other_tables)
{
    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, FLOATS, keys, 3);
    assert_fails(f, SL_ERR_PROTOCOL, "operation 1 on a KV table");
    kv_request(f, ROWS, SL_REQUEST_KV_LENGTHS, keys, 3, NULL, NULL, 0);
    assert_fails(f, SL_ERR_PROTOCOL, "operation 12 on a sparse table");
    kv_request(f, FLOATS, SL_REQUEST_KV_PULL, keys, 1, NULL, NULL,
               SL_LIMIT_FRAME_PAYLOAD_BYTES / sizeof(float) + 1);
    assert_fails(f, SL_ERR_TOO_LARGE, "the reply would be longer");
}

CASE(shard_run__visits_long_arrays_in_slices)
{
    float *values = numbers(LONG, 1);
    for (int round = 1; round <= 3; round++) {
        const uint8_t op = round == 2 ? SL_REQUEST_KV_PUSH_PULL : SL_REQUEST_KV_PUSH;
        assert_int_equal(kv_run(f, FLOATS, op, keys, 1, NULL, values, LONG), SL_SHARD_DONE);
        assert_true(f->slices > 4);
    }
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PULL, keys, 1, NULL, NULL, LONG),
                     SL_SHARD_DONE);
    assert_true(f->slices > 4);
    for (uint32_t i = 0; i < LONG; i++) {
        float value;
        memcpy(&value, f->reply + i * sizeof value, sizeof value);
        assert_true(value == 3 * values[i]);
    }
    free(values);
}

/* Two first pushes of one array, slice by slice in turns: nothing of either is lost. */
CASE(shard_run__pushes_of_one_array_may_go_side_by_side)
{
    float *values = numbers(LONG, 1);
    uint8_t *payload = malloc(SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(payload);
    kv_request(f, FLOATS, SL_REQUEST_KV_PUSH, keys, 1, NULL, values, LONG);
    memcpy(payload, f->request.payload, f->request.bytes);
    struct sl_shard_request works[2];
    const struct sl_shard_client caller = {0};
    assert_int_equal(kv_begin(f, &works[0]), 0);
    assert_int_equal(
        sl_shard_begin(f->shard, &caller, payload, f->request.bytes, &works[1], &f->reason), 0);
    int results[2] = {SL_SHARD_AGAIN, SL_SHARD_AGAIN};
    for (uint32_t turn = 0; results[0] != SL_SHARD_DONE || results[1] != SL_SHARD_DONE; turn++) {
        /* The one behind overtakes the other, and is overtaken. */
        const uint32_t which = turn % 5 < 2;
        uint32_t spent;
        if (results[which] != SL_SHARD_DONE) {
            results[which] =
                sl_shard_run(f->shard, &works[which], NULL, 300 + 100 * which, &spent, &f->reason);
        }
    }
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PULL, keys, 1, NULL, NULL, LONG),
                     SL_SHARD_DONE);
    for (uint32_t i = 0; i < LONG; i++) {
        float value;
        memcpy(&value, f->reply + i * sizeof value, sizeof value);
        assert_true(value == 2 * values[i]);
    }
    free(payload);
    free(values);
}

static void many_keys(uint64_t *to, uint64_t step)
{
    for (uint64_t i = 0; i < MANY; i++) {
        to[i] = i * step;
    }
}

CASE(shard_run__a_push_of_many_keys_claims_them_first)
{
    uint64_t many[MANY];
    many_keys(many, 3);
    float *values = numbers(2 * MANY, 1);
    f->key_budget = 20;
    kv_request(f, FLOATS, SL_REQUEST_KV_PUSH_PULL, many, MANY, NULL, values, 2 * MANY);
    static uint8_t payload[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    memcpy(payload, f->request.payload, f->request.bytes);
    const struct sl_shard_client caller = {0};
    struct sl_shard_request work;
    assert_int_equal(
        sl_shard_begin(f->shard, &caller, payload, f->request.bytes, &work, &f->reason), 0);
    uint32_t spent;
    assert_false(sl_shard_ready(f->shard, &work, 20));
    assert_int_equal(sl_shard_run(f->shard, &work, f->reply, 20, &spent, &f->reason),
                     SL_SHARD_AGAIN);
    /* Some are claimed: not there, but their length is settled; the same length is welcome. */
    struct sl_shard_request other;
    assert_int_equal(kv_length(f, FLOATS, 3), 0);
    kv_request(f, FLOATS, SL_REQUEST_KV_PULL, many + 1, 1, NULL, NULL, 2);
    assert_fails(f, SL_ERR_NOT_FOUND, "no client has pushed key 3");
    kv_request(f, FLOATS, SL_REQUEST_KV_PUSH, many + 1, 1, NULL, values, 1);
    assert_fails(f, SL_ERR_INVALID, "key 3 has 2 values, asked for are 1");
    kv_request(f, FLOATS, SL_REQUEST_KV_PUSH, many + 1, 1, NULL, six, 2);
    assert_int_equal(kv_run_request(f), SL_SHARD_DONE);
    /* Another long push has to wait, a short one has not. */
    kv_request(f, FLOATS, SL_REQUEST_KV_PUSH, many, MANY, NULL, values, MANY);
    assert_int_equal(kv_begin(f, &other), 0);
    assert_false(sl_shard_ready(f->shard, &other, UINT32_MAX));
    assert_int_equal(sl_shard_run(f->shard, &other, NULL, 1000, &spent, &f->reason),
                     SL_SHARD_AGAIN);
    sl_shard_abandon(f->shard, &other);
    assert_int_equal(kv_go_on(f, &work), SL_SHARD_DONE);
    assert_true(f->slices > 10);
    for (uint32_t i = 0; i < 2 * MANY; i++) {
        float value;
        memcpy(&value, f->reply + i * sizeof value, sizeof value);
        assert_true(value == values[i] + (i == 2 ? 1.0F : i == 3 ? 2.0F : 0.0F));
    }
    free(values);
}

CASE(shard_curtail__lets_a_push_end_that_has_been_applied_in_part)
{
    float *values = numbers(LONG, 1);
    uint32_t spent;
    kv_request(f, FLOATS, SL_REQUEST_KV_PUSH_PULL, keys, 1, NULL, values, LONG);
    assert_int_equal(kv_begin(f, &f->work), 0);
    assert_int_equal(sl_shard_run(f->shard, &f->work, f->reply, 100, &spent, &f->reason),
                     SL_SHARD_AGAIN);
    assert_false(sl_shard_stop_writes(&f->work));
    assert_int_equal(kv_go_on(f, &f->work), SL_SHARD_DONE);
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PULL, keys, 1, NULL, NULL, LONG),
                     SL_SHARD_DONE);
    assert_memory_equal(f->reply, values, LONG * sizeof(float));
    free(values);
}

CASE(shard_replay__pulls_and_does_not_push_again)
{
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH_PULL, keys, 3, lens, six, 6),
                     SL_SHARD_DONE);
    for (uint8_t op = SL_REQUEST_KV_PUSH; op <= SL_REQUEST_KV_PUSH_PULL; op += 2) {
        kv_request(f, FLOATS, op, keys, 3, lens, six, 6);
        assert_int_equal(kv_begin(f, &f->work), 0);
        sl_shard_skip_writes(&f->work);
        memset(f->reply, 0, sizeof six);
        assert_int_equal(kv_go_on(f, &f->work), SL_SHARD_DONE);
    }
    assert_memory_equal(f->reply, six, sizeof six);
}

/* A shard of four answers for its range of keys, and for no other. */
CASE(shard_run__keys_are_sharded_by_ranges)
{
    sl_shard_destroy(&f->shard);
    kv_make(f, &(struct sl_shard_options){.index = 2, .count = 4});
    const uint64_t first = sl_partition_kv_first(2, 4);
    const uint64_t last = sl_partition_kv_first(3, 4) - 1;
    const uint64_t ours[] = {first, last};
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH, ours, 2, NULL, six, 2), SL_SHARD_DONE);
    for (uint8_t op = SL_REQUEST_KV_PUSH; op <= SL_REQUEST_KV_LENGTHS; op++) {
        const uint64_t others[] = {first, first - 1};
        const bool has_count = op != SL_REQUEST_KV_LENGTHS;
        const bool pushes = op != SL_REQUEST_KV_PULL && has_count;
        kv_request(f, FLOATS, op, others, 2, NULL, pushes ? six : NULL, has_count ? 2 : 0);
        assert_fails(f, SL_ERR_WRONG_SHARD, "key 9223372036854775807 belongs to shard 1 of 4");
    }
    kv_request(f, FLOATS, SL_REQUEST_KV_PULL, (uint64_t[]){last + 1}, 1, NULL, NULL, 2);
    assert_fails(f, SL_ERR_WRONG_SHARD, "belongs to shard 3 of 4");
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PULL, ours, 2, NULL, NULL, 2), SL_SHARD_DONE);
    assert_memory_equal(f->reply, six, 2 * sizeof(float));
}

/* The limit is the shard's, of all tables together; a push beyond it changes nothing. */
CASE(shard_run__keeps_the_memory_limit)
{
    sl_shard_destroy(&f->shard);
    kv_make(f, &(struct sl_shard_options){.count = 1, .memory_bytes_max = (size_t)4 << 20});
    float *values = numbers(LONG, 1);
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH, keys, 1, NULL, values, LONG),
                     SL_SHARD_DONE);
    const uint64_t before = kv_stats(f, FLOATS).bytes;
    assert_true(before >= LONG * sizeof(float));
    kv_request_piece(f, BYTES, SL_REQUEST_KV_PUSH, 8, 0, 3 << 20, values, 8);
    assert_fails(f, SL_ERR_NO_MEMORY, "the limit is 4194304");
    /* The second of two does not fit: neither is there. */
    const uint64_t two[] = {10, 11};
    const uint32_t two_lens[] = {10, LONG * sizeof(float)};
    kv_request(f, BYTES, SL_REQUEST_KV_PUSH, two, 2, two_lens, f->reply, two_lens[0] + two_lens[1]);
    assert_int_equal(kv_run_request(f), SL_SHARD_DONE);
    const uint64_t more[] = {12, 13};
    kv_request(f, BYTES, SL_REQUEST_KV_PUSH, more, 2, two_lens, f->reply,
               two_lens[0] + two_lens[1]);
    assert_int_equal(kv_run_request(f), SL_SHARD_DONE);
    const uint64_t most[] = {14, 15};
    kv_request(f, BYTES, SL_REQUEST_KV_PUSH, most, 2, two_lens, f->reply,
               two_lens[0] + two_lens[1]);
    assert_fails(f, SL_ERR_NO_MEMORY, "no memory for more arrays");
    assert_int_equal(kv_length(f, BYTES, 14), 0);
    assert_int_equal(kv_length(f, BYTES, 15), 0);
    assert_int_equal(kv_stats(f, BYTES).rows, 4);
    /* What is there goes on. */
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH, keys, 1, NULL, values, LONG),
                     SL_SHARD_DONE);
    assert_int_equal(kv_stats(f, FLOATS).bytes, before);
    free(values);
}

CASE(shard_streams__pulls_of_one_long_array)
{
    float *values = numbers(LONG, 1);
    kv_request(f, FLOATS, SL_REQUEST_KV_PULL, keys, 1, NULL, NULL, LONG);
    assert_int_equal(kv_begin(f, &f->work), 0);
    assert_false(sl_shard_is_chunked(f->shard, &f->work)); /* it is not there: an error */
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH, keys, 1, NULL, values, LONG),
                     SL_SHARD_DONE);
    for (uint32_t from = 0; from < 2; from++) {
        const uint32_t count = LONG - 1 - 2 * from; /* odd: there is padding */
        kv_request_piece(f, FLOATS, SL_REQUEST_KV_PULL, keys[0], from, LONG, NULL, count);
        assert_int_equal(kv_begin(f, &f->work), 0);
        assert_true(sl_shard_is_chunked(f->shard, &f->work));
        memset(f->reply, 0xff, f->work.reply_bytes);
        for (uint64_t at = 0; at < f->work.reply_bytes;) {
            const uint64_t left = f->work.reply_bytes - at;
            uint32_t bytes = left < 61440 ? (uint32_t)left : 61440;
            if (from == 1 && bytes == 61440) { /* where they lie */
                struct iovec part;
                assert_int_equal(sl_shard_next_values(f->shard, &f->work, bytes + 3, &part, 1), 1);
                assert_int_equal(part.iov_len, bytes);
                bytes -= 32;
                memcpy(f->reply + at, part.iov_base, bytes);
                assert_true(sl_shard_pass_values(f->shard, &f->work, bytes) > 0);
            } else {
                assert_true(sl_shard_next_chunk(f->shard, &f->work, f->reply + at, bytes) > 0);
            }
            at += bytes;
        }
        assert_int_equal(f->work.reply_done, f->work.reply_bytes);
        assert_memory_equal(f->reply, values + from, count * sizeof(float));
        assert_memory_equal(f->reply + count * sizeof(float), "\0\0\0", sizeof(float));
    }
    kv_request_piece(f, FLOATS, SL_REQUEST_KV_PULL, keys[0], 0, LONG + 1, NULL, LONG);
    assert_int_equal(kv_begin(f, &f->work), 0);
    assert_false(sl_shard_is_chunked(f->shard, &f->work)); /* another length: an error */
    assert_int_equal(kv_stats(f, FLOATS).pulled_rows, 2);
    free(values);
}

CASE(shard_run__mixes_tables_in_one_request)
{
    const uint64_t row = 4;
    shard_request_begin(&f->request, 0);
    struct sl_request_section section = {
        .op = SL_REQUEST_KV_PUSH_PULL, .table_id = BYTES, .count = 3};
    shard_request_kv(&f->request, section, keys + 1, 1, NULL, "xyz", 1);
    shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, ROWS, &row, 1, six, 4);
    section = (struct sl_request_section){.op = SL_REQUEST_KV_LENGTHS, .table_id = BYTES};
    shard_request_kv(&f->request, section, keys, 3, NULL, NULL, 1);
    section =
        (struct sl_request_section){.op = SL_REQUEST_KV_PUSH_PULL, .table_id = FLOATS, .count = 1};
    shard_request_kv(&f->request, section, keys, 1, NULL, six + 5, 4);
    f->key_budget = 1;
    memset(f->reply, 0xff, 64);
    assert_int_equal(kv_run_request(f), SL_SHARD_DONE);
    assert_int_equal(f->work.reply_bytes, 8 + 16 + 16 + 8);
    assert_memory_equal(f->reply, "xyz\0\0\0\0", 8);
    assert_memory_equal(f->reply + 8, six, 16);
    assert_memory_equal(f->reply + 24, ((uint32_t[]){0, 3, 0, 0}), 16);
    assert_memory_equal(f->reply + 40, ((float[]){6, 0}), 8);
}

CASE(shard_ready__means_done_in_one_call_within_the_cost)
{
    uint64_t many[MANY];
    many_keys(many, 1);
    float *values = numbers(LONG, 1);
    static const uint32_t key_counts[] = {1, 3, 256, 257, MANY};
    for (uint32_t i = 0; i < 5; i++) {
        for (uint8_t op = SL_REQUEST_KV_PUSH; op <= SL_REQUEST_KV_LENGTHS; op++) {
            const uint32_t each = LONG / key_counts[i] / 2;
            const bool lengths = op == SL_REQUEST_KV_LENGTHS;
            struct sl_shard_request work;
            uint32_t spent;
            for (uint32_t key = 0; key < key_counts[i]; key++) {
                many[key] = (uint64_t)i << 32 | key;
            }
            kv_request(f, FLOATS, op, many, key_counts[i], NULL,
                       lengths || op == SL_REQUEST_KV_PULL ? NULL : values,
                       lengths ? 0 : (uint64_t)each * key_counts[i]);
            assert_int_equal(kv_begin(f, &work), 0);
            assert_false(sl_shard_ready(f->shard, &work, work.cost - 1));
            assert_true(sl_shard_ready(f->shard, &work, work.cost));
            assert_int_equal(
                sl_shard_run(f->shard, &work, f->reply, (uint32_t)work.cost, &spent, &f->reason),
                SL_SHARD_DONE);
            assert_true(spent <= work.cost);
        }
    }
    free(values);
}

CASE(shard_stats__counts_keys)
{
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH, keys, 3, lens, six, 6), SL_SHARD_DONE);
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH_PULL, keys, 1, NULL, six, 1),
                     SL_SHARD_DONE);
    const struct sl_message_table_stats stats = kv_stats(f, FLOATS);
    assert_string_equal(stats.name, "floats");
    assert_int_equal(stats.rows, 3);
    assert_int_equal(stats.pushed_rows, 4);
    assert_int_equal(stats.pulled_rows, 1);
    assert_true(stats.bytes > 3 * 64);
}
