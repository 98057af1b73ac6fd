#include "programs/train/predict.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/cli.h"
#include "core/log.h"
#include "programs/models/loss.h"
#include "programs/models/model_file.h"
#include "programs/train/auc.h"
#include "programs/train/data_files.h"
#include "programs/train/loader.h"

#define BATCH_ROWS        1024
#define FILE_BUFFER_BYTES (1U << 20)

struct options {
    const char *model, *out;
    struct sl_cli_list data;
};

struct prediction {
    struct sl_model_file model;
    struct sl_loader *loader;
    float *params[SL_MODEL_TABLES]; /* rows of the batch's keys; NULL: a dense table */
    size_t rooms[SL_MODEL_TABLES];
    float *scratch;
    FILE *out;
    char *part; /* the name of `out` until it is complete; NULL: it has its own */
    uint64_t features, missing;
    struct sl_auc auc;
    double loss_sum;
    uint64_t unlabelled; /* rows; if there are any, there is no loss and no AUC */
};

static int predict_no_memory(struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the rows of a batch");
}

static int open_loader(struct prediction *self, const struct sl_data_files *files,
                       struct sl_reason *reason)
{
    const struct sl_reader_format *format = sl_reader_find_format(self->model.data);
    if (format == NULL) {
        return sl_reason_fail(reason, SL_ERR_UNSUPPORTED,
                              "its \"" SL_MODEL_FILE_DATA "\" is \"%s\": accepts libsvm, libffm "
                              "or criteo",
                              self->model.data);
    }
    const struct sl_reader_options options = {.format = format,
                                              .paths = (const char *const *)files->paths,
                                              .path_count = files->count,
                                              .share_count = 1,
                                              .features_max = self->model.shape.fields,
                                              .takes_unlabelled = true};
    struct sl_reader *reader;
    int err = sl_reader_open(&options, &reader, reason);
    if (err != 0) {
        return err;
    }
    err = sl_loader_create(reader, BATCH_ROWS, 1, 0, &self->loader);
    return err == 0 ? 0
                    : sl_reason_fail(reason, err, "no thread to load data: " SL_LOADER_NO_THREAD);
}

static int pull(struct prediction *self, const struct sl_batch *batch, struct sl_model_pass *pass,
                struct sl_reason *reason)
{
    for (uint32_t t = 0; t < self->model.table_count; t++) {
        const struct sl_model_file_table *table = &self->model.tables[t];
        const size_t floats = sl_model_floats(&table->spec, batch);
        if (table->spec.kind == SL_TABLE_DENSE) {
            pass->params[t] = table->values;
            continue;
        }
        if (floats > self->rooms[t] || self->params[t] == NULL) {
            free(self->params[t]);
            self->rooms[t] = floats + floats / 4;
            self->params[t] = malloc((self->rooms[t] + 1) * sizeof(float));
        }
        if (self->params[t] == NULL) {
            return predict_no_memory(reason);
        }
        sl_model_file_pull(table, batch->keys, batch->key_count, self->params[t]);
        pass->params[t] = self->params[t];
    }
    return 0;
}

/* All tables of a model have rows for the same keys. */
static void count_missing(struct prediction *self, const struct sl_batch *batch)
{
    uint64_t number;
    for (uint32_t i = 0; i < batch->feature_count; i++) {
        self->missing += !sl_key_index_find(&self->model.tables[0].keys,
                                            batch->keys[batch->features[i]], &number);
    }
    self->features += batch->feature_count;
}

static int score(struct prediction *self, const struct sl_batch *batch, struct sl_reason *reason)
{
    struct sl_model_pass pass = {.shape = &self->model.shape, .scratch = self->scratch};
    float logits[BATCH_ROWS];
    int err = pull(self, batch, &pass, reason);
    if (err != 0) {
        return err;
    }
    count_missing(self, batch);
    sl_model_score(self->model.model, &pass, batch, logits);
    for (uint32_t row = 0; row < batch->row_count; row++) {
        self->unlabelled += isnan(batch->labels[row]) ? 1 : 0;
        self->loss_sum += sl_loss_logistic(logits[row], batch->labels[row]);
        err = sl_auc_add(&self->auc, logits[row], batch->labels[row]);
        if (err != 0) {
            return err == SL_ERR_INVALID
                       ? sl_reason_fail(reason, err, "the score of row %zu is not a number",
                                        self->auc.count + 1)
                       : predict_no_memory(reason);
        }
        if (fprintf(self->out, "%.9g\n", (double)sl_loss_sigmoid(logits[row])) < 0) {
            return sl_reason_fail(reason, SL_ERR_IO, "cannot write the scores: %s",
                                  strerror(errno));
        }
    }
    return 0;
}

static int score_all(struct prediction *self, struct sl_reason *reason)
{
    struct sl_batch *batch;
    int got;
    while ((got = sl_loader_take(self->loader, &batch)) > 0) {
        int err = score(self, batch, reason);
        sl_loader_give(self->loader, batch);
        if (err != 0) {
            return err;
        }
    }
    return got == 0 ? 0 : sl_reason_fail(reason, got, "%s", sl_loader_reason(self->loader));
}

