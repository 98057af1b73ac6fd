/* The cells of a transport: what it has sent and received, and its connections. Written by its
 * reactor, read by any thread. */
#ifndef SL_NET_TRANSPORT_METRICS_H
#define SL_NET_TRANSPORT_METRICS_H

#include "core/metrics.h"

/* Why connections closed. */
enum sl_transport_end {
    SL_TRANSPORT_END_DISCONNECTED, /* by this side, or when the transport closed */
    SL_TRANSPORT_END_CLOSED,       /* by the peer */
    SL_TRANSPORT_END_UNREACHABLE,  /* no answer in time, or no such peer */
    SL_TRANSPORT_END_PROTOCOL,     /* unacceptable data */
    SL_TRANSPORT_END_OTHER,
    SL_TRANSPORT_ENDS
};

struct sl_transport_cells {
    struct sl_cell bytes_sent, bytes_received, frames_sent, frames_received;
    struct sl_cell send_calls, receive_calls; /* operations submitted to the medium */
    struct sl_cell copied_bytes;              /* copied beyond the medium's own copies */
    struct sl_cell connections;
    struct sl_cell stalled_sends; /* send_burst took fewer frames than offered */
    struct sl_cell ends[SL_TRANSPORT_ENDS];
};

/* A copy of the cells. */
struct sl_transport_stats {
    uint64_t bytes_sent, bytes_received, frames_sent, frames_received;
    uint64_t send_calls, receive_calls; /* operations submitted to the medium */
    uint64_t copied_bytes;              /* copied beyond the medium's own copies */
    uint64_t connections;
};

/* labels: such as transport="tcp"; detail: such as shard="3". Any thread. */
struct sl_metrics_source sl_transport_metrics_source(const struct sl_transport_cells *cells,
                                                     const char *labels, const char *detail);

/* A connection closed with `err`. */
void sl_transport_metrics_closed(struct sl_transport_cells *cells, int err);

#endif
