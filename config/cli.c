#include "config/cli.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "config/cli_help.h"
#include "config/cli_option.h"
#include "config/cli_values.h"
#include "config/config_file.h"
#include "config/number.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define SUGGESTION_BYTES_MIN 3 /* shorter names resemble many flags */

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

static const char *dashes_of(const struct sl_cli *cli)
{
    return cli->dashes == NULL ? "--" : cli->dashes;
}

static const char *see_help(const struct sl_cli *cli)
{
    return cli->dashes == NULL ? " (see --help)" : "";
}

static const struct sl_cli_option *cli_find_named(const struct sl_cli *cli, const char *name)
{
    for (uint32_t i = 0; i < cli->option_count; i++) {
        if (sl_cli_option_is_named(&cli->options[i], name)) {
            return &cli->options[i];
        }
    }
    return NULL;
}

/* Finds the option of "--name" or "--name=value". *value: the part after =, or NULL. */
static const struct sl_cli_option *cli_find(const struct sl_cli *cli, const char *argument,
                                            const char **value)
{
    char name[SL_CLI_NAME_BYTES];
    const size_t dashes = strlen(dashes_of(cli));
    const size_t length = strcspn(argument, "=");
    if (strncmp(argument, dashes_of(cli), dashes) != 0 || length - dashes >= sizeof name) {
        return NULL;
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)(length - dashes), argument + dashes);
    *value = argument[length] == '=' ? argument + length + 1 : NULL;
    return cli_find_named(cli, name);
}

/* Levenshtein distance, with one row of the matrix. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[SL_CLI_NAME_BYTES + 1];
    sl_assert(b_length <= SL_CLI_NAME_BYTES);
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
    for (uint32_t i = 0; i < cli->option_count && length <= SL_CLI_NAME_BYTES; i++) {
        const struct sl_cli_option *option = &cli->options[i];
        const size_t option_length = sl_cli_option_has_flag(option) ? strlen(option->name) : 0;
        if (option_length == 0 || option_length > SL_CLI_NAME_BYTES) {
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
    char bare[SL_CLI_NAME_BYTES], place[160];
    (void)snprintf(bare, sizeof bare, "%.*s", (int)length, name);
    if (dashes == 2 && cli->file != NULL && cli->file->place_of != NULL &&
        cli->file->place_of(cli->file->programs, bare, place, sizeof place)) {
        sl_reason_set(parser->reason, "%.*s %s", (int)(dashes + length), argument, place);
    } else if (dashes == 1 && closest == NULL) {
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
        cli_find(parser->cli, parser->argv[parser->next], &ignored) != NULL) {
        return NULL;
    }
    return parser->argv[parser->next++];
}

static bool in_range(const struct sl_cli_option *option, double value)
{
    return (option->least == 0 && option->most == 0) ||
           (value >= option->least && value <= option->most);
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
    for (int i = 0; sl_cli_option_choice(option->choices, i, choice, sizeof choice); i++) {
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

static int append(const struct parser *parser, struct sl_cli_list *list, const char *value)
{
    const char **items = realloc(list->items, ((size_t)list->count + 1) * sizeof *items);
    if (items == NULL) {
        return sl_reason_fail(parser->reason, SL_ERR_NO_MEMORY, "out of memory for %u values",
                              list->count);
    }
    list->items = items;
    list->items[list->count] = value;
    list->count++;
    return 0;
}

/* Takes one value and records its source. */
static int cli_take(const struct parser *parser, const struct sl_cli_option *option,
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
    sl_cli_option_accepted(option, accepted, sizeof accepted);
    return sl_reason_fail(parser->reason, SL_ERR_INVALID, "%s=%.120s: accepts %s", given.source,
                          given.text, accepted);
}

static int parse_argument(struct parser *parser, const char *argument)
{
    struct sl_cli_given given = {.from = SL_CLI_FROM_FLAG};
    const struct sl_cli_option *option = cli_find(parser->cli, argument, &given.text);
    if (option == NULL) {
        return refuse_unknown(parser, argument);
    }
    const bool spelt_with_equals = given.text != NULL;
    (void)snprintf(given.source, sizeof given.source, "%.*s", (int)strcspn(argument, "="),
                   argument);
    if (given.text == NULL) {
        given.text = option->kind == SL_CLI_BOOL ? "true" : take_value(parser);
    }
    if (given.text == NULL) {
        return sl_reason_fail(parser->reason, SL_ERR_INVALID, "%s needs a value%s", given.source,
                              see_help(parser->cli));
    }
    int err = cli_take(parser, option, given);
    /* A list takes values up to the next argument that looks like a flag; after "--name=" one. */
    while (err == 0 && option->kind == SL_CLI_STRINGS && !spelt_with_equals &&
           parser->next < parser->argc && strncmp(parser->argv[parser->next], "--", 2) != 0) {
        given.text = parser->argv[parser->next++];
        err = cli_take(parser, option, given);
    }
    return err;
}

