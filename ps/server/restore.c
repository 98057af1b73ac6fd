#include "ps/server/restore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/event.h"
#include "ps/checkpoint/directory.h"
#include "ps/checkpoint/reader.h"
#include "ps/server/handshake.h"
#include "ps/server/session_load.h"
#include "ps/server/state.h"
#include "ps/shard/load.h"
#include "reactor/offload.h"

/* Blocks per read, and reads in flight. Unloaded blocks should stay in a shared cache, and neither
 * side should wait because one block takes longer. */
#define BATCH_BLOCKS 2
#define BATCHES      6

/* Maximum wait for the disk when the server is destroyed. */
#define DISK_WAIT_NS (2 * SL_CLOCK_NS_PER_S)

struct restore_files;

/* Consecutive blocks of one file. Belongs to the thread from its post until it is done, then to the
 * reactor. */
struct batch {
    struct sl_offload_job job; /* first */
    struct restore_files *files;
    struct sl_server_restore *owner;                /* used by the reactor only */
    struct sl_snapshot_block *blocks[BATCH_BLOCKS]; /* reused: swapped with the reader's block */
    uint32_t count;
    struct {
        uint32_t shard, shard_count;
        enum sl_checkpoint_workers workers;
        bool is_newest; /* of the checkpoint itself, not of a base */
    } stream;
    bool begins, ends; /* at the start or end of a file */
    bool is_last;      /* nothing is left to read after it */
    int err;
};

/* The files to read. Belongs to the thread while a batch is posted, except `reason` after is_over.
 * Outlives a server whose disk hangs. */
struct restore_files {
    const struct sl_disk *disk;
    char directory[SL_DISK_PATH_BYTES];
    uint64_t number;
    uint32_t shard, shard_count; /* to be loaded */
    struct sl_checkpoint_chain chain;
    struct sl_checkpoint_reader *reader;
    bool is_open;                /* the chain was read */
    bool is_over;                /* read completely or failed: later posted batches are empty */
    uint32_t stream_shard, item; /* position of the reader */
    struct sl_reason reason;
    struct batch batches[BATCHES];
};

struct sl_server_restore { /* belongs to the reactor */
    struct sl_server *server;
    struct sl_server_restore_options options;
    struct sl_offload *offload;
    struct restore_files *files;
    bool is_over;
    bool is_same; /* same index and count as in the checkpoint */

    uint32_t first; /* ring index of the batch to load next */
    uint32_t ready; /* batches read, from `first` on; all others are posted */
    uint32_t block; /* of the first batch */
    bool has_begun; /* the block was started; it takes several slices */
    struct sl_shard_load load;
    struct sl_server_session_load session_load;
    uint64_t bytes, begun_ns;

    struct sl_server_restore_table tables[SL_LIMIT_TABLES];
    uint32_t table_count;
};

/* Offload thread */

static bool is_same_numbering(const struct restore_files *files, uint32_t shard_count)
{
    return shard_count == files->shard_count;
}

/* Moves to the first file of the stream shard that is needed. */
static int to_first_file(struct restore_files *files)
{
    return sl_checkpoint_reader_first(files->disk, files->directory, &files->chain,
                                      files->stream_shard, &files->item, &files->reason);
}

/* Reads all manifests before the first file. */
static int open_chain(struct restore_files *files)
{
    struct sl_checkpoint_manifest manifest;
    int err = sl_checkpoint_directory_manifest(files->disk, files->directory, files->number,
                                               &manifest, &files->reason);
    if (err != 0) {
        return err;
    }
    struct sl_checkpoint_shard_range range = {0};
    if (is_same_numbering(files, manifest.shard_count)) {
        range = (struct sl_checkpoint_shard_range){.first = files->shard, .count = 1};
        files->stream_shard = files->shard;
    }
    sl_checkpoint_manifest_fini(&manifest);
    err = sl_checkpoint_directory_chain(files->disk, files->directory, files->number, range, NULL,
                                        &files->chain, &files->reason);
    files->is_open = err == 0;
    return err != 0 ? err : to_first_file(files);
}

static const struct sl_checkpoint_manifest *current(const struct restore_files *files)
{
    return &files->chain.items[files->item];
}

