#include "worker/client/client_metrics.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/metrics_text.h"
#include "core/reason.h"

#define ROW(kind, unit, cells, member, name, labels, help)                                         \
    {                                                                                              \
        name, labels, SL_METRICS_##kind, SL_METRICS_##unit, offsetof(struct cells, member), help   \
    }
#define IO(kind, unit, member, name, help)                                                         \
    ROW(kind, unit, sl_client_io_cells, member, name, NULL, help)
#define REQUESTS(kind, label)                                                                      \
    ROW(COUNTER, PLAIN, sl_client_io_cells, requests[SL_REQUEST_KIND_##kind],                      \
        "client_requests_total", "op=\"" label "\"",                                               \
        "Requests sent, retransmitted ones too, by the operation with most keys.")

static const struct sl_metrics_row io_rows[] = {
    REQUESTS(PULL, "pull"),
    REQUESTS(PUSH, "push"),
    REQUESTS(PUSH_PULL, "push_pull"),
    REQUESTS(ASSIGN, "assign"),
    REQUESTS(ERASE, "erase"),
    REQUESTS(TICK, "tick"),
    IO(COUNTER, PLAIN, replies, "client_replies_total", "Replies received."),
    IO(COUNTER, PLAIN, failures, "client_failures_total",
       "Requests that were refused or lost, and steps past their deadline."),
    IO(COUNTER, PLAIN, reconnects, "client_reconnects_total",
       "Connections to shards that were established again."),
    IO(GAUGE, PLAIN, in_flight, "client_in_flight", "Requests sent and not answered."),
    IO(HISTOGRAM, NS, request_time, "client_request_seconds",
       "Time from sending a request to its reply."),
    IO(HISTOGRAM, NS, credit_wait, "client_credit_wait_seconds",
       "Time that requests waited for credit or a connection, of those that were not sent at "
       "once."),
};

static const struct sl_metrics_row thread_rows[] = {
    ROW(HISTOGRAM, NS, sl_thread_ctx_cells, step_time, "client_step_seconds", NULL,
        "Time from the submission of a step until it is complete."),
};

static void client_metrics_add(struct sl_client *client, struct sl_metrics_source *source,
                               const struct sl_metrics_row *rows, uint32_t row_count,
                               const void *cells)
{
    *source = (struct sl_metrics_source){.rows = rows, .row_count = row_count, .cells = cells};
    sl_metrics_add(&client->metrics, source);
}

/* Their series begin when a transport of the scheme is opened. */
static void add_transports(struct sl_client *client, struct sl_client_io *io)
{
    static const char *const labels[SL_CLIENT_IO_SCHEMES] = {
        [SL_ENDPOINT_TCP] = "transport=\"tcp\"",
        [SL_ENDPOINT_RDMA] = "transport=\"rdma\"",
        [SL_ENDPOINT_DPDK] = "transport=\"dpdk\"",
        [SL_ENDPOINT_SHM] = "transport=\"shm\"",
    };
    for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        struct sl_metrics_source *source = &io->transport_metrics[scheme];
        *source = sl_transport_metrics_source(&io->transport_cells[scheme], labels[scheme], NULL);
        source->is_active = &io->cells.is_open[scheme];
        sl_metrics_add(&client->metrics, source);
    }
}

void sl_client_metrics_init(struct sl_client *client)
{
    for (uint32_t i = 0; i < client->io_count; i++) {
        struct sl_client_io *io = &client->ios[i];
        client_metrics_add(client, &io->metrics, io_rows, sizeof io_rows / sizeof *io_rows,
                           &io->cells);
        add_transports(client, io);
    }
}

void sl_client_metrics_add_thread(struct sl_client *client, struct sl_thread_ctx *thread_ctx)
{
    client_metrics_add(client, &thread_ctx->metrics, thread_rows,
                       sizeof thread_rows / sizeof *thread_rows, &thread_ctx->cells);
}

struct step_times {
    struct sl_metrics_visitor visitor;
    struct sl_cell_copy *copy;
};

static void add_step_times(struct sl_metrics_visitor *visitor,
                           const struct sl_metrics_series *series)
{
    const struct step_times *times = SL_CONTAINER_OF(visitor, struct step_times, visitor);
    if (series->row == thread_rows) {
        sl_cell_read(series->histogram, times->copy);
    }
}

bool sl_client_metrics_step_times(struct sl_metrics *metrics, struct sl_cell_copy *times)
{
    struct step_times steps = {.visitor = {.visit = add_step_times}, .copy = times};
    return sl_metrics_try_walk(metrics, &steps.visitor);
}

int sl_client_metrics(const struct sl_client *client, char *text, size_t room)
{
    sl_assert(client != NULL);
    sl_assert(text != NULL || room == 0);
    int err = sl_port_set_check(client->ports);
    if (err != 0) {
        return err;
    }
    char *whole;
    size_t bytes;
    struct sl_client *locked = (struct sl_client *)(uintptr_t)client;
    err = sl_metrics_text_create(&locked->metrics, false, &whole, &bytes);
    if (err != 0) {
        return sl_reason_report(err, "metrics: no memory");
    }
    if (bytes < room) {
        memcpy(text, whole, bytes + 1);
    }
    free(whole);
    return (int)bytes;
}
