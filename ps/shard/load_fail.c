/* Errors of a snapshot that is loaded. */
#include <stdio.h>

#include "core/format.h"
#include "core/reason.h"
#include "ps/shard/load_internal.h"

int sl_shard_load_fail(const struct sl_shard_load *load, struct sl_shard_slice *slice, int err,
                       const char *format, ...)
{
    char what[256];
    SL_FORMAT(what, format);
    char where[SL_TABLE_NAME_BYTES + 64] = "";
    const struct sl_snapshot_block *block = load->block;
    if (block != NULL) {
        const struct sl_shard_table *table = load->shard->tables[block->table_id % SL_LIMIT_TABLES];
        const bool named = block->kind != SL_SNAPSHOT_TABLE &&
                           sl_snapshot_kind_is_of_table(block->kind) && table != NULL;
        (void)snprintf(where, sizeof where, ", a block of %s%s%s",
                       sl_snapshot_kind_name(block->kind), named ? " of table " : "",
                       named ? table->spec.name : "");
    }
    return sl_reason_fail(slice->reason, err, "snapshot of shard %u of %u%s: %s",
                          load->stream_shard, load->stream_shard_count, where, what);
}

int sl_shard_load_fail_record(const struct sl_shard_load *load, struct sl_shard_slice *slice)
{
    return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT, "record %u of %u is invalid",
                              load->block->count - load->left, load->block->count);
}

int sl_shard_load_fail_memory(const struct sl_shard_load *load, struct sl_shard_slice *slice)
{
    return sl_shard_load_fail(
        load, slice, SL_ERR_NO_MEMORY, "no memory for it: the tables have %zu bytes, %s",
        load->shard->memory_bytes, sl_shard_limit_text(load->shard, (char[64]){0}));
}
