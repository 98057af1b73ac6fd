#include "bench/transfer_options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/number.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/reason.h"

#define NAME            "transfer"
#define REASON_BYTES    512
#define MATRIX_BYTES    (1U << 20)
#define PROTOCOLS       "any|tcp|shm|rdma|dpdk"
#define ARGUMENTS_MAX   128
#define BUFFER_SIZE_MAX ((double)(1ULL << 46))

extern char **environ;

static const struct sl_bench_transfer_unit units[] = {
    {"GB", 1e9},     {"GiB", 1U << 30}, {"Gb", 1e9 / 8},   {"MB", 1e6},     {"MiB", 1U << 20},
    {"Mb", 1e6 / 8}, {"KB", 1e3},       {"KiB", 1U << 10}, {"Kb", 1e3 / 8},
};

/* The variables of Mooncake's engine that have a meaning here. */
static const char *const variables[] = {
    "MC_GID_INDEX",           "MC_SLICE_SIZE",       "MC_CUSTOM_TOPO_JSON",
    "MC_METADATA_CLUSTER_ID", "MC_TCP_BIND_ADDRESS",
};

static int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "starling-bench " NAME ": ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    return SL_ERR_INVALID;
}

/* Flags and variables for RDMA mean nothing to the other protocols, as in Mooncake. */
static bool uses_rdma(const struct sl_bench_transfer_options *options)
{
    return options->protocol == SL_BENCH_TRANSFER_ANY ||
           options->protocol == SL_BENCH_TRANSFER_RDMA;
}

/* ---- Variables ------------------------------------------------------------------------------- */

static void log_ignored(void)
{
    for (char **entry = environ; *entry != NULL; entry++) {
        const size_t length = strcspn(*entry, "=");
        bool known = strncmp(*entry, "MC_", 3) != 0;
        for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
            known = known ||
                    (strlen(variables[i]) == length && memcmp(variables[i], *entry, length) == 0);
        }
        if (!known) {
            sl_log_warn("%.*s is ignored: Starling has no such setting (docs/mooncake.md)",
                        (int)length, *entry);
        }
    }
}

/* The processes of a cluster share a prefix of the keys in etcd. */
static int add_cluster(struct sl_bench_transfer_options *options, const char *id)
{
    const char *metadata = options->metadata_server;
    if (id == NULL) {
        return 0;
    }
    if (strcasecmp(metadata, "P2PHANDSHAKE") == 0 || strncmp(metadata, "http", 4) == 0) {
        sl_log_warn("MC_METADATA_CLUSTER_ID is ignored: only etcd has prefixes of keys");
        return 0;
    }
    const int length = snprintf(options->metadata, sizeof options->metadata, "%s/%s", metadata, id);
    options->metadata_server = options->metadata;
    return length < (int)sizeof options->metadata ? 0
                                                  : refuse("MC_METADATA_CLUSTER_ID is too long");
}

static int read_variables(struct sl_bench_transfer_options *options)
{
    const char *slice = getenv("MC_SLICE_SIZE");
    const char *matrix = getenv("MC_CUSTOM_TOPO_JSON");
    const char *gid = getenv("MC_GID_INDEX");
    if (slice != NULL && !sl_number_parse_u64(slice, 4096, 4U << 20, &options->slice_bytes)) {
        return refuse("MC_SLICE_SIZE=%s: accepts bytes from 4096 to 4194304", slice);
    }
    if (gid != NULL && !sl_number_parse_u64(gid, 0, 255, &options->gid_index)) {
        return refuse("MC_GID_INDEX=%s: accepts 0 to 255", gid);
    }
    options->engine.has_rdma_gid_index = gid != NULL && uses_rdma(options);
    options->engine.rdma_gid_index = (uint32_t)options->gid_index;
    if (matrix != NULL && options->matrix_file == NULL) {
        options->matrix_file = matrix;
    }
    if (options->security_flags.secret_file == NULL) {
        options->security_flags.secret_file = getenv("STARLING_SECRET_FILE");
    }
    options->variables_bind = getenv("MC_TCP_BIND_ADDRESS");
    log_ignored();
    return add_cluster(options, getenv("MC_METADATA_CLUSTER_ID"));
}

