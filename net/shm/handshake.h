/* Handshake: the connecting side creates the segment and sends it in HELLO; the other side attaches
 * it and answers ACCEPT. Owner reactor. */
#ifndef SL_NET_SHM_HANDSHAKE_H
#define SL_NET_SHM_HANDSHAKE_H

#include "net/shm/socket.h"

/* Connects and sends HELLO. Errors: AGAIN (the listener's queue is full: try later), REFUSED, IO,
 * NO_MEMORY. */
int sl_shm_handshake_connect(struct sl_shm_conn *conn);

/* Handles a control message in HANDSHAKE; takes fd. Reports `accepted` or `connected`, or fails. */
void sl_shm_handshake_take(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd);

/* Attaches the segment: both directions start at the counts in `link`. */
void sl_shm_handshake_attach(struct sl_shm_conn *conn);

#endif
