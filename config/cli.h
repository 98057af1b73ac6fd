/* The command-line parser fills variables described by a table: flags, and the environment
 * variables that replace missing flags. The same table prints --help. It accepts "--name value" and
 * "--name=value". An unknown flag is an error that suggests the nearest name. The last occurrence
 * of a flag counts, so that scripts can append. A value that equals one of the program's flags is
 * taken as that flag ("--data --epochs": --data lacks a value), unless written "--name=value".
 * Before start. */
#ifndef SL_CONFIG_CLI_H
#define SL_CONFIG_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "core/reason.h"

enum sl_cli_kind {
    SL_CLI_BOOL,     /* bool *: true if given; "--name=false" etc.: sl_number_parse_bool */
    SL_CLI_STRING,   /* const char **: points into argv or the environment */
    SL_CLI_STRINGS,  /* struct sl_cli_list *: values up to the next flag; repeatable */
    SL_CLI_U32,      /* uint32_t *, within [least, most] */
    SL_CLI_U64,      /* uint64_t *, within [least, most] */
    SL_CLI_I64,      /* int64_t *, within [least, most] */
    SL_CLI_F32,      /* float *, within [least, most], finite */
    SL_CLI_F64,      /* double *, within [least, most], finite */
    SL_CLI_DURATION, /* uint64_t *: nanoseconds; least and most are in seconds */
    SL_CLI_CHOICE,   /* int *: index into choices, "a|b|c" */
    SL_CLI_SIZE,     /* size_t *: bytes, such as 64G (sl_number_parse_size) */
    SL_CLI_LOG,      /* enum sl_log_level *: the least level of log lines */
    SL_CLI_PARSED,   /* whatever `parse` writes */
    SL_CLI_SECTION,  /* a heading in --help: name, else help; no target */
};

struct sl_cli_list {
    const char **items; /* allocated by parse; sl_cli_list_fini */
    uint32_t count;
};

struct sl_cli_option {
    enum sl_cli_kind kind;
    const char *name;     /* without dashes; NULL: variable only */
    const char *variable; /* applies if the flag is not given; or NULL */
    const char *alias;    /* of StarServer, for the variable; if both are set, they must agree */
    bool inverts;         /* BOOL: true for the alias is false for the option */
    bool skips_empty;     /* an empty variable counts as unset; else as an empty value */
    void *target;         /* holds the default before parse, unless there is a preset */
    const char *preset;   /* default as text; or NULL */
    const char *metavar;  /* "FILE" */
    const char *help;     /* sentences, wrapped when printed */
    const char *choices;  /* CHOICE only */
    double least, most;   /* numbers only; both 0: limits of the type */
    bool (*parse)(const char *text, void *target); /* PARSED only; false: invalid */
    const char *accepts;                           /* PARSED only: for the error */
};

/* An option in a table: SL_CLI_OPTION(U64, &rows, .name = "rows", .help = "Rows to write."). */
#define SL_CLI_OPTION(type, to, ...)                                                               \
    {                                                                                              \
        .kind = SL_CLI_##type, .target = (to), __VA_ARGS__                                         \
    }

/* Where a value comes from. */
struct sl_cli_given {
    const char *dashes, *source; /* "--" and a flag, or "" and a variable; source NULL: not given */
    const char *text;            /* the value as written */
};

#define SL_CLI_OPTIONS_MAX 128

struct sl_cli {
    const char *program;
    const char *summary; /* one sentence */
    const char *usage;   /* "[options]" */
    const char *dashes;  /* before the name of a flag; NULL: "--"; else --help is no flag */
    const struct sl_cli_option *options;
    uint32_t option_count;
    struct sl_cli_given *given; /* [option_count], written by parse; or NULL */
};

#define SL_CLI_EXIT_USAGE 2 /* exit status of a program for an invalid flag or variable */

enum sl_cli_result { SL_CLI_RUN = 0, SL_CLI_EXIT_OK = 1 };

/* --help and --version (-h, -V) are handled first, so that --help shows the defaults. Then flags,
 * then variables of flags that are not given. argc 0: variables only. Returns SL_CLI_RUN,
 * SL_CLI_EXIT_OK (--help or --version was printed to stdout), or an error. reason: the flag or
 * variable, its value, what is accepted; lists are then empty. Errors: INVALID, NO_MEMORY. */
int sl_cli_parse(const struct sl_cli *cli, int argc, char **argv, struct sl_reason *reason);
void sl_cli_list_fini(struct sl_cli_list *list);

#endif