/* Whether two texts mean the same; the target has the value of the second one, `earlier` the first
 * one of a number or boolean. */
static bool agrees(const struct sl_cli_option *option, const char *text, const char *other,
                   uint32_t earlier)
{
    return option->kind == SL_CLI_U32    ? *(uint32_t *)option->target == earlier
           : option->kind == SL_CLI_BOOL ? *(bool *)option->target == earlier
                                         : strcmp(text, other) == 0;
}

const char *sl_cli_variable(const char *const *variables, const char *name)
{
    const size_t length = strlen(name);
    const char *value = NULL;
    for (; variables != NULL && *variables != NULL; variables++) {
        if (strncmp(*variables, name, length) == 0 && (*variables)[length] == '=') {
            value = *variables + length + 1;
        }
    }
    return value != NULL ? value : getenv(name);
}

/* Reads one of the option's variables, which must agree with those before. */
static int parse_variable(const struct parser *parser, const struct sl_cli_option *option,
                          const char *name, bool inverts)
{
    struct sl_cli_given *given = &parser->given[option - parser->cli->options];
    struct sl_cli_given taken = {.from = SL_CLI_FROM_VARIABLE,
                                 .text = sl_cli_variable(parser->cli->variables, name)};
    if (taken.text == NULL || (taken.text[0] == '\0' && !option->refuses_empty)) {
        return 0;
    }
    const struct sl_cli_given before = *given;
    const bool is_first = before.from == SL_CLI_FROM_DEFAULT;
    const uint32_t earlier = option->kind == SL_CLI_U32    ? *(uint32_t *)option->target
                             : option->kind == SL_CLI_BOOL ? *(bool *)option->target
                                                           : 0;
    (void)snprintf(taken.source, sizeof taken.source, "%s", name);
    sl_assert(!inverts || option->kind == SL_CLI_BOOL);
    if (!is_first && option->kind == SL_CLI_STRINGS) {
        return 0; /* no list has older names */
    }
    int err = cli_take(parser, option, taken);
    if (err == 0 && inverts) {
        *(bool *)option->target = !*(bool *)option->target;
    }
    if (err == 0 && !is_first && !agrees(option, before.text, taken.text, earlier)) {
        err = sl_reason_fail(parser->reason, SL_ERR_INVALID,
                             "%s is %.80s, but %s is %.80s; they must agree", before.source,
                             before.text, name, taken.text);
    }
    if (err == 0 && !is_first) {
        *given = before;
    }
    return err;
}

/* Reads the variables of a flag that is not given. Flags and keys have older names in lower case.
 */
static int parse_variables(const struct parser *parser, const struct sl_cli_option *option)
{
    char name[SL_CLI_NAME_BYTES];
    bool inverts;
    sl_cli_option_variable(option, parser->cli->file != NULL, name);
    int err = name[0] == '\0' ? 0 : parse_variable(parser, option, name, false);
    for (const char *at = option->aliases; err == 0 && sl_cli_option_alias(&at, name, &inverts);) {
        err = islower((unsigned char)name[0]) ? 0 : parse_variable(parser, option, name, inverts);
    }
    return err;
}

/* Refuses a text of sl_cli.variables that sets no variable. */
static int check_variables(const struct parser *parser)
{
    const char *const *at = parser->cli->variables;
    for (; at != NULL && *at != NULL; at++) {
        if (strchr(*at, '=') == NULL || **at == '=') {
            return sl_reason_fail(parser->reason, SL_ERR_INVALID,
                                  "variable \"%.80s\": accepts NAME=VALUE", *at);
        }
    }
    return 0;
}

