#include "programs/ckpt/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/end_signals.h"
#include "programs/ckpt/export_table.h"
#include "programs/ckpt/spec_text.h"

struct job {
    const struct sl_export_options *options;
    enum sl_tensor_writer_format format;
    struct sl_checkpoint_source source;
    struct sl_export_table *tables; /* [source.table_count] */
    struct sl_tensors tensors;
    json_t *metadata;
    struct sl_tensor_writer *archive;
};

static int export_no_memory(struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
}

/* NumPy has no bf16. */
static enum sl_tensor_type type_of_values(const struct job *job, const struct sl_table_spec *spec)
{
    return spec->kind == SL_TABLE_KV && spec->dim == 1 ? SL_TENSOR_U8
           : job->options->widen                       ? SL_TENSOR_F32
           : spec->values == SL_PRECISION_F16          ? SL_TENSOR_F16
           : spec->values == SL_PRECISION_BF16 && job->format != SL_TENSOR_WRITER_NPZ
               ? SL_TENSOR_BF16
               : SL_TENSOR_F32;
}

static int choose_tables(struct job *job, struct sl_reason *reason)
{
    const char *wanted = job->options->table;
    uint32_t chosen = 0;
    job->tables = calloc(job->source.table_count + 1, sizeof *job->tables);
    if (job->tables == NULL) {
        return export_no_memory(reason);
    }
    for (uint32_t i = 0; i < job->source.table_count; i++) {
        const struct sl_checkpoint_source_table *table = &job->source.tables[i];
        if (wanted == NULL || strcmp(wanted, table->info.spec.name) == 0) {
            job->tables[i].table = table;
            job->tables[i].type = type_of_values(job, &table->info.spec);
            chosen++;
        }
    }
    if (chosen == 0 && wanted != NULL) {
        return sl_reason_fail(
            reason, SL_ERR_NOT_FOUND,
            "checkpoint %llu has no table \"%.64s\"; starling-ckpt ls %.200s %llu names its tables",
            (unsigned long long)job->source.chain.items[job->source.chain.count - 1].number, wanted,
            job->options->directory,
            (unsigned long long)job->source.chain.items[job->source.chain.count - 1].number);
    }
    return 0;
}

static int export_count_block(void *ctx, uint32_t table, const struct sl_snapshot_block *block,
                              struct sl_reason *reason)
{
    struct job *job = ctx;
    struct sl_export_table *export = &job->tables[table];
    const int err = sl_end_signals_check(reason);
    return err != 0 || export->table == NULL ? err : sl_export_table_count(export, block, reason);
}

static int write_block(void *ctx, uint32_t table, const struct sl_snapshot_block *block,
                       struct sl_reason *reason)
{
    struct job *job = ctx;
    struct sl_export_table *export = &job->tables[table];
    const int err = sl_end_signals_check(reason);
    return err != 0 || export->table == NULL
               ? err
               : sl_export_table_write(export, block, job->archive, reason);
}

/* Defines tensors, and metadata from which an import restores the table properties. */
static int describe(struct job *job, struct sl_reason *reason)
{
    const enum sl_tensor_type keys =
        job->format == SL_TENSOR_WRITER_NPZ ? SL_TENSOR_U64 : SL_TENSOR_I64;
    job->metadata = json_pack("{s:s}", "format", "pt");
    for (uint32_t i = 0; i < job->source.table_count; i++) {
        struct sl_export_table *export = &job->tables[i];
        char name[SL_TABLE_NAME_BYTES + 32];
        char text[SL_SPEC_TEXT_BYTES];
        if (export->table == NULL) {
            continue;
        }
        int err =
            sl_export_table_describe(export, job->options->slots, keys, &job->tensors, reason);
        if (err != 0) {
            return err;
        }
        (void)snprintf(name, sizeof name, "starling.table.%s", export->table->info.spec.name);
        sl_spec_text_write(&export->table->info, text);
        if (json_object_set_new(job->metadata, name, json_string(text)) != 0) {
            return export_no_memory(reason);
        }
    }
    return job->metadata == NULL ? export_no_memory(reason) : 0;
}

static int write_all(struct job *job, struct sl_reason *reason)
{
    int err = sl_checkpoint_source_walk(&job->source, write_block, job, reason);
    for (uint32_t i = 0; err == 0 && i < job->source.table_count; i++) {
        if (job->tables[i].table != NULL) {
            err = sl_export_table_end(&job->tables[i], job->archive, reason);
        }
    }
    if (err != 0) {
        sl_tensor_writer_abandon(&job->archive);
        return err;
    }
    return sl_tensor_writer_finish(&job->archive, reason);
}

static int run(struct job *job, struct sl_reason *reason)
{
    int err = choose_tables(job, reason);
    if (err == 0) {
        err = sl_checkpoint_source_walk(&job->source, export_count_block, job, reason);
    }
    err = err != 0 ? err : describe(job, reason);
    if (err == 0) {
        err = sl_tensor_writer_create(job->options->path, job->format, job->options->replace,
                                      &job->tensors, job->metadata, &job->archive, reason);
    }
    return err != 0 ? err : write_all(job, reason);
}

int sl_export_run(const struct sl_export_options *options, uint64_t *number, uint32_t *tensors,
                  struct sl_reason *reason)
{
    struct job job = {.options = options};
    if (!sl_tensor_writer_format_of(options->path, &job.format)) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%s: expected a name that ends in .safetensors or .npz",
                              options->path);
    }
    int err = sl_checkpoint_source_open(options->directory, options->number, &job.source, reason);
    if (err != 0) {
        return err;
    }
    err = run(&job, reason);
    if (err == 0) {
        *number = job.source.chain.items[job.source.chain.count - 1].number;
        *tensors = job.tensors.count;
    }
    for (uint32_t i = 0; job.tables != NULL && i < job.source.table_count; i++) {
        sl_export_table_fini(&job.tables[i]);
    }
    free(job.tables);
    sl_tensor_fini(&job.tensors);
    json_decref(job.metadata);
    sl_checkpoint_source_close(&job.source);
    return err;
}
