#include "programs/train/generate.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/cli.h"
#include "core/log.h"
#include "programs/train/auc.h"
#include "programs/train/synthetic.h"

#define FILE_BUFFER_BYTES (1U << 20)
#define ROW_BYTES_MAX     1024 /* label, 13 x 11, 26 x 9 and the line's end are 381 */

struct options {
    const char *folder;
    uint64_t rows, test_rows, seed, categories_least, categories_most, interactions;
    double exponent;
};

/* What a file turned out to be. */
struct written {
    uint64_t rows, clicks, bytes;
};

/* ---- Lines ----------------------------------------------------------------------------------- */

static char *append_decimal(char *at, uint32_t value)
{
    char digits[10];
    uint32_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (count > 0) {
        *at++ = digits[--count];
    }
    return at;
}

static char *append_hex(char *at, uint32_t value)
{
    for (int shift = 28; shift >= 0; shift -= 4) {
        *at++ = "0123456789abcdef"[value >> shift & 15];
    }
    return at;
}

static size_t format_row(const struct sl_synthetic_row *row, char line[ROW_BYTES_MAX])
{
    char *at = line;
    *at++ = row->label ? '1' : '0';
    for (uint32_t i = 0; i < SL_SYNTHETIC_INTEGERS; i++) {
        *at++ = '\t';
        at = row->integer_missing[i] ? at : append_decimal(at, row->integers[i]);
    }
    for (uint32_t i = 0; i < SL_SYNTHETIC_CATEGORIES; i++) {
        *at++ = '\t';
        at = row->category_missing[i] ? at : append_hex(at, row->categories[i]);
    }
    *at++ = '\n';
    return (size_t)(at - line);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static int train_generate_fail_file(const char *path)
{
    int err = sl_err_from_errno(errno);
    sl_log_error("%s: %s", path, strerror(errno));
    return err;
}

/* Draws `rows` examples into an open file; their scores go to auc unless it is NULL. */
static int write_rows(struct sl_synthetic *model, FILE *file, uint64_t rows, struct sl_auc *auc,
                      struct written *out)
{
    struct sl_synthetic_row row;
    char line[ROW_BYTES_MAX];
    for (uint64_t i = 0; i < rows; i++) {
        sl_synthetic_draw(model, &row);
        size_t bytes = format_row(&row, line);
        if (fwrite(line, 1, bytes, file) != bytes) {
            return SL_ERR_IO;
        }
        out->rows++;
        out->clicks += row.label;
        out->bytes += bytes;
        int err = auc == NULL ? 0 : sl_auc_add(auc, row.logit, row.label ? 1 : 0);
        if (err != 0) {
            errno = ENOMEM;
            return err;
        }
    }
    return 0;
}

static int write_file(struct sl_synthetic *model, const char *path, uint64_t rows,
                      struct sl_auc *auc, struct written *out)
{
    *out = (struct written){0};
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        return train_generate_fail_file(path);
    }
    (void)setvbuf(file, NULL, _IOFBF, FILE_BUFFER_BYTES);
    int err = write_rows(model, file, rows, auc, out);
    if (err != 0) {
        err = train_generate_fail_file(path);
        (void)fclose(file);
    } else if (fclose(file) != 0) {
        err = train_generate_fail_file(path);
    }
    if (err != 0) {
        (void)unlink(path); /* a part looks like data */
    }
    return err;
}

static double rate(const struct written *written)
{
    return written->rows == 0 ? 0 : (double)written->clicks / (double)written->rows;
}

