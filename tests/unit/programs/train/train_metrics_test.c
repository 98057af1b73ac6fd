#include "programs/train/train_metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "programs/train/train_report.h"
#include "tests/support/unit.h"

static char *page_after(const struct sl_train_report *report, double loss)
{
    struct sl_train_metrics metrics = {0};
    char *text;
    size_t bytes;
    sl_train_metrics_init(&metrics);
    sl_train_metrics_update(&metrics.cells, report, loss);
    assert_int_equal(sl_train_metrics_create(&metrics, NULL, &text, &bytes), 0);
    assert_int_equal(strlen(text), bytes);
    sl_train_metrics_fini(&metrics);
    return text;
}

static void expect(const char *text, const char *line)
{
    if (strstr(text, line) == NULL) {
        fail_msg("no %s in:\n%s", line, text);
    }
}

SL_CASE(train_metrics__show_what_the_report_has)
{
    const struct sl_train_report report = {
        .rows = 1000, .batches = 4, .reading_seconds = 1.5, .waiting_seconds = 0.25};
    char *text = page_after(&report, 0.6931);
    expect(text, "\nstarling_training_examples_total 1000\n");
    expect(text, "\nstarling_training_batches_total 4\n");
    expect(text, "\nstarling_training_loss 0.6931");
    expect(text, "\nstarling_training_seconds_total{in=\"reading\"} 1.5");
    expect(text, "\nstarling_training_seconds_total{in=\"waiting\"} 0.25");
    expect(text, "role=\"worker\"");
    free(text);
}

SL_CASE(train_metrics__have_no_loss_that_is_not_finite)
{
    const struct sl_train_report report = {.rows = 1};
    char *text = page_after(&report, NAN);
    expect(text, "\nstarling_training_loss 0");
    free(text);
}
