#include "net/trace.h"

#include <inttypes.h>

#include "core/log.h"
#include "net/transport.h"

_Atomic uint32_t sl_trace_level;

void sl_trace_set(uint32_t level)
{
    atomic_store_explicit(&sl_trace_level, level, memory_order_relaxed);
}

/* If a connect fails early, the connection has no address yet. */
static const char *trace_peer_of(const struct sl_conn *conn)
{
    return conn->peer[0] == '\0' ? "a peer without an address" : conn->peer;
}

void sl_trace_connection(const struct sl_conn *conn, const char *what, const char *why)
{
    sl_log_info("connection %s: %s over %s%s%s", what, trace_peer_of(conn),
                conn->transport->ops->scheme, why[0] == '\0' ? "" : ": ", why);
}

static void write_frame(const struct sl_conn *conn, const char *what, const struct sl_frame *frame)
{
    static const char *const types[] = {
        [SL_FRAME_CONTROL] = "control", [SL_FRAME_REQUEST] = "request", [SL_FRAME_REPLY] = "reply",
        [SL_FRAME_CREDIT] = "credit",   [SL_FRAME_DATA] = "data",
    };
    const bool is_known = frame->type >= SL_FRAME_CONTROL && frame->type <= SL_FRAME_DATA;
    sl_log_info("%s %s %" PRIu64 ", %u bytes%s, %s over %s", what,
                is_known ? types[frame->type] : "unknown frame", frame->request_id,
                frame->payload_bytes, frame->status == 0 ? "" : ", an error", trace_peer_of(conn),
                conn->transport->ops->scheme);
}

void sl_trace_received(const struct sl_conn *conn, const struct sl_frame *frame)
{
    write_frame(conn, "received", frame);
}

/* Each entry is one frame, several frames in a row, or the continuation of a frame. */
void sl_trace_sent(const struct sl_conn *conn, const struct sl_transport_frame *frames,
                   uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *head = frames[i].head;
        uint64_t at = 0;
        struct sl_frame frame;
        while (at + SL_FRAME_HEADER_BYTES <= frames[i].head_bytes &&
               sl_frame_decode(head + at, &frame) == 0) {
            write_frame(conn, "sent", &frame);
            at += SL_FRAME_HEADER_BYTES + (uint64_t)frame.payload_bytes;
        }
        if (at == 0) {
            sl_log_info("sent %u bytes more, %s over %s",
                        frames[i].head_bytes + frames[i].payload_bytes, trace_peer_of(conn),
                        conn->transport->ops->scheme);
        }
    }
}
