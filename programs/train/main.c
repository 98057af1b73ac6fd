/* starling-worker trains a click-through model on its share of the data, with the parameters on the
 * servers. Exit status: 0 done, 1 failed, 2 invalid flag or variable, 128 + the signal after SIGINT
 * or SIGTERM. `starling-worker predict` scores data with a saved model; `starling-worker generate`
 * writes data to train on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/end_signals.h"
#include "core/log.h"
#include "core/rlimit.h"
#include "net/trace.h"
#include "net/transport.h"
#include "programs/train/data_files.h"
#include "programs/train/evaluate.h"
#include "programs/train/flags.h"
#include "programs/train/generate.h"
#include "programs/train/model_file_save.h"
#include "programs/train/observe.h"
#include "programs/train/predict.h"
#include "programs/train/publisher.h"
#include "programs/train/trainer.h"
#include "reactor/topology.h"

enum { EXIT_FAILED = 1, EXIT_SIGNAL = 128 };

/* Time after a signal to finish the step and disconnect. Longer than the 1 to 1.5 s between
 * reconnects, so that a server cut off for a moment is reached again. Shorter than the 10 s after
 * which a container runtime kills a stopping container. */
#define STOP_SECONDS  5
#define LEAVE_SECONDS 2 /* more, to leave when the model could not be saved in that time */

struct job {
    struct sl_flags flags;
    struct sl_trainer_options options;
    struct sl_data_files data_files, test_files;
    struct sl_reader_options test; /* evaluation data */
    struct sl_reader *train;
    struct sl_train_report report;
    struct sl_train_metrics metrics;
    struct sl_http_listen listen;
    struct sl_observe *observe;
};

static volatile sig_atomic_t caught_signal;
static volatile sig_atomic_t
    waiting; /* for other processes: a signal may end the process at once */

static volatile sig_atomic_t saving;        /* the model */
static volatile sig_atomic_t save_too_late; /* gives it up */

static void train_main_on_signal(int number)
{
    if (waiting != 0) {
        _exit(EXIT_SIGNAL + sl_end_signals_number(number));
    }
    if (caught_signal == 0) { /* a launcher and a control group may both send it */
        caught_signal = sl_end_signals_number(number);
        (void)alarm(STOP_SECONDS);
    }
}

static void train_main_on_quit(int number)
{
    _exit(EXIT_SIGNAL + number);
}

/* The last step has not completed in time: a server may be down. The training thread sleeps in the
 * step and other threads may be in any state, so the process exits without a goodbye. It then
 * expires and can be replaced. */
static void on_alarm(int number)
{
    static const char text[] = "starling-worker: asked to stop, but its pending operations do not "
                               "complete: exits without a goodbye\n";
    if (saving != 0) {
        saving = 0;
        save_too_late = 1;
        (void)alarm(LEAVE_SECONDS);
        return;
    }
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written; /* no further way to report */
    _exit(EXIT_SIGNAL + caught_signal);
}

/* Repeated signals have no effect; SIGQUIT exits at once. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = train_main_on_quit};
    sl_end_signals_catch(train_main_on_signal, 0);
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGQUIT, &action, NULL);
    action = (struct sigaction){.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGALRM, &action, NULL);
}

/* Returns a data endpoint of the endpoint map that has this scheme only, or NULL. */
static const struct sl_endpoint *find_only(const struct job *job, enum sl_endpoint_scheme scheme)
{
    for (uint32_t i = 0;
         job->flags.settings.cluster.ps != NULL && i < job->flags.settings.cluster.ps_count; i++) {
        if (job->flags.settings.cluster.ps[i].data.scheme == scheme) {
            return &job->flags.settings.cluster.ps[i].data;
        }
    }
    return NULL;
}

/* By the endpoint map or the DMLC variable. */
static bool asks_for_rdma(const struct job *job)
{
    return (job->flags.settings.dmlc.in_use && job->flags.settings.dmlc.rdma != NULL &&
            job->flags.settings.transports.uses_rdma) ||
           find_only(job, SL_ENDPOINT_RDMA) != NULL;
}

