#include "bench/table_options.h"

#include <stdio.h>
#include <string.h>

#include "bench/options.h"
#include "bench/workload.h"
#include "core/limits.h"

/* What the lists on the command line say, before they are taken apart. */
struct texts {
    const char *rows, *dims, *optimizers;
    int keys;
    bool all;
};

#define KEYS_BOTH "both"
enum { KEYS_OF_BOTH = 2 };

static bool find_optimizer(const char *name, enum sl_optimizer_kind *out)
{
    static const char *const names[SL_OPTIMIZER_KIND_COUNT] = {
        "sum",  "sgd",   "momentum",   "adagrad", "adagrad_decay", "rmsprop",
        "adam", "adamw", "adam_async", "ftrl",    "ftrl_group"};
    for (int i = 0; i < SL_OPTIMIZER_KIND_COUNT; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (enum sl_optimizer_kind)i;
            return true;
        }
    }
    return false;
}

/* "adagrad,adam" or "all". */
static int read_optimizers(const char *text, struct sl_bench_table_options *o)
{
    const bool all = strcmp(text, "all") == 0;
    char name[32];
    for (int i = 0; all && i < SL_OPTIMIZER_KIND_COUNT; i++) {
        o->optimizers[o->optimizer_counts++] = (enum sl_optimizer_kind)i;
    }
    while (!all && text != NULL) {
        const int length = (int)strcspn(text, ",");
        (void)snprintf(name, sizeof name, "%.*s", length, text);
        if (o->optimizer_counts == SL_OPTIMIZER_KIND_COUNT ||
            !find_optimizer(name, &o->optimizers[o->optimizer_counts])) {
            (void)fprintf(stderr,
                          "starling-bench table: --optimizer: \"%s\": accepts all, or of these "
                          "with commas between them: sum sgd momentum adagrad adagrad_decay "
                          "rmsprop adam adamw adam_async ftrl ftrl_group\n",
                          name);
            return SL_ERR_INVALID;
        }
        o->optimizer_counts++;
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return 0;
}

static int read_lists(const struct texts *texts, struct sl_bench_table_options *o)
{
    o->distributions[SL_BENCH_UNIFORM] = texts->keys != SL_BENCH_ZIPF;
    o->distributions[SL_BENCH_ZIPF] = texts->keys != SL_BENCH_UNIFORM;
    int err = sl_bench_list("table", "rows", texts->rows, 1, 4000000000, o->rows,
                            SL_BENCH_TABLE_LIST_MAX, &o->row_counts);
    err = err != 0 ? err
                   : sl_bench_list("table", "dim", texts->dims, 1, SL_LIMIT_DIM, o->dims,
                                   SL_BENCH_TABLE_LIST_MAX, &o->dim_counts);
    return err != 0 ? err : read_optimizers(texts->optimizers, o);
}

int sl_bench_table_parse(int argc, char **argv, struct sl_bench_table_options *o)
{
    struct texts texts = {NULL, NULL, NULL, KEYS_OF_BOTH, false};
    *o = (struct sl_bench_table_options){
        .common = sl_bench_common_defaults(),
        .operations = 2000000,
        .batch = 256,
        .seed = 1,
        .exponent = 1.05,
    };
    o->common.seconds = 0.1;
    o->common.warm_up = 0.02;
    const struct sl_cli_option table[] = {
        sl_bench_text("rows", &texts.rows, "LIST",
                      "Rows that the table holds, \"1M,20M\"; 1M unless given."),
        sl_bench_text("dim", &texts.dims, "LIST", "Columns of a row; 16,64,128 unless given."),
        sl_bench_text("optimizer", &texts.optimizers, "LIST",
                      "Optimizers of the table, or all; adagrad unless given."),
        {.kind = SL_CLI_FLAG,
         .name = "all",
         .target = &texts.all,
         .help = "What is not given as a list is 1M,20M rows and all optimizers; what does not fit "
                 "into memory is left out. About 20 minutes."},
        sl_bench_choice("keys", &texts.keys, SL_BENCH_DISTRIBUTION_CHOICES "|" KEYS_BOTH,
                        "How keys are drawn."),
        sl_bench_exponent("exponent", &o->exponent),
        sl_bench_number("operations", &o->operations, 1, 1e9,
                        "Keys drawn, which each measurement goes through again and again."),
        sl_bench_number("batch", &o->batch, 1, SL_LIMIT_TURN_COST, "Keys of one call."),
        sl_bench_number("seed", &o->seed, 0, 0, "Seed of the keys drawn."),
    };
    const int result = sl_bench_parse("table", "Measures sparse tables in this process.", table,
                                      sizeof table / sizeof table[0], &o->common, argc, argv);
    if (result != SL_CLI_RUN) {
        return result;
    }
    texts.rows = texts.rows != NULL ? texts.rows : texts.all ? "1M,20M" : "1M";
    texts.dims = texts.dims != NULL ? texts.dims : "16,64,128";
    texts.optimizers = texts.optimizers != NULL ? texts.optimizers : texts.all ? "all" : "adagrad";
    return read_lists(&texts, o);
}
