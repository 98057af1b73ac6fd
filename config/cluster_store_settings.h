/* Settings of the cluster store, which elects the coordinator's leader and keeps its records: a
 * flag of starling-ps, starling-worker and starling-launch, or a variable. Before start. */
#ifndef SL_CONFIG_CLUSTER_STORE_SETTINGS_H
#define SL_CONFIG_CLUSTER_STORE_SETTINGS_H

#include <stdbool.h>

#include "config/cli.h"
#include "core/etcd_url.h"

struct sl_cluster_store_settings {
    bool is_given;
    struct sl_etcd_url etcd;       /* with a prefix */
    char user[128], password[128]; /* "": none */
};

/* Parses the URL, as given (not given: no cluster store). user_file:
 * STARLING_CLUSTER_STORE_USER_FILE, whose first line is "user:password"; NULL: none. The file must
 * be private. reason: the flag or variable and what is accepted. Errors: INVALID, NOT_FOUND, IO. */
int sl_cluster_store_settings_read(const struct sl_cli_given *url, const char *user_file,
                                   struct sl_cluster_store_settings *out, struct sl_reason *reason);

#endif
