#include "net/transfer/settings.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/reason.h"
#include "net/dpdk/device_list.h"
#include "net/session/message_transfer.h"
#include "net/transfer/error.h"
#include "net/transfer/matrix.h"
#include "net/transfer/nics.h"

/* TCP_CA_NAME_MAX of Linux, with NUL. */
#define CONGESTION_CONTROL_BYTES 16

static bool transfer_settings_is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

int sl_transfer_settings_check_timeout(uint32_t timeout_ms)
{
    return timeout_ms >= 1 && timeout_ms <= SL_TRANSFER_TIMEOUT_MS_MAX
               ? 0
               : sl_transfer_fail(SL_ERR_INVALID, "timeout_ms %u is not in 1 to %d", timeout_ms,
                                  SL_TRANSFER_TIMEOUT_MS_MAX);
}

/* Addresses */

int sl_transfer_settings_parse_name(const char *name, struct sl_endpoint *out)
{
    struct sl_reason reason;
    if (!transfer_settings_is_given(name) || strlen(name) >= SL_TRANSFER_NAME_BYTES) {
        return sl_transfer_fail(SL_ERR_INVALID, "a name has 1 to %d characters, \"host:port\"",
                                SL_TRANSFER_NAME_BYTES - 1);
    }
    if (strstr(name, "://") != NULL) {
        return sl_transfer_fail(SL_ERR_INVALID, "name %s: give \"host:port\", without a scheme",
                                name);
    }
    int err = sl_endpoint_parse(name, out, &reason);
    return err == 0 ? 0 : sl_transfer_fail(err, "name %s", reason.text);
}

/* The first address of the host that other hosts may reach; without one, 127.0.0.1. */
static int find_address(struct sl_endpoint *out)
{
    struct ifaddrs *all;
    *out = (struct sl_endpoint){.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    if (getifaddrs(&all) != 0) {
        return sl_transfer_fail(SL_ERR_NOT_FOUND, "the system does not list its addresses: give "
                                                  "a name, \"host:port\"");
    }
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        struct sockaddr_storage address = {0};
        if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET ||
            (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) {
            continue;
        }
        memcpy(&address, one->ifa_addr, sizeof(struct sockaddr_in));
        if (sl_endpoint_from_sockaddr(&address, out) == 0) {
            break;
        }
    }
    freeifaddrs(all);
    out->port = 0;
    return 0;
}

/* Peers are told this host. */
static int transfer_settings_check_host(const char *option, const struct sl_endpoint *endpoint)
{
    return !sl_endpoint_is_any(endpoint)
               ? 0
               : sl_transfer_fail(SL_ERR_INVALID,
                                  "%s: peers cannot connect to %s: name one of this host's "
                                  "addresses",
                                  option, endpoint->host);
}

static int take_name(struct sl_transfer_settings *out, const struct sl_transfer_options *options)
{
    int err = options->name == NULL ? find_address(&out->control)
                                    : sl_transfer_settings_parse_name(options->name, &out->control);
    return err != 0 ? err : transfer_settings_check_host("name", &out->control);
}

/* Those of TCP come first. */
static int add_endpoint(struct sl_transfer_settings *out, const struct sl_endpoint *added)
{
    const uint32_t index = added->scheme == SL_ENDPOINT_TCP ? out->tcp_count : out->endpoint_count;
    for (uint32_t i = 0; i < out->endpoint_count; i++) {
        if (out->endpoints[i].scheme == added->scheme &&
            strcmp(out->endpoints[i].host, added->host) == 0) {
            return sl_transfer_fail(SL_ERR_INVALID, "endpoints: %s at %s is there twice",
                                    sl_endpoint_scheme_name(added->scheme), added->host);
        }
    }
    if (out->endpoint_count == SL_TRANSFER_SETTINGS_ENDPOINTS_MAX) {
        return sl_transfer_fail(SL_ERR_TOO_LARGE, "endpoints: more than %d",
                                SL_TRANSFER_SETTINGS_ENDPOINTS_MAX);
    }
    memmove(&out->endpoints[index + 1], &out->endpoints[index],
            (out->endpoint_count - index) * sizeof *added);
    out->endpoints[index] = *added;
    out->tcp_count += added->scheme == SL_ENDPOINT_TCP ? 1 : 0;
    out->endpoint_count++;
    return 0;
}