/* A server that is reachable over DPDK only needs a device of this worker. */
static int check_dpdk(const struct job *job, struct sl_reason *reason)
{
    const struct sl_endpoint *only = find_only(job, SL_ENDPOINT_DPDK);
    const char *missing = sl_builtin_missing(SL_ENDPOINT_DPDK);
    if (only == NULL || (missing == NULL && job->flags.settings.dpdk.text[0] != '\0')) {
        return 0;
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(only, text, sizeof text);
    sl_reason_set(reason, "data endpoint %s: %s", text,
                  missing != NULL ? missing
                                  : "this worker needs a device to get there: --dpdk-device "
                                    "DEVICE?addr=A, or STARLING_DPDK_DEVICE");
    return missing != NULL ? SL_ERR_UNSUPPORTED : SL_ERR_INVALID;
}

static int check_settings(const struct job *job, struct sl_reason *reason)
{
    const struct sl_settings *settings = &job->flags.settings;
    int err = sl_rdma_settings_check(&settings->rdma, asks_for_rdma(job), reason);
    err = err != 0 ? err : check_dpdk(job, reason);
    if (err == 0 && settings->cluster.worker_count == 0) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "the number of workers is unknown: give --num-workers (or "
                             "--worker-hosts), TF_CONFIG or DMLC_NUM_WORKER");
    }
    return err;
}

static struct sl_reader_options reader_options(const struct sl_flags *flags,
                                               const struct sl_data_files *files)
{
    return (struct sl_reader_options){.format = flags->format,
                                      .paths = (const char *const *)files->paths,
                                      .path_count = files->count,
                                      .share_count = 1};
}

/* Reads the first row of the data, the same for every worker, and counts its features; features_max
 * as in sl_reader_options. Data without a row is an error: the job would succeed without any
 * training. */
static int read_first_row(const struct job *job, uint32_t features_max, uint32_t *feature_count,
                          struct sl_reason *reason)
{
    struct sl_reader_options options = reader_options(&job->flags, &job->data_files);
    struct sl_reader *reader;
    options.features_max = features_max;
    options.is_silent = true;
    int err = sl_reader_open(&options, &reader, reason);
    if (err != 0) {
        return err;
    }
    const struct sl_reader_row *row;
    int got = sl_reader_next(reader, &row);
    if (got < 0) {
        sl_reason_set(reason, "%s", sl_reader_reason(reader));
    } else if (got == 0) {
        sl_reason_set(reason, "--data %s%s: there is no row to train on", job->data_files.paths[0],
                      job->data_files.count > 1 ? " and the other files" : "");
        got = SL_ERR_INVALID;
    } else {
        *feature_count = row->feature_count > 0 ? row->feature_count : 1;
    }
    sl_reader_close(&reader);
    return got < 0 ? got : 0;
}

/* Workers may share a terminal: only one shows a progress bar. */
static void set_index(struct job *job, uint32_t index)
{
    job->flags.settings.cluster.task_index = index;
    job->options.worker_index = index;
    job->options.quiet = job->flags.training.quiet || (index > 0 && isatty(STDERR_FILENO) == 1);
}

/* sl_trainer_save_fn. It gets the time of a stop: an incomplete file has no name. */
static int save_model(void *ctx, struct sl_table *const *tables, const struct sl_table_spec *specs,
                      uint32_t table_count, uint64_t *rows)
{
    const struct job *job = ctx;
    struct sl_reason reason;
    const struct sl_model_file_source source = {.client = job->options.client,
                                                .model = job->options.model,
                                                .shape = &job->options.shape,
                                                .format = job->flags.format,
                                                .tables = tables,
                                                .specs = specs,
                                                .table_count = table_count,
                                                .timeout_ms = job->options.step_timeout_ms,
                                                .stop = &save_too_late};
    saving = 1;
    const int err = sl_model_file_save(&source, job->flags.save, rows, &reason);
    saving = 0;
    if (err == SL_ERR_CANCELLED) {
        sl_log_error("--save: %s, and not saved within %d s; starling-ps --checkpoint-dir keeps a "
                     "model of any size",
                     reason.text, STOP_SECONDS);
    } else if (err != 0) {
        sl_log_error("--save: %s", reason.text);
    } else {
        sl_log_info("saved %s: %llu rows", job->flags.save, (unsigned long long)*rows);
    }
    return err;
}

static int read_options(struct job *job, struct sl_reason *reason)
{
    const struct sl_flags *flags = &job->flags;
    if (flags->data.count == 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "--data is missing: name the files to train on");
    }
    job->options = flags->training;
    job->options.worker_count = job->flags.settings.cluster.worker_count;
    job->options.stop = &caught_signal;
    job->options.waiting = &waiting;
    job->options.clock = sl_clock_system();
    job->options.cells = &job->metrics.cells;
    set_index(job, job->flags.settings.cluster.task_index);
    job->options.save = flags->save == NULL ? NULL : save_model;
    job->options.save_ctx = job;
    return flags->report == NULL ? 0 : sl_train_report_check(flags->report, reason);
}

