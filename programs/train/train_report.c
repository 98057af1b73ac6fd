#include "programs/train/train_report.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/table_names.h"

#define NS_PER_US        1000.0
#define STALENESS_VALUES 8 /* shown one by one in a line */

void sl_train_report_init(struct sl_train_report *report)
{
    *report = (struct sl_train_report){
        .train_loss = NAN, .test_loss = NAN, .test_auc = NAN, .best_auc = NAN};
    sl_metric_init(&report->pull_ns);
    sl_metric_init(&report->push_ns);
    sl_metric_init(&report->staleness);
}

/* Rows a second over all of the training time; 0 before any. */
static double rows_per_second(const struct sl_train_report *report)
{
    return report->train_seconds > 0 ? (double)report->rows / report->train_seconds : 0;
}

/* Text */

static void print_latency(FILE *to, const char *name, const struct sl_metric_histogram *ns)
{
    if (ns->count == 0) {
        return;
    }
    (void)fprintf(to, "  %-16s p50 %.0f  p90 %.0f  p99 %.0f  max %.0f us  (%llu)\n", name,
                  (double)sl_metric_quantile(ns, 0.5) / NS_PER_US,
                  (double)sl_metric_quantile(ns, 0.9) / NS_PER_US,
                  (double)sl_metric_quantile(ns, 0.99) / NS_PER_US, (double)ns->max / NS_PER_US,
                  (unsigned long long)ns->count);
}

/* Prints the share of each value if there are few values, else quantiles. */
static void print_staleness(FILE *to, const struct sl_metric_histogram *steps)
{
    if (steps->count == 0) {
        return;
    }
    (void)fprintf(to, "  %-16s", "staleness");
    if (steps->max - steps->min >= STALENESS_VALUES) {
        (void)fprintf(to, " p50 %llu  p90 %llu  p99 %llu  max %llu steps\n",
                      (unsigned long long)sl_metric_quantile(steps, 0.5),
                      (unsigned long long)sl_metric_quantile(steps, 0.9),
                      (unsigned long long)sl_metric_quantile(steps, 0.99),
                      (unsigned long long)steps->max);
        return;
    }
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        uint64_t upper;
        uint64_t count = sl_metric_bucket(steps, i, &upper);
        if (count > 0) {
            (void)fprintf(to, " %llu:%.1f%%", (unsigned long long)upper,
                          100.0 * (double)count / (double)steps->count);
        }
    }
    (void)fprintf(to, "  (steps: share of pulls)\n");
}

static void print_time_split(FILE *to, const struct sl_train_report *report)
{
    double all = report->train_seconds > 0 ? report->train_seconds : 1;
    (void)fprintf(to, "  %-16s reading %.0f%%  waiting %.0f%%  computing %.0f%%  sending %.0f%%\n",
                  "time", 100 * report->reading_seconds / all, 100 * report->waiting_seconds / all,
                  100 * report->computing_seconds / all, 100 * report->sending_seconds / all);
}

static void print_processor(FILE *to, const struct sl_train_report *report)
{
    const struct sl_train_report_processor *spent = &report->processor;
    if (spent->all <= 0) {
        return;
    }
    const double all = spent->all;
    (void)fprintf(
        to,
        "  %-16s reading %.0f%%  computing %.0f%%  calling %.0f%%  client %.0f%% of %.2f s"
        "\n",
        "processor", 100 * spent->reading / all, 100 * spent->computing / all,
        100 * spent->calling / all, 100 * spent->client / all, all);
}

static void print_line(const struct sl_train_report *report, FILE *to)
{
    char loss[48] = "";
    if (!isnan(report->train_loss)) {
        (void)snprintf(loss, sizeof loss, ", training loss %.5f", report->train_loss);
    }
    (void)fprintf(to, "worker %u of %u: %llu rows, %.2f s, %.0f rows/s%s%s\n",
                  report->job.worker_index, report->job.worker_count,
                  (unsigned long long)report->rows, report->train_seconds, rows_per_second(report),
                  loss, report->complete ? "" : ", stopped early");
}

