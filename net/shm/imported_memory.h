/* Memory imported from the peer. Reads all control messages after the handshake, and sees the end
 * of the socket. Owner reactor. */
#ifndef SL_NET_SHM_IMPORTED_MEMORY_H
#define SL_NET_SHM_IMPORTED_MEMORY_H

#include "net/shm/state.h"

/* Reads control messages from the socket. */
void sl_shm_imported_memory_read(struct sl_shm_conn *conn);

/* Describes memory as a piece of a writable region that the peer exported. False: it is in none. */
bool sl_shm_imported_memory_piece(const struct sl_shm_conn *conn, const void *at, uint32_t bytes,
                                  struct sl_shm_piece *out);

/* Returns the address of a piece that the peer names: in its arena, its memory or ours; NULL:
 * invalid. */
const uint8_t *sl_shm_imported_memory_resolve(struct sl_shm_conn *conn,
                                              const struct sl_shm_piece *piece);

/* As resolve, but only in memory that the peer exported as writable. */
uint8_t *sl_shm_imported_memory_reply_buffer(struct sl_shm_conn *conn,
                                             const struct sl_shm_piece *piece);

void sl_shm_imported_memory_drop(struct sl_shm_imported_memory **imported);

#endif
