/* Checkpoints of a process: on the coordinator's message each core writes its shard's file; when
 * all servers have their files, the process writes the manifest and removes old checkpoints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/checkpoint/directory.h"
#include "ps/checkpoint/disk.h"
#include "ps/process/internal.h"
#include "ps/server/checkpoint.h"
#include "reactor/offload.h"

/* How long shutdown waits for a disk. */
#define DISK_WAIT_NS (2 * SL_CLOCK_NS_PER_S)

/* The last checkpoint has no time limit while this process writes its files. For the other servers
 * it waits this many times the drain timeout. */
#define LAST_ASKS    3

/* Writes a manifest. Owned by the offload thread while posted. */
struct sl_process_manifest {
    struct sl_offload_job job; /* must be first */
    struct sl_process *process;
    const struct sl_disk *disk;
    const char *directory;
    struct sl_checkpoint_manifest manifest;
    struct sl_checkpoint_shard_range range;
    uint32_t writer;
    int err;
    char reason[SL_SERVER_CHECKPOINT_REASON_BYTES];
};

/* Removes old checkpoints. Owned by the offload thread while posted. */
struct prune {
    struct sl_offload_job job; /* must be first */
    const struct sl_disk *disk;
    const char *directory;
    struct sl_checkpoint_prune_options options; /* newest 0: no complete one is known */
    int err;
    char reason[SL_SERVER_CHECKPOINT_REASON_BYTES];
};

/* State of the current checkpoint. Reactor 0. */
struct sl_process_checkpoints {
    struct sl_offload *offload;
    uint64_t number; /* 0: none yet */
    uint32_t seats;  /* bit set of the servers that take part */
    uint32_t waited; /* shards whose result is outstanding */
    bool has_worker; /* some shard reported that the job continues */
    uint64_t begun_ns;
    struct sl_message_checkpoint_file *files; /* by shard; [2 * reactor_count] */
    uint32_t asks_left;                       /* requests left for the last checkpoint */
    uint32_t quiet_waited; /* last checkpoint: cores that have not fenced writes */
    bool holds_all;        /* the cores that have fenced writes have nothing to save */
};

const struct sl_disk *sl_process_disk(const struct sl_process_checkpoint *options)
{
    return options->disk != NULL ? options->disk : sl_disk_system();
}

/* Unix time. */
static int64_t now_s(const struct sl_process *process)
{
    const struct sl_process_sim_hooks *stand_in = process->stand_in;
    return stand_in != NULL ? stand_in->time_s(stand_in->ctx) : (int64_t)time(NULL);
}

/* Results of the shards */

struct part {
    const struct sl_process_hosted *hosted;
    struct sl_server_checkpoint_result result;
};

/* Returns the index of the first file of home or partner shards; files are in shard order. */
static uint32_t place_of(const struct sl_process *process, uint32_t seats, uint32_t which)
{
    const bool has_both = seats == (1U << SL_PROCESS_HOME | 1U << SL_PROCESS_PARTNER);
    return has_both && sl_process_replica_first(process, which) >
                           sl_process_replica_first(process, 1 - which)
               ? process->options.reactor_count
               : 0;
}

static uint32_t file_count(const struct sl_process *process, uint32_t seats)
{
    return process->options.reactor_count * ((seats & 1U) + (seats >> 1 & 1U));
}

/* Returns the shards whose files are certainly in this process's directory: those that it serves.
 * If these are not adjacent, only its home shards. */
static struct sl_checkpoint_shard_range range_of(const struct sl_process *process, uint32_t seats)
{
    const uint32_t count = process->options.reactor_count;
    const uint32_t own = sl_process_replica_first(process, SL_PROCESS_HOME);
    if (seats == 1U << SL_PROCESS_HOME) {
        return (struct sl_checkpoint_shard_range){.first = own, .count = count};
    }
    const uint32_t partner = sl_process_replica_first(process, SL_PROCESS_PARTNER);
    const bool is_only = (seats & 1U << SL_PROCESS_HOME) == 0;
    return is_only || partner + count == own
               ? (struct sl_checkpoint_shard_range){.first = partner,
                                                    .count = file_count(process, seats)}
               : (struct sl_checkpoint_shard_range){.first = own, .count = count};
}

/* Reactor 0: aborts the checkpoint and reports that to the coordinator. */
static void give_up(struct sl_process *process, uint64_t number, int err, const char *why)
{
    sl_log_warn("checkpoint %" PRIu64 " is aborted, serving continues: %s", number, why);
    process->checkpoints->waited = 0;
    sl_agent_checkpoint_fail(process->member, number, err, why);
}

