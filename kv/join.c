#include "kv/join.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/log.h"
#include "core/reason.h"
#include "net/trace.h"
#include "net/transport.h"
#include "reactor/topology.h"

static int resolve(struct sl_join *join, struct sl_reason *reason)
{
    struct sl_settings *settings = &join->settings;
    const struct sl_cli variables_only = {.program = "kv"};
    int err = sl_settings_read(SL_PROGRAM_WORKER, sl_topology_core_count(), variables_only, 0, NULL,
                               settings, reason);
    if (err == 0) {
        const bool is_asked =
            settings->dmlc.in_use && settings->dmlc.rdma != NULL && settings->uses_rdma;
        err = sl_rdma_settings_check(&settings->rdma, is_asked, reason);
    }
    if (err == 0) {
        join->coordinator = sl_cluster_places(&settings->cluster, settings->store.is_given);
        err = join->coordinator == NULL ? SL_ERR_NO_MEMORY : 0;
    }
    return err;
}

/* The log belongs to the process, which may have several workers: the first one sets it up. */
static pthread_once_t log_once = PTHREAD_ONCE_INIT;

static void set_up_log(void)
{
    enum sl_log_level level = SL_LOG_INFO;
    const char *text = getenv("STARLING_LOG"); /* valid: sl_settings_read */
    (void)(text != NULL && sl_log_parse_level(text, &level));
    sl_log_setup(level, "worker");
}

int sl_join_read(struct sl_join *join)
{
    struct sl_reason reason;
    *join = (struct sl_join){0};
    const struct sl_settings *settings = &join->settings;
    int err = resolve(join, &reason);
    if (err != 0) {
        sl_log_error("kv: %s", reason.text);
        sl_join_fini(join);
        return err;
    }
    (void)pthread_once(&log_once, set_up_log);
    if (settings->rdma.flaw[0] != '\0' && settings->uses_rdma &&
        sl_builtin_missing(SL_ENDPOINT_RDMA) == NULL) {
        sl_log_warn("kv: %s; continues without RDMA", settings->rdma.flaw);
    }
    sl_trace_set(settings->dmlc.trace);
    sl_settings_client(settings, &join->client);
    join->client.coordinator = join->coordinator;
    join->client.reactor_count = 0;
    join->client.pin_cores = false;
    join->client.manual_progress = true;
    return 0;
}

void sl_join_fini(struct sl_join *join)
{
    free(join->coordinator);
    sl_settings_fini(&join->settings);
}
