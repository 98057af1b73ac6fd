#include "net/transport_metrics.h"

#include "core/err.h"

#define ROW(kind, member, name, labels, help)                                                      \
    {                                                                                              \
        name, labels, SL_METRICS_##kind, SL_METRICS_PLAIN,                                         \
            offsetof(struct sl_transport_cells, member), help                                      \
    }
#define END(end, reason)                                                                           \
    ROW(COUNTER, ends[SL_TRANSPORT_END_##end], "connections_closed_total",                         \
        "reason=\"" reason "\"", "Connections that closed, by reason.")

static const struct sl_metrics_row rows[] = {
    ROW(COUNTER, bytes_received, "received_bytes_total", NULL, "Bytes received."),
    ROW(COUNTER, bytes_sent, "sent_bytes_total", NULL, "Bytes sent."),
    ROW(COUNTER, frames_received, "received_frames_total", NULL, "Frames received."),
    ROW(COUNTER, frames_sent, "sent_frames_total", NULL,
        "Frames sent; short frames that leave together count as one."),
    ROW(COUNTER, stalled_sends, "stalled_sends_total", NULL,
        "Times that a connection had no room for all frames that were to be sent."),
    ROW(GAUGE, connections, "connections", NULL, "Open connections."),
    END(DISCONNECTED, "disconnected"),
    END(CLOSED, "closed"),
    END(UNREACHABLE, "unreachable"),
    END(PROTOCOL, "protocol"),
    END(OTHER, "other"),
};

struct sl_metrics_source sl_transport_metrics_source(const struct sl_transport_cells *cells,
                                                     const char *labels, const char *detail)
{
    return (struct sl_metrics_source){.rows = rows,
                                      .row_count = sizeof rows / sizeof rows[0],
                                      .cells = cells,
                                      .labels = labels,
                                      .detail = detail};
}

static enum sl_transport_end end_of(int err)
{
    switch (err) {
    case SL_OK:
    case SL_ERR_CANCELLED:
        return SL_TRANSPORT_END_DISCONNECTED;
    case SL_ERR_CLOSED:
        return SL_TRANSPORT_END_CLOSED;
    case SL_ERR_REFUSED:
    case SL_ERR_DEADLINE:
    case SL_ERR_NOT_FOUND:
        return SL_TRANSPORT_END_UNREACHABLE;
    case SL_ERR_PROTOCOL:
    case SL_ERR_VERSION:
    case SL_ERR_TOO_LARGE:
        return SL_TRANSPORT_END_PROTOCOL;
    default:
        return SL_TRANSPORT_END_OTHER;
    }
}

void sl_transport_metrics_closed(struct sl_transport_cells *cells, int err)
{
    sl_cell_add(&cells->ends[end_of(err)], 1);
}
