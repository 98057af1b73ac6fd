#include "ps/process/tables.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/assert.h"
#include "ps/process/state.h"
#include "ps/server/state.h"
#include "ps/shard/snapshot.h"
#include "reactor/port.h"

/* Before the next try, while a checkpoint is written. */
#define PAUSE_US 20000

/* Of one shard. The reactor's, between the mail that begins it and the one that ends it. */
struct read {
    struct sl_server_snapshot_sink sink;
    struct sl_snapshot_rows rows;
    struct sl_process_core *core;
    uint32_t which;
    bool is_primary, looks_only; /* only at the iteration */
    uint32_t iterations;
    struct sl_mailbox_lane *answers;
    uint32_t *left; /* of the reading thread: shards that have not ended */
    int err;
    struct sl_reason reason;
};

static struct sl_server *server_of(const struct read *read)
{
    return sl_process_server(read->core->process, read->which, read->core->index);
}

/* On the reading thread. */
static void arrived(void *ctx, uint64_t a, uint64_t b)
{
    --*((struct read *)ctx)->left;
}

static void end(struct read *read, int err, const char *reason)
{
    read->err = err;
    sl_reason_set(&read->reason, "%s", reason);
    const int posted =
        sl_mailbox_post(read->answers, (struct sl_mail){.run = arrived, .ctx = read});
    sl_assert(posted == 0); /* one for each shard */
}

static int take(struct sl_server_snapshot_sink *sink, const struct sl_snapshot_block *block,
                struct sl_reason *reason)
{
    return sl_snapshot_rows_take(&SL_CONTAINER_OF(sink, struct read, sink)->rows, block, reason);
}

static void ended(struct sl_server_snapshot_sink *sink, int err, const char *reason)
{
    end(SL_CONTAINER_OF(sink, struct read, sink), err, reason);
}

/* The core's reactor. */
static void begin_here(void *ctx, uint64_t a, uint64_t b)
{
    struct read *read = ctx;
    struct sl_server *server = server_of(read);
    read->is_primary = server->role.serves && server->shard != NULL;
    const bool reads = read->is_primary && !read->looks_only;
    read->iterations = read->is_primary ? sl_shard_snapshot_iterations(server->shard) : 0;
    const int err = reads ? sl_server_snapshot_read(server, &read->sink) : 0;
    if (err != 0 || !reads) {
        end(read, err, "a checkpoint is in progress");
    }
}

static void cancel_here(void *ctx, uint64_t a, uint64_t b)
{
    const struct read *read = ctx;
    if (read->is_primary) {
        sl_server_snapshot_cancel(server_of(read), &read->sink);
    }
}

/* Runs the reads of all shards once. */
static void run_all(struct read *reads, uint32_t count, struct sl_port *port,
                    const struct sl_process_tables_read *options)
{
    uint32_t left = count;
    bool is_cancelled = false;
    for (uint32_t i = 0; i < count; i++) {
        struct read *read = &reads[i];
        sl_snapshot_rows_fini(&read->rows);
        read->left = &left;
        read->answers = port->lanes[read->core->index].from;
        sl_port_post(port, read->core->index, (struct sl_mail){.run = begin_here, .ctx = read});
    }
    while (left > 0) {
        sl_port_wait(port);
        if (left > 0 && !is_cancelled && options->is_over(options->ctx)) {
            is_cancelled = true;
            for (uint32_t i = 0; i < count; i++) {
                sl_port_post(port, reads[i].core->index,
                             (struct sl_mail){.run = cancel_here, .ctx = &reads[i]});
            }
        }
    }
}

/* A checkpoint was in the way. */
static bool is_passing(int err)
{
    return err == SL_ERR_EXISTS || err == SL_ERR_CANCELLED;
}

/* The worst error of the shards. */
static int result(const struct read *reads, uint32_t count, struct sl_reason *reason)
{
    int err = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (reads[i].err != 0 && (err == 0 || (is_passing(err) && !is_passing(reads[i].err)))) {
            err = reads[i].err;
            *reason = reads[i].reason;
        }
    }
    return err;
}

/* Keeps the shards of which this process is the primary. Errors: those of sl_snapshot_rows_check,
 * NO_MEMORY. */
static int keep(struct read *reads, uint32_t count, struct sl_process_tables *out,
                struct sl_reason *reason)
{
    struct sl_process_tables kept = {.shards = calloc(count, sizeof *kept.shards)};
    if (kept.shards == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        if (reads[i].is_primary) {
            err = sl_snapshot_rows_check(&reads[i].rows, reason);
            kept.shards[kept.count++] = reads[i].rows;
            reads[i].rows = (struct sl_snapshot_rows){0};
        }
    }
    if (err != 0) {
        sl_process_tables_fini(&kept);
        return err;
    }
    *out = kept;
    return 0;
}

/* Errors: NO_MEMORY. */
static int make_reads(const struct sl_process_tables_read *options, bool looks_only,
                      struct read **out, uint32_t *count, struct sl_port **port)
{
    struct sl_process *process = options->process;
    const uint32_t cores = process->options.reactor_count;
    *count = cores * sl_process_hosted_count(process);
    struct read *reads = calloc(*count, sizeof *reads);
    if (reads == NULL || sl_port_here(options->ports, port) != 0) {
        free(reads);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < *count; i++) {
        reads[i] =
            (struct read){.sink = {.iterations = options->iterations, .take = take, .ended = ended},
                          .rows = {.names = options->names},
                          .core = &process->cores[i % cores],
                          .which = i / cores,
                          .looks_only = looks_only};
    }
    *out = reads;
    return 0;
}

int sl_process_tables_iterations(const struct sl_process_tables_read *options, uint32_t *iterations)
{
    struct read *reads;
    struct sl_port *port;
    uint32_t count, most = 0;
    const int err = make_reads(options, true, &reads, &count, &port);
    if (err != 0) {
        return err;
    }
    run_all(reads, count, port, options);
    for (uint32_t i = 0; i < count; i++) {
        most = reads[i].iterations > most ? reads[i].iterations : most;
    }
    free(reads);
    *iterations = most;
    return 0;
}

int sl_process_tables_read(const struct sl_process_tables_read *options,
                           struct sl_process_tables *out, struct sl_reason *reason)
{
    struct read *reads;
    struct sl_port *port;
    uint32_t count;
    int err = make_reads(options, false, &reads, &count, &port);
    if (err != 0) {
        return sl_reason_fail(reason, err, "out of memory");
    }
    do {
        run_all(reads, count, port, options);
        err = result(reads, count, reason);
    } while (is_passing(err) && !options->is_over(options->ctx) && usleep(PAUSE_US) == 0);
    err = is_passing(err) ? SL_ERR_CANCELLED : err;
    err = err != 0 ? err : keep(reads, count, out, reason);
    for (uint32_t i = 0; i < count; i++) {
        sl_snapshot_rows_fini(&reads[i].rows);
    }
    free(reads);
    return err;
}

void sl_process_tables_fini(struct sl_process_tables *tables)
{
    for (uint32_t i = 0; i < tables->count; i++) {
        sl_snapshot_rows_fini(&tables->shards[i]);
    }
    free(tables->shards);
    *tables = (struct sl_process_tables){0};
}
