/* Waits of blocking calls, which the client's option `interrupted` ends: it is asked between waits,
 * so it may itself use the client. The port's thread. */
#ifndef SL_WORKER_CLIENT_WAIT_H
#define SL_WORKER_CLIENT_WAIT_H

#include "worker/client/client_internal.h"

/* Waits until done(ctx), as sl_port_wait_until. Errors: AGAIN (after timeout_ns), CANCELLED. */
int sl_wait_until(const struct sl_client *client, struct sl_port *port, uint64_t timeout_ns,
                  bool (*done)(void *ctx), void *ctx);

/* Waits until all these posted operations are done. Errors: CANCELLED: the operations that were not
 * done have failed with CANCELLED, and no reactor uses any of them. */
int sl_wait_ops(const struct sl_client *client, struct sl_port *port, struct sl_control_op *ops,
                uint32_t count);

#endif
