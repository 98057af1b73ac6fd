/* A report as tables. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/quiet.h"
#include "bench/report_parts.h"
#include "core/assert.h"
#include "core/log.h"

#define CELL_BYTES SL_BENCH_SHEET_CELL_BYTES

/* ---- Columns ------------------------------------------------------------------------------------
 */

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

/* ---- Texts --------------------------------------------------------------------------------------
 */

double sl_bench_report_scale(double value, const char *unit, char *scaled_unit,
                             size_t scaled_unit_bytes)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    const size_t length = strlen(unit);
    const bool is_rate = length >= 2 && strcmp(unit + length - 2, "/s") == 0;
    const bool is_amount = length == 0 || strcmp(unit, "B") == 0;
    double divisor = 1;
    size_t power = 0;
    while ((is_rate || is_amount) && fabs(value) / divisor >= 10000 && power < 4) {
        divisor *= 1000;
        power++;
    }
    /* 1/s in millions is M/s; B/s is MB/s; keys/s is "M keys/s". */
    const bool is_word = length > 3 && strcmp(unit, "B/s") != 0;
    if (power > 0 && strncmp(unit, "1/", 2) == 0) {
        unit++;
    }
    (void)snprintf(scaled_unit, scaled_unit_bytes, "%s%s%s", prefixes[power],
                   power > 0 && is_word ? " " : "", unit);
    return divisor;
}

void sl_bench_report_value(double value, char text[SL_BENCH_VALUE_BYTES])
{
    const double size = fabs(value);
    int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
    if (size < 1e9 && value == floor(value)) {
        decimals = 0;
    }
    if (size >= 1e9 || (size > 0 && size < 0.01)) {
        (void)snprintf(text, SL_BENCH_VALUE_BYTES, "%.4g", value);
    } else {
        (void)snprintf(text, SL_BENCH_VALUE_BYTES, "%.*f", decimals, value);
    }
}

void sl_bench_report_label(const struct sl_bench_figure *figure, char text[SL_BENCH_LABEL_BYTES])
{
    if (figure->on_curve) {
        (void)snprintf(text, SL_BENCH_LABEL_BYTES, "%s, %.9g %s", figure->name, figure->x,
                       figure->x_name);
    } else {
        (void)snprintf(text, SL_BENCH_LABEL_BYTES, "%s", figure->name);
    }
}

/* "1.203 .. 1.255", or nothing of one sample. */
static void write_quartiles(const struct sl_bench_summary *summary, uint32_t count, double divisor,
                            char text[CELL_BYTES])
{
    char low[SL_BENCH_VALUE_BYTES];
    char high[SL_BENCH_VALUE_BYTES];
    sl_bench_report_value(summary->low / divisor, low);
    sl_bench_report_value(summary->high / divisor, high);
    (void)snprintf(text, CELL_BYTES, "%s .. %s", low, high);
    if (count == 1) {
        text[0] = '\0';
    }
}

static void print_head(const struct sl_bench_report *report, const struct sl_bench_common *common,
                       FILE *to)
{
    const struct sl_bench_machine *machine = &report->machine;
    char nearness[96];
    (void)fprintf(to, "%s: %s\n", report->benchmark, report->setting);
    (void)fprintf(to, "  machine   %s, %u cores", machine->cpu, machine->cores);
    if (machine->cores_usable != machine->cores) {
        (void)fprintf(to, " (%u for us)", machine->cores_usable);
    }
    (void)fprintf(to, "; %s; huge pages %s; TCP %s\n", machine->kernel, machine->huge_pages,
                  machine->congestion);
    if (common->server_core >= 0 && common->client_core >= 0) {
        sl_bench_machine_nearness(common->server_core, common->client_core, nearness,
                                  sizeof nearness);
        (void)fprintf(to, "  cores     server %d, client %d: %s\n", common->server_core,
                      common->client_core, nearness);
    }
    (void)fprintf(to, "  build     %s\n", machine->build);
    if (common->rounds > 0) {
        (void)fprintf(to, "  measured  %u rounds of %g s, each after %g s to warm up\n",
                      (unsigned)common->rounds, common->seconds, common->warm_up);
    }
}

static void print_figures(const struct sl_bench_report *report, FILE *to)
{
    struct sl_bench_sheet sheet;
    char before[SL_BENCH_LABEL_BYTES] = "";
    sl_bench_sheet_init(&sheet, "lllrll");
    sl_bench_sheet_row(&sheet,
                       (const char *[]){"what", "over", "quantity", "median", "unit", "quartiles"});
    for (uint32_t i = 0; i < report->figure_count; i++) {
        const struct sl_bench_figure *figure = report->figures[i];
        const struct sl_bench_summary summary =
            sl_bench_report_summary(figure->samples, figure->count);
        char label[SL_BENCH_LABEL_BYTES];
        char unit[32];
        char median[SL_BENCH_VALUE_BYTES];
        char quartiles[CELL_BYTES];
        const double divisor =
            sl_bench_report_scale(summary.median, figure->unit, unit, sizeof unit);
        sl_bench_report_label(figure, label);
        sl_bench_report_value(summary.median / divisor, median);
        write_quartiles(&summary, figure->count, divisor, quartiles);
        const bool is_next = strcmp(label, before) == 0;
        sl_bench_sheet_row(&sheet,
                           (const char *[]){is_next ? "" : label, is_next ? "" : figure->transport,
                                            figure->quantity, median, unit, quartiles});
        memcpy(before, label, sizeof before);
    }
    (void)fputc('\n', to);
    sl_bench_sheet_print(&sheet, to);
}

