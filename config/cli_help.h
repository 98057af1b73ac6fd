/* Prints --help: the options in two columns, 100 characters wide. Before start. */
#ifndef SL_CONFIG_CLI_HELP_H
#define SL_CONFIG_CLI_HELP_H

#include <stdio.h>

#include "config/cli.h"

/* Prints the targets' values as defaults: call before parsing. */
void sl_cli_help_print(const struct sl_cli *cli, FILE *file);

/* Prints a line for each heading, and one for each option: name, variable, older names, metavar,
 * default, accepted values and help, separated by tabs. docs/options.py makes pages of it. */
void sl_cli_help_print_table(const struct sl_cli *cli, FILE *file);

#endif
