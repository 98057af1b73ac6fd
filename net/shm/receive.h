/* Received frames: slots, copies, upcalls. Owner reactor. */
#ifndef SL_NET_SHM_RECEIVE_H
#define SL_NET_SHM_RECEIVE_H

#include "net/shm/state.h"

/* Delivers up to `budget` frames; returns the work done. */
uint32_t sl_shm_receive_run(struct sl_shm_conn *conn, uint32_t budget);

/* Drops all received frames. */
void sl_shm_receive_drop(struct sl_shm_conn *conn);

/* Releases a message. Returns the closed connection whose last loan this was, or NULL. */
struct sl_shm_conn *sl_shm_receive_release(struct sl_shm *shm, struct sl_shm_token *token);

static inline bool sl_shm_receive_pending(const struct sl_shm_conn *conn)
{
    const struct sl_shm_receive *receive = &conn->receive;
    return receive->slots != NULL &&
           sl_shm_slot_ready(&receive->slots[receive->head % SL_SHM_SLOTS], receive->head);
}

#endif