/* Moves to the file after the reader's. *is_last: none is left. */
static int to_next_file(struct restore_files *files, bool *is_last)
{
    *is_last = false;
    if (files->item + 1 < files->chain.count) {
        files->item++;
        return 0;
    }
    if (is_same_numbering(files, current(files)->shard_count) ||
        files->stream_shard + 1 == current(files)->shard_count) {
        *is_last = true;
        return 0;
    }
    files->stream_shard++;
    return to_first_file(files);
}

/* Reads from the open file, or from the next one. */
static int read_batch(struct batch *batch)
{
    struct restore_files *files = batch->files;
    int err = files->is_open ? 0 : open_chain(files);
    batch->begins = files->reader == NULL;
    if (err == 0 && batch->begins) {
        err = sl_checkpoint_reader_open(files->disk, files->directory, current(files),
                                        files->stream_shard, SL_CHECKPOINT_ALL_KINDS,
                                        &files->reader, &files->reason);
    }
    if (err != 0) {
        return err;
    }
    batch->stream.shard = files->stream_shard;
    batch->stream.shard_count = current(files)->shard_count;
    batch->stream.workers = current(files)->workers;
    batch->stream.is_newest = files->item + 1 == files->chain.count;
    while (batch->count < BATCH_BLOCKS && !batch->ends) {
        const struct sl_snapshot_block *block;
        err = sl_checkpoint_reader_next(files->reader, &block, &files->reason);
        if (err != 0) {
            return err;
        }
        batch->ends = block == NULL;
        if (block != NULL) {
            struct sl_snapshot_block **to = &batch->blocks[batch->count++];
            *to = sl_checkpoint_reader_take(files->reader, *to);
        }
    }
    if (batch->ends) {
        sl_checkpoint_reader_close(&files->reader);
        err = to_next_file(files, &batch->is_last);
    }
    return err;
}

static void batch_work(struct sl_offload_job *job)
{
    struct batch *batch = (struct batch *)job;
    struct restore_files *files = batch->files;
    if (files->is_over) {
        return;
    }
    batch->err = read_batch(batch);
    files->is_over = batch->err != 0 || batch->is_last;
}

static void files_free(struct restore_files *files)
{
    sl_checkpoint_reader_close(&files->reader);
    if (files->is_open) {
        sl_checkpoint_chain_fini(&files->chain);
    }
    for (uint32_t i = 0; i < BATCHES; i++) {
        for (uint32_t b = 0; b < BATCH_BLOCKS; b++) {
            sl_snapshot_block_destroy(&files->batches[i].blocks[b]);
        }
    }
    free(files);
}

/* Reactor */

static void batch_done(struct sl_offload_job *job);

static void server_restore_batch_post(struct sl_server_restore *restore, struct batch *batch)
{
    batch->count = 0;
    batch->begins = batch->ends = batch->stream.is_newest = batch->is_last = false;
    batch->err = 0;
    sl_offload_post(restore->offload, &batch->job);
}

static void server_restore_finish(struct sl_server_restore *restore, int err, const char *reason)
{
    restore->is_over = true;
    restore->ready = 0;
    restore->options.ended(restore->options.ctx, err, reason);
}

static void batch_done(struct sl_offload_job *job)
{
    struct batch *batch = (struct batch *)job;
    struct sl_server_restore *restore = batch->owner;
    if (restore->is_over) {
        return;
    }
    if (job->err != 0 || batch->err != 0) {
        server_restore_finish(restore, batch->err != 0 ? batch->err : job->err,
                              batch->err != 0 ? batch->files->reason.text
                                              : "no thread to read the files");
        return;
    }
    restore->ready++;
}

/* Records the checkpoint's tables. Its bases have no others. */
static int note_table(struct sl_server_restore *restore, const struct sl_snapshot_block *block,
                      struct sl_reason *reason)
{
    struct sl_snapshot_table table;
    int err = sl_snapshot_take_table(block, &table, reason);
    for (uint32_t i = 0; err == 0 && i < restore->table_count; i++) {
        if (restore->tables[i].id == block->table_id) {
            return 0;
        }
    }
    if (err == 0 && restore->table_count < SL_LIMIT_TABLES) {
        restore->tables[restore->table_count++] =
            (struct sl_server_restore_table){.id = block->table_id, .spec = table.spec};
    }
    return err;
}