/* The AUC needs rows of both labels; data to predict may have only one. */
static void print_summary(struct prediction *self)
{
    const uint64_t rows = self->auc.count;
    double auc;
    char loss[32] = "";
    char text[64] = "";
    if (rows > 0 && self->unlabelled == 0) {
        (void)snprintf(loss, sizeof loss, ", loss %.9g", self->loss_sum / (double)rows);
    }
    if (self->unlabelled == 0 && sl_auc_compute(&self->auc, &auc) == 0) {
        (void)snprintf(text, sizeof text, ", AUC %.9g", auc);
    }
    sl_log_info("%" PRIu64 " row%s%s%s, %.3g %% of the features are not in the model", rows,
                sl_log_plural(rows), loss, text,
                100 * (double)self->missing / (double)(self->features + (self->features == 0)));
    if (self->missing > self->features / 2) {
        sl_log_warn("the model does not have most of the features: are they numbered as in the "
                    "data that it was trained with?");
    }
}

/* A regular file gets its name when it is complete: until then an older one stays. */
static int open_scores(struct prediction *self, const char *path, struct sl_reason *reason)
{
    struct stat status;
    const bool is_replaced = path != NULL && (stat(path, &status) != 0 || S_ISREG(status.st_mode));
    if (is_replaced && asprintf(&self->part, "%s.part", path) < 0) {
        self->part = NULL;
        return predict_no_memory(reason);
    }
    self->out = path == NULL ? stdout : fopen(is_replaced ? self->part : path, "wb");
    if (self->out == NULL) {
        return sl_reason_fail(reason, SL_ERR_IO, "--out %s: %s", path, strerror(errno));
    }
    (void)setvbuf(self->out, NULL, _IOFBF, FILE_BUFFER_BYTES);
    return 0;
}

/* Returns err, or the error of the last write. */
static int close_scores(struct prediction *self, const char *path, int err,
                        struct sl_reason *reason)
{
    const bool is_written = (self->out == stdout ? fflush(self->out) : fclose(self->out)) == 0 &&
                            (err != 0 || self->part == NULL || rename(self->part, path) == 0);
    if (!is_written && err == 0) {
        err = sl_reason_fail(reason, SL_ERR_IO, "cannot write the scores: %s", strerror(errno));
    }
    if (self->part != NULL && err != 0) {
        (void)unlink(self->part);
    }
    return err;
}

static int predict(struct prediction *self, const struct options *options,
                   const struct sl_data_files *files, struct sl_reason *reason)
{
    int err = sl_model_file_load(options->model, &self->model, reason);
    err = err != 0 ? err : open_loader(self, files, reason);
    if (err != 0) {
        return err;
    }
    self->scratch =
        malloc((self->model.model->scratch_floats(&self->model.shape) + 1) * sizeof(float));
    err =
        self->scratch == NULL ? predict_no_memory(reason) : open_scores(self, options->out, reason);
    if (err != 0) {
        return err;
    }
    err = close_scores(self, options->out, score_all(self, reason), reason);
    if (err == 0) {
        print_summary(self);
    }
    return err;
}

static void predict_fini(struct prediction *self)
{
    for (uint32_t t = 0; t < SL_MODEL_TABLES; t++) {
        free(self->params[t]);
    }
    sl_loader_destroy(&self->loader);
    sl_model_file_fini(&self->model);
    sl_auc_fini(&self->auc);
    free(self->scratch);
    free(self->part);
}

static int parse(int argc, char **argv, struct options *out, struct sl_reason *reason)
{
    const struct sl_cli_option options[] = {
        SL_CLI_OPTION(STRING, &out->model, .name = "model", .variable = "", .metavar = "FILE",
                      .help =
                          "A model that a job saved with --save. It has the data's format too."),
        SL_CLI_OPTION(STRINGS, &out->data, .name = "data", .variable = "", .metavar = "FILE...",
                      .help = "Rows to score, as of --data of a job. Labels may be missing: then "
                              "loss and AUC are left out."),
        SL_CLI_OPTION(STRING, &out->out, .name = "out", .variable = "", .metavar = "FILE",
                      .help = "File for the scores, one a line: the probability of label 1. An "
                              "older one is replaced at the end. Default: standard output."),
    };
    const struct sl_cli cli = {
        .program = "starling-worker predict",
        .summary = "Scores data with a saved model, without servers.",
        .usage = "--model FILE --data FILE... [--out FILE]",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int result = sl_cli_parse(&cli, argc, argv, reason);
    if (result == SL_CLI_RUN && (out->model == NULL || out->data.count == 0)) {
        result = sl_reason_fail(reason, SL_ERR_INVALID, "%s is missing: name %s",
                                out->model == NULL ? "--model" : "--data",
                                out->model == NULL ? "a file of --save" : "the files to score");
    }
    return result;
}

int sl_predict_run(int argc, char **argv)
{
    struct options options = {0};
    struct prediction self = {0};
    struct sl_data_files files = {0};
    struct sl_reason reason;
    sl_log_setup(SL_LOG_INFO, "predict");
    int status = 0;
    const int result = parse(argc, argv, &options, &reason);
    if (result == SL_CLI_RUN) {
        int err = 0;
        sl_auc_init(&self.auc);
        for (uint32_t i = 0; err == 0 && i < options.data.count; i++) {
            err = sl_data_files_add(&files, options.data.items[i], &reason);
        }
        err = err != 0 ? err : predict(&self, &options, &files, &reason);
        predict_fini(&self);
        if (err != 0) {
            sl_log_error("%s", reason.text);
            status = 1;
        }
    } else if (result != SL_CLI_EXIT_OK) {
        (void)fprintf(stderr, "starling-worker predict: %s\n", reason.text);
        status = SL_CLI_EXIT_USAGE;
    }
    sl_data_files_fini(&files);
    sl_cli_list_fini(&options.data);
    return status;
}
