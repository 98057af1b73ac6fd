/* The values of a program's options with their sources, after sl_cli_parse: for --show-config and
 * for readers of a running process. Names of files are shown, never their contents. Before start;
 * the list may be read by any thread. */
#ifndef SL_CONFIG_CLI_VALUES_H
#define SL_CONFIG_CLI_VALUES_H

#include <stdio.h>

#include "config/cli.h"
#include "core/option_value.h"

/* Lists the values of cli->given: allocated, with their texts. Errors: NO_MEMORY; *out is then
 * empty. */
int sl_cli_values_read(const struct sl_cli *cli, struct sl_option_values *out);
void sl_cli_values_fini(struct sl_option_values *values);

/* Prints the values as a configuration file that sets them; the source is a comment. given: of
 * cli->options. */
void sl_cli_values_print(const struct sl_cli *cli, const struct sl_cli_given *given, FILE *file);

/* Writes the value of the target; "": none, or a number that is out of range and means "not given".
 * Not of PARSED and lists. */
void sl_cli_values_write(const struct sl_cli_option *option, char *text, size_t text_bytes);

#endif
