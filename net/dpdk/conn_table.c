#include "net/dpdk/conn_table.h"

#include "net/dpdk/cookie.h"

uint64_t sl_dpdk_conn_table_random(struct sl_dpdk *dpdk)
{
    dpdk->ids.random_count++;
    return sl_dpdk_cookie_hash(dpdk->ids.secret, &dpdk->ids.random_count,
                               sizeof dpdk->ids.random_count);
}

uint64_t sl_dpdk_conn_table_id(const struct sl_dpdk *dpdk, uint64_t random)
{
    const uint64_t tail = random >> SL_DPDK_ID_SHIFT;
    return (tail != 0 ? tail : 1) << SL_DPDK_ID_SHIFT | (uint64_t)dpdk->ids.boot_epoch << 8 |
           sl_reactor_index(dpdk->base.reactor);
}

static struct sl_dpdk_conn **dpdk_conn_table_bucket_of(struct sl_dpdk *dpdk, uint64_t id)
{
    return &dpdk->by_id[(id >> SL_DPDK_ID_SHIFT) % SL_DPDK_BUCKETS];
}

struct sl_dpdk_conn *sl_dpdk_conn_table_find(const struct sl_dpdk *dpdk, uint64_t id)
{
    struct sl_dpdk_conn *conn = dpdk->by_id[(id >> SL_DPDK_ID_SHIFT) % SL_DPDK_BUCKETS];
    while (conn != NULL && conn->id != id) {
        conn = conn->next;
    }
    return conn;
}

void sl_dpdk_conn_table_add(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk *dpdk = conn->dpdk;
    struct sl_dpdk_conn **bucket = dpdk_conn_table_bucket_of(dpdk, conn->id);
    conn->next = *bucket;
    *bucket = conn;
    sl_liveness_add(&dpdk->liveness, &conn->alive);
    sl_cell_add(&dpdk->base.cells->connections, 1);
}

void sl_dpdk_conn_table_remove(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk *dpdk = conn->dpdk;
    struct sl_dpdk_conn **at = dpdk_conn_table_bucket_of(dpdk, conn->id);
    while (*at != conn) {
        at = &(*at)->next;
    }
    *at = conn->next;
    sl_liveness_remove(&dpdk->liveness, &conn->alive);
    sl_list_remove(&conn->dirty);
    sl_list_remove(&conn->ready);
    sl_cell_subtract(&dpdk->base.cells->connections, 1);
}
