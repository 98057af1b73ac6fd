#include <string.h>

#include "core/hash.h"
#include "net/dpdk/received_packets.h"
#include "tests/support/unit.h"

#define NEAR_THE_END 0xfffff000U /* numbers run over within each test that goes far */

SL_CASE(received_take__in_order)
{
    struct sl_dpdk_received_packets received;
    uint64_t words[4];
    sl_dpdk_received_packets_init(&received, NEAR_THE_END);
    for (uint32_t i = 0; i < 3 * SL_DPDK_RECEIVED_PACKETS; i++) {
        assert_int_equal(sl_dpdk_received_packets_ask(&received, NEAR_THE_END + i),
                         SL_DPDK_RECEIVED_NEW);
        sl_dpdk_received_packets_take(&received, NEAR_THE_END + i);
        assert_int_equal(sl_dpdk_received_packets_ask(&received, NEAR_THE_END + i),
                         SL_DPDK_RECEIVED_AGAIN);
        assert_int_equal(sl_dpdk_received_packets_words(&received, words, 4), 0);
    }
    assert_int_equal(received.next, NEAR_THE_END + 3 * SL_DPDK_RECEIVED_PACKETS);
    assert_int_equal(received.unacked, 3 * SL_DPDK_RECEIVED_PACKETS);
}

SL_CASE(received_words__tell_what_is_beyond)
{
    struct sl_dpdk_received_packets received;
    uint64_t words[4];
    sl_dpdk_received_packets_init(&received, 100);
    sl_dpdk_received_packets_take(&received, 101);
    sl_dpdk_received_packets_take(&received, 164);
    assert_int_equal(sl_dpdk_received_packets_words(&received, words, 4), 1);
    assert_true(words[0] == (1ULL << 63 | 1));
    sl_dpdk_received_packets_take(&received, 165);
    assert_int_equal(sl_dpdk_received_packets_words(&received, words, 4), 2);
    assert_true(words[1] == 1);
    sl_dpdk_received_packets_take(&received, 100 + 1 + 255);
    assert_int_equal(sl_dpdk_received_packets_words(&received, words, 4), 4);
    assert_true(words[2] == 0 && words[3] == 1ULL << 63);
    sl_dpdk_received_packets_take(&received, 2000);
    assert_int_equal(sl_dpdk_received_packets_words(&received, words, 4), 4);
    assert_int_equal(sl_dpdk_received_packets_words(&received, words, 1), 1);
    sl_dpdk_received_packets_take(&received, 100);
    assert_int_equal(received.next, 102);
}

SL_CASE(received_settle__passes_holes)
{
    struct sl_dpdk_received_packets received;
    sl_dpdk_received_packets_init(&received, UINT32_MAX - 1);
    sl_dpdk_received_packets_take(&received, 0);
    sl_dpdk_received_packets_take(&received, 1);
    sl_dpdk_received_packets_take(&received, 3);
    assert_true(sl_dpdk_received_packets_settle(&received, 4, 5)); /* all before UINT32_MAX */
    assert_int_equal(received.next, UINT32_MAX);
    assert_true(
        sl_dpdk_received_packets_settle(&received, 4, 4)); /* all before 0: 0 and 1 have come */
    assert_int_equal(received.next, 2);
    assert_true(sl_dpdk_received_packets_settle(&received, 4, 4)); /* known */
    assert_true(sl_dpdk_received_packets_settle(&received, 1, 1)); /* old */
    assert_int_equal(received.next, 2);
    assert_int_equal(sl_dpdk_received_packets_ask(&received, UINT32_MAX), SL_DPDK_RECEIVED_AGAIN);
    assert_int_equal(sl_dpdk_received_packets_ask(&received, 2), SL_DPDK_RECEIVED_NEW);
    assert_true(sl_dpdk_received_packets_settle(&received, 9000, 10)); /* further than the window */
    assert_int_equal(received.next, 8990);
    assert_int_equal(received.end, 8990);
    for (uint32_t n = 8990; n < 8990 + SL_DPDK_RECEIVED_PACKETS; n++) {
        assert_int_equal(sl_dpdk_received_packets_ask(&received, n),
                         SL_DPDK_RECEIVED_NEW); /* no old bit is left */
    }
}