/* Where the model is, or why it is nowhere. */
static void print_model(FILE *to, const struct sl_train_report *report)
{
    const struct sl_train_report_job *job = &report->job;
    char epoch[32] = "";
    if (report->best_auc > report->test_auc) {
        (void)snprintf(epoch, sizeof epoch, ", of epoch %.4g", report->best_epoch);
    }
    if (report->is_saved) {
        (void)fprintf(to, "  %-16s %s (%llu rows%s)\n", "model", job->save,
                      (unsigned long long)report->saved_rows, epoch);
    }
    if (job->publish != NULL) {
        (void)fprintf(to, "  %-16s published as %s\n", "model", job->publish);
    } else if (!report->is_saved) {
        (void)fprintf(to, "  %-16s not saved: %s\n", "model",
                      job->save == NULL
                          ? "--save FILE keeps it, and so do servers with --checkpoint-dir"
                          : "the job did not come to its end");
    }
}

int sl_train_report_print(const struct sl_train_report *report, FILE *to)
{
    const struct sl_train_report_job *job = &report->job;
    if (job->worker_index != 0 && !report->evaluated && !report->is_saved) {
        print_line(report, to);
        return fflush(to) == 0 && ferror(to) == 0 ? 0 : SL_ERR_IO;
    }
    (void)fprintf(to, "worker %u of %u: %s, %s, %s, %s%s\n", job->worker_index, job->worker_count,
                  job->model, job->optimizer, job->consistency, job->protocol,
                  report->complete ? "" : ", stopped early");
    (void)fprintf(to, "  %-16s %llu in %llu batches, %.2f s, %.0f rows/s\n", "rows",
                  (unsigned long long)report->rows, (unsigned long long)report->batches,
                  report->train_seconds, rows_per_second(report));
    if (!isnan(report->train_loss)) {
        (void)fprintf(to, "  %-16s %.5f\n", "training loss", report->train_loss);
    }
    if (report->evaluated) {
        (void)fprintf(to, "  %-16s %.5f\n", "test loss", report->test_loss);
        (void)fprintf(to, "  %-16s %.6f  (%llu rows, %.2f s)\n", "test AUC", report->test_auc,
                      (unsigned long long)report->test_rows, report->evaluate_seconds);
    }
    if (report->best_auc > report->test_auc) {
        (void)fprintf(to, "  %-16s %.6f  (epoch %.4g)\n", "best test AUC", report->best_auc,
                      report->best_epoch);
    }
    print_model(to, report);
    print_latency(to, "pull", &report->pull_ns);
    print_latency(to, "push", &report->push_ns);
    print_staleness(to, &report->staleness);
    (void)fprintf(
        to, "  %-16s %.2f MB sent, %.2f MB received, %llu requests, %llu failed\n", "network",
        (double)report->traffic.bytes_sent / 1e6, (double)report->traffic.bytes_received / 1e6,
        (unsigned long long)report->traffic.requests, (unsigned long long)report->traffic.failures);
    print_time_split(to, report);
    print_processor(to, report);
    return fflush(to) == 0 && ferror(to) == 0 ? 0 : SL_ERR_IO;
}

/* JSON */

/* JSON has no NaN. */
static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *latency_json(const struct sl_metric_histogram *ns)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "count", (json_int_t)ns->count, "p50",
                     (double)sl_metric_quantile(ns, 0.5) / NS_PER_US, "p90",
                     (double)sl_metric_quantile(ns, 0.9) / NS_PER_US, "p99",
                     (double)sl_metric_quantile(ns, 0.99) / NS_PER_US, "max",
                     (double)ns->max / NS_PER_US, "mean",
                     ns->count == 0 ? 0.0 : (double)ns->sum / (double)ns->count / NS_PER_US);
}

