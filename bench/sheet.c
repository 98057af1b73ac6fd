#include "bench/sheet.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"

void sl_bench_sheet_init(struct sl_bench_sheet *sheet, const char *align)
{
    *sheet = (struct sl_bench_sheet){.align = align, .column_count = (uint32_t)strlen(align)};
    sl_assert(sheet->column_count > 0);
    sl_assert(sheet->column_count <= SL_BENCH_SHEET_COLUMNS_MAX);
}

void sl_bench_sheet_row(struct sl_bench_sheet *sheet, const char *const *cells)
{
    const uint32_t first = sheet->row_count * sheet->column_count;
    void *grown = realloc(sheet->cells, (first + sheet->column_count) * sizeof *sheet->cells);
    if (grown == NULL) {
        sl_log_error("no memory for the report");
        exit(1);
    }
    sheet->cells = grown;
    sheet->row_count++;
    for (uint32_t column = 0; column < sheet->column_count; column++) {
        (void)snprintf(sheet->cells[first + column], SL_BENCH_SHEET_CELL_BYTES, "%s",
                       cells[column] == NULL ? "" : cells[column]);
    }
}

/* Characters of a UTF-8 text: all bytes but those that continue one. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

static void print_row(const struct sl_bench_sheet *sheet, uint32_t row, const int *widths, FILE *to)
{
    int blanks = 0; /* not printed yet: none stand at the end of a line */
    for (uint32_t column = 0; column < sheet->column_count; column++) {
        const char *cell = sheet->cells[row * sheet->column_count + column];
        const int pad = widths[column] - width_of(cell);
        blanks += 2 + (sheet->align[column] == 'r' ? pad : 0);
        if (cell[0] != '\0') {
            (void)fprintf(to, "%*s%s", blanks, "", cell);
            blanks = 0;
        }
        blanks += sheet->align[column] == 'r' ? 0 : pad;
    }
    (void)fputc('\n', to);
}

void sl_bench_sheet_print(struct sl_bench_sheet *sheet, FILE *to)
{
    int widths[SL_BENCH_SHEET_COLUMNS_MAX] = {0};
    for (uint32_t i = 0; i < sheet->row_count * sheet->column_count; i++) {
        const int width = width_of(sheet->cells[i]);
        int *widest = &widths[i % sheet->column_count];
        *widest = width > *widest ? width : *widest;
    }
    for (uint32_t row = 0; row < sheet->row_count; row++) {
        print_row(sheet, row, widths, to);
    }
    free(sheet->cells);
    sheet->cells = NULL;
    sheet->row_count = 0;
}
