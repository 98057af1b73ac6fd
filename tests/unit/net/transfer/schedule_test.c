#include "net/transfer/schedule.h"
#include "tests/support/unit.h"

#define TURN 1000

static struct sl_transfer_schedule schedule;
static struct sl_transfer_turn a, b, c;

static void setup(void)
{
    a = b = c = (struct sl_transfer_turn){.left_bytes = 0};
    sl_transfer_schedule_init(&schedule, TURN);
    sl_transfer_schedule_add(&schedule, &a);
    sl_transfer_schedule_add(&schedule, &b);
    sl_transfer_schedule_add(&schedule, &c);
}

static struct sl_transfer_turn *first(void)
{
    struct sl_list_link *link = sl_list_first(&schedule.turns);
    return link == NULL ? NULL : SL_CONTAINER_OF(link, struct sl_transfer_turn, link);
}

static void spend(uint32_t bytes)
{
    sl_transfer_schedule_spend(&schedule, first(), bytes);
}

#define CASE(name) SL_CASE_WITH(name, setup(), )

CASE(schedule__keeps_the_turn_until_its_bytes_are_spent)
{
    spend(400);
    assert_ptr_equal(first(), &a);
    spend(600);
    assert_ptr_equal(first(), &b);
}

CASE(schedule__takes_what_exceeded_a_turn_from_the_next_one)
{
    spend(900);
    spend(1000); /* a: 900 too many */
    spend(1000); /* b */
    spend(1000); /* c */
    assert_ptr_equal(first(), &a);
    spend(100);
    assert_ptr_equal(first(), &b);
}

CASE(schedule__shares_bytes_evenly_between_slices_of_any_size)
{
    uint64_t sent[3] = {0};
    const uint32_t bytes[3] = {7, 333, 1000};
    struct sl_transfer_turn *const turns[3] = {&a, &b, &c};
    for (uint32_t i = 0; i < 100000; i++) {
        for (uint32_t t = 0; t < 3; t++) {
            if (first() == turns[t]) {
                spend(bytes[t]);
                sent[t] += bytes[t];
                break;
            }
        }
    }
    for (uint32_t t = 0; t < 2; t++) {
        assert_in_range(sent[t], sent[2] - 2 * TURN, sent[2] + 2 * TURN);
    }
}

CASE(schedule__skips_what_has_nothing_to_send)
{
    sl_transfer_schedule_remove(&a);
    assert_ptr_equal(first(), &b);
    sl_transfer_schedule_remove(&b);
    sl_transfer_schedule_remove(&c);
    assert_null(first());
    sl_transfer_schedule_add(&schedule, &b);
    sl_transfer_schedule_add(&schedule, &b);
    assert_ptr_equal(first(), &b);
}
