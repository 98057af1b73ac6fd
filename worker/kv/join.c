#include "worker/kv/join.h"

#include <pthread.h>
#include <stdlib.h>

#include "config/client_options.h"
#include "core/log.h"
#include "net/trace.h"
#include "net/transport.h"

static int resolve(struct sl_client_options *client, struct sl_reason *reason)
{
    int err = sl_client_options_read(client, NULL, NULL, reason);
    if (err != 0) {
        return err;
    }
    const struct sl_settings *settings = sl_client_options_settings(client);
    const bool is_asked =
        settings->dmlc.in_use && settings->dmlc.rdma != NULL && settings->transports.uses_rdma;
    return sl_rdma_settings_check(&settings->rdma, is_asked, reason);
}

/* The log belongs to the process, which may have several workers: the first one sets it up. */
static pthread_once_t log_once = PTHREAD_ONCE_INIT;

static void set_up_log(void)
{
    enum sl_log_level level = SL_LOG_INFO;
    const char *text = getenv("STARLING_LOG");
    (void)(text != NULL && sl_log_parse_level(text, &level));
    sl_log_setup(level, "worker");
}

int sl_join_read(struct sl_client_options *client)
{
    struct sl_reason reason;
    *client = (struct sl_client_options)SL_CLIENT_OPTIONS_INIT;
    int err = resolve(client, &reason);
    if (err != 0) {
        sl_client_options_fini(client);
        return sl_reason_report(err, "kv: %s", reason.text);
    }
    const struct sl_settings *settings = sl_client_options_settings(client);
    (void)pthread_once(&log_once, set_up_log);
    if (settings->rdma.flaw[0] != '\0' && settings->transports.uses_rdma &&
        sl_builtin_missing(SL_ENDPOINT_RDMA) == NULL) {
        sl_log_warn("kv: %s; continues without RDMA", settings->rdma.flaw);
    }
    sl_trace_set(settings->dmlc.trace);
    client->reactor_count = 0;
    client->pin_cores = false;
    client->manual_progress = true;
    return 0;
}
