/* Pushes and pulls through the key-value interface, against real servers in this process. */
#include "tests/unit/worker/kv/kv_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/kv/engine.h"

KV_CASE(push_pull__adds_up)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    uint64_t keys[9];
    float push[9 * 3], pull[9 * 3] = {0};
    fixture_keys(keys, 9);
    for (uint32_t i = 0; i < 27; i++) {
        push[i] = (float)i;
    }
    assert_int_equal(sl_kv_push(kv, keys, 9, NULL, push, 27), 0);
    assert_int_equal(sl_kv_pull(kv, keys, 9, NULL, pull, 27), 0);
    assert_memory_equal(pull, push, sizeof push);
    assert_int_equal(sl_kv_push_pull(kv, keys, 9, NULL, push, pull, 27), 0);
    for (uint32_t i = 0; i < 27; i++) {
        assert_true(pull[i] == 2 * (float)i);
    }
    assert_int_equal(sl_kv_push_pull(kv, keys, 9, NULL, push, push, 27), 0); /* onto itself */
    for (uint32_t i = 0; i < 27; i++) {
        assert_true(push[i] == 3 * (float)i);
    }
    sl_kv_destroy(&kv);
}

KV_CASE(push__lens_differ)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    uint64_t keys[40], some[3];
    uint32_t lens[40], told[40], count = 0;
    float *push = calloc(40 * 40, sizeof *push), *pull = calloc(40 * 40, sizeof *pull);
    fixture_keys(keys, 40);
    for (uint32_t i = 0; i < 40; i++) {
        lens[i] = i + 1;
        count += lens[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        push[i] = (float)i / 8;
    }
    assert_int_equal(sl_kv_lengths(kv, keys, 40, told), 0);
    for (uint32_t i = 0; i < 40; i++) {
        assert_int_equal(told[i], 0);
    }
    assert_int_equal(sl_kv_push(kv, keys, 40, lens, push, count), 0);
    assert_int_equal(sl_kv_lengths(kv, keys, 40, told), 0);
    assert_memory_equal(told, lens, sizeof lens);
    assert_int_equal(sl_kv_pull(kv, keys, 40, lens, pull, count), 0);
    assert_memory_equal(pull, push, count * sizeof *push);
    memcpy(some, keys + 7, sizeof some);
    assert_int_equal(sl_kv_pull(kv, some, 3, lens + 7, pull, 8 + 9 + 10), 0);
    assert_memory_equal(pull, push + 28, 27 * sizeof *push);
    free(push);
    free(pull);
    sl_kv_destroy(&kv);
}

KV_CASE(push_pull__long_arrays)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    const uint64_t keys[] = {5, UINT64_MAX - 5};
    const uint32_t lens[] = {(4U << 20) + 1,
                             100001}; /* 16 MiB, in pieces; the second not aligned */
    uint64_t count = (uint64_t)lens[0] + lens[1];
    float *push = malloc(count * sizeof *push), *pull = calloc(count, sizeof *pull);
    for (uint64_t i = 0; i < count; i++) {
        push[i] = (float)(i % 1009);
    }
    assert_int_equal(sl_kv_push(kv, keys, 2, lens, push, count), 0);
    assert_int_equal(sl_kv_pull(kv, keys, 2, lens, pull, count), 0);
    assert_memory_equal(pull, push, count * sizeof *push);
    assert_int_equal(sl_kv_push_pull(kv, keys, 2, lens, push, pull, count), 0);
    for (uint64_t i = 0; i < count; i++) {
        assert_true(pull[i] == 2 * (float)(i % 1009));
    }
    free(push);
    free(pull);
    sl_kv_destroy(&kv);
}

KV_CASE(push__bytes_replace)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 1);
    const uint64_t keys[] = {1, 1ULL << 63, UINT64_MAX};
    const uint32_t lens[] = {3, 1, 9};
    char pull[14] = {0};
    assert_int_equal(sl_kv_push(kv, keys, 3, lens, "abcdefghijklm", 13), 0);
    assert_int_equal(sl_kv_push(kv, keys, 3, lens, "nopqrstuvwxyz", 13), 0);
    assert_int_equal(sl_kv_pull(kv, keys, 3, lens, pull, 13), 0);
    assert_string_equal(pull, "nopqrstuvwxyz");
    sl_kv_destroy(&kv);
}

