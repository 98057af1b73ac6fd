/* The command line of starling-worker. Part of the program, not of a library. Called once, before
 * start. */
#ifndef SL_WORKER_TRAIN_FLAGS_H
#define SL_WORKER_TRAIN_FLAGS_H

#include <stdbool.h>

#include "config/settings.h"
#include "worker/train/model.h"
#include "worker/train/reader.h"

/* Strings point into argv or static storage. */
struct sl_flags {
    struct sl_settings settings; /* resolved */
    struct sl_cli_list data;     /* may be empty */
    const char *test;            /* or NULL */
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
    const char *report; /* or NULL */
    bool quiet;
};

/* Reads flags and environment. Returns as sl_cli_parse. *out needs fini after an error too. */
int sl_flags_parse(int argc, char **argv, struct sl_flags *out, char *reason, size_t reason_bytes);
void sl_flags_fini(struct sl_flags *flags);

#endif
