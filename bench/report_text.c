/* A report as a table on stdout. */
#include <stdio.h>

#include "bench/report_parts.h"

void sl_bench_report_print(const struct sl_bench_report *report,
                           const struct sl_bench_common *common)
{
    (void)common;
    printf("%s: %s\n", report->benchmark, report->setting);
    for (uint32_t i = 0; i < report->figure_count; i++) {
        const struct sl_bench_figure *figure = report->figures[i];
        const struct sl_bench_summary summary =
            sl_bench_report_summary(figure->samples, figure->count);
        printf("  %-40s %-20s %12.4g %12.4g .. %-12.4g %s\n", figure->name, figure->quantity,
               summary.median, summary.low, summary.high, figure->unit);
    }
}
