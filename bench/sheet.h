/* Text in columns that are as wide as what stands in them. One thread. */
#ifndef SL_BENCH_SHEET_H
#define SL_BENCH_SHEET_H

#include <stdint.h>
#include <stdio.h>

#define SL_BENCH_SHEET_COLUMNS_MAX 12
#define SL_BENCH_SHEET_CELL_BYTES  160

struct sl_bench_sheet {
    const char *align; /* "llr": a letter for each column, left or right; static storage */
    uint32_t column_count, row_count;
    char (*cells)[SL_BENCH_SHEET_CELL_BYTES]; /* [row_count][column_count] */
};

void sl_bench_sheet_init(struct sl_bench_sheet *sheet, const char *align);

/* A further row, of as many cells as there are columns; copied, cut where they are too long. NULL:
 * an empty one. Ends the program with a message when memory is short. */
void sl_bench_sheet_row(struct sl_bench_sheet *sheet, const char *const *cells);

/* Prints the rows, indented by two, and forgets them. */
void sl_bench_sheet_print(struct sl_bench_sheet *sheet, FILE *to);

#endif
