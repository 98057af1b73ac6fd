/* Parsers of settings for struct sl_cli_option: each checks the text and writes its value to the
 * target, whose type the comment gives. False: it is not accepted. Pure. */
#ifndef SL_CONFIG_SETTINGS_PARSE_H
#define SL_CONFIG_SETTINGS_PARSE_H

#include <stdbool.h>

bool sl_settings_parse_size(const char *text, void *target); /* size_t */

/* The form of the name only, since the kernel checks the name when a socket uses it. An array as of
 * sl_settings.congestion_control. */
bool sl_settings_parse_congestion_control(const char *text, void *target);

bool sl_settings_parse_task(const char *text, void *target);   /* int32_t, as sl_client_options */
bool sl_settings_parse_places(const char *text, void *target); /* text; the form only */
bool sl_settings_parse_title(const char *text, void *target);  /* text for a page or a terminal */
bool sl_settings_parse_path(const char *text, void *target);   /* text */
bool sl_settings_parse_directory(const char *text, void *target); /* text, a path */

#endif
