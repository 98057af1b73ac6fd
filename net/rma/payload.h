/* How the payload of a DATA or REPLY frame is sent. Private to net/rma. */
#ifndef SL_NET_RMA_PAYLOAD_H
#define SL_NET_RMA_PAYLOAD_H

#include "net/transport.h"

/* Whether the payload is copied into the outbox: a short one, since a copy is cheaper than one more
 * piece, and one that the transport could send from registered memory only. Others are sent from
 * where they are. */
static inline bool sl_rma_payload_is_copied(const struct sl_conn *conn, uint32_t bytes)
{
    return bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES ||
           (bytes > SL_TRANSPORT_UNREGISTERED_BYTES_MAX && sl_transport_needs_registered(conn));
}

#endif