static void write_target(const struct sl_bench_ratio *ratio, char text[CELL_BYTES])
{
    text[0] = '\0';
    if (ratio->least != 0 && ratio->most != 0) {
        (void)snprintf(text, CELL_BYTES, "%g to %g", ratio->least, ratio->most);
    } else if (ratio->least != 0) {
        (void)snprintf(text, CELL_BYTES, "at least %g", ratio->least);
    } else if (ratio->most != 0) {
        (void)snprintf(text, CELL_BYTES, "at most %g", ratio->most);
    }
}

static void print_ratios(const struct sl_bench_report *report, FILE *to)
{
    struct sl_bench_sheet sheet;
    sl_bench_sheet_init(&sheet, "llrlll");
    sl_bench_sheet_row(&sheet,
                       (const char *[]){"ratio", "over", "median", "quartiles", "target", ""});
    for (uint32_t i = 0; i < report->ratio_count; i++) {
        const struct sl_bench_ratio *ratio = report->ratios[i];
        const struct sl_bench_summary summary =
            sl_bench_report_summary(ratio->samples, ratio->count);
        char median[SL_BENCH_VALUE_BYTES];
        char quartiles[CELL_BYTES];
        char target[CELL_BYTES];
        (void)snprintf(median, sizeof median, "%.3f", summary.median);
        (void)snprintf(quartiles, sizeof quartiles, "%.3f .. %.3f", summary.low, summary.high);
        write_target(ratio, target);
        const char *verdict = sl_bench_ratio_holds(ratio) ? "holds" : "MISSED";
        sl_bench_sheet_row(&sheet, (const char *[]){ratio->name, ratio->transport, median,
                                                    ratio->count == 1 ? "" : quartiles, target,
                                                    target[0] == '\0' ? "" : verdict});
    }
    (void)fputc('\n', to);
    sl_bench_sheet_print(&sheet, to);
}

static void print_spreads(const struct sl_bench_report *report, FILE *to)
{
    struct sl_bench_sheet sheet;
    char texts[SL_BENCH_SHARES + 2][SL_BENCH_VALUE_BYTES];
    const char *cells[SL_BENCH_SHARES + 3] = {"time of each, us", "count"};
    sl_bench_sheet_init(&sheet, "lrrrrrrrr");
    memcpy(cells + 2, sl_bench_report_share_names, sizeof sl_bench_report_share_names);
    cells[SL_BENCH_SHARES + 2] = "longest";
    sl_bench_sheet_row(&sheet, cells);
    for (uint32_t i = 0; i < report->spread_count; i++) {
        const struct sl_bench_spread *spread = report->spreads[i];
        cells[0] = spread->name;
        sl_bench_report_value((double)spread->count, texts[0]);
        for (uint32_t share = 0; share < SL_BENCH_SHARES; share++) {
            /* Of fewer values than that, the last would stand for it: that is the longest. */
            const bool is_known =
                (double)spread->count * (1 - sl_bench_report_shares[share]) >= 1 - 1e-9;
            sl_bench_report_value((double)spread->quantiles[share] / 1e3, texts[share + 1]);
            texts[share + 1][0] = is_known ? texts[share + 1][0] : '\0';
        }
        sl_bench_report_value((double)spread->max / 1e3, texts[SL_BENCH_SHARES + 1]);
        for (uint32_t j = 0; j < SL_BENCH_SHARES + 2; j++) {
            cells[j + 1] = texts[j];
        }
        sl_bench_sheet_row(&sheet, cells);
    }
    (void)fputc('\n', to);
    sl_bench_sheet_print(&sheet, to);
}

static void print_disturbances(const struct sl_bench_report *report, FILE *to)
{
    const double percent = 100 * SL_BENCH_QUIET_SHARE;
    if (report->rounds_left_out > 0) {
        (void)fprintf(to, "\n%u round%s left out: other programs took more than %g %% of a core\n",
                      report->rounds_left_out, report->rounds_left_out == 1 ? " is" : "s are",
                      percent);
    }
    if (report->rounds_disturbed > 0) {
        (void)fprintf(
            to,
            "\n%u round%s counted although other programs took more than %g %% of a core: "
            "there was no quiet one; repeat this on a quiet machine\n",
            report->rounds_disturbed, report->rounds_disturbed == 1 ? " is" : "s are", percent);
    }
}

void sl_bench_report_print(const struct sl_bench_report *report,
                           const struct sl_bench_common *common, FILE *to)
{
    print_head(report, common, to);
    if (report->figure_count > 0) {
        print_figures(report, to);
    }
    if (report->spread_count > 0) {
        print_spreads(report, to);
    }
    if (report->ratio_count > 0) {
        print_ratios(report, to);
    }
    print_disturbances(report, to);
}
