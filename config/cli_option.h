/* The names of an option, and what it accepts. Before start. */
#ifndef SL_CONFIG_CLI_OPTION_H
#define SL_CONFIG_CLI_OPTION_H

#include "config/cli.h"

/* Returns whether the option is a flag: headings, and options of a variable only, are none. */
bool sl_cli_option_has_flag(const struct sl_cli_option *option);

/* Returns whether `name` is the name of the flag, or an older one. */
bool sl_cli_option_is_named(const struct sl_cli_option *option, const char *name);

/* Writes the variable; "": none. derives: it follows from the name, unless the option has one. */
void sl_cli_option_variable(const struct sl_cli_option *option, bool derives,
                            char name[SL_CLI_NAME_BYTES]);

/* Steps through the older names; *at: option->aliases at first. Writes the next name; *inverts: it
 * began with !. Returns false at the end. */
bool sl_cli_option_alias(const char **at, char name[SL_CLI_NAME_BYTES], bool *inverts);

/* Returns whether the value is a list with commas, as its metavar says: "HOST:PORT,...". */
bool sl_cli_option_has_commas(const struct sl_cli_option *option);

/* Writes what the option accepts: "a whole number from 1 to 256". */
void sl_cli_option_accepted(const struct sl_cli_option *option, char *text, size_t text_bytes);

/* Copies the index-th choice of "a|b|c" into text; false: there are fewer. */
bool sl_cli_option_choice(const char *choices, int index, char *text, size_t text_bytes);

#endif
