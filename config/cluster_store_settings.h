/* Settings of the metastore, which elects the coordinator's leader and keeps its records: a flag of
 * starling-ps, starling-worker and starling-launch, or a variable. Before start. */
#ifndef SL_CONFIG_CLUSTER_STORE_SETTINGS_H
#define SL_CONFIG_CLUSTER_STORE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/cli.h"
#include "core/err.h"
#include "core/limits.h"

#define SL_CLUSTER_STORE_SETTINGS_SERVERS   9
#define SL_CLUSTER_STORE_SETTINGS_VARIABLE  "STARLING_CLUSTER_STORE"
#define SL_CLUSTER_STORE_SETTINGS_USER_FILE "STARLING_CLUSTER_STORE_USER_FILE"

/* A row of a table of options (config/cli.h); `flag` is a const char *. */
#define SL_CLUSTER_STORE_SETTINGS_OPTION(flag)                                                     \
    {                                                                                              \
        .kind = SL_CLI_STRING, .name = "cluster-store", .target = &(flag),                         \
        .metavar = "etcd://HOST:PORT,.../PREFIX",                                                  \
        .help = "URL of an etcd for leader election: if the process that hosts the "               \
                "coordinator dies, another one takes over. The same URL for all "                  \
                "processes of the job; one PREFIX per job; etcds:// for TLS. Default: "            \
                "STARLING_CLUSTER_STORE; else the coordinator is on server 0, or in the "          \
                "scheduler."                                                                       \
    }

struct sl_cluster_store_settings {
    bool is_given;
    bool tls;
    uint32_t server_count;
    char servers[SL_CLUSTER_STORE_SETTINGS_SERVERS][SL_LIMIT_ENDPOINT_BYTES]; /* "host:port" */
    char prefix[128];                                                         /* "/jobs/a" */
    char user[128], password[128];                                            /* "": none */
};

/* Reads the flag (NULL: not given), else the variable. An empty variable is an error; unset it
 * instead. User and password, "user:password", are the first line of the file named by
 * STARLING_CLUSTER_STORE_USER_FILE; the file must be private. reason: the flag or variable and what
 * is accepted. Errors: INVALID, NOT_FOUND, IO. */
int sl_cluster_store_settings_read(const char *flag, struct sl_cluster_store_settings *out,
                                   char *reason, size_t reason_bytes);

#endif
