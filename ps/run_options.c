#include "ps/run_options.h"

#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "ps/process/memory_plan.h"

static void fill_security(struct sl_run *run, struct sl_process_options *options)
{
    const struct sl_security *security = &run->settings.security;
    options->secrets.cluster = security->secret.byte_count == 0 ? NULL : &security->secret;
    options->secrets.operators =
        security->operator_secret.byte_count == 0 ? NULL : &security->operator_secret;
    run->tls = (struct sl_transport_tls){
        .certificate = security->certificate,
        .key = security->key,
        .authority = security->authority,
        .peer_name = security->peer_name,
    };
    options->tls = security->tls ? &run->tls : NULL;
}

static void fill_metastore(struct sl_run *run, struct sl_process_options *options)
{
    const struct sl_cluster_store_settings *store = &run->settings.store;
    const struct sl_security *security = &run->settings.security;
    if (!store->is_given) {
        return;
    }
    run->metastore = (struct sl_metastore_address){
        .kind = SL_METASTORE_ADDRESS_ETCD,
        .etcd = store->etcd,
        .authority = security->authority,
        .certificate = security->certificate,
        .key = security->key,
    };
    memcpy(run->metastore.user, store->user, sizeof run->metastore.user);
    memcpy(run->metastore.password, store->password, sizeof run->metastore.password);
    options->metastore = &run->metastore;
}

static void fill_http(struct sl_run *run, struct sl_process_options *options)
{
    const struct sl_http_settings *http = &run->settings.http;
    run->http = (struct sl_http_listen){
        .endpoint = http->endpoint,
        .source = http->source,
        .is_default = http->is_default,
        .token = &http->token,
        .certificate = run->settings.security.certificate,
        .key = run->settings.security.key,
    };
    options->http.listen = http->is_on ? &run->http : NULL;
    options->http.title = run->settings.title;
    options->http.linger_ns = run->settings.times.http_linger_ns;
    options->http.shown = run->settings.values;
}

/* A scheduler has no shards. */
static void fill_shards(const struct sl_settings *settings, struct sl_process_options *options)
{
    const uint32_t shards = settings->reactors.shards;
    options->reactors.count = settings->reactors.count;
    options->reactors.shards = shards == 0 || options->reactors.joins ? options->reactors.count
                                                                      : shards / options->ps_count;
    options->replicas = settings->replicas;
    options->reactors.polling = settings->reactors.polling;
    options->reactors.pin = settings->reactors.pin_cores;
    options->shm = settings->transports.uses_shm;
    options->checkpoint.directory = settings->checkpoint.dir;
}

void sl_run_options_fill(struct sl_run *run, struct sl_process_options *options)
{
    const struct sl_settings *settings = &run->settings;
    const struct sl_cluster *cluster = &settings->cluster;
    const struct sl_checkpoint_settings *checkpoint = &settings->checkpoint;
    options->task_index = cluster->task_index;
    options->any_task = cluster->task == SL_CLUSTER_TASK_ANY;
    options->reactors.joins = settings->flags.cluster.joins;
    options->ps_count = cluster->ps_count;
    options->worker_count = cluster->worker_count;
    options->worker_count_source = cluster->worker_count_source;
    options->reactors.count = options->reactors.shards = 1;
    options->memory_bytes_max = settings->memory_bytes_max;
    options->checksum = settings->checksum;
    options->times.lease_ns = settings->times.lease_ns;
    options->times.heartbeat_ns = settings->dmlc.heartbeat_interval_s * SL_CLOCK_NS_PER_S;
    options->times.start_timeout_ns = settings->times.start_timeout_ns;
    options->times.drain_timeout_ns = settings->times.drain_timeout_ns;
    options->times.slow_request_ns = settings->times.slow_request_ns;
    options->congestion_control =
        settings->congestion_control[0] == '\0' ? NULL : settings->congestion_control;
    options->rdma.device = settings->rdma.device[0] == '\0' ? NULL : settings->rdma.device;
    options->rdma.has_gid_index = settings->rdma.has_gid_index;
    options->rdma.gid_index = settings->rdma.gid_index;
    options->checkpoint = (struct sl_process_checkpoint){
        .every_ns = checkpoint->every_ns,
        .incrementals_max = checkpoint->incrementals_max,
        .keep = checkpoint->keep,
        .compression_level = checkpoint->compression_level,
        .restores = checkpoint->restore != SL_CHECKPOINT_RESTORE_NONE,
        .restore_number = checkpoint->number,
        .fallback = checkpoint->fallback,
        .policy = (enum sl_coordinator_restore_policy)checkpoint->policy,
        .fresh = checkpoint->fresh,
    };
    if (options->kind != SL_PROCESS_SCHEDULER) {
        fill_shards(settings, options);
    }
    fill_security(run, options);
    fill_metastore(run, options);
    fill_http(run, options);
}

static int take_directory(struct sl_run *run, const struct sl_process_options *options,
                          struct sl_reason *reason)
{
    const struct sl_checkpoint_settings *checkpoint = &run->settings.checkpoint;
    if (options->kind == SL_PROCESS_SCHEDULER) {
        return 0;
    }
    int err = sl_checkpoint_settings_prepare_dir(checkpoint, reason);
    if (err != 0 || options->any_task) {
        return err;
    }
    return sl_checkpoint_settings_lock_dir(checkpoint, options->task_index, &run->directory_lock,
                                           reason);
}

static int check_shards(const struct sl_settings *settings,
                        const struct sl_process_options *options, struct sl_reason *reason)
{
    const uint32_t shards = settings->reactors.shards, servers = options->ps_count;
    const uint32_t reactors = options->reactors.count;
    const bool is_first =
        options->kind == SL_PROCESS_PS && options->task_index == 0 && options->metastore == NULL;
    if (options->reactors.joins && is_first) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "--join with task index 0: ps/0 hosts the coordinator of the job; "
                              "accepts indexes from 1 on");
    }
    if (shards != 0 && options->reactors.joins) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "--shards %u with --join: the job has its shards already; leave it "
                              "out",
                              shards);
    }
    if (shards == 0 || options->kind == SL_PROCESS_SCHEDULER ||
        (shards % servers == 0 && shards / servers >= reactors &&
         shards / servers <= SL_LIMIT_REACTORS)) {
        return 0;
    }
    return sl_reason_fail(reason, SL_ERR_INVALID,
                          "--shards %u, with %u server%s of %u reactor%s: accepts multiples of %u "
                          "from %u to %u",
                          shards, servers, sl_log_plural(servers), reactors,
                          sl_log_plural(reactors), servers, servers * reactors,
                          servers * SL_LIMIT_REACTORS);
}

int sl_run_options_check(struct sl_run *run, const struct sl_process_options *options,
                         struct sl_reason *reason)
{
    struct sl_memory_plan plan;
    int err = take_directory(run, options, reason);
    err = err != 0 ? err : check_shards(&run->settings, options, reason);
    const char *flaw = sl_process_replica_flaw(options);
    if (err == 0 && flaw != NULL) {
        sl_reason_set(reason, "--replicas 1 %s", flaw);
        err = SL_ERR_INVALID;
    }
    return err != 0 ? err : sl_process_memory_plan(options, &plan, reason);
}
