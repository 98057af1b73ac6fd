#include "ps/process/report.h"

#include <stdio.h>
#include <string.h>

#include "core/event.h"
#include "core/format.h"
#include "core/log.h"
#include "ps/process/hosted.h"
#include "ps/process/observe.h"

void sl_process_report_name(struct sl_process *process)
{
    const struct sl_process_options *options = &process->options;
    bool is_known = !options->any_task || process->agent != NULL;
    if (options->kind == SL_PROCESS_SCHEDULER) {
        (void)snprintf(process->name, sizeof process->name, "scheduler");
    } else if (is_known) {
        (void)snprintf(process->name, sizeof process->name, "ps/%u", process->member.task_index);
    } else {
        (void)snprintf(process->name, sizeof process->name, "ps");
    }
    if (is_known && options->any_task && options->embedding == NULL) {
        sl_log_rename(process->name);
    }
}

static void describe_scheduler(const struct sl_process *process, const char *control, char *out,
                               size_t bytes)
{
    (void)snprintf(out, bytes, "control %s, for %u server%s and %u worker%s", control,
                   process->options.ps_count, sl_log_plural(process->options.ps_count),
                   process->options.worker_count, sl_log_plural(process->options.worker_count));
}

static void describe_server(const struct sl_process *process, const char *control, char *out,
                            size_t bytes)
{
    char data[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&process->bound.data, data, sizeof data);
    char bypass[SL_LIMIT_ENDPOINT_BYTES] = "";
    if (process->options.endpoints.has_bypass) {
        sl_endpoint_format(&process->bound.bypass, bypass, sizeof bypass);
    }
    const uint32_t first_shard = process->member.first_shard;
    const bool has_control = process->options.kind == SL_PROCESS_PS;
    char shards[48] = "no shards yet";
    if (!process->options.reactors.joins) {
        (void)snprintf(shards, sizeof shards, "shards %u-%u", first_shard,
                       first_shard + process->options.reactors.shards - 1);
    }
    (void)snprintf(out, bytes, "%s%s%sdata %s%s%s, %s of %u", has_control ? "control " : "",
                   has_control ? control : "", has_control ? ", " : "", data,
                   bypass[0] == '\0' ? "" : " and ", bypass, shards, process->member.shard_count);
}

/* The level of events that are lines on stdout, too: as text they are shown once. */
static enum sl_log_level beside_stdout(const struct sl_process *process)
{
    return sl_log_is_json() || process->options.embedding != NULL ? SL_LOG_INFO : SL_LOG_DEBUG;
}

/* Prints a line to stdout, unless that is an embedding program's. */
static void print_line(const struct sl_process *process, const char *what, const char *text)
{
    if (process->options.embedding == NULL) {
        (void)printf("%s%s%s\n", process->name, what, text);
        (void)fflush(stdout);
    }
}

void sl_process_report_ready(const struct sl_process *process)
{
    char control[SL_LIMIT_ENDPOINT_BYTES];
    char text[SL_PROCESS_OBSERVE_SERVES_BYTES];
    sl_endpoint_format(&process->bound.control, control, sizeof control);
    if (process->options.kind == SL_PROCESS_SCHEDULER) {
        describe_scheduler(process, control, text, sizeof text);
    } else {
        describe_server(process, control, text, sizeof text);
    }
    (void)sl_format_add(text, sizeof text, ", ", "%s %s",
                        process->options.tls != NULL ? "https" : "http",
                        process->observer.observe->address);
    sl_process_observe_ready(process, text);    /* before a reader of the line asks for /readyz */
    char prefix[sizeof process->name + 1] = ""; /* a log of several processes */
    if (process->options.embedding != NULL) {
        (void)snprintf(prefix, sizeof prefix, "%s ", process->name);
    }
    print_line(process, " ready: ", text);
    sl_log_event(beside_stdout(process),
                 process->options.kind == SL_PROCESS_SCHEDULER
                     ? SL_EVENT("scheduler_ready",
                                SL_EVENT_NUMBER("servers", process->options.ps_count),
                                SL_EVENT_NUMBER("workers", process->options.worker_count))
                     : SL_EVENT("server_ready", SL_EVENT_NUMBER("task", process->member.task_index),
                                SL_EVENT_NUMBER("shards", process->options.reactors.shards)),
                 "%sready: %s", prefix, text);
}

