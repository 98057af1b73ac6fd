/* starling-ckpt inspects checkpoints and converts them to tensor files and back. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli.h"
#include "core/end_signals.h"
#include "core/limits.h"
#include "core/log.h"
#include "programs/ckpt/export.h"
#include "programs/ckpt/import.h"
#include "programs/ckpt/import_table.h"
#include "programs/ckpt/inspect.h"
#include "ps/checkpoint/select.h"

#define LENGTH(array) (uint32_t)(sizeof(array) / sizeof((array)[0]))

static struct {
    const char *out;
    const char *table;
    bool slots, widen, replace;
    uint64_t number, shards, first_shard, level;
    struct sl_cli_list with;
} flags;

static const struct sl_cli_option verify_options[] = {
    SL_CLI_OPTION(
        U64, &flags.first_shard, .name = "first-shard", .most = SL_LIMIT_SHARDS,
        .help =
            "With --shards: verify the files of these shards only, for directories of one server."),
    SL_CLI_OPTION(U64, &flags.shards, .name = "shards", .most = SL_LIMIT_SHARDS,
                  .help = "Number of shards, from --first-shard on; 0: all of the checkpoint."),
};

static const struct sl_cli_option export_options[] = {
    SL_CLI_OPTION(STRING, &flags.out, .name = "out", .metavar = "FILE",
                  .help = "File to write: .safetensors, or .npz for NumPy."),
    SL_CLI_OPTION(STRING, &flags.table, .name = "table", .metavar = "NAME",
                  .help = "Export this table only."),
    SL_CLI_OPTION(BOOL, &flags.slots, .name = "slots",
                  .help =
                      "Also export the optimizer's state: NAME.slots, NAME.steps, NAME.counts."),
    SL_CLI_OPTION(BOOL, &flags.widen, .name = "widen",
                  .help = "Write values of f16 and bf16 as f32, as those of int8 always, and those "
                          "of bf16 in .npz files."),
    SL_CLI_OPTION(BOOL, &flags.replace, .name = "replace",
                  .help = "Replace an existing file, once everything is written."),
};

static const struct sl_cli_option import_options[] = {
    SL_CLI_OPTION(STRING, &flags.out, .name = "out", .metavar = "DIR",
                  .help = "Directory of the checkpoints; created if missing."),
    SL_CLI_OPTION(U64, &flags.number, .name = "number", .most = (double)SL_LIMIT_CHECKPOINT_NUMBER,
                  .help = "Number of the checkpoint; 0: the next free one."),
    SL_CLI_OPTION(U64, &flags.shards, .name = "shards", .least = 1, .most = SL_LIMIT_SHARDS,
                  .help = "Files to write. A cluster of any size restores them; the input is read "
                          "once for each."),
    SL_CLI_OPTION(U64, &flags.level, .name = "compression", .most = SL_CHECKPOINT_LEVEL_MAX,
                  .help = "Level of zstd compression; 0: none."),
    SL_CLI_OPTION(
        STRINGS, &flags.with, .name = "with", .metavar = "[NAME:]WORD=VALUE,...",
        .help = "Properties of all tables, or of table NAME: "
                "optimizer=adagrad,lr=0.1,initializer=normal,b=0.01,consistency=bsp,workers=4. "
                "Default: the file's metadata, which exports contain; else optimizer=sgd, "
                "initializer=zeros, consistency=asp."),
};

struct command {
    const char *name;
    const char *summary, *usage;
    const struct sl_cli_option *options;
    uint32_t option_count;
    uint32_t words_least, words_most;
    bool writes; /* an end signal takes effect when what it has begun to write is removed */
    int (*run)(const struct sl_cli_words *words, struct sl_reason *reason);
};

/* Parses "12" or "000012"; "newest" or none: 0. */
static int ckpt_main_take_number(const struct sl_cli_words *words, uint64_t *number,
                                 struct sl_reason *reason)
{
    const char *text = words->count > 1 ? words->items[1] : "newest";
    *number = 0;
    if (strcmp(text, "newest") == 0) {
        return 0;
    }
    if (strlen(text) <= 12 && strspn(text, "0123456789") == strlen(text)) {
        *number = strtoull(text, NULL, 10);
    }
    if (*number == 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "\"%s\" is not a checkpoint: expected a number from 1, or newest",
                              text);
    }
    return 0;
}

static int run_ls(const struct sl_cli_words *words, struct sl_reason *reason)
{
    uint64_t number;
    int err = ckpt_main_take_number(words, &number, reason);
    if (err != 0 || words->count > 1) {
        return err != 0 ? err : sl_inspect_tables(words->items[0], number, stdout, reason);
    }
    return sl_inspect_list(words->items[0], stdout, reason);
}

static int run_verify(const struct sl_cli_words *words, struct sl_reason *reason)
{
    const struct sl_checkpoint_shard_range range = {.first = (uint32_t)flags.first_shard,
                                                    .count = (uint32_t)flags.shards};
    uint64_t number;
    int err = ckpt_main_take_number(words, &number, reason);
    if (err == 0 && words->count > 1 && number == 0) {
        err = sl_checkpoint_newest(sl_disk_system(), words->items[0], range, &number, reason);
    }
    return err != 0 ? err : sl_inspect_verify(words->items[0], number, range, stdout, reason);
}

static int need_out(struct sl_reason *reason)
{
    if (flags.out == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "--out is missing: where to write");
    }
    return 0;
}