static int write_truth(const struct options *options, const char *path, uint64_t category_count,
                       double auc, const struct written *train, const struct written *test)
{
    json_t *json = json_pack(
        "{s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:I, s:I}", "auc", auc, "base_rate", rate(test),
        "train_base_rate", rate(train), "rows", (json_int_t)train->rows, "test_rows",
        (json_int_t)test->rows, "seed", (json_int_t)options->seed, "categories",
        (json_int_t)category_count, "zipf_exponent", options->exponent, "interactions",
        (json_int_t)options->interactions, "bytes", (json_int_t)(train->bytes + test->bytes));
    if (json == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    int failed = json_dump_file(json, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(json);
    return failed == 0 ? 0 : train_generate_fail_file(path);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void join(char *path, size_t bytes, const char *folder, const char *name)
{
    (void)snprintf(path, bytes, "%s/%s", folder, name);
}

static int write_all(const struct options *options, struct sl_synthetic *model,
                     struct sl_auc *scores)
{
    char path[4096];
    struct written train;
    struct written test;
    double auc;
    join(path, sizeof path, options->folder, "train.tsv");
    int err = write_file(model, path, options->rows, NULL, &train);
    if (err != 0) {
        return err;
    }
    join(path, sizeof path, options->folder, "test.tsv");
    err = write_file(model, path, options->test_rows, scores, &test);
    if (err != 0) {
        return err;
    }
    err = sl_auc_compute(scores, &auc);
    if (err != 0) {
        sl_log_error("%s: all labels are the same: choose more --test-rows", path);
        return err;
    }
    join(path, sizeof path, options->folder, "planted.json");
    err = write_truth(options, path, sl_synthetic_category_count(model), auc, &train, &test);
    if (err == 0) {
        printf("%s: %" PRIu64 " + %" PRIu64 " rows, %.1f MB, %.1f%% clicks, planted AUC %.6f\n",
               options->folder, train.rows, test.rows, (double)(train.bytes + test.bytes) / 1e6,
               100 * rate(&train), auc);
    }
    return err;
}

static int generate(const struct options *options)
{
    const struct sl_synthetic_options model_options = {
        .seed = options->seed,
        .categories_least = (uint32_t)options->categories_least,
        .categories_most = (uint32_t)options->categories_most,
        .zipf_exponent = options->exponent,
        .interactions = (uint32_t)options->interactions,
    };
    struct sl_synthetic *model;
    struct sl_auc scores;
    if (mkdir(options->folder, 0777) != 0 && errno != EEXIST) {
        return train_generate_fail_file(options->folder);
    }
    int err = sl_synthetic_create(&model_options, &model);
    if (err != 0) {
        sl_log_error("no memory for the model");
        return err;
    }
    sl_auc_init(&scores);
    err = write_all(options, model, &scores);
    sl_auc_fini(&scores);
    sl_synthetic_destroy(&model);
    return err;
}

static int parse(int argc, char **argv, struct options *out, struct sl_reason *reason)
{
    *out = (struct options){.rows = 400000,
                            .test_rows = 50000,
                            .seed = 1,
                            .categories_least = 4,
                            .categories_most = 20000,
                            .exponent = 1.5};
    const struct sl_cli_option options[] = {
        SL_CLI_OPTION(
            STRING, &out->folder, .name = "out", .metavar = "DIR",
            .help = "Directory for train.tsv, test.tsv and planted.json; created if missing."),
        SL_CLI_OPTION(U64, &out->rows, .name = "rows", .help = "Rows to train on.", .least = 1,
                      .most = 1e9),
        SL_CLI_OPTION(U64, &out->test_rows, .name = "test-rows", .help = "Rows to evaluate on.",
                      .least = 1, .most = 1e9),
        SL_CLI_OPTION(U64, &out->seed, .name = "seed",
                      .help = "The same seed gives the same files.", .least = 0,
                      .most = 9007199254740992.0),
        SL_CLI_OPTION(U64, &out->categories_least, .name = "categories-least",
                      .help = "Categories of the first field.", .least = 2, .most = 10000000),
        SL_CLI_OPTION(U64, &out->categories_most, .name = "categories-most",
                      .help =
                          "Categories of the last field; those between grow by a constant factor.",
                      .least = 2, .most = 10000000),
        SL_CLI_OPTION(F64, &out->exponent, .name = "zipf",
                      .help = "Exponent of the categories' popularity.", .least = 0.01, .most = 10),
        SL_CLI_OPTION(U64, &out->interactions, .name = "interactions",
                      .help = "Pairs of fields with weights of their own, which lr cannot learn.",
                      .least = 0, .most = SL_SYNTHETIC_INTERACTIONS_MAX),
    };
    const struct sl_cli cli = {
        .program = "starling-worker generate",
        .summary = "Writes a click log in Criteo's format, drawn from a known model.",
        .usage = "--out DIR [options]",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    return sl_cli_parse(&cli, argc, argv, reason);
}

int sl_generate_run(int argc, char **argv)
{
    struct options options;
    struct sl_reason reason;
    sl_log_setup(SL_LOG_INFO, "generate");
    int result = parse(argc, argv, &options, &reason);
    if (result == SL_CLI_EXIT_OK) {
        return 0;
    }
    if (result == SL_CLI_RUN && options.folder == NULL) {
        sl_reason_set(&reason, "--out is missing: name the folder to write to");
        result = SL_ERR_INVALID;
    }
    if (result != SL_CLI_RUN) {
        (void)fprintf(stderr, "starling-worker generate: %s\n", reason.text);
        return 2;
    }
    return generate(&options) == 0 ? 0 : 1;
}
