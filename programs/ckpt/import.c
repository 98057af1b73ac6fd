#include "programs/ckpt/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/limits.h"
#include "programs/ckpt/import_table.h"
#include "programs/ckpt/spec_text.h"
#include "ps/checkpoint/directory.h"

struct job {
    const struct sl_import_options *options;
    struct sl_safetensors file;
    struct sl_import_table *tables;
    uint32_t table_count;
    struct sl_checkpoint_manifest manifest;
    uint32_t files; /* written so far */
};

static const char *const companions[] = {".keys",  ".values",      ".lens",  ".slots",
                                         ".steps", ".block_slots", ".counts"};

static bool has(const struct sl_safetensors *file, const char *name, const char *suffix)
{
    char whole[SL_TENSOR_NAME_BYTES + 16];
    (void)snprintf(whole, sizeof whole, "%s%s", name, suffix);
    return sl_tensor_find(&file->tensors, whole) != NULL;
}

/* Returns the name of the tensor's table: its own, or without the suffix if it is a companion of
 * other tensors. */
static void table_name(const struct sl_safetensors *file, const struct sl_tensor *tensor,
                       char name[SL_TENSOR_NAME_BYTES])
{
    (void)snprintf(name, SL_TENSOR_NAME_BYTES, "%s", tensor->name);
    for (uint32_t i = 0; i < sizeof companions / sizeof companions[0]; i++) {
        const size_t length = strlen(name);
        const size_t more = strlen(companions[i]);
        if (length <= more || strcmp(name + length - more, companions[i]) != 0) {
            continue;
        }
        name[length - more] = '\0';
        const bool pair = has(file, name, ".keys") && has(file, name, ".values");
        if (pair || (i >= 3 && has(file, name, ""))) {
            return;
        }
        (void)snprintf(name, SL_TENSOR_NAME_BYTES, "%s", tensor->name);
    }
}

static int known(const struct job *job, const char *name)
{
    for (uint32_t i = 0; i < job->table_count; i++) {
        if (strcmp(job->tables[i].info.spec.name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static int find_tables(struct job *job, struct sl_reason *reason)
{
    const struct sl_tensors *tensors = &job->file.tensors;
    job->tables = calloc(tensors->count + 1, sizeof *job->tables);
    if (job->tables == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
    }
    for (uint32_t i = 0; i < tensors->count; i++) {
        char name[SL_TENSOR_NAME_BYTES];
        table_name(&job->file, &tensors->items[i], name);
        if (strlen(name) >= SL_TABLE_NAME_BYTES) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "\"%s\": a table's name has at most %d bytes; rename the tensor",
                                  name, SL_TABLE_NAME_BYTES - 1);
        }
        if (known(job, name) >= 0) {
            continue;
        }
        if (job->table_count == SL_LIMIT_TABLES) {
            return sl_reason_fail(reason, SL_ERR_INVALID, "%s makes more than %d tables",
                                  job->file.path, SL_LIMIT_TABLES);
        }
        int err = sl_import_table_find(&job->file, name, &job->tables[job->table_count], reason);
        if (err != 0) {
            return err;
        }
        job->table_count++;
    }
    return 0;
}

/* Table properties */

static int read_metadata(const struct job *job, struct sl_import_table *table,
                         struct sl_reason *reason)
{
    char name[SL_TABLE_NAME_BYTES + 32];
    struct sl_reason why;
    (void)snprintf(name, sizeof name, "starling.table.%s", table->info.spec.name);
    const char *text = json_string_value(json_object_get(job->file.metadata, name));
    int err = text == NULL ? 0 : sl_spec_text_read(text, &table->info, &why);
    if (err != 0) {
        sl_reason_set(reason, "%s: metadata \"%s\": %s", job->file.path, name, why.text);
    }
    return err;
}

/* "NAME:text" for one table, "text" for all. */
static int read_with(struct job *job, const char *with, struct sl_reason *reason)
{
    char name[SL_TABLE_NAME_BYTES] = "";
    const char *colon = strrchr(with, ':');
    const char *text = colon == NULL ? with : colon + 1;
    bool found = false;
    if (colon != NULL && (size_t)(colon - with) < sizeof name) {
        (void)snprintf(name, sizeof name, "%.*s", (int)(colon - with), with);
    }
    for (uint32_t i = 0; i < job->table_count; i++) {
        struct sl_import_table *table = &job->tables[i];
        if (colon != NULL && strcmp(table->info.spec.name, name) != 0) {
            continue;
        }
        found = true;
        if (colon == NULL && table->info.spec.kind == SL_TABLE_KV) {
            continue; /* KV tables have a fixed optimizer */
        }
        struct sl_reason why;
        int err = sl_spec_text_read(text, &table->info, &why);
        if (err != 0) {
            return sl_reason_fail(reason, err, "--with %s: %s", with, why.text);
        }
    }
    if (!found && colon != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "--with %s: the file makes no table of that name", with);
    }
    return 0;
}

static int specify(struct job *job, struct sl_reason *reason)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < job->table_count; i++) {
        err = read_metadata(job, &job->tables[i], reason);
    }
    for (uint32_t i = 0; err == 0 && i < job->options->with_count; i++) {
        err = read_with(job, job->options->with[i], reason);
    }
    for (uint32_t i = 0; err == 0 && i < job->table_count; i++) {
        err = sl_import_table_check(&job->tables[i], reason);
    }
    for (uint32_t i = 0; err == 0 && i < job->table_count; i++) {
        if (job->tables[i].keys != NULL) {
            err = sl_import_table_check_keys(&job->file, &job->tables[i], reason);
        }
    }
    return err;
}

