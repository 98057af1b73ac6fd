/* One-sided operations in shared memory (net/transport_rma.h). The initiator asks for the target's
 * memory at the first operation on it, maps it, and copies; the target only answers that question.
 * A removed region is withdrawn: the initiator unmaps it and says so. Owner reactor. */
#ifndef SL_NET_SHM_RMA_H
#define SL_NET_SHM_RMA_H

#include "net/shm/socket.h"
#include "net/shm/state.h"
#include "net/transport_rma.h"

extern const struct sl_transport_rma_ops sl_shm_rma_ops;

/* From poll: region_added, region_removed. */
void sl_shm_rma_report(struct sl_shm *shm);
void sl_shm_rma_free_all(struct sl_shm *shm);

/* Whether operations were copied and are not reported. Their target is alive while its socket is
 * open: read the socket before run. */
bool sl_shm_rma_has_copied(const struct sl_shm_conn *conn);

/* From a visit: reports operations that were copied in an earlier turn, and copies some more.
 * Returns the work done. */
uint32_t sl_shm_rma_run(struct sl_shm_conn *conn);

/* A control message of kind RMA_*, with its descriptor, which is taken over. Errors: PROTOCOL,
 * NO_MEMORY, CLOSED, DEADLINE. */
int sl_shm_rma_take(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd);

/* Whether the peer owes an answer. */
bool sl_shm_rma_waits(const struct sl_shm_conn *conn);

/* Whether the peer may have mapped regions of this side. */
bool sl_shm_rma_is_mapped(const struct sl_shm_conn *conn);

/* Before `closed`: unmaps the peer's memory and drops all operations. */
void sl_shm_rma_close(struct sl_shm_conn *conn);

#endif
