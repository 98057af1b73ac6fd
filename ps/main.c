/* starling-ps: flags and environment -> one ps process. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli.h"
#include "config/cluster.h"
#include "config/env.h"
#include "config/security.h"
#include "core/clock.h"
#include "core/log.h"
#include "net/transport.h"
#include "ps/process.h"
#include "reactor/topology.h"

#define EXIT_USAGE   2

#define REASON_BYTES 1024

struct flags {
    struct sl_cluster_flags cluster;
    const char *memory_limit;
    uint64_t start_timeout_s;
    uint64_t drain_timeout_s;
    uint64_t lease_s;
    bool checksum;
    struct sl_security_flags security;
    bool insecure;
};

/* What the options point to, as long as the process runs. */
struct sources {
    struct sl_env env;
    struct sl_cluster cluster;
    struct sl_security security;
    struct sl_transport_tls tls;
};

/* As the command line says; before it is read, the defaults. */
static struct flags flags = {
    .cluster.task_index = -1,
    .memory_limit = "0",
    .start_timeout_s = 60,
    .drain_timeout_s = 10,
    .lease_s = 10,
};

static const struct sl_cli_option OPTIONS[] = {
    {.kind = SL_CLI_SECTION, .help = "The cluster"},
    {.kind = SL_CLI_STRING,
     .name = "ps-hosts",
     .target = &flags.cluster.ps_hosts,
     .metavar = "HOST:PORT,...",
     .help = "Control endpoints of all ps, by task index."},
    {.kind = SL_CLI_STRING,
     .name = "worker-hosts",
     .target = &flags.cluster.worker_hosts,
     .metavar = "HOST,...",
     .help = "The workers; only their number counts."},
    {.kind = SL_CLI_STRING,
     .name = "job-name",
     .target = &flags.cluster.job_name,
     .metavar = "NAME",
     .help = "This process's job: ps."},
    {.kind = SL_CLI_I64,
     .name = "task-index",
     .target = &flags.cluster.task_index,
     .metavar = "N",
     .help = "This process's index among the ps.",
     .least = 0,
     .most = SL_LIMIT_PS - 1},
    {.kind = SL_CLI_STRING,
     .name = "endpoint-map",
     .target = &flags.cluster.endpoint_map,
     .metavar = "FILE",
     .help = "Lines control_host:port=data_uri; without the flag .endpoint_map, where there is "
             "one. The cluster may also come from TF_CONFIG."},
    {.kind = SL_CLI_SECTION, .help = "This process"},
    {.kind = SL_CLI_STRING,
     .name = "memory-limit",
     .target = &flags.memory_limit,
     .metavar = "BYTES",
     .help = "Of all tables of this process, in bytes or with K, M, G or T behind the number; 0 "
             "sets no limit. Rows beyond it are refused."},
    {.kind = SL_CLI_U64,
     .name = "start-timeout",
     .target = &flags.start_timeout_s,
     .metavar = "SECONDS",
     .help = "How long to wait for the coordinator and the other ps.",
     .least = 1,
     .most = 86400},
    {.kind = SL_CLI_U64,
     .name = "drain-timeout",
     .target = &flags.drain_timeout_s,
     .metavar = "SECONDS",
     .help = "How long to wait, after SIGTERM or SIGINT, for the answers that are due.",
     .least = 1,
     .most = 3600},
    {.kind = SL_CLI_U64,
     .name = "lease",
     .target = &flags.lease_s,
     .metavar = "SECONDS",
     .help = "How long a process of the job may be silent, or without a connection, before it "
             "is lost and the others go on without it. What ps 0 says counts.",
     .least = 1,
     .most = 3600},
    {.kind = SL_CLI_FLAG,
     .name = "checksum",
     .target = &flags.checksum,
     .help = "Puts a CRC-32C on every frame that this process sends."},
    SL_SECURITY_OPTIONS(flags.security),
    {.kind = SL_CLI_FLAG,
     .name = "insecure",
     .target = &flags.insecure,
     .help = "Listens on a network without a secret: whoever reaches the endpoints may read "
             "and change the parameters."},
};

static int parse_flags(int argc, char **argv, char *reason)
{
    const struct sl_cli cli = {
        .program = "starling-ps",
        .summary = "Holds shards of the parameters and serves them to workers.",
        .usage = "[options]",
        .options = OPTIONS,
        .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    };
    return sl_cli_parse(&cli, argc, argv, reason, REASON_BYTES);
}

