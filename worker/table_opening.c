/* Opens a table: on the coordinator, then on every shard. */
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/client_internal.h"
#include "worker/control.h"

int sl_table_opening_begin(struct sl_table_opening *opening, struct sl_client *client,
                           const struct sl_table_spec *spec, uint32_t timeout_ms)
{
    char reason[SL_MESSAGE_TEXT_BYTES];
    int err = sl_message_check_spec(spec, reason, sizeof reason);
    if (err != 0) {
        sl_log_error("table %.*s: %s", SL_TABLE_NAME_BYTES - 1, spec->name, reason);
        return err;
    }
    struct sl_thread_ctx *thread_ctx;
    err = sl_thread_ctx_here(client->thread_ctxs, &thread_ctx);
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
    sl_thread_ctx_call(thread_ctx, &opening->coordinator);
    return 0;
}

static int ask_shards(struct sl_table_opening *opening, struct sl_thread_ctx *thread_ctx)
{
    struct sl_client *client = opening->client;
    opening->shards = calloc(client->io_count, sizeof *opening->shards);
    if (opening->shards == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < client->io_count; i++) {
        opening->shards[i] = (struct sl_control_op){
            .io = &client->ios[i],
            .run = sl_client_io_table_open,
            .deadline_ns = opening->coordinator.deadline_ns,
            .spec = &opening->spec,
            .table_id = opening->coordinator.table_id,
        };
        sl_thread_ctx_call(thread_ctx, &opening->shards[i]);
    }
    return SL_ERR_AGAIN;
}

static int failed(const struct sl_table_opening *opening, const struct sl_control_op *op)
{
    sl_log_error("table %s cannot be opened: %s", opening->spec.name, op->text);
    return op->err;
}

/* Several threads may open the same table: the client keeps one per id. */
static int keep_table(void *ctx)
{
    struct sl_table_opening *opening = ctx;
    struct sl_client *client = opening->client;
    uint32_t id = opening->coordinator.table_id;
    if (client->tables[id] == NULL) {
        struct sl_table *table = malloc(sizeof *table);
        if (table == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        *table = (struct sl_table){.client = client, .id = id, .spec = opening->spec};
        client->tables[id] = table;
    }
    opening->table = client->tables[id];
    return 0;
}

static int shards_result(const struct sl_table_opening *opening)
{
    uint32_t io_count = opening->client->io_count;
    for (uint32_t i = 0; i < io_count; i++) {
        if (!opening->shards[i].done) {
            return SL_ERR_AGAIN;
        }
    }
    for (uint32_t i = 0; i < io_count; i++) {
        if (opening->shards[i].err != 0) {
            return failed(opening, &opening->shards[i]);
        }
    }
    return 0;
}

int sl_table_opening_poll(struct sl_table_opening *opening, struct sl_table **out)
{
    struct sl_thread_ctx *thread_ctx;
    int err = sl_thread_ctx_here(opening->client->thread_ctxs, &thread_ctx);
    sl_assert(err == 0); /* begin has created it */
    sl_thread_ctx_drain(thread_ctx);
    if (!opening->coordinator.done) {
        return SL_ERR_AGAIN;
    }
    if (opening->coordinator.err != 0) {
        return failed(opening, &opening->coordinator);
    }
    if (opening->shards == NULL) {
        return ask_shards(opening, thread_ctx);
    }
    err = shards_result(opening);
    if (err == 0) {
        err = sl_thread_ctx_set_locked(opening->client->thread_ctxs, keep_table, opening);
    }
    if (err == 0) {
        *out = opening->table;
    }
    if (err != SL_ERR_AGAIN) {
        free(opening->shards);
        opening->shards = NULL;
    }
    return err;
}
