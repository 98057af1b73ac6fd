/* The settings of a server process, from flags and environment, as options of ps/process. */
#ifndef SL_PS_RUN_OPTIONS_H
#define SL_PS_RUN_OPTIONS_H

#include "config/settings.h"
#include "net/http/observer.h"
#include "net/store/address.h"
#include "net/transport.h"
#include "ps/process/process.h"

/* Memory that the process options point into. */
struct sl_run {
    struct sl_settings settings;
    struct sl_transport_tls tls;
    struct sl_metastore_address metastore;
    struct sl_http_listen http;
    struct sl_dpdk_device_list *devices; /* if an endpoint is dpdk */
    int directory_lock;                  /* descriptor; -1: none */
};

/* Fills everything but the endpoints (run_endpoints.h), which must be filled. */
void sl_run_options_fill(struct sl_run *run, struct sl_process_options *options);

/* Checks replicas and memory limit. Creates and checks the checkpoint directory, and locks it if
 * the task index is known. Errors, with reason: INVALID, IN_USE. */
int sl_run_options_check(struct sl_run *run, const struct sl_process_options *options,
                         struct sl_reason *reason);

#endif
