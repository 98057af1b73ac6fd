/* Prints --help: the options in two columns, 100 characters wide. Before start. */
#ifndef SL_CONFIG_CLI_HELP_H
#define SL_CONFIG_CLI_HELP_H

#include <stdio.h>

#include "config/cli.h"

/* Prints the targets' values as defaults: call before parsing. */
void sl_cli_help_print(const struct sl_cli *cli, FILE *file);

/* Copies the index-th choice of "a|b|c" into text; false: there are fewer. */
bool sl_cli_help_choice(const char *choices, int index, char *text, size_t text_bytes);

#endif
