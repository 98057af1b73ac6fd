#include "ps/process/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/event.h"
#include "core/log.h"
#include "ps/checkpoint/directory.h"
#include "ps/process/hosted.h"
#include "ps/process/main_thread.h"
#include "ps/server/checkpoint.h"
#include "reactor/disk.h"
#include "reactor/offload.h"

/* How long shutdown waits for a disk. */
#define DISK_WAIT_NS (2 * SL_CLOCK_NS_PER_S)

/* The last checkpoint has no time limit while this process writes its files. For the other servers
 * it waits this many times the drain timeout. */
#define LAST_ASKS    3

/* Writes a manifest. */
struct publish {
    struct sl_process_disk_job base; /* must be first */
    struct sl_checkpoint_manifest manifest;
    struct sl_checkpoint_shard_range range;
    uint32_t writer;
};

/* Removes old checkpoints. */
struct prune {
    struct sl_process_disk_job base;            /* must be first */
    struct sl_checkpoint_prune_options options; /* newest 0: no complete one is known */
    uint64_t kept_to;                           /* those of earlier jobs */
};

/* State of the current checkpoint. Reactor 0. */
struct sl_process_checkpoints {
    struct sl_offload *offload;
    uint64_t number;     /* 0: none yet */
    uint32_t file_count; /* one for each shard of which this process is the primary */
    uint32_t waited;     /* shards whose result is outstanding */
    bool has_worker;     /* some shard reported that the job continues */
    uint64_t begun_ns;
    uint32_t asks_left;    /* requests left for the last checkpoint */
    uint32_t quiet_waited; /* last checkpoint: shards that have not fenced writes */
    bool holds_all;        /* the shards that have fenced writes have nothing to save */
};

const struct sl_disk *sl_process_disk(const struct sl_process_checkpoint *options)
{
    return options->disk != NULL ? options->disk : sl_disk_system();
}

static void disk_job_work(struct sl_offload_job *job)
{
    struct sl_process_disk_job *work = (struct sl_process_disk_job *)job;
    work->work(work);
}

static void disk_job_done(struct sl_offload_job *job)
{
    struct sl_process_disk_job *work = (struct sl_process_disk_job *)job;
    if (job->err != 0) {
        work->err = job->err;
        sl_reason_set(&work->reason, "no thread can use the disk");
    }
    work->done(work);
}

void sl_process_disk_job_post(struct sl_process *process, struct sl_offload *offload,
                              struct sl_process_disk_job *job,
                              void (*work)(struct sl_process_disk_job *job),
                              void (*done)(struct sl_process_disk_job *job))
{
    job->job.work = disk_job_work;
    job->job.done = disk_job_done;
    job->work = work;
    job->done = done;
    job->process = process;
    job->disk = sl_process_disk(&process->options.checkpoint);
    job->directory = process->options.checkpoint.directory;
    sl_offload_post(offload, &job->job);
}

/* Unix time. */
static int64_t now_s(const struct sl_process *process)
{
    const struct sl_process_sim_hooks *sim_hooks = process->sim_hooks;
    return sim_hooks != NULL ? sim_hooks->time_s(sim_hooks->ctx) : (int64_t)time(NULL);
}

/* Results of the shards */

struct part {
    struct sl_process_hosted *hosted;
    struct sl_server_checkpoint_result result;
};

/* Decides which shards take part. Returns false if none does. */
static bool choose_shards(const struct sl_process *process)
{
    struct sl_process_checkpoints *all = process->directory.checkpoints;
    all->file_count = 0;
    SL_PROCESS_FOREACH (hosted, process) {
        hosted->checkpoint.takes_part = sl_process_hosted_is_primary(hosted);
        all->file_count += hosted->checkpoint.takes_part;
    }
    return all->file_count > 0;
}

/* Returns adjacent shards whose files are certainly in this process's directory: the first that
 * take part, and those that follow without a gap; before the first checkpoint, the home shards. */
static struct sl_checkpoint_shard_range
process_checkpoint_range_of(const struct sl_process *process)
{
    struct sl_checkpoint_shard_range range = {.first = process->member.first_shard};
    SL_PROCESS_FOREACH (hosted, process) {
        if (hosted->checkpoint.takes_part && range.count == 0) {
            range.first = hosted->shard;
        }
        range.count += hosted->checkpoint.takes_part && hosted->shard == range.first + range.count;
    }
    range.count = range.count == 0 ? process->options.reactors.shards : range.count;
    return range;
}