/* Reactor 0: there was no memory to pass on the result of a shard. */
static void part_expired(void *ctx, uint64_t number, uint64_t b)
{
    (void)b;
    struct sl_process *process = ctx;
    const struct sl_process_checkpoints *all = process->checkpoints;
    if (process->member != NULL && number == all->number && all->waited > 0) {
        give_up(process, number, SL_ERR_NO_MEMORY, "no memory to tell of a file");
    }
}

/* Reactor 0: handles the result of a shard. */
static void part_came(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct part *part = ctx;
    const struct sl_process_hosted *hosted = part->hosted;
    struct sl_process *process = hosted->core->process;
    struct sl_process_checkpoints *all = process->checkpoints;
    const struct sl_server_checkpoint_result *result = &part->result;
    if (process->member == NULL || result->number != all->number || all->waited == 0) {
        free(part); /* of an aborted checkpoint */
        return;
    }
    if (result->err != 0) {
        give_up(process, result->number, result->err, result->reason);
        free(part);
        return;
    }
    struct sl_message_checkpoint_file *file =
        &all->files[place_of(process, all->seats, hosted->which) + hosted->core->index];
    *file = (struct sl_message_checkpoint_file){.shard = result->file.shard,
                                                .bytes = result->file.bytes,
                                                .hash = result->file.hash,
                                                .rows = result->file.rows};
    (void)snprintf(file->name, sizeof file->name, "%s", result->file.name);
    all->has_worker = all->has_worker || result->goes_on;
    free(part);
    if (--all->waited == 0) {
        sl_agent_checkpoint_part(process->member, all->number, all->files,
                                 file_count(process, all->seats), all->has_worker);
    }
}

/* The core's reactor. */
static void on_ended(void *ctx, const struct sl_server_checkpoint_result *result)
{
    const struct sl_process_hosted *hosted = ctx;
    struct part *part = malloc(sizeof *part);
    if (part == NULL) {
        sl_reactor_post(hosted->core->reactor, 0,
                        (struct sl_mail){.run = part_expired,
                                         .ctx = hosted->core->process,
                                         .a = result->number});
        return;
    }
    *part = (struct part){.hosted = hosted, .result = *result};
    sl_reactor_post(hosted->core->reactor, 0,
                    (struct sl_mail){.run = part_came, .ctx = part, .drop = free});
}

static struct sl_server *server_of(const struct sl_process_hosted *hosted)
{
    return sl_process_replica_server(hosted->core->process, hosted->which, hosted->core->index);
}

static void hosted_checkpoint(void *ctx, uint64_t number, uint64_t base)
{
    const struct sl_process_hosted *hosted = ctx;
    sl_server_checkpoint_begin(server_of(hosted), number, base, now_s(hosted->core->process));
}

/* Posts a mail to each of these shards. */
static void post_seats(struct sl_process *process, uint32_t seats, struct sl_mail mail)
{
    for (uint32_t i = 0; i < file_count(process, seats); i++) {
        const uint32_t core = i % process->options.reactor_count;
        const uint32_t which = (seats & 1U) == 0 || i >= process->options.reactor_count;
        mail.ctx = &process->cores[core].seats[which];
        sl_reactor_post(process->reactors[0], core, mail);
    }
}

static void prune_work(struct sl_offload_job *job)
{
    struct prune *work = (struct prune *)job;
    uint32_t removed;
    work->err = sl_checkpoint_directory_remove_incomplete(
        work->disk, work->directory, work->options.below, SL_MESSAGE_NUMBERS_MAX, work->reason,
        sizeof work->reason);
    if (work->err == 0 && work->options.newest != 0) {
        work->err = sl_checkpoint_directory_prune(work->disk, work->directory, &work->options,
                                                  &removed, work->reason, sizeof work->reason);
    }
}

static void prune_done(struct sl_offload_job *job)
{
    struct prune *work = (struct prune *)job;
    if (job->err == 0 && work->err != 0) {
        sl_log_warn("old checkpoints are not all removed: %s", work->reason);
    }
    free(work);
}

/* Old checkpoints are removed only when every server has the newest complete one: otherwise servers
 * with their own directories could end without a common one. Checkpoints aborted since are removed
 * too, and abandoned ones once this job has a complete one. Files without a manifest are removed in
 * any case: if no checkpoint completes, they would fill the disk. */
