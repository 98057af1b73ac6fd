/* Command lines, driven by a table that also prints --help. "--name value" and "--name=value"; an
 * unknown or misspelt flag is an error that names the nearest one. A flag given twice: the last one
 * counts, so that a script can append. A value that spells one of the program's own flags is taken
 * for that flag ("--data --epochs": --data lacks its value) unless written "--name=value". Before
 * start. */
#ifndef SL_CONFIG_CLI_H
#define SL_CONFIG_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

enum sl_cli_kind {
    SL_CLI_FLAG,    /* bool *: true when given, or "--name=false" and the like (env.h) */
    SL_CLI_STRING,  /* const char **: points into argv */
    SL_CLI_STRINGS, /* struct sl_cli_list *: one or more values, up to the next flag; repeatable */
    SL_CLI_U64,     /* uint64_t *, within [least, most] */
    SL_CLI_I64,     /* int64_t *, within [least, most] */
    SL_CLI_F64,     /* double *, within [least, most], finite */
    SL_CLI_CHOICE,  /* int *: index into choices, "a|b|c" */
    SL_CLI_SECTION, /* a heading in --help: name, or help where that is NULL; no target */
};

struct sl_cli_list {
    const char **items; /* allocated by parse; sl_cli_list_fini */
    uint32_t count;
};

struct sl_cli_option {
    enum sl_cli_kind kind;
    const char *name;    /* without dashes */
    void *target;        /* holds the default before parse */
    const char *metavar; /* "FILE" */
    const char *help;    /* one or more sentences, wrapped when printed */
    const char *choices; /* CHOICE only */
    double least, most;  /* numbers only; both 0: whatever the type holds */
};

struct sl_cli {
    const char *program;
    const char *summary; /* one sentence */
    const char *usage;   /* "[options]" */
    const struct sl_cli_option *options;
    uint32_t option_count;
    bool *given; /* for each option: the command line has it; false before parse; or NULL */
};

enum sl_cli_result { SL_CLI_RUN = 0, SL_CLI_EXIT_OK = 1 };

/* --help and --version (-h, -V) are looked for first, so that --help shows the table's defaults.
 * Returns SL_CLI_RUN, or SL_CLI_EXIT_OK after --help or --version was printed to stdout, or an
 * error with reason: which flag, what it said, what is accepted; lists are then empty. Errors:
 * INVALID, NO_MEMORY. */
int sl_cli_parse(const struct sl_cli *cli, int argc, char **argv, char *reason,
                 size_t reason_bytes);
void sl_cli_list_fini(struct sl_cli_list *list);

#endif
