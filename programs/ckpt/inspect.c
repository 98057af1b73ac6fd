#include "programs/ckpt/inspect.h"

#include <inttypes.h>
#include <time.h>

#include "core/partition.h"
#include "core/table_names.h"
#include "programs/ckpt/checkpoint_source.h"
#include "programs/ckpt/spec_text.h"

/* ls */

static void format_time(int64_t time_s, char text[32])
{
    struct tm parts;
    const time_t seconds = (time_t)time_s;
    if (gmtime_r(&seconds, &parts) == NULL || strftime(text, 32, "%FT%TZ", &parts) == 0) {
        (void)snprintf(text, 32, "-");
    }
}

static void list_published(const struct sl_checkpoint_manifest *manifest, FILE *to)
{
    char time_text[32];
    uint64_t bytes = 0;
    uint64_t rows = 0;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        bytes += manifest->files[i].bytes;
        rows += manifest->files[i].rows;
    }
    format_time(manifest->time_s, time_text);
    (void)fprintf(to, "%06" PRIu64 "  ", manifest->number);
    if (manifest->base == 0) {
        (void)fprintf(to, "%-16s", "full");
    } else {
        (void)fprintf(to, "is based on %06" PRIu64 "  ", manifest->base);
    }
    (void)fprintf(to, "  %-20s  %6u  %12" PRIu64 "  %14" PRIu64 "\n", time_text,
                  manifest->shard_count, rows, bytes);
}

static int list_one(const char *directory, const struct sl_checkpoint_found *found, FILE *to)
{
    struct sl_reason why;
    struct sl_checkpoint_manifest manifest;
    if (found->state == SL_CHECKPOINT_INCOMPLETE) {
        (void)fprintf(to, "%06" PRIu64 "  incomplete: it has no manifest\n", found->number);
        return 0;
    }
    int err = sl_checkpoint_directory_manifest(sl_disk_system(), directory, found->number,
                                               &manifest, &why);
    if (err != 0) {
        (void)fprintf(to, "%06" PRIu64 "  damaged: %s\n", found->number, why.text);
        return err == SL_ERR_NO_MEMORY ? err : 0;
    }
    list_published(&manifest, to);
    sl_checkpoint_manifest_fini(&manifest);
    return 0;
}

int sl_inspect_list(const char *directory, FILE *to, struct sl_reason *reason)
{
    struct sl_checkpoint_list list;
    int err = sl_checkpoint_directory_list(sl_disk_system(), directory, &list, reason);
    if (err != 0) {
        return err;
    }
    (void)fprintf(to, "%6s  %-16s  %-20s  %6s  %12s  %14s\n", "number", "kind", "time", "shards",
                  "sparse rows", "bytes");
    for (uint32_t i = 0; err == 0 && i < list.count; i++) {
        err = list_one(directory, &list.items[i], to);
    }
    sl_checkpoint_list_fini(&list);
    return err;
}

void sl_inspect_table(const struct sl_snapshot_table *table, const char *size, FILE *to)
{
    char text[SL_SPEC_TEXT_BYTES];
    const struct sl_table_spec *spec = &table->spec;
    sl_spec_text_show(table, text);
    switch (spec->kind) {
    case SL_TABLE_SPARSE:
        (void)fprintf(to, "%s  sparse, %u columns%s  %s\n", spec->name, spec->dim, size, text);
        break;
    case SL_TABLE_DENSE:
        (void)fprintf(to, "%s  dense, %" PRIu64 " elements%s  %s\n", spec->name, spec->length, size,
                      text);
        break;
    case SL_TABLE_KV:
        (void)fprintf(to, "%s  kv, of %s\n", spec->name,
                      spec->dim == 1 ? "bytes" : sl_table_names_precision[spec->values]);
        break;
    }
}

/* A table of a checkpoint, with its rows and their bytes before compression. */
static void print_table(const struct sl_checkpoint_source_table *table, FILE *to)
{
    const struct sl_table_spec *spec = &table->info.spec;
    const uint64_t elements = SL_PARTITION_BLOCK_ELEMENTS;
    const bool is_dense = spec->kind == SL_TABLE_DENSE;
    const uint64_t records = is_dense ? (spec->length + elements - 1) / elements : table->rows;
    const uint32_t words =
        is_dense ? SL_PARTITION_BLOCK_ELEMENTS + table->slot_floats : table->layout.words;
    const uint64_t bytes = records * sl_snapshot_record_bytes(words);
    char size[96];
    if (is_dense) {
        (void)snprintf(size, sizeof size, ", %" PRIu64 " bytes", bytes);
    } else {
        (void)snprintf(size, sizeof size, ", %" PRIu64 " rows, %" PRIu64 " bytes", records, bytes);
    }
    sl_inspect_table(&table->info, size, to);
}

int sl_inspect_tables(const char *directory, uint64_t number, FILE *to, struct sl_reason *reason)
{
    struct sl_checkpoint_source source;
    int err = sl_checkpoint_source_open(directory, number, &source, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < source.chain.count; i++) {
        list_published(&source.chain.items[i], to);
    }
    for (uint32_t i = 0; i < source.table_count; i++) {
        print_table(&source.tables[i], to);
    }
    sl_checkpoint_source_close(&source);
    return 0;
}

/* verify */

/* The reason names the path. */
static void print_finding(void *ctx, const char *path, const char *why)
{
    (void)fprintf(ctx, "DAMAGED  %s\n", why);
}

static int verify_one(const char *directory, uint64_t number,
                      struct sl_checkpoint_shard_range range, FILE *to, struct sl_reason *reason)
{
    const struct sl_checkpoint_report report = {.find = print_finding, .ctx = to};
    int err =
        sl_checkpoint_directory_verify(sl_disk_system(), directory, number, range, &report, reason);
    if (err == 0) {
        (void)fprintf(to, "whole    checkpoint %06" PRIu64 " and its base\n", number);
    }
    return err;
}

/* Returns true if another checkpoint is based on it; it is verified with that one. */
static bool is_base(const struct sl_checkpoint_list *list, uint64_t number)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->items[i].state == SL_CHECKPOINT_PUBLISHED && list->items[i].base == number) {
            return true;
        }
    }
    return false;
}

static int verify_all(const char *directory, struct sl_checkpoint_shard_range range, FILE *to,
                      struct sl_reason *reason)
{
    struct sl_checkpoint_list list;
    struct sl_reason why;
    uint32_t seen = 0;
    uint32_t bad = 0;
    int err = sl_checkpoint_directory_list(sl_disk_system(), directory, &list, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; err != SL_ERR_NO_MEMORY && i < list.count; i++) {
        const uint64_t number = list.items[i].number;
        if (list.items[i].state == SL_CHECKPOINT_INCOMPLETE || is_base(&list, number)) {
            continue;
        }
        err = verify_one(directory, number, range, to, &why);
        seen++;
        bad += err != 0;
    }
    sl_checkpoint_list_fini(&list);
    if (err == SL_ERR_NO_MEMORY) {
        return sl_reason_fail(reason, err, "%s", why.text);
    }
    if (seen == 0) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "there is no complete checkpoint in %s",
                              directory);
    }
    if (bad != 0) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "%u of the checkpoints in %s %s damaged", bad,
                              directory, bad == 1 ? "is" : "are");
    }
    return 0;
}

int sl_inspect_verify(const char *directory, uint64_t number,
                      struct sl_checkpoint_shard_range range, FILE *to, struct sl_reason *reason)
{
    return number == 0 ? verify_all(directory, range, to, reason)
                       : verify_one(directory, number, range, to, reason);
}
