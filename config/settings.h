/* The settings that several programs share: one table of options, each with its flag, environment
 * variable and key of the configuration file (cli.h), and the values that those set. A program
 * parses the options with sl_cli_parse, together with its own, and then resolves them: it reads
 * files and checks that the sources agree. starling-launch passes variables and flags of the same
 * table on. Before start.
 */
#ifndef SL_CONFIG_SETTINGS_H
#define SL_CONFIG_SETTINGS_H

#include "config/checkpoint_settings.h"
#include "config/cli.h"
#include "config/cli_values.h"
#include "config/cluster.h"
#include "config/cluster_store_settings.h"
#include "config/config_file.h"
#include "config/dmlc.h"
#include "config/dpdk_settings.h"
#include "config/http_settings.h"
#include "config/rdma_settings.h"
#include "config/security.h"
#include "core/log.h"
#include "core/reason.h"

/* A bit each: a row of the table may belong to several. */
enum sl_program {
    SL_PROGRAM_PS = 1,
    SL_PROGRAM_WORKER = 2, /* and programs of libstarling_kv, which have variables only */
    SL_PROGRAM_LAUNCH = 4,
    SL_PROGRAM_DOCTOR = 8,
    SL_PROGRAM_OBJECTS = 32, /* commands of starling-objects; among them the agent */
    /* Any program with the client library: the rows of workers, and rows of its own, with the flag
     * --starling-NAME. */
    SL_PROGRAM_CLIENT = 64,
    SL_PROGRAM_GATEWAY = 256, /* of starling-serve, as the next ones */
    SL_PROGRAM_SERVE_WORKER = 512,
    SL_PROGRAM_DEPLOY = 1024,
    SL_PROGRAM_CTL = 2048,      /* of a job, but with few options */
    SL_PROGRAM_ROLLBACK = 4096, /* of starling-serve */
};

#define SL_SETTINGS_OPTIONS_MAX 86

#define SL_SETTINGS_NO_TASK     (-3) /* the task index has no flag and no variable STARLING_... */

/* As given. Strings point into argv or the environment. */
struct sl_settings_flags {
    struct sl_cluster_flags cluster;
    const char *tf_config; /* or NULL */
    const char *cluster_store, *cluster_store_user_file;
    struct sl_security_flags security;
    struct sl_http_settings_flags http;
    struct sl_rdma_settings_flags rdma;
    struct sl_cli_list dpdk_devices;
    const char *dpdk_eal_args, *dpdk_module; /* variables, for net/dpdk */
    const char *config;                      /* path of the configuration file; or NULL */
    bool shows_config;
};

struct sl_objects_settings {
    const char *name;      /* of this process's engine; NULL: it takes no part in objects */
    const char *catalogue; /* address of its host; NULL: not given. Also of workers */
    const char *metadata;  /* where engines find each other; NULL: not given */
    const char *agent;     /* name of the agent of this host; NULL: not given. Not of servers */
    const char *directory; /* of a server; NULL: objects are in memory only */
    size_t memory_bytes, rate_bytes;
    uint32_t keep_versions;
};

enum sl_settings_log_format { SL_SETTINGS_LOG_TEXT, SL_SETTINGS_LOG_JSON };

struct sl_settings {
    struct sl_settings_flags flags;

    struct {
        uint32_t count;
        uint32_t shards; /* of the job; 0: one for each reactor */
        bool polling, pin_cores;
    } reactors;
    bool checksum;
    enum sl_log_level log_level;
    int log_format; /* enum sl_settings_log_format */

    /* Servers only. */
    size_t memory_bytes_max; /* 0: no limit */
    struct {
        uint64_t lease_ns, start_timeout_ns, drain_timeout_ns, slow_request_ns, http_linger_ns;
    } times;
    uint32_t replicas;
    const char *title; /* of the job; NULL: not given */
    bool insecure;
    struct sl_checkpoint_settings checkpoint;
    struct sl_objects_settings objects;

    char congestion_control[16]; /* of TCP, such as "cubic"; "": the system's */
    struct {
        bool uses_shm, uses_rdma; /* if possible */
        bool offers_rdma;         /* --rdma */
    } transports;

    struct {
        int32_t task; /* index, SL_CLIENT_ANY_TASK, -1: without a clock; SL_SETTINGS_NO_TASK */
        uint32_t server_count; /* 0: not given */
        int protocol;          /* enum sl_protocol */
        uint64_t heartbeat_ns; /* 0: not given */
    } client;
    struct sl_dmlc dmlc; /* as given; sl_dmlc_resolve completes it */

    struct sl_config_file file;     /* strings point into it */
    struct sl_cli_file cli_file;    /* for sl_cli.file; points into this struct */
    struct sl_option_values values; /* of all options of the program, once resolved */

    /* Resolved. */
    struct sl_cluster cluster;
    struct sl_cluster_store_settings store;
    struct sl_security security;
    struct sl_http_settings http; /* not of a client */
    struct sl_rdma_settings rdma;
    struct sl_dpdk_settings dpdk;
};

/* Zeroes *settings and writes the options of a program, which point into it, and
 * settings->cli_file. core_count: cores available to this process, for the default of reactors.
 * Returns their number. */
uint32_t sl_settings_options(enum sl_program program, uint32_t core_count,
                             struct sl_settings *settings,
                             struct sl_cli_option options[SL_SETTINGS_OPTIONS_MAX]);

/* Resolves what `cli` has parsed, with cli->given, and lists the values; `cli` may have further
 * options. Servers, workers and the doctor only; the doctor's cluster, store and security stay
 * empty. reason: the sources, their values, what is accepted. Errors: INVALID, NOT_FOUND, IO,
 * TOO_LARGE, NO_MEMORY. */
int sl_settings_resolve(enum sl_program program, const struct sl_cli *cli,
                        struct sl_settings *settings, struct sl_reason *reason);

/* Fills the options of a client that the settings of a worker determine: all but `coordinator`
 * (sl_cluster_places); of a worker also without `protocol` and `start_timeout_ms`. They point into
 * *settings. */
void sl_settings_client(const struct sl_settings *settings, struct sl_client_options *out);

/* Sets level and form of the log lines of the process, which has this name in them. */
void sl_settings_log_setup(const struct sl_settings *settings, const char *name);

/* Logs which files without a name on the command line were read: an endpoint map. */
void sl_settings_log(const struct sl_settings *settings);

/* Erases secrets and frees. */
void sl_settings_fini(struct sl_settings *settings);

/* Checks the checkpoint settings: without a directory every other one is an error. Exception: a
 * scheduler (`orders`) has no directory but starts checkpoints, and may share its environment with
 * servers. Errors: INVALID. */
int sl_settings_check_checkpoint_flags(const struct sl_cli *cli, const struct sl_settings *settings,
                                       bool orders, struct sl_reason *reason);

/* Returns the source of the value at `target`. */
const struct sl_cli_given *sl_settings_given(const struct sl_cli *cli, const void *target);

/* Returns the programs that have the flag or key as an option of this table; 0: none. */
uint32_t sl_settings_programs(const char *name);

/* Returns whether a launcher passes the environment variable on to other processes: those of this
 * table that are not of one process only, and all STARLING_... of the programs' own options. */
bool sl_settings_is_passed(const char *variable);

#endif
