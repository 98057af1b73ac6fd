#include "ps/table/dense_table.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/assert.h"
#include "core/partition.h"
#include "ps/optimizer/initializer.h"

#define BLOCK           SL_PARTITION_BLOCK_ELEMENTS
#define CACHE_LINE      64
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* A block of m elements: m values, m floats of each slot, the block's own slots. Only the last
 * block of a range may have fewer than BLOCK. */
struct block {
    uint32_t last_step; /* of the last push that visited any of it, modulo 2^32 */
    uint32_t count;     /* visits, saturating */
    uint8_t pad[CACHE_LINE - 2 * sizeof(uint32_t)]; /* values begin on a cache line */
    float values[];
};

struct sl_dense_table {
    struct sl_table_spec spec;
    const struct sl_optimizer *optimizer;
    uint64_t start, count;             /* elements */
    size_t block_bytes;                /* of a whole block's record */
    uint8_t *blocks;                   /* NULL when count is 0 */
    struct sl_arena arena;             /* one mapping */
    struct sl_dense_table_hook *watch; /* NULL: none */
};

static size_t block_bytes(const struct sl_optimizer *optimizer, uint32_t elements)
{
    const size_t floats = elements + sl_optimizer_slot_floats(optimizer, elements);
    const size_t bytes = sizeof(struct block) + floats * sizeof(float);
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

/* The record of the block that begins `offset` elements into the range. */
static struct block *block_at(const struct sl_dense_table *store, uint64_t offset)
{
    return (struct block *)(store->blocks + offset / BLOCK * store->block_bytes);
}

static uint32_t block_elements(const struct sl_dense_table *store, uint64_t offset)
{
    const uint64_t left = store->count - offset / BLOCK * BLOCK;
    return (uint32_t)(left < BLOCK ? left : BLOCK);
}

/* Zeros are there already: they come from the system. What does not depend on the element is
 * written at once. */
static void fill_values(const struct sl_dense_table *store, uint64_t offset, uint32_t elements,
                        float *values)
{
    const struct sl_initializer_spec *spec = &store->spec.initializer;
    if (spec->kind == SL_INITIALIZER_CONSTANT) {
        sl_initializer_fill(spec, 0, 0, elements, values);
    } else if (spec->kind != SL_INITIALIZER_ZEROS) {
        for (uint32_t i = 0; i < elements; i++) {
            sl_initializer_fill(spec, store->start + offset + i, 0, 1, &values[i]);
        }
    }
}

static void fill(struct sl_dense_table *store)
{
    if (store->spec.initializer.kind == SL_INITIALIZER_ZEROS && store->optimizer->init == NULL) {
        return;
    }
    for (uint64_t offset = 0; offset < store->count; offset += BLOCK) {
        struct block *block = block_at(store, offset);
        const uint32_t elements = block_elements(store, offset);
        fill_values(store, offset, elements, block->values);
        if (store->optimizer->init != NULL) {
            store->optimizer->init(&store->spec.optimizer, elements, block->values + elements);
        }
    }
}

static int map_blocks(struct sl_dense_table *store, size_t bytes_max)
{
    const uint64_t whole = store->count / BLOCK;
    const uint32_t rest = (uint32_t)(store->count % BLOCK);
    size_t bytes;
    if (__builtin_mul_overflow(whole, store->block_bytes, &bytes) ||
        bytes > SIZE_MAX / 4) { /* the arena rounds up */
        return SL_ERR_NO_MEMORY;
    }
    bytes += rest == 0 ? 0 : block_bytes(store->optimizer, rest);
    if (bytes == 0) {
        return 0;
    }
    /* Huge pages where rounding up to them adds an eighth at most. */
    const size_t beyond = bytes % HUGE_PAGE_BYTES;
    const size_t added = beyond == 0 ? 0 : HUGE_PAGE_BYTES - beyond;
    const size_t left = bytes_max == 0 ? 0 : bytes_max - sizeof *store; /* not 0: see create */
    sl_arena_init(&store->arena, bytes, left, added <= bytes / 8);
    store->blocks = sl_arena_map(&store->arena);
    return store->blocks == NULL ? SL_ERR_NO_MEMORY : 0;
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
    struct sl_dense_table *store = malloc(sizeof *store);
    if (store == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *store = (struct sl_dense_table){
        .spec = *spec,
        .optimizer = sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_BEST),
        .start = start,
        .count = count,
    };
    sl_assert(store->optimizer != NULL);
    store->block_bytes = block_bytes(store->optimizer, BLOCK);
    const int err = map_blocks(store, bytes_max);
    if (err != 0) {
        free(store);
        return err;
    }
    fill(store);
    *out = store;
    return 0;
}

void sl_dense_table_destroy(struct sl_dense_table **store)
{
    if (*store == NULL) {
        return;
    }
    sl_arena_fini(&(*store)->arena);
    free(*store);
    *store = NULL;
}

static void assert_inside(const struct sl_dense_table *store, uint64_t start, uint64_t count)
{
    sl_assert(start >= store->start);
    sl_assert(count <= store->count);
    sl_assert(start - store->start <= store->count - count);
}

/* How many of `count` elements from `offset` lie in its block. */
static uint32_t part_elements(uint64_t offset, uint64_t count)
{
    const uint64_t to_end = BLOCK - offset % BLOCK;
    return (uint32_t)(count < to_end ? count : to_end);
}

void sl_dense_table_read(const struct sl_dense_table *store, uint64_t start, uint64_t count,
                         float *values)
{
    assert_inside(store, start, count);
    uint64_t offset = start - store->start;
    while (count > 0) {
        const uint32_t part = part_elements(offset, count);
        memcpy(values, block_at(store, offset)->values + offset % BLOCK, part * sizeof *values);
        values += part;
        offset += part;
        count -= part;
    }
}

void sl_dense_table_apply(struct sl_dense_table *store, uint64_t start, uint64_t count,
                          const float *gradients, const struct sl_optimizer_state *state,
                          uint64_t step)
{
    assert_inside(store, start, count);
    struct sl_optimizer_visit visit = {
        .spec = &store->spec.optimizer,
        .state = state,
        .step = step,
    };
    uint64_t offset = start - store->start;
    if (store->watch != NULL && count > 0) {
        const uint32_t first = (uint32_t)(offset / BLOCK);
        const uint32_t last = (uint32_t)((offset + count - 1) / BLOCK);
        store->watch->before(store->watch, first, last - first + 1);
    }
    while (count > 0) {
        struct block *block = block_at(store, offset);
        const uint32_t elements = block_elements(store, offset);
        const uint32_t part = part_elements(offset, count);
        float *values = block->values + offset % BLOCK;
        visit.dim = part;
        visit.slot_stride = elements;
        visit.count = block->count;
        store->optimizer->apply(
            &visit, values, values + elements,
            block->values + elements * ((size_t)1 + store->optimizer->slots_per_value), gradients);
        block->last_step = (uint32_t)step;
        block->count += block->count < UINT32_MAX;
        gradients += part;
        offset += part;
        count -= part;
    }
}

bool sl_dense_table_put(struct sl_dense_table *store, uint64_t number, uint32_t last_step,
                        uint32_t count, const float *floats)
{
    const uint64_t first = store->start / BLOCK;
    if (number < first || number - first >= sl_dense_table_block_count(store)) {
        return false;
    }
    const uint64_t offset = (number - first) * BLOCK;
    const uint32_t elements = block_elements(store, offset);
    struct block *block = block_at(store, offset);
    block->last_step = last_step;
    block->count = count;
    memcpy(block->values, floats,
           (elements + sl_optimizer_slot_floats(store->optimizer, elements)) * sizeof *floats);
    return true;
}

void sl_dense_table_set_hook(struct sl_dense_table *store, struct sl_dense_table_hook *watch)
{
    store->watch = watch;
}

struct sl_dense_block sl_dense_table_block(const struct sl_dense_table *store, uint32_t index)
{
    sl_assert(index < sl_dense_table_block_count(store));
    const uint64_t offset = (uint64_t)index * BLOCK;
    struct block *block = block_at(store, offset);
    const uint32_t elements = block_elements(store, offset);
    return (struct sl_dense_block){
        .number = store->start / BLOCK + index,
        .last_step = block->last_step,
        .count = block->count,
        .elements = elements,
        .float_count = elements + (uint32_t)sl_optimizer_slot_floats(store->optimizer, elements),
        .floats = block->values,
    };
}

uint32_t sl_dense_table_block_count(const struct sl_dense_table *store)
{
    return (uint32_t)((store->count + BLOCK - 1) / BLOCK);
}

const struct sl_table_spec *sl_dense_table_spec(const struct sl_dense_table *store)
{
    return &store->spec;
}

const struct sl_optimizer *sl_dense_table_optimizer(const struct sl_dense_table *store)
{
    return store->optimizer;
}

uint64_t sl_dense_table_start(const struct sl_dense_table *store)
{
    return store->start;
}

uint64_t sl_dense_table_count(const struct sl_dense_table *store)
{
    return store->count;
}

size_t sl_dense_table_memory_bytes(const struct sl_dense_table *store)
{
    return sizeof *store + store->arena.mapped_bytes;
}
