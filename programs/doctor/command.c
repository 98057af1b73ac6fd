#include "programs/doctor/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/endpoint_map.h"
#include "config/settings_cli.h"
#include "core/log.h"
#include "programs/doctor/doctor.h"
#include "reactor/topology.h"

/* Index into the choices of --transport. */
enum transport_choice { TRANSPORT_AUTO, TRANSPORT_FIRST };

/* What the options of the doctor point to. */
struct sources {
    struct sl_settings settings;
    int transport;
    struct sl_endpoint *endpoints;      /* allocated */
    struct sl_endpoint_device *devices; /* allocated */
    struct sl_doctor_options options;
};

/* A name that cannot be resolved stays a name, and matches no address. */
static struct sl_endpoint numeric(const struct sl_endpoint *endpoint)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    struct sl_endpoint out;
    if (sl_endpoint_resolve(endpoint, false, &address, &bytes, NULL) != 0 ||
        sl_endpoint_from_sockaddr(&address, &out) != 0) {
        return *endpoint;
    }
    out.scheme = endpoint->scheme;
    return out;
}

/* The map has the devices of several hosts: returns whether this host has, or can create, one. */
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
        sl_endpoint_device_parse(endpoint->device, true, &device, NULL) == 0 && is_here(&device)) {
        sources->devices[options->dpdk_device_count++] = device;
    }
}

/* Takes the endpoints and devices of the map's lines. Errors: NO_MEMORY. */
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
        if (bypass->scheme == SL_ENDPOINT_RDMA &&
            (sources->settings.transports.uses_rdma || !entry->has_bypass)) {
            options->transports |= SL_DOCTOR_OF(SL_ENDPOINT_RDMA);
            sources->endpoints[options->endpoint_count++] = numeric(bypass);
        } else if (bypass->scheme == SL_ENDPOINT_DPDK) {
            take_device(bypass, sources);
        }
    }
    options->endpoints = sources->endpoints;
    return 0;
}

/* Devices of flags or variable replace those of the map. Errors: NO_MEMORY. */
static int take_devices(struct sources *sources)
{
    const char *text = sources->settings.dpdk.text;
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
        while (sl_endpoint_device_next(&text, &sources->devices[options->dpdk_device_count],
                                       NULL) == 1) {
            options->dpdk_device_count++;
        }
    }
    options->dpdk_devices = sources->devices;
    return 0;
}

static int read_map(struct sources *sources, struct sl_reason *reason)
{
    struct sl_endpoint_map map = {0};
    const char *path = sources->settings.flags.cluster.endpoint_map;
    if (path == NULL) {
        if (access(SL_ENDPOINT_MAP_DEFAULT, F_OK) != 0) {
            return 0;
        }
        path = SL_ENDPOINT_MAP_DEFAULT;
    }
    int err = sl_endpoint_map_read(path, &map, reason);
    err = err != 0 ? err : take_map(&map, sources);
    sl_endpoint_map_fini(&map);
    return err;
}

/* With ps-lite's variables a server has TCP, and RDMA beside it if DMLC_ENABLE_RDMA is set. */
static void choose_transports(struct sources *sources)
{
    const struct sl_dmlc *dmlc = &sources->settings.dmlc;
    struct sl_doctor_options *options = &sources->options;
    const bool serves = dmlc->in_use && dmlc->role != SL_DMLC_SCHEDULER;
    if (sources->transport != TRANSPORT_AUTO) {
        options->transports = SL_DOCTOR_OF(sources->transport - TRANSPORT_FIRST);
        return;
    }
    if (options->transports == 0) {
        options->transports = SL_DOCTOR_OF(SL_ENDPOINT_TCP);
    }
    if (serves && dmlc->rdma != NULL && sources->settings.transports.uses_rdma) {
        options->transports |= SL_DOCTOR_OF(SL_ENDPOINT_RDMA);
    }
}

/* Fills the options from the settings. Errors: those of the endpoint map and devices. */
static int fill_options(struct sources *sources, struct sl_reason *reason)
{
    const struct sl_settings *settings = &sources->settings;
    struct sl_doctor_options *options = &sources->options;
    int err = read_map(sources, reason);
    err = err != 0 ? err : take_devices(sources);
    choose_transports(sources);
    if (err == 0) {
        const bool is_asked = (options->transports & SL_DOCTOR_OF(SL_ENDPOINT_RDMA)) != 0;
        err = sl_rdma_settings_check(&settings->rdma, is_asked, reason);
    }
    options->rdma.device = settings->rdma.device[0] == '\0' ? NULL : settings->rdma.device;
    options->rdma.has_gid_index = settings->rdma.has_gid_index;
    options->rdma.gid_index = settings->rdma.gid_index;
    options->reactors = settings->reactors.count;
    options->pin = settings->reactors.pin_cores;
    options->polling = settings->reactors.polling;
    options->congestion_control =
        settings->congestion_control[0] == '\0' ? NULL : settings->congestion_control;
    return err;
}

/* Parses the command line. Returns as sl_cli_parse. */
static int parse(int argc, char **argv, struct sources *sources, struct sl_reason *reason)
{
    const struct sl_cli_option options[] = {
        SL_CLI_OPTION(
            CHOICE, &sources->transport, .name = "transport", .choices = "auto|tcp|shm|rdma|dpdk",
            .help =
                "What must work for exit status 0. auto: what the endpoint map names, else TCP, "
                "and RDMA if DMLC_ENABLE_RDMA is set."),
        SL_CLI_OPTION(BOOL, &sources->options.json, .name = "json",
                      .help = "Print one JSON object instead of lines."),
    };
    const struct sl_cli own = {
        .program = "starling-ps doctor",
        .summary = "Checks whether this host can run a server, and reports what is missing.",
        .usage = "[options]",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    struct sl_settings_cli all;
    sl_settings_cli_init(SL_PROGRAM_DOCTOR, sl_topology_core_count(), &own, &sources->settings,
                         &all);
    const int result = sl_cli_parse(&all.cli, argc, argv, reason);
    return result != SL_CLI_RUN
               ? result
               : sl_settings_resolve(SL_PROGRAM_DOCTOR, &all.cli, &sources->settings, reason);
}

static void free_sources(struct sources *sources)
{
    free(sources->endpoints);
    free(sources->devices);
    sl_settings_fini(&sources->settings);
}

int sl_doctor_command(int argc, char **argv)
{
    struct sl_reason reason = {.text = "out of memory"};
    struct sources sources = {0};
    int result = parse(argc, argv, &sources, &reason);
    if (result == SL_CLI_EXIT_OK) {
        return EXIT_SUCCESS;
    }
    if (result != SL_CLI_RUN || fill_options(&sources, &reason) != 0) {
        (void)fprintf(stderr, "starling-ps doctor: %s\n", reason.text);
        free_sources(&sources);
        return SL_CLI_EXIT_USAGE;
    }
    sl_log_setup(SL_LOG_OFF, "doctor"); /* checks may fail; the doctor reports it */
    struct sl_doctor_system system;
    sl_doctor_system_read(&system);
    const bool runs = sl_doctor_run(&sources.options, &system, stdout);
    free_sources(&sources);
    return runs && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
