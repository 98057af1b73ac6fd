#include "config/cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/cli_help.h"
#include "config/number.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define SUGGESTION_BYTES_MIN 3 /* shorter names resemble many flags */

#define NAME_BYTES_MAX       64 /* longer than any flag */

struct parser {
    const struct sl_cli *cli;
    int argc;
    char **argv;
    int next; /* index of the next argument */
    struct sl_cli_given *given;
    struct sl_reason *reason;
};

void sl_cli_list_fini(struct sl_cli_list *list)
{
    free(list->items);
    *list = (struct sl_cli_list){0};
}

/* Headings and options of a variable only are no flags. */
static bool has_name(const struct sl_cli_option *option)
{
    return option->kind != SL_CLI_SECTION && option->name != NULL;
}

static const char *dashes_of(const struct sl_cli *cli)
{
    return cli->dashes == NULL ? "--" : cli->dashes;
}

static const char *see_help(const struct sl_cli *cli)
{
    return cli->dashes == NULL ? " (see --help)" : "";
}

/* Finds the option of "--name" or "--name=value". *value: the part after =, or NULL. */
static const struct sl_cli_option *find(const struct sl_cli *cli, const char *argument,
                                        const char **value)
{
    const size_t dashes = strlen(dashes_of(cli));
    if (strncmp(argument, dashes_of(cli), dashes) != 0) {
        return NULL;
    }
    const char *name = argument + dashes;
    const size_t length = strcspn(name, "=");
    for (uint32_t i = 0; i < cli->option_count; i++) {
        const struct sl_cli_option *option = &cli->options[i];
        if (has_name(option) && strlen(option->name) == length &&
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
        const size_t option_length = has_name(option) ? strlen(option->name) : 0;
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
    const struct sl_cli *cli = parser->cli;
    const size_t dashes = cli->dashes == NULL ? strspn(argument, "-") : strlen(cli->dashes);
    const char *name = argument + dashes;
    const size_t length = strcspn(name, "=");
    const struct sl_cli_option *closest =
        length < SUGGESTION_BYTES_MIN ? NULL : nearest(parser->cli, name, length);
    if (dashes == 1 && closest == NULL) {
        sl_reason_set(parser->reason,
                      "unknown flag %.80s: flags begin with two dashes (see --help)", argument);
    } else if (dashes == 0) {
        sl_reason_set(parser->reason,
                      "unexpected argument \"%.120s\": only flags are accepted (see --help)",
                      argument);
    } else if (closest != NULL) {
        sl_reason_set(parser->reason, "unknown flag %.*s; did you mean %s%s?%s",
                      (int)(dashes + length), argument, dashes_of(cli), closest->name,
                      see_help(cli));
    } else {
        sl_reason_set(parser->reason, "unknown flag %.80s%s", argument, see_help(cli));
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

static bool has_range(const struct sl_cli_option *option)
{
    return option->least != 0 || option->most != 0;
}

static bool in_range(const struct sl_cli_option *option, double value)
{
    return !has_range(option) || (value >= option->least && value <= option->most);
}

/* Writes "a duration from 100ms to 1h, such as 500ms, 2s or 10m; without a unit: seconds". */
static void write_duration_range(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    char least[SL_NUMBER_DURATION_BYTES], most[SL_NUMBER_DURATION_BYTES];
    sl_number_format_duration((uint64_t)(option->least * (double)SL_CLOCK_NS_PER_S), least);
    sl_number_format_duration((uint64_t)(option->most * (double)SL_CLOCK_NS_PER_S), most);
    (void)snprintf(text, text_bytes,
                   "a duration from %s to %s, such as 500ms, 2s or 10m; without a unit: seconds",
                   least, most);
}

/* Writes what the option accepts. */
static void write_accepted(const struct sl_cli_option *option, char *text, size_t text_bytes)
{
    const bool is_real = option->kind == SL_CLI_F32 || option->kind == SL_CLI_F64;
    switch (option->kind) {
    case SL_CLI_BOOL:
        (void)snprintf(text, text_bytes, "0, 1, true or false%s",
                       option->name == NULL ? "" : ", or no value at all");
        return;
    case SL_CLI_CHOICE:
        (void)snprintf(text, text_bytes, "%s", option->choices);
        return;
    case SL_CLI_SIZE:
        (void)snprintf(text, text_bytes, "a number of bytes, such as 500M or 64G");
        return;
    case SL_CLI_LOG:
        (void)snprintf(text, text_bytes, "debug, info, warn, error or off");
        return;
    case SL_CLI_PARSED:
        (void)snprintf(text, text_bytes, "%s", option->accepts);
        return;
    case SL_CLI_DURATION:
        write_duration_range(option, text, text_bytes);
        return;
    default:
        break;
    }
    const int used = snprintf(text, text_bytes, is_real ? "a number" : "a whole number");
    if (has_range(option)) {
        (void)snprintf(text + used, text_bytes - (size_t)used,
                       is_real ? " from %g to %g" : " from %.0f to %.0f", option->least,
                       option->most);
    } else if (!is_real && option->kind != SL_CLI_I64) {
        (void)snprintf(text + used, text_bytes - (size_t)used, " from 0");
    }
}

/* strtoull and the like skip blanks and accept signs and hexadecimal: allow only these bytes. */
static bool is_spelt_with(const char *text, const char *accepted)
{
    return text[0] != '\0' && text[strspn(text, accepted)] == '\0';
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

static bool parse_real(const struct sl_cli_option *option, const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return is_spelt_with(text, "0123456789+-.eE") && end != text && *end == '\0' &&
           isfinite(*out) && in_range(option, *out);
}

static bool parse_unsigned(const struct sl_cli_option *option, const char *text)
{
    uint64_t value;
    const bool is_u32 = option->kind == SL_CLI_U32;
    if (!sl_number_parse_u64(text, 0, is_u32 ? UINT32_MAX : UINT64_MAX, &value) ||
        !in_range(option, (double)value)) {
        return false;
    }
    if (is_u32) {
        *(uint32_t *)option->target = (uint32_t)value;
    } else {
        *(uint64_t *)option->target = value;
    }
    return true;
}

static bool parse_choice(const struct sl_cli_option *option, const char *text)
{
    char choice[64];
    for (int i = 0; sl_cli_help_choice(option->choices, i, choice, sizeof choice); i++) {
        if (strcasecmp(choice, text) == 0) {
            *(int *)option->target = i;
            return true;
        }
    }
    return false;
}

/* Writes the value of one text to the target; not for STRINGS. */
static bool parse_value(const struct sl_cli_option *option, const char *text)
{
    uint64_t ns;
    double real;
    switch (option->kind) {
    case SL_CLI_BOOL:
        return sl_number_parse_bool(text, option->target);
    case SL_CLI_STRING:
        *(const char **)option->target = text;
        return true;
    case SL_CLI_U32:
    case SL_CLI_U64:
        return parse_unsigned(option, text);
    case SL_CLI_I64:
        return parse_i64(option, text);
    case SL_CLI_F32:
        if (parse_real(option, text, &real)) {
            *(float *)option->target = (float)real;
            return true;
        }
        return false;
    case SL_CLI_F64:
        if (parse_real(option, text, &real)) {
            *(double *)option->target = real;
            return true;
        }
        return false;
    case SL_CLI_DURATION:
        if (sl_number_parse_duration(text, &ns) &&
            in_range(option, (double)ns / (double)SL_CLOCK_NS_PER_S)) {
            *(uint64_t *)option->target = ns;
            return true;
        }
        return false;
    case SL_CLI_CHOICE:
        return parse_choice(option, text);
    case SL_CLI_SIZE:
        return sl_number_parse_size(text, option->target);
    case SL_CLI_LOG:
        return sl_log_parse_level(text, option->target);
    case SL_CLI_PARSED:
        return option->parse(text, option->target);
    case SL_CLI_STRINGS:
    case SL_CLI_SECTION:
        break;
    }
    return false;
}

/* The first append allocates room for all arguments, more than any list needs. */
static int append(const struct parser *parser, struct sl_cli_list *list, const char *value)
{
    if (list->items == NULL) {
        list->items = malloc(((size_t)parser->argc + 1) * sizeof *list->items);
        if (list->items == NULL) {
            return sl_reason_fail(parser->reason, SL_ERR_NO_MEMORY,
                                  "out of memory for %d arguments", parser->argc);
        }
    }
    list->items[list->count] = value;
    list->count++;
    return 0;
}

/* Takes one value and records its source. */
static int take(const struct parser *parser, const struct sl_cli_option *option,
                struct sl_cli_given given)
{
    char accepted[256];
    parser->given[option - parser->cli->options] = given;
    if (option->kind == SL_CLI_STRINGS) {
        return append(parser, option->target, given.text);
    }
    if (parse_value(option, given.text)) {
        return 0;
    }
    write_accepted(option, accepted, sizeof accepted);
    return sl_reason_fail(parser->reason, SL_ERR_INVALID, "%s%s=%.120s: accepts %s", given.dashes,
                          given.source, given.text, accepted);
}

static int parse_argument(struct parser *parser, const char *argument)
{
    struct sl_cli_given given = {.dashes = dashes_of(parser->cli)};
    const struct sl_cli_option *option = find(parser->cli, argument, &given.text);
    if (option == NULL) {
        return refuse_unknown(parser, argument);
    }
    const bool spelt_with_equals = given.text != NULL;
    given.source = option->name;
    if (given.text == NULL) {
        given.text = option->kind == SL_CLI_BOOL ? "true" : take_value(parser);
    }
    if (given.text == NULL) {
        return sl_reason_fail(parser->reason, SL_ERR_INVALID, "%s%s needs a value%s", given.dashes,
                              option->name, see_help(parser->cli));
    }
    int err = take(parser, option, given);
    /* A list takes values up to the next argument that looks like a flag; after "--name=" one. */
    while (err == 0 && option->kind == SL_CLI_STRINGS && !spelt_with_equals &&
           parser->next < parser->argc && strncmp(parser->argv[parser->next], "--", 2) != 0) {
        given.text = parser->argv[parser->next++];
        err = take(parser, option, given);
    }
    return err;
}

static const char *variable_of(const struct sl_cli_option *option, const char *name)
{
    const char *text = name == NULL ? NULL : getenv(name);
    return text != NULL && text[0] == '\0' && option->skips_empty ? NULL : text;
}

/* Reads the variable of a flag that is not given. */
static int parse_variable(const struct parser *parser, const struct sl_cli_option *option)
{
    const char *text = variable_of(option, option->variable);
    return text == NULL ? 0
                        : take(parser, option, (struct sl_cli_given){"", option->variable, text});
}

/* Reads the alias of the variable, which must agree with it. */
static int parse_alias(const struct parser *parser, const struct sl_cli_option *option)
{
    const char *text = variable_of(option, option->alias);
    struct sl_cli_given *given = &parser->given[option - parser->cli->options];
    const struct sl_cli_given before = *given;
    const bool is_u32 = option->kind == SL_CLI_U32;
    sl_assert(option->alias == NULL || is_u32 || option->kind == SL_CLI_BOOL);
    if (text == NULL) {
        return 0;
    }
    const uint32_t earlier = is_u32 ? *(uint32_t *)option->target : *(bool *)option->target;
    int err = take(parser, option, (struct sl_cli_given){"", option->alias, text});
    if (err == 0 && option->inverts) {
        *(bool *)option->target = !*(bool *)option->target;
    }
    const uint32_t value = is_u32 ? *(uint32_t *)option->target : *(bool *)option->target;
    if (err == 0 && before.source != NULL && value != earlier) {
        err = sl_reason_fail(parser->reason, SL_ERR_INVALID,
                             "%s is %.80s, but %s is %.80s; they must agree", before.source,
                             before.text, option->alias, text);
    }
    return err;
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

int sl_cli_parse(const struct sl_cli *cli, int argc, char **argv, struct sl_reason *reason)
{
    struct sl_cli_given own[SL_CLI_OPTIONS_MAX];
    struct parser parser = {.cli = cli,
                            .argc = argc,
                            .argv = argv,
                            .next = 1,
                            .given = cli->given != NULL ? cli->given : own,
                            .reason = reason};
    sl_assert(cli->option_count <= SL_CLI_OPTIONS_MAX);
    if (cli->dashes == NULL && print_and_exit(cli, argc, argv)) {
        return SL_CLI_EXIT_OK;
    }
    memset(parser.given, 0, cli->option_count * sizeof *parser.given);
    int err = 0;
    for (uint32_t i = 0; i < cli->option_count; i++) {
        const struct sl_cli_option *option = &cli->options[i];
        const bool is_valid = option->preset == NULL || parse_value(option, option->preset);
        sl_assert(is_valid);
    }
    while (err == 0 && parser.next < argc) {
        const char *argument = argv[parser.next++];
        err = parse_argument(&parser, argument);
    }
    for (uint32_t i = 0; err == 0 && i < cli->option_count; i++) {
        if (parser.given[i].source == NULL) {
            err = parse_variable(&parser, &cli->options[i]);
            err = err != 0 ? err : parse_alias(&parser, &cli->options[i]);
        }
    }
    for (uint32_t i = 0; err != 0 && i < cli->option_count; i++) {
        if (cli->options[i].kind == SL_CLI_STRINGS) {
            sl_cli_list_fini(cli->options[i].target);
        }
    }
    return err != 0 ? err : SL_CLI_RUN;
}