static void prune(struct sl_process *process, const struct sl_message_checkpoint *begun)
{
    uint64_t above;
    uint64_t to;
    sl_agent_abandoned(process->member, &above, &to);
    above = begun->complete > to ? begun->complete : to;
    const bool is_known = begun->complete != 0 && above < begun->number;
    struct prune *work = calloc(1, sizeof *work);
    if (work == NULL) {
        return; /* retried with the next checkpoint */
    }
    work->job = (struct sl_offload_job){.work = prune_work, .done = prune_done, .allocates = true};
    work->disk = sl_process_disk(&process->options.checkpoint);
    work->directory = process->options.checkpoint.directory;
    work->options = (struct sl_checkpoint_prune_options){
        .range = range_of(process, sl_process_replica_hosted(process)),
        .keep = process->options.checkpoint.keep,
        .newest = is_known ? begun->complete : 0,
        .above = above,
        .below = begun->number};
    sl_offload_post(process->checkpoints->offload, &work->job);
}

void sl_process_on_checkpoint(void *ctx, const struct sl_message_checkpoint *begun)
{
    struct sl_process *process = ctx;
    struct sl_process_checkpoints *all = process->checkpoints;
    if (!process->is_open) {
        sl_agent_checkpoint_fail(process->member, begun->number, SL_ERR_AGAIN,
                                 "it is still being restored");
        return;
    }
    const uint32_t seats = sl_process_replica_hosted(process);
    if (seats == 0) {
        sl_agent_checkpoint_fail(process->member, begun->number, SL_ERR_AGAIN,
                                 "it has backups only");
        return;
    }
    prune(process, begun);
    all->number = begun->number;
    all->seats = seats;
    all->has_worker = false;
    all->waited = file_count(process, seats);
    all->begun_ns = sl_reactor_now_ns(process->reactors[0]);
    post_seats(process, seats,
               (struct sl_mail){.run = hosted_checkpoint, .a = begun->number, .b = begun->base});
}

/* Manifest */

static void manifest_work(struct sl_offload_job *job)
{
    struct sl_process_manifest *work = (struct sl_process_manifest *)job;
    work->err =
        sl_checkpoint_directory_publish(work->disk, work->directory, &work->manifest, work->range,
                                        work->writer, work->reason, sizeof work->reason);
}

static void hosted_completed(void *ctx, uint64_t number, uint64_t b)
{
    (void)b;
    sl_server_checkpoint_completed(server_of(ctx), number);
}

static void report(const struct sl_process *process, const struct sl_checkpoint_manifest *manifest)
{
    uint64_t bytes = 0, rows = 0;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        bytes += manifest->files[i].bytes;
        rows += manifest->files[i].rows;
    }
    const uint64_t took_ns =
        sl_reactor_now_ns(process->reactors[0]) - process->checkpoints->begun_ns;
    char base[48] = "";
    if (manifest->base != 0) {
        (void)snprintf(base, sizeof base, " is based on %" PRIu64 " and", manifest->base);
    }
    sl_log_info("checkpoint %" PRIu64 "%s is complete: %" PRIu64 " rows, %.1f MiB in %.1f s",
                manifest->number, base, rows, (double)bytes / (1 << 20),
                (double)took_ns / (double)SL_CLOCK_NS_PER_S);
}

/* Notifies the coordinator and the cores; later checkpoints may be based on this one. */
static void manifest_done(struct sl_offload_job *job)
{
    struct sl_process_manifest *work = (struct sl_process_manifest *)job;
    struct sl_process *process = work->process;
    const uint64_t number = work->manifest.number;
    const int err = job->err != 0 ? job->err : work->err;
    if (process->member == NULL) {
        /* the process is stopping */
    } else if (err != 0) {
        const char *why = job->err != 0 ? "there is no thread to write the manifest" : work->reason;
        sl_log_warn("checkpoint %" PRIu64 " is aborted, serving continues: %s", number, why);
        sl_agent_checkpoint_fail(process->member, number, err, why);
    } else {
        if (process->coordinator == NULL) { /* else the coordinator logs it */
            report(process, &work->manifest);
        }
        post_seats(process, process->checkpoints->seats,
                   (struct sl_mail){.run = hosted_completed, .a = number});
        sl_agent_checkpoint_done(process->member, number);
    }
    sl_checkpoint_manifest_fini(&work->manifest);
    free(work);
}

/* Errors: NO_MEMORY. */
static int fill_manifest(const struct sl_process *process, struct sl_checkpoint_manifest *manifest,
                         const struct sl_message_checkpoint_complete *complete)
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

void sl_process_on_checkpoint_complete(void *ctx,
                                       const struct sl_message_checkpoint_complete *complete)
{
    struct sl_process *process = ctx;
    const struct sl_process_checkpoint *options = &process->options.checkpoint;
    struct sl_process_manifest *work = calloc(1, sizeof *work);
    if (work == NULL || fill_manifest(process, &work->manifest, complete) != 0) {
        free(work);
        sl_agent_checkpoint_fail(process->member, complete->number, SL_ERR_NO_MEMORY,
                                 "no memory for the manifest");
        return;
    }
    work->job =
        (struct sl_offload_job){.work = manifest_work, .done = manifest_done, .allocates = true};
    work->process = process;
    work->disk = sl_process_disk(options);
    work->directory = options->directory;
    work->writer = process->task_index;
    work->range = range_of(process, process->checkpoints->seats);
    sl_offload_post(process->checkpoints->offload, &work->job);
}

