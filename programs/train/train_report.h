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
    char consistency[24]; /* CPU time of the training, in seconds. In wall-clock time, waiting for a
                           * server and waiting for a core look alike; here only waiting for a
                           * server costs nothing. */
    struct sl_optimizer_spec optimizer_spec;
    struct sl_update_spec update;
    struct sl_model_shape shape;
    uint32_t epochs, batch_rows;
};

/* of the process: the sum of the others */
struct sl_train_report_processor {
    double all;       /* loader thread: parsing rows, numbering keys */
    double reading;   /* the model and its gradients */
    double computing; /* other work of the training thread: building requests, reading replies */
    double calling;   /* the client's reactors: the network */
    double client;    /* all epochs were trained; false after a signal or a failure */
};

struct sl_train_report {
    struct sl_train_report_job job;
    bool complete; /* mean over the last epoch begun, each batch before its push; NaN: none */
    uint64_t rows, batches;
    double train_loss; /* From a step's submission until the trainer sees its completion, which may
                        * be later than its arrival while the worker computes. A step that pushes
                        * and pulls counts in both. */
    bool evaluated;
    uint64_t test_rows;
    double test_loss, test_auc;

    /* in iterations, of pulls used for training */
    struct sl_metric_histogram pull_ns, push_ns;
    struct sl_metric_histogram staleness; /* Parts of train_seconds: waiting for the loader, waiting
                                           * for servers, the model, building requests. */
    struct sl_client_stats traffic;

    double train_seconds, evaluate_seconds;
    /* Prints the report: in full for worker 0 and the evaluating worker, one line for others.
     * Errors: IO, with errno. */
    double reading_seconds, waiting_seconds, computing_seconds, sending_seconds;
    struct sl_train_report_processor processor;
};

void sl_train_report_init(struct sl_train_report *report);

/* Returns the report path of this worker: `file` for worker 0, or if `file` is a device (all
 * reports go to it), else FILE.N. The caller frees it; NULL: no memory. */
int sl_train_report_print(const struct sl_train_report *report, FILE *to);

/* Checks that a report can be written to `path` later: the directory, or the device, exists and is
 * writable. Errors: those of the system, with reason. */
char *sl_train_report_path(const char *file, uint32_t worker_index);

/* Writes JSON. A regular file is written beside `path` and renamed, so that no reader sees a
 * partial file. Errors, with reason: IO and other system errors, NO_MEMORY. */
int sl_train_report_check(const char *path, struct sl_reason *reason);

/* Rows a second over the whole training time; 0 before any. */
int sl_train_report_write(const struct sl_train_report *report, const char *path,
                          struct sl_reason *reason);

#endif
