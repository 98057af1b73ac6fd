#include "worker/client_metrics.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/reason.h"
#include "observe/metrics/text.h"

#define ROW(name, kind, unit, member, help)                                                        \
    {                                                                                              \
        name, NULL, SL_METRICS_##kind, SL_METRICS_##unit, offsetof(struct CELLS, member), help     \
    }

#define CELLS sl_client_io_cells
static const struct sl_metrics_row io_rows[] = {
    ROW("client_requests_total", COUNTER, PLAIN, requests,
        "Requests sent to shards, retransmitted ones too."),
    ROW("client_replies_total", COUNTER, PLAIN, replies, "Replies received from shards."),
    ROW("client_failures_total", COUNTER, PLAIN, failures,
        "Requests and steps that failed: refused, past their deadline, or lost with a connection."),
    ROW("client_reconnects_total", COUNTER, PLAIN, reconnects,
        "Connections to shards that were established again."),
    ROW("client_in_flight", GAUGE, PLAIN, in_flight, "Requests sent and not answered."),
    ROW("client_request_seconds", HISTOGRAM, NS, request_time,
        "Time from sending a request to its reply."),
    ROW("client_credit_wait_seconds", HISTOGRAM, NS, credit_wait,
        "Time that requests waited for credit or a connection; those sent at once do not count."),
};
#undef CELLS

#define CELLS sl_thread_ctx_cells
static const struct sl_metrics_row thread_rows[] = {
    ROW("client_step_seconds", HISTOGRAM, NS, step_time,
        "Time from the submission of a step until it is complete."),
};
#undef CELLS

static void add(struct sl_client *client, struct sl_metrics_source *source,
                const struct sl_metrics_row *rows, uint32_t row_count, const void *cells)
{
    *source = (struct sl_metrics_source){.rows = rows, .row_count = row_count, .cells = cells};
    sl_metrics_add(&client->metrics, source);
}

void sl_client_metrics_init(struct sl_client *client)
{
    for (uint32_t i = 0; i < client->io_count; i++) {
        struct sl_client_io *io = &client->ios[i];
        add(client, &io->metrics, io_rows, sizeof io_rows / sizeof *io_rows, &io->cells);
    }
}

void sl_client_metrics_add_thread(struct sl_client *client, struct sl_thread_ctx *thread_ctx)
{
    add(client, &thread_ctx->metrics, thread_rows, sizeof thread_rows / sizeof *thread_rows,
        &thread_ctx->cells);
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