KV_CASE(push_pull__adds_up_f16_and_bf16)
{
    const uint64_t keys[] = {1, 1ULL << 63, UINT64_MAX};
    const uint32_t kinds[] = {SL_KV_F16, SL_KV_BF16};
    const uint16_t ones[] = {0x3c00, 0x3f80}, twos[] = {0x4000, 0x4000},
                   threes[] = {0x4200, 0x4040};
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_kv *kv = fixture_table(fixture->kv, kinds[i]);
        uint16_t push[9], pull[9] = {0};
        for (uint32_t value = 0; value < 9; value++) {
            push[value] = ones[i];
        }
        assert_int_equal(sl_kv_push(kv, keys, 3, NULL, push, 9), 0);
        assert_int_equal(sl_kv_push_pull(kv, keys, 3, NULL, push, pull, 9), 0);
        for (uint32_t value = 0; value < 9; value++) {
            assert_int_equal(pull[value], twos[i]);
        }
        assert_int_equal(sl_kv_push(kv, keys, 3, NULL, push, 9), 0);
        assert_int_equal(sl_kv_pull(kv, keys, 3, NULL, pull, 9), 0);
        for (uint32_t value = 0; value < 9; value++) {
            assert_int_equal(pull[value], threes[i]);
        }
        assert_int_equal(sl_kv_set_encoding(kv, SL_PRECISION_BF16, SL_PRECISION_F32),
                         SL_ERR_INVALID);
        assert_non_null(strstr(sl_last_error(), "a KV table with values of 2 bytes accepts f32"));
        sl_kv_destroy(&kv);
    }
}

/* Small integers are exact in all of them. */
KV_CASE(set_encoding__sends_narrow_values)
{
    enum { KEYS = 9, COUNT = KEYS * 50000 };
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    uint64_t keys[KEYS], timestamp;
    float *push = malloc(COUNT * sizeof *push), *pull = calloc(COUNT, sizeof *pull);
    char text[256];
    fixture_keys(keys, KEYS);
    for (uint32_t i = 0; i < COUNT; i++) {
        push[i] = (float)(i % 40);
    }
    for (uint32_t precision = 0; precision < SL_PRECISION_COUNT; precision++) {
        const enum sl_precision returned =
            precision == SL_PRECISION_INT8 ? SL_PRECISION_BF16 : precision;
        assert_int_equal(sl_kv_set_encoding(kv, returned, precision), 0);
        assert_int_equal(sl_kv_push_pull(kv, keys, KEYS, NULL, push, pull, COUNT), 0);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_true(pull[i] == push[i] * (float)(precision + 1));
        }
    }
    push[100000] = NAN;
    const struct sl_kv_call call = {
        .batch = {.keys = keys, .key_count = KEYS, .value_count = COUNT, .push = push}};
    assert_int_equal(sl_kv_begin(kv, &call, &timestamp), 0);
    assert_int_equal(sl_kv_wait(kv, timestamp), SL_ERR_INVALID);
    sl_kv_error(kv, timestamp, text, sizeof text);
    assert_non_null(strstr(text, "a gradient is nan: int8 accepts finite values"));
    assert_int_equal(sl_kv_set_encoding(kv, SL_PRECISION_INT8, SL_PRECISION_F32), SL_ERR_INVALID);
    assert_non_null(strstr(sl_last_error(), "pull is int8: a KV table accepts f32, f16, bf16"));
    free(push);
    free(pull);
    sl_kv_destroy(&kv);
}

