#include "ps/server/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/list.h"
#include "ps/checkpoint/writer.h"
#include "ps/server/session_snapshot.h"
#include "ps/server/state.h"
#include "reactor/disk.h"
#include "reactor/offload.h"

/* Blocks in flight to the disk: enough to keep it busy during a long turn. */
#define BLOCKS_AWAY         4

/* Turn cost of the walk: in a turn without requests, with some, and with its budget spent. */
#define IDLE_KEYS           512
#define BUSY_KEYS           256
#define LEAST_KEYS          128

/* Maximum wait for the disk when the server is destroyed. */
#define DISK_WAIT_NS        (2 * SL_CLOCK_NS_PER_S)

#define PATIENCE_DEFAULT_NS (120 * SL_CLOCK_NS_PER_S)
#define CHECK_NS            SL_CLOCK_NS_PER_S
#define ITERATION_NS        (2 * SL_CLOCK_NS_PER_S) /* longest wait for an iteration */

enum step { STEP_CREATE, STEP_WRITE, STEP_FINISH, STEP_DISCARD };

/* One shard's file in progress. Belongs to the offload thread, except `owner` and `jobs`. Outlives
 * a server whose disk hangs. */
struct sl_server_checkpoint_file {
    struct sl_server_checkpoint *owner;
    const struct sl_disk *disk;
    char directory[SL_DISK_PATH_BYTES];
    struct sl_checkpoint_writer_options options;
    struct sl_checkpoint_writer *writer;
    struct sl_checkpoint_entry entry;
    int err; /* the first failure; the remaining jobs do nothing */
    struct sl_reason reason;
    uint32_t jobs; /* posted; the reactor's */
    /* Instead of a file; then the reactor's is how it ended. NULL: a file */
    struct sl_server_snapshot_sink *sink;
    int sink_err;
    struct sl_reason sink_reason;
};

struct sl_server_checkpoint_job {
    struct sl_offload_job job; /* first */
    struct sl_server_checkpoint_file *file;
    struct sl_snapshot_block *block; /* WRITE */
    enum step step;
    int err; /* of the file at that time */
};

enum stage { NONE, WANTED, WALKING, FINISHING };

struct sl_server_checkpoint {
    struct sl_server *server;
    struct sl_server_checkpoint_options options;
    struct sl_offload *offload;
    struct sl_timer watch; /* armed while a checkpoint is in progress */

    enum stage stage;
    uint64_t number, base;
    int64_t time_s;
    struct sl_server_checkpoint_file *file; /* NULL: none, or left to the thread */
    uint64_t progress_ns;                   /* last progress */
    uint64_t writes;                        /* server->writes.count at the snapshot */
    bool goes_on;                           /* sl_server_job_continues at the snapshot */
    uint32_t jobs_away;                     /* of all files, also of aborted ones */
    struct sl_snapshot_block *returned;     /* by the thread */

    /* Bases of later incrementals. `newest`: the last one made, perhaps not complete in the whole
     * cluster; `complete`: the last complete one. */
    struct sl_shard_snapshot_base *newest_base, *complete_base;
    uint64_t newest, complete;
    uint64_t newest_writes, complete_writes;
};

/* Offload thread */

static int file_step(struct sl_server_checkpoint_file *file,
                     const struct sl_server_checkpoint_job *job)
{
    if (file->sink != NULL) {
        return job->step == STEP_WRITE ? file->sink->take(file->sink, job->block, &file->reason)
                                       : 0;
    }
    switch (job->step) {
    case STEP_CREATE:
        return sl_checkpoint_writer_create(&file->options, &file->writer, &file->reason);
    case STEP_WRITE:
        return sl_checkpoint_writer_write(file->writer, job->block, &file->reason);
    case STEP_FINISH:
        return sl_checkpoint_writer_finish(&file->writer, &file->entry, &file->reason);
    case STEP_DISCARD:
        sl_checkpoint_writer_discard(&file->writer);
        return 0;
    }
    return 0;
}

