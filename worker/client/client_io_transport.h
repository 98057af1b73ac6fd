/* The transports of a client's reactor, opened at their first use, and the outboxes for them. Owner
 * reactor. */
#ifndef SL_WORKER_CLIENT_CLIENT_IO_TRANSPORT_H
#define SL_WORKER_CLIENT_CLIENT_IO_TRANSPORT_H

#include "worker/client/client_io.h"

/* Returns whether this process seems able to open a transport of the scheme. Checks the system's
 * devices. Any thread. */
bool sl_client_io_may_open(const struct sl_client_io_options *options,
                           enum sl_endpoint_scheme scheme);

/* Returns the transport of a scheme; opens it at its first use. Errors: UNSUPPORTED, NO_MEMORY. */
int sl_client_io_transport(struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                           struct sl_transport **out);

/* The same for a preferred path. Returns NULL if the transport cannot be opened, and logs it once
 * per client. Retried later, unless UNSUPPORTED. */
struct sl_transport *sl_client_io_preferred_transport(struct sl_client_io *io,
                                                      enum sl_endpoint_scheme scheme);

/* Returns why opening the transport of the scheme failed with err. Static storage. */
const char *sl_client_io_last_error(enum sl_endpoint_scheme scheme, int err);

/* Returns the outbox of a scheme whose transport is open. */
struct sl_outbox *sl_client_io_outbox(struct sl_client_io *io, enum sl_endpoint_scheme scheme);

#endif