/* Worker 0, the most likely one, evaluates and saves the model. */
static bool is_first(const struct job *job)
{
    const struct sl_cluster *cluster = &job->flags.settings.cluster;
    return cluster->task_index == 0 &&
           (cluster->task != SL_CLUSTER_TASK_ANY || job->options.client != NULL);
}

/* The first worker reads all test data before the training: bad data must not cost a trained model.
 * Only that worker needs to have the files. */
static int check_test_data(struct job *job, struct sl_reason *reason)
{
    job->test = reader_options(&job->flags, &job->test_files);
    job->test.features_max = job->options.shape.fields;
    job->options.test = &job->test;
    if (!is_first(job)) {
        return 0;
    }
    const int err = sl_evaluate_check(&job->test, reason);
    job->test.is_silent = true; /* the check has warned */
    return err;
}

static int list_files(struct sl_data_files *files, const struct sl_cli_list *values,
                      struct sl_reason *reason)
{
    int err = 0;
    sl_data_files_fini(files);
    for (uint32_t i = 0; err == 0 && i < values->count; i++) {
        err = sl_data_files_add(files, values->items[i], reason);
    }
    return err;
}

/* Runs before any wait for the cluster, so that a misspelt file name fails at once. */
static int open_data(struct job *job, struct sl_reason *reason)
{
    const struct sl_flags *flags = &job->flags;
    struct sl_model_shape *shape = &job->options.shape;
    uint32_t first_row_features = 0;
    if (shape->fields == 0) {
        shape->fields = flags->format->field_count;
    }
    const bool counts = shape->fields == 0 && flags->training.model == &sl_model_deepfm;
    int err = list_files(&job->data_files, &flags->data, reason);
    err = err != 0 ? err : list_files(&job->test_files, &flags->test, reason);
    err = err != 0
              ? err
              : read_first_row(job, counts ? SL_MODEL_FIELDS_MAX : 0, &first_row_features, reason);
    if (err != 0) {
        return err;
    }
    if (counts) {
        shape->fields = first_row_features;
    }
    struct sl_reader_options options = reader_options(flags, &job->data_files);
    /* A worker beyond worker_count shares a part with another. */
    options.share_count = flags->settings.cluster.worker_count;
    options.share_index = flags->settings.cluster.task_index % options.share_count;
    options.features_max = shape->fields;
    err = sl_reader_open(&options, &job->train, reason);
    if (err == 0 && flags->save != NULL && is_first(job)) {
        err = sl_model_file_check(flags->save, reason);
    }
    return err == 0 && flags->test.count > 0 ? check_test_data(job, reason) : err;
}

static void describe_job(struct job *job)
{
    const struct sl_trainer_options *options = &job->options;
    struct sl_train_report_job *to = &job->report.job;
    *to = (struct sl_train_report_job){
        .worker_index = options->worker_index,
        .worker_count = options->worker_count,
        .shard_count = sl_client_shard_count(options->client),
        .model = options->model->name,
        .format = job->flags.format->name,
        .optimizer = job->flags.optimizer_name,
        .protocol = job->flags.protocol_name,
        .optimizer_spec = options->optimizer,
        .update = options->tables.update,
        .values = options->tables.values,
        .slots = options->tables.slots,
        .encoding = options->tables.encoding,
        .shape = options->shape,
        .epochs = options->epochs,
        .batch_rows = options->batch_rows,
        .save = job->flags.save,
        .publish = job->flags.publish,
    };
    static const char *const modes[] = {"asp", "bsp", "ssp"};
    int used =
        snprintf(to->consistency, sizeof to->consistency, "%s", modes[options->consistency.mode]);
    if (options->consistency.mode == SL_CONSISTENCY_SSP) {
        (void)snprintf(to->consistency + used, sizeof to->consistency - (size_t)used, ":%u",
                       options->consistency.staleness);
    }
}

/* RDMA is optional: without it, the worker uses TCP. If a variable that configures RDMA is invalid,
 * RDMA is not used at all. */
static void warn_without_rdma(const struct job *job)
{
    const bool is_asked = job->flags.settings.dmlc.in_use &&
                          job->flags.settings.dmlc.rdma != NULL &&
                          job->flags.settings.transports.uses_rdma;
    const bool is_flawed =
        job->flags.settings.rdma.flaw[0] != '\0' && job->flags.settings.transports.uses_rdma;
    const char *why = is_asked || is_flawed ? sl_builtin_missing(SL_ENDPOINT_RDMA) : NULL;
    if (is_flawed && why == NULL) {
        sl_log_warn("%s; continues without RDMA", job->flags.settings.rdma.flaw);
    } else if (is_asked && why != NULL) {
        sl_log_warn("DMLC_ENABLE_RDMA=%s, but there is no RDMA here: %s; uses tcp",
                    job->flags.settings.dmlc.rdma, why);
    }
}

