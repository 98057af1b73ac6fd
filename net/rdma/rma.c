#include "net/rdma/rma.h"

#include <stdlib.h>
#include <string.h>

#include "net/rdma/access.h"
#include "net/rdma/conn_table.h"
#include "net/rdma/end.h"
#include "net/rdma/rma_memory.h"

#define QUEUE       SL_LIMIT_TRANSFER_SLICES /* operations of one connection; a power of two */
#define SENDS       (SL_RDMA_SENDS / 2)      /* of them at the device: the rest is for packets */
#define FLUSH_BYTES 8U

/* Regions */

/* The first NIC that is there; it is opened if the options name one device, or none. NULL: none. */
static struct sl_rdma_nic *open_nic(struct sl_rdma *rdma)
{
    struct sl_rdma_nic *nic = rdma->nics;
    int count = 0;
    struct ibv_context **devices = nic == NULL ? rdma->library->get_devices(&count) : NULL;
    for (int i = 0; i < count && nic == NULL; i++) {
        const char *name = rdma->library->get_device_name(devices[i]->device);
        const char *wanted = rdma->options.devices;
        if ((wanted[0] == '\0' || strcmp(wanted, name) == 0) &&
            sl_rdma_nic_get(rdma, devices[i], &nic) != 0) {
            nic = NULL;
        }
    }
    if (devices != NULL) {
        rdma->library->free_devices(devices);
    }
    while (nic != NULL && nic->gone) {
        nic = nic->next;
    }
    return nic;
}

static int rdma_rma_region_add(struct sl_transport *transport, uint64_t key, void *base,
                               size_t bytes, unsigned access)
{
    struct sl_rdma *rdma = (struct sl_rdma *)transport;
    return sl_rdma_rma_memory_add(rdma, open_nic(rdma), key, base, bytes, access);
}

static void rdma_rma_region_remove(struct sl_transport *transport, uint64_t key)
{
    sl_rdma_rma_memory_remove((struct sl_rdma *)transport, key);
}

/* Operations of a connection */

struct op {
    enum ibv_wr_opcode opcode;
    uint32_t bytes;
    uint8_t *local; /* NULL: the flush block */
    uint32_t local_key, remote_key;
    uint64_t remote;
    void *cookie;
    uint32_t due; /* value of sends_completed at which it is over */
    int err;      /* it is not sent */
};

struct sl_rdma_operations {
    uint32_t head, next, tail;         /* of ops: first not reported, first not sent, end */
    struct sl_rdma_block *flush_block; /* where FLUSH reads to; NULL: none yet */
    struct op queue[QUEUE];
};

static int rdma_rma_admit(struct sl_conn *base)
{
    struct sl_rdma_conn *conn = (struct sl_rdma_conn *)base;
    if (!conn->link.is_shut) {
        return 0;
    }
    return sl_rdma_may_post(conn) && sl_rdma_access_open(conn) ? 0 : SL_ERR_IO;
}

static struct op op_of(const struct sl_rdma_conn *conn, const struct sl_transport_rma_op *op)
{
    const bool flushes = op->kind == SL_TRANSPORT_RMA_FLUSH;
    const struct sl_transport_rma_token *token = op->token;
    struct op out = {.opcode =
                         op->kind == SL_TRANSPORT_RMA_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                     .bytes = op->bytes,
                     .local = op->local,
                     .remote = token->name + op->offset,
                     .remote_key = token->remote_key,
                     .cookie = op->cookie,
                     .err = sl_transport_rma_check(op)};
    if (flushes) {
        out.bytes = token->bytes < FLUSH_BYTES ? (uint32_t)token->bytes : FLUSH_BYTES;
        out.remote = token->name;
        out.local = NULL;
    } else if (out.err == 0 &&
               !sl_rdma_rma_memory_key(conn->nic, op->local, op->bytes, &out.local_key)) {
        out.err = SL_ERR_INVALID;
    }
    return out;
}

