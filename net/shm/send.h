/* The send queue, the ring of slots and the arena. Owner reactor. */
#ifndef SL_NET_SHM_SEND_H
#define SL_NET_SHM_SEND_H

#include "net/shm/state.h"

uint32_t sl_shm_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                           uint32_t count);

/* Publishes queued frames while there is room, and reports sent frames. Returns the work done. */
uint32_t sl_shm_send_run(struct sl_shm_conn *conn);

/* Reads how many frames the peer has consumed. */
void sl_shm_send_refresh(struct sl_shm_conn *conn);

/* Whether progress depends on the peer consuming frames. */
static inline bool sl_shm_send_waits(const struct sl_shm_conn *conn)
{
    const struct sl_shm_send *send = &conn->send;
    return send->next != send->tail || send->refs_due != send->consumed ||
           (conn->phase == SL_SHM_DRAINING && send->consumed != send->number);
}

#endif
