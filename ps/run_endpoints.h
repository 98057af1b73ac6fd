/* The endpoints of a server process: control, data, and an RDMA or DPDK endpoint beside TCP. */
#ifndef SL_PS_RUN_ENDPOINTS_H
#define SL_PS_RUN_ENDPOINTS_H

#include "ps/run_options.h"

/* Fills kind and endpoints of the options from cluster and settings. Errors, with reason: INVALID,
 * DEADLINE (no route to the scheduler), IO. */
int sl_run_endpoints_fill(const struct sl_run *run, struct sl_process_options *options,
                          struct sl_reason *reason);

/* Checks that this program and this host have the transports, that the endpoints of a network have
 * a secret, and opens the DPDK devices; may drop a bypass endpoint, with a warning. After
 * sl_run_options_fill. Errors, with reason: INVALID, UNSUPPORTED, TOO_LARGE, NO_MEMORY. */
int sl_run_endpoints_check(struct sl_run *run, struct sl_process_options *options,
                           struct sl_reason *reason);

/* Warns of endpoints that peers cannot reach, or that everyone can. */
void sl_run_endpoints_warn(const struct sl_process_options *options);

#endif