static void server_checkpoint_job_work(struct sl_offload_job *work)
{
    struct sl_server_checkpoint_job *job = (struct sl_server_checkpoint_job *)work;
    struct sl_server_checkpoint_file *file = job->file;
    if (file->err == 0 || job->step == STEP_DISCARD) {
        int err = file_step(file, job);
        file->err = file->err != 0 ? file->err : err;
    }
    job->err = file->err;
}

/* Ends */

static void file_free(struct sl_server_checkpoint_file *file)
{
    sl_assert(file->jobs == 0);
    sl_checkpoint_writer_discard(&file->writer);
    if (file->sink != NULL) {
        file->sink->ended(file->sink, file->sink_err, file->sink_reason.text);
    }
    free(file);
}

static void server_checkpoint_block_put(struct sl_server_checkpoint *checkpoint,
                                        struct sl_snapshot_block *block)
{
    if (block != NULL) {
        block->next = checkpoint->returned;
        checkpoint->returned = block;
    }
}

static void put_returned(struct sl_server_checkpoint *checkpoint)
{
    while (checkpoint->returned != NULL) {
        struct sl_snapshot_block *block = checkpoint->returned;
        checkpoint->returned = block->next;
        block->next = NULL;
        sl_shard_snapshot_put(checkpoint->server->shard, block);
    }
}

static bool server_checkpoint_post(struct sl_server_checkpoint *checkpoint, enum step step,
                                   struct sl_snapshot_block *block);

/* A running snapshot may belong to the catch-up of a backup; it continues. A PENDING one may too:
 * the catch-up requests it again. */
static void end_own_snapshot(struct sl_server_checkpoint *checkpoint)
{
    struct sl_server *server = checkpoint->server;
    if (checkpoint->stage == WALKING ||
        sl_shard_snapshot_state(server->shard) == SL_SHARD_SNAPSHOT_PENDING) {
        sl_server_snapshot_end(server, NULL);
    }
}

/* The snapshot in progress is no checkpoint. */
static bool reads_only(const struct sl_server_checkpoint *checkpoint)
{
    return checkpoint->file != NULL && checkpoint->file->sink != NULL;
}

/* Ends the checkpoint in progress. The thread may still have jobs for its file. */
static void server_checkpoint_reset(struct sl_server_checkpoint *checkpoint)
{
    sl_timer_disarm(sl_server_timers(checkpoint->server), &checkpoint->watch);
    sl_shard_snapshot_hold(checkpoint->server->shard, SL_CLOCKS_FINISHED);
    end_own_snapshot(checkpoint);
    struct sl_server_checkpoint_file *file = checkpoint->file;
    checkpoint->file = NULL;
    checkpoint->stage = NONE;
    sl_server_unblock(checkpoint->server);
    if (file != NULL && file->jobs == 0) {
        file_free(file);
    }
}

static void server_checkpoint_give_up(struct sl_server_checkpoint *checkpoint, int err,
                                      const char *reason)
{
    struct sl_server_checkpoint_result result = {.number = checkpoint->number, .err = err};
    sl_reason_set(&result.reason, "%s", reason);
    if (reads_only(checkpoint)) {
        checkpoint->file->sink_err = err;
        checkpoint->file->sink_reason = result.reason;
        server_checkpoint_reset(checkpoint);
        return;
    }
    if (checkpoint->file != NULL && checkpoint->stage != FINISHING) {
        (void)server_checkpoint_post(checkpoint, STEP_DISCARD, NULL);
    }
    server_checkpoint_reset(checkpoint);
    checkpoint->options.ended(checkpoint->options.ctx, &result);
}

static void finished(struct sl_server_checkpoint *checkpoint)
{
    if (reads_only(checkpoint)) {
        checkpoint->file->sink_err = 0;
        server_checkpoint_reset(checkpoint);
        return;
    }
    struct sl_server_checkpoint_result result = {.number = checkpoint->number,
                                                 .file = checkpoint->file->entry,
                                                 .goes_on = checkpoint->goes_on};
    checkpoint->newest = checkpoint->number;
    checkpoint->newest_writes = checkpoint->writes;
    server_checkpoint_reset(checkpoint);
    checkpoint->options.ended(checkpoint->options.ctx, &result);
}

