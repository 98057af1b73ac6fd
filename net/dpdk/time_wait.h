/* Ids of ended connections. Owner reactor. */
#ifndef SL_NET_DPDK_TIME_WAIT_H
#define SL_NET_DPDK_TIME_WAIT_H

#include "net/dpdk/state.h"

/* The content of a RESET. It is an acknowledgement of all received packets too. err: OK if neither
 * side waits for anything: the peer has acknowledged our FIN, or all before the peer's FIN was
 * delivered. */
struct sl_dpdk_last_words {
    struct sl_dpdk_header header;
    _Alignas(8) uint8_t body[SL_DPDK_SACK_WORDS * sizeof(uint64_t) + 1];
};
void sl_dpdk_time_wait_last_words(const struct sl_dpdk_conn *conn, int err,
                                  struct sl_dpdk_last_words *out);

int sl_dpdk_time_wait_open(struct sl_dpdk *dpdk);
void sl_dpdk_time_wait_close(struct sl_dpdk *dpdk);
void sl_dpdk_time_wait_ended(const struct sl_dpdk_conn *conn);
bool sl_dpdk_time_wait_has(struct sl_dpdk *dpdk, uint64_t id);
/* Handles a packet for an id that ended: repeats the RESET. False: unknown id. */
bool sl_dpdk_time_wait_take(struct sl_dpdk *dpdk, const struct sl_dpdk_parsed *parsed);

#endif
