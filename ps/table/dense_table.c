#include "ps/table/dense_table.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/assert.h"
#include "core/partition.h"
#include "ps/optimizer/initializer.h"
#include "ps/optimizer/update.h"

#define BLOCK           SL_PARTITION_BLOCK_ELEMENTS
#define CACHE_LINE      64
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* A block of m elements: m values, m floats per optimizer slot, then the block's own slots. Only
 * the last block of a range may have fewer elements than BLOCK. */
struct block {
    uint32_t last_step; /* table step of the last push or assign to any part, modulo 2^32 */
    uint32_t count;     /* visits by pushes, saturating */
    uint8_t pad[CACHE_LINE - 2 * sizeof(uint32_t)]; /* aligns values to a cache line */
    float values[];
};

struct sl_dense_table {
    struct sl_table_spec spec;
    const struct sl_optimizer *optimizer;
    bool has_update;                  /* spec.update asks for something */
    uint64_t start, count;            /* elements */
    size_t block_bytes;               /* record of a full block */
    uint8_t *blocks;                  /* NULL when count is 0 */
    struct sl_arena arena;            /* a single mapping */
    struct sl_dense_table_hook *hook; /* NULL: none */
};

static size_t block_bytes(const struct sl_optimizer *optimizer, uint32_t elements)
{
    const size_t floats = elements + sl_optimizer_slot_floats(optimizer, elements);
    const size_t bytes = sizeof(struct block) + floats * sizeof(float);
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

/* Returns the block that contains the element at `offset` of the range. */
static struct block *block_at(const struct sl_dense_table *table, uint64_t offset)
{
    return (struct block *)(table->blocks + offset / BLOCK * table->block_bytes);
}

static uint32_t block_elements(const struct sl_dense_table *table, uint64_t offset)
{
    const uint64_t left = table->count - offset / BLOCK * BLOCK;
    return (uint32_t)(left < BLOCK ? left : BLOCK);
}

/* Skips zeros: new pages from the kernel are zero. A constant does not depend on the element and is
 * filled in one call. */
static void fill_values(const struct sl_dense_table *table, uint64_t offset, uint32_t elements,
                        float *values)
{
    const struct sl_initializer_spec *spec = &table->spec.initializer;
    if (spec->kind == SL_INITIALIZER_CONSTANT) {
        sl_initializer_fill(spec, 0, 0, elements, values);
    } else if (spec->kind != SL_INITIALIZER_ZEROS) {
        for (uint32_t i = 0; i < elements; i++) {
            sl_initializer_fill(spec, table->start + offset + i, 0, 1, &values[i]);
        }
    }
}

static void fill(struct sl_dense_table *table)
{
    if (table->spec.initializer.kind == SL_INITIALIZER_ZEROS && table->optimizer->init == NULL &&
        table->optimizer->init_row == NULL) {
        return;
    }
    for (uint64_t offset = 0; offset < table->count; offset += BLOCK) {
        struct block *block = block_at(table, offset);
        const uint32_t elements = block_elements(table, offset);
        fill_values(table, offset, elements, block->values);
        sl_optimizer_init_slots(table->optimizer, &table->spec.optimizer, elements,
                                block->values + elements);
    }
}

static int map_blocks(struct sl_dense_table *table, size_t bytes_max)
{
    const uint64_t whole = table->count / BLOCK;
    const uint32_t rest = (uint32_t)(table->count % BLOCK);
    size_t bytes;
    if (__builtin_mul_overflow(whole, table->block_bytes, &bytes) ||
        bytes > SIZE_MAX / 4) { /* leaves room for rounding up in the arena */
        return SL_ERR_NO_MEMORY;
    }
    bytes += rest == 0 ? 0 : block_bytes(table->optimizer, rest);
    if (bytes == 0) {
        return 0;
    }
    /* Use huge pages if rounding up to them adds at most an eighth. */
    const size_t beyond = bytes % HUGE_PAGE_BYTES;
    const size_t added = beyond == 0 ? 0 : HUGE_PAGE_BYTES - beyond;
    const size_t left =
        bytes_max == 0 ? 0 : bytes_max - sizeof *table; /* not 0: create checked it */
    sl_arena_init(&table->arena, bytes, left, added <= bytes / 8);
    table->blocks = sl_arena_map(&table->arena);
    return table->blocks == NULL ? SL_ERR_NO_MEMORY : 0;
}

int sl_dense_table_create(const struct sl_table_spec *spec, uint64_t start, uint64_t count,
                          size_t bytes_max, struct sl_dense_table **out)
{
    sl_assert(spec->kind == SL_TABLE_DENSE);
    sl_assert(start % BLOCK == 0);
    sl_assert(count <= spec->length);
    sl_assert(start <= spec->length - count);
    if (bytes_max != 0 && bytes_max <= sizeof(struct sl_dense_table)) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_dense_table *table = malloc(sizeof *table);
    if (table == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *table = (struct sl_dense_table){
        .spec = *spec,
        .optimizer = sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_BEST),
        .has_update = sl_update_is_asked(&spec->update),
        .start = start,
        .count = count,
    };
    sl_assert(table->optimizer != NULL);
    table->block_bytes = block_bytes(table->optimizer, BLOCK);
    const int err = map_blocks(table, bytes_max);
    if (err != 0) {
        free(table);
        return err;
    }
    fill(table);
    *out = table;
    return 0;
}

void sl_dense_table_destroy(struct sl_dense_table **table)
{
    if (*table == NULL) {
        return;
    }
    sl_arena_fini(&(*table)->arena);
    free(*table);
    *table = NULL;
}

static void assert_inside(const struct sl_dense_table *table, uint64_t start, uint64_t count)
{
    sl_assert(start >= table->start);
    sl_assert(count <= table->count);
    sl_assert(start - table->start <= table->count - count);
}

/* Returns how many of `count` elements from `offset` on lie in the same block. */
static uint32_t part_elements(uint64_t offset, uint64_t count)
{
    const uint64_t to_end = BLOCK - offset % BLOCK;
    return (uint32_t)(count < to_end ? count : to_end);
}

void sl_dense_table_read(const struct sl_dense_table *table, uint64_t start, uint64_t count,
                         enum sl_precision precision, void *values)
{
    assert_inside(table, start, count);
    sl_assert(precision != SL_PRECISION_INT8);
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    uint8_t *to = values;
    uint64_t offset = start - table->start;
    while (count > 0) {
        const uint32_t part = part_elements(offset, count);
        kernels->narrow(precision, block_at(table, offset)->values + offset % BLOCK, part, to);
        to += sl_precision_row_bytes(precision, part);
        offset += part;
        count -= part;
    }
}

uint32_t sl_dense_table_find(const struct sl_dense_table *table, uint64_t start, uint64_t count,
                             struct iovec *parts, uint32_t parts_max)
{
    assert_inside(table, start, count);
    uint64_t offset = start - table->start;
    uint32_t found = 0;
    while (count > 0 && found < parts_max) {
        const uint32_t part = part_elements(offset, count);
        parts[found++] =
            (struct iovec){.iov_base = block_at(table, offset)->values + offset % BLOCK,
                           .iov_len = part * sizeof(float)};
        offset += part;
        count -= part;
    }
    return found;
}

/* Calls the hook, if any, for the blocks of a range. */
static void dense_table_before_write(const struct sl_dense_table *table, uint64_t offset,
                                     uint64_t count)
{
    if (table->hook != NULL && count > 0) {
        const uint32_t first = (uint32_t)(offset / BLOCK);
        const uint32_t last = (uint32_t)((offset + count - 1) / BLOCK);
        table->hook->before_write(table->hook, first, last - first + 1);
    }
}

void sl_dense_table_apply(struct sl_dense_table *table, uint64_t start, uint64_t count,
                          const float *gradients, const struct sl_optimizer_push *push)
{
    assert_inside(table, start, count);
    struct sl_optimizer_visit visit = sl_optimizer_visit_of(&table->spec.optimizer, push);
    uint64_t offset = start - table->start;
    dense_table_before_write(table, offset, count);
    while (count > 0) {
        struct block *block = block_at(table, offset);
        const uint32_t elements = block_elements(table, offset);
        const uint32_t part = part_elements(offset, count);
        float *values = block->values + offset % BLOCK;
        visit.dim = part;
        visit.slot_stride = elements;
        visit.count = block->count;
        float *own = block->values + elements * ((size_t)1 + table->optimizer->slots_per_value);
        if (table->has_update) {
            sl_update_apply(&table->spec.update, table->optimizer, &visit, values,
                            values + elements, own, gradients);
        } else {
            table->optimizer->apply(&visit, values, values + elements, own, gradients);
        }
        block->last_step = (uint32_t)push->step;
        block->count += block->count < UINT32_MAX;
        gradients += part;
        offset += part;
        count -= part;
    }
}

/* Resets the slots of `part` elements of a block; if these are all, also the block's own state. */
static void reset_slots(const struct sl_dense_table *table, struct block *block, uint32_t elements,
                        uint64_t first, uint32_t part)
{
    const struct sl_optimizer *optimizer = table->optimizer;
    float *slots = block->values + elements;
    for (uint32_t slot = 0; slot < optimizer->slots_per_value; slot++) {
        memset(slots + (size_t)slot * elements + first, 0, part * sizeof *slots);
    }
    if (optimizer->init != NULL) {
        optimizer->init(&table->spec.optimizer, part, slots + first);
    }
    if (part == elements) {
        float *own = slots + (size_t)optimizer->slots_per_value * elements;
        memset(own, 0, optimizer->slots_per_row * sizeof *own);
        if (optimizer->init_row != NULL) {
            optimizer->init_row(&table->spec.optimizer, own);
        }
        block->count = 0;
    }
}

void sl_dense_table_assign(struct sl_dense_table *table, uint64_t start, uint64_t count,
                           const float *values, uint64_t step)
{
    assert_inside(table, start, count);
    uint64_t offset = start - table->start;
    dense_table_before_write(table, offset, count);
    while (count > 0) {
        struct block *block = block_at(table, offset);
        const uint32_t part = part_elements(offset, count);
        memcpy(block->values + offset % BLOCK, values, part * sizeof *values);
        reset_slots(table, block, block_elements(table, offset), offset % BLOCK, part);
        block->last_step = (uint32_t)step;
        values += part;
        offset += part;
        count -= part;
    }
}

bool sl_dense_table_put(struct sl_dense_table *table, uint64_t number, uint32_t last_step,
                        uint32_t count, const float *floats)
{
    const uint64_t first = table->start / BLOCK;
    if (number < first || number - first >= sl_dense_table_block_count(table)) {
        return false;
    }
    const uint64_t offset = (number - first) * BLOCK;
    const uint32_t elements = block_elements(table, offset);
    struct block *block = block_at(table, offset);
    block->last_step = last_step;
    block->count = count;
    memcpy(block->values, floats,
           (elements + sl_optimizer_slot_floats(table->optimizer, elements)) * sizeof *floats);
    return true;
}

void sl_dense_table_set_hook(struct sl_dense_table *table, struct sl_dense_table_hook *hook)
{
    table->hook = hook;
}

struct sl_dense_block sl_dense_table_block(const struct sl_dense_table *table, uint32_t index)
{
    sl_assert(index < sl_dense_table_block_count(table));
    const uint64_t offset = (uint64_t)index * BLOCK;
    struct block *block = block_at(table, offset);
    const uint32_t elements = block_elements(table, offset);
    return (struct sl_dense_block){
        .number = table->start / BLOCK + index,
        .last_step = block->last_step,
        .count = block->count,
        .elements = elements,
        .float_count = elements + (uint32_t)sl_optimizer_slot_floats(table->optimizer, elements),
        .floats = block->values,
    };
}

uint32_t sl_dense_table_block_count(const struct sl_dense_table *table)
{
    return (uint32_t)((table->count + BLOCK - 1) / BLOCK);
}

const struct sl_optimizer *sl_dense_table_optimizer(const struct sl_dense_table *table)
{
    return table->optimizer;
}

uint64_t sl_dense_table_start(const struct sl_dense_table *table)
{
    return table->start;
}

uint64_t sl_dense_table_element_count(const struct sl_dense_table *table)
{
    return table->count;
}

size_t sl_dense_table_memory_bytes(const struct sl_dense_table *table)
{
    return sizeof *table + table->arena.mapped_bytes;
}
