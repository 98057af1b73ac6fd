#include "tests/unit/config/parsed.h"

#include <string.h>

#include "tests/support/unit.h"

int parse_settings(enum sl_program program, const char *const *arguments, struct parsed *parsed)
{
    char *argv[32] = {(char *)"starling-test"};
    int argc = 1;
    for (; *arguments != NULL; arguments++) {
        argv[argc++] = (char *)(uintptr_t)*arguments;
    }
    *parsed = (struct parsed){0};
    parsed->cli = (struct sl_cli){
        .program = "starling-test",
        .summary = "",
        .usage = "",
        .options = parsed->options,
        .option_count = sl_settings_options(program, 4, &parsed->settings, parsed->options),
        .given = parsed->given,
    };
    return sl_cli_parse(&parsed->cli, argc, argv, &parsed->reason);
}

void expect_words(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strstr(text, *words) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", *words, text);
        }
    }
}
