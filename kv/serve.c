/* sl_kv_serve: starling-ps as a function. Reads flags and environment and runs one server or
 * scheduler. */
#include <starling_kv.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/checkpoint_settings.h"
#include "config/cli.h"
#include "config/cluster.h"
#include "config/cluster_store_settings.h"
#include "config/dmlc.h"
#include "config/dpdk_settings.h"
#include "config/env.h"
#include "config/rdma_settings.h"
#include "config/security.h"
#include "config/size.h"
#include "core/clock.h"
#include "core/log.h"
#include "kv/serve_parts.h"
#include "net/dpdk/device_list.h"
#include "net/trace.h"
#include "net/transport.h"
#include "ps/metastore/etcd.h"
#include "ps/process/process.h"
#include "reactor/topology.h"

#define EXIT_USAGE         2

#define LEASE_DEFAULT_S    10

/* Pause between attempts to find a route to the scheduler. */
#define FIND_HOST_PAUSE_US 500000

#define REASON_BYTES       1024

/* control, data, bypass */
#define ENDPOINTS_MAX      3

struct flags {
    struct sl_cluster_flags cluster;
    const char *memory_limit;
    uint64_t start_timeout_s;
    uint64_t drain_timeout_s;
    uint64_t lease_s;
    uint64_t replicas;
    bool checksum;
    struct sl_security_flags security;
    bool insecure;
    struct sl_rdma_settings_flags rdma;
    bool offers_rdma;
    struct sl_cli_list dpdk;
    struct sl_checkpoint_settings_flags checkpoint;
    const char *store;
};

/* The process options point into this struct while the process runs. */
struct sources {
    struct sl_env env;
    struct sl_dmlc dmlc;
    struct sl_cluster cluster;
    struct sl_security security;
    struct sl_transport_tls tls;
    struct sl_rdma_settings rdma;
    struct sl_dpdk_settings dpdk;
    struct sl_checkpoint_settings checkpoint;
    struct sl_cluster_store_settings store;
    struct sl_etcd_options etcd;
    struct sl_dpdk_device_list *devices; /* if an endpoint is dpdk */
    int directory_lock;                  /* -1: none */
};

static const struct flags DEFAULTS = {
    .cluster.task_index = -1,
    .memory_limit = "0",
    .start_timeout_s = 60,
    .drain_timeout_s = 10,
};
static struct flags flags; /* from the command line */

