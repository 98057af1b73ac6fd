#include "programs/train/model_file_save.h"

#include <errno.h>
#include <jansson.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <starling_rows.h>

#include "programs/ckpt/spec_text.h"
#include "programs/ckpt/tensor_writer.h"
#include "programs/models/model_file.h"
#include "programs/models/model_note.h"

#define PIECE_BYTES (256U << 10)
#define PATH_BYTES  1024
#define SCANS_MAX   3

static int model_file_save_no_memory(struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to save the model");
}

/* The rows of a sparse table: how many there are is known when all have come. */
struct spool {
    FILE *keys, *values; /* without names; NULL: a dense table */
    uint64_t row_count;
};

struct saving {
    const struct sl_model_file_source *source;
    const char *path;
    struct spool spools[SL_MODEL_TABLES];
    struct sl_tensors tensors;
    json_t *metadata;
    struct sl_tensor_writer *writer;
    struct sl_reason *reason;
};

int sl_model_file_check(const char *path, struct sl_reason *reason)
{
    char copy[PATH_BYTES];
    struct stat status;
    if (strlen(path) >= sizeof copy || (stat(path, &status) == 0 && !S_ISREG(status.st_mode))) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "--save %.200s: accepts a regular file, with a path of up to %d bytes", path,
            PATH_BYTES - 1);
    }
    (void)snprintf(copy, sizeof copy, "%s", path);
    const char *folder = dirname(copy);
    const int why = access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    return why == 0
               ? 0
               : sl_reason_fail(reason, sl_err_from_errno(why), "--save %s: cannot write to %s: %s",
                                path, folder, strerror(why));
}

static int fail_file(const struct saving *saving)
{
    const int why = errno;
    return sl_reason_fail(saving->reason, SL_ERR_IO, "cannot write %s: %s", saving->path,
                          strerror(why));
}

/* A file beside the model's, on the same disk, without a name. NULL: errno. */
static FILE *open_unnamed(const char *path)
{
    char name[PATH_BYTES + 8];
    (void)snprintf(name, sizeof name, "%s.XXXXXX", path);
    const int fd = mkstemp(name);
    if (fd < 0) {
        return NULL;
    }
    (void)unlink(name);
    FILE *file = fdopen(fd, "w+b");
    if (file == NULL) {
        (void)close(fd);
    }
    return file;
}

static int check_stop(const struct saving *saving)
{
    return *saving->source->stop == 0
               ? 0
               : sl_reason_fail(saving->reason, SL_ERR_CANCELLED, "stopped by a signal");
}

static int spool_rows(const struct saving *saving, struct spool *spool, struct sl_scan *scan)
{
    struct sl_scan_batch batch;
    int err;
    while ((err = sl_scan_next(scan, &batch)) == 0 && batch.row_count > 0) {
        const size_t floats = (size_t)batch.row_count * batch.width;
        if (fwrite(batch.keys, sizeof *batch.keys, batch.row_count, spool->keys) !=
                batch.row_count ||
            fwrite(batch.values, sizeof *batch.values, floats, spool->values) != floats) {
            return fail_file(saving);
        }
        spool->row_count += batch.row_count;
        const int stopped = check_stop(saving);
        if (stopped != 0) {
            return stopped;
        }
    }
    return err == 0 ? 0 : sl_reason_fail(saving->reason, err, "%s", sl_last_error());
}

static void spool_close(struct spool *spool)
{
    if (spool->keys != NULL) {
        (void)fclose(spool->keys);
    }
    if (spool->values != NULL) {
        (void)fclose(spool->values);
    }
    *spool = (struct spool){0};
}

static int spool_once(const struct saving *saving, struct spool *spool, struct sl_table *table)
{
    struct sl_scan_options options = SL_SCAN_OPTIONS_INIT;
    struct sl_scan *scan;
    options.timeout_ms = saving->source->timeout_ms;
    spool->keys = open_unnamed(saving->path);
    spool->values = open_unnamed(saving->path);
    if (spool->keys == NULL || spool->values == NULL) {
        return fail_file(saving);
    }
    int err = sl_scan_open(saving->source->client, table, &options, &scan);
    if (err != 0) {
        return sl_reason_fail(saving->reason, err, "%s", sl_last_error());
    }
    err = spool_rows(saving, spool, scan);
    sl_scan_close(&scan);
    return err;
}

/* A scan ends with the server that it reads: the backup of that has the rows too. */
static int spool_table(const struct saving *saving, struct spool *spool, struct sl_table *table)
{
    uint32_t scans = 0;
    int err;
    do {
        spool_close(spool);
        err = spool_once(saving, spool, table);
    } while (err == SL_ERR_CLOSED && ++scans < SCANS_MAX &&
             sl_client_values_lost(saving->source->client) < 0);
    return err;
}

static int add_tensor(struct saving *saving, const char *table, const char *suffix,
                      struct sl_tensor tensor)
{
    (void)snprintf(tensor.name, sizeof tensor.name, "%s%s", table, suffix);
    return sl_tensor_add(&saving->tensors, &tensor, saving->reason);
}

