#include "programs/ckpt/checkpoint_source.h"

#include <stdlib.h>
#include <string.h>

#include "core/partition.h"
#include "ps/checkpoint/reader.h"
#include "ps/checkpoint/select.h"
#include "ps/optimizer/narrow.h"

#define NO_TABLE UINT32_MAX

/* Maps the table ids of one file to table indices. */
struct numbers {
    uint32_t tables[SL_LIMIT_TABLES];
};

static int refuse(int err, const struct sl_checkpoint_manifest *manifest, uint32_t shard,
                  const char *why, struct sl_reason *reason)
{
    return sl_reason_fail(reason, err, "checkpoint %llu, %s: %s",
                          (unsigned long long)manifest->number, manifest->files[shard].name, why);
}

static uint32_t find_table(const struct sl_checkpoint_source *source, const char *name)
{
    for (uint32_t i = 0; i < source->table_count; i++) {
        if (strcmp(source->tables[i].info.spec.name, name) == 0) {
            return i;
        }
    }
    return NO_TABLE;
}

static void describe(struct sl_checkpoint_source_table *table)
{
    const struct sl_table_spec *spec = &table->info.spec;
    const struct sl_optimizer *optimizer =
        sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_SCALAR);
    const uint32_t values = spec->kind == SL_TABLE_DENSE ? SL_PARTITION_BLOCK_ELEMENTS : spec->dim;
    if (spec->kind == SL_TABLE_KV) {
        table->value_bytes = spec->dim;
        return;
    }
    table->slots_per_value = optimizer->slots_per_value;
    table->slots_per_row = optimizer->slots_per_row;
    table->slot_floats = (uint32_t)sl_optimizer_slot_floats(optimizer, values);
    table->layout = sl_narrow_layout(spec, optimizer);
}

/* Adds a table, or checks that its specification is the same as in earlier files. Steps differ
 * between shards. */
static int take_table(struct sl_checkpoint_source *source, const struct sl_snapshot_table *info,
                      uint64_t number, uint32_t *at, struct sl_reason *why)
{
    const bool is_newest = number == source->chain.items[source->chain.count - 1].number;
    *at = find_table(source, info->spec.name);
    if (*at != NO_TABLE) {
        struct sl_checkpoint_source_table *table = &source->tables[*at];
        if (sl_message_compare_specs(&table->info.spec, &info->spec, why) != 0) {
            return SL_ERR_CORRUPT;
        }
        if (number > table->newest || (number == table->newest && info->step > table->info.step)) {
            table->info = *info;
            table->newest = number;
        }
        table->rows += is_newest ? info->row_count : 0;
        return 0;
    }
    struct sl_checkpoint_source_table *tables =
        realloc(source->tables, (source->table_count + 1) * sizeof *tables);
    if (tables == NULL) {
        return sl_reason_fail(why, SL_ERR_NO_MEMORY, "no memory");
    }
    source->tables = tables;
    *at = source->table_count++;
    tables[*at] = (struct sl_checkpoint_source_table){
        .info = *info, .newest = number, .rows = is_newest ? info->row_count : 0};
    describe(&tables[*at]);
    return 0;
}

/* Returns true if the block's kind matches its table. */
static bool kind_fits(const struct sl_checkpoint_source_table *table, uint8_t kind)
{
    static const uint8_t kinds[] = {[SL_TABLE_SPARSE] = SL_SNAPSHOT_ROWS,
                                    [SL_TABLE_DENSE] = SL_SNAPSHOT_DENSE,
                                    [SL_TABLE_KV] = SL_SNAPSHOT_KV};
    return kinds[table->info.spec.kind] == kind ||
           (kind == SL_SNAPSHOT_ERASED && table->info.spec.kind == SL_TABLE_SPARSE);
}

/* Validates a block. *visits: pass it to the visitor. */
static int take_block(struct sl_checkpoint_source *source,
                      const struct sl_checkpoint_manifest *manifest,
                      const struct sl_snapshot_block *block, struct numbers *numbers, bool *visits,
                      struct sl_reason *why)
{
    struct sl_snapshot_table info;
    *visits = false;
    int err = sl_snapshot_block_check(block, why);
    if (err != 0) {
        return err;
    }
    if (block->kind == SL_SNAPSHOT_TABLE) {
        err = sl_snapshot_take_table(block, &info, why);
        return err != 0 ? err
                        : take_table(source, &info, manifest->number,
                                     &numbers->tables[block->table_id], why);
    }
    const uint32_t at = numbers->tables[block->table_id];
    if (at == NO_TABLE || !kind_fits(&source->tables[at], block->kind)) {
        return sl_reason_fail(why, SL_ERR_CORRUPT, "a block of %s of a table that has none",
                              sl_snapshot_kind_name(block->kind));
    }
    *visits = true;
    return 0;
}

