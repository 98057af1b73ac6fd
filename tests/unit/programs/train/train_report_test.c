/* The report as a block and as JSON, and the progress lines. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/clock.h"
#include "files.h"
#include "programs/train/progress.h"
#include "programs/train/train_report.h"
#include "tests/support/unit.h"

static void fill(struct sl_train_report *report, uint32_t worker)
{
    sl_train_report_init(report);
    report->job = (struct sl_train_report_job){.worker_index = worker,
                                               .worker_count = 8,
                                               .shard_count = 2,
                                               .model = "fm",
                                               .format = "libsvm",
                                               .optimizer = "adagrad",
                                               .protocol = "batched",
                                               .consistency = "ssp:2",
                                               .epochs = 3,
                                               .batch_rows = 128};
    report->job.optimizer_spec = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD);
    report->complete = true;
    report->rows = 1000;
    report->train_seconds = 2;
    report->processor = (struct sl_train_report_processor){
        .all = 1, .reading = 0.5, .computing = 0.25, .calling = 0.125, .client = 0.125};
    for (uint64_t i = 1; i <= 100; i++) {
        sl_metric_record(&report->pull_ns, i * 1000);
        sl_metric_record(&report->staleness, i % 3);
    }
}

/* The file's JSON; the caller's. */
static json_t *write_and_load(const struct sl_train_report *report, const char *path)
{
    assert_int_equal(sl_train_report_write(report, path, NULL), 0);
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    assert_non_null(json);
    return json;
}

SL_CASE(report_write__holds_what_was_measured)
{
    struct train_files files;
    train_files_begin(&files);
    train_files_add(&files, "old", 3);
    struct sl_train_report *report = malloc(sizeof *report);
    fill(report, 0);
    json_t *json = write_and_load(report, files.paths[0]);
    assert_true(json_is_null(json_object_get(json, "test")));
    assert_true(json_is_null(json_object_get(json, "train_loss")));
    assert_int_equal(json_integer_value(json_object_get(json, "samples")), 1000);
    assert_float_equal(json_real_value(json_object_get(json, "samples_per_second")), 500, 1e-9);
    json_t *staleness = json_object_get(json, "staleness");
    assert_int_equal(json_integer_value(json_object_get(staleness, "max")), 2);
    json_t *counts = json_object_get(staleness, "counts");
    assert_int_equal(json_integer_value(json_object_get(counts, "1")), 34);
    json_t *pull = json_object_get(json_object_get(json, "latency_us"), "pull");
    assert_float_equal(json_real_value(json_object_get(pull, "p50")), 50, 3);
    assert_float_equal(json_real_value(json_object_get(pull, "max")), 100, 1e-9);
    json_t *processor = json_object_get(json, "processor_seconds");
    assert_float_equal(json_real_value(json_object_get(processor, "all")), 1, 1e-9);
    assert_float_equal(json_real_value(json_object_get(processor, "reading")), 0.5, 1e-9);
    assert_float_equal(json_real_value(json_object_get(processor, "computing")), 0.25, 1e-9);
    json_decref(json);

    report->evaluated = true;
    report->test_rows = 7;
    report->test_auc = 0.9156;
    report->test_loss = 0.25;
    json = write_and_load(report, files.paths[0]);
    json_t *test = json_object_get(json, "test");
    assert_float_equal(json_real_value(json_object_get(test, "auc")), 0.9156, 1e-9);
    assert_int_equal(json_integer_value(json_object_get(test, "samples")), 7);
    json_decref(json);
    free(report);
    train_files_end(&files); /* fails if anything else is left in the folder */
}

SL_CASE(report_write__fails_on_a_full_disk_and_leaves_devices_alone)
{
    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    struct sl_train_report *report = malloc(sizeof *report);
    fill(report, 0);
    struct sl_reason reason = {0};
    assert_int_not_equal(sl_train_report_write(report, "/dev/full", &reason), 0);
    assert_non_null(strstr(reason.text, "/dev/full"));
    assert_int_equal(access("/dev/full", W_OK), 0);
    assert_int_equal(sl_train_report_write(report, "/dev/null", &reason), 0);
    assert_int_not_equal(sl_train_report_write(report, "/nonexistent/r", &reason), 0);
    assert_non_null(strstr(reason.text, "/nonexistent/r"));
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(sl_train_report_print(report, full), SL_ERR_IO);
    (void)fclose(full);
    free(report);
}

/* The name beside it is known beforehand: a link that lies there is not followed. */
SL_CASE(report_write__follows_no_link)
{
    struct train_files files;
    char path[128];
    char link[192];
    char text[16] = "";
    struct sl_train_report *report = malloc(sizeof *report);
    fill(report, 0);
    train_files_begin(&files);
    train_files_add(&files, "theirs", 6);
    (void)snprintf(path, sizeof path, "%s/report", files.folder);
    (void)snprintf(link, sizeof link, "%s.%ld.tmp", path, (long)getpid());
    assert_int_equal(symlink(files.paths[0], link), 0);
    assert_int_equal(sl_train_report_write(report, path, NULL), 0);
    assert_int_equal(access(link, F_OK), -1);
    FILE *file = fopen(files.paths[0], "r");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), 6);
    assert_string_equal(text, "theirs");
    (void)fclose(file);
    assert_int_equal(unlink(path), 0);
    train_files_end(&files);
    free(report);
}

