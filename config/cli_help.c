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

/* Writes "--name METAVAR". */
static void write_synopsis(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    static const char *const metavars[] = {
        [SL_CLI_FLAG] = "",   [SL_CLI_STRING] = "TEXT", [SL_CLI_STRINGS] = "TEXT...",
        [SL_CLI_U64] = "N",   [SL_CLI_I64] = "N",       [SL_CLI_F64] = "X",
        [SL_CLI_CHOICE] = "",
    };
    const char *metavar = option->metavar != NULL         ? option->metavar
                          : option->kind == SL_CLI_CHOICE ? option->choices
                                                          : metavars[option->kind];
    snprintf(text, text_bytes, "--%s%s%s", option->name, metavar[0] != '\0' ? " " : "", metavar);
}

/* Writes " Default: 5.", or nothing if the target has no default. */
static void write_default(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    char settings[64];
    const char *string;
    text[0] = '\0';
    switch (option->kind) {
    case SL_CLI_FLAG:
        if (*(const bool *)option->target) {
            snprintf(text, text_bytes, " Default: on; --%s=false turns it off.", option->name);
        }
        break;
    case SL_CLI_STRING:
        string = *(const char *const *)option->target;
        if (string != NULL && string[0] != '\0') {
            snprintf(text, text_bytes, " Default: %s", string);
        }
        break;
    case SL_CLI_U64:
        /* Below the range: "not given"; the help text has the default. */
        if ((double)*(const uint64_t *)option->target >= option->least) {
            snprintf(text, text_bytes, " Default: %" PRIu64, *(const uint64_t *)option->target);
        }
        break;
    case SL_CLI_I64:
        snprintf(text, text_bytes, " Default: %" PRId64, *(const int64_t *)option->target);
        break;
    case SL_CLI_F64:
        snprintf(text, text_bytes, " Default: %.6g", *(const double *)option->target);
        break;
    case SL_CLI_CHOICE:
        if (sl_cli_help_choice(option->choices, *(const int *)option->target, settings,
                               sizeof settings)) {
            snprintf(text, text_bytes, " Default: %s", settings);
        }
        break;
    case SL_CLI_STRINGS:
    case SL_CLI_SECTION:
        break;
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
    char synopsis[160], standard[160];
    write_synopsis(option, synopsis, sizeof synopsis);
    write_default(option, standard, sizeof standard);
    size_t column = 2 + strlen(synopsis);
    fprintf(file, "  %s", synopsis);
    /* Less than two columns apart: the explanation starts on a new line. */
    if (column + 2 > TEXT_COLUMN) {
        fputc('\n', file);
        column = 0;
    }
    column = print_wrapped(option->help != NULL ? option->help : "", column, file);
    print_wrapped(standard, column, file);
    fputc('\n', file);
}

void sl_cli_help_print(const struct sl_cli *cli, FILE *file)
{
    static const struct sl_cli_option standard[] = {
        {.kind = SL_CLI_STRING, .name = "help", .metavar = "", .help = "Prints this, and ends."},
        {.kind = SL_CLI_STRING,
         .name = "version",
         .metavar = "",
         .help = "Prints the version, and ends."},
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
