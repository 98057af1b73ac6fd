/* A row's record: the storage layout shared by sparse tables and optimizer kernels. */
#ifndef SL_PS_OPTIMIZER_ROW_H
#define SL_PS_OPTIMIZER_ROW_H

#include <stdint.h>

/* Header of a record, followed by the dim f32 values of the row and then by its optimizer slots. */
struct sl_row {
    uint64_t key;
    uint32_t last_step; /* table step of the last push or assign, modulo 2^32; 0: none */
    uint32_t count;     /* visits by pushes, up to SL_ROW_COUNT_MAX, since creation or assign; or
                           SL_ROW_ERASED */
    float values[];
};

#define SL_ROW_COUNT_MAX (UINT32_MAX - 1)
#define SL_ROW_ERASED    UINT32_MAX /* the row was erased, and its record is unused */

#endif