/* Refuses a key of the file that no program has, or a flag that is no key. */
static int refuse_key(const struct parser *parser, const struct sl_config_entry *entry,
                      bool is_flag)
{
    if (is_flag) {
        return sl_reason_fail(parser->reason, SL_ERR_INVALID, "%s:%u: %s is a flag, and no key",
                              parser->cli->file->path[0], entry->line, entry->key);
    }
    const size_t length = strlen(entry->key);
    const struct sl_cli_option *closest =
        length < SUGGESTION_BYTES_MIN ? NULL : nearest(parser->cli, entry->key, length);
    return sl_reason_fail(parser->reason, SL_ERR_INVALID,
                          "%s:%u: unknown key %.80s in [%s]%s%s%s (see %s --help)",
                          parser->cli->file->path[0], entry->line, entry->key, entry->section,
                          closest != NULL ? "; did you mean " : "",
                          closest != NULL ? closest->name : "", closest != NULL ? "?" : "",
                          parser->cli->program != NULL ? parser->cli->program : "the program's");
}

/* Refuses a wrong value of an entry, though its option has one of higher precedence, and keeps
 * that. */
static int check_entry(const struct parser *parser, const struct sl_cli_option *option,
                       struct sl_cli_given given)
{
    struct sl_cli_given *kept = &parser->given[option - parser->cli->options];
    const struct sl_cli_given before = *kept;
    if (option->kind == SL_CLI_STRINGS) {
        return 0; /* accepts any text */
    }
    const bool was_true = option->kind == SL_CLI_BOOL && *(bool *)option->target;
    const int err = cli_take(parser, option, given);
    *kept = before;
    if (option->kind == SL_CLI_BOOL) {
        *(bool *)option->target = was_true; /* its variable may invert */
    } else {
        (void)parse_value(option, before.text);
    }
    return err;
}

/* Takes an entry, unless its option has a value of higher precedence. */
static int take_entry(const struct parser *parser, const struct sl_config_entry *entry)
{
    const struct sl_cli_file *file = parser->cli->file;
    const struct sl_cli_option *option = cli_find_named(parser->cli, entry->key);
    const uint32_t programs = file->programs_of(entry->key);
    const bool is_shared = (programs & file->programs) != 0;
    const bool is_own = strcmp(entry->section, file->sections[0]) == 0;
    /* A program with the library does not know the own keys of starling-worker. */
    const bool is_known = is_own ? is_shared || parser->cli->dashes != NULL
                                 : strcmp(entry->section, "all") != 0 || programs != 0;
    if (option == NULL ? !is_known : option->no_key) {
        return refuse_key(parser, entry, option != NULL);
    }
    if (option == NULL || (!is_own && !is_shared)) {
        return 0; /* a key of other programs */
    }
    struct sl_cli_given given = {
        .from = SL_CLI_FROM_FILE, .text = entry->value, .section = entry->section};
    const struct sl_cli_given *before = &parser->given[option - parser->cli->options];
    (void)snprintf(given.source, sizeof given.source, "%.200s:%u: %s", *file->path, entry->line,
                   entry->key);
    if (entry->continues && option->kind != SL_CLI_STRINGS) {
        return sl_reason_fail(parser->reason, SL_ERR_INVALID,
                              "%.200s:%u: %s takes one value and is no list, but the line is "
                              "indented: begin a key in the first column",
                              *file->path, entry->line, entry->key);
    }
    const bool is_again = before->from == SL_CLI_FROM_FILE && before->section == entry->section;
    if (is_again && !entry->continues) {
        return sl_reason_fail(parser->reason, SL_ERR_INVALID,
                              "%s: another name of this option is at %s: accepts one of them",
                              given.source, before->source);
    }
    if (before->from == SL_CLI_FROM_DEFAULT || is_again) {
        return cli_take(parser, option, given);
    }
    return check_entry(parser, option, given);
}

static bool has_commas(const void *ctx, const char *key)
{
    const struct sl_cli_option *option = cli_find_named(ctx, key);
    return option != NULL && sl_cli_option_has_commas(option);
}

