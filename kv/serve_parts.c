#include "kv/serve_parts.h"

#include <stdio.h>
#include <string.h>

#include "config/checkpoint_settings.h"
#include "config/cluster_store_settings.h"
#include "config/security.h"
#include "core/log.h"
#include "net/transport.h"
#include "ps/metastore/etcd.h"
#include "ps/process/memory_plan.h"
#include "ps/process/process.h"
#include "reactor/topology.h"

_Static_assert(SL_CLUSTER_STORE_SETTINGS_SERVERS == SL_ETCD_SERVERS_MAX, "servers of a store");

int sl_serve_parts_check_data(const struct sl_process_options *options, char *reason,
                              size_t reason_bytes)
{
    const char *missing =
        options->kind == SL_PROCESS_SCHEDULER ? NULL : sl_builtin_missing(options->data.scheme);
    if (missing == NULL) {
        return 0;
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&options->data, text, sizeof text);
    const bool is_rdma = options->data.scheme == SL_ENDPOINT_RDMA;
    const enum sl_endpoint_scheme other = is_rdma ? SL_ENDPOINT_DPDK : SL_ENDPOINT_RDMA;
    const char *also = sl_builtin_missing(other) != NULL ? "" : is_rdma ? ", dpdk" : ", rdma";
    (void)snprintf(reason, reason_bytes,
                   "data endpoint %s: %s; accepts tcp, shm%s here (`starling-ps doctor "
                   "--transport %.*s` says more)",
                   text, missing, also, (int)strcspn(text, ":"), text);
    return SL_ERR_UNSUPPORTED;
}

void sl_serve_parts_store(const struct sl_cluster_store_settings *settings,
                          const struct sl_security *security, struct sl_etcd_options *out)
{
    *out = (struct sl_etcd_options){
        .server_count = settings->server_count,
        .tls = settings->tls,
        .authority = security->tls ? security->authority : NULL,
        .certificate = security->tls ? security->certificate : NULL,
        .key = security->tls ? security->key : NULL,
    };
    memcpy(out->servers, settings->servers, sizeof out->servers);
    memcpy(out->user, settings->user, sizeof out->user);
    memcpy(out->password, settings->password, sizeof out->password);
}

int sl_serve_parts_take_folder(const struct sl_checkpoint_settings *checkpoint,
                               const struct sl_process_options *options, int *lock, char *reason,
                               size_t reason_bytes)
{
    if (options->kind == SL_PROCESS_SCHEDULER) {
        return 0;
    }
    int err = sl_checkpoint_settings_check(checkpoint, reason, reason_bytes);
    if (err != 0 || options->any_task) {
        return err;
    }
    return sl_checkpoint_settings_lock(checkpoint, options->task_index, lock, reason, reason_bytes);
}

int sl_serve_parts_check_memory(const struct sl_process_options *options, char *reason,
                                size_t reason_bytes)
{
    struct sl_memory_plan plan;
    return sl_process_memory_plan(options, &plan, reason, reason_bytes);
}

void sl_serve_parts_warn_cores(const struct sl_process_options *options)
{
    const uint32_t cores = sl_topology_core_count();
    if (options->reactor_count > cores) {
        sl_log_warn("NETWORK_PS_CORE_NUMBER=%u, but there are %u cores%s", options->reactor_count,
                    cores,
                    options->polling ? ": reactors that poll take the cores from each other" : "");
    }
}
