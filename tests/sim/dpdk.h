/* DPDK's transport, net/dpdk as it is, on the devices of a simulated network (ether.h), with
 * somebody beside it who looks at what goes in and what comes out: of each connection the frames
 * that were taken are delivered once, unchanged, in order; their memory does not change until
 * `sent`, which comes in order too. Connections may be broken. One thread. Allocates. */
#ifndef SL_TESTS_SIM_DPDK_H
#define SL_TESTS_SIM_DPDK_H

#include "net/transport.h"

struct sl_sim_network;
struct sl_sim_dpdk;

struct sl_sim_dpdk *sl_sim_dpdk_create(struct sl_sim_network *network);
void sl_sim_dpdk_destroy(struct sl_sim_dpdk **dpdk); /* all transports are closed */

const struct sl_transport_ops *sl_sim_dpdk_ops(void);

/* Ends one connection of the host, or all, as if something had gone wrong there; the peers are
 * told or not. Returns whether all of them hear of it at once: the others ask, when nothing has
 * been said for half their peer timeout. */
bool sl_sim_dpdk_break(struct sl_sim_dpdk *dpdk, uint32_t host, bool all);

#endif