KV_CASE(open__another_width_exists)
{
    struct sl_kv_options options = fixture_options("width");
    struct sl_kv *first, *second;
    assert_int_equal(sl_kv_open(fixture->kv, &options, &first), 0);
    assert_int_equal(sl_kv_open(fixture->kv, &options, &second), 0);
    float value = 4;
    assert_int_equal(sl_kv_push(first, &(uint64_t){7}, 1, NULL, &value, 1), 0);
    assert_int_equal(sl_kv_push_pull(second, &(uint64_t){7}, 1, NULL, &value, &value, 1), 0);
    assert_true(value == 8);
    sl_kv_destroy(&second);
    options.value_bytes = 1;
    assert_int_equal(sl_kv_open(fixture->kv, &options, &second), SL_ERR_EXISTS);
    options.value_bytes = SL_KV_BF16;
    assert_int_equal(sl_kv_open(fixture->kv, &options, &second), SL_ERR_EXISTS);
    options.value_bytes = 2;
    assert_int_equal(sl_kv_open(fixture->kv, &options, &second), SL_ERR_INVALID);
    sl_kv_destroy(&first);
}

struct calls {
    struct sl_kv *kv;
    uint64_t key;
    float one;
    uint32_t done, begun, failed, most;
    uint64_t last_timestamp;
    int inner_err;
};

static void count_done(void *ctx, uint64_t timestamp, int err)
{
    struct calls *calls = ctx;
    assert_true(timestamp > 0);
    calls->done++;
    calls->failed += err != 0;
}

static struct sl_kv_call push_of(struct calls *calls, sl_kv_done_fn *done)
{
    return (struct sl_kv_call){
        .batch = {.keys = &calls->key, .key_count = 1, .value_count = 1, .push = &calls->one},
        .done = done,
        .ctx = calls};
}

KV_CASE(begin__many_at_once)
{
    struct calls calls = {.kv = fixture_table(fixture->kv, 4), .key = 3, .one = 1};
    struct sl_kv_call call = push_of(&calls, count_done);
    uint64_t timestamps[1000];
    for (uint32_t i = 0; i < 1000; i++) {
        call.priority = (int32_t)(i * 7919 % 1000);
        assert_int_equal(sl_kv_begin(calls.kv, &call, &timestamps[i]), 0);
        assert_true(i == 0 || timestamps[i] > timestamps[i - 1]);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(sl_kv_wait(calls.kv, timestamps[i]), 0);
        assert_true(sl_kv_done(calls.kv, timestamps[i]));
    }
    assert_int_equal(calls.done, 1000);
    assert_int_equal(calls.failed, 0);
    float sum;
    assert_int_equal(sl_kv_pull(calls.kv, &calls.key, 1, NULL, &sum, 1), 0);
    assert_true(sum == 1000);
    sl_kv_destroy(&calls.kv);
}

KV_CASE(done__only_of_what_was_begun)
{
    struct calls calls = {.kv = fixture_table(fixture->kv, 4), .key = 3, .one = 1};
    struct sl_kv_call call = push_of(&calls, count_done);
    uint64_t timestamp;
    assert_int_equal(sl_kv_begin(calls.kv, &call, &timestamp), 0);
    assert_int_equal(sl_kv_wait(calls.kv, timestamp), 0);
    assert_true(sl_kv_done(calls.kv, timestamp));
    const uint64_t never[] = {0, timestamp + 1, UINT64_MAX};
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(sl_kv_done(calls.kv, never[i]));
        assert_int_equal(sl_kv_wait(calls.kv, never[i]), SL_ERR_INVALID);
    }
    sl_kv_destroy(&calls.kv);
}

static void begin__again(void *ctx, uint64_t timestamp, int err)
{
    struct calls *calls = ctx;
    count_done(ctx, timestamp, err);
    if (calls->inner_err == 0) {
        calls->inner_err = sl_kv_wait(calls->kv, timestamp) == SL_ERR_INVALID ? 0 : SL_ERR_IO;
    }
    for (uint32_t i = 0; i < 2 && calls->begun < calls->most; i++) {
        struct sl_kv_call call = push_of(calls, begin__again);
        calls->begun++;
        if (sl_kv_begin(calls->kv, &call, &calls->last_timestamp) != 0) {
            calls->inner_err = SL_ERR_IO;
        }
    }
}