/* Reactor 0: aborts the checkpoint and reports that to the coordinator. */
static void process_checkpoint_give_up(struct sl_process *process, uint64_t number, int err,
                                       const char *why)
{
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("checkpoint_part_failed", SL_EVENT_NUMBER("number", number),
                          SL_EVENT_TEXT("reason", why)),
                 "checkpoint %" PRIu64 " is aborted, serving continues: %s", number, why);
    process->directory.checkpoints->waited = 0;
    sl_agent_checkpoint_fail(process->agent, number, err, why);
}

/* Reactor 0: there was no memory to pass on the result of a shard. */
static void part_expired(void *ctx, uint64_t number, uint64_t b)
{
    struct sl_process *process = ctx;
    const struct sl_process_checkpoints *all = process->directory.checkpoints;
    if (process->agent != NULL && number == all->number && all->waited > 0) {
        process_checkpoint_give_up(process, number, SL_ERR_NO_MEMORY,
                                   "no memory to tell of a file");
    }
}

/* Reports the files of all shards. */
static void tell_part(const struct sl_process *process)
{
    const struct sl_process_checkpoints *all = process->directory.checkpoints;
    struct sl_message_checkpoint_file *files = calloc(all->file_count, sizeof *files);
    uint32_t count = 0;
    if (files == NULL) {
        sl_agent_checkpoint_fail(process->agent, all->number, SL_ERR_NO_MEMORY,
                                 "no memory to tell of its files");
        return;
    }
    SL_PROCESS_FOREACH (hosted, process) {
        if (hosted->checkpoint.takes_part) {
            files[count++] = hosted->checkpoint.file;
        }
    }
    sl_agent_checkpoint_part(process->agent, all->number, files, count, all->has_worker);
    free(files);
}

/* Reactor 0: handles the result of a shard. */
static void part_came(void *ctx, uint64_t a, uint64_t b)
{
    struct part *part = ctx;
    struct sl_process_hosted *hosted = part->hosted;
    struct sl_process *process = hosted->process;
    struct sl_process_checkpoints *all = process->directory.checkpoints;
    const struct sl_server_checkpoint_result *result = &part->result;
    if (process->agent == NULL || result->number != all->number || all->waited == 0) {
        free(part); /* of an aborted checkpoint */
        return;
    }
    if (result->err != 0) {
        process_checkpoint_give_up(process, result->number, result->err, result->reason.text);
        free(part);
        return;
    }
    hosted->checkpoint.file = (struct sl_message_checkpoint_file){.shard = result->file.shard,
                                                                  .bytes = result->file.bytes,
                                                                  .hash = result->file.hash,
                                                                  .rows = result->file.rows};
    (void)snprintf(hosted->checkpoint.file.name, sizeof hosted->checkpoint.file.name, "%s",
                   result->file.name);
    all->has_worker = all->has_worker || result->goes_on;
    free(part);
    if (--all->waited == 0) {
        tell_part(process);
    }
}

/* The shard's reactor. */
static void on_ended(void *ctx, const struct sl_server_checkpoint_result *result)
{
    struct sl_process_hosted *hosted = ctx;
    struct part *part = malloc(sizeof *part);
    if (part == NULL) {
        sl_reactor_post(
            hosted->core->reactor, 0,
            (struct sl_mail){.run = part_expired, .ctx = hosted->process, .a = result->number});
        return;
    }
    *part = (struct part){.hosted = hosted, .result = *result};
    sl_reactor_post(hosted->core->reactor, 0,
                    (struct sl_mail){.run = part_came, .ctx = part, .drop = free});
}

/* A shard that has left since: the coordinator aborts the checkpoint. */
static void shard_checkpoint(void *ctx, uint64_t number, uint64_t base)
{
    const struct sl_process_hosted *hosted = ctx;
    if (hosted->server != NULL && !hosted->end.is_ending) {
        sl_server_checkpoint_begin(hosted->server, number, base, now_s(hosted->process));
    }
}

/* Posts a mail to each shard that takes part. */
static void post_shards(struct sl_process *process, struct sl_mail mail)
{
    SL_PROCESS_FOREACH (hosted, process) {
        if (hosted->checkpoint.takes_part) {
            mail.ctx = hosted;
            sl_reactor_post(process->reactors[0], hosted->core->index, mail);
        }
    }
}

static void shard_completed(void *ctx, uint64_t number, uint64_t b)
{
    const struct sl_process_hosted *hosted = ctx;
    if (hosted->server != NULL) {
        sl_server_checkpoint_completed(hosted->server, number);
    }
}