static int parse_file(const struct parser *parser)
{
    const struct sl_cli_file *file = parser->cli->file;
    if (file == NULL || *file->path == NULL) {
        return 0;
    }
    int err = sl_config_file_read(*file->path, file->file, parser->reason);
    if (err == 0 && sl_config_file_join(file->file, has_commas, parser->cli) != 0) {
        err = sl_reason_fail(parser->reason, SL_ERR_NO_MEMORY, "out of memory for %s", *file->path);
    }
    for (const char *const *section = file->sections; err == 0 && *section != NULL; section++) {
        for (uint32_t i = 0; err == 0 && i < file->file->count; i++) {
            const struct sl_config_entry *entry = &file->file->entries[i];
            err = strcmp(entry->section, *section) == 0 ? take_entry(parser, entry) : 0;
        }
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
        if (strcmp(argv[i], "--help=table") == 0) {
            sl_cli_help_print_table(cli, stdout);
            return true;
        }
        if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-V") == 0) {
            printf("%s %s\n", cli->program, STARLING_VERSION);
            return true;
        }
    }
    return false;
}

/* A standard stream that the caller closed becomes /dev/null: else the next file or socket gets its
 * number, and receives the output. */
static void open_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)open("/dev/null", O_RDWR); /* takes the lowest free number, which is fd */
        }
    }
}

#define WRITE_ERROR "cannot write to the standard output"

static bool flush_output(void)
{
    return fflush(stdout) == 0 && !ferror(stdout);
}

/* Takes the arguments before the first flag. */
static int take_words(struct parser *parser)
{
    struct sl_cli_words *words = parser->cli->words;
    words->items = parser->argv + parser->next;
    words->count = 0;
    while (parser->next < parser->argc && parser->argv[parser->next][0] != '-') {
        parser->next++;
        words->count++;
    }
    if (words->count > words->most) {
        return sl_reason_fail(parser->reason, SL_ERR_INVALID, "unexpected argument \"%.120s\"",
                              words->items[words->most]);
    }
    return words->count >= words->least
               ? 0
               : sl_reason_fail(parser->reason, SL_ERR_INVALID, "%s",
                                words->missing != NULL ? words->missing : "an argument is missing");
}

int sl_cli_exit(const struct sl_cli *cli, int result, const struct sl_reason *reason)
{
    if (result == SL_CLI_EXIT_OK) {
        return EXIT_SUCCESS;
    }
    (void)fprintf(stderr, "%s: %s\n", cli->program, reason->text);
    if (cli->words != NULL) {
        (void)fprintf(stderr, "usage: %s %s\n", cli->program, cli->usage);
    }
    return SL_CLI_EXIT_USAGE;
}

int sl_cli_end(const struct sl_cli *cli, int err, const struct sl_reason *reason)
{
    if (flush_output() && err == 0) {
        return EXIT_SUCCESS;
    }
    (void)fprintf(stderr, "%s: %s\n", cli->program, err != 0 ? reason->text : WRITE_ERROR);
    return EXIT_FAILURE;
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
    if (argc > 0 && cli->dashes == NULL) { /* else this is a library in somebody's process */
        open_standard_streams();
    }
    if (cli->dashes == NULL && print_and_exit(cli, argc, argv)) {
        return flush_output() ? SL_CLI_EXIT_OK : sl_reason_fail(reason, SL_ERR_IO, WRITE_ERROR);
    }
    memset(parser.given, 0, cli->option_count * sizeof *parser.given);
    int err = check_variables(&parser);
    for (uint32_t i = 0; i < cli->option_count; i++) {
        const struct sl_cli_option *option = &cli->options[i];
        const bool is_valid = option->preset == NULL || parse_value(option, option->preset);
        sl_assert(is_valid);
    }
    if (err == 0 && cli->words != NULL) {
        err = take_words(&parser);
    }
    while (err == 0 && parser.next < argc) {
        const char *argument = argv[parser.next++];
        err = parse_argument(&parser, argument);
    }
    for (uint32_t i = 0; err == 0 && i < cli->option_count; i++) {
        if (parser.given[i].from == SL_CLI_FROM_DEFAULT) {
            err = parse_variables(&parser, &cli->options[i]);
        }
    }
    err = err != 0 ? err : parse_file(&parser);
    const bool shows =
        err == 0 && cli->file != NULL && cli->file->shows != NULL && *cli->file->shows;
    if (shows) {
        sl_cli_values_print(cli, parser.given, stdout);
    }
    for (uint32_t i = 0; (err != 0 || shows) && i < cli->option_count; i++) {
        if (cli->options[i].kind == SL_CLI_STRINGS) {
            sl_cli_list_fini(cli->options[i].target);
        }
    }
    if (shows) {
        err = flush_output() ? SL_CLI_EXIT_OK : sl_reason_fail(reason, SL_ERR_IO, WRITE_ERROR);
    }
    return err;
}
