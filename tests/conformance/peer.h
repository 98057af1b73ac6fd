/* What peer.c does for world.c. */
#ifndef TESTS_CONFORMANCE_PEER_H
#define TESTS_CONFORMANCE_PEER_H

#include "conformance.h"

extern const struct sl_transport_events peer_events;

/* After the reactors have ended. Checks what was given back. */
void peer_destroy(struct peer *peer);

#endif