/* ---- Engine ---------------------------------------------------------------------------------- */

static int read_matrix(struct sl_bench_transfer_options *options)
{
    if (options->matrix_file == NULL) {
        return 0;
    }
    FILE *file = fopen(options->matrix_file, "re");
    options->matrix = malloc(MATRIX_BYTES + 1);
    size_t bytes = 0;
    if (file != NULL && options->matrix != NULL) {
        bytes = fread(options->matrix, 1, MATRIX_BYTES, file);
        options->matrix[bytes] = '\0';
    }
    const bool failed = file == NULL || options->matrix == NULL || ferror(file) != 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (failed || bytes == MATRIX_BYTES) {
        return refuse("--nic_priority_matrix=%s: accepts a readable file of less than 1 MiB: %s",
                      options->matrix_file, failed ? strerror(errno) : "it is longer");
    }
    options->engine.nic_priority_matrix = options->matrix;
    return 0;
}

/* The host part of "host:port", "[v6]:port" or "host". */
static void host_of(const char *name, char *host, size_t host_bytes)
{
    const char *colon = strrchr(name, ':');
    const bool is_v6 = name[0] != '[' && colon != NULL && strchr(name, ':') != colon;
    const size_t length = colon == NULL || is_v6 ? strlen(name) : (size_t)(colon - name);
    (void)snprintf(host, host_bytes, is_v6 ? "[%.*s]" : "%.*s", (int)length, name);
}

static void set_endpoints(struct sl_bench_transfer_options *options)
{
    static const char *const besides_tcp[] = {NULL, "", ",shm://", ",rdma://0.0.0.0:0",
                                              ",dpdk://0.0.0.0:0"};
    char host[256];
    if (options->engine.endpoints != NULL) {
        return;
    }
    host_of(options->variables_bind != NULL ? options->variables_bind : options->local_server_name,
            host, sizeof host);
    if (options->protocol != SL_BENCH_TRANSFER_ANY) {
        (void)snprintf(options->endpoints, sizeof options->endpoints, "tcp://%s:0%s", host,
                       besides_tcp[options->protocol]);
        options->engine.endpoints = options->endpoints;
    }
}

static int fill_engine(struct sl_bench_transfer_options *options)
{
    struct sl_transfer_options *engine = &options->engine;
    struct sl_reason reason;
    int err = sl_security_resolve(&options->security_flags, &options->security, &reason);
    if (err != 0) {
        return refuse("%s", reason.text);
    }
    err = read_matrix(options);
    set_endpoints(options);
    engine->name = options->local_server_name;
    engine->metadata = options->metadata_server;
    engine->rdma_device = uses_rdma(options) ? options->device_name : NULL;
    engine->dpdk_device = options->protocol == SL_BENCH_TRANSFER_DPDK ? options->device_name : NULL;
    engine->polling = options->polling;
    engine->insecure = options->insecure;
    engine->lanes = (uint32_t)options->lanes;
    engine->slice_bytes = (uint32_t)options->slice_bytes;
    if (options->security.secret.byte_count > 0) {
        engine->secret = options->security.secret.bytes;
        engine->secret_bytes = options->security.secret.byte_count;
    }
    engine->tls_certificate = options->security.certificate;
    engine->tls_key = options->security.key;
    engine->tls_authority = options->security.authority;
    engine->tls_peer_name = options->security.peer_name;
    return err;
}

/* ---- Flags ----------------------------------------------------------------------------------- */

