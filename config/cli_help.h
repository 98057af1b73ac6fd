/* What --help prints: the options in two columns, 100 wide. Before start. */
#ifndef SL_CONFIG_CLI_HELP_H
#define SL_CONFIG_CLI_HELP_H

#include <stdio.h>

#include "config/cli.h"

/* Targets must still hold their defaults, which are printed. */
void sl_cli_help_print(const struct sl_cli *cli, FILE *file);

/* The i-th choice of "a|b|c" copied into text[text_bytes]; false when there are not as many. */
bool sl_cli_help_choice(const char *choices, int index, char *text, size_t text_bytes);

#endif
