/* sl_join reads the settings of a key-value worker from the environment, like starling-worker
 * without flags. */
#ifndef SL_KV_JOIN_H
#define SL_KV_JOIN_H

#include <starling_kv.h>

#include "config/settings.h"

struct sl_join {
    struct sl_client_options client; /* points into the other members */
    struct sl_settings settings;
    char *coordinator; /* owned */
};

/* Reads the environment, sets up the log and fills `client`, with manual_progress. Logs errors:
 * INVALID, NOT_FOUND, IO, TOO_LARGE, NO_MEMORY. */
int sl_join_read(struct sl_join *join);

/* Erases the secret and frees. Allowed once the client is created. */
void sl_join_fini(struct sl_join *join);

#endif
