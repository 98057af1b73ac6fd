/* Client options from flags and the environment: sl_client_options_from_env of starling.h, which
 * libstarling_kv uses too. The options own the settings that they point into. Any thread; before
 * start. */
#ifndef SL_CONFIG_CLIENT_OPTIONS_H
#define SL_CONFIG_CLIENT_OPTIONS_H

#include "config/settings.h"

/* As sl_client_options_from_env, with the reason. variables: as in struct sl_cli; they must live as
 * long as the options. */
int sl_client_options_read(struct sl_client_options *options, const char *const *variables,
                           int *argc, char **argv, struct sl_reason *reason);

/* Returns the settings of options that were read. They live as long as the options. */
const struct sl_settings *sl_client_options_settings(const struct sl_client_options *options);

#endif