static int connect_cluster(struct job *job)
{
    const struct sl_settings *settings = &job->flags.settings;
    char *coordinator = sl_cluster_places(&settings->cluster, settings->store.is_given);
    struct sl_client_options options;
    sl_settings_client(settings, &options);
    options.coordinator = coordinator;
    options.protocol = job->flags.protocol;
    options.start_timeout_ms = job->options.start_timeout_ms;
    if (options.manual_progress) {
        sl_log_info("no reactor: the training thread does the network I/O");
    }
    waiting = 1;
    int err =
        coordinator == NULL ? SL_ERR_NO_MEMORY : sl_client_create(&options, &job->options.client);
    waiting = 0;
    if (err != 0) {
        sl_log_error("%s", coordinator == NULL ? "no memory" : sl_last_error());
    }
    free(coordinator);
    if (err == SL_ERR_INVALID) { /* the coordinator has another configuration */
        sl_log_error("this worker expects %u server%s, and by %s %u worker%s",
                     job->flags.settings.cluster.ps_count,
                     sl_log_plural(job->flags.settings.cluster.ps_count),
                     job->flags.settings.cluster.worker_count_source,
                     job->flags.settings.cluster.worker_count,
                     sl_log_plural(job->flags.settings.cluster.worker_count));
    }
    return err;
}

/* The coordinator assigned the index: opens the data again, for the share of that index. */
static int take_task(struct job *job)
{
    char name[32];
    struct sl_reason reason;
    if (job->flags.settings.cluster.task != SL_CLUSTER_TASK_ANY) {
        return 0;
    }
    set_index(job, (uint32_t)sl_client_task_index(job->options.client));
    (void)snprintf(name, sizeof name, "worker/%u", job->flags.settings.cluster.task_index);
    sl_log_rename(name);
    sl_reader_close(&job->train);
    int err = open_data(job, &reason);
    if (err != 0) {
        sl_log_error("%s", reason.text);
    }
    return err;
}

/* Each worker writes its own file: one --report value serves the whole cluster. */
static int write_report(const struct job *job)
{
    if (job->flags.report == NULL) {
        return 0;
    }
    struct sl_reason reason;
    char *path = sl_train_report_path(job->flags.report, job->options.worker_index);
    if (path == NULL) {
        sl_log_error("--report: no memory");
        return SL_ERR_NO_MEMORY;
    }
    int err = sl_train_report_write(&job->report, path, &reason);
    if (err != 0) {
        sl_log_error("--report: %s", reason.text);
    }
    free(path);
    return err;
}

/* Exits without a goodbye after a failed training or evaluation. The shards keep this worker for
 * one more lease, so that their last checkpoint belongs to an unfinished job. */
static _Noreturn void end_as_lost(int status)
{
    (void)fflush(NULL);
    _exit(status);
}

/* A worker stopped early leaves: no other worker waits for it, and its replacement trains on. A
 * failed one is lost, also in the evaluation: a job restored from the last checkpoint repeats it.
 */
static void close_client(struct job *job, int err)
{
    if (err == SL_ERR_CANCELLED && !job->report.complete) {
        sl_client_leave(&job->options.client);
    } else if (err == 0) {
        sl_client_destroy(&job->options.client);
    }
}

/* Starts HTTP for operators. */
static int start_observer(struct job *job)
{
    const struct sl_settings *settings = &job->flags.settings;
    struct sl_reason reason;
    job->listen = (struct sl_http_listen){
        .endpoint = settings->http.endpoint,
        .source = settings->http.source,
        .is_default = settings->http.is_default,
        .token = &settings->http.token,
        .certificate = settings->security.certificate,
        .key = settings->security.key,
    };
    const struct sl_observe_options options = {
        .listen = settings->http.is_on ? &job->listen : NULL,
        .shown = settings->values,
        .metrics = &job->metrics,
    };
    const int err = sl_observe_open(&options, &job->observe, &reason);
    if (err != 0) {
        sl_log_error("%s", reason.text);
    } else if (settings->http.is_on) {
        sl_log_info("http %s", sl_observe_address(job->observe));
    }
    return err;
}

