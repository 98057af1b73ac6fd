/* Reads the settings of a key-value worker from the environment, like any client. */
#ifndef SL_WORKER_KV_JOIN_H
#define SL_WORKER_KV_JOIN_H

#include <starling_kv.h>

struct sl_settings;

/* Reads the variables, as in sl_kv_options, and the environment, sets up the log and fills the
 * options of a client with manual_progress. They need sl_client_options_fini. beside: those
 * of a client beside a server or scheduler, whose role and rank in the variables are not this
 * client's. Errors: INVALID, NOT_FOUND, IO, TOO_LARGE, NO_MEMORY. */
int sl_join_read(const char *const *variables, bool beside, struct sl_client_options *client);

/* Sets up the log, which belongs to the process, for the first worker or server of the process. Any
 * thread. */
void sl_join_set_up_log(const struct sl_settings *settings, const char *name);

#endif
