/* The parser of options fills variables described by a table. An option --memory-limit is also the
 * environment variable STARLING_MEMORY_LIMIT and the key memory-limit of a configuration file
 * (config_file.h), if the program reads one. A flag has precedence over a variable, a variable over
 * the file. The same table prints --help and --show-config. It accepts "--name value" and
 * "--name=value". An unknown flag is an error that suggests the nearest name. The last occurrence
 * of a flag counts, so that scripts can append. A value that equals one of the program's flags is
 * taken as that flag ("--data --epochs": --data lacks a value), unless written "--name=value".
 * Before start. */
#ifndef SL_CONFIG_CLI_H
#define SL_CONFIG_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/reason.h"

struct sl_config_file;

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
    const char *variable; /* NULL: STARLING_ and the name, if the program reads a file; "": none */
    /* Older names, separated by blanks: of flags and keys in lower case, of variables in upper
     * case. If several variables are set, they must agree. BOOL: after !, true is false for the
     * option. */
    const char *aliases;
    bool refuses_empty;  /* an empty variable is an empty value; else it counts as unset */
    bool no_key;         /* not in a file */
    void *target;        /* holds the default before parse, unless there is a preset */
    const char *preset;  /* default as text; or NULL */
    const char *metavar; /* "FILE" */
    const char *help;    /* sentences, wrapped when printed */
    const char *choices; /* CHOICE only */
    double least, most;  /* numbers only; both 0: limits of the type */
    bool (*parse)(const char *text, void *target); /* PARSED only; false: invalid */
    const char *accepts;                           /* PARSED only: for the error */
};

/* An option in a table: SL_CLI_OPTION(U64, &rows, .name = "rows", .help = "Rows to write."). */
#define SL_CLI_OPTION(type, to, ...)                                                               \
    {                                                                                              \
        .kind = SL_CLI_##type, .target = (to), __VA_ARGS__                                         \
    }

/* Where a value comes from; the last one that has a value applies. */
enum sl_cli_from { SL_CLI_FROM_DEFAULT, SL_CLI_FROM_FILE, SL_CLI_FROM_VARIABLE, SL_CLI_FROM_FLAG };

#define SL_CLI_NAME_BYTES   64 /* of flags, variables and keys */
#define SL_CLI_SOURCE_BYTES 320

struct sl_cli_given {
    enum sl_cli_from from;
    const char *text; /* the value as written; of a list its last item */
    /* "--lease", "STARLING_LEASE", or "FILE:LINE: lease", for messages; "": not given. */
    char source[SL_CLI_SOURCE_BYTES];
    const char *section; /* of the file */
};

#define SL_CLI_OPTIONS_MAX 160

/* How a program reads the configuration file that an option names. */
struct sl_cli_file {
    const char *const *path; /* target of the option --config; NULL in it: no file */
    const bool *shows;       /* target of --show-config; or NULL */
    /* In their precedence, to NULL: the program's own, in which an unknown key is an error; other
     * ones, of which it takes the keys that are its options too; "all" at last. */
    const char *const *sections;
    uint32_t programs;                        /* bits of programs_of */
    uint32_t (*programs_of)(const char *key); /* returns the programs that share the key; 0: none */
    /* Says in what program an unknown flag belongs, for the error: "is an option of starling-ps".
     * False: no program shares it. Or NULL. */
    bool (*place_of)(uint32_t programs, const char *name, char *text, size_t text_bytes);
    struct sl_config_file *file; /* sl_cli_parse fills it; the options point into it */
};

/* Arguments before the flags. */
struct sl_cli_words {
    uint32_t least, most; /* accepted */
    const char *missing;  /* the error for too few; NULL: "an argument is missing" */
    char **items;         /* written by parse: points into argv */
    uint32_t count;
};

struct sl_cli {
    const char *program;
    const char *summary; /* one sentence */
    const char *usage;   /* "[options]" */
    const char *dashes;  /* before the name of a flag; NULL: "--"; else --help is no flag */
    const struct sl_cli_option *options;
    uint32_t option_count;
    struct sl_cli_words *words;     /* or NULL: flags only */
    struct sl_cli_given *given;     /* [option_count], written by parse; or NULL */
    const struct sl_cli_file *file; /* or NULL: no file, and no derived names of variables */
    /* "NAME=VALUE", which count in place of the environment's, to NULL; or NULL: none. The values
     * of the options may point into them. */
    const char *const *variables;
};

/* Returns the value of a variable, of the last text that names it, else of the environment; NULL:
 * it is not set. variables: as in sl_cli. */
const char *sl_cli_variable(const char *const *variables, const char *name);

#define SL_CLI_EXIT_USAGE 2 /* exit status of a program for an invalid flag or variable */

enum sl_cli_result { SL_CLI_RUN = 0, SL_CLI_EXIT_OK = 1 };

/* --help and --version (-h, -V) are handled first, so that --help shows the defaults. Then flags,
 * then variables of flags that are not given, then the file. argc 0: no flags. Returns SL_CLI_RUN,
 * SL_CLI_EXIT_OK (--help, --version or --show-config was printed to stdout), or an error. reason:
 * the flag, variable, or key with file and line, its value, what is accepted; lists are then empty.
 * Opens /dev/null for each standard stream that is closed: call it before other files are opened.
 * Errors: INVALID, NO_MEMORY, IO (stdout cannot be written), those of sl_config_file_read. */
int sl_cli_parse(const struct sl_cli *cli, int argc, char **argv, struct sl_reason *reason);
void sl_cli_list_fini(struct sl_cli_list *list);

/* Returns the exit status of a program whose parse did not return SL_CLI_RUN, or whose flags
 * contradict each other. Prints the error, and, of a program with words, the usage. */
int sl_cli_exit(const struct sl_cli *cli, int result, const struct sl_reason *reason);

/* Returns the exit status of a program that has run. err: 0, or the error, which is printed. An
 * output that could not be written is an error too. */
int sl_cli_end(const struct sl_cli *cli, int err, const struct sl_reason *reason);

#endif