/* Called once per block, before its first slice. */
static int begin_block(struct sl_server_restore *restore, const struct sl_snapshot_block *block,
                       struct sl_reason *reason)
{
    restore->bytes += block->bytes;
    if (block->kind == SL_SNAPSHOT_TABLE) {
        return note_table(restore, block, reason);
    }
    restore->session_load = (struct sl_server_session_load){.is_exact = false};
    return 0;
}

static int load_some(struct sl_server_restore *restore, const struct batch *batch,
                     const struct sl_snapshot_block *block, struct sl_reason *reason)
{
    if (block->kind == SL_SNAPSHOT_SESSIONS && batch->stream.is_newest && restore->is_same) {
        return sl_server_session_load(restore->server, block, &restore->session_load,
                                      SL_LIMIT_TURN_COST, reason);
    }
    return sl_shard_load_block(&restore->load, block, SL_LIMIT_TURN_COST, reason);
}

/* Loads as much of the batch as the budget allows. Returns SL_SHARD_DONE, SL_SHARD_AGAIN or an
 * error. */
static int load_slice(struct sl_server_restore *restore, struct batch *batch,
                      struct sl_reason *reason)
{
    struct sl_shard *shard = restore->server->shard;
    if (batch->begins) {
        batch->begins = false;
        int err = sl_shard_load_begin(&restore->load, shard, batch->stream.shard,
                                      batch->stream.shard_count, reason);
        if (err != 0) {
            return err;
        }
        restore->is_same = batch->stream.shard_count == restore->files->shard_count;
    }
    if (restore->block < batch->count) {
        const struct sl_snapshot_block *block = batch->blocks[restore->block];
        int result = restore->has_begun ? 0 : begin_block(restore, block, reason);
        restore->has_begun = true;
        result = result != 0 ? result : load_some(restore, batch, block, reason);
        if (result != SL_SHARD_DONE) {
            return result;
        }
        restore->has_begun = false;
        restore->block++;
        return restore->block < batch->count ? SL_SHARD_AGAIN : SL_SHARD_DONE;
    }
    return SL_SHARD_DONE;
}

/* A job that does not continue is a warning: its workers restart at iteration 0. */
static void report(const struct sl_server_restore *restore, bool goes_on)
{
    const struct sl_server *server = restore->server;
    const uint64_t took_ns = sl_server_now_ns(server) - restore->begun_ns;
    sl_log_event(goes_on ? SL_LOG_INFO : SL_LOG_WARN,
                 SL_EVENT("restore_done", SL_EVENT_NUMBER("shard", server->options.shard.index),
                          SL_EVENT_NUMBER("number", restore->options.number),
                          SL_EVENT_NUMBER("bytes", restore->bytes),
                          SL_EVENT_NUMBER("duration_ms", took_ns / SL_CLOCK_NS_PER_MS)),
                 "shard %u: checkpoint %" PRIu64 " is restored: %.1f MiB in %.1f s%s%s",
                 server->options.shard.index, restore->options.number,
                 (double)restore->bytes / (1 << 20), (double)took_ns / (double)SL_CLOCK_NS_PER_S,
                 restore->is_same ? "" : "; from another number of shards",
                 goes_on ? "" : "; a new job starts with its values, at iteration 0");
}

/* Returns true when the job was not over at the checkpoint. All shards must agree, although each
 * took its snapshot at another moment; so the manifest decides if it can. */
static bool goes_on(const struct sl_server_restore *restore, const struct batch *batch)
{
    return batch->stream.workers == SL_CHECKPOINT_WORKERS_UNKNOWN
               ? sl_server_job_continues(restore->server)
               : batch->stream.workers == SL_CHECKPOINT_WORKERS_SOME;
}

/* The batch is loaded: reuses its memory for the next read. */
static void next_batch(struct sl_server_restore *restore, struct batch *batch)
{
    restore->first = (restore->first + 1) % BATCHES;
    restore->ready--;
    restore->block = 0;
    if (batch->is_last) {
        const bool is_same_job = restore->is_same && goes_on(restore, batch);
        if (is_same_job) {
            sl_shard_load_allow_ahead(restore->server->shard);
        } else {
            sl_shard_load_new_job(restore->server->shard);
        }
        report(restore, is_same_job);
        server_restore_finish(restore, 0, "");
    } else {
        server_restore_batch_post(restore, batch);
    }
}

