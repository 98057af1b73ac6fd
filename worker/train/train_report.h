/* What a worker measured: printed as a block at the end, written as JSON. */
#ifndef SL_WORKER_TRAIN_TRAIN_REPORT_H
#define SL_WORKER_TRAIN_TRAIN_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "core/metric.h"
#include "worker/train/model.h"

/* What was asked for. Names are static storage. */
struct sl_train_report_job {
    uint32_t worker_index, worker_count, shard_count;
    const char *model, *format, *optimizer, *protocol;
    char consistency[24]; /* "ssp:2" */
    struct sl_optimizer_spec optimizer_spec;
    struct sl_model_shape shape;
    uint32_t epochs, batch_rows;
};

/* Processor time of the training, in seconds. By the wall clock, a worker that waits for a ps and
 * one that waits for a core look alike; here only the first costs nothing. */
struct sl_train_report_processor {
    double all;       /* of the whole process: the sum of the others */
    double reading;   /* the loader's thread: parsing rows, numbering keys */
    double computing; /* the model and its gradients */
    double calling;   /* the rest of the training thread: requests made up, answers taken */
    double client;    /* the client's reactors: the network */
};

struct sl_train_report {
    struct sl_train_report_job job;
    bool complete; /* all epochs were trained; false after a signal or a failure */
    uint64_t rows, batches;
    double train_loss; /* mean over the last epoch begun, each batch before its push; NaN: none */
    bool evaluated;
    uint64_t test_rows;
    double test_loss, test_auc;

    /* A step that both pushes and pulls counts in both. From its submission until its answer was
     * seen, which is later than it came when the worker was computing. */
    struct sl_metric_histogram pull_ns, push_ns;
    struct sl_metric_histogram staleness; /* in steps, of the pulls that were trained on */
    struct sl_client_stats traffic;

    double train_seconds, evaluate_seconds;
    /* Parts of train_seconds: for the loader, for the ps, for the model, for making up requests. */
    double reading_seconds, waiting_seconds, computing_seconds, sending_seconds;
    struct sl_train_report_processor processor;
};

void sl_train_report_init(struct sl_train_report *report);

/* Prints the block for people: whole for worker 0 and for the worker that evaluated, one line for
 * any other. Errors: IO, with errno. */
int sl_train_report_print(const struct sl_train_report *report, FILE *to);

/* The file of this worker's report: `file` for worker 0, and where `file` is a device, which takes
 * all reports; else FILE.N. The caller's to free; NULL: no memory. */
char *sl_train_report_path(const char *file, uint32_t worker_index);

/* Whether a report can be written to `path` later: its folder, or a device of that name, is there
 * and may be written to. Errors: those of the system, with reason. */
int sl_train_report_check(const char *path, char *reason, size_t reason_bytes);

/* Writes JSON, a regular file beside `path` first and renamed then, so that nobody sees half of it.
 * Errors: IO and other system errors, NO_MEMORY, with reason. */
int sl_train_report_write(const struct sl_train_report *report, const char *path, char *reason,
                          size_t reason_bytes);

/* Rows a second over all of the training time; 0 before any. */
double sl_train_report_rows_per_second(const struct sl_train_report *report);

#endif
