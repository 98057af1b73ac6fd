/* SIGHUP asks a service to read again what may change while it runs: the TLS files, and the level
 * of its log lines in the configuration file. A line says what applies now and what needs a
 * restart.
 *
 * The cluster's secret is not among it: all processes must have the same one, so that one process
 * with another one would be refused by the others. */
#ifndef SL_CONFIG_RELOAD_H
#define SL_CONFIG_RELOAD_H

#include "config/settings.h"

/* Lets new connections of the process use the files: sl_tcp_tls_reload. */
typedef int sl_reload_tls_fn(const char *certificate, const char *key, const char *authority);

/* Starts the thread that handles SIGHUP, with copies of what it needs. cli: the options of
 * *settings, whose values it lists there; NULL: sl_settings_resolve has. Main thread, before other
 * threads and before sl_end_signals_*; once. Errors: IO (no thread), NO_MEMORY. */
int sl_reload_start(const struct sl_cli *cli, struct sl_settings *settings, sl_reload_tls_fn *tls,
                    struct sl_reason *reason);

#endif
