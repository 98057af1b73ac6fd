/* Rows copied out of a table by every form of the kernels. */
#include <string.h>

#include "ps/optimizer/optimizer.h"
#include "tests/support/unit.h"

enum { RECORDS = 40, COUNT = 100, DIM_MAX = 513, SENTINEL = 8 };
static const uint32_t DIMS[] = {1, 3, 8, 15, 16, 17, 31, 32, 64, 100, 128, 129, DIM_MAX};

static uint64_t
    memory[RECORDS * (sizeof(struct sl_row) + (DIM_MAX + 1) * sizeof(float)) / sizeof(uint64_t)];
static float values[COUNT * DIM_MAX + SENTINEL];

/* Records of `dim` values that follow one another, each value another number. */
static struct sl_row *record_of(uint32_t number, uint32_t dim)
{
    const size_t bytes = (sizeof(struct sl_row) + dim * sizeof(float) + 7) / 8 * 8;
    return (void *)((uint8_t *)memory + number * bytes);
}

static void fill(uint32_t dim)
{
    for (uint32_t i = 0; i < RECORDS; i++) {
        struct sl_row *record = record_of(i, dim);
        for (uint32_t k = 0; k < dim; k++) {
            record->values[k] = (float)(i * DIM_MAX + k);
        }
    }
}

static void gather(enum sl_optimizer_simd form, uint32_t count, uint32_t dim)
{
    struct sl_row *records[COUNT];
    for (uint32_t i = 0; i < count; i++) {
        records[i] = record_of(i * 7 % RECORDS, dim);
    }
    memset(values, 0xff, sizeof values);
    sl_optimizer_find_gather(form)(records, count, dim, values);
    for (uint32_t i = 0; i < count; i++) {
        assert_memory_equal(values + (size_t)i * dim, records[i]->values, dim * sizeof *values);
    }
    for (uint32_t i = 0; i < SENTINEL; i++) {
        uint32_t bits;
        memcpy(&bits, &values[(size_t)count * dim + i], sizeof bits);
        assert_int_equal(bits, UINT32_MAX);
    }
}

SL_CASE(optimizer_find_gather__every_form_copies_rows_and_no_more)
{
    for (int form = 0; form < SL_OPTIMIZER_SIMD_COUNT; form++) {
        for (size_t d = 0; d < sizeof DIMS / sizeof DIMS[0]; d++) {
            if (sl_optimizer_find_gather((enum sl_optimizer_simd)form) != NULL) {
                fill(DIMS[d]);
                gather((enum sl_optimizer_simd)form, 0, DIMS[d]);
                gather((enum sl_optimizer_simd)form, 1, DIMS[d]);
                gather((enum sl_optimizer_simd)form, 16, DIMS[d]);
                gather((enum sl_optimizer_simd)form, COUNT, DIMS[d]);
            }
        }
    }
}

/* Where there are kernels of a form, there is its copy. */
SL_CASE(optimizer_find_gather__comes_with_the_kernels)
{
    assert_non_null(sl_optimizer_find_gather(SL_OPTIMIZER_SIMD_BEST));
    assert_non_null(sl_optimizer_find_gather(SL_OPTIMIZER_SIMD_SCALAR));
    for (int form = 0; form < SL_OPTIMIZER_SIMD_COUNT; form++) {
        const bool kernels =
            sl_optimizer_find(SL_OPTIMIZER_SUM, (enum sl_optimizer_simd)form) != NULL;
        assert_int_equal(sl_optimizer_find_gather((enum sl_optimizer_simd)form) != NULL, kernels);
    }
}
