/* Sends at once, straight from memory that may change afterwards, such as that of a table: for
 * stream transports (SL_TRANSPORT_CHUNKS) without TLS. Nothing has to be copied first, or kept for
 * a slow reader. Owner reactor. */
#ifndef SL_NET_TRANSPORT_NOW_H
#define SL_NET_TRANSPORT_NOW_H

#include "net/transport.h"

/* Whether the connection can do this. */
static inline bool sl_transport_sends_now(const struct sl_conn *conn)
{
    return conn->transport->ops->send_now != NULL && !conn->transport->secure;
}

/* Sends the next bytes of a frame within the call. parts[0] begins with the frame's header, or
 * continues the frame. Returns how many bytes were taken, from the first on: as many as the medium
 * has room for; none while frames taken before are not `sent`. No `sent` follows. The caller sends
 * the rest of the frame next: by another call, or by send_burst, whose `sent` says that there is
 * room again. */
uint32_t sl_transport_send_now(struct sl_conn *conn, const struct iovec *parts, uint32_t count);

#endif