static const struct sl_cli_option OPTIONS[] = {
    {.kind = SL_CLI_SECTION, .help = "The cluster"},
    {.kind = SL_CLI_STRING,
     .name = "ps-hosts",
     .target = &flags.cluster.ps_hosts,
     .metavar = "HOST:PORT,...",
     .help = "Control endpoints of all servers, by task index, comma-separated."},
    {.kind = SL_CLI_STRING,
     .name = "worker-hosts",
     .target = &flags.cluster.worker_hosts,
     .metavar = "HOST,...",
     .help = "Worker hosts, comma-separated. Only the count is used."},
    {.kind = SL_CLI_STRING,
     .name = "job-name",
     .target = &flags.cluster.job_name,
     .metavar = "NAME",
     .help = "This process's job: ps, or scheduler (the coordinator only; then ps-lite's "
             "variables, DMLC_PS_ROOT_URI and others, name the cluster)."},
    {.kind = SL_CLI_I64,
     .name = "task-index",
     .target = &flags.cluster.task_index,
     .metavar = "N",
     .help = "This process's index among the servers.",
     .least = 0,
     .most = SL_LIMIT_PS - 1},
    {.kind = SL_CLI_STRING,
     .name = "endpoint-map",
     .target = &flags.cluster.endpoint_map,
     .metavar = "FILE",
     .help = "File of lines control_host:port=data_uri. Default: .endpoint_map, if it exists. The "
             "cluster may also come from TF_CONFIG, or from ps-lite's variables (DMLC_ROLE and "
             "others)."},
    SL_CLUSTER_STORE_SETTINGS_OPTION(flags.store),
    {.kind = SL_CLI_SECTION, .help = "This process"},
    {.kind = SL_CLI_STRING,
     .name = "memory-limit",
     .target = &flags.memory_limit,
     .metavar = "BYTES",
     .help = "Limit for all memory of this process, in bytes or with K, M, G or T; 0: no limit. "
             "Rows beyond it are refused. A limit below the minimum is an error."},
    {.kind = SL_CLI_U64,
     .name = "start-timeout",
     .target = &flags.start_timeout_s,
     .metavar = "SECONDS",
     .help = "How long to wait for the coordinator and the other servers; a scheduler waits for "
             "all processes.",
     .least = 1,
     .most = 86400},
    {.kind = SL_CLI_U64,
     .name = "drain-timeout",
     .target = &flags.drain_timeout_s,
     .metavar = "SECONDS",
     .help = "After SIGTERM or SIGINT: how long to finish accepted requests.",
     .least = 1,
     .most = 3600},
    {.kind = SL_CLI_U64,
     .name = "lease",
     .target = &flags.lease_s,
     .metavar = "SECONDS",
     .help =
         "How long a process may send no heartbeat before it expires and the job continues without "
         "it. The coordinator's value applies. 0: PS_HEARTBEAT_TIMEOUT, or 10 if that is not set.",
     .least = 0,
     .most = 3600},
    {.kind = SL_CLI_U64,
     .name = "replicas",
     .target = &flags.replicas,
     .metavar = "N",
     .help = "Backups of each shard, 0 or 1; the same for all servers. With 1, each shard has a "
             "backup on the next server: a push is acknowledged when both have it, and the backup "
             "is promoted when the server expires.",
     .least = 0,
     .most = 1},
    {.kind = SL_CLI_FLAG,
     .name = "checksum",
     .target = &flags.checksum,
     .help = "Adds a CRC-32C to every frame that this process sends."},
    SL_SECURITY_OPTIONS(flags.security),
    {.kind = SL_CLI_FLAG,
     .name = "insecure",
     .target = &flags.insecure,
     .help = "Listens on a network without a secret: everyone who reaches the endpoints can read "
             "and change the parameters."},
    SL_RDMA_SETTINGS_OPTIONS(flags.rdma),
    {.kind = SL_CLI_FLAG,
     .name = "rdma",
     .target = &flags.offers_rdma,
     .help = "Serves over RDMA beside TCP, on the same host and a free port. An endpoint map can "
             "name the port, or leave out TCP. `starling-ps doctor` tells what is missing."},
    SL_DPDK_SETTINGS_OPTIONS(flags.dpdk),
    SL_CHECKPOINT_SETTINGS_OPTIONS(flags.checkpoint),
};

static int parse_flags(int argc, char **argv, char *reason)
{
    const struct sl_cli cli = {
        .program = "starling-ps",
        .summary = "Holds shards of the parameters and serves them to workers.",
        .usage = "[options] | doctor [options]",
        .options = OPTIONS,
        .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    };
    return sl_cli_parse(&cli, argc, argv, reason, REASON_BYTES);
}

/* Peers cannot connect to a wildcard address: the cluster should name the host. */
static void warn_wildcard(const struct sl_endpoint *endpoint)
{
    if (strcmp(endpoint->host, "0.0.0.0") == 0 || strcmp(endpoint->host, "::") == 0) {
        sl_log_warn("workers are told to connect to %s: name the host where it is not theirs",
                    endpoint->host);
    }
}

/* Lists the endpoints that other users or hosts can reach. */
static uint32_t list_endpoints(const struct sl_process_options *options,
                               const struct sl_endpoint *endpoints[ENDPOINTS_MAX])
{
    uint32_t count = 0;
    if (options->kind != SL_PROCESS_SERVER) {
        endpoints[count++] = &options->control;
    }
    bool has_data = options->kind != SL_PROCESS_SCHEDULER &&
                    options->data.scheme != SL_ENDPOINT_SHM; /* reachable by the same user only */
    if (has_data) {
        endpoints[count++] = &options->data;
    }
    if (options->has_bypass) {
        endpoints[count++] = &options->bypass;
    }
    return count;
}