void sl_process_report_failure(const struct sl_process *process, int err)
{
    const struct sl_process_options *options = &process->options;
    char counts[160] = "";
    if (err == SL_ERR_INVALID) { /* the coordinator has other counts */
        (void)snprintf(counts, sizeof counts, "; it was told %u server%s and %u worker%s%s%s",
                       options->ps_count, sl_log_plural(options->ps_count), options->worker_count,
                       sl_log_plural(options->worker_count),
                       options->worker_count_source == NULL ? "" : ", by ",
                       options->worker_count_source == NULL ? "" : options->worker_count_source);
    }
    sl_log_event(SL_LOG_ERROR, SL_EVENT("start_failed", SL_EVENT_TEXT("error", sl_err_name(err))),
                 "%s could not start: %s%s", process->name, sl_err_name(err), counts);
}

void sl_process_report_stage(const struct sl_process *process, enum sl_coordinator_stage stage,
                             int err)
{
    const char *why = process->job.why[stage];
    if (stage == SL_COORDINATOR_RUNNING) {
        print_line(process, ": the job has begun: ", why);
        sl_log_event(beside_stdout(process), SL_EVENT("job_begun", SL_EVENT_TEXT("summary", why)),
                     "the job has begun: %s", why);
    } else if (stage == SL_COORDINATOR_ENDING && err == 0) {
        print_line(process, ": the job has ended: ", why);
        sl_log_event(beside_stdout(process), SL_EVENT("job_ended", SL_EVENT_TEXT("reason", why)),
                     "the job has ended: %s", why);
    } else if (stage == SL_COORDINATOR_ENDING) {
        sl_log_event(SL_LOG_ERROR, SL_EVENT("job_ended", SL_EVENT_TEXT("reason", why)),
                     "the job has ended: %s", why);
    } else if (err == SL_ERR_CLOSED) {
        sl_log_event(SL_LOG_ERROR, SL_EVENT("job_failed", SL_EVENT_TEXT("reason", why)),
                     "the job has not ended well: %s", why);
    } else if (err != 0) {
        sl_log_event(SL_LOG_ERROR, SL_EVENT("job_failed", SL_EVENT_TEXT("reason", why)),
                     "the job has not begun: %s", why);
    }
}

/* Returns the rows of a table over all shards. */
static uint64_t count_rows(const struct sl_process *process, const char *table)
{
    uint64_t rows = 0;
    SL_PROCESS_FOREACH (hosted, process) {
        for (uint32_t t = 0; t < hosted->stats.table_count; t++) {
            const bool is_same = strcmp(hosted->stats.tables[t].name, table) == 0;
            rows += is_same ? hosted->stats.tables[t].rows : 0;
        }
    }
    return rows;
}

/* Prints the rows of each table that the first shard has, e.g. "emb 1000 rows". */
static void print_tables(const struct sl_process *process)
{
    const struct sl_process_hosted *first = sl_process_hosted_first(process);
    for (uint32_t t = 0; first != NULL && t < first->stats.table_count; t++) {
        const char *name = first->stats.tables[t].name;
        (void)printf(", %s %" PRIu64 " rows", name, count_rows(process, name));
    }
}

void sl_process_report_totals(const struct sl_process *process)
{
    struct sl_message_stats total = {0};
    SL_PROCESS_FOREACH (hosted, process) {
        total.requests += hosted->stats.requests;
        total.degraded_writes += hosted->stats.degraded_writes;
    }
    for (uint32_t i = 0; i < process->options.reactors.count; i++) {
        const struct sl_message_stats *stats = &process->cores[i].stats;
        total.requests += stats->requests;
        total.bytes_in += stats->bytes_in;
        total.bytes_out += stats->bytes_out;
        total.stalls += stats->stalls;
    }
    if (process->options.kind == SL_PROCESS_SCHEDULER || process->options.embedding != NULL) {
        print_line(process, " done", "");
        return;
    }
    (void)printf("%s done: %" PRIu64 " requests, %" PRIu64 " bytes in, %" PRIu64
                 " bytes out, %" PRIu64 " stalls",
                 process->name, total.requests, total.bytes_in, total.bytes_out, total.stalls);
    if (process->options.replicas > 0) {
        (void)printf(", %" PRIu64 " writes acknowledged while degraded", total.degraded_writes);
    }
    print_tables(process);
    (void)printf("\n");
    (void)fflush(stdout);
}
