/* The command line of a program that has options of its own beside those of settings.h, and what a
 * program of objects or serving takes from it. Before start. */
#ifndef SL_CONFIG_SETTINGS_CLI_H
#define SL_CONFIG_SETTINGS_CLI_H

#include "config/settings.h"

struct sl_settings_cli {
    struct sl_cli cli; /* for sl_cli_parse; it points into this struct */
    struct sl_cli_option options[SL_CLI_OPTIONS_MAX]; /* the program's own ones first */
    struct sl_cli_given given[SL_CLI_OPTIONS_MAX];
};

/* Fills *out. own: the program's texts and options. *settings: as sl_settings_options. A program
 * that is none of a job has no derived variable for an own option with the name of a job's. */
void sl_settings_cli_init(enum sl_program program, uint32_t core_count, const struct sl_cli *own,
                          struct sl_settings *settings, struct sl_settings_cli *out);

/* Parses and resolves, for a program without options of its own. Returns as sl_cli_parse. *settings
 * needs fini after an error too. */
int sl_settings_cli_read(enum sl_program program, uint32_t core_count, struct sl_cli cli, int argc,
                         char **argv, struct sl_settings *settings, struct sl_reason *reason);

/* Fills the options of an engine: reads the secret into settings->security, and takes the metadata.
 * They point into *settings. Errors: those of sl_security_resolve. */
struct sl_transfer_options;
int sl_settings_cli_engine(struct sl_settings *settings, struct sl_transfer_options *out,
                           struct sl_reason *reason);

#endif
