#include "ps/run_endpoints.h"

#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "net/dpdk/device_list.h"

/* Pause between attempts to find a route to the scheduler. */
#define FIND_HOST_PAUSE_US 500000

/* control, data, bypass */
#define ENDPOINTS_MAX      3

/* Peers cannot connect to a wildcard address: the cluster should name the host. */
static void warn_wildcard(const struct sl_endpoint *endpoint)
{
    if (sl_endpoint_is_any(endpoint)) {
        sl_log_warn("workers will connect to %s: name the host, unless it is theirs",
                    endpoint->host);
    }
}

/* Lists the endpoints that other users or hosts can reach. */
static uint32_t run_endpoints_list_endpoints(const struct sl_process_options *options,
                                             const struct sl_endpoint *endpoints[ENDPOINTS_MAX])
{
    uint32_t count = 0;
    if (options->kind != SL_PROCESS_SERVER) {
        endpoints[count++] = &options->endpoints.control;
    }
    bool has_data =
        options->kind != SL_PROCESS_SCHEDULER &&
        options->endpoints.data.scheme != SL_ENDPOINT_SHM; /* reachable by the same user only */
    if (has_data) {
        endpoints[count++] = &options->endpoints.data;
    }
    if (options->endpoints.has_bypass) {
        endpoints[count++] = &options->endpoints.bypass;
    }
    return count;
}

