#include "worker/kv/join.h"

#include <pthread.h>
#include <stdlib.h>

#include "config/client_options.h"
#include "core/log.h"
#include "net/trace.h"
#include "net/transport.h"

static int resolve(struct sl_client_options *client, const char *const *variables,
                   struct sl_reason *reason)
{
    int err = sl_client_options_read(client, variables, NULL, NULL, reason);
    if (err != 0) {
        return err;
    }
    const struct sl_settings *settings = sl_client_options_settings(client);
    const bool is_asked =
        settings->dmlc.in_use && settings->dmlc.rdma != NULL && settings->transports.uses_rdma;
    return sl_rdma_settings_check(&settings->rdma, is_asked, reason);
}

void sl_join_set_up_log(const struct sl_settings *settings, const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool is_set_up;
    pthread_mutex_lock(&lock);
    if (!is_set_up) {
        sl_settings_log_setup(settings, name);
        is_set_up = true;
    }
    pthread_mutex_unlock(&lock);
}

/* The variables of a server or scheduler as a client's. Returns a list to free, or NULL. */
static const char **variables_beside(const char *const *variables)
{
    static const char *const own[] = {"DMLC_ROLE=joint",
                                      "DMLC_RANK=", "DMLC_WORKER_ID=", "DMLC_GROUP_SIZE="};
    const char *role = sl_cli_variable(variables, "DMLC_ROLE");
    const size_t own_count = role == NULL || role[0] == '\0' ? 0 : sizeof own / sizeof own[0];
    size_t count = 0;
    while (variables != NULL && variables[count] != NULL) {
        count++;
    }
    const char **list = calloc(count + own_count + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < count + own_count; i++) {
        list[i] = i < count ? variables[i] : own[i - count];
    }
    return list;
}

int sl_join_read(const char *const *variables, bool beside, struct sl_client_options *client)
{
    struct sl_reason reason;
    *client = (struct sl_client_options)SL_CLIENT_OPTIONS_INIT;
    const char **list = beside ? variables_beside(variables) : NULL;
    int err = beside && list == NULL ? sl_reason_fail(&reason, SL_ERR_NO_MEMORY, "out of memory")
                                     : resolve(client, beside ? list : variables, &reason);
    free(list);
    if (err != 0) {
        sl_client_options_fini(client);
        return sl_reason_report(err, "kv: %s", reason.text);
    }
    const struct sl_settings *settings = sl_client_options_settings(client);
    sl_join_set_up_log(settings, "worker");
    sl_settings_log(settings);
    if (settings->rdma.flaw[0] != '\0' && settings->transports.uses_rdma &&
        sl_builtin_missing(SL_ENDPOINT_RDMA) == NULL) {
        sl_log_warn("kv: %s; continues without RDMA", settings->rdma.flaw);
    }
    sl_trace_set(settings->dmlc.trace);
    client->reactor_count = 0;
    client->pin_cores = false;
    client->manual_progress = true;
    client->task_index = beside ? -1 : client->task_index;
    return 0;
}
