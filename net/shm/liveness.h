/* The liveness check of a connection: a peer that owes progress and shows none for the timeout is
 * ended with DEADLINE. Owner reactor. */
#ifndef SL_NET_SHM_LIVENESS_H
#define SL_NET_SHM_LIVENESS_H

#include "net/shm/state.h"

void sl_shm_liveness_init(struct sl_shm *shm);

#endif