/* Reactor 0: this process has its part of the complete checkpoint, and is notified once or twice.
 */
static void count_completed(struct sl_process *process, uint64_t number)
{
    struct sl_process_cells *cells = &process->metrics.cells;
    const struct sl_process_checkpoints *all = process->directory.checkpoints;
    if (number != all->number || number == sl_cell_get(&cells->checkpoint.number)) {
        return;
    }
    uint64_t bytes = 0;
    SL_PROCESS_FOREACH (hosted, process) {
        bytes += hosted->checkpoint.takes_part ? hosted->checkpoint.file.bytes : 0;
    }
    sl_cell_set(&cells->checkpoint.bytes, bytes);
    sl_cell_set(&cells->checkpoint.duration_ns,
                sl_reactor_now_ns(process->reactors[0]) - all->begun_ns);
    sl_cell_set(&cells->checkpoint.success_ns, (uint64_t)now_s(process) * SL_CLOCK_NS_PER_S);
    sl_cell_set(&cells->checkpoint.number, number);
}

void sl_process_on_checkpoint_completed(void *ctx, uint64_t number)
{
    count_completed(ctx, number);
    post_shards(ctx, (struct sl_mail){.run = shard_completed, .a = number});
}

static void prune_work(struct sl_process_disk_job *job)
{
    const struct prune *work = (struct prune *)job;
    uint32_t removed;
    job->err = sl_checkpoint_directory_keep(job->disk, job->directory, work->kept_to, &job->reason);
    if (job->err == 0) {
        job->err = sl_checkpoint_directory_remove_incomplete(
            job->disk, job->directory, work->options.below, SL_MESSAGE_NUMBERS_MAX, &job->reason);
    }
    if (job->err == 0 && work->options.newest != 0) {
        job->err = sl_checkpoint_directory_prune(job->disk, job->directory, &work->options,
                                                 &removed, &job->reason);
    }
}

static void prune_done(struct sl_process_disk_job *job)
{
    if (job->err != 0) {
        sl_log_warn("old checkpoints are not all removed: %s", job->reason.text);
    }
    free(job);
}

/* Old checkpoints are removed only when every server has the newest complete one: otherwise servers
 * with their own directories could end without a common one. Checkpoints aborted since are removed
 * too, and abandoned ones once this job has a complete one. Files without a manifest are removed in
 * any case: if no checkpoint completes, they would fill the disk. */
static void prune(struct sl_process *process, const struct sl_message_checkpoint *begun)
{
    uint64_t abandoned_above;
    uint64_t abandoned_to;
    sl_agent_abandoned(process->agent, &abandoned_above, &abandoned_to);
    const uint64_t above = begun->complete > abandoned_to ? begun->complete : abandoned_to;
    const bool is_known = begun->complete != 0 && above < begun->number;
    struct prune *work = calloc(1, sizeof *work);
    if (work == NULL) {
        return; /* retried with the next checkpoint */
    }
    work->options =
        (struct sl_checkpoint_prune_options){.range = process_checkpoint_range_of(process),
                                             .keep = process->options.checkpoint.keep,
                                             .newest = is_known ? begun->complete : 0,
                                             .above = above,
                                             .below = begun->number};
    work->kept_to = sl_agent_kept(process->agent);
    work->base.job.allocates = true;
    sl_process_disk_job_post(process, process->directory.checkpoints->offload, &work->base,
                             prune_work, prune_done);
}

void sl_process_on_checkpoint(void *ctx, const struct sl_message_checkpoint *begun)
{
    struct sl_process *process = ctx;
    struct sl_process_checkpoints *all = process->directory.checkpoints;
    if (!process->is_open) {
        sl_agent_checkpoint_fail(process->agent, begun->number, SL_ERR_AGAIN,
                                 "it is still being restored");
        return;
    }
    if (!choose_shards(process)) {
        sl_agent_checkpoint_fail(process->agent, begun->number, SL_ERR_AGAIN,
                                 "it has backups only");
        return;
    }
    prune(process, begun);
    if (begun->complete != 0) { /* the message that it completed may have been lost */
        sl_process_on_checkpoint_completed(process, begun->complete);
    }
    all->number = begun->number;
    all->has_worker = false;
    all->waited = all->file_count;
    all->begun_ns = sl_reactor_now_ns(process->reactors[0]);
    post_shards(process,
                (struct sl_mail){.run = shard_checkpoint, .a = begun->number, .b = begun->base});
}

/* Manifest */

