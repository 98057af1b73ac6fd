/* The transport between processes of one machine and one user: rings of descriptors in memory that
 * both map, payloads where their sender has them. */
#ifndef SL_NET_SHM_SHM_H
#define SL_NET_SHM_SHM_H

#include "net/transport.h"

extern const struct sl_transport_ops sl_shm_ops;

/* Which machine and network namespace this process is in: those with the same can reach each other
 * by shm://. "" when the system does not say. Any thread. */
#define SL_SHM_HOST_BYTES 64
void sl_shm_host(char host[SL_SHM_HOST_BYTES]);

#endif
