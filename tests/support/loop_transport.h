/* A transport from memory to memory, between reactors that one thread steps: for tests that want
 * the contract of net/transport.h without an operating system, from a seed. It takes fewer frames
 * than offered, copies the payload some turns later, reports `sent` some turns after that, and
 * delivers in bursts of any size; all decided by the seed. It loses and reorders nothing.
 *
 * The second transport imitates shared memory within one process. A long request stays in the
 * sender's memory, in two pieces if the sender has two; it changes at any time if the peers are
 * malicious. A frame carries a reply buffer along. Payload outside registered memory, or outside
 * the place that the peer wanted, counts as copied.
 *
 * The third transport imitates a device: it writes a long answer that fits into the reply buffer of
 * the request, before the requester is notified; the responder knows of no reply buffer. A long
 * payload outside registered memory, on either side, counts as copied. It does not migrate.
 *
 * A network joins its transports: listeners are found by port. It goes to sl_transport_open as
 * options.medium. One thread. */
#ifndef SL_TESTS_SUPPORT_LOOP_TRANSPORT_H
#define SL_TESTS_SUPPORT_LOOP_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "net/transport.h"

struct sl_loop_network {
    uint64_t random_state;
    struct sl_loop_listener *listeners;
    uint16_t port_next;       /* for listeners that asked for port 0 */
    uint32_t message_count;   /* on their way, or received and not released */
    uint32_t in_place_count;  /* messages delivered there */
    uint32_t landed_count;    /* answers written to their reply buffer, and not moved from there */
    bool peers_are_malicious; /* they write to what they have sent */
    bool registers_nothing;   /* there is no memory for it */
};

/* Caller's storage. All transports on it must be closed before fini, which asserts that no message
 * was kept. */
void sl_loop_network_init(struct sl_loop_network *network, uint64_t seed);
void sl_loop_network_fini(struct sl_loop_network *network);

extern const struct sl_transport_ops sl_loop_transport_ops;
extern const struct sl_transport_ops sl_loop_shared_ops;
extern const struct sl_transport_ops sl_loop_device_ops;

#endif
