#include "ps/publish/ps_tables.h"

#include <stdio.h>

#include "objects/node/error.h"
#include "ps/process/state.h"
#include "ps/process/tables.h"

/* Adds TABLE/keys.S and TABLE/rows.S. */
static int add_table(struct sl_publication *publication, struct sl_snapshot_table_rows *table,
                     uint32_t shard)
{
    char name[SL_TABLE_NAME_BYTES + 24];
    struct sl_object_tensor tensor = {.name = name,
                                      .type = SL_OBJECT_U64,
                                      .rank = 1,
                                      .shape = {table->count},
                                      .data = table->keys,
                                      .bytes = table->count * sizeof *table->keys};
    (void)snprintf(name, sizeof name, "%s/keys.%u", table->name, shard);
    int err = sl_publish_tensor(publication, &tensor);
    if (err != 0) {
        return err;
    }
    (void)snprintf(name, sizeof name, "%s/rows.%u", table->name, shard);
    static const uint32_t types[SL_PRECISION_COUNT] = {SL_OBJECT_F32, SL_OBJECT_F16, SL_OBJECT_BF16,
                                                       SL_OBJECT_U8};
    const enum sl_precision precision = table->layout.values;
    tensor.type = types[precision];
    tensor.rank = 2;
    tensor.shape[1] = precision == SL_PRECISION_INT8 ? table->row_bytes : table->dim;
    tensor.data = table->values;
    tensor.bytes = table->count * table->row_bytes;
    return sl_publish_tensor(publication, &tensor);
}

/* Adds ".part.N", without elements: a part has a tensor, also that of a server whose shards all
 * have moved to other servers. */
static int add_none(struct sl_publication *publication, uint32_t part)
{
    char name[24];
    (void)snprintf(name, sizeof name, ".part.%u", part);
    const struct sl_object_tensor none = {.name = name, .type = SL_OBJECT_U64, .rank = 1};
    return sl_publish_tensor(publication, &none);
}

static int add_all(struct sl_publication *publication, struct sl_process_tables *tables,
                   uint32_t part)
{
    int err = tables->primary_count == 0 ? add_none(publication, part) : 0;
    for (uint32_t i = 0; err == 0 && i < tables->shard_count; i++) {
        struct sl_snapshot_rows *shard = &tables->shards[i];
        for (uint32_t t = 0; err == 0 && t < shard->count; t++) {
            err = sl_snapshot_rows_sort(&shard->tables[t]) != 0
                      ? sl_objects_fail(SL_ERR_NO_MEMORY, "table %s: no memory to sort its rows",
                                        shard->tables[t].name)
                      : add_table(publication, &shard->tables[t], shard->shard);
        }
    }
    return err;
}

static void note_asked(struct sl_ps_tables_asked *asked, uint64_t epoch, uint64_t primary_sum)
{
    asked->items[asked->next].epoch = epoch;
    asked->items[asked->next].primary_sum = primary_sum;
    asked->next = (asked->next + 1) % SL_PS_TABLES_ASKED_MAX;
}

static bool has_moved(const struct sl_ps_tables_asked *asked, uint64_t epoch, uint64_t primary_sum)
{
    for (uint32_t i = 0; i < SL_PS_TABLES_ASKED_MAX; i++) {
        if (asked->items[i].epoch == epoch && asked->items[i].primary_sum == primary_sum) {
            return false;
        }
    }
    return true;
}

int sl_ps_tables_publish(struct sl_process *process, struct sl_port_set *ports,
                         struct sl_ps_tables_asked *asked, struct sl_objects *node,
                         const struct sl_objects_tables_request *request,
                         struct sl_objects_tables_state *state, struct sl_reason *reason)
{
    struct sl_process_tables tables;
    struct sl_publication *publication = NULL;
    int err = sl_process_tables_read(process, ports, request->tables, request->iterations, &tables,
                                     reason);
    *state = (struct sl_objects_tables_state){.iterations = tables.iterations,
                                              .shards = tables.primary_count,
                                              .shard_count = process->member.shard_count};
    if (err == 0 && request->tables[0] == '\0') {
        note_asked(asked, request->epoch, tables.primary_sum);
    } else if (err == 0 && has_moved(asked, request->epoch, tables.primary_sum)) {
        err = sl_reason_fail(reason, SL_ERR_AGAIN, "a shard has moved");
    }
    if (err != 0 || request->tables[0] == '\0') {
        sl_process_tables_fini(&tables);
        return err;
    }
    err = sl_objects_tables_begin(node, request, &publication);
    err = err != 0 ? err : add_all(publication, &tables, request->part);
    err = err != 0 ? err : sl_objects_tables_commit(node, request, publication);
    if (err != 0) {
        sl_reason_set(reason, "%s", sl_objects_last_error());
    }
    sl_publish_end(&publication);
    sl_process_tables_fini(&tables);
    return err;
}