KV_CASE(begin__inside_callbacks)
{
    struct calls calls = {
        .kv = fixture_table(fixture->kv, 4), .key = 3, .one = 1, .begun = 1, .most = 600};
    struct sl_kv_call call = push_of(&calls, begin__again);
    uint64_t timestamp;
    assert_int_equal(sl_kv_begin(calls.kv, &call, &timestamp), 0);
    sl_kv_destroy(&calls.kv); /* waits for those that are begun meanwhile, through it, too */
    assert_null(calls.kv);
    assert_int_equal(calls.done, 600);
    assert_int_equal(calls.failed, 0);
    assert_int_equal(calls.inner_err, 0);
}

KV_CASE(begin__copies_what_it_says)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    uint64_t timestamps[100];
    float pull[6];
    for (uint32_t i = 0; i < 100; i++) {
        uint64_t keys[] = {1, 1ULL << 62, UINT64_MAX - 1};
        uint32_t lens[] = {1, 2, 3};
        float push[] = {1, 2, 3, 4, 5, 6};
        struct sl_kv_call call = {
            .batch = {.keys = keys, .lens = lens, .key_count = 3, .value_count = 6, .push = push},
            .copy_inputs = true};
        assert_int_equal(sl_kv_begin(kv, &call, &timestamps[i]), 0);
        memset(keys, 0xff, sizeof keys);
        memset(lens, 0xff, sizeof lens);
        memset(push, 0xff, sizeof push);
    }
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(sl_kv_wait(kv, timestamps[i]), 0);
    }
    const uint64_t keys[] = {1, 1ULL << 62, UINT64_MAX - 1};
    const uint32_t lens[] = {1, 2, 3};
    assert_int_equal(sl_kv_pull(kv, keys, 3, lens, pull, 6), 0);
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(pull[i] == 100 * (float)(i + 1));
    }
    sl_kv_destroy(&kv);
}

/* What the calls that are over keep; the greatest of all copies: *most. */
static size_t kept_bytes(struct sl_engine *engine, size_t *most)
{
    size_t bytes = 0;
    *most = 0;
    sl_engine_lock(engine);
    for (struct sl_engine_call *call = engine->free_calls; call != NULL; call = call->next) {
        bytes += call->copy_bytes;
        *most = call->copy_bytes > *most ? call->copy_bytes : *most;
    }
    sl_engine_unlock(engine);
    return bytes;
}

KV_CASE(begin__keeps_no_long_copies)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    enum { VALUES = 1 << 16, CALLS = 20 };
    float *push = calloc(VALUES, sizeof *push);
    uint64_t timestamps[CALLS];
    for (uint32_t i = 0; i < CALLS; i++) {
        const uint64_t key = i;
        struct sl_kv_call call = {
            .batch = {.keys = &key, .key_count = 1, .value_count = VALUES, .push = push},
            .copy_inputs = true};
        call.batch.value_count = i % 2 == 0 ? VALUES : 16;
        assert_int_equal(sl_kv_begin(kv, &call, &timestamps[i]), 0);
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_int_equal(sl_kv_wait(kv, timestamps[i]), 0);
    }
    size_t most;
    assert_true(kept_bytes(kv->engine, &most) > 0); /* short ones are */
    assert_true(most <= SL_ENGINE_COPY_BYTES);
    free(push);
    sl_kv_destroy(&kv);
}

KV_CASE(destroy__waits_for_what_is_outstanding)
{
    struct calls calls = {.kv = fixture_table(fixture->kv, 4), .key = 3, .one = 1};
    struct sl_kv_call call = push_of(&calls, count_done);
    uint64_t timestamp;
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(sl_kv_begin(calls.kv, &call, &timestamp), 0);
    }
    sl_kv_destroy(&calls.kv);
    assert_int_equal(calls.done, 50);
    assert_int_equal(calls.failed, 0);
}

