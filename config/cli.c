#include "config/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/cli_help.h"
#include "config/env.h"
#include "core/assert.h"

#define SUGGESTION_BYTES_MIN 3 /* shorter names resemble many flags */

#define NAME_BYTES_MAX       64 /* longer than any flag */

struct parser {
    const struct sl_cli *cli;
    int argc;
    char **argv;
    int next; /* index of the next argument */
    char *reason;
    size_t reason_bytes;
};

void sl_cli_list_fini(struct sl_cli_list *list)
{
    free(list->items);
    *list = (struct sl_cli_list){0};
}

static int refuse(const struct parser *parser, const struct sl_cli_option *option,
                  const char *value, const char *accepted)
{
    snprintf(parser->reason, parser->reason_bytes, "--%s=%.120s: accepts %s", option->name, value,
             accepted);
    return SL_ERR_INVALID;
}

/* Finds the option of "--name" or "--name=value". *value: the part after =, or NULL. */
static const struct sl_cli_option *find(const struct sl_cli *cli, const char *argument,
                                        const char **value)
{
    if (strncmp(argument, "--", 2) != 0) {
        return NULL;
    }
    const char *name = argument + 2;
    const size_t length = strcspn(name, "=");
    for (uint32_t i = 0; i < cli->option_count; i++) {
        const struct sl_cli_option *option = &cli->options[i];
        if (option->kind != SL_CLI_SECTION && strlen(option->name) == length &&
            memcmp(option->name, name, length) == 0) {
            *value = name[length] == '=' ? name + length + 1 : NULL;
            return option;
        }
    }
    return NULL;
}

/* Levenshtein distance, with one row of the matrix. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[NAME_BYTES_MAX + 1];
    sl_assert(b_length <= NAME_BYTES_MAX);
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (size_t i = 0; i < a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_length; j++) {
            const size_t replaced = diagonal + (a[i] != b[j]);
            const size_t inserted = row[j] + 1;
            const size_t removed = row[j + 1] + 1;
            diagonal = row[j + 1];
            row[j + 1] = inserted < removed ? inserted : removed;
            row[j + 1] = replaced < row[j + 1] ? replaced : row[j + 1];
        }
    }
    return row[b_length];
}

/* Returns the option with the most similar name; NULL: none is similar. */
static const struct sl_cli_option *nearest(const struct sl_cli *cli, const char *name,
                                           size_t length)
{
    const struct sl_cli_option *best = NULL;
    size_t best_distance = length / 3 + 2;
    for (uint32_t i = 0; i < cli->option_count && length <= NAME_BYTES_MAX; i++) {
        const struct sl_cli_option *option = &cli->options[i];
        const size_t option_length = option->kind == SL_CLI_SECTION ? 0 : strlen(option->name);
        if (option_length == 0 || option_length > NAME_BYTES_MAX) {
            continue;
        }
        const size_t apart = distance(name, length, option->name, option_length);
        if (apart < best_distance) {
            best = option;
            best_distance = apart;
        }
    }
    return best;
}

static int refuse_unknown(const struct parser *parser, const char *argument)
{
    const size_t dashes = strspn(argument, "-");
    const char *name = argument + dashes;
    const size_t length = strcspn(name, "=");
    const struct sl_cli_option *closest =
        length < SUGGESTION_BYTES_MIN ? NULL : nearest(parser->cli, name, length);
    if (dashes == 1 && closest == NULL) {
        snprintf(parser->reason, parser->reason_bytes,
                 "unknown flag %.80s: flags begin with two dashes (see --help)", argument);
    } else if (dashes == 0) {
        snprintf(parser->reason, parser->reason_bytes,
                 "unexpected argument \"%.120s\": only flags are accepted (see --help)", argument);
    } else if (closest != NULL) {
        snprintf(parser->reason, parser->reason_bytes,
                 "unknown flag %.*s; did you mean --%s? (see --help)", (int)(dashes + length),
                 argument, closest->name);
    } else {
        snprintf(parser->reason, parser->reason_bytes, "unknown flag %.80s (see --help)", argument);
    }
    return SL_ERR_INVALID;
}

/* Takes the next argument as a value, unless it spells a flag. */
static const char *take_value(struct parser *parser)
{
    const char *ignored;
    if (parser->next == parser->argc ||
        find(parser->cli, parser->argv[parser->next], &ignored) != NULL) {
        return NULL;
    }
    return parser->argv[parser->next++];
}

/* Writes "a whole number from 1 to 256" or similar. */
static void write_range(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    const bool bounded = option->least != 0 || option->most != 0;
    const bool whole = option->kind != SL_CLI_F64;
    snprintf(text, text_bytes, whole ? "a whole number" : "a number");
    const size_t used = strlen(text);
    if (bounded) {
        snprintf(text + used, text_bytes - used, whole ? " from %.0f to %.0f" : " from %g to %g",
                 option->least, option->most);
    } else if (option->kind == SL_CLI_U64) {
        snprintf(text + used, text_bytes - used, " from 0");
    }
}

static bool in_range(const struct sl_cli_option *option, double value)
{
    const bool bounded = option->least != 0 || option->most != 0;
    return !bounded || (value >= option->least && value <= option->most);
}

/* strtoull and the like skip blanks and accept signs and hexadecimal: allow only these bytes. */
static bool is_spelt_with(const char *text, const char *accepted)
{
    return text[0] != '\0' && text[strspn(text, accepted)] == '\0';
}

