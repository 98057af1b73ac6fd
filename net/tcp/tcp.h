/* TCP over the reactor's io_uring: the transport that is always there.
 *
 * Receiving: one multishot receive per connection into a ring of buffers that all connections of a
 * reactor share; frames are delivered where they lie, and a buffer goes back to the ring when the
 * last of its frames was released. Long payloads are received straight into memory that the upper
 * layer names. Sending: one send per connection and turn, of everything that was queued.
 *
 * Memory: the buffers at open; a connection's own (a send queue, and room for one frame that lies
 * across two buffers) when it opens, kept for the next one; none after that. Owner reactor, which
 * must have a ring: a stepped reactor gives UNSUPPORTED. */
#ifndef SL_NET_TCP_TCP_H
#define SL_NET_TCP_TCP_H

#include "net/transport.h"

extern const struct sl_transport_ops sl_tcp_ops;

#endif