/* Checkpoint */

static int write_shard(struct job *job, uint32_t shard, struct sl_snapshot_block *block,
                       struct sl_reason *reason)
{
    const struct sl_checkpoint_writer_options options = {
        .disk = sl_disk_system(),
        .directory = job->options->directory,
        .number = job->manifest.number,
        .time_s = job->manifest.time_s,
        .shard = shard,
        .shard_count = job->manifest.shard_count,
        .compression_level = job->options->compression_level,
    };
    struct sl_import_sink sink = {
        .block = block, .end = {.shard = shard, .shard_count = job->manifest.shard_count}};
    int err = sl_checkpoint_writer_create(&options, &sink.writer, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; err == 0 && i < job->table_count; i++) {
        err = sl_import_table_write(&job->file, &job->tables[i], i, &sink, reason);
    }
    if (err == 0) {
        sl_snapshot_put_end(sink.block, &sink.end);
        err = sl_checkpoint_writer_write(sink.writer, sink.block, reason);
    }
    if (err != 0) {
        sl_checkpoint_writer_discard(&sink.writer);
        return err;
    }
    err = sl_checkpoint_writer_finish(&sink.writer, &job->manifest.files[shard], reason);
    job->files += err == 0;
    return err;
}

/* Removes the files written before an error; the manifest first, which may have its name when its
 * directory cannot be synced. */
static void remove_files(const struct job *job)
{
    char path[SL_DISK_PATH_BYTES];
    const struct sl_disk *disk = sl_disk_system();
    if (sl_checkpoint_directory_path(job->options->directory, job->manifest.number,
                                     SL_CHECKPOINT_MANIFEST_NAME, path, NULL) == 0) {
        (void)sl_disk_remove(disk, path, NULL);
    }
    for (uint32_t i = 0; i < job->files; i++) {
        if (sl_checkpoint_directory_path(job->options->directory, job->manifest.number,
                                         job->manifest.files[i].name, path, NULL) == 0) {
            (void)sl_disk_remove(disk, path, NULL);
        }
    }
    if (sl_checkpoint_directory_path(job->options->directory, job->manifest.number, NULL, path,
                                     NULL) == 0) {
        (void)sl_disk_remove_subdir(disk, path, NULL);
    }
}

static int choose_number(struct job *job, struct sl_reason *reason)
{
    struct sl_checkpoint_list list;
    uint64_t stray;
    const char *directory = job->options->directory;
    int err = sl_disk_make_directory(sl_disk_system(), directory, reason);
    err = err != 0 ? err : sl_checkpoint_directory_list(sl_disk_system(), directory, &list, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < list.count; i++) {
        if (list.items[i].number == job->options->number) {
            err = sl_reason_fail(reason, SL_ERR_EXISTS, "%s has a checkpoint %llu already",
                                 directory, (unsigned long long)job->options->number);
        }
    }
    (void)sl_checkpoint_list_drop_strays(&list, &stray);
    const uint64_t last = list.count == 0 ? 0 : list.items[list.count - 1].number;
    sl_checkpoint_list_fini(&list);
    job->manifest.number = job->options->number == 0 ? last + 1 : job->options->number;
    return err;
}

static int write_checkpoint(struct job *job, struct sl_reason *reason)
{
    const struct sl_checkpoint_shard_range all = {0};
    struct sl_snapshot_block *block;
    int err = sl_checkpoint_manifest_init(job->options->shard_count, &job->manifest);
    err = err != 0 ? err : sl_snapshot_block_create(SL_SNAPSHOT_BLOCK_BYTES, &block);
    if (err != 0) {
        return sl_reason_fail(reason, err, "no memory");
    }
    job->manifest.time_s = (int64_t)time(NULL);
    err = choose_number(job, reason);
    if (err == 0) {
        for (uint32_t i = 0; err == 0 && i < job->manifest.shard_count; i++) {
            err = write_shard(job, i, block, reason);
        }
        if (err == 0) {
            err = sl_checkpoint_directory_publish(sl_disk_system(), job->options->directory,
                                                  &job->manifest, all, 0, reason);
        }
        if (err != 0) {
            remove_files(job);
        }
    }
    sl_snapshot_block_destroy(&block);
    return err;
}

int sl_import_run(const struct sl_import_options *options, struct sl_import_result *out,
                  struct sl_reason *reason)
{
    struct job job = {.options = options};
    int err = sl_safetensors_open(options->path, &job.file, reason);
    if (err != 0) {
        return err;
    }
    err = find_tables(&job, reason);
    err = err != 0 ? err : specify(&job, reason);
    err = err != 0 ? err : write_checkpoint(&job, reason);
    const uint64_t number = job.manifest.number;
    sl_checkpoint_manifest_fini(&job.manifest);
    sl_safetensors_close(&job.file);
    if (err != 0) {
        free(job.tables);
        return err;
    }
    *out = (struct sl_import_result){
        .number = number, .tables = job.tables, .table_count = job.table_count};
    return 0;
}

void sl_import_result_fini(struct sl_import_result *result)
{
    free(result->tables);
    *result = (struct sl_import_result){0};
}
