#include "net/transport_rma.h"

#include "core/assert.h"
#include "core/shared.h"

int sl_transport_rma_open(struct sl_transport *transport,
                          const struct sl_transport_rma_events *events, void *ctx)
{
    sl_reactor_assert_owner(transport->reactor);
    sl_assert(events->region_added != NULL);
    sl_assert(events->region_removed != NULL);
    sl_assert(events->completed != NULL);
    if (transport->ops->rma == NULL) {
        return SL_ERR_UNSUPPORTED;
    }
    transport->rma_events = events;
    transport->rma_ctx = ctx;
    return 0;
}

int sl_transport_rma_region_add(struct sl_transport *transport, uint64_t key, void *base,
                                size_t bytes, unsigned access)
{
    const unsigned both = SL_TRANSPORT_RMA_PEERS_READ | SL_TRANSPORT_RMA_PEERS_WRITE;
    sl_reactor_assert_owner(transport->reactor);
    sl_assert(transport->rma_events != NULL);
    sl_assert(base != NULL);
    sl_assert(bytes > 0);
    sl_assert((access & ~both) == 0);
    if (access == SL_TRANSPORT_RMA_PEERS_WRITE) {
        return SL_ERR_UNSUPPORTED;
    }
    const int err = transport->ops->rma->region_add(transport, key, base, bytes, access);
    if (err == 0) {
        sl_shared_pin(base, bytes); /* peers and devices keep these pages */
    }
    return err;
}

void sl_transport_rma_region_remove(struct sl_transport *transport, uint64_t key)
{
    sl_reactor_assert_owner(transport->reactor);
    transport->ops->rma->region_remove(transport, key);
}

int sl_transport_rma_admit(struct sl_conn *conn)
{
    sl_reactor_assert_owner(conn->transport->reactor);
    sl_assert(conn->transport->rma_events != NULL);
    sl_assert(conn->state == SL_CONN_OPEN || conn->state == SL_CONN_CLOSING);
    return conn->transport->ops->rma->admit(conn);
}

uint32_t sl_transport_rma_post(struct sl_conn *conn, const struct sl_transport_rma_op *ops,
                               uint32_t count)
{
    sl_reactor_assert_owner(conn->transport->reactor);
    sl_assert(conn->transport->rma_events != NULL);
    sl_assert(conn->state == SL_CONN_OPEN || conn->state == SL_CONN_CLOSING);
    for (uint32_t i = 0; i < count; i++) {
        sl_assert(ops[i].kind == SL_TRANSPORT_RMA_FLUSH ||
                  (ops[i].bytes > 0 && ops[i].bytes <= SL_TRANSPORT_RMA_BYTES_MAX));
    }
    return conn->state == SL_CONN_OPEN ? conn->transport->ops->rma->post(conn, ops, count) : 0;
}

int sl_transport_rma_check(const struct sl_transport_rma_op *op)
{
    const struct sl_transport_rma_token *token = op->token;
    const uint32_t needed = op->kind == SL_TRANSPORT_RMA_WRITE ? SL_TRANSPORT_RMA_PEERS_WRITE
                                                               : SL_TRANSPORT_RMA_PEERS_READ;
    if ((token->access & needed) == 0) {
        return SL_ERR_REFUSED;
    }
    if (op->kind == SL_TRANSPORT_RMA_FLUSH) {
        return token->bytes > 0 ? 0 : SL_ERR_INVALID;
    }
    const bool fits = op->offset <= token->bytes && op->bytes <= token->bytes - op->offset;
    return fits ? 0 : SL_ERR_INVALID;
}

/* Upcalls */

static bool transport_rma_enter(struct sl_transport *transport)
{
    const bool before = transport->in_upcall;
    transport->in_upcall = true;
    return before;
}

void sl_transport_rma_report_added(struct sl_transport *transport, uint64_t key,
                                   const struct sl_transport_rma_token *token, int err)
{
    const bool before = transport_rma_enter(transport);
    transport->rma_events->region_added(transport->rma_ctx, key, token, err);
    transport->in_upcall = before;
}

void sl_transport_rma_report_removed(struct sl_transport *transport, uint64_t key, int err)
{
    const bool before = transport_rma_enter(transport);
    transport->rma_events->region_removed(transport->rma_ctx, key, err);
    transport->in_upcall = before;
}

void sl_transport_rma_report_completed(struct sl_conn *conn, void *cookie, int err)
{
    struct sl_transport *transport = conn->transport;
    sl_assert(conn->state == SL_CONN_OPEN);
    const bool before = transport_rma_enter(transport);
    transport->rma_events->completed(transport->rma_ctx, conn, cookie, err);
    transport->in_upcall = before;
}