/* Jobs */

static void server_checkpoint_job_done(struct sl_offload_job *work)
{
    struct sl_server_checkpoint_job *job = (struct sl_server_checkpoint_job *)work;
    struct sl_server_checkpoint_file *file = job->file;
    struct sl_server_checkpoint *checkpoint = file->owner;
    const bool has_run = work->err == 0;
    const int err = has_run ? job->err : work->err;
    const enum step step = job->step;
    file->jobs--;
    checkpoint->jobs_away--;
    server_checkpoint_block_put(checkpoint, job->block);
    free(job);
    if (file != checkpoint->file) {
        if (file->jobs == 0) {
            file_free(file); /* of an aborted checkpoint */
        }
        return;
    }
    checkpoint->progress_ns = sl_server_now_ns(checkpoint->server);
    if (err != 0) {
        server_checkpoint_give_up(
            checkpoint, err, has_run ? file->reason.text : "there is no thread to write the file");
    } else if (step == STEP_FINISH) {
        finished(checkpoint);
    }
}

/* Posts a job for the current file. False: no memory, no effect. */
static bool server_checkpoint_post(struct sl_server_checkpoint *checkpoint, enum step step,
                                   struct sl_snapshot_block *block)
{
    struct sl_server_checkpoint_job *job = malloc(sizeof *job);
    if (job == NULL) {
        return false;
    }
    *job = (struct sl_server_checkpoint_job){
        .job = {.work = server_checkpoint_job_work,
                .done = server_checkpoint_job_done,
                .allocates = step != STEP_WRITE || reads_only(checkpoint)},
        .file = checkpoint->file,
        .block = block,
        .step = step,
    };
    checkpoint->file->jobs++;
    checkpoint->jobs_away++;
    sl_offload_post(checkpoint->offload, &job->job);
    return true;
}

/* Snapshot */

static const struct sl_shard_snapshot_base *base_of(const struct sl_server_checkpoint *checkpoint)
{
    return checkpoint->base != 0 && checkpoint->base == checkpoint->complete
               ? checkpoint->complete_base
               : NULL;
}

static bool make_file(struct sl_server_checkpoint *checkpoint)
{
    struct sl_server_checkpoint_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        return false;
    }
    const struct sl_shard_options *shard = &checkpoint->server->options.shard;
    file->owner = checkpoint;
    file->disk = checkpoint->options.disk;
    (void)snprintf(file->directory, sizeof file->directory, "%s", checkpoint->options.directory);
    file->options = (struct sl_checkpoint_writer_options){
        .disk = file->disk,
        .directory = file->directory,
        .number = checkpoint->number,
        .base = sl_shard_snapshot_is_full(checkpoint->server->shard) ? 0 : checkpoint->base,
        .time_s = checkpoint->time_s,
        .shard = shard->index,
        .shard_count = shard->count,
        .compression_level = checkpoint->options.compression_level,
    };
    checkpoint->file = file;
    return server_checkpoint_post(checkpoint, STEP_CREATE, NULL);
}

/* Before the checkpoint's own snapshot starts: an existing one belongs to a backup's catch-up. */
static bool is_for_catch_up(const struct sl_server_checkpoint *checkpoint)
{
    const enum sl_shard_snapshot_state state = sl_shard_snapshot_state(checkpoint->server->shard);
    return state != SL_SHARD_SNAPSHOT_NONE && state != SL_SHARD_SNAPSHOT_PENDING;
}

/* Returns true while a backup's snapshot is in progress, or while a backup that will be promoted
 * has acknowledged entries left to execute. */
static bool has_to_wait(const struct sl_server_checkpoint *checkpoint)
{
    return checkpoint->jobs_away > 0 /* of an aborted checkpoint */ ||
           is_for_catch_up(checkpoint) || checkpoint->server->role.has_entries;
}

