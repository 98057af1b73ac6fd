/* Requests whose reply the peer may write into our memory. Owner reactor. */
#ifndef SL_NET_SHM_REPLY_BUFFER_H
#define SL_NET_SHM_REPLY_BUFFER_H

#include "net/shm/state.h"

/* Exports the frame's reply buffer as a piece, until unexport. Returns false if the peer must not
 * write there. */
bool sl_shm_reply_buffer_export(struct sl_shm_conn *conn, const struct sl_transport_frame *frame,
                                struct sl_shm_piece *out);

/* The reply has arrived: the peer no longer writes to the buffer. */
void sl_shm_reply_buffer_unexport(struct sl_shm_conn *conn, uint64_t request_id);
bool sl_shm_reply_buffer_is_exported(const struct sl_shm_conn *conn);

/* Before `closed`: if the peer has not closed its end and may still write to reply buffers, revokes
 * its access (core/shared.h). */
void sl_shm_reply_buffer_close(struct sl_shm_conn *conn);

#endif
