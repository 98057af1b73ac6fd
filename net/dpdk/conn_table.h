/* The connections of a transport by id, and the ids. Owner reactor. */
#ifndef SL_NET_DPDK_CONN_TABLE_H
#define SL_NET_DPDK_CONN_TABLE_H

#include "net/dpdk/state.h"

#define SL_DPDK_ID_SHIFT 24 /* the random bits of an id begin here */

uint64_t sl_dpdk_conn_table_random(struct sl_dpdk *dpdk);
/* An id of this reactor: its index, its boot epoch and 40 random bits. */
uint64_t sl_dpdk_conn_table_id(const struct sl_dpdk *dpdk, uint64_t random);

/* Enters the connection under its id. */
void sl_dpdk_conn_table_add(struct sl_dpdk_conn *conn);
void sl_dpdk_conn_table_remove(struct sl_dpdk_conn *conn);
struct sl_dpdk_conn *sl_dpdk_conn_table_find(const struct sl_dpdk *dpdk, uint64_t id); /* or NULL */

#endif