static json_t *staleness_json(const struct sl_metric_histogram *steps)
{
    json_t *counts = json_object();
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        uint64_t upper;
        uint64_t count = sl_metric_bucket(steps, i, &upper);
        if (count > 0) {
            char name[24];
            (void)snprintf(name, sizeof name, "%llu", (unsigned long long)upper);
            (void)json_object_set_new(counts, name, json_integer((json_int_t)count));
        }
    }
    return json_pack("{s:I, s:o}", "max", (json_int_t)steps->max, "counts", counts);
}

static json_t *optimizer_json(const struct sl_train_report_job *job)
{
    const struct sl_optimizer_spec *spec = &job->optimizer_spec;
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:f, s:s, "
                     "s:f, s:f}",
                     "name", job->optimizer, "lr", (double)spec->lr, "momentum",
                     (double)spec->momentum, "rho", (double)spec->rho, "beta1", (double)spec->beta1,
                     "beta2", (double)spec->beta2, "epsilon", (double)spec->epsilon, "weight_decay",
                     (double)spec->weight_decay, "initial_accumulator",
                     (double)spec->initial_accumulator, "l1", (double)spec->l1, "l2",
                     (double)spec->l2, "lr_power", (double)spec->lr_power, "decay_steps",
                     (json_int_t)spec->decay_steps, "decay_baseline", (double)spec->decay_baseline,
                     "decay", sl_table_names_decay[job->update.decay], "clip_norm",
                     (double)job->update.clip_norm, "value_bound", (double)job->update.value_bound);
}

static json_t *job_json(const struct sl_train_report_job *job)
{
    return json_pack(
        "{s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:I, "
        "s:[I, I], s:I}",
        "worker", (json_int_t)job->worker_index, "worker_count", (json_int_t)job->worker_count,
        "shard_count", (json_int_t)job->shard_count, "model", job->model, "format", job->format,
        "consistency", job->consistency, "protocol", job->protocol, "optimizer",
        optimizer_json(job), "values", sl_table_names_precision[job->values], "slots",
        sl_table_names_precision[job->slots], "encoding", sl_table_names_precision[job->encoding],
        "epochs", (json_int_t)job->epochs, "batch_size", (json_int_t)job->batch_rows, "factors",
        (json_int_t)job->shape.factors, "fields", (json_int_t)job->shape.fields, "hidden",
        (json_int_t)job->shape.hidden[0], (json_int_t)job->shape.hidden[1], "seed",
        (json_int_t)job->shape.seed);
}

static json_t *test_json(const struct sl_train_report *report)
{
    if (!report->evaluated) {
        return json_null();
    }
    return json_pack("{s:I, s:o, s:o, s:o, s:f}", "samples", (json_int_t)report->test_rows, "loss",
                     number_or_null(report->test_loss), "auc", number_or_null(report->test_auc),
                     "best_auc", number_or_null(report->best_auc), "best_epoch",
                     report->best_epoch);
}

static json_t *processor_json(const struct sl_train_report_processor *spent)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "all", spent->all, "reading", spent->reading,
                     "computing", spent->computing, "calling", spent->calling, "client",
                     spent->client);
}

static json_t *report_json(const struct sl_train_report *report)
{
    const struct sl_client_stats *traffic = &report->traffic;
    return json_pack(
        "{s:s, s:o, s:b, s:I, s:I, s:f, s:o, s:o, s:s?, s:{s:o, s:o}, s:o, s:{s:I, s:I},"
        " s:{s:I, s:I, s:I}, s:{s:f, s:f, s:f, s:f, s:f, s:f}, s:o}",
        "version", STARLING_VERSION, "job", job_json(&report->job), "complete", report->complete,
        "samples", (json_int_t)report->rows, "batches", (json_int_t)report->batches,
        "samples_per_second", rows_per_second(report), "train_loss",
        number_or_null(report->train_loss), "test", test_json(report), "saved",
        report->is_saved ? report->job.save : NULL, "latency_us", "pull",
        latency_json(&report->pull_ns), "push", latency_json(&report->push_ns), "staleness",
        staleness_json(&report->staleness), "bytes", "sent", (json_int_t)traffic->bytes_sent,
        "received", (json_int_t)traffic->bytes_received, "requests", "sent",
        (json_int_t)traffic->requests, "answered", (json_int_t)traffic->replies, "failed",
        (json_int_t)traffic->failures, "seconds", "training", report->train_seconds, "evaluating",
        report->evaluate_seconds, "reading", report->reading_seconds, "waiting",
        report->waiting_seconds, "computing", report->computing_seconds, "sending",
        report->sending_seconds, "processor_seconds", processor_json(&report->processor));
}

