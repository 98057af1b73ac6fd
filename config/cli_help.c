#include "config/cli_help.h"

#include <ctype.h>
#include <string.h>

#include "config/cli_option.h"
#include "config/cli_values.h"
#include "core/assert.h"

#define LINE_COLUMNS 100
#define TEXT_COLUMN  30 /* of the explanations */

static const char *metavar_of(const struct sl_cli_option *option)
{
    static const char *const metavars[] = {
        [SL_CLI_BOOL] = "",     [SL_CLI_STRING] = "TEXT", [SL_CLI_STRINGS] = "TEXT...",
        [SL_CLI_U32] = "N",     [SL_CLI_U64] = "N",       [SL_CLI_I64] = "N",
        [SL_CLI_F32] = "X",     [SL_CLI_F64] = "X",       [SL_CLI_DURATION] = "DURATION",
        [SL_CLI_CHOICE] = "",   [SL_CLI_PARSED] = "TEXT", [SL_CLI_SIZE] = "BYTES",
        [SL_CLI_LOG] = "LEVEL",
    };
    return option->metavar != NULL         ? option->metavar
           : option->kind == SL_CLI_CHOICE ? option->choices
                                           : metavars[option->kind];
}

/* Writes "--name METAVAR", or "VARIABLE=METAVAR". */
static void write_synopsis(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    const char *metavar = metavar_of(option);
    if (option->name == NULL) {
        snprintf(text, text_bytes, "%s=%s", option->variable, metavar[0] != '\0' ? metavar : "0|1");
    } else {
        snprintf(text, text_bytes, "--%s%s%s", option->name, metavar[0] != '\0' ? " " : "",
                 metavar);
    }
}

/* Whether the target's value is a default to print. Others depend on the host, or have a preset. */
static bool shows_value(const struct sl_cli_option *option)
{
    return option->kind == SL_CLI_STRING || option->kind == SL_CLI_U64 ||
           option->kind == SL_CLI_I64 || option->kind == SL_CLI_F32 || option->kind == SL_CLI_F64 ||
           option->kind == SL_CLI_CHOICE;
}

/* Writes " Default: 5", or nothing if there is no default. */
static void write_default(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    char value[64] = "";
    text[0] = '\0';
    if (option->preset != NULL) {
        snprintf(value, sizeof value, "%s", option->preset);
    } else if (shows_value(option)) {
        sl_cli_values_write(option, value, sizeof value);
    }
    if (option->kind == SL_CLI_BOOL && option->preset == NULL && *(const bool *)option->target) {
        snprintf(text, text_bytes, " Default: on; --%s=false turns it off.", option->name);
    } else if (value[0] != '\0') {
        snprintf(text, text_bytes, " Default: %s", value);
    }
}

/* Writes " Variable: STARLING_X." of a flag, unless it follows from the name, and older names. */
static void write_variables(const struct sl_cli *cli, const struct sl_cli_option *option,
                            char *text, size_t text_bytes)
{
    char name[SL_CLI_NAME_BYTES];
    bool inverts;
    size_t used = 0;
    text[0] = '\0';
    if (option->name != NULL && option->variable != NULL && option->variable[0] != '\0') {
        used = (size_t)snprintf(text, text_bytes, " Variable: %s.", option->variable);
    }
    const size_t begin = used;
    for (const char *at = option->aliases; sl_cli_option_alias(&at, name, &inverts);) {
        used += (size_t)snprintf(
            text + used, text_bytes - used, "%s%s%s%s", used == begin ? " Older names: " : ", ",
            islower((unsigned char)name[0]) ? cli->dashes == NULL ? "--" : cli->dashes : "", name,
            inverts ? " (inverted)" : "");
    }
    sl_assert(used + 1 < text_bytes);
    snprintf(text + used, text_bytes - used, "%s", used == begin ? "" : ".");
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

static void print_option(const struct sl_cli *cli, const struct sl_cli_option *option, FILE *file)
{
    if (option->kind == SL_CLI_SECTION) {
        fprintf(file, "\n%s:\n", option->name != NULL ? option->name : option->help);
        return;
    }
    char synopsis[160], variables[160], standard[160];
    write_synopsis(option, synopsis, sizeof synopsis);
    write_variables(cli, option, variables, sizeof variables);
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
    if (cli->file != NULL) {
        fprintf(file,
                "An option --name is also the variable STARLING_NAME, and the key \"name\" of "
                "the file of --config.\n");
    }
    if (cli->option_count > 0 && cli->options[0].kind != SL_CLI_SECTION) {
        fprintf(file, "\nOptions:\n");
    }
    for (uint32_t i = 0; i < cli->option_count; i++) {
        print_option(cli, &cli->options[i], file);
    }
    fputc('\n', file);
    for (size_t i = 0; i < sizeof standard / sizeof standard[0]; i++) {
        struct sl_cli_option option = standard[i];
        option.target = (void *)&none;
        print_option(cli, &option, file);
    }
}

void sl_cli_help_print_table(const struct sl_cli *cli, FILE *file)
{
    for (uint32_t i = 0; i < cli->option_count; i++) {
        const struct sl_cli_option *option = &cli->options[i];
        char standard[160], accepted[256], variable[SL_CLI_NAME_BYTES];
        if (option->kind == SL_CLI_SECTION) {
            fprintf(file, "%s\n", option->name != NULL ? option->name : option->help);
            continue;
        }
        write_default(option, standard, sizeof standard);
        sl_cli_option_accepted(option, accepted, sizeof accepted);
        sl_cli_option_variable(option, cli->file != NULL, variable);
        fprintf(file, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", option->name != NULL ? option->name : "",
                variable, option->aliases != NULL ? option->aliases : "", metavar_of(option),
                standard, accepted, option->help != NULL ? option->help : "");
    }
}
