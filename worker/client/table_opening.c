#include "worker/client/table_opening.h"

#include <stdlib.h>

#include "core/assert.h"
#include "core/reason.h"
#include "net/session/message_spec.h"
#include "worker/client/control.h"

int sl_table_opening_check(const struct sl_table_spec *spec)
{
    struct sl_reason reason;
    int err = sl_message_check_spec(spec, &reason);
    return err == 0 ? 0
                    : sl_reason_report(err, "table %.*s: %s", SL_TABLE_NAME_BYTES - 1, spec->name,
                                       reason.text);
}

int sl_table_opening_begin(struct sl_table_opening *opening, struct sl_client *client,
                           const struct sl_table_spec *spec, uint32_t timeout_ms)
{
    int err = sl_table_opening_check(spec);
    if (err != 0) {
        return err;
    }
    struct sl_port *port;
    err = sl_port_here(client->ports, &port);
    if (err != 0) {
        return err;
    }
    *opening = (struct sl_table_opening){.client = client, .spec = *spec};
    opening->coordinator = (struct sl_control_op){
        .io = &client->ios[0],
        .run = sl_control_table_open,
        .deadline_ns = sl_clock_now_ns(client->clock) + timeout_ms * SL_CLOCK_NS_PER_MS,
        .spec = &opening->spec,
    };
    opening->ops = &opening->coordinator;
    opening->op_count = 1;
    sl_control_op_post(&opening->coordinator, port);
    return 0;
}

static int ask_shards(struct sl_table_opening *opening, struct sl_port *port)
{
    struct sl_client *client = opening->client;
    opening->shards = calloc(client->io_count, sizeof *opening->shards);
    if (opening->shards == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "table %s: no memory", opening->spec.name);
    }
    opening->ops = opening->shards;
    opening->op_count = client->io_count;
    for (uint32_t i = 0; i < client->io_count; i++) {
        opening->shards[i] = (struct sl_control_op){
            .io = &client->ios[i],
            .run = sl_client_io_table_open,
            .deadline_ns = opening->coordinator.deadline_ns,
            .spec = &opening->spec,
            .table.id = opening->coordinator.table.id,
        };
        sl_control_op_post(&opening->shards[i], port);
    }
    return SL_ERR_AGAIN;
}

/* AGAIN, 0 or an error, reported. */
static int result_of(const struct sl_table_opening *opening)
{
    const struct sl_control_op *failed;
    int err = sl_control_op_results(opening->ops, opening->op_count, &failed);
    if (err != 0 && err != SL_ERR_AGAIN) {
        return sl_reason_report(err, "table %s cannot be opened: %s", opening->spec.name,
                                failed->text);
    }
    return err;
}

/* Returns what the oldest process knows of tables. */
static uint32_t least_known(const struct sl_table_opening *opening)
{
    uint32_t knows = opening->coordinator.table.knows;
    for (uint32_t i = 0; i < opening->op_count; i++) {
        knows = opening->shards[i].table.knows < knows ? opening->shards[i].table.knows : knows;
    }
    return knows;
}

int sl_table_check_knows(const struct sl_table *table, uint32_t least, const char *what)
{
    return table->knows >= least
               ? 0
               : sl_reason_report(SL_ERR_VERSION,
                                  "table %s: %s needs servers that know version %u of tables, and "
                                  "one knows version %u: update its software",
                                  table->spec.name, what, least, table->knows);
}

/* Several threads may open the same table: the client keeps one per id. */
static int keep_table(struct sl_table_opening *opening, struct sl_table **out)
{
    struct sl_client *client = opening->client;
    uint32_t id = opening->coordinator.table.id;
    sl_port_set_lock(client->ports);
    struct sl_table *table = client->tables[id];
    if (table == NULL && (table = malloc(sizeof *table)) != NULL) {
        *table = (struct sl_table){
            .client = client, .id = id, .knows = least_known(opening), .spec = opening->spec};
        client->tables[id] = table;
    }
    sl_port_set_unlock(client->ports);
    if (table == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "table %s: no memory", opening->spec.name);
    }
    *out = table;
    return 0;
}

int sl_table_opening_poll(struct sl_table_opening *opening, struct sl_table **out)
{
    struct sl_port *port;
    int err = sl_port_here(opening->client->ports, &port);
    sl_assert(err == 0); /* begin has created it */
    sl_port_drain(port);
    err = result_of(opening);
    if (err == 0) {
        err = opening->shards == NULL ? ask_shards(opening, port) : keep_table(opening, out);
    }
    if (err != SL_ERR_AGAIN) {
        free(opening->shards);
        opening->shards = NULL;
    }
    return err;
}