/* At the host of the name, any port. */
static int add_standard(struct sl_transfer_settings *out, enum sl_endpoint_scheme scheme)
{
    struct sl_endpoint endpoint = out->control;
    endpoint.scheme = scheme;
    endpoint.port = 0;
    return add_endpoint(out, &endpoint);
}

static int add_rdma(struct sl_transfer_settings *out, const struct sl_endpoint *endpoint,
                    const struct sl_devices *devices)
{
    struct sl_endpoint found[SL_TRANSFER_NICS_MAX];
    const uint32_t count = sl_transfer_nics_find(devices, out->rdma_device, endpoint, found);
    int err = 0;
    if (count == 0 && out->names_endpoints) {
        const char *missing = sl_builtin_missing(SL_ENDPOINT_RDMA);
        err = sl_transfer_fail(SL_ERR_UNSUPPORTED, "endpoints: rdma://%s: %s", endpoint->host,
                               missing != NULL ? missing : "no RDMA device is up at an address");
    }
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = add_endpoint(out, &found[i]);
    }
    return err;
}

/* The endpoint's device, if it names one, and those of the option are one transport. */
static int add_dpdk(struct sl_transfer_settings *out, const struct sl_endpoint *endpoint,
                    const char *devices)
{
    struct sl_reason reason;
    const char *missing = sl_builtin_missing(SL_ENDPOINT_DPDK);
    if (missing != NULL) {
        return sl_transfer_fail(SL_ERR_UNSUPPORTED, "endpoints: dpdk://%s: %s", endpoint->host,
                                missing);
    }
    if (out->dpdk != NULL) {
        return sl_transfer_fail(SL_ERR_INVALID, "endpoints: one dpdk://, not %s too",
                                endpoint->host);
    }
    int err =
        sl_dpdk_device_list_create(devices != NULL ? devices : "", endpoint, &out->dpdk, &reason);
    if (err != 0) {
        return sl_transfer_fail(err, "dpdk_device: %s", reason.text);
    }
    if (out->dpdk == NULL || !sl_dpdk_device_list_has(out->dpdk, endpoint)) {
        return sl_transfer_fail(SL_ERR_INVALID,
                                "endpoints: dpdk://%s: no device has this address: give it with "
                                "dpdk_device DEVICE?addr=A, or as dpdk://DEVICE?addr=A&port=P",
                                endpoint->host);
    }
    out->transport.dpdk = sl_dpdk_device_list_options(out->dpdk);
    return add_endpoint(out, endpoint);
}

static int take_endpoint(struct sl_transfer_settings *out, const char *text,
                         const struct sl_transfer_options *options,
                         const struct sl_devices *devices)
{
    struct sl_reason reason;
    struct sl_endpoint endpoint;
    if (strcmp(text, "shm://") == 0) {
        return add_standard(out, SL_ENDPOINT_SHM);
    }
    if (sl_endpoint_parse(text, &endpoint, &reason) != 0) {
        return sl_transfer_fail(SL_ERR_INVALID, "endpoints: %s", reason.text);
    }
    const bool is_rdma = endpoint.scheme == SL_ENDPOINT_RDMA;
    if (!is_rdma && endpoint.scheme != SL_ENDPOINT_DPDK) {
        const int err = transfer_settings_check_host("endpoints", &endpoint);
        return err != 0 ? err : add_endpoint(out, &endpoint);
    }
    if (transfer_settings_is_given(options->tls_certificate)) {
        sl_log_warn("transfer: %s has no effect with TLS, which does not protect it", text);
        return 0;
    }
    return is_rdma ? add_rdma(out, &endpoint, devices)
                   : add_dpdk(out, &endpoint, options->dpdk_device);
}

