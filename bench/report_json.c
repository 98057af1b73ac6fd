/* A report as JSON. */
#include <jansson.h>

#include "bench/report_parts.h"
#include "core/log.h"

static json_t *samples_json(const double *samples, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        if (json_array_append_new(array, json_real(samples[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *figure_json(const struct sl_bench_figure *figure)
{
    const struct sl_bench_summary summary = sl_bench_report_summary(figure->samples, figure->count);
    json_t *object = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:o}", "name", figure->name,
                               "quantity", figure->quantity, "unit", figure->unit, "median",
                               summary.median, "low", summary.low, "high", summary.high, "samples",
                               samples_json(figure->samples, figure->count));
    if (object != NULL && figure->on_curve &&
        (json_object_set_new(object, "x_name", json_string(figure->x_name)) != 0 ||
         json_object_set_new(object, "x", json_real(figure->x)) != 0)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *figures_json(const struct sl_bench_report *report)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < report->figure_count; i++) {
        if (json_array_append_new(array, figure_json(report->figures[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

int sl_bench_report_write_json(const struct sl_bench_report *report,
                               const struct sl_bench_common *common, const char *path)
{
    (void)common;
    json_t *root = json_pack("{s:s, s:s, s:o}", "benchmark", report->benchmark, "setting",
                             report->setting, "figures", figures_json(report));
    if (root == NULL) {
        sl_log_error("no memory for the JSON report");
        return SL_ERR_NO_MEMORY;
    }
    const int failed = json_dump_file(root, path, JSON_INDENT(2));
    json_decref(root);
    if (failed != 0) {
        sl_log_error("%s: the report cannot be written", path);
        return SL_ERR_IO;
    }
    return 0;
}
