#include "net/rdma/conn_table.h"

#include <string.h>

#include "core/array.h"

#define INDEX_MAX (1U << 17) /* 17 bits of a wr_id */

/* By index */

static bool find_index(struct sl_rdma *rdma, uint32_t *out)
{
    for (uint32_t i = 0; i < rdma->conns.capacity; i++) {
        uint32_t index = (rdma->conns.count + i) % rdma->conns.capacity;
        if (rdma->conns.by_index[index] == NULL) {
            *out = index;
            return true;
        }
    }
    return false;
}

static bool grow(struct sl_rdma *rdma)
{
    const uint32_t before = rdma->conns.capacity;
    const size_t item_bytes = sizeof(struct sl_rdma_conn *);
    if (before == INDEX_MAX ||
        !sl_array_make_room(&rdma->conns.by_index, &rdma->conns.capacity, before, item_bytes)) {
        return false;
    }
    memset(rdma->conns.by_index + before, 0, (rdma->conns.capacity - before) * item_bytes);
    return true;
}

bool sl_rdma_conn_table_add(struct sl_rdma *rdma, struct sl_rdma_conn *conn)
{
    if (!find_index(rdma, &conn->index)) {
        if (!grow(rdma)) {
            return false;
        }
        (void)find_index(rdma, &conn->index);
    }
    conn->rdma = rdma;
    conn->serial = ++rdma->conns.serial;
    rdma->conns.by_index[conn->index] = conn;
    rdma->conns.count++;
    sl_cell_add(&rdma->base.cells->connections, 1);
    return true;
}

void sl_rdma_conn_table_remove(struct sl_rdma_conn *conn)
{
    struct sl_rdma *rdma = conn->rdma;
    rdma->conns.by_index[conn->index] = NULL;
    rdma->conns.count--;
    sl_cell_subtract(&rdma->base.cells->connections, 1);
    sl_list_remove(&conn->dirty);
    sl_list_remove(&conn->ready);
}

struct sl_rdma_conn *sl_rdma_conn_of(struct sl_rdma *rdma, uint64_t wr_id)
{
    uint32_t index = wr_id >> 1 & (INDEX_MAX - 1);
    struct sl_rdma_conn *conn = index < rdma->conns.capacity ? rdma->conns.by_index[index] : NULL;
    bool is_its = conn != NULL && conn->link.id != NULL &&
                  (conn->link.generation & 0xffffff) == (uint32_t)(wr_id >> 40);
    return is_its ? conn : NULL;
}

/* By queue pair */

static struct sl_rdma_conn **rdma_conn_table_bucket_of(struct sl_rdma *rdma, uint32_t queue_pair)
{
    return &rdma->conns.by_queue_pair[queue_pair % SL_RDMA_BUCKETS];
}

void sl_rdma_conn_table_add_queue_pair(struct sl_rdma_conn *conn)
{
    struct sl_rdma_conn **bucket = rdma_conn_table_bucket_of(conn->rdma, conn->link.id->qp->qp_num);
    conn->queue_pair_next = *bucket;
    *bucket = conn;
}

void sl_rdma_conn_table_remove_queue_pair(struct sl_rdma_conn *conn)
{
    struct sl_rdma_conn **at = rdma_conn_table_bucket_of(conn->rdma, conn->link.id->qp->qp_num);
    while (*at != NULL && *at != conn) {
        at = &(*at)->queue_pair_next;
    }
    if (*at != NULL) {
        *at = conn->queue_pair_next;
    }
}

struct sl_rdma_conn *sl_rdma_conn_of_queue_pair(const struct sl_rdma_nic *nic, uint32_t number)
{
    struct sl_rdma_conn *conn = *rdma_conn_table_bucket_of(nic->rdma, number);
    while (conn != NULL && (conn->link.id->qp->qp_num != number || conn->nic != nic)) {
        conn = conn->queue_pair_next;
    }
    return conn;
}
