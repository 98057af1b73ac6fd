#include "config/cli_option.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "config/number.h"
#include "core/clock.h"
#include "core/format.h"

#define VARIABLE_PREFIX "STARLING_"

/* Headings and options of a variable only are no flags. */
bool sl_cli_option_has_flag(const struct sl_cli_option *option)
{
    return option->kind != SL_CLI_SECTION && option->name != NULL;
}

bool sl_cli_option_alias(const char **at, char name[SL_CLI_NAME_BYTES], bool *inverts)
{
    const char *word = *at == NULL ? "" : *at + strspn(*at, " ");
    const size_t length = strcspn(word, " ");
    *inverts = word[0] == '!';
    (void)snprintf(name, SL_CLI_NAME_BYTES, "%.*s", (int)length - *inverts, word + *inverts);
    *at = word + length;
    return length > 0;
}

bool sl_cli_option_is_named(const struct sl_cli_option *option, const char *name)
{
    char alias[SL_CLI_NAME_BYTES];
    bool inverts;
    if (!sl_cli_option_has_flag(option) || strcmp(option->name, name) == 0) {
        return sl_cli_option_has_flag(option);
    }
    for (const char *at = option->aliases; sl_cli_option_alias(&at, alias, &inverts);) {
        if (strcmp(alias, name) == 0) {
            return true;
        }
    }
    return false;
}

void sl_cli_option_variable(const struct sl_cli_option *option, bool derives,
                            char name[SL_CLI_NAME_BYTES])
{
    const bool is_derived = derives && option->variable == NULL && sl_cli_option_has_flag(option);
    (void)snprintf(name, SL_CLI_NAME_BYTES, "%s%s", is_derived ? VARIABLE_PREFIX : "",
                   is_derived                 ? option->name
                   : option->variable != NULL ? option->variable
                                              : "");
    for (char *at = name; is_derived && *at != '\0'; at++) {
        *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
    }
}

bool sl_cli_option_has_commas(const struct sl_cli_option *option)
{
    static const char end[] = ",...";
    const size_t length = option->metavar == NULL ? 0 : strlen(option->metavar);
    return length >= sizeof end - 1 && option->kind != SL_CLI_STRINGS &&
           strcmp(option->metavar + length - (sizeof end - 1), end) == 0;
}

bool sl_cli_option_choice(const char *choices, int index, char *text, size_t text_bytes)
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

static bool has_range(const struct sl_cli_option *option)
{
    return option->least != 0 || option->most != 0;
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

void sl_cli_option_accepted(const struct sl_cli_option *option, char *text, size_t text_bytes)
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
    case SL_CLI_STRING: /* any text */
    case SL_CLI_STRINGS:
        text[0] = '\0';
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
    (void)snprintf(text, text_bytes, is_real ? "a number" : "a whole number");
    if (has_range(option)) {
        (void)sl_format_add(text, text_bytes, " ", is_real ? "from %g to %g" : "from %.0f to %.0f",
                            option->least, option->most);
    } else if (!is_real && option->kind != SL_CLI_I64) {
        (void)sl_format_add(text, text_bytes, " ", "from 0");
    }
}
