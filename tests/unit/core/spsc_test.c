#include <pthread.h>
#include <sched.h>

#include "core/spsc.h"
#include "tests/support/unit.h"

struct item {
    uint64_t number;
    uint64_t square;
    uint32_t check;
};

SL_CASE(spsc_push__full_refuses_and_keeps_the_order)
{
    uint32_t items[4];
    struct sl_spsc ring;
    sl_spsc_init(&ring, items, sizeof items[0], 4);
    /* From just below the wrap of the 32-bit indices, so that it is crossed. */
    ring.head = ring.tail = ring.head_seen = ring.tail_seen = UINT32_MAX - 9;
    uint32_t next = 0, got, expected = 0;
    for (int turn = 0; turn < 10; turn++) {
        assert_true(sl_spsc_empty(&ring));
        for (int i = 0; i < 4; i++) {
            assert_true(sl_spsc_push(&ring, &next));
            next++;
        }
        assert_false(sl_spsc_push(&ring, &next));
        assert_false(sl_spsc_empty(&ring));
        for (int i = 0; i < 4; i++) {
            assert_true(sl_spsc_pop(&ring, &got));
            assert_int_equal(got, expected);
            expected++;
        }
        assert_false(sl_spsc_pop(&ring, &got));
    }
}

enum { ITEM_COUNT = 200000 };

static void *produce(void *argument)
{
    struct sl_spsc *ring = argument;
    for (uint64_t i = 0; i < ITEM_COUNT; i++) {
        const struct item item = {.number = i, .square = i * i, .check = (uint32_t)~i};
        while (!sl_spsc_push(ring, &item)) {
            sched_yield();
        }
    }
    return NULL;
}

SL_CASE(spsc_pop__sees_whole_items_of_another_thread_in_order)
{
    static struct item items[64];
    struct sl_spsc ring;
    sl_spsc_init(&ring, items, sizeof items[0], 64);
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, produce, &ring), 0);
    for (uint64_t i = 0; i < ITEM_COUNT; i++) {
        struct item item;
        while (!sl_spsc_pop(&ring, &item)) {
            sched_yield();
        }
        assert_true(item.number == i);
        assert_true(item.square == i * i);
        assert_true(item.check == (uint32_t)~i);
    }
    assert_true(sl_spsc_empty(&ring));
    pthread_join(producer, NULL);
}
