/* The shared settings, parsed as a program does. */
#ifndef SL_TESTS_UNIT_CONFIG_PARSED_H
#define SL_TESTS_UNIT_CONFIG_PARSED_H

#include "config/settings.h"

struct parsed {
    struct sl_settings settings;
    struct sl_cli cli;
    struct sl_cli_option options[SL_SETTINGS_OPTIONS_MAX];
    struct sl_cli_given given[SL_SETTINGS_OPTIONS_MAX];
    struct sl_reason reason;
};

/* Parses arguments, up to NULL, and the environment on a host of four cores. Returns as
 * sl_cli_parse; nothing is resolved. */
int parse_settings(enum sl_program program, const char *const *arguments, struct parsed *parsed);
#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NO_ARGUMENTS   ((const char *const[]){NULL})

/* Unsets every variable that the programs read. */
void clear_variables(void);

/* Fails unless the text has all of the words. */
void expect_words(const char *text, const char *const *words);
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