/* The shard has not come to the iteration of which a snapshot is wanted. */
static bool has_to_iterate(const struct sl_server_checkpoint *checkpoint)
{
    return reads_only(checkpoint) && sl_shard_snapshot_iterations(checkpoint->server->shard) <
                                         checkpoint->file->sink->iterations;
}

/* The shard is past that iteration, or there although it cannot wait. */
static bool is_past(const struct sl_server_checkpoint *checkpoint)
{
    return reads_only(checkpoint) && (sl_shard_snapshot_iterations(checkpoint->server->shard) !=
                                          checkpoint->file->sink->iterations ||
                                      has_to_wait(checkpoint));
}

/* Starts the snapshot if no push is partly applied: it holds the shard and the sessions as they are
 * now. */
static void begin_snapshot(struct sl_server_checkpoint *checkpoint)
{
    struct sl_server *server = checkpoint->server;
    if (has_to_iterate(checkpoint)) {
        return;
    }
    if (is_past(checkpoint)) {
        server_checkpoint_give_up(checkpoint, SL_ERR_AGAIN, "the shard is past that iteration");
        return;
    }
    if (has_to_wait(checkpoint)) {
        return;
    }
    int err = sl_server_snapshot_begin(server, base_of(checkpoint), false);
    if (err == SL_ERR_AGAIN) {
        return;
    }
    checkpoint->stage = err == 0 ? WALKING : checkpoint->stage;
    if (err != 0 || (!reads_only(checkpoint) && !make_file(checkpoint))) {
        server_checkpoint_give_up(checkpoint, err != 0 ? err : SL_ERR_NO_MEMORY,
                                  "no memory to begin it");
        return;
    }
    checkpoint->writes = server->writes.count;
    checkpoint->goes_on = sl_server_job_continues(server);
    checkpoint->progress_ns = sl_server_now_ns(server);
    sl_server_unblock(server);
}

/* Posts blocks up to the limit in flight. False: the checkpoint was aborted. */
static bool post_blocks(struct sl_server_checkpoint *checkpoint)
{
    while (checkpoint->jobs_away < BLOCKS_AWAY) {
        struct sl_snapshot_block *block = sl_shard_snapshot_take(checkpoint->server->shard);
        if (block == NULL) {
            break;
        }
        if (!server_checkpoint_post(checkpoint, STEP_WRITE, block)) {
            server_checkpoint_block_put(checkpoint, block);
            server_checkpoint_give_up(checkpoint, SL_ERR_NO_MEMORY, "no memory to write a block");
            return false;
        }
    }
    return true;
}

/* All blocks were posted: ends the file. */
static void end_snapshot(struct sl_server_checkpoint *checkpoint)
{
    if (reads_only(checkpoint)) {
        sl_server_snapshot_end(checkpoint->server, NULL);
    } else {
        sl_shard_snapshot_base_destroy(&checkpoint->newest_base);
        sl_server_snapshot_end(checkpoint->server, &checkpoint->newest_base);
        checkpoint->newest = 0; /* until the file is complete */
    }
    checkpoint->stage = FINISHING;
    if (!server_checkpoint_post(checkpoint, STEP_FINISH, NULL)) {
        checkpoint->stage = WALKING; /* so that the file is abandoned */
        server_checkpoint_give_up(checkpoint, SL_ERR_NO_MEMORY, "no memory to end the file");
    }
}

static uint32_t continue_snapshot(struct sl_server_checkpoint *checkpoint, uint32_t keys)
{
    struct sl_shard *shard = checkpoint->server->shard;
    const uint32_t spent =
        checkpoint->jobs_away < BLOCKS_AWAY ? sl_shard_snapshot_run(shard, keys) : 0;
    if (sl_shard_snapshot_state(shard) == SL_SHARD_SNAPSHOT_FAILED) {
        server_checkpoint_give_up(checkpoint, SL_ERR_NO_MEMORY, sl_shard_snapshot_why(shard));
    } else if (post_blocks(checkpoint) &&
               sl_shard_snapshot_state(shard) == SL_SHARD_SNAPSHOT_DONE) {
        end_snapshot(checkpoint);
    }
    return spent;
}

