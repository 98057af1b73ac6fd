/* The TCP transport over the reactor's io_uring; always available. Owner reactor, which must have a
 * ring: a stepped reactor gets UNSUPPORTED.
 *
 * Receiving: each connection has one multishot receive into a buffer ring, which all connections of
 * the reactor share. Frames are delivered in place; a buffer returns to the ring when its last
 * frame is released. Long payloads are received directly into memory from the upper layer. Sending:
 * one send per connection and turn, for everything queued.
 *
 * Memory is allocated when the transport opens (buffers) and when a connection opens (send queue,
 * room for one frame that spans two buffers); the latter is reused by later connections. Also when
 * a connection waits for memory or migrates, and in a TLS handshake. */
#ifndef SL_NET_TCP_TCP_H
#define SL_NET_TCP_TCP_H

#include "net/transport.h"

extern const struct sl_transport_ops sl_tcp_ops;

#endif