KV_CASE(begin__refuses_bad_batches)
{
    const uint64_t keys[] = {1, 2, 2}, falling[] = {2, 1};
    const uint32_t lens[] = {1, 0}, more[] = {2, 2};
    float values[4] = {0};
    const struct sl_kv_batch bad[] = {
        {.keys = keys, .key_count = 3, .value_count = 3, .push = values},
        {.keys = falling, .key_count = 2, .value_count = 2, .pull = values},
        {.keys = keys, .key_count = 2, .value_count = 3, .push = values},
        {.keys = keys, .key_count = 2, .value_count = 0, .push = values},
        {.keys = keys, .lens = lens, .key_count = 2, .value_count = 1, .push = values},
        {.keys = keys, .lens = more, .key_count = 2, .value_count = 3, .push = values},
        {.keys = keys, .key_count = 2, .value_count = 2},
        {.keys = NULL, .key_count = 2, .value_count = 2, .push = values},
        {.keys = keys, .key_count = 0, .value_count = 2, .push = values},
    };
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t timestamp = 77;
        assert_int_equal(
            sl_kv_begin(fixture->kv, &(struct sl_kv_call){.batch = bad[i]}, &timestamp),
            SL_ERR_INVALID);
        assert_int_equal(timestamp, 77);
    }
    assert_int_equal(sl_kv_push(fixture->kv, keys, 0, NULL, values, 0), 0);
}

static void check_refused(int err, const char *expected)
{
    assert_int_equal(err, SL_ERR_INVALID);
    if (strstr(sl_last_error(), expected) == NULL) {
        fail_msg("'%s' does not contain '%s'", sl_last_error(), expected);
    }
}

KV_CASE(last_error__names_what_a_call_refuses)
{
    const uint64_t keys[] = {2, 1};
    float values[2] = {0};
    uint32_t lens[2];
    struct sl_kv *kv = fixture_table(fixture->kv, 4), *other;
    struct sl_kv_options options = fixture_options(NULL);
    options.value_bytes = 3;
    check_refused(sl_kv_open(kv, &options, &other), "values of 3 bytes");
    check_refused(sl_kv_push(kv, keys, 2, NULL, values, 2), "KV batch of 2 keys and 2 values");
    check_refused(sl_kv_pull(kv, NULL, 2, NULL, values, 2), "KV batch of 2 keys");
    check_refused(sl_kv_push_pull(kv, keys, 1, NULL, NULL, NULL, 1), "push or pull be given");
    check_refused(sl_kv_lengths(kv, NULL, 2, lens), "keys or lens is NULL");
    check_refused(sl_kv_lengths(kv, keys, 2, lens), "keys[1] is 1 after 2");
    check_refused(sl_kv_wait(kv, UINT64_MAX), "never begun");
    check_refused(sl_kv_barrier(kv, "", 1000), "names of 1 to");
    assert_int_equal(sl_kv_pull(kv, keys, 1, NULL, values, 1), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(sl_last_error(), "shard"));
    sl_kv_destroy(&kv);
}

