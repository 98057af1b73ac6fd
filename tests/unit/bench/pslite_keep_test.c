#include "bench/pslite_keep.h"

#include <string.h>

#include "core/limits.h"
#include "tests/support/unit.h"

static struct sl_bench_pslite_keep *keep;
static struct sl_kv_handler handler;

static void set_up(void)
{
    assert_int_equal(sl_bench_pslite_keep_create(&keep), 0);
    handler = sl_bench_pslite_keep_handler(keep);
}

static void tear_down(void)
{
    sl_bench_pslite_keep_destroy(&keep);
    assert_null(keep);
}

/* Takes the answer from where the handler says it is, as a shard does. */
static int ask(const struct sl_kv_request *request)
{
    const void *answer = NULL;
    struct sl_kv_request shown = *request;
    shown.reply = &answer;
    const int err = handler.handle(handler.ctx, &shown);
    if (err == 0 && answer != NULL) {
        memcpy(shown.pull, answer, shown.value_count * shown.value_bytes);
    }
    return err;
}

/* One key's array of bytes. */
static struct sl_kv_request of_bytes(const uint64_t *key, uint64_t count)
{
    return (struct sl_kv_request){.table = "t",
                                  .server_count = 1,
                                  .value_bytes = 1,
                                  .key_count = 1,
                                  .keys = key,
                                  .value_count = count};
}

#define CASE(name) SL_CASE_WITH(name, set_up(), tear_down())

CASE(handle__keeps_the_first_push)
{
    const uint64_t key = 5;
    uint8_t got[3] = {0};
    struct sl_kv_request request = of_bytes(&key, 3);
    request.push = "abc";
    assert_int_equal(ask(&request), 0);
    request.push = "xyz";
    request.pull = got;
    assert_int_equal(ask(&request), 0);
    assert_memory_equal(got, "abc", 3);
}

CASE(handle__a_pull_of_nothing_is_not_found)
{
    const uint64_t key = 5;
    uint8_t got[3];
    struct sl_kv_request request = of_bytes(&key, 3);
    request.pull = got;
    assert_int_equal(ask(&request), SL_ERR_NOT_FOUND);
}

CASE(handle__another_length_is_invalid)
{
    const uint64_t key = 5;
    uint8_t got[4];
    struct sl_kv_request request = of_bytes(&key, 3);
    request.push = "abc";
    assert_int_equal(ask(&request), 0);
    request = of_bytes(&key, 4);
    request.push = "abcd";
    assert_int_equal(ask(&request), SL_ERR_INVALID);
    request.push = NULL;
    request.pull = got;
    assert_int_equal(ask(&request), SL_ERR_INVALID);
}

CASE(handle__servers_have_keys_of_their_own)
{
    const uint64_t key = 5;
    uint8_t got[3];
    struct sl_kv_request request = of_bytes(&key, 3);
    request.push = "abc";
    assert_int_equal(ask(&request), 0);
    request.server = SL_LIMIT_SHARDS - 1;
    request.push = NULL;
    request.pull = got;
    assert_int_equal(ask(&request), SL_ERR_NOT_FOUND);
}

CASE(handle__pieces_become_one_array)
{
    const uint64_t key = 5;
    uint8_t got[3] = {0};
    struct sl_kv_request first = of_bytes(&key, 3);
    first.push = "abc";
    first.array_length = 6;
    struct sl_kv_request second = first;
    second.push = "def";
    second.chunk_start = 3;
    assert_int_equal(ask(&first), 0);
    /* What has not come is not there yet. */
    struct sl_kv_request look = second;
    look.push = NULL;
    look.pull = got;
    assert_int_equal(ask(&look), SL_ERR_NOT_FOUND);
    assert_int_equal(ask(&second), 0);
    second.push = "xxx";
    assert_int_equal(ask(&second), 0);
    assert_int_equal(ask(&look), 0);
    assert_memory_equal(got, "def", 3);
    look.chunk_start = 2;
    look.value_count = 2;
    assert_int_equal(ask(&look), 0);
    assert_memory_equal(got, "cd", 2);
}

CASE(handle__many_keys_of_several_lengths)
{
    enum { KEYS = 1000 };
    static uint64_t keys[KEYS];
    static uint32_t lens[KEYS];
    static float values[KEYS * 3];
    static float got[KEYS * 3];
    uint64_t count = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i * 0x10001ULL;
        lens[i] = i % 3 + 1;
        for (uint32_t j = 0; j < lens[i]; j++) {
            values[count] = (float)count;
            count++;
        }
    }
    struct sl_kv_request request = {.table = "t",
                                    .server_count = 1,
                                    .value_bytes = sizeof(float),
                                    .key_count = KEYS,
                                    .keys = keys,
                                    .lens = lens,
                                    .value_count = count,
                                    .push = values};
    assert_int_equal(ask(&request), 0);
    request.push = NULL;
    request.pull = got;
    assert_int_equal(ask(&request), 0);
    assert_memory_equal(got, values, count * sizeof(float));
}