static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote < 0) {
            return -1;
        }
        text += wrote;
        bytes -= (size_t)wrote;
    }
    return 0;
}

/* how: O_TRUNC or O_EXCL. Every call can fail on a full disk; some file systems report it only in
 * fsync. */
static int write_file(const char *path, int how, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
    if (fd < 0) {
        return -1;
    }
    bool written = write_all(fd, text, strlen(text)) == 0 && write_all(fd, "\n", 1) == 0 &&
                   (fsync(fd) == 0 || errno == EINVAL); /* pipes and devices cannot be synced */
    int saved = errno;
    bool closed = close(fd) == 0;
    if (!written) {
        errno = saved;
    }
    return written && closed ? 0 : -1;
}

/* Writes a temporary file and renames it. A pipe or a device must not be replaced: it is written
 * directly. */
static int replace_file(const char *path, const char *text)
{
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        return write_file(path, O_TRUNC, text);
    }
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.%ld.tmp", path, (long)getpid()) < 0) {
        errno = ENOMEM;
        return -1;
    }
    (void)unlink(temporary); /* left by a process with the same pid, or a link elsewhere */
    int result = write_file(temporary, O_EXCL, text);
    result = result != 0 ? result : rename(temporary, path);
    if (result != 0) {
        int saved = errno;
        (void)unlink(temporary);
        errno = saved;
    }
    free(temporary);
    return result;
}

char *sl_train_report_path(const char *file, uint32_t worker_index)
{
    struct stat status;
    char *path = NULL;
    const bool is_device =
        stat(file, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
    const int made = worker_index == 0 || is_device ? asprintf(&path, "%s", file)
                                                    : asprintf(&path, "%s.%u", file, worker_index);
    return made < 0 ? NULL : path;
}

int sl_train_report_check(const char *path, struct sl_reason *reason)
{
    struct stat status;
    const size_t length = strlen(path);
    if (length == 0 || path[length - 1] == '/') {
        return sl_reason_fail(reason, SL_ERR_INVALID, "--report %s: accepts the path of a file",
                              path);
    }
    char *copy = strdup(path);
    if (copy == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "--report %s: no memory", path);
    }
    const bool exists = stat(path, &status) == 0;
    const bool is_device = exists && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
    const char *place = is_device ? path : dirname(copy); /* a regular file is replaced */
    int why = exists && S_ISDIR(status.st_mode) ? EISDIR : 0;
    if (why == 0 && access(place, W_OK) != 0) {
        why = errno;
    }
    if (why != 0) {
        sl_reason_set(reason, "--report %s: cannot write to %s: %s", path, place, strerror(why));
    }
    free(copy);
    return why == 0 ? 0 : sl_err_from_errno(why);
}

int sl_train_report_write(const struct sl_train_report *report, const char *path,
                          struct sl_reason *reason)
{
    char *text = NULL;
    json_t *json = report_json(report);
    if (json != NULL) {
        text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        json_decref(json);
    }
    if (text == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the report");
    }
    int err = 0;
    if (replace_file(path, text) != 0) {
        err = sl_err_from_errno(errno);
        sl_reason_set(reason, "%s: %s", path, strerror(errno));
    }
    free(text);
    return err;
}
