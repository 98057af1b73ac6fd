#include "config/cli_help.h"

#include <inttypes.h>
#include <string.h>

#define LINE_COLUMNS 100
#define TEXT_COLUMN  30 /* of the explanations */

bool sl_cli_help_choice(const char *choices, int index, char *text, size_t text_bytes)
{
    for (; index > 0; index--) {
        choices += strcspn(choices, "|");
        if (*choices == '\0') {
            return false;
        }
        choices++;
    }
    snprintf(text, text_bytes, "%.*s", (int)strcspn(choices, "|"), choices);
    return true;
}

/* Writes "--name METAVAR", or "VARIABLE=METAVAR". */
static void write_synopsis(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    static const char *const metavars[] = {
        [SL_CLI_BOOL] = "",     [SL_CLI_STRING] = "TEXT", [SL_CLI_STRINGS] = "TEXT...",
        [SL_CLI_U32] = "N",     [SL_CLI_U64] = "N",       [SL_CLI_I64] = "N",
        [SL_CLI_F32] = "X",     [SL_CLI_F64] = "X",       [SL_CLI_DURATION] = "DURATION",
        [SL_CLI_CHOICE] = "",   [SL_CLI_PARSED] = "TEXT", [SL_CLI_SIZE] = "BYTES",
        [SL_CLI_LOG] = "LEVEL",
    };
    const char *metavar = option->metavar != NULL         ? option->metavar
                          : option->kind == SL_CLI_CHOICE ? option->choices
                                                          : metavars[option->kind];
    if (option->name == NULL) {
        snprintf(text, text_bytes, "%s=%s", option->variable, metavar[0] != '\0' ? metavar : "0|1");
    } else {
        snprintf(text, text_bytes, "--%s%s%s", option->name, metavar[0] != '\0' ? " " : "",
                 metavar);
    }
}

/* Writes the target's value; "": none. */
static void write_value(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    const char *string = NULL;
    text[0] = '\0';
    switch (option->kind) {
    case SL_CLI_STRING:
        string = *(const char *const *)option->target;
        snprintf(text, text_bytes, "%s", string != NULL ? string : "");
        break;
    case SL_CLI_U64:
        /* Below the range: "not given"; the help text has the default. */
        if ((double)*(const uint64_t *)option->target >= option->least) {
            snprintf(text, text_bytes, "%" PRIu64, *(const uint64_t *)option->target);
        }
        break;
    case SL_CLI_I64:
        if ((double)*(const int64_t *)option->target >= option->least) {
            snprintf(text, text_bytes, "%" PRId64, *(const int64_t *)option->target);
        }
        break;
    case SL_CLI_F32:
        snprintf(text, text_bytes, "%.6g", (double)*(const float *)option->target);
        break;
    case SL_CLI_F64:
        snprintf(text, text_bytes, "%.6g", *(const double *)option->target);
        break;
    case SL_CLI_CHOICE:
        (void)sl_cli_help_choice(option->choices, *(const int *)option->target, text, text_bytes);
        break;
    default:
        break;
    }
}

/* Writes " Default: 5", or nothing if there is no default. */
static void write_default(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    char value[64];
    text[0] = '\0';
    if (option->preset != NULL) {
        snprintf(value, sizeof value, "%s", option->preset);
    } else {
        write_value(option, value, sizeof value);
    }
    if (option->kind == SL_CLI_BOOL && option->preset == NULL && *(const bool *)option->target) {
        snprintf(text, text_bytes, " Default: on; --%s=false turns it off.", option->name);
    } else if (value[0] != '\0') {
        snprintf(text, text_bytes, " Default: %s", value);
    }
}

/* Writes " Variable: STARLING_X." for a flag, and the alias if there is one. */
static void write_variables(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    if (option->name != NULL && option->variable != NULL) {
        used = (size_t)snprintf(text, text_bytes, " Variable: %s.", option->variable);
    }
    if (option->alias != NULL) {
        snprintf(text + used, text_bytes - used, " Alias of StarServer%s: %s.",
                 option->inverts ? ", inverted" : "", option->alias);
    }
}

/* Prints words from `column` on; lines start at TEXT_COLUMN. Returns the column reached. */
static size_t print_wrapped(const char *text, size_t column, FILE *file)
{
    bool first_in_line = column <= TEXT_COLUMN;
    while (*(text += strspn(text, " \n")) != '\0') {
        const size_t length = strcspn(text, " \n");
        if (!first_in_line && column + 1 + length > LINE_COLUMNS) {
            fputc('\n', file);
            column = 0;
            first_in_line = true;
        }
        if (first_in_line) {
            fprintf(file, "%*s", (int)(TEXT_COLUMN - column), "");
            column = TEXT_COLUMN;
        } else {
            fputc(' ', file);
            column++;
        }
        fwrite(text, 1, length, file);
        column += length;
        text += length;
        first_in_line = false;
    }
    return column;
}

static void print_option(const struct sl_cli_option *option, FILE *file)
{
    if (option->kind == SL_CLI_SECTION) {
        fprintf(file, "\n%s:\n", option->name != NULL ? option->name : option->help);
        return;
    }
    char synopsis[160], variables[160], standard[160];
    write_synopsis(option, synopsis, sizeof synopsis);
    write_variables(option, variables, sizeof variables);
    write_default(option, standard, sizeof standard);
    size_t column = 2 + strlen(synopsis);
    fprintf(file, "  %s", synopsis);
    /* Less than two columns apart: the explanation starts on a new line. */
    if (column + 2 > TEXT_COLUMN) {
        fputc('\n', file);
        column = 0;
    }
    column = print_wrapped(option->help != NULL ? option->help : "", column, file);
    column = print_wrapped(variables, column, file);
    print_wrapped(standard, column, file);
    fputc('\n', file);
}

void sl_cli_help_print(const struct sl_cli *cli, FILE *file)
{
    static const struct sl_cli_option standard[] = {
        {.kind = SL_CLI_STRING,
         .name = "help",
         .metavar = "",
         .help = "Print this text and exit; also -h."},
        {.kind = SL_CLI_STRING,
         .name = "version",
         .metavar = "",
         .help = "Print the version and exit; also -V."},
    };
    static const char *const none = NULL;
    fprintf(file, "Usage: %s %s\n%s\n", cli->program, cli->usage, cli->summary);
    if (cli->option_count > 0 && cli->options[0].kind != SL_CLI_SECTION) {
        fprintf(file, "\nOptions:\n");
    }
    for (uint32_t i = 0; i < cli->option_count; i++) {
        print_option(&cli->options[i], file);
    }
    fputc('\n', file);
    for (size_t i = 0; i < sizeof standard / sizeof standard[0]; i++) {
        struct sl_cli_option option = standard[i];
        option.target = (void *)&none;
        print_option(&option, file);
    }
}
