#include "net/rdma/send_batch.h"

#include <string.h>

#include "net/rdma/conn_table.h"
#include "net/rdma/end.h"

static uint32_t outstanding(const struct sl_rdma_send_batch *batch)
{
    const struct sl_rdma_link *link = &batch->conn->link;
    return link->sends_posted - link->sends_completed + batch->count;
}

bool sl_rdma_send_batch_reserve(struct sl_rdma_send_batch *batch, uint32_t requests, uint32_t sges)
{
    sl_assert(requests <= SL_RDMA_SEND_BATCH);
    sl_assert(sges <= SL_RDMA_SEND_BATCH_SGES);
    if (outstanding(batch) + requests > SL_RDMA_SENDS) {
        return false;
    }
    if (batch->count + requests > SL_RDMA_SEND_BATCH ||
        batch->sge_count + sges > SL_RDMA_SEND_BATCH_SGES) {
        return sl_rdma_send_batch_post(batch);
    }
    return true;
}

struct ibv_send_wr *sl_rdma_send_batch_add(struct sl_rdma_send_batch *batch, uint32_t kind,
                                           enum ibv_wr_opcode opcode)
{
    sl_assert(batch->count < SL_RDMA_SEND_BATCH);
    struct ibv_send_wr *request = &batch->requests[batch->count++];
    uint32_t number = sl_rdma_send_batch_number(batch);
    memset(request, 0, sizeof *request);
    request->wr_id = sl_rdma_wr_id(batch->conn, kind, number);
    request->sg_list = &batch->sges[batch->sge_count];
    request->opcode = opcode;
    request->send_flags = number % SL_RDMA_SIGNAL_EVERY == 0 ? IBV_SEND_SIGNALED : 0;
    return request;
}

void sl_rdma_send_batch_add_piece(struct sl_rdma_send_batch *batch, const void *at, uint32_t bytes,
                                  uint32_t key)
{
    sl_assert(batch->sge_count < SL_RDMA_SEND_BATCH_SGES);
    batch->sges[batch->sge_count++] =
        (struct ibv_sge){.addr = (uintptr_t)at, .length = bytes, .lkey = key};
    batch->requests[batch->count - 1].num_sge++;
}

void sl_rdma_send_batch_keep_block(struct sl_rdma_send_batch *batch, struct sl_rdma_block *block)
{
    struct sl_rdma_send *send = batch->conn->send;
    sl_assert(send->flight_tail - send->flight_head < SL_RDMA_SENDS);
    send->flights[send->flight_tail++ % SL_RDMA_SENDS] =
        (struct sl_rdma_flight){.number = sl_rdma_send_batch_number(batch), .block = block};
    batch->wants_signal = true;
}

/* Signals every SL_RDMA_SIGNAL_EVERYth request, so that the send queue cannot fill with
 * unsignalled ones, and the last one if something waits for it. */
static void link_requests(struct sl_rdma_send_batch *batch)
{
    struct sl_rdma_send *send = batch->conn->send;
    uint32_t posted = batch->conn->link.sends_posted;
    struct ibv_send_wr *last = &batch->requests[batch->count - 1];
    if (batch->wants_signal) {
        last->send_flags |= IBV_SEND_SIGNALED;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        struct ibv_send_wr *request = &batch->requests[i];
        request->next = request == last ? NULL : request + 1;
        if ((request->send_flags & IBV_SEND_SIGNALED) != 0) {
            send->signalled = posted + i + 1;
        }
    }
}

bool sl_rdma_send_batch_post(struct sl_rdma_send_batch *batch)
{
    struct sl_rdma_conn *conn = batch->conn;
    if (batch->count == 0) {
        return true;
    }
    link_requests(batch);
    struct ibv_send_wr *bad;
    int error = ibv_post_send(conn->link.id->qp, batch->requests, &bad);
    conn->link.sends_posted += batch->count;
    sl_cell_add(&conn->rdma->base.cells->send_calls, 1);
    sl_rdma_send_batch_begin(batch, conn);
    if (error != 0) {
        sl_transport_warn(&conn->rdma->base, "%s: closed, since the device takes no work: %s",
                          conn->base.peer, strerror(error));
        sl_rdma_conn_end(conn, SL_ERR_IO);
        return false;
    }
    return true;
}