static void publish_work(struct sl_process_disk_job *job)
{
    struct publish *work = (struct publish *)job;
    job->err = sl_checkpoint_directory_publish(job->disk, job->directory, &work->manifest,
                                               work->range, work->writer, &job->reason);
}

static void report(const struct sl_process *process, const struct sl_checkpoint_manifest *manifest)
{
    uint64_t bytes = 0, rows = 0;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        bytes += manifest->files[i].bytes;
        rows += manifest->files[i].rows;
    }
    const uint64_t took_ns =
        sl_reactor_now_ns(process->reactors[0]) - process->directory.checkpoints->begun_ns;
    char base[48] = "";
    if (manifest->base != 0) {
        (void)snprintf(base, sizeof base, " (base %" PRIu64 ")", manifest->base);
    }
    sl_log_event(SL_LOG_INFO,
                 SL_EVENT("manifest_written", SL_EVENT_NUMBER("number", manifest->number),
                          SL_EVENT_NUMBER("rows", rows), SL_EVENT_NUMBER("bytes", bytes),
                          SL_EVENT_NUMBER("duration_ms", took_ns / SL_CLOCK_NS_PER_MS)),
                 "the manifest of checkpoint %" PRIu64 "%s is written: %" PRIu64
                 " rows, %.1f MiB in %.1f s",
                 manifest->number, base, rows, (double)bytes / (1 << 20),
                 (double)took_ns / (double)SL_CLOCK_NS_PER_S);
}

static void publish_done(struct sl_process_disk_job *job)
{
    struct publish *work = (struct publish *)job;
    struct sl_process *process = job->process;
    const uint64_t number = work->manifest.number;
    if (process->agent == NULL) {
        /* the process is stopping */
    } else if (job->err != 0) {
        sl_log_event(SL_LOG_WARN,
                     SL_EVENT("checkpoint_part_failed", SL_EVENT_NUMBER("number", number),
                              SL_EVENT_TEXT("reason", job->reason.text)),
                     "checkpoint %" PRIu64 " is aborted, serving continues: %s", number,
                     job->reason.text);
        sl_agent_checkpoint_fail(process->agent, number, job->err, job->reason.text);
    } else {
        if (process->coordinator == NULL) { /* else the coordinator logs it */
            report(process, &work->manifest);
        }
        sl_agent_checkpoint_done(process->agent, number);
    }
    sl_checkpoint_manifest_fini(&work->manifest);
    free(work);
}

/* Errors: NO_MEMORY. */
static int fill_manifest(const struct sl_process *process, struct sl_checkpoint_manifest *manifest,
                         const struct sl_message_checkpoint_publish *complete)
{
    int err = sl_checkpoint_manifest_init(complete->file_count, manifest);
    if (err != 0) {
        return err;
    }
    manifest->number = complete->number;
    manifest->base = complete->base;
    manifest->workers =
        complete->has_worker ? SL_CHECKPOINT_WORKERS_SOME : SL_CHECKPOINT_WORKERS_NONE;
    manifest->time_s =
        complete->time_ms == 0 ? now_s(process) : (int64_t)(complete->time_ms / 1000);
    for (uint32_t i = 0; i < complete->file_count; i++) {
        manifest->files[i].bytes = complete->files[i].bytes;
        manifest->files[i].hash = complete->files[i].hash;
        manifest->files[i].rows = complete->files[i].rows;
    }
    return 0;
}

void sl_process_on_checkpoint_publish(void *ctx,
                                      const struct sl_message_checkpoint_publish *complete)
{
    struct sl_process *process = ctx;
    struct publish *work = calloc(1, sizeof *work);
    if (work == NULL || fill_manifest(process, &work->manifest, complete) != 0) {
        free(work);
        sl_agent_checkpoint_fail(process->agent, complete->number, SL_ERR_NO_MEMORY,
                                 "no memory for the manifest");
        return;
    }
    work->writer = process->member.task_index;
    work->range = process_checkpoint_range_of(process);
    work->base.job.allocates = true;
    sl_process_disk_job_post(process, process->directory.checkpoints->offload, &work->base,
                             publish_work, publish_done);
}

/* Last checkpoint */

static void ask_for_last(struct sl_process *process);

