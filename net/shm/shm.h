/* The shared memory transport connects processes of the same user on one machine: rings of frame
 * descriptors in memory that both processes map; short payloads travel with them, long
 * ones are read where the sender has them, or written where the receiver wants them. Owner reactor,
 * which must have a ring. */
#ifndef SL_NET_SHM_SHM_H
#define SL_NET_SHM_SHM_H

#include "net/transport.h"

extern const struct sl_transport_ops sl_shm_ops;

/* Writes an id of this machine, network namespace and user: processes with the same id can connect
 * over shm://. "" if the system does not provide it. Any thread. */
#define SL_SHM_HOST_BYTES 64
void sl_shm_host(char host[SL_SHM_HOST_BYTES]);

#endif