/* The length of the first endpoint of a list. The arguments of a DPDK device have commas too. */
static size_t first_length(const char *list)
{
    size_t length = strcspn(list, ",");
    while (starts_with(list, "dpdk://") && list[length] == ',') {
        const char *next = list + length + 1;
        const size_t next_length = strcspn(next, ",");
        if (memmem(next, next_length, "://", 3) != NULL) {
            break;
        }
        length += 1 + next_length;
    }
    return length;
}

/* Peers on other hosts do not reach a name on loopback: its engine uses no RDMA device unasked. */
static int add_standards(struct sl_transfer_settings *out,
                         const struct sl_transfer_options *options,
                         const struct sl_devices *devices)
{
    const bool has_rdma = devices->count > 0 && devices->list[0].is_rdma;
    int err = add_standard(out, SL_ENDPOINT_SHM);
    if (err == 0 && !transfer_settings_is_given(options->tls_certificate) &&
        (transfer_settings_is_given(out->rdma_device) ||
         (has_rdma && !sl_endpoint_is_loopback(&out->control)))) {
        err = take_endpoint(out, "rdma://0.0.0.0:0", options, devices);
    }
    if (err == 0 && !transfer_settings_is_given(options->tls_certificate) &&
        transfer_settings_is_given(options->dpdk_device)) {
        err = take_endpoint(out, "dpdk://0.0.0.0:0", options, devices);
    }
    return err;
}

/* Without tcp://, TCP at the host of the name moves what no other device can. */
static int take_endpoints(struct sl_transfer_settings *out,
                          const struct sl_transfer_options *options,
                          const struct sl_devices *devices)
{
    const char *list = options->endpoints;
    out->names_endpoints = list != NULL;
    int err = list == NULL ? add_standards(out, options, devices) : 0;
    while (err == 0 && list != NULL) {
        char one[SL_LIMIT_ENDPOINT_BYTES];
        const size_t length = first_length(list);
        (void)snprintf(one, sizeof one, "%.*s", (int)length, list);
        err = take_endpoint(out, one, options, devices);
        list = list[length] == ',' ? list + length + 1 : NULL;
    }
    return err == 0 && out->tcp_count == 0 ? add_standard(out, SL_ENDPOINT_TCP) : err;
}

/* The files for TLS are those of the engine. */
static int take_metadata(struct sl_transfer_settings *out, const char *metadata)
{
    struct sl_reason reason;
    if (metadata == NULL) {
        return 0; /* P2PHANDSHAKE */
    }
    if (starts_with(metadata, "redis://") || starts_with(metadata, "rediss://")) {
        return sl_transfer_fail(SL_ERR_UNSUPPORTED,
                                "metadata %s: Redis is not supported; use etcd, an HTTP server, or "
                                "P2PHANDSHAKE",
                                metadata);
    }
    if (sl_metastore_address_parse(metadata, &out->metadata, &reason) != 0) {
        return sl_transfer_fail(SL_ERR_INVALID, "metadata %s", reason.text);
    }
    out->metadata.authority = out->tls.authority;
    out->metadata.certificate = out->tls.certificate;
    out->metadata.key = out->tls.key;
    return 0;
}

uint32_t sl_transfer_settings_preferred(const struct sl_transfer_settings *settings,
                                        const char *location)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < settings->endpoint_count; i++) {
        const bool prefers = sl_matrix_prefers(&settings->nics, location, settings->nic_names[i]);
        bits |= prefers ? 1U << i : 0;
    }
    return bits;
}