uint32_t sl_server_checkpoint_run(struct sl_server *server, uint32_t keys)
{
    struct sl_server_checkpoint *checkpoint = server->checkpoint;
    if (checkpoint == NULL) {
        return 0;
    }
    put_returned(checkpoint);
    if (checkpoint->stage == WANTED) {
        begin_snapshot(checkpoint);
        return 1;
    }
    if (checkpoint->stage != WALKING) {
        return 0;
    }
    if (checkpoint->options.snapshot_budget > 0) {
        return continue_snapshot(checkpoint, checkpoint->options.snapshot_budget);
    }
    if (keys == SL_LIMIT_TURN_COST) {
        return continue_snapshot(checkpoint, IDLE_KEYS);
    }
    return continue_snapshot(checkpoint, keys < BUSY_KEYS ? LEAST_KEYS : BUSY_KEYS);
}

bool sl_server_checkpoint_is_idle(const struct sl_server *server)
{
    const struct sl_server_checkpoint *checkpoint = server->checkpoint;
    if (checkpoint == NULL) {
        return true;
    }
    if (checkpoint->returned != NULL) {
        return false;
    }
    if (checkpoint->stage == NONE || checkpoint->stage == FINISHING) {
        return true;
    }
    if (checkpoint->stage == WANTED) {
        return has_to_iterate(checkpoint) || (!reads_only(checkpoint) && has_to_wait(checkpoint));
    }
    return checkpoint->jobs_away >= BLOCKS_AWAY || sl_shard_snapshot_waits(server->shard);
}

/* Stalled disk */

static void check_disk(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server_checkpoint *checkpoint =
        SL_CONTAINER_OF(timer, struct sl_server_checkpoint, watch);
    if (has_to_iterate(checkpoint) && checkpoint->stage == WANTED &&
        now_ns - checkpoint->progress_ns >= ITERATION_NS) {
        server_checkpoint_give_up(checkpoint, SL_ERR_AGAIN,
                                  "the shard does not come to that iteration");
        return;
    }
    if (now_ns - checkpoint->progress_ns < checkpoint->options.patience_ns) {
        sl_timer_arm(sl_server_timers(checkpoint->server), timer, now_ns + CHECK_NS);
        return;
    }
    const uint64_t waited_s = (now_ns - checkpoint->progress_ns) / SL_CLOCK_NS_PER_S;
    struct sl_reason reason;
    if (checkpoint->stage == WANTED && is_for_catch_up(checkpoint)) {
        sl_reason_set(&reason,
                      "the snapshot for the shard's backup has been running for %" PRIu64 " s",
                      waited_s);
    } else if (checkpoint->stage == WANTED && checkpoint->jobs_away == 0) {
        sl_reason_set(&reason, "a push has been in progress for %" PRIu64 " s without an end",
                      waited_s);
    } else {
        sl_reason_set(&reason, "%s: the disk has taken nothing for %" PRIu64 " s",
                      reads_only(checkpoint) ? "a reader" : checkpoint->options.directory,
                      waited_s);
    }
    server_checkpoint_give_up(checkpoint, SL_ERR_DEADLINE, reason.text);
}

/* Interface */

int sl_server_checkpoint_open(struct sl_server *server,
                              const struct sl_server_checkpoint_options *options)
{
    sl_reactor_assert_owner(server->options.reactor);
    sl_assert(server->checkpoint == NULL);
    struct sl_server_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    char name[32];
    (void)snprintf(name, sizeof name, "checkpoint.%u", server->options.local_index);
    int err = sl_offload_create(server->options.reactor, name, &checkpoint->offload);
    if (err != 0) {
        free(checkpoint);
        return err;
    }
    sl_offload_set_priority(checkpoint->offload, SL_OFFLOAD_PRIORITY_IDLE);
    checkpoint->server = server;
    checkpoint->options = *options;
    checkpoint->options.patience_ns =
        options->patience_ns == 0 ? PATIENCE_DEFAULT_NS : options->patience_ns;
    checkpoint->watch.run = check_disk;
    server->checkpoint = checkpoint;
    return 0;
}