SL_CASE(report_path__is_each_workers_own)
{
    static const struct {
        const char *file, *path;
        uint32_t worker;
    } cases[] = {{"r.json", "r.json", 0}, {"r.json", "r.json.3", 3}, {"/dev/null", "/dev/null", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = sl_train_report_path(cases[i].file, cases[i].worker);
        assert_string_equal(path, cases[i].path);
        free(path);
    }
}

SL_CASE(report_check__names_a_place_that_cannot_be_written)
{
    struct train_files files;
    struct sl_reason reason = {0};
    char path[128];
    train_files_begin(&files);
    (void)snprintf(path, sizeof path, "%s/report", files.folder);
    assert_int_equal(sl_train_report_check(path, &reason), 0);
    assert_int_equal(sl_train_report_check("/dev/null", &reason), 0);
    assert_int_equal(sl_train_report_check("", &reason), SL_ERR_INVALID);
    assert_int_equal(sl_train_report_check("new/", &reason), SL_ERR_INVALID);
    assert_int_not_equal(sl_train_report_check(files.folder, &reason), 0);
    (void)snprintf(path, sizeof path, "%s/none/report", files.folder);
    assert_int_equal(sl_train_report_check(path, &reason), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, path));
    train_files_end(&files);
}

/* Whether the text that the worker's report prints has more than its line. */
static bool prints_all(uint32_t worker, bool evaluated)
{
    char text[4096] = "";
    FILE *to = fmemopen(text, sizeof text, "w");
    assert_non_null(to);
    struct sl_train_report *report = malloc(sizeof *report);
    fill(report, worker);
    report->evaluated = evaluated;
    report->test_auc = 0.9156;
    assert_int_equal(sl_train_report_print(report, to), 0);
    assert_int_equal(fclose(to), 0);
    free(report);
    assert_non_null(strstr(text, worker == 0 ? "worker 0 of 8" : "worker 1 of 8"));
    assert_int_equal(strstr(text, "reading 50%  computing 25%  calling 12%") != NULL,
                     worker == 0 || evaluated);
    assert_int_equal(strstr(text, "test AUC         0.915600") != NULL, evaluated);
    return strstr(text, "staleness        0:33.0% 1:34.0%") != NULL;
}

SL_CASE(report_print__is_whole_for_worker_0_and_who_evaluated)
{
    assert_true(prints_all(0, true));
    assert_true(prints_all(0, false));
    assert_true(prints_all(1, true));
    assert_false(prints_all(1, false));
}

static void check_printed(const struct sl_train_report *report, const char *line)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    assert_int_equal(sl_train_report_print(report, to), 0);
    assert_int_equal(fclose(to), 0);
    if (strstr(text, line) == NULL) {
        fail_msg("no \"%s\" in %s", line, text);
    }
    free(text);
}

SL_CASE(report_print__says_where_the_model_is)
{
    struct sl_train_report report;
    sl_train_report_init(&report);
    report.job = (struct sl_train_report_job){
        .model = "lr", .format = "libsvm", .optimizer = "sgd", .protocol = "batched"};
    report.complete = true;
    check_printed(&report, "not saved: --save FILE keeps it, and so do servers with");
    report.job.publish = "clicks";
    check_printed(&report, "published as clicks");
    report.job.save = "m.safetensors";
    report.is_saved = true;
    report.saved_rows = 7;
    check_printed(&report, "m.safetensors (7 rows)");
    report.evaluated = true;
    report.test_auc = 0.5;
    report.best_auc = 0.75;
    report.best_epoch = 2.5;
    check_printed(&report, "m.safetensors (7 rows, of epoch 2.5)");
    check_printed(&report, "0.750000  (epoch 2.5)");
}

SL_CASE(progress_update__says_a_line_now_and_then)
{
    char text[4096] = "";
    FILE *to = tmpfile(); /* has a descriptor, and is no terminal */
    assert_non_null(to);
    struct sl_progress progress;
    sl_progress_begin(&progress, to, false, 4, 0);
    for (uint64_t ms = 0; ms <= 20000; ms += 100) {
        const struct sl_progress_state now = {
            .epoch = 1, .share = (double)ms / 40000, .rows = ms * 10, .loss = 0.5};
        sl_progress_update(&progress, &now, ms * SL_CLOCK_NS_PER_MS);
    }
    sl_progress_end(&progress);
    rewind(to);
    size_t bytes = fread(text, 1, sizeof text - 1, to);
    assert_int_equal(fclose(to), 0);
    uint32_t lines = 0;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    assert_int_equal(lines, 4); /* after 0.2, 5.2, 10.2 and 15.2 seconds */
    assert_non_null(strstr(text, "epoch 2/4  13%  10000 rows/s  loss 0.5000  ETA 0:35"));
}

SL_CASE(progress_update__is_silent_when_quiet)
{
    struct sl_progress progress;
    const struct sl_progress_state now = {.share = 0.5, .rows = 1, .loss = 1};
    sl_progress_begin(&progress, NULL, true, 1, 0);
    sl_progress_update(&progress, &now, 100 * SL_CLOCK_NS_PER_S);
    sl_progress_end(&progress);
}
