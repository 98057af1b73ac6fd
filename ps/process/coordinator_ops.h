/* The coordinator's functions, for the server on its reactor. */
#ifndef SL_PS_PROCESS_COORDINATOR_OPS_H
#define SL_PS_PROCESS_COORDINATOR_OPS_H

#include "ps/server/server.h"

extern const struct sl_server_coordinator_ops sl_process_coordinator_ops;

#endif