static void start_publisher(const struct job *job, struct sl_publisher **out)
{
    const struct sl_flags *flags = &job->flags;
    struct sl_transfer_options engine;
    sl_security_engine(&flags->settings.security, &engine);
    engine.insecure = true; /* without a secret, as the servers that accept this worker */
    const struct sl_publisher_options options = {.name = flags->publish,
                                                 .every_ns = flags->publish_every_ns,
                                                 .timeout_ms = job->options.step_timeout_ms,
                                                 .model = job->options.model,
                                                 .shape = &job->options.shape,
                                                 .catalogue = flags->settings.objects.catalogue,
                                                 .engine = &engine};
    *out = NULL;
    if (flags->publish != NULL && job->options.worker_index == 0) {
        sl_publisher_start(&options, out);
    }
}

static int run(struct job *job)
{
    sl_train_report_init(&job->report);
    if (start_observer(job) != 0 || connect_cluster(job) != 0) {
        return EXIT_FAILED; /* logged */
    }
    if (take_task(job) != 0 || sl_observe_connected(job->observe, job->options.client,
                                                    job->flags.settings.reactors.count == 0) != 0) {
        end_as_lost(EXIT_FAILED);
    }
    describe_job(job);
    struct sl_reader *train = job->train;
    struct sl_publisher *publisher;
    job->train = NULL;
    start_publisher(job, &publisher);
    int err = sl_trainer_run(&job->options, train, &job->report);
    sl_publisher_stop(&publisher, err == 0);
    sl_observe_stop(job->observe);
    close_client(job, err);
    (void)alarm(0); /* nothing waits for the servers any more */
    int printed = 0;
    if (err == 0 || err == SL_ERR_CANCELLED) {
        printed = sl_train_report_print(&job->report, stdout);
        if (printed != 0) {
            sl_log_error("the report cannot be written to standard output: %s", strerror(errno));
        }
    }
    int reported = write_report(job);
    reported = reported != 0 ? reported : printed;
    const bool stopped = caught_signal != 0 && err == SL_ERR_CANCELLED;
    const int status = stopped                     ? EXIT_SIGNAL + caught_signal
                       : err == 0 && reported == 0 ? 0
                                                   : EXIT_FAILED;
    if (job->options.client != NULL) {
        end_as_lost(status);
    }
    return status;
}

int main(int argc, char **argv)
{
    struct sl_reason reason;
    if (argc > 1 && strcmp(argv[1], "predict") == 0) {
        return sl_predict_run(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "generate") == 0) {
        return sl_generate_run(argc - 1, argv + 1);
    }
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return EXIT_FAILED;
    }
    sl_train_metrics_init(&job->metrics);
    int status = 0;
    int result = sl_flags_parse(argc, argv, &job->flags, &reason);
    if (result == SL_CLI_EXIT_OK) {
        goto out;
    }
    if (result != SL_CLI_RUN || check_settings(job, &reason) != 0 ||
        read_options(job, &reason) != 0) {
        (void)fprintf(stderr, "starling-worker: %s\n", reason.text);
        status = SL_CLI_EXIT_USAGE;
        goto out;
    }
    char name[32] = "worker";
    if (job->flags.settings.cluster.task != SL_CLUSTER_TASK_ANY) {
        (void)snprintf(name, sizeof name, "worker/%u", job->flags.settings.cluster.task_index);
    }
    sl_settings_log_setup(&job->flags.settings, name);
    sl_settings_log(&job->flags.settings);
    sl_trace_set(job->flags.settings.dmlc.trace);
    if (open_data(job, &reason) != 0) {
        sl_log_error("%s", reason.text);
        status = EXIT_FAILED;
        goto out;
    }
    const uint32_t cores = sl_topology_core_count();
    if (job->flags.settings.reactors.count > cores) {
        sl_log_warn("--reactors is %u, but this process may use %u core%s%s",
                    job->flags.settings.reactors.count, cores, sl_log_plural(cores),
                    job->flags.settings.reactors.polling
                        ? ": reactors that poll take the cores from each other"
                        : "");
    }
    warn_without_rdma(job);
    sl_rlimit_raise(RLIMIT_MEMLOCK); /* memory registered for RDMA counts as locked */
    catch_signals();
    status = run(job);
out:
    sl_observe_close(&job->observe);
    sl_train_metrics_fini(&job->metrics);
    sl_reader_close(&job->train);
    sl_data_files_fini(&job->data_files);
    sl_data_files_fini(&job->test_files);
    sl_flags_fini(&job->flags);
    free(job);
    return status;
}