static int run_export(const struct sl_cli_words *words, struct sl_reason *reason)
{
    struct sl_export_options options = {.directory = words->items[0],
                                        .path = flags.out,
                                        .table = flags.table,
                                        .slots = flags.slots,
                                        .widen = flags.widen,
                                        .replace = flags.replace};
    uint64_t number;
    uint32_t tensors;
    int err = need_out(reason);
    err = err != 0 ? err : ckpt_main_take_number(words, &options.number, reason);
    err = err != 0 ? err : sl_export_run(&options, &number, &tensors, reason);
    if (err == 0) {
        (void)printf("%s: %u tensors of checkpoint %" PRIu64 "\n", flags.out, tensors, number);
    }
    return err;
}

static int run_import(const struct sl_cli_words *words, struct sl_reason *reason)
{
    struct sl_import_options options = {.path = words->items[0],
                                        .directory = flags.out,
                                        .number = flags.number,
                                        .shard_count = (uint32_t)flags.shards,
                                        .compression_level = (uint32_t)flags.level,
                                        .with = flags.with.items,
                                        .with_count = flags.with.count};
    struct sl_import_result result;
    int err = need_out(reason);
    err = err != 0 ? err : sl_import_run(&options, &result, reason);
    if (err != 0) {
        return err;
    }
    (void)printf("%s: checkpoint %" PRIu64 ", %u table%s\n", flags.out, result.number,
                 result.table_count, sl_log_plural(result.table_count));
    for (uint32_t i = 0; i < result.table_count; i++) {
        sl_inspect_table(&result.tables[i].info, "", stdout);
    }
    sl_import_result_fini(&result);
    return 0;
}

static const struct command commands[] = {
    {.name = "ls",
     .summary = "Lists the checkpoints of a directory, or the tables of one of them.",
     .usage = "DIR [N|newest]",
     .words_least = 1,
     .words_most = 2,
     .run = run_ls},
    {.name = "verify",
     .summary = "Reads every byte of a checkpoint, or of all in a directory, and reports each file "
                "that is damaged, truncated or missing.",
     .usage = "DIR [N|newest] [options]",
     .options = verify_options,
     .option_count = LENGTH(verify_options),
     .words_least = 1,
     .words_most = 2,
     .run = run_verify},
    {.name = "export",
     .summary = "Writes the tables of a checkpoint into a file that PyTorch or NumPy loads.",
     .usage = "DIR [N|newest] --out FILE [options]",
     .options = export_options,
     .option_count = LENGTH(export_options),
     .words_least = 1,
     .words_most = 2,
     .writes = true,
     .run = run_export},
    {.name = "import",
     .summary = "Creates a checkpoint for starling-ps --restore from a safetensors file.",
     .usage = "FILE --out DIR [options]",
     .options = import_options,
     .option_count = LENGTH(import_options),
     .words_least = 1,
     .words_most = 1,
     .writes = true,
     .run = run_import},
};

static void print_help(FILE *to)
{
    (void)fprintf(to, "starling-ckpt: inspects checkpoints and converts them to tensor files and "
                      "back.\n\n");
    for (uint32_t i = 0; i < LENGTH(commands); i++) {
        (void)fprintf(to, "  starling-ckpt %s %s\n      %s\n", commands[i].name, commands[i].usage,
                      commands[i].summary);
    }
    (void)fprintf(to, "\nstarling-ckpt COMMAND --help lists a command's options.\n");
}

static const struct command *find_command(const char *name)
{
    for (uint32_t i = 0; name != NULL && i < LENGTH(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static int run(const struct command *command, int argc, char **argv)
{
    struct sl_reason reason;
    char program[64];
    struct sl_cli_words words = {.least = command->words_least, .most = command->words_most};
    (void)snprintf(program, sizeof program, "starling-ckpt %s", command->name);
    const struct sl_cli cli = {.program = program,
                               .summary = command->summary,
                               .usage = command->usage,
                               .options = command->options,
                               .option_count = command->option_count,
                               .words = &words};
    flags.shards = command->run == run_import ? 1 : 0;
    flags.level = 3;
    const int result = sl_cli_parse(&cli, argc, argv, &reason);
    if (result != SL_CLI_RUN) {
        return sl_cli_exit(&cli, result, &reason);
    }
    sigset_t signals, before;
    (void)sigemptyset(&signals);
    if (command->writes) {
        sl_end_signals_add(&signals);
    }
    (void)sigprocmask(SIG_BLOCK, &signals, &before);
    int err = command->run(&words, &reason);
    (void)sigprocmask(SIG_SETMASK, &before, NULL); /* a signal that came ends the process here */
    sl_cli_list_fini(&flags.with);
    return sl_cli_end(&cli, err, &reason);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    const struct command *command = find_command(name);
    (void)signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit becomes an error */
    if (command != NULL) {
        return run(command, argc - 1, argv + 1);
    }
    if (name != NULL && (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)) {
        print_help(stdout);
        return EXIT_SUCCESS;
    }
    if (name != NULL && (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)) {
        (void)printf("starling-ckpt %s\n", STARLING_VERSION);
        return EXIT_SUCCESS;
    }
    if (name != NULL) {
        (void)fprintf(stderr, "starling-ckpt: unknown command \"%s\"\n", name);
    }
    print_help(stderr);
    return SL_CLI_EXIT_USAGE;
}
