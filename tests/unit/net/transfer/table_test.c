#include "core/hash.h"
#include "net/transfer/table.h"
#include "tests/support/unit.h"

#define COUNT 500

static struct sl_transfer_table table;
static struct sl_transfer_region regions[COUNT];
static uint8_t memory[COUNT * 16];

/* Region i holds bytes 4 to 11 of its 16. */
static void setup(void)
{
    uint64_t seed = 1;
    table.count = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        regions[i].memory = (struct sl_rma_memory){
            .key = sl_hash_random(&seed), .base = &memory[16 * i + 4], .bytes = 8};
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        sl_transfer_table_add(&table, &regions[i * 7 % COUNT]);
    }
}

#define CASE(name) SL_CASE_WITH(name, setup(), )

CASE(table__finds_each_region_by_address_and_by_key)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint8_t *base = regions[i].memory.base;
        assert_ptr_equal(sl_transfer_table_find(&table, regions[i].memory.key), &regions[i]);
        assert_ptr_equal(sl_transfer_table_at(&table, base, 8), &regions[i]);
        assert_ptr_equal(sl_transfer_table_at(&table, base + 7, 1), &regions[i]);
        assert_null(sl_transfer_table_at(&table, base - 1, 1));
        assert_null(sl_transfer_table_at(&table, base, 9));
        assert_null(sl_transfer_table_at(&table, base + 8, 1));
        assert_null(sl_transfer_table_at(&table, base + 1, UINT64_MAX));
        assert_null(sl_transfer_table_find(&table, regions[i].memory.key + 1));
    }
}

CASE(table__finds_what_overlaps_a_range)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint8_t *base = regions[i].memory.base;
        assert_ptr_equal(sl_transfer_table_overlapping(&table, base, 1), &regions[i]);
        assert_ptr_equal(sl_transfer_table_overlapping(&table, base + 7, 1), &regions[i]);
        assert_ptr_equal(sl_transfer_table_overlapping(&table, base - 4, 16), &regions[i]);
        assert_null(sl_transfer_table_overlapping(&table, base - 4, 4));
        assert_null(sl_transfer_table_overlapping(&table, base + 8, 4));
    }
    assert_ptr_equal(sl_transfer_table_overlapping(&table, memory, sizeof memory),
                     &regions[COUNT - 1]);
}

CASE(table__forgets_what_is_removed)
{
    for (uint32_t i = 0; i < COUNT; i += 2) {
        sl_transfer_table_remove(&table, &regions[i]);
        sl_transfer_table_remove(&table, &regions[i]);
    }
    assert_int_equal(table.count, COUNT / 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        const bool is_there = sl_transfer_table_at(&table, regions[i].memory.base, 8) != NULL;
        assert_int_equal(is_there, i % 2 == 1);
        assert_int_equal(sl_transfer_table_find(&table, regions[i].memory.key) != NULL, is_there);
    }
}
