#include "bench/report.h"

#include <jansson.h>
#include <stdio.h>

#include "core/assert.h"
#include "core/log.h"

void sl_bench_report_add(struct sl_bench_report *report, const char *name, double value,
                         const char *unit, const char *note)
{
    sl_assert(report->count < SL_BENCH_REPORT_FIGURES);
    report->figures[report->count++] = (struct sl_bench_figure){
        .name = name,
        .unit = unit,
        .value = value,
        .note = note,
    };
}

void sl_bench_report_print(const struct sl_bench_report *report)
{
    printf("%s: %s\n", report->benchmark, report->setting);
    for (uint32_t i = 0; i < report->count; i++) {
        const struct sl_bench_figure *figure = &report->figures[i];
        printf("  %-28s %12.4g %-10s %s\n", figure->name, figure->value, figure->unit,
               figure->note == NULL ? "" : figure->note);
    }
}

static json_t *figures_json(const struct sl_bench_report *report)
{
    json_t *figures = json_array();
    for (uint32_t i = 0; i < report->count; i++) {
        const struct sl_bench_figure *figure = &report->figures[i];
        json_t *object =
            json_pack("{s:s, s:f, s:s, s:s}", "name", figure->name, "value", figure->value, "unit",
                      figure->unit, "note", figure->note == NULL ? "" : figure->note);
        if (json_array_append_new(figures, object) != 0) {
            json_decref(figures);
            return NULL;
        }
    }
    return figures;
}

int sl_bench_report_write_json(const struct sl_bench_report *report, const char *path)
{
    json_t *root = json_pack("{s:s, s:s, s:o}", "benchmark", report->benchmark, "setting",
                             report->setting, "figures", figures_json(report));
    if (root == NULL) {
        sl_log_error("no memory for the JSON report");
        return SL_ERR_NO_MEMORY;
    }
    const int failed = json_dump_file(root, path, JSON_INDENT(2));
    json_decref(root);
    if (failed != 0) {
        sl_log_error("cannot write the report to %s", path);
        return SL_ERR_IO;
    }
    return 0;
}
