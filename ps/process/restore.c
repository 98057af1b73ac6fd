#include "ps/process/restore.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/event.h"
#include "core/log.h"
#include "ps/checkpoint/directory.h"
#include "ps/checkpoint/select.h"
#include "ps/process/checkpoint.h"
#include "ps/process/hosted.h"
#include "ps/process/main_thread.h"
#include "ps/server/restore.h"
#include "reactor/disk.h"
#include "reactor/offload.h"

/* How long shutdown waits for a disk. */
#define DISK_WAIT_NS  SL_CLOCK_NS_PER_S

#define TABLE_WAIT_NS (60 * SL_CLOCK_NS_PER_S)

/* The search and its result. */
struct find {
    struct sl_process_disk_job base; /* must be first */
    struct sl_process_checkpoint options;
    struct sl_checkpoint_shard_range own; /* shards of this process, if the checkpoint has as many
                                             shards as the job; count 0: unknown */
    uint32_t shard_count;                 /* of the job; 0: unknown */
    struct sl_process_restore_candidate found;
    int (*join)(struct sl_process *process); /* called when the search is done */
};

/* Renames manifests of abandoned checkpoints. */
struct process_restore_abandon {
    struct sl_process_disk_job base; /* must be first */
    uint64_t above, to;
    uint32_t count;
};

struct sl_process_restore {
    struct sl_offload *offload;
    struct sl_process_restore_candidate found;
    uint32_t waited; /* shards that are still loading */
    bool failed;
    const struct sl_server_restore_table *tables; /* of the shard that loaded first */
    uint32_t table_count;
    uint32_t table;       /* next table to register with the coordinator */
    uint32_t expirations; /* sl_agent_expirations when the first table was registered */
    bool is_closing;
};

/* Returns what the log adds to the error: a way to start despite damage. */
static const char *fallback_hint(const struct sl_process *process, int err)
{
    const bool is_damage =
        err == SL_ERR_CORRUPT || err == SL_ERR_NOT_FOUND || err == SL_ERR_VERSION;
    return is_damage && !process->options.checkpoint.fallback
               ? "; with --restore-fallback it starts from the newest intact checkpoint before it"
               : "";
}

/* Search, on the offload thread */

static void log_finding(void *ctx, const char *path, const char *why)
{
    sl_log_error("%s: %s", path, why);
}

static void add_number(struct sl_message_numbers *numbers, uint64_t number)
{
    if (numbers->count < SL_MESSAGE_NUMBERS_MAX) {
        numbers->items[numbers->count++] = number;
    }
}

static void drop_strays(const char *directory, struct sl_checkpoint_list *list)
{
    uint64_t first;
    const uint32_t count = sl_checkpoint_list_drop_strays(list, &first);
    if (count > 0) {
        sl_log_warn(
            "%s/checkpoint-%" PRIu64
            "%s is ignored: it has no undamaged manifest, and its number is far above those of the "
            "job; remove the directory if nobody needs it",
            directory, first, count > 1 ? ", like others above it," : "");
    }
}

/* Looks for the checkpoint to restore, and for others in case other servers lack it. */
static int select_number(struct find *find, struct sl_checkpoint_list *list)
{
    static const struct sl_checkpoint_report report = {.find = log_finding};
    struct sl_process_disk_job *job = &find->base;
    struct sl_process_restore_candidate *found = &find->found;
    const uint64_t wanted = find->options.restore_number;
    const struct sl_checkpoint_select_options options = {
        .up_to = wanted,
        .fallback = find->options.fallback,
        .own = find->own,
        .shard_count = find->shard_count,
        .intact_max = SL_MESSAGE_NUMBERS_MAX,
        .report = &report,
    };
    int err = sl_checkpoint_select(job->disk, job->directory, &options, list, &found->number,
                                   &job->reason);
    for (uint32_t i = list->count; err == 0 && i-- > 0;) {
        const struct sl_checkpoint_found *item = &list->items[i];
        if (item->state == SL_CHECKPOINT_INTACT) {
            add_number(&found->complete, item->number);
        } else if (item->state == SL_CHECKPOINT_INCOMPLETE) {
            add_number(&found->unfinished, item->number);
        }
    }
    if (err == 0 && wanted != 0 &&
        (found->number == 0 || (!find->options.fallback && found->number != wanted))) {
        char older[24] = "none";
        if (found->number != 0) {
            (void)snprintf(older, sizeof older, "%" PRIu64, found->number);
        }
        sl_reason_set(&job->reason,
                      "there is no complete checkpoint %" PRIu64 " in %s; the newest before it: %s",
                      wanted, job->directory, older);
        err = SL_ERR_NOT_FOUND;
    }
    return err;
}

