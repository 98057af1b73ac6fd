/* Registrations of Mooncake's C functions: what is refused, ranges that overlap. */
#include <string.h>
#include <sys/mman.h>

#include "duo.h"
#include "tests/support/unit.h"

static struct duo duo;

#define CASE(name) SL_CASE_WITH(name, duo_init(&duo), duo_fini(&duo))
#define PAGE       4096U

static uint8_t memory[16 * PAGE];

static int add(size_t first, size_t end)
{
    return registerLocalMemory(duo.there, memory + first, end - first, "*", 1);
}

static int take(size_t first)
{
    return unregisterLocalMemory(duo.there, memory + first);
}

/* Whether the peer can write all bytes from first to end. */
static bool is_open(size_t first, size_t end)
{
    memset(duo.local, 7, end - first);
    memset(memory + first, 0, end - first);
    const bool is =
        duo_move(&duo, OPCODE_WRITE, duo.local, memory + first, end - first) == STATUS_COMPLETED;
    assert_int_equal(memory[first], is ? 7 : 0);
    assert_int_equal(memory[end - 1], is ? 7 : 0);
    return is;
}

CASE(memory__is_refused)
{
    void *hidden = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(registerLocalMemory(duo.here, NULL, 1, "*", 1), -1);
    assert_int_equal(registerLocalMemory(duo.here, memory, 0, "*", 1), -1);
    assert_int_equal(registerLocalMemory(duo.here, memory, SIZE_MAX, "*", 1), -1);
    assert_int_equal(registerLocalMemory(duo.here, memory, PAGE, "cuda:0", 1), -1);
    assert_int_equal(registerLocalMemory(duo.here, duo.local, 8, "cuda:0", 1), -1); /* registered */
    assert_int_equal(registerLocalMemory(duo.here, memory, PAGE, "somewhere", 1), -1);
    assert_int_equal(registerLocalMemory(duo.here, memory, PAGE, "cpu:x", 1), -1);
    assert_int_equal(registerLocalMemory(duo.here, hidden, PAGE, "*", 1), -1);
    assert_int_equal(registerLocalMemory(duo.here, hidden, PAGE, "cpu:0", 1), -1);
    assert_int_equal(registerLocalMemory(duo.here, memory, PAGE, NULL, 1), 0);
    assert_int_equal(unregisterLocalMemory(duo.here, memory + 1), -3);
    assert_int_equal(unregisterLocalMemory(duo.here, memory), 0);
    assert_int_equal(unregisterLocalMemory(duo.here, memory), -3);
    assert_int_equal(munmap(hidden, PAGE), 0);
}

CASE(memory__that_is_not_accessible_is_not_reached)
{
    assert_int_equal(registerLocalMemory(duo.there, memory, PAGE, "*", 0), 0);
    assert_false(is_open(0, PAGE));
    assert_int_equal(registerLocalMemory(duo.there, memory + 8, 8, "*", 1), -1);
    assert_int_equal(take(0), 0);
    assert_int_equal(add(0, PAGE), 0);
    assert_true(is_open(0, PAGE));
    assert_int_equal(take(0), 0);
}

CASE(memory__registered_twice_is_registered_until_both_end)
{
    assert_int_equal(add(0, PAGE), 0);
    assert_int_equal(add(0, PAGE), 0);
    assert_true(is_open(0, PAGE));
    assert_int_equal(take(0), 0);
    assert_true(is_open(0, PAGE));
    assert_int_equal(take(0), 0);
    assert_false(is_open(0, PAGE));
    assert_int_equal(take(0), -3);
}

CASE(memory__within_registered_memory)
{
    assert_int_equal(add(0, 4 * PAGE), 0);
    assert_int_equal(add(PAGE, 2 * PAGE), 0);
    assert_true(is_open(0, 4 * PAGE));
    assert_int_equal(take(0), 0); /* the smaller range stays */
    assert_true(is_open(PAGE, 2 * PAGE));
    assert_false(is_open(0, 4 * PAGE));
    assert_int_equal(take(PAGE), 0);
    assert_false(is_open(PAGE, 2 * PAGE));
}

CASE(memory__that_overlaps_is_one_range)
{
    assert_int_equal(add(0, 2 * PAGE), 0);
    assert_int_equal(add(4 * PAGE, 6 * PAGE), 0);
    assert_false(is_open(PAGE, 5 * PAGE));
    assert_int_equal(add(PAGE, 5 * PAGE), 0); /* over the gap */
    assert_true(is_open(0, 6 * PAGE));
    assert_int_equal(take(PAGE), 0);
    assert_true(is_open(0, 2 * PAGE));
    assert_true(is_open(4 * PAGE, 6 * PAGE));
    assert_false(is_open(2 * PAGE, 4 * PAGE));
    assert_int_equal(add(6 * PAGE, 7 * PAGE), 0); /* touches, and is apart */
    assert_int_equal(take(4 * PAGE), 0);
    assert_true(is_open(6 * PAGE, 7 * PAGE));
    assert_int_equal(take(6 * PAGE), 0);
    assert_int_equal(take(0), 0);
    assert_int_equal(add(0, 16 * PAGE), 0); /* nothing is left of them */
    assert_int_equal(take(0), 0);
}

CASE(memory__in_batches_is_registered_all_or_none)
{
    struct buffer_entry entries[] = {
        {memory, PAGE}, {memory + 2 * PAGE, PAGE}, {memory + 4 * PAGE, 0}};
    void *addresses[] = {memory, memory + 2 * PAGE, memory + 4 * PAGE};
    assert_int_equal(registerLocalMemoryBatch(duo.there, entries, 3, "*"), -1);
    assert_int_equal(unregisterLocalMemoryBatch(duo.there, addresses, 1), -3);
    assert_int_equal(registerLocalMemoryBatch(duo.there, entries, 2, "*"), 0);
    assert_true(is_open(2 * PAGE, 3 * PAGE));
    assert_int_equal(unregisterLocalMemoryBatch(duo.there, addresses, 3), -3);
    assert_false(is_open(2 * PAGE, 3 * PAGE));
    assert_int_equal(registerLocalMemoryBatch(duo.there, NULL, 0, "*"), 0);
    assert_int_equal(registerLocalMemoryBatch(duo.there, NULL, 1, "*"), -1);
}