KV_CASE(wait__tells_why_it_failed)
{
    struct calls calls = {.kv = fixture_table(fixture->kv, 4), .key = 3, .one = 1};
    float values[2] = {1, 2};
    char text[256];
    uint64_t failed, timestamp;
    struct sl_kv_call call = {
        .batch = {.keys = &calls.key, .key_count = 1, .value_count = 2, .pull = values},
        .done = count_done,
        .ctx = &calls};
    assert_int_equal(sl_kv_begin(calls.kv, &call, &failed), 0);
    assert_int_equal(sl_kv_wait(calls.kv, failed), SL_ERR_NOT_FOUND);
    assert_int_equal(calls.failed, 1);
    sl_kv_error(calls.kv, failed, text, sizeof text);
    assert_non_null(strstr(text, "shard"));
    assert_int_equal(sl_kv_push(calls.kv, &calls.key, 1, NULL, values, 2), 0);
    assert_int_equal(sl_kv_push(calls.kv, &calls.key, 1, NULL, values, 1), SL_ERR_INVALID);
    assert_int_equal(sl_kv_wait(calls.kv, failed), SL_ERR_NOT_FOUND); /* kept */
    call.batch.key_count = 1;
    calls.key = 4;
    for (uint32_t i = 0; i < SL_KV_RESULTS; i++) {
        assert_int_equal(sl_kv_begin(calls.kv, &call, &timestamp), 0);
    }
    assert_int_equal(sl_kv_wait(calls.kv, timestamp), SL_ERR_NOT_FOUND);
    sl_kv_destroy(&calls.kv);
    assert_int_equal(sl_kv_wait(fixture->kv, failed), 0); /* forgotten */
    assert_int_equal(sl_kv_wait(fixture->kv, timestamp), SL_ERR_NOT_FOUND);
    sl_kv_error(fixture->kv, failed, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(sl_kv_wait(fixture->kv, timestamp + 1), SL_ERR_INVALID);
    assert_int_equal(sl_kv_wait(fixture->kv, 0), SL_ERR_INVALID);
}

/* What the coordinator says of a ps, of which the client has heard. */
KV_CASE(begin__fails_when_a_server_has_lost_values)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    const uint64_t key = 5;
    const float value = 1;
    _Atomic uint32_t *values_lost = &kv->engine->client->ios[0].values_lost;
    assert_int_equal(sl_kv_push(kv, &key, 1, NULL, &value, 1), 0);
    *values_lost = 1 + 1;
    const struct sl_kv_call call = {
        .batch = {.keys = &key, .key_count = 1, .push = &value, .value_count = 1}};
    uint64_t timestamp;
    char text[256];
    assert_int_equal(sl_kv_begin(kv, &call, &timestamp), 0);
    assert_int_equal(sl_kv_wait(kv, timestamp), SL_ERR_CORRUPT);
    sl_kv_error(kv, timestamp, text, sizeof text);
    assert_non_null(strstr(text, "ps/1 was restarted without the values"));
    *values_lost = 0;
    sl_kv_destroy(&kv);
}

KV_CASE(wait__ends_by_the_deadline)
{
    struct sl_kv_options options = fixture_options(NULL);
    options.timeout_ms = 300;
    struct calls calls = {.key = UINT64_MAX, .one = 1}; /* the last server's, of ps 1 */
    assert_int_equal(sl_kv_open(fixture->kv, &options, &calls.kv), 0);
    sl_cluster_pause(fixture->cluster, 1);
    struct sl_kv_call call = push_of(&calls, count_done);
    uint64_t timestamps[400];
    for (uint32_t i = 0; i < 400; i++) {
        assert_int_equal(sl_kv_begin(calls.kv, &call, &timestamps[i]), 0);
    }
    for (uint32_t i = 0; i < 400; i++) {
        assert_int_equal(sl_kv_wait(calls.kv, timestamps[i]), SL_ERR_DEADLINE);
    }
    assert_int_equal(calls.failed, 400);
    sl_cluster_resume(fixture->cluster, 1);
    float value = 1;
    struct sl_kv *again = fixture_table(fixture->kv, 4);
    assert_int_equal(sl_kv_push_pull(again, &calls.key, 1, NULL, &value, &value, 1), 0);
    sl_kv_destroy(&again);
    sl_kv_destroy(&calls.kv);
}

struct order {
    uint32_t *next;
    uint32_t place;
};

static void note_place(void *ctx, uint64_t timestamp, int err)
{
    struct order *order = ctx;
    order->place = (*order->next)++;
}

KV_CASE(begin__the_greater_priority_goes_first)
{
    struct calls calls = {.kv = fixture_table(fixture->kv, 4), .key = UINT64_MAX, .one = 1};
    struct sl_kv_call call = push_of(&calls, note_place);
    uint32_t next = 0;
    struct order orders[600];
    uint64_t timestamps[600];
    assert_int_equal(sl_kv_push(calls.kv, &calls.key, 1, NULL, &calls.one, 1), 0);
    sl_cluster_pause(fixture->cluster, 1);
    for (uint32_t i = 0; i < 600; i++) {
        orders[i].next = &next;
        call.ctx = &orders[i];
        call.priority = i == 599 ? 1 : 0;
        assert_int_equal(sl_kv_begin(calls.kv, &call, &timestamps[i]), 0);
    }
    sl_cluster_resume(fixture->cluster, 1);
    for (uint32_t i = 0; i < 600; i++) {
        assert_int_equal(sl_kv_wait(calls.kv, timestamps[i]), 0);
        assert_true(i == 0 || i == 599 || orders[i].place > orders[i - 1].place);
    }
    assert_true(orders[599].place < orders[598].place);
    sl_kv_destroy(&calls.kv);
}

