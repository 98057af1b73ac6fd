/* Remote access of peers. librdmacm connects a queue pair with remote access to all memory of
 * its protection domain that is registered for peers, and keys can be guessed. So an accepted
 * connection starts without remote access, and gets it when the upper layer welcomes the peer. */
#include "net/rdma/access.h"

#include "net/rdma/end.h"
#include "net/rdma/hello.h"

static int modify(const struct sl_rdma_conn *conn, enum ibv_qp_state state,
                  const struct rdma_conn_param *param)
{
    const struct sl_rdma_library *library = conn->rdma->library;
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask;
    if (library->init_qp_attr(conn->link.id, &attr, &mask) != 0) {
        return SL_ERR_IO;
    }
    if (state == IBV_QPS_INIT) {
        attr.qp_access_flags = 0;
    } else if (state == IBV_QPS_RTR) {
        attr.max_dest_rd_atomic = param->responder_resources;
    } else {
        attr.max_rd_atomic = param->initiator_depth;
    }
    return library->modify_qp(conn->link.id->qp, &attr, mask) == 0 ? 0 : SL_ERR_IO;
}

int sl_rdma_access_accept(struct sl_rdma_conn *conn)
{
    const struct sl_rdma_library *library = conn->rdma->library;
    struct rdma_cm_id *id = conn->link.id;
    struct sl_rdma_hello hello;
    struct rdma_conn_param param = sl_rdma_hello_param(conn, &hello);
    static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    for (uint32_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        int err = modify(conn, states[i], &param);
        if (err != 0) {
            return err;
        }
    }
    /* Hide the queue pair: with one, rdma_accept would modify it again, access included. */
    struct ibv_qp *queue_pair = id->qp;
    param.qp_num = queue_pair->qp_num;
    param.srq = queue_pair->srq != NULL;
    conn->link.is_shut = true;
    id->qp = NULL;
    int status = library->accept(id, &param);
    id->qp = queue_pair;
    return status == 0 ? 0 : SL_ERR_IO;
}

void sl_rdma_access_shut(struct sl_rdma_conn *conn)
{
    struct ibv_qp_attr attr = {.qp_access_flags = 0};
    if (conn->rdma->library->modify_qp(conn->link.id->qp, &attr, IBV_QP_ACCESS_FLAGS) != 0) {
        sl_rdma_conn_refuse(conn, "its queue pair cannot be kept from memory", SL_ERR_IO);
        return;
    }
    conn->link.is_shut = true;
}

bool sl_rdma_access_open(struct sl_rdma_conn *conn)
{
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
    const int error = conn->rdma->library->modify_qp(conn->link.id->qp, &attr, IBV_QP_ACCESS_FLAGS);
    if (error != 0) {
        sl_rdma_conn_refuse(conn, "its queue pair cannot give it access to memory", SL_ERR_IO);
        return false;
    }
    conn->link.is_shut = false;
    return true;
}