static void find_work(struct sl_process_disk_job *job)
{
    struct find *find = (struct find *)job;
    struct sl_checkpoint_list list;
    job->err = sl_checkpoint_directory_list(job->disk, job->directory, &list, &job->reason);
    if (job->err != 0) {
        return;
    }
    drop_strays(job->directory, &list);
    find->found.highest = list.count == 0 ? 0 : list.items[list.count - 1].number;
    if (find->options.restores) {
        job->err = select_number(find, &list);
    }
    for (uint32_t i = 0; !find->options.restores && !find->options.fresh && i < list.count; i++) {
        const struct sl_checkpoint_found *item = &list.items[i];
        find->found.unclaimed =
            item->state == SL_CHECKPOINT_INCOMPLETE ? find->found.unclaimed : item->number;
    }
    sl_checkpoint_list_fini(&list);
}

static void find_done(struct sl_process_disk_job *job)
{
    struct find *find = (struct find *)job;
    struct sl_process *process = job->process;
    struct sl_process_restore *restore = process->directory.restore;
    int err = job->err;
    if (restore->is_closing) {
        free(find);
        return; /* the process stops and does not join */
    }
    if (err != 0) {
        sl_log_error("nothing can be restored: %s%s", job->reason.text,
                     err == SL_ERR_NOT_FOUND ? "" : fallback_hint(process, err));
    } else if (find->options.restores && find->found.number == 0) {
        sl_log_info("%s holds no complete checkpoint: starts empty", job->directory);
    }
    restore->found = find->found;
    err = err != 0 ? err : find->join(process);
    free(find);
    if (err != 0) {
        sl_process_answer(&process->cores[0], err);
    }
}

/* Abandoned checkpoints, on the offload thread */

static void abandon_work(struct sl_process_disk_job *job)
{
    struct process_restore_abandon *work = (struct process_restore_abandon *)job;
    job->err = sl_checkpoint_directory_abandon(job->disk, job->directory, work->above, work->to,
                                               &work->count, &job->reason);
}

static void abandon_done(struct sl_process_disk_job *job)
{
    const struct process_restore_abandon *work = (const struct process_restore_abandon *)job;
    if (job->err != 0) {
        sl_log_warn("checkpoints above %" PRIu64 " are not all abandoned: %s", work->above,
                    job->reason.text);
    } else if (work->count > 0) {
        sl_log_warn("%" PRIu32 " checkpoint%s of %s above %" PRIu64
                    " %s abandoned, since the job does not continue from there: " //
                    SL_CHECKPOINT_ABANDONED_NAME,
                    work->count, sl_log_plural(work->count), job->directory, work->above,
                    work->count == 1 ? "is" : "are");
    }
    free(job);
}

/* Abandons the checkpoints that the job does not continue from: a later restore must not fall back
 * to one, or take one for the newest. Clients may be welcomed earlier: a process that dies before
 * gets the same range again. */
static void process_restore_abandon(struct sl_process *process)
{
    uint64_t above;
    uint64_t to;
    sl_agent_abandoned(process->agent, &above, &to);
    struct process_restore_abandon *work = to > above ? calloc(1, sizeof *work) : NULL;
    if (work == NULL) {
        return;
    }
    work->above = above;
    work->to = to;
    sl_process_disk_job_post(process, process->directory.restore->offload, &work->base,
                             abandon_work, abandon_done);
}

