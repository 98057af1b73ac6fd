/* For implementations of a transport: its limits, warnings about peers, and coalesced frames.
 * Owner reactor. */
#ifndef SL_NET_TRANSPORT_IMPL_H
#define SL_NET_TRANSPORT_IMPL_H

#include "net/transport.h"

/* The first call of `open`, with its arguments: sets the reactor and the limits. */
void sl_transport_init(struct sl_transport *transport, struct sl_reactor *reactor,
                       const struct sl_transport_options *options);

/* Whether connections_max are open: accept no other. sl_transport_connect checks it itself. */
static inline bool sl_transport_is_full(const struct sl_transport *transport)
{
    return sl_cell_get(&transport->cells->connections) >= transport->connections_max;
}

/* How long a peer may owe an answer until it is unreachable. */
static inline uint64_t sl_transport_patience_ns(const struct sl_transport *transport)
{
    return transport->peer_timeout_ms * SL_CLOCK_NS_PER_MS;
}

/* Writes a warning about a peer, if not too many were written this second. */
#define sl_transport_warn(transport, ...)                                                          \
    (sl_transport_may_log(transport) ? sl_log_warn(__VA_ARGS__) : (void)0)
bool sl_transport_may_log(struct sl_transport *transport);

/* Called for a queued frame that is sent, with its cookie and that of the next queued frame. If
 * they are reported together, the next frame takes the cookie over: returns true, report nothing.
 */
static inline bool sl_transport_pass_cookie(void *cookie, void **next)
{
    if (*next != SL_TRANSPORT_COALESCED) {
        return false;
    }
    *next = cookie;
    return true;
}

#endif