SL_CASE(received__what_no_honest_sender_says)
{
    struct sl_dpdk_received_packets received;
    sl_dpdk_received_packets_init(&received, 1000);
    assert_false(sl_dpdk_received_packets_settle(&received, 1000 + SL_DPDK_RECEIVED_JUMP + 1, 0));
    assert_false(sl_dpdk_received_packets_settle(&received, 1000 - SL_DPDK_RECEIVED_JUMP - 1, 0));
    assert_false(sl_dpdk_received_packets_settle(&received, 1000 + (1U << 31), 0));
    assert_false(sl_dpdk_received_packets_settle(&received, 1001, SL_DPDK_RECEIVED_PACKETS + 1));
    assert_int_equal(received.next, 1000);
    assert_true(sl_dpdk_received_packets_settle(&received, 1000 - SL_DPDK_RECEIVED_JUMP, 0));
    assert_int_equal(received.next, 1000);
    assert_int_equal(sl_dpdk_received_packets_ask(&received, 1000 + SL_DPDK_RECEIVED_PACKETS),
                     SL_DPDK_RECEIVED_OUTSIDE);
    assert_int_equal(sl_dpdk_received_packets_ask(&received, 1000 + SL_DPDK_RECEIVED_PACKETS - 1),
                     SL_DPDK_RECEIVED_NEW);
    assert_int_equal(sl_dpdk_received_packets_ask(&received, 999), SL_DPDK_RECEIVED_AGAIN);
    assert_int_equal(sl_dpdk_received_packets_ask(&received, 1000 - SL_DPDK_RECEIVED_JUMP - 1),
                     SL_DPDK_RECEIVED_OUTSIDE);
    assert_true(sl_dpdk_received_packets_settle(&received, 1000 + SL_DPDK_RECEIVED_JUMP, 0));
    assert_int_equal(received.next, 1000 + SL_DPDK_RECEIVED_JUMP);
}

/* ---- against a model that has a byte for each number ------------------------------------------
 */

#define NUMBERS 40000U

struct model {
    uint8_t came[NUMBERS];
    uint32_t next, end;
};

static void model_advance(struct model *model)
{
    while (model->next < model->end && model->came[model->next] != 0) {
        model->next++;
    }
}

static void check_words(const struct sl_dpdk_received_packets *received, const struct model *model,
                        uint32_t max)
{
    uint64_t words[4] = {0};
    uint32_t count = sl_dpdk_received_packets_words(received, words, max);
    uint32_t needed = model->end == model->next ? 0 : (model->end - model->next - 1 + 63) / 64;
    assert_int_equal(count, needed < max ? needed : max);
    for (uint32_t i = 0; i < 64 * count; i++) {
        uint32_t n = model->next + 1 + i;
        uint64_t expected = n < model->end ? model->came[n] : 0;
        assert_true((words[i / 64] >> i % 64 & 1) == expected);
    }
}

static void check_all(const struct sl_dpdk_received_packets *received, const struct model *model,
                      uint32_t first)
{
    for (uint32_t n = model->next; n < model->next + SL_DPDK_RECEIVED_PACKETS && n < NUMBERS; n++) {
        enum sl_dpdk_received_packets_answer expected =
            model->came[n] != 0 ? SL_DPDK_RECEIVED_AGAIN : SL_DPDK_RECEIVED_NEW;
        assert_int_equal(sl_dpdk_received_packets_ask(received, first + n), expected);
    }
}

SL_CASE(received__is_as_the_model)
{
    static struct model model;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct sl_dpdk_received_packets received;
        uint64_t random = seed;
        uint32_t first = NEAR_THE_END + (uint32_t)(sl_hash_random(&random) % 9000);
        uint32_t reach = 1U << (2 * seed); /* how far numbers stray */
        memset(&model, 0, sizeof model);
        sl_dpdk_received_packets_init(&received, first);
        while (model.next < NUMBERS - 2 * SL_DPDK_RECEIVED_PACKETS) {
            uint32_t n = model.next + (uint32_t)(sl_hash_random(&random) % reach);
            bool settles = sl_hash_random(&random) % (reach + 8) == 0;
            if (settles) {
                assert_true(sl_dpdk_received_packets_settle(&received, first + n, 0));
                model.next = n;
                model.end = model.end > n ? model.end : n;
            } else if (sl_dpdk_received_packets_ask(&received, first + n) == SL_DPDK_RECEIVED_NEW) {
                assert_int_equal(model.came[n], 0);
                sl_dpdk_received_packets_take(&received, first + n);
                model.came[n] = 1;
                model.end = model.end > n + 1 ? model.end : n + 1;
            } else {
                assert_int_equal(model.came[n], 1);
            }
            model_advance(&model);
            assert_int_equal(received.next, first + model.next);
            assert_int_equal(received.end, first + model.end);
            check_words(&received, &model, 1 + (uint32_t)(sl_hash_random(&random) % 4));
            if (sl_hash_random(&random) % 512 == 0) {
                check_all(&received, &model, first);
            }
        }
    }
}
