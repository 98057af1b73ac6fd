#include <string.h>

#include "net/transfer/part.h"
#include "tests/support/unit.h"

#define ITEMS 8
#define SLICE 1000

static uint8_t memory[16384];
static struct sl_transfer_item items[ITEMS];
static struct sl_transfer_causes causes;
static struct sl_transfer_part part;
static struct sl_transfer_slice slices[16];
static struct sl_list free_slices;

static void setup(void)
{
    memset(items, 0, sizeof items);
    memset(&causes, 0, sizeof causes);
    sl_list_init(&free_slices);
    for (uint32_t i = 0; i < 16; i++) {
        slices[i] = (struct sl_transfer_slice){.home = &free_slices};
        sl_list_append(&free_slices, &slices[i].rma.link);
    }
    sl_transfer_part_init(&part, items, &causes);
}

#define CASE(name) SL_CASE_WITH(name, setup(), )

static void add(uint32_t index, uint8_t op, uint64_t local, uint64_t offset, uint64_t bytes)
{
    items[index] = (struct sl_transfer_item){.op = op,
                                             .key = 5,
                                             .local = memory + local,
                                             .offset = offset,
                                             .bytes = bytes,
                                             .left = bytes,
                                             .state = SL_TRANSFER_PENDING};
    sl_transfer_part_add(&part, index);
}

static void expect(struct sl_transfer_slice *slice, uint64_t local, uint64_t offset, uint32_t bytes)
{
    assert_ptr_equal(sl_transfer_part_next(&part, SLICE, &free_slices), slice);
    assert_ptr_equal(slice->rma.local, memory + local);
    assert_int_equal(slice->rma.offset, offset);
    assert_int_equal(slice->rma.bytes, bytes);
}

CASE(part_next__cuts_a_long_request)
{
    add(0, SL_TRANSFER_READ, 0, 100, 2500);
    expect(&slices[0], 0, 100, 1000);
    expect(&slices[1], 1000, 1100, 1000);
    expect(&slices[2], 2000, 2100, 500);
    assert_null(sl_transfer_part_next(&part, SLICE, &free_slices));
    assert_int_equal(slices[0].rma.op, SL_RMA_READ);
    assert_int_equal(part.in_flight, 3);
}

CASE(part_next__joins_requests_that_touch_in_both_memories)
{
    add(0, SL_TRANSFER_WRITE, 0, 100, 300);
    add(1, SL_TRANSFER_WRITE, 300, 400, 300);
    add(2, SL_TRANSFER_WRITE, 600, 700, 600);
    add(3, SL_TRANSFER_WRITE, 1200, 5000, 10); /* touches here only */
    add(4, SL_TRANSFER_WRITE, 3000, 5010, 10); /* touches there only */
    add(5, SL_TRANSFER_READ, 3010, 5020, 10);  /* another operation */
    expect(&slices[0], 0, 100, 1000);
    expect(&slices[1], 1000, 1100, 200);
    expect(&slices[2], 1200, 5000, 10);
    expect(&slices[3], 3000, 5010, 10);
    expect(&slices[4], 3010, 5020, 10);
    assert_null(sl_transfer_part_next(&part, SLICE, &free_slices));
}

CASE(part_next__joins_no_requests_of_two_local_registrations)
{
    add(0, SL_TRANSFER_WRITE, 0, 100, 300);
    add(1, SL_TRANSFER_WRITE, 300, 400, 300);
    items[1].local_key = 1;
    expect(&slices[0], 0, 100, 300);
    expect(&slices[1], 300, 400, 300);
}

CASE(part_done__records_the_bytes_of_every_request_of_a_slice)
{
    add(0, SL_TRANSFER_WRITE, 0, 0, 700);
    add(1, SL_TRANSFER_WRITE, 700, 700, 700);
    expect(&slices[0], 0, 0, 1000);
    expect(&slices[1], 1000, 1000, 400);
    sl_transfer_part_done(&part, &slices[0], 0, 0);
    assert_int_equal(items[0].state, SL_TRANSFER_COMPLETED);
    assert_int_equal(items[1].state, SL_TRANSFER_PENDING);
    assert_int_equal(items[1].left, 400);
    assert_false(sl_transfer_part_is_over(&part));
    sl_transfer_part_done(&part, &slices[1], 0, 0);
    assert_int_equal(items[1].state, SL_TRANSFER_COMPLETED);
    assert_true(sl_transfer_part_is_over(&part));
    assert_true(sl_list_linked(&slices[0].rma.link));
}