static void last_answered(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_process *process = ctx;
    struct sl_process_checkpoints *all = process->directory.checkpoints;
    if (err == SL_ERR_DEADLINE && all->waited > 0) {
        all->asks_left = LAST_ASKS; /* still writing */
    }
    if (err == SL_ERR_DEADLINE && all->asks_left > 0) {
        ask_for_last(process);
        return;
    }
    if (err == 0) {
        sl_log_info("checkpoint %" PRIu64 " is the last one", answer->checkpoint_number);
    } else if (all->holds_all && err != SL_ERR_CORRUPT) { /* CORRUPT: the job has lost values */
        sl_log_info("no last checkpoint: %s; nothing was written since the last complete one",
                    reason);
    } else {
        sl_log_event(
            SL_LOG_ERROR, SL_EVENT("last_checkpoint_failed", SL_EVENT_TEXT("reason", reason)),
            "no last checkpoint: %s; what was written since the last complete one is lost", reason);
        process->directory.is_unsaved = true;
    }
    sl_process_answer(&process->cores[0], 0);
}

static void ask_for_last(struct sl_process *process)
{
    process->directory.checkpoints->asks_left--;
    sl_agent_checkpoint_ask(process->agent, process->options.times.drain_timeout_ns, last_answered,
                            process);
}

/* Reactor 0: all shards have fenced writes. Only a server that is alone in its cluster skips the
 * checkpoint if it has nothing to save: otherwise the other servers may need one, and every server
 * must take part. */
static void all_quiet(struct sl_process *process, bool holds_all)
{
    const bool is_alone = process->options.ps_count == 1;
    if ((holds_all && is_alone) || process->agent == NULL) {
        sl_process_answer(&process->cores[0], 0);
        return;
    }
    sl_log_info("a last checkpoint is written; SIGQUIT ends the process without");
    process->directory.checkpoints->asks_left = LAST_ASKS;
    ask_for_last(process);
}

static void shard_is_quiet(void *ctx, uint64_t holds_all, uint64_t b)
{
    struct sl_process *process = ctx;
    struct sl_process_checkpoints *all = process->directory.checkpoints;
    all->holds_all = all->holds_all && holds_all != 0;
    if (--all->quiet_waited == 0) {
        all_quiet(process, all->holds_all);
    }
}

static void shard_quiet(void *ctx, uint64_t switches_over, uint64_t b)
{
    struct sl_process_hosted *hosted = ctx;
    struct sl_process *process = hosted->process;
    bool holds_all = process->options.replicas == 0;
    sl_process_hosted_set_switchover(hosted, switches_over != 0);
    if (hosted->server != NULL && !hosted->end.is_ending) {
        sl_server_fence_writes(hosted->server);
        holds_all = holds_all && sl_server_checkpoint_holds_all(hosted->server);
    }
    sl_reactor_post(hosted->core->reactor, 0,
                    (struct sl_mail){.run = shard_is_quiet, .ctx = process, .a = holds_all});
}

void sl_process_checkpoint_last(void *ctx, uint64_t a, uint64_t b)
{
    const struct sl_process_core *core = ctx;
    struct sl_process *process = core->process;
    struct sl_process_checkpoints *all = process->directory.checkpoints;
    all->holds_all = true;
    all->quiet_waited = sl_process_hosted_end(process, shard_quiet);
    if (all->quiet_waited == 0) {
        sl_process_answer(&process->cores[0], 0); /* it has no shard */
    }
}

/* Open and close */

int sl_process_checkpoint_open(struct sl_process_hosted *hosted)
{
    const struct sl_process_options *process = &hosted->process->options;
    const struct sl_process_checkpoint *options = &process->checkpoint;
    if (options->directory == NULL && process->beside == NULL) {
        return 0;
    }
    const struct sl_server_checkpoint_options server = {
        .disk = sl_process_disk(options),
        .directory = options->directory,
        .compression_level = options->compression_level,
        .snapshot_budget = options->snapshot_budget,
        .ended = on_ended,
        .ctx = hosted,
    };
    return sl_server_checkpoint_open(hosted->server, &server);
}

int sl_process_checkpoint_create(struct sl_process *process)
{
    if (process->options.checkpoint.directory == NULL) {
        return 0;
    }
    struct sl_process_checkpoints *all = calloc(1, sizeof *all);
    if (all == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    process->directory.checkpoints = all;
    int err = sl_offload_create(process->reactors[0], "manifest", &all->offload);
    if (err == 0) {
        sl_offload_set_priority(all->offload, SL_OFFLOAD_PRIORITY_IDLE);
    }
    return err;
}

void sl_process_checkpoint_close(struct sl_process *process)
{
    struct sl_process_checkpoints *all = process->directory.checkpoints;
    if (all == NULL) {
        return;
    }
    (void)sl_offload_destroy(&all->offload, DISK_WAIT_NS);
    free(all);
    process->directory.checkpoints = NULL;
}
