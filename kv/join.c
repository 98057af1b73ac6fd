#include "kv/join.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config/cluster_store_settings.h"
#include "config/dmlc.h"
#include "config/env.h"
#include "core/log.h"
#include "net/trace.h"
#include "net/transport.h"
#include "reactor/topology.h"

static int resolve(struct sl_join *join, struct sl_env *env, struct sl_dmlc *dmlc, char *reason,
                   size_t reason_bytes)
{
    struct sl_cluster_store_settings store = {0};
    const struct sl_cluster_flags no_flags = {.task_index = -1};
    const struct sl_security_flags no_security = {0};
    const struct sl_rdma_settings_flags no_rdma = {0};
    const struct sl_cli_list no_dpdk = {0};
    int err = sl_env_read(sl_topology_core_count(), env, reason, reason_bytes);
    if (err == 0) {
        err = sl_dmlc_read(dmlc, reason, reason_bytes);
    }
    if (err == 0) {
        err = sl_rdma_settings_read(&no_rdma, &join->rdma, reason, reason_bytes);
    }
    if (err == 0) {
        err = sl_dpdk_settings_read(&no_dpdk, &join->dpdk, reason, reason_bytes);
    }
    if (err == 0) {
        err = sl_cluster_resolve(SL_CLUSTER_WORKER, &no_flags, getenv("TF_CONFIG"), dmlc,
                                 &join->cluster, reason, reason_bytes);
    }
    if (err == 0) {
        const bool is_asked = dmlc->in_use && dmlc->rdma != NULL && env->rdma;
        err = sl_rdma_settings_check(&join->rdma, is_asked, reason, reason_bytes);
    }
    if (err == 0) {
        err = sl_security_resolve(&no_security, getenv(SL_SECURITY_SECRET_VARIABLE),
                                  &join->security, reason, reason_bytes);
    }
    if (err == 0) {
        err = sl_cluster_store_settings_read(NULL, &store, reason, reason_bytes);
    }
    if (err == 0) {
        join->coordinator = sl_cluster_places(&join->cluster, store.is_given);
        err = join->coordinator == NULL ? SL_ERR_NO_MEMORY : 0;
    }
    return err;
}

static void fill_options(struct sl_join *join, const struct sl_env *env, const struct sl_dmlc *dmlc)
{
    sl_trace_set(dmlc->trace);
    memcpy(join->congestion_control, env->congestion_control, sizeof join->congestion_control);
    join->client = (struct sl_client_options){
        .coordinator = join->coordinator,
        .task_index =
            join->cluster.any_task ? SL_CLIENT_ANY_TASK : (int32_t)join->cluster.task_index,
        .server_count = join->cluster.ps_count,
        .worker_count = join->cluster.worker_count,
        .heartbeat_ms = dmlc->heartbeat_interval_s * 1000,
        .polling = env->worker_polling,
        .manual_progress = true,
        .congestion_control = join->congestion_control[0] == '\0' ? NULL : join->congestion_control,
        .secret = join->security.secret.byte_count == 0 ? NULL : join->security.secret.bytes,
        .secret_bytes = join->security.secret.byte_count,
        .disable_shm = !env->shm,
        .disable_rdma = !env->rdma || join->rdma.flaw[0] != '\0',
        .rdma_device = join->rdma.device[0] == '\0' ? NULL : join->rdma.device,
        .has_rdma_gid_index = join->rdma.has_gid_index,
        .rdma_gid_index = join->rdma.gid_index,
        .dpdk_device = join->dpdk.text[0] == '\0' ? NULL : join->dpdk.text,
    };
}

/* The log belongs to the process, which may have several workers: the first one sets it up. */
static pthread_once_t log_once = PTHREAD_ONCE_INIT;

static void set_up_log(void)
{
    char reason[1024];
    struct sl_env env;
    if (sl_env_read(sl_topology_core_count(), &env, reason, sizeof reason) == 0) {
        sl_log_setup(env.log_level, "worker");
    }
}

int sl_join_read(struct sl_join *join)
{
    char reason[1024];
    struct sl_env env;
    struct sl_dmlc dmlc;
    *join = (struct sl_join){0};
    int err = resolve(join, &env, &dmlc, reason, sizeof reason);
    if (err != 0) {
        sl_log_error("kv: %s", reason);
        sl_join_fini(join);
        return err;
    }
    (void)pthread_once(&log_once, set_up_log);
    if (join->rdma.flaw[0] != '\0' && env.rdma && sl_builtin_missing(SL_ENDPOINT_RDMA) == NULL) {
        sl_log_warn("kv: %s; continues without RDMA", join->rdma.flaw);
    }
    fill_options(join, &env, &dmlc);
    return 0;
}

void sl_join_fini(struct sl_join *join)
{
    free(join->coordinator);
    sl_cluster_fini(&join->cluster);
    explicit_bzero(&join->security, sizeof join->security);
}