static void warn_insecure(const struct sl_process_options *options)
{
    const struct sl_endpoint *endpoints[ENDPOINTS_MAX];
    uint32_t count = list_endpoints(options, endpoints);
    const struct sl_endpoint *endpoint = NULL;
    for (uint32_t i = 0; i < count && endpoint == NULL; i++) {
        endpoint = sl_security_is_loopback(endpoints[i]) ? NULL : endpoints[i];
    }
    bool is_open = options->secret == NULL && options->tls == NULL;
    if (is_open && endpoint != NULL) {
        char text[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(endpoint, text, sizeof text);
        sl_log_warn("--insecure: whoever reaches %s may read and change the parameters", text);
    }
}

/* DMLC_GROUP_SIZE: ps-lite counts servers in a process, which are shards here. */
static int read_group_size(struct sources *sources, char *reason)
{
    const struct sl_dmlc *dmlc = &sources->dmlc;
    if (!dmlc->in_use || dmlc->group_size == 0) {
        return 0;
    }
    if (getenv("NETWORK_PS_CORE_NUMBER") != NULL && sources->env.ps_reactors != dmlc->group_size) {
        (void)snprintf(reason, REASON_BYTES,
                       "NETWORK_PS_CORE_NUMBER is %u, but DMLC_GROUP_SIZE is %u; both say how many "
                       "shards this process has, and must agree",
                       sources->env.ps_reactors, dmlc->group_size);
        return SL_ERR_INVALID;
    }
    sources->env.ps_reactors = dmlc->group_size;
    return 0;
}

/* PS_HEARTBEAT_TIMEOUT is another name of --lease. */
static int read_lease(const struct sl_dmlc *dmlc, char *reason)
{
    if (dmlc->heartbeat_timeout_s == 0) {
        flags.lease_s = flags.lease_s == 0 ? LEASE_DEFAULT_S : flags.lease_s;
        return 0;
    }
    if (flags.lease_s != 0 && flags.lease_s != dmlc->heartbeat_timeout_s) {
        (void)snprintf(reason, REASON_BYTES,
                       "--lease is %" PRIu64 ", but PS_HEARTBEAT_TIMEOUT is %u; they must agree",
                       flags.lease_s, dmlc->heartbeat_timeout_s);
        return SL_ERR_INVALID;
    }
    flags.lease_s = dmlc->heartbeat_timeout_s;
    return 0;
}

static int read_sources(struct sources *sources, char *reason)
{
    int err = sl_env_read(sl_topology_core_count(), &sources->env, reason, REASON_BYTES);
    if (err == 0) {
        err = sl_dmlc_read(&sources->dmlc, reason, REASON_BYTES);
    }
    if (err == 0) {
        err = sl_rdma_settings_read(&flags.rdma, &sources->rdma, reason, REASON_BYTES);
    }
    if (err == 0) {
        err = sl_dpdk_settings_read(&flags.dpdk, &sources->dpdk, reason, REASON_BYTES);
    }
    if (err == 0) {
        err = sl_cluster_resolve(SL_CLUSTER_PS, &flags.cluster, getenv("TF_CONFIG"), &sources->dmlc,
                                 &sources->cluster, reason, REASON_BYTES);
    }
    if (err == 0) {
        err = read_group_size(sources, reason);
    }
    if (err == 0) {
        err = read_lease(&sources->dmlc, reason);
    }
    if (err == 0) {
        err = sl_cluster_store_settings_read(flags.store, &sources->store, reason, REASON_BYTES);
    }
    if (err == 0) {
        err = sl_security_resolve(&flags.security, getenv(SL_SECURITY_SECRET_VARIABLE),
                                  &sources->security, reason, REASON_BYTES);
    }
    if (err == 0) {
        err = sl_checkpoint_settings_read(&flags.checkpoint,
                                          sources->cluster.role == SL_CLUSTER_SCHEDULER,
                                          &sources->checkpoint, reason, REASON_BYTES);
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

/* Retries until the start timeout: the scheduler's name may not resolve yet when all processes
 * start together. Errors: DEADLINE, those of sl_dmlc_find_host. */
static int find_host(const struct sl_dmlc *dmlc, char host[SL_LIMIT_ENDPOINT_BYTES], char *reason)
{
    const struct sl_clock *clock = sl_clock_system();
    uint64_t until_ns = sl_clock_now_ns(clock) + flags.start_timeout_s * SL_CLOCK_NS_PER_S;
    int err = sl_dmlc_find_host(dmlc, host, reason, REASON_BYTES);
    for (uint32_t i = 0; err == SL_ERR_NOT_FOUND && sl_clock_now_ns(clock) < until_ns; i++) {
        if (i % 4 == 0) {
            sl_log_info("%s; retrying", reason);
        }
        (void)usleep(FIND_HOST_PAUSE_US);
        err = sl_dmlc_find_host(dmlc, host, reason, REASON_BYTES);
    }
    return err == SL_ERR_NOT_FOUND ? SL_ERR_DEADLINE : err;
}

static int fill_endpoints(const struct sources *sources, struct sl_process_options *options,
                          char *reason)
{
    const struct sl_cluster *cluster = &sources->cluster;
    options->coordinator = cluster->coordinator;
    if (cluster->role == SL_CLUSTER_SCHEDULER) {
        options->kind = SL_PROCESS_SCHEDULER;
        options->control = cluster->coordinator;
        return 0;
    }
    if (!cluster->has_scheduler) {
        options->kind = SL_PROCESS_PS;
        options->control = cluster->ps[cluster->task_index].control;
        options->data = cluster->ps[cluster->task_index].data;
        options->bypass = cluster->ps[cluster->task_index].bypass;
        options->has_bypass = cluster->ps[cluster->task_index].has_bypass;
        return 0;
    }
    options->kind = SL_PROCESS_SERVER;
    options->data.scheme = SL_ENDPOINT_TCP;
    options->data.port = sources->dmlc.port;
    return find_host(&sources->dmlc, options->data.host, reason);
}

static void fill_options(struct sources *sources, struct sl_process_options *options)
{
    const struct sl_env *env = &sources->env;
    const struct sl_cluster *cluster = &sources->cluster;
    options->task_index = cluster->task_index;
    options->any_task = cluster->any_task;
    options->ps_count = cluster->ps_count;
    options->worker_count = cluster->worker_count;
    options->worker_count_source = cluster->worker_count_source;
    options->reactor_count = options->kind == SL_PROCESS_SCHEDULER ? 1 : env->ps_reactors;
    options->replicas = options->kind == SL_PROCESS_SCHEDULER ? 0 : (uint32_t)flags.replicas;
    options->polling = options->kind != SL_PROCESS_SCHEDULER && env->ps_polling;
    options->pin = options->kind != SL_PROCESS_SCHEDULER && env->ps_pin;
    options->checksum = flags.checksum;
    options->lease_ns = flags.lease_s * SL_CLOCK_NS_PER_S;
    options->heartbeat_ns = sources->dmlc.heartbeat_interval_s * SL_CLOCK_NS_PER_S;
    options->start_timeout_ns = flags.start_timeout_s * SL_CLOCK_NS_PER_S;
    options->drain_timeout_ns = flags.drain_timeout_s * SL_CLOCK_NS_PER_S;
    options->congestion_control =
        env->congestion_control[0] == '\0' ? NULL : env->congestion_control;
    options->rdma_device = sources->rdma.device[0] == '\0' ? NULL : sources->rdma.device;
    options->has_rdma_gid_index = sources->rdma.has_gid_index;
    options->rdma_gid_index = sources->rdma.gid_index;
    options->shm = options->kind != SL_PROCESS_SCHEDULER && env->shm;
    const struct sl_checkpoint_settings *checkpoint = &sources->checkpoint;
    options->checkpoint = (struct sl_process_checkpoint){
        .directory = options->kind == SL_PROCESS_SCHEDULER ? NULL : checkpoint->dir,
        .every_ns = checkpoint->every_s * SL_CLOCK_NS_PER_S,
        .incrementals_max = checkpoint->incrementals_max,
        .keep = checkpoint->keep,
        .compression_level = checkpoint->compression_level,
        .restores = checkpoint->restore != SL_CHECKPOINT_RESTORE_NONE,
        .restore_number = checkpoint->number,
        .fall_back = checkpoint->fall_back,
    };
    fill_security(sources, options);
    if (sources->store.is_given) {
        sl_serve_parts_store(&sources->store, &sources->security, &sources->etcd);
        options->metastore = &sources->etcd;
        options->metastore_prefix = sources->store.prefix;
    }
}

/* Adds an RDMA or DPDK endpoint beside TCP, at the address of the device. */
static int settle_beside(const struct sources *sources, struct sl_process_options *options,
                         bool is_rdma, char *reason)
{
    const bool is_dpdk = sources->dpdk.text[0] != '\0';
    if (options->has_bypass || options->data.scheme != SL_ENDPOINT_TCP || !(is_rdma || is_dpdk)) {
        return 0;
    }
    if (is_rdma && is_dpdk) {
        (void)snprintf(reason, REASON_BYTES,
                       "RDMA and a --dpdk-device (or STARLING_DPDK_DEVICE) are both asked for: one "
                       "of them goes beside tcp");
        return SL_ERR_INVALID;
    }
    options->has_bypass = true;
    options->bypass = options->data;
    options->bypass.scheme = SL_ENDPOINT_RDMA;
    options->bypass.port = 0;
    if (is_dpdk) {
        options->bypass.scheme = SL_ENDPOINT_DPDK;
        options->bypass.port = SL_DPDK_PORT_BASE;
        memcpy(options->bypass.host, sources->dpdk.first.host, sizeof sources->dpdk.first.host);
    }
    return 0;
}

/* Warns only: many servers may share one environment, so an unused device is no error. */
static void note_unused(const struct sources *sources, const struct sl_process_options *options,
                        const char *data)
{
    const bool is_used = options->data.scheme == SL_ENDPOINT_DPDK ||
                         (options->has_bypass ? options->bypass.scheme == SL_ENDPOINT_DPDK
                                              : options->data.scheme == SL_ENDPOINT_TCP);
    if (sources->dpdk.text[0] != '\0' && !is_used) {
        sl_log_warn("--dpdk-device (or STARLING_DPDK_DEVICE) has no effect: the endpoint map says "
                    "%s, and no dpdk",
                    data);
    }
    if (flags.offers_rdma && options->has_bypass && options->bypass.scheme != SL_ENDPOINT_RDMA) {
        sl_log_warn("--rdma has no effect: the endpoint map names another transport beside %s",
                    data);
    }
}

/* Applies the flags and DMLC variables, unless the endpoint map sets the bypass endpoint. Errors:
 * INVALID. */
static int settle_bypass(const struct sources *sources, struct sl_process_options *options,
                         char *reason)
{
    if (options->kind == SL_PROCESS_SCHEDULER) {
        return 0; /* serves no data */
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&options->data, text, sizeof text);
    if (flags.offers_rdma && !sources->env.rdma) {
        sl_log_info("STARLING_RDMA=0 goes before --rdma: no RDMA beside TCP");
    }
    if (flags.offers_rdma && options->data.scheme == SL_ENDPOINT_SHM) {
        (void)snprintf(reason, REASON_BYTES,
                       "--rdma contradicts the data endpoint %s: rdma goes beside tcp only", text);
        return SL_ERR_INVALID;
    }
    note_unused(sources, options, text);
    const bool by_dmlc = options->kind == SL_PROCESS_SERVER && sources->dmlc.rdma != NULL;
    const bool is_rdma = (flags.offers_rdma || by_dmlc) && sources->env.rdma;
    int err = settle_beside(sources, options, is_rdma, reason);
    if (err != 0) {
        return err;
    }
    const bool is_bypass_rdma = options->has_bypass && options->bypass.scheme == SL_ENDPOINT_RDMA;
    options->has_bypass = options->has_bypass && (!is_bypass_rdma || sources->env.rdma);
    return sl_rdma_settings_check(&sources->rdma,
                                  (is_bypass_rdma && sources->env.rdma) ||
                                      options->data.scheme == SL_ENDPOINT_RDMA,
                                  reason, REASON_BYTES);
}

/* Creates the device list of a dpdk endpoint. If no device matches, a bypass endpoint is dropped; a
 * data endpoint is an error. Errors: INVALID, TOO_LARGE, NO_MEMORY. */
static int settle_dpdk(struct sources *sources, struct sl_process_options *options, char *reason)
{
    const bool is_bypass = options->has_bypass && options->bypass.scheme == SL_ENDPOINT_DPDK;
    const bool is_data =
        options->kind != SL_PROCESS_SCHEDULER && options->data.scheme == SL_ENDPOINT_DPDK;
    if (!is_bypass && !is_data) {
        return 0;
    }
    const struct sl_endpoint *endpoint = is_bypass ? &options->bypass : &options->data;
    char why[512], text[SL_LIMIT_ENDPOINT_BYTES];
    int err = sl_dpdk_device_list_create(sources->dpdk.text, endpoint, &sources->devices, why,
                                         sizeof why);
    sl_endpoint_format(endpoint, text, sizeof text);
    if (err != 0) {
        (void)snprintf(reason, REASON_BYTES, "data endpoint %s: %s", text, why);
        return err;
    }
    options->dpdk = sl_dpdk_device_list_options(sources->devices);
    if (sources->devices != NULL && sl_dpdk_device_list_has(sources->devices, endpoint)) {
        return 0;
    }
    (void)snprintf(reason, REASON_BYTES,
                   "data endpoint %s: no device has this address: name it by --dpdk-device "
                   "DEVICE?addr=%s, or the endpoint dpdk://DEVICE?addr=%s&port=%u",
                   text, endpoint->host, endpoint->host, endpoint->port);
    if (is_bypass) {
        sl_log_warn("%s: workers connect over the other data endpoint", reason);
        options->has_bypass = false;
        return 0;
    }
    return SL_ERR_INVALID;
}

static int check_replicas(const struct sl_process_options *options, char *reason)
{
    const char *flaw = sl_process_replica_flaw(options);
    if (flaw != NULL) {
        (void)snprintf(reason, REASON_BYTES, "--replicas 1 %s", flaw);
    }
    return flaw == NULL ? 0 : SL_ERR_INVALID;
}

static int check_endpoints(const struct sources *sources, const struct sl_process_options *options,
                           char *reason)
{
    const struct sl_endpoint *endpoints[ENDPOINTS_MAX];
    uint32_t count = list_endpoints(options, endpoints);
    int err = 0;
    for (uint32_t i = 0; i < count && err == 0; i++) {
        err = sl_security_check_exposure(&sources->security, flags.insecure,
                                         endpoints[i] == &options->control ? "control" : "data",
                                         endpoints[i], reason, REASON_BYTES);
    }
    return err;
}

static void name_log(const struct sources *sources)
{
    const struct sl_cluster *cluster = &sources->cluster;
    char name[32] = "ps";
    if (cluster->role == SL_CLUSTER_SCHEDULER) {
        (void)snprintf(name, sizeof name, "scheduler");
    } else if (!cluster->any_task) {
        (void)snprintf(name, sizeof name, "ps/%u", cluster->task_index);
    }
    sl_log_setup(sources->env.log_level, name);
    sl_trace_set(sources->dmlc.trace);
}

static void free_sources(struct sources *sources)
{
    sl_cluster_fini(&sources->cluster);
    sl_dpdk_device_list_destroy(&sources->devices);
    sl_cli_list_fini(&flags.dpdk);
    if (sources->directory_lock >= 0) {
        (void)close(sources->directory_lock);
    }
}

/* Fills the options from flags, environment and cluster. They point into *sources, which the caller
 * frees. */
static int configure(struct sources *sources, struct sl_process_options *options, char *reason)
{
    int err = sl_size_parse("--memory-limit", flags.memory_limit, &options->memory_bytes_max,
                            reason, REASON_BYTES);
    if (err == 0) {
        err = read_sources(sources, reason);
    }
    if (err == 0) {
        name_log(sources);
        err = fill_endpoints(sources, options, reason);
    }
    if (err == 0) {
        fill_options(sources, options);
        err = settle_bypass(sources, options, reason);
    }
    if (err == 0) {
        err = sl_serve_parts_check_data(options, reason, REASON_BYTES);
    }
    if (err == 0) {
        err = settle_dpdk(sources, options, reason);
    }
    if (err == 0) {
        err = check_endpoints(sources, options, reason);
    }
    if (err == 0) {
        err = sl_serve_parts_take_folder(&sources->checkpoint, options, &sources->directory_lock,
                                         reason, REASON_BYTES);
    }
    if (err == 0) {
        err = check_replicas(options, reason);
    }
    return err != 0 ? err : sl_serve_parts_check_memory(options, reason, REASON_BYTES);
}

/* Exit status of a failed start: usage errors differ from failures that a retry may pass. */
static int exit_status(int err)
{
    switch (err) {
    case SL_ERR_DEADLINE:
    case SL_ERR_IN_USE:
    case SL_ERR_NO_MEMORY:
    case SL_ERR_IO:
        return EXIT_FAILURE;
    default:
        return EXIT_USAGE;
    }
}

int sl_kv_serve(int argc, char **argv, const struct sl_kv_handler *handler)
{
    char reason[REASON_BYTES];
    flags = DEFAULTS; /* a previous call changed them */
    int result = parse_flags(argc, argv, reason);
    if (result == SL_CLI_EXIT_OK) {
        return EXIT_SUCCESS;
    }
    struct sources sources = {.directory_lock = -1};
    struct sl_process_options options = {.kv_handler = handler};
    if (result == SL_CLI_RUN) {
        result = configure(&sources, &options, reason);
    }
    if (result != 0) {
        (void)fprintf(stderr, "starling-ps: %s\n", reason);
        free_sources(&sources);
        return exit_status(result);
    }
    sl_serve_parts_warn_cores(&options);
    warn_wildcard(&options.data);
    warn_insecure(&options);
    if (handler != NULL && options.checkpoint.directory != NULL) {
        sl_log_warn("--checkpoint-dir: what the request handler keeps is not in checkpoints");
    }
    int status = sl_process_run(&options);
    free_sources(&sources);
    return status;
}