static int walk_file(struct sl_checkpoint_source *source,
                     const struct sl_checkpoint_manifest *manifest, uint32_t shard, uint32_t kinds,
                     sl_checkpoint_source_visit_fn visit, void *ctx, struct sl_reason *reason)
{
    struct numbers numbers;
    struct sl_checkpoint_reader *reader;
    const struct sl_snapshot_block *block;
    memset(&numbers, 0xff, sizeof numbers); /* NO_TABLE */
    int err = sl_checkpoint_reader_open(sl_disk_system(), source->directory, manifest, shard, kinds,
                                        &reader, reason);
    while (err == 0) {
        struct sl_reason why = {0};
        bool visits;
        err = sl_checkpoint_reader_next(reader, &block, reason);
        if (err != 0 || block == NULL) {
            break;
        }
        err = take_block(source, manifest, block, &numbers, &visits, &why);
        if (err != 0) {
            err = refuse(err, manifest, shard, why.text, reason);
        } else if (visits) {
            err = visit(ctx, numbers.tables[block->table_id], block, &why);
            if (err != 0) {
                err = refuse(err, manifest, shard, why.text, reason);
            }
        }
    }
    sl_checkpoint_reader_close(&reader);
    return err;
}

static int checkpoint_source_walk(struct sl_checkpoint_source *source, uint32_t kinds,
                                  sl_checkpoint_source_visit_fn visit, void *ctx,
                                  struct sl_reason *reason)
{
    const struct sl_checkpoint_chain *chain = &source->chain;
    const uint32_t shard_count = chain->items[chain->count - 1].shard_count;
    int err = 0;
    for (uint32_t shard = 0; err == 0 && shard < shard_count; shard++) {
        uint32_t item = 0;
        err = sl_checkpoint_reader_first(sl_disk_system(), source->directory, chain, shard, &item,
                                         reason);
        for (; err == 0 && item < chain->count; item++) {
            err = walk_file(source, &chain->items[item], shard, kinds, visit, ctx, reason);
        }
    }
    return err;
}

int sl_checkpoint_source_open(const char *directory, uint64_t number,
                              struct sl_checkpoint_source *out, struct sl_reason *reason)
{
    const struct sl_checkpoint_shard_range all = {0};
    struct sl_checkpoint_source source = {.directory = directory};
    int err = 0;
    if (number == 0) {
        err = sl_checkpoint_newest(sl_disk_system(), directory, all, &number, reason);
    }
    if (err == 0) {
        err = sl_checkpoint_directory_chain(sl_disk_system(), directory, number, all, NULL,
                                            &source.chain, reason);
    }
    if (err != 0) {
        return err;
    }
    err = checkpoint_source_walk(&source, 1U << SL_SNAPSHOT_TABLE, NULL, NULL, reason);
    if (err != 0) {
        sl_checkpoint_source_close(&source);
        return err;
    }
    *out = source;
    return 0;
}

int sl_checkpoint_source_walk(const struct sl_checkpoint_source *source,
                              sl_checkpoint_source_visit_fn visit, void *ctx,
                              struct sl_reason *reason)
{
    struct sl_checkpoint_source known = *source; /* all tables are known, so none is added */
    return checkpoint_source_walk(&known,
                                  1U << SL_SNAPSHOT_TABLE | 1U << SL_SNAPSHOT_ERASED |
                                      1U << SL_SNAPSHOT_ROWS | 1U << SL_SNAPSHOT_DENSE |
                                      1U << SL_SNAPSHOT_KV,
                                  visit, ctx, reason);
}

void sl_checkpoint_source_close(struct sl_checkpoint_source *source)
{
    sl_checkpoint_chain_fini(&source->chain);
    free(source->tables);
    *source = (struct sl_checkpoint_source){0};
}
