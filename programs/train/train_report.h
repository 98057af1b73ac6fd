/* The measurements of a worker: printed at the end and written as JSON. */
#ifndef SL_PROGRAMS_TRAIN_TRAIN_REPORT_H
#define SL_PROGRAMS_TRAIN_TRAIN_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "core/metric.h"
#include "core/reason.h"
#include "programs/models/model.h"

/* The requested settings. Names are static storage. */
struct sl_train_report_job {
    uint32_t worker_index, worker_count, shard_count;
    const char *model, *format, *optimizer, *protocol;
    char consistency[24];
    struct sl_optimizer_spec optimizer_spec;
    struct sl_update_spec update;
    enum sl_precision values, slots, encoding;
    struct sl_model_shape shape;
    uint32_t epochs, batch_rows;
    const char *save, *publish; /* of the model: path, name of an object; NULL: not asked for */
};

/* CPU time of the training, in seconds. In wall-clock time, waiting for a server and waiting for a
 * core look alike; here only waiting for a server costs nothing. */
struct sl_train_report_processor {
    double all;       /* of the process: the sum of the others */
    double reading;   /* loader thread: parsing rows, numbering keys */
    double computing; /* the model and its gradients */
    double calling;   /* other work of the training thread: building requests, reading replies */
    double client;    /* the client's reactors: the network */
};

struct sl_train_report {
    struct sl_train_report_job job;
    bool complete; /* the training ended by itself; false after a signal or a failure */
    uint64_t rows, batches;
    double train_loss; /* mean over the last epoch begun, each batch before its push; NaN: none */
    bool evaluated;
    uint64_t test_rows;
    double test_loss, test_auc; /* of the last evaluation */
    double best_auc, best_epoch;
    bool is_saved; /* the model with the best AUC, or the last one without test data */
    uint64_t saved_rows;

    /* From a step's submission until the trainer sees its completion, which may be later than its
     * arrival while the worker computes. A step that pushes and pulls counts in both. */
    struct sl_metric_histogram pull_ns, push_ns;
    struct sl_metric_histogram staleness; /* in iterations, of pulls used for training */
    struct sl_client_stats traffic;

    double train_seconds, evaluate_seconds;
    /* Parts of train_seconds: waiting for the loader, waiting for servers, the model, building
     * requests. */
    double reading_seconds, waiting_seconds, computing_seconds, sending_seconds;
    struct sl_train_report_processor processor;
};

void sl_train_report_init(struct sl_train_report *report);

/* Prints the report: in full for worker 0 and the evaluating worker, one line for others. Errors:
 * IO, with errno. */
int sl_train_report_print(const struct sl_train_report *report, FILE *to);

/* Returns the report path of this worker: `file` for worker 0, or if `file` is a device (all
 * reports go to it), else FILE.N. The caller frees it; NULL: no memory. */
char *sl_train_report_path(const char *file, uint32_t worker_index);

/* Checks that a report can be written to `path` later: the directory, or the device, exists and is
 * writable. Errors: those of the system, with reason. */
int sl_train_report_check(const char *path, struct sl_reason *reason);

/* Writes JSON. A regular file is written beside `path` and renamed, so that no reader sees a
 * partial file. Errors, with reason: IO and other system errors, NO_MEMORY. */
int sl_train_report_write(const struct sl_train_report *report, const char *path,
                          struct sl_reason *reason);

#endif
