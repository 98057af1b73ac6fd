/* The command line of starling-worker. Part of the program, not of a library. Called once, before
 * start. */
#ifndef SL_WORKER_TRAIN_FLAGS_H
#define SL_WORKER_TRAIN_FLAGS_H

#include <stdbool.h>

#include "config/cli.h"
#include "config/cluster.h"
#include "config/dpdk_settings.h"
#include "config/rdma_settings.h"
#include "config/security.h"
#include "worker/train/model.h"
#include "worker/train/reader.h"

/* Strings point into argv or static storage. */
struct sl_flags {
    struct sl_cluster_flags cluster;
    struct sl_security_flags security;
    const char *store; /* config/cluster_store_settings.h */
    struct sl_rdma_settings_flags rdma;
    struct sl_cli_list dpdk; /* --dpdk-device */
    struct sl_cli_list data; /* may be empty */
    const char *test;        /* or NULL */
    const struct sl_reader_format *format;
    const struct sl_model *model;
    struct sl_model_shape shape; /* `fields` 0: not given */
    const char *optimizer_name;
    struct sl_optimizer_spec optimizer;
    struct sl_consistency_spec consistency; /* without worker_count */
    const char *protocol_name;
    enum sl_protocol protocol;
    uint32_t epochs, batch_rows;
    uint32_t step_timeout_ms, start_timeout_ms, barrier_timeout_ms;
    bool checksum;
    const char *report; /* or NULL */
    bool quiet;
};

/* Returns as sl_cli_parse; writes *out only with SL_CLI_RUN. */
int sl_flags_parse(int argc, char **argv, struct sl_flags *out, char *reason, size_t reason_bytes);
void sl_flags_fini(struct sl_flags *flags);

#endif