static uint32_t rdma_rma_post(struct sl_conn *base, const struct sl_transport_rma_op *ops,
                              uint32_t count)
{
    struct sl_rdma_conn *conn = (struct sl_rdma_conn *)base;
    if (conn->operations == NULL) {
        conn->operations = calloc(1, sizeof *conn->operations);
    }
    struct sl_rdma_operations *operations = conn->operations;
    if (operations == NULL) {
        sl_rdma_conn_refuse(conn, "there is no memory for one-sided operations", SL_ERR_NO_MEMORY);
        return 0;
    }
    uint32_t taken = 0;
    while (taken < count && operations->tail - operations->head < QUEUE) {
        operations->queue[operations->tail++ % QUEUE] = op_of(conn, &ops[taken++]);
    }
    sl_rdma_mark_dirty(conn);
    return taken;
}

/* False: retry later. */
static bool name_flush_block(struct sl_rdma_conn *conn, struct op *op)
{
    struct sl_rdma_operations *operations = conn->operations;
    if (operations->flush_block == NULL) {
        operations->flush_block = sl_rdma_pool_get(conn->nic, SL_RDMA_BLOCK_STAGING);
    }
    if (operations->flush_block == NULL) {
        conn->send->wait_buffer = true;
        return false;
    }
    op->local = operations->flush_block->at;
    op->local_key = operations->flush_block->key;
    return true;
}

void sl_rdma_rma_pack(struct sl_rdma_send_batch *batch)
{
    struct sl_rdma_conn *conn = batch->conn;
    struct sl_rdma_operations *operations = conn->operations;
    if (operations == NULL || conn->base.state != SL_CONN_OPEN) {
        return;
    }
    for (; operations->next != operations->tail && operations->next - operations->head < SENDS;
         operations->next++) {
        struct op *op = &operations->queue[operations->next % QUEUE];
        if (op->err == 0) {
            if ((op->local == NULL && !name_flush_block(conn, op)) ||
                !sl_rdma_send_batch_reserve(batch, 1, 1)) {
                return;
            }
            struct ibv_send_wr *request =
                sl_rdma_send_batch_add(batch, SL_RDMA_WR_SEND, op->opcode);
            request->wr.rdma.remote_addr = op->remote;
            request->wr.rdma.rkey = op->remote_key;
            sl_rdma_send_batch_add_piece(batch, op->local, op->bytes, op->local_key);
            batch->wants_signal = true;
        }
        op->due = sl_rdma_send_batch_number(batch);
    }
}

bool sl_rdma_rma_is_queued(const struct sl_rdma_conn *conn)
{
    return conn->operations != NULL && conn->operations->next != conn->operations->tail;
}

bool sl_rdma_rma_has_reports(const struct sl_rdma_conn *conn)
{
    const struct sl_rdma_operations *operations = conn->operations;
    return operations != NULL && operations->head != operations->next &&
           (int32_t)(conn->link.sends_completed -
                     operations->queue[operations->head % QUEUE].due) >= 0;
}

void sl_rdma_rma_report(struct sl_rdma_conn *conn)
{
    struct sl_rdma_operations *operations = conn->operations;
    while (conn->phase == SL_RDMA_LIVE && conn->base.state == SL_CONN_OPEN &&
           sl_rdma_rma_has_reports(conn)) {
        const struct op op = operations->queue[operations->head++ % QUEUE];
        sl_transport_rma_report_completed(&conn->base, op.cookie, op.err);
        operations = conn->operations;
    }
    if (sl_rdma_rma_is_queued(conn)) {
        sl_rdma_mark_dirty(conn);
    }
}

void sl_rdma_rma_drop(struct sl_rdma_conn *conn)
{
    if (conn->operations != NULL && conn->operations->flush_block != NULL) {
        sl_rdma_pool_put(conn->operations->flush_block);
    }
    free(conn->operations);
    conn->operations = NULL;
}

const struct sl_transport_rma_ops sl_rdma_rma_ops = {.region_add = rdma_rma_region_add,
                                                     .region_remove = rdma_rma_region_remove,
                                                     .admit = rdma_rma_admit,
                                                     .post = rdma_rma_post};