static int check(struct sl_bench_transfer_options *options)
{
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(units[i].name, options->unit_name) == 0) {
            options->unit = &units[i];
        }
    }
    if (options->unit == NULL) {
        return refuse("--report_unit=%s: accepts GB, GiB, Gb, MB, MiB, Mb, KB, KiB, Kb",
                      options->unit_name);
    }
    if (options->mode == SL_BENCH_TRANSFER_INITIATOR && options->segment_id == NULL) {
        return refuse("--mode=initiator needs --segment_id=NAME, which the target prints; without "
                      "a target use --compare");
    }
    uint64_t needed;
    if (options->mode == SL_BENCH_TRANSFER_INITIATOR &&
        (__builtin_mul_overflow(options->block_size, options->batch_size * options->threads,
                                &needed) ||
         needed > options->buffer_size)) {
        return refuse("--buffer_size=%" PRIu64 " is less than threads x batch_size x block_size, "
                      "%" PRIu64 " x %" PRIu64 " x %" PRIu64,
                      options->buffer_size, options->threads, options->batch_size,
                      options->block_size);
    }
    if (options->matrix_file != NULL && options->auto_discovery) {
        return refuse("--auto_discovery and --nic_priority_matrix exclude each other");
    }
    if (options->use_vram) {
        return refuse("--use_vram: accepts false, since there is no GPU memory");
    }
    return 0;
}

/* Copies the arguments with dashes for underscores in the flags' names, and two dashes before names
 * that have one, as Mooncake's flags may. The caller frees the text. */
static char *with_dashes(int argc, char **argv, char **out)
{
    size_t bytes = 1;
    for (int i = 0; i < argc; i++) {
        bytes += strlen(argv[i]) + 2;
    }
    char *text = malloc(bytes);
    char *at = text;
    for (int i = 0; text != NULL && i < argc; i++) {
        const bool has_one =
            argv[i][0] == '-' && isalpha((unsigned char)argv[i][1]) != 0 && argv[i][2] != '\0';
        out[i] = at;
        *at = '-';
        memcpy(at + has_one, argv[i], strlen(argv[i]) + 1);
        for (char *c = at; strncmp(at, "--", 2) == 0 && *c != '\0' && *c != '='; c++) {
            *c = *c == '_' ? '-' : *c;
        }
        at += strlen(at) + 1;
    }
    return text;
}