KV_CASE(server_range__covers_all_keys)
{
    assert_int_equal(sl_kv_rank(fixture->kv), 0);
    assert_int_equal(sl_kv_worker_count(fixture->kv), 2);
    assert_int_equal(sl_kv_server_count(fixture->kv), SHARDS);
    uint64_t first, last, before = UINT64_MAX;
    for (uint32_t server = 0; server < SHARDS; server++) {
        sl_kv_server_range(fixture->kv, server, &first, &last);
        assert_int_equal(first, before + 1);
        assert_true(last > first);
        before = last;
    }
    assert_true(before == UINT64_MAX);
    assert_int_equal(sl_kv_client(fixture->kv) != NULL, fixture_manual_progress);
}

/* Pulls of lengths that only the servers know */

struct placed {
    uint32_t lens[64];
    uint64_t value_count;
    uint32_t calls;
    float *values; /* NULL: no memory */
};

static void *place(void *ctx, const uint32_t *lens, uint64_t value_count)
{
    struct placed *placed = ctx;
    memcpy(placed->lens, lens, sizeof placed->lens);
    placed->value_count = value_count;
    placed->calls++;
    return placed->values;
}

static int pull_placed(struct sl_kv *kv, const uint64_t *keys, struct placed *placed)
{
    const struct sl_kv_call call = {
        .batch = {.keys = keys, .key_count = 64}, .place = place, .ctx = placed};
    uint64_t timestamp;
    const int err = sl_kv_begin(kv, &call, &timestamp);
    return err == 0 ? sl_kv_wait(kv, timestamp) : err;
}

