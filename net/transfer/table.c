#include "net/transfer/table.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/array.h"
#include "core/assert.h"

/* Number of regions of a list, by ascending address or key, up to this one. */
static uint32_t count_to(struct sl_transfer_region *const *list, uint32_t count, bool is_by_key,
                         uint64_t value)
{
    uint32_t first = 0;
    SL_ARRAY_BISECT(first, count, i,
                    (is_by_key ? list[i]->memory.key : (uintptr_t)list[i]->memory.base) <= value);
    return first;
}

static uint32_t count_to_address(const struct sl_transfer_table *table, uintptr_t address)
{
    return count_to(table->by_address, table->count, false, address);
}

static uint32_t count_to_key(const struct sl_transfer_table *table, uint64_t key)
{
    return count_to(table->by_key, table->count, true, key);
}

static void insert(struct sl_transfer_region **list, uint32_t count, uint32_t index,
                   struct sl_transfer_region *region)
{
    memmove(&list[index + 1], &list[index], (count - index) * sizeof *list);
    list[index] = region;
}

static void erase(struct sl_transfer_region **list, uint32_t count, uint32_t index)
{
    memmove(&list[index], &list[index + 1], (count - index - 1) * sizeof *list);
}

void sl_transfer_table_add(struct sl_transfer_table *table, struct sl_transfer_region *region)
{
    sl_assert(table->count < SL_LIMIT_TRANSFER_BUFFERS);
    insert(table->by_address, table->count, count_to_address(table, (uintptr_t)region->memory.base),
           region);
    insert(table->by_key, table->count, count_to_key(table, region->memory.key), region);
    table->count++;
}

void sl_transfer_table_remove(struct sl_transfer_table *table, struct sl_transfer_region *region)
{
    if (sl_transfer_table_find(table, region->memory.key) != region) {
        return;
    }
    erase(table->by_address, table->count,
          count_to_address(table, (uintptr_t)region->memory.base) - 1);
    erase(table->by_key, table->count, count_to_key(table, region->memory.key) - 1);
    table->count--;
}

struct sl_transfer_region *sl_transfer_table_at(const struct sl_transfer_table *table,
                                                const void *at, uint64_t bytes)
{
    const uint32_t count = count_to_address(table, (uintptr_t)at);
    if (count == 0) {
        return NULL;
    }
    struct sl_transfer_region *region = table->by_address[count - 1];
    const uint64_t offset = (uintptr_t)at - (uintptr_t)region->memory.base;
    return offset < region->memory.bytes && bytes <= region->memory.bytes - offset ? region : NULL;
}

struct sl_transfer_region *sl_transfer_table_overlapping(const struct sl_transfer_table *table,
                                                         const void *at, uint64_t bytes)
{
    const uint32_t count = count_to_address(table, (uintptr_t)at + bytes - 1);
    struct sl_transfer_region *last = count > 0 ? table->by_address[count - 1] : NULL;
    const bool overlaps =
        last != NULL && (uintptr_t)last->memory.base + last->memory.bytes > (uintptr_t)at;
    return overlaps ? last : NULL;
}

struct sl_transfer_region *sl_transfer_table_find(const struct sl_transfer_table *table,
                                                  uint64_t key)
{
    const uint32_t count = count_to_key(table, key);
    return count > 0 && table->by_key[count - 1]->memory.key == key ? table->by_key[count - 1]
                                                                    : NULL;
}

bool sl_transfer_table_is_mapped(const void *at, uint64_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)at / page * page;
    /* It does nothing but look. */
    return msync((void *)begin, (uintptr_t)at + bytes - begin, MS_ASYNC) == 0 || errno != ENOMEM;
}
