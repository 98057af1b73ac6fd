/* Detects dead peers. Owner reactor. */
#ifndef SL_NET_DPDK_LIVENESS_H
#define SL_NET_DPDK_LIVENESS_H

#include "net/dpdk/state.h"

void sl_dpdk_liveness_begin(struct sl_dpdk_conn *conn); /* a connection became LIVE */
void sl_dpdk_liveness_open(struct sl_dpdk *dpdk);
void sl_dpdk_liveness_close(struct sl_dpdk *dpdk);

#endif