/* "64G" -> bytes; errors: INVALID. */
static int parse_bytes(const char *text, size_t *out, char *reason)
{
    static const char suffixes[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = 0;
    const char *suffix = *end == '\0' ? NULL : strchr(suffixes, *end);
    if (suffix != NULL) {
        shift = 10 * (unsigned)(suffix - suffixes + 1);
        end++;
    }
    bool is_number = text[0] >= '0' && text[0] <= '9' && errno == 0 && *end == '\0';
    if (!is_number || number > (SIZE_MAX >> shift)) {
        (void)snprintf(reason, REASON_BYTES,
                       "--memory-limit %s: accepts a number of bytes, such as 0, 500M or 64G",
                       text);
        return SL_ERR_INVALID;
    }
    *out = (size_t)number << shift;
    return 0;
}

/* A peer cannot connect to "any address": the cluster should name the host. */
static void warn_wildcard(const struct sl_endpoint *endpoint)
{
    if (strcmp(endpoint->host, "0.0.0.0") == 0 || strcmp(endpoint->host, "::") == 0) {
        sl_log_warn("workers are told to connect to %s: name the host where it is not theirs",
                    endpoint->host);
    }
}

static void warn_insecure(const struct sl_process_options *options)
{
    const struct sl_endpoint *endpoint =
        sl_security_is_loopback(&options->control) ? &options->data : &options->control;
    bool is_open = options->secret == NULL && options->tls == NULL;
    if (is_open && !sl_security_is_loopback(endpoint)) {
        char text[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(endpoint, text, sizeof text);
        sl_log_warn("--insecure: whoever reaches %s may read and change the parameters", text);
    }
}

static int read_sources(struct sources *sources, char *reason)
{
    int err = sl_env_read(sl_topology_core_count(), &sources->env, reason, REASON_BYTES);
    if (err == 0) {
        err = sl_cluster_resolve(SL_CLUSTER_PS, &flags.cluster, getenv("TF_CONFIG"), NULL,
                                 &sources->cluster, reason, REASON_BYTES);
    }
    if (err == 0) {
        err = sl_security_resolve(&flags.security, getenv(SL_SECURITY_SECRET_VARIABLE),
                                  &sources->security, reason, REASON_BYTES);
    }
    return err;
}

static void fill_security(struct sources *sources, struct sl_process_options *options)
{
    const struct sl_security *security = &sources->security;
    options->secret = security->secret.byte_count == 0 ? NULL : &security->secret;
    sources->tls = (struct sl_transport_tls){
        .certificate = security->certificate,
        .key = security->key,
        .authority = security->authority,
        .peer_name = security->peer_name,
    };
    options->tls = security->tls ? &sources->tls : NULL;
}

static void fill_options(struct sources *sources, struct sl_process_options *options)
{
    const struct sl_env *env = &sources->env;
    const struct sl_cluster *cluster = &sources->cluster;
    const struct sl_cluster_ps *self = &cluster->ps[cluster->task_index];
    options->task_index = cluster->task_index;
    options->ps_count = cluster->ps_count;
    options->worker_count = cluster->worker_count;
    options->coordinator = cluster->ps[0].control;
    options->control = self->control;
    options->data = self->data;
    options->reactor_count = env->ps_reactors;
    options->polling = env->ps_polling;
    options->pin = env->ps_pin;
    options->checksum = flags.checksum;
    options->lease_ns = flags.lease_s * SL_CLOCK_NS_PER_S;
    options->start_timeout_ns = flags.start_timeout_s * SL_CLOCK_NS_PER_S;
    options->drain_timeout_ns = flags.drain_timeout_s * SL_CLOCK_NS_PER_S;
    options->congestion_control =
        env->congestion_control[0] == '\0' ? NULL : env->congestion_control;
    options->shm = env->shm;
    fill_security(sources, options);
}

static int check_endpoints(const struct sources *sources, const struct sl_process_options *options,
                           char *reason)
{
    if (sl_transport_find(options->data.scheme) == NULL) {
        char text[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(&options->data, text, sizeof text);
        (void)snprintf(reason, REASON_BYTES,
                       "data endpoint %s: this build has no such transport; accepts tcp", text);
        return SL_ERR_UNSUPPORTED;
    }
    const struct sl_security *security = &sources->security;
    int err = sl_security_check_exposure(security, flags.insecure, "control", &options->control,
                                         reason, REASON_BYTES);
    if (err == 0 && options->data.scheme != SL_ENDPOINT_SHM) { /* which no other user reaches */
        err = sl_security_check_exposure(security, flags.insecure, "data", &options->data, reason,
                                         REASON_BYTES);
    }
    return err;
}

/* Fills the options from flags, environment and cluster; what they point to is in *sources, whose
 * cluster is the caller's to free. */
static int configure(struct sources *sources, struct sl_process_options *options, char *reason)
{
    int err = parse_bytes(flags.memory_limit, &options->memory_bytes_max, reason);
    if (err == 0) {
        err = read_sources(sources, reason);
    }
    if (err == 0) {
        fill_options(sources, options);
        err = check_endpoints(sources, options, reason);
    }
    return err;
}

int main(int argc, char **argv)
{
    char reason[REASON_BYTES];
    int result = parse_flags(argc, argv, reason);
    if (result == SL_CLI_EXIT_OK) {
        return EXIT_SUCCESS;
    }
    struct sources sources = {0};
    struct sl_process_options options = {0};
    if (result == SL_CLI_RUN) {
        result = configure(&sources, &options, reason);
    }
    if (result != 0) {
        (void)fprintf(stderr, "starling-ps: %s\n", reason);
        sl_cluster_fini(&sources.cluster);
        return EXIT_USAGE;
    }
    char name[32];
    (void)snprintf(name, sizeof name, "ps/%u", options.task_index);
    sl_log_setup(sources.env.log_level, name);
    if (options.reactor_count > sl_topology_core_count()) {
        sl_log_warn("NETWORK_PS_CORE_NUMBER=%u, but there are %u cores", options.reactor_count,
                    sl_topology_core_count());
    }
    warn_wildcard(&options.data);
    warn_insecure(&options);
    int status = sl_process_run(&options);
    sl_cluster_fini(&sources.cluster);
    return status;
}
