/* The liveness check of a connection. A peer that is silent for the timeout in the middle of a
 * frame, or while connecting, is ended with DEADLINE. Owner reactor. */
#ifndef SL_NET_TCP_LIVENESS_H
#define SL_NET_TCP_LIVENESS_H

#include "net/tcp/state.h"

void sl_tcp_liveness_init(struct sl_tcp *tcp);

#endif