/* The matrix of the option, or else that of this host's devices. */
static int take_matrix(struct sl_transfer_settings *out, const char *text,
                       const struct sl_devices *devices)
{
    struct sl_reason reason;
    if (transfer_settings_is_given(text)) {
        const int err = sl_matrix_parse(text, "nic_priority_matrix", devices, &out->nics, &reason);
        if (err != 0) {
            return sl_transfer_fail(err, "%s", reason.text);
        }
    } else {
        sl_matrix_discover(devices, &out->nics);
    }
    for (uint32_t i = 0; i < out->endpoint_count; i++) {
        sl_transfer_nics_name(devices, &out->nics, &out->endpoints[i], out->nic_names[i]);
    }
    if (sl_matrix_write(&out->nics, &out->matrix) != 0) {
        return sl_transfer_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    if (strlen(out->matrix) < SL_MESSAGE_MATRIX_BYTES) {
        return 0;
    }
    if (transfer_settings_is_given(text)) {
        return sl_transfer_fail(SL_ERR_TOO_LARGE, "nic_priority_matrix: it has more than %u bytes",
                                SL_MESSAGE_MATRIX_BYTES - 1);
    }
    free(out->matrix); /* without one, all devices count the same */
    out->matrix = NULL;
    return 0;
}

/* Security */

static int take_tls(struct sl_transfer_settings *out, const struct sl_transfer_options *options)
{
    const struct {
        const char *from, **to;
    } files[] = {{options->tls_certificate, &out->tls.certificate},
                 {options->tls_key, &out->tls.key},
                 {options->tls_authority, &out->tls.authority},
                 {options->tls_peer_name, &out->tls.peer_name}};
    uint32_t given = 0;
    for (uint32_t i = 0; i < 3; i++) {
        given += transfer_settings_is_given(files[i].from) ? 1 : 0;
    }
    if (given == 0 && options->tls_peer_name == NULL) {
        return 0;
    }
    if (given != 3) {
        return sl_transfer_fail(SL_ERR_INVALID,
                                "tls_certificate, tls_key and tls_authority: all three or none");
    }
    for (uint32_t i = 0; i < 4; i++) {
        if (files[i].from != NULL && (*files[i].to = strdup(files[i].from)) == NULL) {
            return sl_transfer_fail(SL_ERR_NO_MEMORY, "out of memory");
        }
    }
    out->transport.tls = &out->tls;
    return 0;
}

static int check_exposure(const struct sl_endpoint *endpoint)
{
    char text[SL_LIMIT_ENDPOINT_BYTES];
    if (endpoint->scheme == SL_ENDPOINT_SHM || sl_endpoint_is_loopback(endpoint)) {
        return 0;
    }
    sl_endpoint_format(endpoint, text, sizeof text);
    return sl_transfer_fail(SL_ERR_REFUSED,
                            "%s is open to the network, and there is no secret: give one, or a "
                            "name and endpoints on 127.0.0.1, or insecure when the network is "
                            "trusted",
                            text);
}

static int take_security(struct sl_transfer_settings *out,
                         const struct sl_transfer_options *options)
{
    if (options->secret != NULL && (options->secret_bytes < SL_SECRET_BYTES_MIN ||
                                    options->secret_bytes > SL_SECRET_BYTES_MAX)) {
        return sl_transfer_fail(SL_ERR_INVALID, "secret_bytes %zu is not in %d to %d",
                                options->secret_bytes, SL_SECRET_BYTES_MIN, SL_SECRET_BYTES_MAX);
    }
    if (options->secret != NULL) {
        out->secret.byte_count = (uint32_t)options->secret_bytes;
        memcpy(out->secret.bytes, options->secret, options->secret_bytes);
    } else if (!options->insecure) {
        int err = check_exposure(&out->control);
        for (uint32_t i = 0; err == 0 && i < out->endpoint_count; i++) {
            err = check_exposure(&out->endpoints[i]);
        }
        if (err != 0) {
            return err;
        }
    }
    return take_tls(out, options);
}

/* Numbers */

static int take_numbers(struct sl_transfer_settings *out, const struct sl_transfer_options *options)
{
    const struct {
        const char *name;
        uint32_t value, standard, min, max, *out;
    } numbers[] = {
        {"reactor_count", options->reactor_count, 1, 1, SL_LIMIT_REACTORS, &out->reactors.count},
        {"lanes", options->lanes, SL_TRANSFER_SETTINGS_LANES, 1, SL_TRANSFER_SETTINGS_LANES_MAX,
         &out->lanes},
        {"slice_bytes", options->slice_bytes, SL_TRANSFER_SETTINGS_SLICE_BYTES,
         SL_TRANSFER_SETTINGS_SLICE_BYTES_MIN, SL_LIMIT_FRAME_PAYLOAD_BYTES, &out->slice_bytes},
        {"stall_ms", options->stall_ms, SL_TRANSFER_SETTINGS_STALL_MS, 50,
         SL_TRANSFER_TIMEOUT_MS_MAX, &out->stall_ms},
        {"start_timeout_ms", options->start_timeout_ms, SL_TRANSFER_SETTINGS_START_MS, 1,
         SL_TRANSFER_TIMEOUT_MS_MAX, &out->start_timeout_ms}};
    for (uint32_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const uint32_t value = numbers[i].value == 0 ? numbers[i].standard : numbers[i].value;
        if (value < numbers[i].min || value > numbers[i].max) {
            return sl_transfer_fail(SL_ERR_INVALID, "%s %u is not in %u to %u", numbers[i].name,
                                    value, numbers[i].min, numbers[i].max);
        }
        *numbers[i].out = value;
    }
    return 0;
}

static int take_rdma_device(struct sl_transfer_settings *out,
                            const struct sl_transfer_options *options,
                            const struct sl_devices *devices)
{
    out->transport.has_rdma_gid_index = options->has_rdma_gid_index;
    out->transport.rdma_gid_index = options->rdma_gid_index;
    if (!transfer_settings_is_given(options->rdma_device)) {
        return 0;
    }
    out->rdma_device = strdup(options->rdma_device);
    return out->rdma_device != NULL ? sl_transfer_nics_check(devices, out->rdma_device)
                                    : sl_transfer_fail(SL_ERR_NO_MEMORY, "out of memory");
}

static int take_congestion_control(struct sl_transfer_settings *out, const char *name)
{
    if (name == NULL) {
        return 0;
    }
    if (strlen(name) >= CONGESTION_CONTROL_BYTES) {
        return sl_transfer_fail(SL_ERR_INVALID, "congestion_control %s: has more than %d letters",
                                name, CONGESTION_CONTROL_BYTES - 1);
    }
    out->congestion_control = strdup(name);
    out->transport.congestion_control = out->congestion_control;
    return out->congestion_control != NULL ? 0
                                           : sl_transfer_fail(SL_ERR_NO_MEMORY, "out of memory");
}

int sl_transfer_settings_init(struct sl_transfer_settings *out,
                              const struct sl_transfer_options *options)
{
    *out = (struct sl_transfer_settings){.idle_ns = SL_TRANSFER_SETTINGS_IDLE_NS,
                                         .bytes_per_s_max = options->bytes_per_s_max,
                                         .reactors.polling = options->polling,
                                         .reactors.pin_cores = options->pin_cores,
                                         .checksum = options->checksum};
    struct sl_devices devices;
    sl_devices_read_host(&devices);
    int err = take_numbers(out, options);
    err = err != 0 ? err : take_name(out, options);
    err = err != 0 ? err : take_rdma_device(out, options, &devices);
    err = err != 0 ? err : take_endpoints(out, options, &devices);
    err = err != 0 ? err : take_security(out, options);
    err = err != 0 ? err : take_metadata(out, options->metadata);
    err = err != 0 ? err : take_matrix(out, options->nic_priority_matrix, &devices);
    err = err != 0 ? err : take_congestion_control(out, options->congestion_control);
    if (err != 0) {
        sl_transfer_settings_fini(out);
    }
    return err;
}

void sl_transfer_settings_fini(struct sl_transfer_settings *settings)
{
    free((char *)(uintptr_t)settings->tls.certificate);
    free((char *)(uintptr_t)settings->tls.key);
    free((char *)(uintptr_t)settings->tls.authority);
    free((char *)(uintptr_t)settings->tls.peer_name);
    sl_dpdk_device_list_destroy(&settings->dpdk);
    free(settings->rdma_device);
    free(settings->matrix);
    free(settings->congestion_control);
    explicit_bzero(settings, sizeof *settings);
}
