/* A row's record: the storage layout shared by sparse tables, snapshots and optimizer kernels. */
#ifndef SL_PS_OPTIMIZER_ROW_H
#define SL_PS_OPTIMIZER_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/precision.h"

/* Header of a record, followed by the dim values of the row and then by its optimizer slots. */
struct sl_row {
    uint64_t key;
    uint32_t last_step; /* table step of the last push or assign, modulo 2^32; 0: none */
    uint32_t count;     /* visits by pushes, up to SL_ROW_COUNT_MAX, since creation or assign; or
                           SL_ROW_ERASED */
    float values[];     /* f32, or what struct sl_row_layout says */
};

#define SL_ROW_COUNT_MAX (UINT32_MAX - 1)
#define SL_ROW_ERASED    UINT32_MAX /* the row was erased, and its record is unused */

/* What follows the header: the values, a row of `values` precision; the slots of values, one row of
 * `slots` precision; the slots of the row, f32. Each part begins at a multiple of 4 bytes. */
struct sl_row_layout {
    enum sl_precision values, slots;
    bool is_f32; /* all of it */
    uint32_t dim;
    uint32_t value_slots, row_slots; /* how many slots */
    uint32_t slots_at, row_slots_at; /* first byte, counted from the values */
    uint32_t words;                  /* 4 bytes each, of all parts */
};

static inline uint32_t sl_row_padded(size_t bytes)
{
    return (uint32_t)((bytes + 3) / 4 * 4);
}

/* Returns the layout of rows with these numbers of slots. */
static inline struct sl_row_layout sl_row_layout_of(enum sl_precision values,
                                                    enum sl_precision slots, uint32_t dim,
                                                    uint32_t slots_per_value, uint32_t row_slots)
{
    struct sl_row_layout layout = {
        .values = values,
        .slots = slots,
        .is_f32 = values == SL_PRECISION_F32 && (slots == SL_PRECISION_F32 || slots_per_value == 0),
        .dim = dim,
        .value_slots = slots_per_value * dim,
        .row_slots = row_slots,
        .slots_at = sl_row_padded(sl_precision_row_bytes(values, dim)),
    };
    layout.row_slots_at =
        layout.slots_at + sl_row_padded(sl_precision_row_bytes(slots, layout.value_slots));
    layout.words = layout.row_slots_at / 4 + row_slots;
    return layout;
}

#endif