/* All shards have loaded */

static void shard_open_up(void *ctx, uint64_t a, uint64_t b)
{
    const struct sl_process_hosted *hosted = ctx;
    if (hosted->loads && hosted->server != NULL && !hosted->end.is_ending) {
        sl_server_start_serving(hosted->server);
    }
}

static void open_up(struct sl_process *process)
{
    process->is_open = true;
    (void)sl_process_hosted_post(process, shard_open_up, 0, 0);
    sl_process_hosted_started(process);
}

/* Registers one table after the other with the coordinator, which may be new too: clients must find
 * the ids there under which the shards have the tables. */
static void process_restore_keep_tables(struct sl_process *process);

static void process_restore_table_kept(void *ctx, const struct sl_message *answer, int err,
                                       const char *reason)
{
    struct sl_process *process = ctx;
    if (err != 0 && err != SL_ERR_NOT_FOUND) { /* that one was dropped: the shards drop it too */
        sl_log_error("a table of the checkpoint cannot be made known to the coordinator: %s",
                     reason);
        sl_process_answer(&process->cores[0], err);
        return;
    }
    process->directory.restore->table++;
    process_restore_keep_tables(process);
}

static void process_restore_keep_tables(struct sl_process *process)
{
    /* After a reconnect the coordinator may be another, which could assign the earlier ids to new
     * tables: start again. */
    if (process->directory.restore->expirations != sl_agent_expirations(process->agent)) {
        process->directory.restore->expirations = sl_agent_expirations(process->agent);
        process->directory.restore->table = 0;
    }
    if (process->directory.restore->table == process->directory.restore->table_count) {
        open_up(process);
        return;
    }
    const struct sl_server_restore_table *table =
        &process->directory.restore->tables[process->directory.restore->table];
    sl_agent_table_keep(process->agent, table->id, &table->spec, TABLE_WAIT_NS,
                        process_restore_table_kept, process);
}

struct loaded {
    struct sl_process *process;
    const struct sl_server_restore_table *tables; /* stay as they are until the shard serves */
    uint32_t table_count;
    int err;
    struct sl_reason reason;
};

static void shard_loaded(void *ctx, uint64_t a, uint64_t b)
{
    struct loaded *loaded = ctx;
    struct sl_process *process = loaded->process;
    struct sl_process_restore *restore = process->directory.restore;
    const int err = loaded->err;
    if (err != 0 && !restore->failed) {
        restore->failed = true;
        sl_log_event(
            SL_LOG_ERROR,
            SL_EVENT("restore_failed", SL_EVENT_NUMBER("number", sl_agent_restore(process->agent)),
                     SL_EVENT_TEXT("reason", loaded->reason.text)),
            "checkpoint %" PRIu64 " cannot be restored: %s%s", sl_agent_restore(process->agent),
            loaded->reason.text, fallback_hint(process, err));
        sl_process_answer(&process->cores[0], err);
    }
    if (restore->tables == NULL) {
        restore->tables = loaded->tables;
        restore->table_count = loaded->table_count;
    }
    free(loaded);
    if (--restore->waited == 0 && !restore->failed) {
        process_restore_keep_tables(process);
    }
}

/* One shard */

static void process_restore_on_loaded(void *ctx, int err, const char *reason)
{
    struct sl_process_hosted *hosted = ctx;
    struct loaded *loaded = malloc(sizeof *loaded);
    if (loaded == NULL) {
        sl_process_answer(hosted->core, SL_ERR_NO_MEMORY);
        return;
    }
    *loaded = (struct loaded){.process = hosted->process, .err = err};
    loaded->tables =
        err != 0 ? NULL : sl_server_restore_tables(hosted->server, &loaded->table_count);
    sl_reason_set(&loaded->reason, "%s", reason);
    sl_reactor_post(hosted->core->reactor, 0,
                    (struct sl_mail){.run = shard_loaded, .ctx = loaded, .drop = free});
}

