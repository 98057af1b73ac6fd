/* One-sided operations: the second, optional table of a transport. An initiator reads and writes
 * registered memory of its peer, the target, whose processor takes no part.
 *
 * The target registers memory as a region, admits a connection, and sends the region's token to the
 * initiator by other means. Rules, besides those of net/transport.h:
 * - Upcalls (struct sl_transport_rma_events) run where those of sl_transport_events run.
 * - A token is valid on all connections to transports that have added the region under its key.
 * - `closed` ends all operations of a connection; their cookies are not reported. Afterwards
 *   nothing touches their local memory, and no write of this side reaches the target.
 * - No medium gives peers write access without read access, so no region does.
 * Owner reactor. Memory is allocated for regions, and by the first post on a connection. */
#ifndef SL_NET_TRANSPORT_RMA_H
#define SL_NET_TRANSPORT_RMA_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "net/transport.h"

/* Of one operation. */
#define SL_TRANSPORT_RMA_BYTES_MAX SL_LIMIT_FRAME_PAYLOAD_BYTES

/* Bits. Access of peers to a region: LOCAL, PEERS_READ, or both bits. */
enum sl_transport_rma_access {
    SL_TRANSPORT_RMA_LOCAL = 0, /* none: local memory of this side's operations */
    SL_TRANSPORT_RMA_PEERS_READ = 1 << 0,
    SL_TRANSPORT_RMA_PEERS_WRITE = 1 << 1
};

/* Names a region to initiators. Sent as it is, in the byte order of the machine. An initiator may
 * receive any bytes as a token: a wrong one fails its operation, or ends the connection. */
struct sl_transport_rma_token {
    uint64_t name;       /* RDMA: address of the region; shm: its key */
    uint64_t bytes;      /* of the region */
    uint32_t remote_key; /* RDMA only */
    uint32_t access;     /* sl_transport_rma_access */
};
static_assert(sizeof(struct sl_transport_rma_token) == 24, "token size");

enum sl_transport_rma_kind {
    SL_TRANSPORT_RMA_READ,
    SL_TRANSPORT_RMA_WRITE,
    /* Completes when the target's processor sees all earlier WRITEs of the connection. Needs a
     * token of any region with PEERS_READ; `local`, `offset` and `bytes` are ignored. */
    SL_TRANSPORT_RMA_FLUSH
};

struct sl_transport_rma_op {
    enum sl_transport_rma_kind kind;
    uint32_t bytes; /* 1 to SL_TRANSPORT_RMA_BYTES_MAX */
    /* RDMA: in one region of this transport. The transport uses it until `completed` or `closed`.
     */
    void *local;
    const struct sl_transport_rma_token *token; /* read by post only */
    uint64_t offset;                            /* in the region */
    void *cookie;
};

struct sl_transport_rma_events {
    /* The region may be used; the token names it to peers. Otherwise err: NO_MEMORY, IO: it cannot
     * be used. RDMA: again when that changes: a device is back, with another token, or a later
     * attempt to register the memory succeeds. */
    void (*region_added)(void *ctx, uint64_t key, const struct sl_transport_rma_token *token,
                         int err);
    /* No peer and no device reaches the memory any more. err: DEADLINE: a peer that was stopped, or
     * whose connection ended by a deadline, may still write to it. Unmap the memory
     * (sl_shared_destroy): then the peer writes to pages that no process reads. */
    void (*region_removed)(void *ctx, uint64_t key, int err);
    /* An operation is over; its connection is open. In the order of posting. err: 0: READ: the
     * bytes are in `local`; WRITE: the target's medium has them. INVALID: the range ends beyond the
     * region, or RDMA: `local` is in no region. REFUSED: the token lacks the access. NOT_FOUND: the
     * region was removed. NO_MEMORY: the region cannot be mapped here. An operation that the
     * target's device refuses ends the connection instead, with PROTOCOL. */
    void (*completed)(void *ctx, struct sl_conn *conn, void *cookie, int err);
};

struct sl_transport_rma_ops {
    int (*region_add)(struct sl_transport *transport, uint64_t key, void *base, size_t bytes,
                      unsigned access);
    void (*region_remove)(struct sl_transport *transport, uint64_t key);
    int (*admit)(struct sl_conn *conn);
    uint32_t (*post)(struct sl_conn *conn, const struct sl_transport_rma_op *ops, uint32_t count);
};

/* Functions for callers */

/* Before all other calls, and before connections: sets where upcalls go. Errors: UNSUPPORTED: the
 * transport has no one-sided operations. */
int sl_transport_rma_open(struct sl_transport *transport,
                          const struct sl_transport_rma_events *events, void *ctx);

/* Starts to add memory as a region; region_added follows. The key names this registration: random,
 * never used again. The memory must stay mapped until region_removed, or the transport's close.
 * Errors, without an upcall: UNSUPPORTED (shm: peers reach only whole memory of sl_shared_create
 * with exactly this access), EXISTS (the key), TOO_LARGE (SL_LIMIT_TRANSFER_BUFFERS regions),
 * NO_MEMORY. */
int sl_transport_rma_region_add(struct sl_transport *transport, uint64_t key, void *base,
                                size_t bytes, unsigned access);

/* Starts to remove a region, also one that cannot be used: from now on operations on it fail, or
 * end their connection. After the first region_added. region_removed follows within some seconds.
 */
void sl_transport_rma_region_remove(struct sl_transport *transport, uint64_t key);

/* The peer is welcome: from now on it may reach regions. Before, it reaches none; with RDMA, no
 * other memory either, so long frames must not be sent to it. For connections of both sides.
 * Idempotent. Errors: NO_MEMORY, IO. */
int sl_transport_rma_admit(struct sl_conn *conn);

/* Posts operations; returns how many were taken, in order: fewer if the queue is full (then a
 * `completed` follows) or the connection is closing. A queue has room for SL_LIMIT_TRANSFER_SLICES
 * operations. */
uint32_t sl_transport_rma_post(struct sl_conn *conn, const struct sl_transport_rma_op *ops,
                               uint32_t count);

/* For transport implementations */

/* Checks an operation against its token. Errors: INVALID, REFUSED. Pure; any thread. */
int sl_transport_rma_check(const struct sl_transport_rma_op *op);

void sl_transport_rma_report_added(struct sl_transport *transport, uint64_t key,
                                   const struct sl_transport_rma_token *token, int err);
void sl_transport_rma_report_removed(struct sl_transport *transport, uint64_t key, int err);
/* OPEN only. */
void sl_transport_rma_report_completed(struct sl_conn *conn, void *cookie, int err);

#endif