static bool parse_u64(const struct sl_cli_option *option, const char *text)
{
    uint64_t value;
    if (!sl_env_parse_u64(text, 0, UINT64_MAX, &value) || !in_range(option, (double)value)) {
        return false;
    }
    *(uint64_t *)option->target = value;
    return true;
}

static bool parse_i64(const struct sl_cli_option *option, const char *text)
{
    errno = 0;
    const int64_t value = strtoll(text, NULL, 10);
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (!is_spelt_with(digits, "0123456789") || errno != 0 || !in_range(option, (double)value)) {
        return false;
    }
    *(int64_t *)option->target = value;
    return true;
}

static bool parse_f64(const struct sl_cli_option *option, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    if (!is_spelt_with(text, "0123456789+-.eE") || end == text || *end != '\0' ||
        !isfinite(value) || !in_range(option, value)) {
        return false;
    }
    *(double *)option->target = value;
    return true;
}

static int parse_number(const struct parser *parser, const struct sl_cli_option *option,
                        const char *value)
{
    const bool accepted = option->kind == SL_CLI_U64   ? parse_u64(option, value)
                          : option->kind == SL_CLI_I64 ? parse_i64(option, value)
                                                       : parse_f64(option, value);
    if (accepted) {
        return 0;
    }
    char range[128];
    write_range(option, range, sizeof range);
    return refuse(parser, option, value, range);
}

static int parse_choice(const struct parser *parser, const struct sl_cli_option *option,
                        const char *value)
{
    char choice[64];
    for (int i = 0; sl_cli_help_choice(option->choices, i, choice, sizeof choice); i++) {
        if (strcasecmp(choice, value) == 0) {
            *(int *)option->target = i;
            return 0;
        }
    }
    return refuse(parser, option, value, option->choices);
}

static int parse_flag(const struct parser *parser, const struct sl_cli_option *option,
                      const char *value)
{
    if (value == NULL) {
        *(bool *)option->target = true;
        return 0;
    }
    if (sl_env_parse_bool(value, option->target)) {
        return 0;
    }
    return refuse(parser, option, value, "0, 1, true or false, or no value at all");
}

/* The first append allocates room for all arguments, more than any list needs. */
static int append(const struct parser *parser, struct sl_cli_list *list, const char *value)
{
    if (list->items == NULL) {
        list->items = malloc((size_t)parser->argc * sizeof *list->items);
        if (list->items == NULL) {
            snprintf(parser->reason, parser->reason_bytes, "out of memory for %d arguments",
                     parser->argc);
            return SL_ERR_NO_MEMORY;
        }
    }
    list->items[list->count] = value;
    list->count++;
    return 0;
}

/* Appends values up to the next argument that looks like a flag; after "--name=" one value only. */
static int parse_strings(struct parser *parser, const struct sl_cli_option *option,
                         const char *value, bool spelt_with_equals)
{
    int err = append(parser, option->target, value);
    while (err == 0 && !spelt_with_equals && parser->next < parser->argc &&
           strncmp(parser->argv[parser->next], "--", 2) != 0) {
        err = append(parser, option->target, parser->argv[parser->next++]);
    }
    return err;
}

static int parse_argument(struct parser *parser, const char *argument)
{
    const char *value;
    const struct sl_cli_option *option = find(parser->cli, argument, &value);
    if (option == NULL) {
        return refuse_unknown(parser, argument);
    }
    if (parser->cli->given != NULL) {
        parser->cli->given[option - parser->cli->options] = true;
    }
    if (option->kind == SL_CLI_FLAG) {
        return parse_flag(parser, option, value);
    }
    const bool spelt_with_equals = value != NULL;
    if (value == NULL) {
        value = take_value(parser);
    }
    if (value == NULL) {
        snprintf(parser->reason, parser->reason_bytes, "--%s needs a value (see --help)",
                 option->name);
        return SL_ERR_INVALID;
    }
    switch (option->kind) {
    case SL_CLI_STRING:
        *(const char **)option->target = value;
        return 0;
    case SL_CLI_STRINGS:
        return parse_strings(parser, option, value, spelt_with_equals);
    case SL_CLI_CHOICE:
        return parse_choice(parser, option, value);
    default:
        return parse_number(parser, option, value);
    }
}

/* Handles --help or --version at any position. */
static bool print_and_exit(const struct sl_cli *cli, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            sl_cli_help_print(cli, stdout);
            return true;
        }
        if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-V") == 0) {
            printf("%s %s\n", cli->program, STARLING_VERSION);
            return true;
        }
    }
    return false;
}

int sl_cli_parse(const struct sl_cli *cli, int argc, char **argv, char *reason, size_t reason_bytes)
{
    if (print_and_exit(cli, argc, argv)) {
        return SL_CLI_EXIT_OK;
    }
    struct parser parser = {.cli = cli,
                            .argc = argc,
                            .argv = argv,
                            .next = 1,
                            .reason = reason,
                            .reason_bytes = reason_bytes};
    int err = 0;
    while (err == 0 && parser.next < argc) {
        const char *argument = argv[parser.next++];
        err = parse_argument(&parser, argument);
    }
    for (uint32_t i = 0; err != 0 && i < cli->option_count; i++) {
        if (cli->options[i].kind == SL_CLI_STRINGS) {
            sl_cli_list_fini(cli->options[i].target);
        }
    }
    return err != 0 ? err : SL_CLI_RUN;
}