/* Last checkpoint */

static void ask_for_last(struct sl_process *process);

static void last_answered(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_process *process = ctx;
    struct sl_process_checkpoints *all = process->checkpoints;
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
        sl_log_error("no last checkpoint: %s; what was written since the last complete one is lost",
                     reason);
        process->is_unsaved = true;
    }
    sl_process_answer(&process->cores[0], 0);
}

static void ask_for_last(struct sl_process *process)
{
    process->checkpoints->asks_left--;
    sl_agent_checkpoint_ask(process->member, process->options.drain_timeout_ns, last_answered,
                            process);
}

/* Reactor 0: all cores have fenced writes. Only a server that is alone in its cluster skips the
 * checkpoint if it has nothing to save: otherwise the other servers may need one, and every server
 * must take part. */
static void all_quiet(struct sl_process *process, bool holds_all)
{
    const bool is_degraded = process->options.ps_count == 1;
    if ((holds_all && is_degraded) || process->member == NULL) {
        sl_process_answer(&process->cores[0], 0);
        return;
    }
    sl_log_info("a last checkpoint is written; SIGQUIT ends the process without");
    process->checkpoints->asks_left = LAST_ASKS;
    ask_for_last(process);
}

static void core_is_quiet(void *ctx, uint64_t holds_all, uint64_t b)
{
    (void)b;
    struct sl_process *process = ctx;
    struct sl_process_checkpoints *all = process->checkpoints;
    all->holds_all = all->holds_all && holds_all != 0;
    if (--all->quiet_waited == 0) {
        all_quiet(process, all->holds_all);
    }
}

static void core_quiet(void *ctx, uint64_t handovers, uint64_t b)
{
    (void)b;
    struct sl_process_core *core = ctx;
    sl_process_replica_switch_over(core, handovers);
    sl_server_fence_writes(core->server);
    if (core->partner != NULL) {
        sl_server_fence_writes(core->partner);
    }
    sl_reactor_post(core->reactor, 0,
                    (struct sl_mail){.run = core_is_quiet,
                                     .ctx = core->process,
                                     .a = core->partner == NULL &&
                                          sl_server_checkpoint_holds_all(core->server)});
}

void sl_process_checkpoint_last(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    const struct sl_process_core *core = ctx;
    struct sl_process *process = core->process;
    process->checkpoints->quiet_waited = process->options.reactor_count;
    process->checkpoints->holds_all = true;
    sl_process_replica_end(process, core_quiet);
}

/* Open and close */

int sl_process_checkpoint_open(struct sl_process_core *core)
{
    const struct sl_process_checkpoint *options = &core->process->options.checkpoint;
    if (options->directory == NULL) {
        return 0;
    }
    struct sl_server_checkpoint_options server = {
        .disk = sl_process_disk(options),
        .directory = options->directory,
        .compression_level = options->compression_level,
        .snapshot_budget = options->snapshot_budget,
        .ended = on_ended,
    };
    int err = 0;
    for (uint32_t which = 0; which < SL_PROCESS_HOSTED_MAX && err == 0; which++) {
        core->seats[which] = (struct sl_process_hosted){.core = core, .which = which};
        server.ctx = &core->seats[which];
        if (which == SL_PROCESS_HOME || core->partner != NULL) {
            err = sl_server_checkpoint_open(server_of(&core->seats[which]), &server);
        }
    }
    if (err != 0 || core->index != 0) {
        return err;
    }
    struct sl_process *process = core->process;
    struct sl_process_checkpoints *all = calloc(1, sizeof *all);
    if (all == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    process->checkpoints = all;
    all->files =
        calloc((size_t)process->options.reactor_count * SL_PROCESS_HOSTED_MAX, sizeof *all->files);
    err = all->files == NULL ? SL_ERR_NO_MEMORY
                             : sl_offload_create(core->reactor, "manifest", &all->offload);
    if (err == 0) {
        sl_offload_set_place(all->offload, SL_OFFLOAD_PRIORITY_IDLE);
    }
    return err;
}

void sl_process_checkpoint_close(struct sl_process *process)
{
    struct sl_process_checkpoints *all = process->checkpoints;
    if (all == NULL) {
        return;
    }
    (void)sl_offload_destroy(&all->offload, DISK_WAIT_NS);
    free(all->files);
    free(all);
    process->checkpoints = NULL;
}