static void warn_insecure(const struct sl_process_options *options)
{
    const struct sl_endpoint *endpoints[ENDPOINTS_MAX];
    uint32_t count = run_endpoints_list_endpoints(options, endpoints);
    const struct sl_endpoint *endpoint = NULL;
    for (uint32_t i = 0; i < count && endpoint == NULL; i++) {
        endpoint = sl_endpoint_is_loopback(endpoints[i]) ? NULL : endpoints[i];
    }
    bool is_open = options->secrets.cluster == NULL && options->tls == NULL;
    if (is_open && endpoint != NULL) {
        char text[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(endpoint, text, sizeof text);
        sl_log_warn("--insecure: everyone who reaches %s can read and change the parameters", text);
    }
}

/* Retries until the start timeout: the scheduler's name may not resolve yet when all processes
 * start together. Errors: DEADLINE, those of sl_dmlc_find_host. */
static int find_host(const struct sl_settings *settings, char host[SL_LIMIT_ENDPOINT_BYTES],
                     struct sl_reason *reason)
{
    const struct sl_clock *clock = sl_clock_system();
    uint64_t until_ns = sl_clock_now_ns(clock) + settings->times.start_timeout_ns;
    int err = sl_dmlc_find_host(&settings->dmlc, host, reason);
    for (uint32_t i = 0; err == SL_ERR_NOT_FOUND && sl_clock_now_ns(clock) < until_ns; i++) {
        if (i % 4 == 0) {
            sl_log_info("%s; retrying", reason->text);
        }
        (void)usleep(FIND_HOST_PAUSE_US);
        err = sl_dmlc_find_host(&settings->dmlc, host, reason);
    }
    return err == SL_ERR_NOT_FOUND ? SL_ERR_DEADLINE : err;
}

int sl_run_endpoints_fill(const struct sl_run *run, struct sl_process_options *options,
                          struct sl_reason *reason)
{
    const struct sl_cluster *cluster = &run->settings.cluster;
    options->coordinator = cluster->coordinator;
    if (cluster->role == SL_CLUSTER_SCHEDULER) {
        options->kind = SL_PROCESS_SCHEDULER;
        options->endpoints.control = cluster->coordinator;
        return 0;
    }
    if (!cluster->has_scheduler) {
        options->kind = SL_PROCESS_PS;
        options->endpoints.control = cluster->ps[cluster->task_index].control;
        options->endpoints.data = cluster->ps[cluster->task_index].data;
        options->endpoints.bypass = cluster->ps[cluster->task_index].bypass;
        options->endpoints.has_bypass = cluster->ps[cluster->task_index].has_bypass;
        return 0;
    }
    options->kind = SL_PROCESS_SERVER;
    options->endpoints.data.scheme = SL_ENDPOINT_TCP;
    options->endpoints.data.port = (uint16_t)run->settings.dmlc.port;
    return find_host(&run->settings, options->endpoints.data.host, reason);
}

/* Errors: UNSUPPORTED. */
static int check_transport(const struct sl_process_options *options, struct sl_reason *reason)
{
    const char *missing = options->kind == SL_PROCESS_SCHEDULER
                              ? NULL
                              : sl_builtin_missing(options->endpoints.data.scheme);
    if (missing == NULL) {
        return 0;
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&options->endpoints.data, text, sizeof text);
    const bool is_rdma = options->endpoints.data.scheme == SL_ENDPOINT_RDMA;
    const enum sl_endpoint_scheme other = is_rdma ? SL_ENDPOINT_DPDK : SL_ENDPOINT_RDMA;
    const char *also = sl_builtin_missing(other) != NULL ? "" : is_rdma ? ", dpdk" : ", rdma";
    sl_reason_set(reason,
                  "data endpoint %s: %s; accepts tcp, shm%s here (`starling-ps doctor --transport "
                  "%.*s` has details)",
                  text, missing, also, (int)strcspn(text, ":"), text);
    return SL_ERR_UNSUPPORTED;
}

/* Adds an RDMA or DPDK endpoint beside TCP, at the address of the device. */
static int settle_beside(const struct sl_run *run, struct sl_process_options *options, bool is_rdma,
                         struct sl_reason *reason)
{
    const bool is_dpdk = run->settings.dpdk.text[0] != '\0';
    if (options->endpoints.has_bypass || options->endpoints.data.scheme != SL_ENDPOINT_TCP ||
        !(is_rdma || is_dpdk)) {
        return 0;
    }
    if (is_rdma && is_dpdk) {
        sl_reason_set(reason, "RDMA and a --dpdk-device (or STARLING_DPDK_DEVICE) are both given: "
                              "only one of them is possible beside TCP");
        return SL_ERR_INVALID;
    }
    options->endpoints.has_bypass = true;
    options->endpoints.bypass = options->endpoints.data;
    options->endpoints.bypass.scheme = SL_ENDPOINT_RDMA;
    options->endpoints.bypass.port = 0;
    if (is_dpdk) {
        options->endpoints.bypass.scheme = SL_ENDPOINT_DPDK;
        options->endpoints.bypass.port = SL_DPDK_PORT_BASE;
        memcpy(options->endpoints.bypass.host, run->settings.dpdk.first.host,
               sizeof run->settings.dpdk.first.host);
    }
    return 0;
}

/* Warns only: many servers may share one environment, so an unused device is no error. */
static void note_unused(const struct sl_run *run, const struct sl_process_options *options,
                        const char *data)
{
    const bool is_used =
        options->endpoints.data.scheme == SL_ENDPOINT_DPDK ||
        (options->endpoints.has_bypass ? options->endpoints.bypass.scheme == SL_ENDPOINT_DPDK
                                       : options->endpoints.data.scheme == SL_ENDPOINT_TCP);
    if (run->settings.dpdk.text[0] != '\0' && !is_used) {
        sl_log_warn("--dpdk-device (or STARLING_DPDK_DEVICE) has no effect: the endpoint map has "
                    "%s and no dpdk endpoint",
                    data);
    }
    if (run->settings.transports.offers_rdma && options->endpoints.has_bypass &&
        options->endpoints.bypass.scheme != SL_ENDPOINT_RDMA) {
        sl_log_warn("--rdma has no effect: the endpoint map names another transport beside %s",
                    data);
    }
}

/* Applies the flags and DMLC variables, unless the endpoint map sets the bypass endpoint. Errors:
 * INVALID. */
static int settle_bypass(const struct sl_run *run, struct sl_process_options *options,
                         struct sl_reason *reason)
{
    if (options->kind == SL_PROCESS_SCHEDULER) {
        return 0; /* serves no data */
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&options->endpoints.data, text, sizeof text);
    if (run->settings.transports.offers_rdma && !run->settings.transports.uses_rdma) {
        sl_log_info("STARLING_RDMA=0 has precedence over --rdma: no RDMA beside TCP");
    }
    if (run->settings.transports.offers_rdma && options->endpoints.data.scheme == SL_ENDPOINT_SHM) {
        sl_reason_set(reason,
                      "--rdma contradicts the data endpoint %s: RDMA is possible beside TCP only",
                      text);
        return SL_ERR_INVALID;
    }
    note_unused(run, options, text);
    const bool by_dmlc = options->kind == SL_PROCESS_SERVER && run->settings.dmlc.rdma != NULL;
    const bool is_rdma =
        (run->settings.transports.offers_rdma || by_dmlc) && run->settings.transports.uses_rdma;
    int err = settle_beside(run, options, is_rdma, reason);
    if (err != 0) {
        return err;
    }
    const bool is_bypass_rdma =
        options->endpoints.has_bypass && options->endpoints.bypass.scheme == SL_ENDPOINT_RDMA;
    options->endpoints.has_bypass =
        options->endpoints.has_bypass && (!is_bypass_rdma || run->settings.transports.uses_rdma);
    return sl_rdma_settings_check(&run->settings.rdma,
                                  (is_bypass_rdma && run->settings.transports.uses_rdma) ||
                                      options->endpoints.data.scheme == SL_ENDPOINT_RDMA,
                                  reason);
}

/* Creates the device list of a dpdk endpoint. If no device matches, a bypass endpoint is dropped; a
 * data endpoint is an error. Errors: INVALID, TOO_LARGE, NO_MEMORY. */
static int settle_dpdk(struct sl_run *run, struct sl_process_options *options,
                       struct sl_reason *reason)
{
    const bool is_bypass =
        options->endpoints.has_bypass && options->endpoints.bypass.scheme == SL_ENDPOINT_DPDK;
    const bool is_data =
        options->kind != SL_PROCESS_SCHEDULER && options->endpoints.data.scheme == SL_ENDPOINT_DPDK;
    if (!is_bypass && !is_data) {
        return 0;
    }
    const struct sl_endpoint *endpoint =
        is_bypass ? &options->endpoints.bypass : &options->endpoints.data;
    struct sl_reason why;
    char text[SL_LIMIT_ENDPOINT_BYTES];
    int err = sl_dpdk_device_list_create(run->settings.dpdk.text, endpoint, &run->devices, &why);
    sl_endpoint_format(endpoint, text, sizeof text);
    if (err != 0) {
        sl_reason_set(reason, "data endpoint %s: %s", text, why.text);
        return err;
    }
    options->dpdk = sl_dpdk_device_list_options(run->devices);
    if (run->devices != NULL && sl_dpdk_device_list_has(run->devices, endpoint)) {
        return 0;
    }
    sl_reason_set(reason,
                  "data endpoint %s: no device has this address: give it with --dpdk-device "
                  "DEVICE?addr=%s, or the endpoint dpdk://DEVICE?addr=%s&port=%u",
                  text, endpoint->host, endpoint->host, endpoint->port);
    if (is_bypass) {
        sl_log_warn("%s: workers connect over the other data endpoint", reason->text);
        options->endpoints.has_bypass = false;
        return 0;
    }
    return SL_ERR_INVALID;
}

static int check_endpoints(const struct sl_run *run, const struct sl_process_options *options,
                           struct sl_reason *reason)
{
    const bool is_allowed = run->settings.security.secret.byte_count != 0 || run->settings.insecure;
    const struct sl_endpoint *endpoints[ENDPOINTS_MAX];
    uint32_t count = run_endpoints_list_endpoints(options, endpoints);
    int err = 0;
    for (uint32_t i = 0; i < count && err == 0; i++) {
        err = sl_security_check_exposure(
            is_allowed, endpoints[i] == &options->endpoints.control ? "control" : "data",
            endpoints[i], reason);
    }
    return err;
}

int sl_run_endpoints_check(struct sl_run *run, struct sl_process_options *options,
                           struct sl_reason *reason)
{
    int err = settle_bypass(run, options, reason);
    err = err != 0 ? err : check_transport(options, reason);
    err = err != 0 ? err : settle_dpdk(run, options, reason);
    return err != 0 ? err : check_endpoints(run, options, reason);
}

void sl_run_endpoints_warn(const struct sl_process_options *options)
{
    warn_wildcard(&options->endpoints.data);
    warn_insecure(options);
}