uint32_t sl_server_restore_run(struct sl_server *server)
{
    struct sl_server_restore *restore = server->restore.progress;
    if (restore == NULL || restore->ready == 0) {
        return 0;
    }
    struct batch *batch = &restore->files->batches[restore->first];
    struct sl_reason why = {0};
    int result = load_slice(restore, batch, &why);
    if (result == SL_SHARD_DONE && batch->ends) {
        int err = sl_shard_load_end(&restore->load, &why);
        result = err != 0 ? err : SL_SHARD_DONE;
    }
    if (result < 0) {
        struct sl_reason reason;
        char name[SL_CHECKPOINT_NAME_BYTES];
        sl_checkpoint_file_name(batch->stream.shard, batch->stream.shard_count, name);
        sl_reason_set(&reason, "%s of checkpoint %" PRIu64 " in %s: %s", name,
                      restore->options.number, restore->options.directory, why.text);
        server_restore_finish(restore, result, reason.text);
    } else if (result == SL_SHARD_DONE) {
        next_batch(restore, batch);
    }
    return 1;
}

bool sl_server_restore_is_idle(const struct sl_server *server)
{
    return server->restore.progress == NULL || server->restore.progress->ready == 0;
}

/* Interface */

int sl_server_restore_begin(struct sl_server *server,
                            const struct sl_server_restore_options *options)
{
    sl_reactor_assert_owner(server->options.reactor);
    sl_assert(server->shard != NULL);
    sl_assert(server->restore.progress == NULL);
    sl_assert(!server->is_open);
    struct sl_server_restore *restore = calloc(1, sizeof *restore);
    struct restore_files *files = calloc(1, sizeof *files);
    char name[32];
    int err = restore == NULL || files == NULL ? SL_ERR_NO_MEMORY : 0;
    if (err == 0) {
        (void)snprintf(name, sizeof name, "restore.%u", server->options.local_index);
        err = sl_offload_create(server->options.reactor, name, &restore->offload);
    }
    if (err != 0) {
        free(restore);
        free(files);
        return err;
    }
    sl_offload_set_priority(restore->offload, SL_OFFLOAD_PRIORITY_NORMAL);
    files->disk = options->disk;
    (void)snprintf(files->directory, sizeof files->directory, "%s", options->directory);
    files->number = options->number;
    files->shard = server->options.shard.index;
    files->shard_count = server->options.shard.count;
    for (uint32_t i = 0; i < BATCHES; i++) {
        files->batches[i].job = (struct sl_offload_job){.work = batch_work, .done = batch_done};
        files->batches[i].files = files;
        files->batches[i].owner = restore;
    }
    restore->server = server;
    restore->options = *options;
    restore->files = files;
    restore->begun_ns = sl_server_now_ns(server);
    server->restore.progress = restore;
    server->role.backup.needs_snapshot = true;
    for (uint32_t i = 0; i < BATCHES; i++) {
        server_restore_batch_post(restore, &files->batches[i]);
    }
    return 0;
}

const struct sl_server_restore_table *sl_server_restore_tables(const struct sl_server *server,
                                                               uint32_t *count)
{
    *count = server->restore.progress == NULL ? 0 : server->restore.progress->table_count;
    return server->restore.progress == NULL ? NULL : server->restore.progress->tables;
}

void sl_server_restore_fini(struct sl_server *server)
{
    struct sl_server_restore *restore = server->restore.progress;
    if (restore == NULL) {
        return;
    }
    restore->is_over = true;
    if (sl_offload_destroy(&restore->offload, DISK_WAIT_NS)) {
        files_free(restore->files);
    } /* else they belong to the thread until the process exits */
    free(restore);
    server->restore.progress = NULL;
}

void sl_server_start_serving(struct sl_server *server)
{
    sl_reactor_assert_owner(server->options.reactor);
    sl_assert(server->shard != NULL);
    sl_assert(!server->is_open);
    server->is_open = true;
    server->restore.is_done = server->restore.progress != NULL;
    sl_server_restore_fini(server);
    sl_server_sessions_await(server, 1);
    sl_server_sessions_number(server);
}