static void want(struct sl_server_checkpoint *checkpoint, uint64_t number, uint64_t base,
                 int64_t time_s)
{
    struct sl_server *server = checkpoint->server;
    checkpoint->stage = WANTED;
    checkpoint->number = number;
    checkpoint->base = base;
    checkpoint->time_s = time_s;
    checkpoint->progress_ns = sl_server_now_ns(server);
    sl_timer_arm(sl_server_timers(server), &checkpoint->watch, checkpoint->progress_ns + CHECK_NS);
}

void sl_server_checkpoint_begin(struct sl_server *server, uint64_t number, uint64_t base,
                                int64_t time_s)
{
    struct sl_server_checkpoint *checkpoint = server->checkpoint;
    sl_reactor_assert_owner(server->options.reactor);
    sl_assert(checkpoint != NULL);
    sl_assert(server->shard != NULL);
    if (checkpoint->stage != NONE) {
        server_checkpoint_give_up(checkpoint, SL_ERR_CANCELLED, "another one is begun");
    }
    want(checkpoint, number, base, time_s);
}

int sl_server_snapshot_read(struct sl_server *server, struct sl_server_snapshot_sink *sink)
{
    struct sl_server_checkpoint *checkpoint = server->checkpoint;
    sl_reactor_assert_owner(server->options.reactor);
    if (checkpoint->stage != NONE) {
        return SL_ERR_EXISTS;
    }
    struct sl_server_checkpoint_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    file->owner = checkpoint;
    file->sink = sink;
    file->sink_err = SL_ERR_CANCELLED; /* unless it is finished */
    sl_reason_set(&file->sink_reason, "the shard ends");
    checkpoint->file = file;
    sl_shard_snapshot_hold(server->shard, sink->iterations);
    want(checkpoint, 0, 0, 0);
    return 0;
}

void sl_server_checkpoint_completed(struct sl_server *server, uint64_t number)
{
    struct sl_server_checkpoint *checkpoint = server->checkpoint;
    sl_reactor_assert_owner(server->options.reactor);
    if (checkpoint == NULL || checkpoint->newest != number) {
        return;
    }
    sl_shard_snapshot_base_destroy(&checkpoint->complete_base);
    checkpoint->complete_base = checkpoint->newest_base;
    checkpoint->newest_base = NULL;
    checkpoint->complete = number;
    checkpoint->complete_writes = checkpoint->newest_writes;
    checkpoint->newest = 0;
}

bool sl_server_checkpoint_holds_all(const struct sl_server *server)
{
    const struct sl_server_checkpoint *checkpoint = server->checkpoint;
    sl_reactor_assert_owner(server->options.reactor);
    return checkpoint != NULL && checkpoint->complete_writes == server->writes.count &&
           sl_server_is_idle(server); /* waiting requests may still write */
}

void sl_server_fence_writes(struct sl_server *server)
{
    sl_reactor_assert_owner(server->options.reactor);
    sl_server_pull_batch_answer(server);
    server->writes.are_fenced = true;
}

/* Blocks returned later are freed with the shard. */
void sl_server_checkpoint_fini(struct sl_server *server)
{
    struct sl_server_checkpoint *checkpoint = server->checkpoint;
    if (checkpoint == NULL) {
        return;
    }
    if (checkpoint->stage != NONE) {
        server_checkpoint_reset(checkpoint);
    }
    (void)sl_offload_destroy(&checkpoint->offload, DISK_WAIT_NS);
    put_returned(checkpoint);
    sl_shard_snapshot_base_destroy(&checkpoint->newest_base);
    sl_shard_snapshot_base_destroy(&checkpoint->complete_base);
    server->checkpoint = NULL;
    if (checkpoint->jobs_away == 0) {
        free(checkpoint);
    } /* else the disk hangs: leaked with its file until the process exits */
}