int sl_process_restore_shard(struct sl_process_hosted *hosted, uint64_t number)
{
    const struct sl_process_checkpoint *checkpoint = &hosted->process->options.checkpoint;
    const struct sl_server_restore_options options = {
        .disk = sl_process_disk(checkpoint),
        .directory = checkpoint->directory,
        .number = number,
        .ended = process_restore_on_loaded,
        .ctx = hosted,
    };
    hosted->loads = number != 0;
    if (hosted->loads) {
        return sl_server_restore_begin(hosted->server, &options);
    }
    /* Serves at once. A backup does too: only its primary connects to it. */
    if (checkpoint->restores) {
        sl_server_start_serving(hosted->server);
    }
    return 0;
}

/* Calls from reactor 0 */

uint64_t sl_process_restore_joined(struct sl_process *process)
{
    struct sl_process_restore *restore = process->directory.restore;
    const uint64_t number = restore == NULL ? 0 : sl_agent_restore(process->agent);
    uint32_t primaries = 0;
    SL_PROCESS_FOREACH (hosted, process) {
        primaries += hosted->placement.primary == process->member.task_index;
    }
    process->is_open = number == 0 || primaries == 0;
    if (number != 0) {
        restore->waited = primaries;
        sl_log_event(SL_LOG_INFO, SL_EVENT("restore_started", SL_EVENT_NUMBER("number", number)),
                     "restores checkpoint %" PRIu64 " from %s; clients wait until it is loaded",
                     number, process->options.checkpoint.directory);
    } else if (restore != NULL && primaries == 0) {
        sl_log_info("restores nothing: others serve its shards now; it receives their backups");
    } else if (restore != NULL && restore->found.number != 0) {
        sl_log_warn("starts empty, although %s holds checkpoint %" PRIu64
                    ": the job does not continue from there",
                    process->options.checkpoint.directory, restore->found.number);
    }
    if (restore != NULL && process->options.checkpoint.restores) {
        process_restore_abandon(process);
    }
    if (restore != NULL && sl_agent_kept(process->agent) != 0 && restore->found.highest != 0) {
        sl_log_info("starts empty: checkpoints of earlier jobs, up to %" PRIu64
                    ", stay in %s until they are removed by hand",
                    sl_agent_kept(process->agent), process->options.checkpoint.directory);
    }
    return number;
}

bool sl_process_restore_is_needed(const struct sl_process *process)
{
    return process->directory.restore != NULL && process->directory.restore->waited > 0;
}

struct sl_process_restore_candidate sl_process_restore_found(const struct sl_process *process)
{
    return process->directory.restore == NULL ? (struct sl_process_restore_candidate){0}
                                              : process->directory.restore->found;
}

int sl_process_restore_begin(struct sl_process *process, int (*join)(struct sl_process *process))
{
    const struct sl_process_options *options = &process->options;
    struct sl_process_restore *restore = calloc(1, sizeof *restore);
    struct find *find = calloc(1, sizeof *find);
    int err = restore == NULL || find == NULL ? SL_ERR_NO_MEMORY : 0;
    err = err != 0 ? err : sl_offload_create(process->reactors[0], "restore", &restore->offload);
    if (err != 0) {
        free(restore);
        free(find);
        return err;
    }
    find->join = join;
    find->options = options->checkpoint;
    /* A server that joins has no home shards, and does not know how many the job has. */
    find->shard_count = options->reactors.joins ? 0 : options->ps_count * options->reactors.shards;
    if (!options->any_task && !options->reactors.joins) {
        find->own = (struct sl_checkpoint_shard_range){.first = options->task_index *
                                                                options->reactors.shards,
                                                       .count = options->reactors.shards};
    }
    process->directory.restore = restore;
    sl_process_disk_job_post(process, restore->offload, &find->base, find_work, find_done);
    return 0;
}

void sl_process_restore_close(struct sl_process *process)
{
    struct sl_process_restore *restore = process->directory.restore;
    if (restore == NULL) {
        return;
    }
    restore->is_closing = true;
    (void)sl_offload_destroy(&restore->offload, DISK_WAIT_NS);
    free(restore);
    process->directory.restore = NULL;
}
