/* Drops a table: at the coordinator, and then it waits until every shard refuses the table. */
#include <starling_rows.h>

#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/reason.h"
#include "worker/client/client_internal.h"
#include "worker/client/control.h"
#include "worker/client/wait.h"

#define PAUSE_NS SL_CLOCK_NS_PER_MS

static bool table_drop_never(void *ctx)
{
    return false;
}

/* Asks the shards of one client_io until none has the table. check: the table's id and spec. */
static int table_drop_wait(struct sl_client *client, struct sl_port *port,
                           const struct sl_control_op *check)
{
    for (;;) {
        struct sl_control_op op = *check;
        sl_control_op_post(&op, port);
        int err = sl_wait_ops(client, port, &op, 1);
        err = err != 0 ? err : op.err;
        if (err == 0 && op.count > 0) {
            const bool is_late = sl_clock_now_ns(client->clock) >= op.deadline_ns;
            err = is_late ? SL_ERR_DEADLINE
                          : sl_wait_until(client, port, PAUSE_NS, table_drop_never, NULL);
            (void)snprintf(op.text, sizeof op.text, "%s still has it", op.conns->name);
        } else if (err == 0) {
            return 0;
        }
        if (err != SL_ERR_AGAIN) {
            return sl_reason_report(
                err, "table %s is dropped, but a server has not confirmed it: %s", op.spec->name,
                err == SL_ERR_CANCELLED ? "interrupted" : op.text);
        }
    }
}

static int table_drop_confirm(struct sl_client *client, struct sl_table_spec *spec, uint32_t id,
                              uint64_t deadline_ns)
{
    struct sl_port *port;
    int err = sl_port_here(client->ports, &port);
    for (uint32_t i = client->first_io; err == 0 && i < client->io_count; i++) {
        const struct sl_control_op check = {.io = &client->ios[i],
                                            .run = sl_client_io_table_drop_check,
                                            .deadline_ns = deadline_ns,
                                            .spec = spec,
                                            .table.id = id};
        err = table_drop_wait(client, port, &check);
    }
    return err;
}

int sl_client_table_drop(struct sl_client *client, const char *name, uint32_t timeout_ms)
{
    sl_assert(client != NULL);
    sl_assert(name != NULL);
    if (name[0] == '\0' || strlen(name) >= SL_TABLE_NAME_BYTES) {
        return sl_reason_report(SL_ERR_INVALID, "table %.*s: accepts names of 1 to %d bytes",
                                SL_TABLE_NAME_BYTES, name, SL_TABLE_NAME_BYTES - 1);
    }
    char what[SL_TABLE_NAME_BYTES + 32];
    snprintf(what, sizeof what, "table %s is not dropped", name);
    const uint64_t deadline_ns = sl_clock_now_ns(client->clock) + timeout_ms * SL_CLOCK_NS_PER_MS;
    struct sl_table_spec spec;
    struct sl_control_op find = {.run = sl_control_table_find, .name = name, .found = &spec};
    struct sl_control_op drop = {.run = sl_control_table_drop, .name = name};
    int err = sl_client_ask_coordinator(client, &find, timeout_ms, what);
    const uint64_t now_ns = sl_clock_now_ns(client->clock);
    const uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    err = err != 0 ? err
                   : sl_client_ask_coordinator(client, &drop,
                                               (uint32_t)(left_ns / SL_CLOCK_NS_PER_MS), what);
    return err != 0 ? err : table_drop_confirm(client, &spec, drop.table.id, deadline_ns);
}