KV_CASE(place__receives_the_lengths)
{
    struct sl_kv_options options = fixture_options(NULL);
    struct sl_kv *kv, *zeros;
    assert_int_equal(sl_kv_open(fixture->kv, &options, &kv), 0);
    options.zeros = true;
    assert_int_equal(sl_kv_open(fixture->kv, &options, &zeros), 0);
    uint64_t keys[64], pushed[48];
    uint32_t lens[48], count = 0;
    static float values[48 * 49];
    static float room[48 * 49 + 64];
    struct placed placed = {.values = room};
    fixture_keys(keys, 64);
    assert_int_equal(pull_placed(kv, keys, &placed), 0); /* nothing was pushed */
    assert_int_equal(placed.calls, 1);
    assert_int_equal(placed.value_count, 0);
    for (uint32_t i = 0; i < 48; i++) { /* every fourth key is missing */
        pushed[i] = keys[i / 3 * 4 + i % 3];
        lens[i] = 1 + i;
        count += lens[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        values[i] = (float)i + 1;
    }
    assert_int_equal(sl_kv_push(kv, pushed, 48, lens, values, count), 0);
    for (uint32_t round = 0; round < 2; round++) { /* the second time all fit */
        memset(room, 0xff, sizeof room);
        placed = (struct placed){.values = room};
        assert_int_equal(pull_placed(kv, keys, &placed), 0);
        assert_int_equal(placed.calls, 1);
        assert_int_equal(placed.value_count, count);
        assert_memory_equal(room, values, count * sizeof *values);
        for (uint32_t i = 0; i < 64; i++) {
            assert_int_equal(placed.lens[i], i % 4 == 3 ? 0 : 1 + i / 4 * 3 + i % 4);
        }
        assert_int_equal(pull_placed(zeros, keys, &placed), 0);
        assert_int_equal(placed.value_count, count + 16);
        assert_int_equal(placed.lens[3], 1);
        assert_true(room[0] == 1 && room[6] == 0 && room[7] == 7);
    }
    placed.values = NULL;
    assert_int_equal(pull_placed(kv, keys, &placed), SL_ERR_NO_MEMORY);
    uint64_t timestamp;
    const struct sl_kv_call wrong = {
        .batch = {.keys = keys, .key_count = 64, .value_count = 64, .pull = room}, .place = place};
    assert_int_equal(sl_kv_begin(kv, &wrong, &timestamp), SL_ERR_INVALID);
    sl_kv_destroy(&zeros);
    sl_kv_destroy(&kv);
}

KV_CASE(zeros__are_pulled_of_keys_that_nobody_pushed)
{
    static const uint32_t lens[] = {3, 2, 5};
    struct sl_kv_options options = fixture_options(NULL);
    options.zeros = true;
    struct sl_kv *kv;
    assert_int_equal(sl_kv_open(fixture->kv, &options, &kv), 0);
    uint64_t keys[3];
    float pushed[2] = {7, 8}, pulled[10];
    fixture_keys(keys, 3);
    assert_int_equal(sl_kv_push(kv, &keys[1], 1, NULL, pushed, 2), 0);
    for (uint32_t way = 0; way < 2; way++) {
        memset(pulled, 0xff, sizeof pulled);
        assert_int_equal(sl_kv_pull(kv, keys, 3, lens, pulled, 10), 0);
        for (uint32_t i = 0; i < 10; i++) {
            assert_true(pulled[i] == (i == 3 ? 7.0F : i == 4 ? 8.0F : 0.0F));
        }
        assert_int_equal(sl_kv_set_encoding(kv, SL_PRECISION_BF16, SL_PRECISION_F32), 0);
    }
    assert_int_equal(sl_kv_pull(kv, &keys[1], 1, NULL, pulled, 3), SL_ERR_INVALID);
    sl_kv_destroy(&kv);
    float *many = calloc(2000000, sizeof *many); /* in chunks */
    memset(many, 0xff, 2000000 * sizeof *many);
    assert_int_equal(sl_kv_open(fixture->kv, &options, &kv), 0);
    assert_int_equal(sl_kv_pull(kv, keys, 1, NULL, many, 2000000), 0);
    for (uint32_t i = 0; i < 2000000; i++) {
        assert_true(many[i] == 0);
    }
    free(many);
    sl_kv_destroy(&kv);
}

KV_CASE(buffer__is_used_where_it_is)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    void *memory;
    assert_int_equal(sl_kv_buffer_create(kv, 2 * 400000 * sizeof(float), &memory), 0);
    float *push = memory, *pull = push + 400000;
    for (uint32_t i = 0; i < 400000; i++) {
        push[i] = (float)(i % 77);
    }
    assert_int_equal(sl_kv_push_pull(kv, &(uint64_t){9}, 1, NULL, push, pull, 400000), 0);
    assert_memory_equal(pull, push, 400000 * sizeof *push);
    sl_kv_buffer_free(kv, &memory);
    assert_null(memory);
    sl_kv_destroy(&kv);
}

KV_CASE(buffer__is_registered_once)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    enum { COUNT = 100000 };
    float *push = calloc(2 * COUNT, sizeof *push), *pull = push + COUNT;
    for (uint32_t i = 0; i < COUNT; i++) {
        push[i] = (float)(i % 77);
    }
    assert_int_equal(sl_kv_buffer_register(kv, push, 2 * COUNT * sizeof *push), 0);
    assert_int_equal(sl_kv_buffer_register(kv, pull, 1), SL_ERR_EXISTS);
    assert_int_equal(sl_kv_push_pull(kv, &(uint64_t){9}, 1, NULL, push, pull, COUNT), 0);
    assert_memory_equal(pull, push, COUNT * sizeof *push);
    sl_kv_buffer_unregister(kv, push);
    assert_int_equal(sl_kv_buffer_register(kv, pull, 1), 0);
    sl_kv_buffer_unregister(kv, pull);
    sl_kv_destroy(&kv);
    free(push);
}

SL_UNIT_GROUP(fixture_setup, fixture_teardown);

SL_UNIT_WAYS(fixture_way);
