#include "ps/server/table_drop.h"

#include "core/list.h"
#include "core/reason.h"
#include "ps/server/state.h"
#include "ps/shard/state.h"

#define FREE_WAIT_NS (10 * SL_CLOCK_NS_PER_S)

void sl_server_table_drop(void *ctx, uint64_t table_id, uint64_t b)
{
    struct sl_server *server = ctx;
    sl_message_dropped_add(&server->drops.known, (uint32_t)table_id);
    server->drops.is_pending = true;
}

int sl_server_table_drop_check(struct sl_server *server, const struct sl_message_table_open *open,
                               struct sl_reason *reason)
{
    const uint32_t id = open->table_id;
    if (id >= SL_LIMIT_TABLES || !sl_message_dropped_has(&server->drops.known, id) ||
        (server->drops.is_pending && sl_shard_table_in_use(server->shard, id) != NULL)) {
        return 0;
    }
    (void)sl_shard_table_note_dropped(server->shard, id, &open->spec);
    return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "table %s was dropped", open->spec.name);
}

/* A backup drops a table when the log of its primary says so. */
static bool applies(const struct sl_server *server)
{
    return server->drops.is_pending && server->role.serves &&
           server->role.log_room != SL_SERVER_LOG_OVERFULL;
}

static void apply(struct sl_server *server)
{
    server->drops.is_pending = false;
    for (uint32_t id = 0; id < SL_LIMIT_TABLES; id++) {
        if (!sl_message_dropped_has(&server->drops.known, id) ||
            !sl_shard_table_drop(server->shard, id)) {
            continue;
        }
        server->writes.count++;
        sl_server_unblock(server);
        if (server->role.logs) {
            server->options.hooks->dropped(server, id);
        }
    }
    sl_server_scheduler_wake(server); /* requests that wait for clocks fail */
}

static void free_rows(struct sl_offload_job *job)
{
    struct sl_server_table_drop *drops = SL_CONTAINER_OF(job, struct sl_server_table_drop, job);
    sl_shard_storage_free(&drops->storage);
}

static void freed(struct sl_offload_job *job)
{
    struct sl_server_table_drop *drops = SL_CONTAINER_OF(job, struct sl_server_table_drop, job);
    if (job->err != 0) {
        sl_shard_storage_free(&drops->storage); /* there is no thread */
    }
    drops->frees = false;
}

static void free_some(struct sl_server *server)
{
    struct sl_server_table_drop *drops = &server->drops;
    if (drops->frees || !sl_shard_take_dropped(server->shard, &drops->storage)) {
        return;
    }
    sl_server_unblock(server); /* requests wait for memory */
    if (drops->offload == NULL &&
        sl_offload_create(server->options.reactor, "ps-drop", &drops->offload) != 0) {
        sl_shard_storage_free(&drops->storage);
        return;
    }
    drops->frees = true;
    drops->job = (struct sl_offload_job){.work = free_rows, .done = freed, .allocates = true};
    sl_offload_post(drops->offload, &drops->job);
}

void sl_server_table_drop_run(struct sl_server *server)
{
    if (applies(server)) {
        apply(server);
    }
    free_some(server);
}

bool sl_server_table_drop_is_idle(const struct sl_server *server)
{
    return !applies(server) && (server->drops.frees || !sl_shard_has_dropped(server->shard));
}

void sl_server_table_drop_fini(struct sl_server *server)
{
    if (server->drops.offload != NULL) {
        (void)sl_offload_destroy(&server->drops.offload, FREE_WAIT_NS);
    }
}