static int parse(struct sl_bench_transfer_options *options, int argc, char **argv)
{
    struct sl_security_flags *security = &options->security_flags;
    bool compares; /* then this program is another one: bench/main.c */
    const struct sl_cli_option own[] = {
        sl_bench_choice("mode", &options->mode, "initiator|target",
                        "The target registers memory and waits; the initiator moves bytes."),
        sl_bench_choice("operation", &options->operation, "read|write", "Of the initiator."),
        sl_bench_text("local-server-name", &options->local_server_name, "HOST:PORT",
                      "Name of this process, and where it listens."),
        sl_bench_text("metadata-server", &options->metadata_server, "ADDRESS",
                      "P2PHANDSHAKE, etcd://HOST:PORT,..., or http://HOST:PORT/PATH."),
        sl_bench_choice("protocol", &options->protocol, PROTOCOLS,
                        "Of the data; any: the preferred one that both sides have."),
        sl_bench_text("endpoints", &options->engine.endpoints, "LIST",
                      "What moves data, instead of --protocol: tcp://10.0.0.1:0,tcp://10.1.0.1:0."),
        sl_bench_text("device-name", &options->device_name, "NAME,...",
                      "RDMA devices; of --protocol=dpdk its own."),
        sl_bench_text("nic-priority-matrix", &options->matrix_file, "FILE",
                      "Preferred and available devices by location, as JSON."),
        SL_CLI_OPTION(BOOL, &options->auto_discovery, .name = "auto-discovery",
                      .help = "Discover the devices: what happens without a matrix too."),
        SL_CLI_OPTION(BOOL, &options->use_vram, .name = "use-vram",
                      .help = "Accepts false: there is no GPU memory."),
        sl_bench_text("segment-id", &options->segment_id, "NAME", "The target's name."),
        sl_bench_number("buffer-size", &options->buffer_size, 1, BUFFER_SIZE_MAX,
                        "Bytes of each buffer; there is one for each NUMA node."),
        sl_bench_number("batch-size", &options->batch_size, 1, 65536, "Requests of a batch."),
        sl_bench_number("block-size", &options->block_size, 1, BUFFER_SIZE_MAX,
                        "Bytes of a request."),
        sl_bench_real("duration", &options->duration, 0.01, 1e6, "Seconds to measure."),
        sl_bench_number("threads", &options->threads, 1, 256, "Threads that submit batches."),
        sl_bench_text("report-unit", &options->unit_name, "UNIT", "Of the throughput."),
        sl_bench_number("report-precision", &options->report_precision, 0, 9,
                        "Digits behind the point."),
        SL_CLI_OPTION(DURATION, &options->timeout_ns, .name = "timeout", .metavar = "TIME",
                      .least = 0.001, .most = 3600,
                      .help = "Deadline of each batch. Default: 60 s"),
        sl_bench_number("lanes", &options->lanes, 0, 64, "Connections per rail; 0: two."),
        sl_bench_choice("memory", &options->memory, "private|shared",
                        "Shared memory can be mapped by processes of the host."),
        SL_CLI_OPTION(BOOL, &options->verify, .name = "verify",
                      .help = "Write blocks whose bytes depend on place and round, read them back "
                              "and compare."),
        SL_CLI_OPTION(BOOL, &compares, .name = "compare",
                      .help = "Measure READ and WRITE on this machine in turns with bare sockets, "
                              "iperf3 and memcpy (bench/transfer.py)."),
        sl_bench_congestion(&options->engine.congestion_control),
        SL_CLI_OPTION(BOOL, &options->polling, .name = "polling",
                      .help = "Reactors spin instead of sleeping."),
        SL_CLI_OPTION(BOOL, &options->insecure, .name = "insecure",
                      .help = "Listen beyond loopback without a secret."),
        sl_bench_text("secret-file", &security->secret_file, "FILE", "The shared secret."),
        sl_bench_text("tls-cert", &security->tls_cert, "FILE", "Certificate, PEM."),
        sl_bench_text("tls-key", &security->tls_key, "FILE", "Its key, PEM."),
        sl_bench_text("tls-ca", &security->tls_ca, "FILE", "Authority of the peers."),
        sl_bench_text("tls-name", &security->tls_name, "NAME", "Name in the peers' certificates."),
    };
    static const struct sl_bench_program program = {
        .name = NAME,
        .summary =
            "Moves blocks between registered memory of two processes, with the flags and the "
            "output of Mooncake's transfer_engine_bench.",
        .usage = "[options]",
    };
    return sl_bench_parse_program(&program, own, sizeof own / sizeof own[0], &options->common, argc,
                                  argv);
}

int sl_bench_transfer_options_parse(struct sl_bench_transfer_options *options, int argc,
                                    char **argv)
{
    char *arguments[ARGUMENTS_MAX];
    *options = (struct sl_bench_transfer_options){
        .local_server_name = "127.0.0.1:0",
        .metadata_server = "P2PHANDSHAKE",
        .buffer_size = 1U << 30,
        .batch_size = 128,
        .block_size = 65536,
        .threads = 12,
        .duration = 10,
        .report_precision = 2,
        .unit_name = "GB",
        .timeout_ns = 60 * SL_CLOCK_NS_PER_S,
        .common = sl_bench_common_defaults(),
    };
    if (argc > ARGUMENTS_MAX) {
        return refuse("more than %d arguments", ARGUMENTS_MAX);
    }
    char *text = with_dashes(argc, argv, arguments);
    int result = text == NULL ? refuse("no memory") : parse(options, argc, arguments);
    if (result == SL_CLI_RUN) {
        result = check(options);
        result = result != 0 ? result : read_variables(options);
        result = result != 0 ? result : fill_engine(options);
    }
    options->text = text;
    return result;
}

void sl_bench_transfer_options_fini(struct sl_bench_transfer_options *options)
{
    explicit_bzero(&options->security, sizeof options->security);
    free(options->matrix);
    free(options->text);
}