CASE(part_done__fails_the_requests_of_the_slice_and_no_other)
{
    add(0, SL_TRANSFER_READ, 0, 0, 2000);
    add(1, SL_TRANSFER_READ, 5000, 5000, 10);
    expect(&slices[0], 0, 0, 1000);
    const uint8_t cause = sl_transfer_part_cause(&causes, "because");
    sl_transfer_part_done(&part, &slices[0], SL_ERR_INVALID, cause);
    expect(&slices[1], 5000, 5000, 10); /* the rest of the first is not sent */
    sl_transfer_part_done(&part, &slices[1], 0, 0);
    assert_int_equal(items[0].err, SL_ERR_INVALID);
    assert_int_equal(items[0].state, SL_TRANSFER_FAILED);
    assert_string_equal(causes.texts[items[0].cause], "because");
    assert_int_equal(items[1].state, SL_TRANSFER_COMPLETED);
    assert_null(sl_transfer_part_next(&part, SLICE, &free_slices));
    assert_true(sl_transfer_part_is_over(&part));
}

CASE(part_return__sends_a_slice_again_first)
{
    add(0, SL_TRANSFER_READ, 0, 0, 3000);
    expect(&slices[0], 0, 0, 1000);
    expect(&slices[1], 1000, 1000, 1000);
    sl_transfer_part_return(&part, &slices[1]);
    sl_transfer_part_return(&part, &slices[0]);
    assert_int_equal(part.in_flight, 0);
    assert_false(sl_transfer_part_is_over(&part));
    expect(&slices[0], 0, 0, 1000);
    expect(&slices[1], 1000, 1000, 1000);
    expect(&slices[2], 2000, 2000, 1000);
}

/* As when all slices of all lanes were in flight, and the lanes are lost. */
CASE(part_next__sends_again_though_no_slice_is_free)
{
    struct sl_list none;
    sl_list_init(&none);
    add(0, SL_TRANSFER_READ, 0, 0, 3000);
    expect(&slices[0], 0, 0, 1000);
    sl_transfer_part_return(&part, &slices[0]);
    assert_ptr_equal(sl_transfer_part_next(&part, SLICE, &none), &slices[0]);
    assert_int_equal(slices[0].rma.bytes, 1000);
    assert_null(sl_transfer_part_next(&part, SLICE, &none));
    assert_false(sl_transfer_part_is_over(&part));
    sl_transfer_part_done(&part, &slices[0], 0, 0);
    expect(&slices[1], 1000, 1000, 1000);
}

CASE(part_stop__drops_what_was_not_sent)
{
    add(0, SL_TRANSFER_READ, 0, 0, 5000);
    expect(&slices[0], 0, 0, 1000);
    expect(&slices[1], 1000, 1000, 1000);
    sl_transfer_part_return(&part, &slices[1]);
    sl_transfer_part_stop(&part);
    assert_null(sl_transfer_part_next(&part, SLICE, &free_slices));
    assert_false(sl_transfer_part_is_over(&part));
    sl_transfer_part_done(&part, &slices[0], 0, 0);
    assert_true(sl_transfer_part_is_over(&part));
    sl_transfer_part_fail(&part, SL_ERR_DEADLINE, SL_TRANSFER_TIMEOUT, 0);
    assert_int_equal(items[0].state, SL_TRANSFER_TIMEOUT);
    assert_int_equal(items[0].left, 4000);
}

CASE(part_cause__keeps_each_text_once_and_a_last_one_for_the_rest)
{
    assert_int_equal(sl_transfer_part_cause(&causes, "a"), 0);
    assert_int_equal(sl_transfer_part_cause(&causes, "b"), 1);
    assert_int_equal(sl_transfer_part_cause(&causes, "a"), 0);
    for (char text[2] = "c"; text[0] <= 'z'; text[0]++) {
        assert_true(sl_transfer_part_cause(&causes, text) < SL_TRANSFER_CAUSE_COUNT);
    }
}

CASE(part_add__is_small_until_a_request_is_not)
{
    assert_true(part.is_small);
    add(0, SL_TRANSFER_READ, 0, 0, SL_TRANSFER_PART_SMALL_BYTES);
    assert_true(part.is_small);
    add(1, SL_TRANSFER_READ, 0, 0, SL_TRANSFER_PART_SMALL_BYTES + 1);
    add(2, SL_TRANSFER_READ, 0, 0, 1);
    assert_false(part.is_small);
}
