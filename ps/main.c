/* starling-ps: a ps, or the scheduler of a job, whose KV tables are added up; or, by its first
 * argument, what tells whether this machine can run one. */
#include <starling_kv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/dmlc.h"
#include "config/dpdk_settings.h"
#include "config/endpoint_map.h"
#include "config/env.h"
#include "config/rdma_settings.h"
#include "core/log.h"
#include "reactor/topology.h"
#include "tools/doctor/doctor.h"

#define EXIT_USAGE   2
#define REASON_BYTES 1024

/* Index into the choices of --transport. */
enum transport_settings { TRANSPORT_AUTO, TRANSPORT_FIRST };

static struct {
    int transport;
    const char *endpoint_map;
    struct sl_rdma_settings_flags rdma;
    struct sl_cli_list dpdk;
    bool json;
} flags;

static const struct sl_cli_option OPTIONS[] = {
    {.kind = SL_CLI_CHOICE,
     .name = "transport",
     .target = &flags.transport,
     .choices = "auto|tcp|shm|rdma|dpdk",
     .help = "What must run for the exit status to be 0. auto: all that the endpoint map names, "
             "else tcp, and rdma where DMLC_ENABLE_RDMA asks for it."},
    {.kind = SL_CLI_STRING,
     .name = "endpoint-map",
     .target = &flags.endpoint_map,
     .metavar = "FILE",
     .help = "The cluster's, else .endpoint_map where there is one, of which the endpoints of rdma "
             "are looked for on this machine. Devices of dpdk that it names count where "
             "--dpdk-device names none."},
    {.kind = SL_CLI_FLAG,
     .name = "json",
     .target = &flags.json,
     .help = "Writes one JSON object instead of lines."},
    SL_RDMA_SETTINGS_OPTIONS(flags.rdma),
    SL_DPDK_SETTINGS_OPTIONS(flags.dpdk),
};

/* What the options of the doctor point to. */
struct sources {
    struct sl_env env;
    struct sl_dmlc dmlc;
    struct sl_rdma_settings rdma;
    struct sl_dpdk_settings dpdk;
    struct sl_endpoint *endpoints;      /* allocated */
    struct sl_endpoint_device *devices; /* likewise */
    struct sl_doctor_options options;
};

/* A name that cannot be looked up stays one, and is found nowhere. */
static struct sl_endpoint numeric(const struct sl_endpoint *endpoint)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    struct sl_endpoint out;
    if (sl_endpoint_resolve(endpoint, false, &address, &bytes, NULL, 0) != 0 ||
        sl_endpoint_from_sockaddr(&address, &out) != 0) {
        return *endpoint;
    }
    out.scheme = endpoint->scheme;
    return out;
}

/* Of a map's devices, which are of several machines, those that this one has, or can make. */
static bool is_here(const struct sl_endpoint_device *device)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s", device->name);
    return device->arguments[0] != '\0' || access(path, F_OK) == 0;
}

static void take_device(const struct sl_endpoint *endpoint, struct sources *sources)
{
    struct sl_endpoint_device device;
    struct sl_doctor_options *options = &sources->options;
    options->transports |= SL_DOCTOR_OF(SL_ENDPOINT_DPDK);
    if (endpoint->device[0] != '\0' &&
        sl_endpoint_device_parse(endpoint->device, true, &device, NULL, 0) == 0 &&
        is_here(&device)) {
        sources->devices[options->dpdk_device_count++] = device;
    }
}

/* Takes over what the map's lines name. Errors: NO_MEMORY. */
static int take_map(const struct sl_endpoint_map *map, struct sources *sources)
{
    struct sl_doctor_options *options = &sources->options;
    sources->endpoints = calloc(map->count + 1, sizeof *sources->endpoints);
    sources->devices = calloc(map->count + 1, sizeof *sources->devices);
    if (sources->endpoints == NULL || sources->devices == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < map->count; i++) {
        const struct sl_endpoint_map_entry *entry = &map->entries[i];
        const struct sl_endpoint *bypass = entry->has_bypass ? &entry->bypass : &entry->data;
        options->transports |= SL_DOCTOR_OF(entry->data.scheme);
        if (bypass->scheme == SL_ENDPOINT_RDMA && (sources->env.rdma || !entry->has_bypass)) {
            options->transports |= SL_DOCTOR_OF(SL_ENDPOINT_RDMA);
            sources->endpoints[options->endpoint_count++] = numeric(bypass);
        } else if (bypass->scheme == SL_ENDPOINT_DPDK) {
            take_device(bypass, sources);
        }
    }
    options->endpoints = sources->endpoints;
    return 0;
}

