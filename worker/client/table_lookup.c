#include "worker/client/table_lookup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/reason.h"
#include "core/struct_size.h"
#include "starling_placement.h"
#include "worker/client/client_internal.h"
#include "worker/client/control.h"

static int table_lookup_find(struct sl_client *client, const char *name, uint32_t timeout_ms,
                             struct sl_table_spec *out)
{
    char what[SL_TABLE_NAME_BYTES + 16];
    struct sl_control_op op = {.run = sl_control_table_find, .name = name, .found = out};
    (void)snprintf(what, sizeof what, "table %.63s", name);
    return sl_client_ask_coordinator(client, &op, timeout_ms, what);
}

int sl_table_lookup_restored(struct sl_client *client, const char *name, uint32_t timeout_ms,
                             struct sl_table_spec *out)
{
    return client->cluster.restore == 0 ? SL_ERR_NOT_FOUND
                                        : table_lookup_find(client, name, timeout_ms, out);
}

int sl_client_table_open_by_name(struct sl_client *client, const char *name, uint32_t timeout_ms,
                                 struct sl_table **out)
{
    sl_assert(client != NULL);
    sl_assert(name != NULL);
    if (strlen(name) >= SL_TABLE_NAME_BYTES) {
        return sl_reason_report(SL_ERR_NOT_FOUND, "table %.80s: names have at most %d bytes", name,
                                SL_TABLE_NAME_BYTES - 1);
    }
    struct sl_table_spec spec;
    const int err = table_lookup_find(client, name, timeout_ms, &spec);
    spec.struct_size = sizeof spec;
    return err != 0 ? err : sl_client_table_open(client, &spec, timeout_ms, out);
}

int sl_client_tables(struct sl_client *client, uint32_t timeout_ms, sl_table_visit_fn *each,
                     void *ctx)
{
    sl_assert(client != NULL);
    sl_assert(each != NULL);
    struct sl_table_spec page[SL_MESSAGE_TABLES_MAX];
    struct sl_control_op op = {0};
    do {
        op = (struct sl_control_op){
            .run = sl_control_tables, .table.id = op.table.id, .found = page};
        const int err = sl_client_ask_coordinator(client, &op, timeout_ms, "no list of tables");
        if (err != 0) {
            return err;
        }
        for (uint32_t i = 0; i < op.count; i++) {
            page[i].struct_size = sizeof page[i];
            each(ctx, &page[i]);
        }
    } while (op.table.id != 0);
    return 0;
}

int sl_table_spec_get(const struct sl_table *table, struct sl_table_spec *out)
{
    sl_assert(table != NULL);
    sl_assert(out != NULL);
    struct sl_reason reason;
    struct sl_table_spec own;
    const int err = sl_struct_size_read(out, &own, sizeof own, "SL_TABLE_SPEC_INIT", &reason);
    if (err != 0) {
        return sl_reason_report(err, "table %s: %s", table->spec.name, reason.text);
    }
    sl_struct_size_write(&table->spec, out, sizeof own);
    return 0;
}

int sl_client_operate(struct sl_client *client, const char *what, uint32_t timeout_ms)
{
    sl_assert(client != NULL);
    sl_assert(what != NULL);
    struct sl_control_op op = {.run = sl_control_operate, .name = what};
    return sl_client_ask_coordinator(client, &op, timeout_ms, "not allowed");
}

int sl_client_change_placement(struct sl_client *client, enum sl_placement_change change,
                               uint32_t shard, uint32_t task, bool dry_run, uint32_t timeout_ms,
                               sl_shard_move_fn *each, void *ctx)
{
    sl_assert(client != NULL);
    sl_assert(each != NULL);
    struct sl_message_move *moves = calloc(SL_LIMIT_SHARDS, sizeof *moves);
    if (moves == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "no memory");
    }
    const struct sl_message_placement_change wanted = {
        .verb = (enum sl_message_placement_verb)change,
        .shard = shard,
        .task = task,
        .dry_run = dry_run,
    };
    struct sl_control_op op = {.run = sl_control_change_placement,
                               .placement = {.change = &wanted, .moves = moves}};
    const int err = sl_client_ask_coordinator(client, &op, timeout_ms, "no shard is moved");
    for (uint32_t i = 0; err == 0 && i < op.count; i++) {
        each(ctx, moves[i].shard, moves[i].from, moves[i].to);
    }
    free(moves);
    return err;
}