/* Adds the tensors of a table and its properties. */
static int describe_table(struct saving *saving, uint32_t t)
{
    const struct sl_table_spec *spec = &saving->source->specs[t];
    const uint64_t rows = saving->spools[t].row_count;
    struct sl_snapshot_table table;
    char name[sizeof SL_MODEL_FILE_TABLE + SL_TABLE_NAME_BYTES];
    char text[SL_SPEC_TEXT_BYTES];
    int err =
        spec->kind == SL_TABLE_DENSE
            ? add_tensor(
                  saving, spec->name, "",
                  (struct sl_tensor){.type = SL_TENSOR_F32, .rank = 1, .shape = {spec->length}})
            : add_tensor(saving, spec->name, ".keys",
                         (struct sl_tensor){.type = SL_TENSOR_I64, .rank = 1, .shape = {rows}});
    if (err == 0 && spec->kind == SL_TABLE_SPARSE) {
        err = add_tensor(
            saving, spec->name, ".values",
            (struct sl_tensor){.type = SL_TENSOR_F32, .rank = 2, .shape = {rows, spec->dim}});
    }
    sl_spec_text_init(&table);
    table.spec = *spec;
    sl_optimizer_state_init(&spec->optimizer, &table.state);
    sl_spec_text_write(&table, text);
    (void)snprintf(name, sizeof name, SL_MODEL_FILE_TABLE "%s", spec->name);
    return err != 0 ? err
           : json_object_set_new(saving->metadata, name, json_string(text)) == 0
               ? 0
               : model_file_save_no_memory(saving->reason);
}

static int copy_spool(struct saving *saving, FILE *from, uint32_t tensor, uint8_t *buffer)
{
    uint64_t at = 0;
    size_t got;
    if (fflush(from) != 0) {
        return fail_file(saving);
    }
    rewind(from);
    while ((got = fread(buffer, 1, PIECE_BYTES, from)) > 0) {
        int err = sl_tensor_writer_write(saving->writer, tensor, at, buffer, got, saving->reason);
        err = err != 0 ? err : check_stop(saving);
        if (err != 0) {
            return err;
        }
        at += got;
    }
    return ferror(from) == 0 ? 0 : fail_file(saving);
}

static int copy_dense(struct saving *saving, uint32_t t, uint32_t tensor, uint8_t *buffer)
{
    const struct sl_model_file_source *source = saving->source;
    const uint64_t length = source->specs[t].length;
    for (uint64_t at = 0; at < length;) {
        const uint64_t left = length - at;
        const uint64_t count = left < PIECE_BYTES / 4 ? left : PIECE_BYTES / 4;
        struct sl_step *step;
        int err = sl_step_begin(source->client, 0, &step);
        if (err == 0) {
            err = sl_step_set_encoding(step, SL_PRECISION_F32, SL_PRECISION_F32);
            err = err != 0
                      ? err
                      : sl_step_dense_pull(step, source->tables[t], at, count, (float *)buffer);
            err = err != 0 ? err : sl_step_submit(step, source->timeout_ms);
            err = err != 0 ? err : sl_step_wait(step);
            err = err == 0 ? 0
                           : sl_reason_fail(saving->reason, err, "%s: %s", source->specs[t].name,
                                            sl_step_error(step));
            sl_step_destroy(&step);
        }
        err = err != 0 ? err
                       : sl_tensor_writer_write(saving->writer, tensor, at * 4, buffer,
                                                (size_t)count * 4, saving->reason);
        if (err != 0) {
            return err;
        }
        at += count;
    }
    return 0;
}

/* Tensors are in the order of the tables. */
static int copy_tables(struct saving *saving)
{
    uint8_t *buffer = malloc(PIECE_BYTES);
    int err = buffer == NULL ? model_file_save_no_memory(saving->reason) : 0;
    for (uint32_t t = 0, tensor = 0; err == 0 && t < saving->source->table_count; t++) {
        const struct spool *spool = &saving->spools[t];
        err = spool->keys == NULL ? copy_dense(saving, t, tensor, buffer)
                                  : copy_spool(saving, spool->keys, tensor, buffer);
        if (err == 0 && spool->keys != NULL) {
            err = copy_spool(saving, spool->values, ++tensor, buffer);
        }
        tensor++;
    }
    free(buffer);
    return err;
}

static int write_file(struct saving *saving)
{
    int err =
        sl_tensor_writer_create(saving->path, SL_TENSOR_WRITER_SAFETENSORS, true, &saving->tensors,
                                saving->metadata, &saving->writer, saving->reason);
    if (err != 0) {
        return err;
    }
    err = copy_tables(saving);
    if (err != 0) {
        sl_tensor_writer_abandon(&saving->writer);
        return err;
    }
    return sl_tensor_writer_finish(&saving->writer, saving->reason);
}

int sl_model_file_save(const struct sl_model_file_source *source, const char *path, uint64_t *rows,
                       struct sl_reason *reason)
{
    struct saving saving = {.source = source, .path = path, .reason = reason};
    char note[SL_MODEL_NOTE_BYTES];
    uint64_t row_count = 0;
    sl_model_note_write(source->model, source->shape, note);
    saving.metadata = json_pack("{s:s, s:s, s:s}", "format", "pt", SL_MODEL_FILE_MODEL, note,
                                SL_MODEL_FILE_DATA, source->format->name);
    int err = saving.metadata == NULL ? model_file_save_no_memory(reason) : 0;
    for (uint32_t t = 0; err == 0 && t < source->table_count; t++) {
        if (source->specs[t].kind == SL_TABLE_SPARSE) {
            err = spool_table(&saving, &saving.spools[t], source->tables[t]);
        }
        err = err != 0 ? err : describe_table(&saving, t);
        row_count += saving.spools[t].row_count;
    }
    err = err != 0 ? err : write_file(&saving);
    for (uint32_t t = 0; t < source->table_count; t++) {
        spool_close(&saving.spools[t]);
    }
    sl_tensor_fini(&saving.tensors);
    json_decref(saving.metadata);
    if (err == 0) {
        *rows = row_count;
    }
    return err;
}
