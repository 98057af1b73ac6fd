#include "config/cli_values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli_option.h"
#include "config/config_file.h"

static void write_number(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    int64_t value = 0;
    switch (option->kind) {
    case SL_CLI_U32:
        value = *(const uint32_t *)option->target;
        break;
    case SL_CLI_I64:
        value = *(const int64_t *)option->target;
        break;
    default:
        if ((double)*(const uint64_t *)option->target >= option->least) {
            snprintf(text, text_bytes, "%" PRIu64, *(const uint64_t *)option->target);
        }
        return;
    }
    if ((double)value >= option->least) {
        snprintf(text, text_bytes, "%" PRId64, value);
    }
}

void sl_cli_values_write(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    const char *string = NULL;
    text[0] = '\0';
    switch (option->kind) {
    case SL_CLI_BOOL:
        snprintf(text, text_bytes, "%s", *(const bool *)option->target ? "true" : "false");
        break;
    case SL_CLI_STRING:
        string = *(const char *const *)option->target;
        snprintf(text, text_bytes, "%s", string != NULL ? string : "");
        break;
    case SL_CLI_U32:
    case SL_CLI_U64:
    case SL_CLI_I64:
        write_number(option, text, text_bytes);
        break;
    case SL_CLI_F32:
        snprintf(text, text_bytes, "%.6g", (double)*(const float *)option->target);
        break;
    case SL_CLI_F64:
        snprintf(text, text_bytes, "%.6g", *(const double *)option->target);
        break;
    case SL_CLI_CHOICE:
        (void)sl_cli_option_choice(option->choices, *(const int *)option->target, text, text_bytes);
        break;
    default:
        break;
    }
}

/* Writes the items of a list in lines, each after the first one after `indent`. */
static void put_list(FILE *out, const struct sl_cli_list *list, const char *indent)
{
    for (uint32_t i = 0; i < list->count; i++) {
        fprintf(out, "%s%s%s", i > 0 ? "\n" : "", i > 0 ? indent : "", list->items[i]);
    }
}

/* Writes a text; with an indent, a list with commas that is too long for a line of a file in lines.
 */
static void put_text(FILE *out, const char *text, const char *indent)
{
    const bool is_long = indent[0] != '\0' && strlen(text) > SL_CONFIG_FILE_LINE_BYTES / 2;
    for (const char *at = text; *at != '\0'; at++) {
        if (is_long && *at == ',') {
            fprintf(out, "\n%s", indent);
        } else {
            fputc(*at, out);
        }
    }
}

/* Writes the value as it was given; without one, the default. A boolean's variable may invert. */
static void put_value(FILE *out, const struct sl_cli_option *option,
                      const struct sl_cli_given *given, const char *indent)
{
    char text[64];
    if (option->kind == SL_CLI_STRINGS) {
        put_list(out, option->target, indent);
    } else if (given->from != SL_CLI_FROM_DEFAULT && option->kind != SL_CLI_BOOL) {
        put_text(out, given->text, sl_cli_option_has_commas(option) ? indent : "");
    } else if (given->from == SL_CLI_FROM_DEFAULT && option->preset != NULL &&
               option->kind != SL_CLI_BOOL) {
        fputs(option->preset, out);
    } else {
        sl_cli_values_write(option, text, sizeof text);
        fputs(text, out);
    }
}

static void put_source(FILE *out, const struct sl_cli_given *given)
{
    switch (given->from) {
    case SL_CLI_FROM_DEFAULT:
        fputs("default", out);
        break;
    case SL_CLI_FROM_FILE:
        /* Without ": key". */
        fprintf(out, "file %.*s", (int)(strrchr(given->source, ':') - given->source),
                given->source);
        break;
    case SL_CLI_FROM_VARIABLE:
        fprintf(out, "environment %s", given->source);
        break;
    case SL_CLI_FROM_FLAG:
        fputs("flag", out);
        break;
    }
}

static const char *cli_values_name_of(const struct sl_cli_option *option)
{
    return option->name != NULL ? option->name : option->variable;
}

/* Returns the texts of a value, one behind the other, each with its NUL; NULL: no memory. */
static char *format(const struct sl_cli_option *option, const struct sl_cli_given *given)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) {
        return NULL;
    }
    fprintf(out, "%s%c", cli_values_name_of(option), '\0');
    put_value(out, option, given, "");
    fputc('\0', out);
    put_source(out, given);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

int sl_cli_values_read(const struct sl_cli *cli, struct sl_option_values *out)
{
    struct sl_option_values values = {.items = calloc(cli->option_count, sizeof *values.items)};
    *out = (struct sl_option_values){0};
    for (uint32_t i = 0; values.items != NULL && i < cli->option_count; i++) {
        if (cli->options[i].kind == SL_CLI_SECTION) {
            continue;
        }
        const char *name = format(&cli->options[i], &cli->given[i]);
        if (name == NULL) {
            sl_cli_values_fini(&values);
            return SL_ERR_NO_MEMORY;
        }
        const char *value = name + strlen(name) + 1;
        values.items[values.count++] = (struct sl_option_value){
            .name = name, .value = value, .source = value + strlen(value) + 1};
    }
    *out = values;
    return values.items == NULL ? SL_ERR_NO_MEMORY : 0;
}

void sl_cli_values_fini(struct sl_option_values *values)
{
    for (uint32_t i = 0; i < values->count; i++) {
        free((char *)(uintptr_t)values->items[i].name);
    }
    free(values->items);
    *values = (struct sl_option_values){0};
}

/* Prints the default that the help describes, if it is no value: "Default: the system's." */
static void print_described_default(const struct sl_cli_option *option, FILE *file)
{
    static const char begin[] = "Default: ";
    const char *text =
        option->preset == NULL && option->help != NULL ? strstr(option->help, begin) : NULL;
    const char *end = text == NULL ? NULL : strstr(text, ". ");
    if (text != NULL) {
        text += sizeof begin - 1;
        fprintf(file, ": %.*s", (int)(end != NULL ? end - text : (long)strlen(text) - 1), text);
    }
}

/* A default, and what is no key, are comments. */
static void print_value(const struct sl_cli_option *option, const struct sl_cli_given *given,
                        FILE *file)
{
    const bool is_set = given->from != SL_CLI_FROM_DEFAULT;
    const bool is_key = option->name != NULL && !option->no_key;
    fprintf(file, "%s%s = ", is_set && is_key ? "" : "; ", cli_values_name_of(option));
    put_value(file, option, given, is_set && is_key ? "    " : ";     ");
    fputs("  ; ", file);
    put_source(file, given);
    if (!is_set) {
        print_described_default(option, file);
    }
    fputc('\n', file);
}

void sl_cli_values_print(const struct sl_cli *cli, const struct sl_cli_given *given, FILE *file)
{
    fprintf(file, "[%s]\n", cli->file->sections[0]);
    for (uint32_t i = 0; i < cli->option_count; i++) {
        if (cli->options[i].kind == SL_CLI_SECTION) {
            fprintf(file, "\n; %s\n", cli->options[i].name);
        } else {
            print_value(&cli->options[i], &given[i], file);
        }
    }
}