/* What the flags or the variable say goes before the map. Errors: NO_MEMORY. */
static int take_devices(struct sources *sources)
{
    const char *text = sources->dpdk.text;
    struct sl_doctor_options *options = &sources->options;
    if (text[0] != '\0') {
        free(sources->devices);
        sources->devices = calloc(SL_DPDK_SETTINGS_DEVICES, sizeof *sources->devices);
        if (sources->devices == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        options->transports |= options->transports == 0 ? SL_DOCTOR_OF(SL_ENDPOINT_TCP) : 0;
        options->transports |= SL_DOCTOR_OF(SL_ENDPOINT_DPDK);
        options->dpdk_device_count = 0;
        while (sl_endpoint_device_next(&text, &sources->devices[options->dpdk_device_count], NULL,
                                       0) == 1) {
            options->dpdk_device_count++;
        }
    }
    options->dpdk_devices = sources->devices;
    return 0;
}

static int read_map(struct sources *sources, char *reason)
{
    struct sl_endpoint_map map = {0};
    const char *path = flags.endpoint_map;
    if (path == NULL) {
        if (access(SL_ENDPOINT_MAP_DEFAULT, F_OK) != 0) {
            return 0;
        }
        path = SL_ENDPOINT_MAP_DEFAULT;
    }
    int err = sl_endpoint_map_read(path, &map, reason, REASON_BYTES);
    if (err == 0) {
        err = take_map(&map, sources);
    }
    sl_endpoint_map_fini(&map);
    return err;
}

/* With ps-lite's variables a server has TCP, and RDMA beside it where they ask for that. */
static void choose_transports(struct sources *sources)
{
    const struct sl_dmlc *dmlc = &sources->dmlc;
    struct sl_doctor_options *options = &sources->options;
    const bool serves = dmlc->in_use && dmlc->role != SL_DMLC_SCHEDULER;
    if (flags.transport != TRANSPORT_AUTO) {
        options->transports = SL_DOCTOR_OF(flags.transport - TRANSPORT_FIRST);
        return;
    }
    if (options->transports == 0) {
        options->transports = SL_DOCTOR_OF(SL_ENDPOINT_TCP);
    }
    if (serves && dmlc->rdma != NULL && sources->env.rdma) {
        options->transports |= SL_DOCTOR_OF(SL_ENDPOINT_RDMA);
    }
}

/* The same as a ps reads. */
static int read_sources(struct sources *sources, char *reason)
{
    const uint32_t cores = sl_topology_core_count();
    const uint32_t rdma = SL_DOCTOR_OF(SL_ENDPOINT_RDMA);
    struct sl_doctor_options *options = &sources->options;
    int err = sl_env_read(cores, &sources->env, reason, REASON_BYTES);
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
        err = read_map(sources, reason);
    }
    if (err == 0) {
        err = take_devices(sources);
    }
    choose_transports(sources);
    if (err == 0) {
        err = sl_rdma_settings_check(&sources->rdma, (options->transports & rdma) != 0, reason,
                                     REASON_BYTES);
    }
    options->rdma_device = sources->rdma.device[0] == '\0' ? NULL : sources->rdma.device;
    options->has_rdma_gid_index = sources->rdma.has_gid_index;
    options->rdma_gid_index = sources->rdma.gid_index;
    options->reactors = sources->env.ps_reactors;
    options->pin = sources->env.ps_pin;
    options->polling = sources->env.ps_polling;
    options->congestion_control =
        sources->env.congestion_control[0] == '\0' ? NULL : sources->env.congestion_control;
    options->json = flags.json;
    return err;
}

static void free_sources(struct sources *sources)
{
    free(sources->endpoints);
    free(sources->devices);
    sl_cli_list_fini(&flags.dpdk);
}

static int run_doctor(int argc, char **argv)
{
    const struct sl_cli cli = {
        .program = "starling-ps doctor",
        .summary = "Looks whether this machine can run a ps, and says what to do where it cannot.",
        .usage = "[options]",
        .options = OPTIONS,
        .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    };
    char reason[REASON_BYTES] = "out of memory";
    struct sources sources = {0};
    int result = sl_cli_parse(&cli, argc, argv, reason, sizeof reason);
    if (result == SL_CLI_EXIT_OK) {
        return EXIT_SUCCESS;
    }
    if (result != SL_CLI_RUN || read_sources(&sources, reason) != 0) {
        (void)fprintf(stderr, "starling-ps doctor: %s\n", reason);
        free_sources(&sources);
        return EXIT_USAGE;
    }
    sl_log_setup(SL_LOG_OFF, "doctor"); /* what is tried may fail, and is then said by the doctor */
    struct sl_doctor_system system;
    sl_doctor_system_read(&system);
    const bool runs = sl_doctor_run(&sources.options, &system, stdout);
    free_sources(&sources);
    return runs && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "doctor") == 0) {
        return run_doctor(argc - 1, argv + 1);
    }
    if (argc > 1 && argv[1][0] != '-') {
        (void)fprintf(stderr,
                      "starling-ps: unknown command \"%.80s\": accepts doctor, or flags (see "
                      "--help)\n",
                      argv[1]);
        return EXIT_USAGE;
    }
    return sl_kv_serve(argc, argv, NULL);
}
