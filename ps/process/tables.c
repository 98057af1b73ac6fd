#include "ps/process/tables.h"

#include <stdlib.h>

#include "core/assert.h"
#include "core/hash.h"
#include "ps/process/hosted.h"
#include "ps/server/state.h"
#include "ps/shard/snapshot.h"
#include "ps/shard/state.h"
#include "reactor/port.h"

/* Of one shard. The reactor's, between the mail that begins it and the one that ends it. */
struct read {
    struct sl_server_snapshot_sink sink;
    struct sl_snapshot_rows *rows;
    struct sl_process_hosted *hosted;
    bool is_primary;
    uint64_t hash;       /* of the shard's number; 0: no primary */
    uint32_t iterations; /* before */
    struct sl_mailbox_lane *answers;
    uint32_t *left; /* of the reading thread: shards that have not ended */
    int err;
    struct sl_reason reason;
};

/* On the reading thread. */
static void tables_arrived(void *ctx, uint64_t a, uint64_t b)
{
    --*((struct read *)ctx)->left;
}

static void tables_ended(struct sl_server_snapshot_sink *sink, int err, const char *reason)
{
    struct read *read = SL_CONTAINER_OF(sink, struct read, sink);
    const bool is_passing = err == SL_ERR_EXISTS || err == SL_ERR_CANCELLED; /* by a checkpoint */
    read->err = is_passing ? SL_ERR_AGAIN : err;
    sl_reason_set(&read->reason, "%s", reason);
    err = sl_mailbox_post(read->answers, (struct sl_mail){.run = tables_arrived, .ctx = read});
    sl_assert(err == 0); /* one for each shard */
}

static int tables_take(struct sl_server_snapshot_sink *sink, const struct sl_snapshot_block *block,
                       struct sl_reason *reason)
{
    return sl_snapshot_rows_take(SL_CONTAINER_OF(sink, struct read, sink)->rows, block, reason);
}

/* The core's reactor. */
static void begin_here(void *ctx, uint64_t a, uint64_t b)
{
    struct read *read = ctx;
    struct sl_server *server = read->hosted->server;
    read->is_primary = server != NULL && server->role.serves && server->shard != NULL;
    const bool reads = read->is_primary && read->rows->names[0] != '\0';
    read->hash = read->is_primary ? sl_hash_key(server->shard->options.index + 1) : 0;
    read->iterations = read->is_primary ? sl_shard_snapshot_iterations(server->shard) : 0;
    const int err = reads ? sl_server_snapshot_read(server, &read->sink) : 0;
    if (err != 0 || !reads) {
        tables_ended(&read->sink, err, "a checkpoint is in progress");
    }
}

int sl_process_tables_read(struct sl_process *process, struct sl_port_set *ports, const char *names,
                           uint32_t iterations, struct sl_process_tables *out,
                           struct sl_reason *reason)
{
    uint32_t count = 0, i = 0;
    SL_PROCESS_FOREACH (hosted, process) {
        count++;
    }
    struct read *reads = calloc(count, sizeof *reads);
    struct sl_port *port;
    uint32_t left = count;
    *out = (struct sl_process_tables){.shards = calloc(count, sizeof *out->shards)};
    if (reads == NULL || out->shards == NULL || sl_port_here(ports, &port) != 0) {
        free(reads);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    out->shard_count = count;
    SL_PROCESS_FOREACH (hosted, process) {
        if (i == count) {
            break; /* it has just been added, as a backup */
        }
        const uint32_t reactor = hosted->core->index;
        out->shards[i].names = names;
        reads[i] = (struct read){
            .sink = {.iterations = iterations, .take = tables_take, .ended = tables_ended},
            .rows = &out->shards[i],
            .hosted = hosted,
            .answers = port->lanes[reactor].from,
            .left = &left};
        sl_port_post(port, reactor, (struct sl_mail){.run = begin_here, .ctx = &reads[i++]});
    }
    int err = 0;
    while (left > 0) {
        if (process->sim_hooks != NULL) {
            process->sim_hooks->wait(process->sim_hooks->ctx);
            sl_port_drain(port);
        } else {
            sl_port_wait(port);
        }
    }
    for (i = 0; i < count; i++) {
        out->primary_count += reads[i].is_primary;
        out->primary_sum += reads[i].hash;
        out->iterations =
            reads[i].iterations > out->iterations ? reads[i].iterations : out->iterations;
        if (err == 0 && reads[i].err != 0) {
            err = sl_reason_fail(reason, reads[i].err, "%s", reads[i].reason.text);
        }
    }
    free(reads);
    return err;
}

void sl_process_tables_fini(struct sl_process_tables *tables)
{
    for (uint32_t i = 0; i < tables->shard_count; i++) {
        sl_snapshot_rows_fini(&tables->shards[i]);
    }
    free(tables->shards);
}
