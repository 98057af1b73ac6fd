#include "rdma_table.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define MADE_MAX 1024

struct rdma_table_faults rdma_table_faults;

static struct sl_rdma_library table;
static const struct sl_rdma_library *real;
static struct ibv_context_ops posts; /* the device's own */

/* Every queue pair that lives, in the order of making. */
static pthread_mutex_t made_lock = PTHREAD_MUTEX_INITIALIZER;
static struct made {
    pthread_t thread;
    struct ibv_qp *qp;
} made[MADE_MAX];
static uint32_t made_count;

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
    if (rdma_table_faults.no_memory) {
        errno = ENOMEM;
        return NULL;
    }
    return real->reg_mr(pd, at, bytes, access);
}

static struct ibv_cq *create_cq(struct ibv_context *context, int entries, void *user,
                                struct ibv_comp_channel *channel, int vector)
{
    if (rdma_table_faults.no_completions) {
        errno = ENOMEM;
        return NULL;
    }
    return real->create_cq(context, entries, user, channel, vector);
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    int error = real->query_device(context, attr);
    const int most = (int)rdma_table_faults.most_completions;
    if (error == 0 && most > 0 && attr->max_cqe > most) {
        attr->max_cqe = most;
    }
    if (rdma_table_faults.no_shared_queue) {
        attr->max_srq = 0;
    }
    return error;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    if (qp->qp_num == rdma_table_faults.failing_queue_pair) {
        *bad = wr;
        return EIO;
    }
    return posts.post_send(qp, wr, bad);
}

static bool receive_fails(void)
{
    return rdma_table_faults.failing_receives > 0 && rdma_table_faults.failing_receives-- > 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    if (receive_fails()) {
        *bad = wr;
        return ENOMEM;
    }
    return posts.post_srq_recv(srq, wr, bad);
}

static void hook_posts(struct ibv_context *verbs)
{
    if (verbs->ops.post_send != post_send) {
        posts = verbs->ops;
        verbs->ops.post_send = post_send;
        verbs->ops.post_srq_recv = post_srq_recv;
    }
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    if (rdma_table_faults.no_queue_pair) {
        errno = ENOMEM;
        return -1;
    }
    int result = real->create_qp(id, pd, attr);
    if (result == 0) {
        pthread_mutex_lock(&made_lock);
        hook_posts(id->verbs);
        assert_true(made_count < MADE_MAX);
        made[made_count++] = (struct made){.thread = pthread_self(), .qp = id->qp};
        pthread_mutex_unlock(&made_lock);
    }
    return result;
}

static void destroy_qp(struct rdma_cm_id *id)
{
    pthread_mutex_lock(&made_lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < made_count; i++) {
        if (made[i].qp != id->qp) {
            made[kept++] = made[i];
        }
    }
    made_count = kept;
    pthread_mutex_unlock(&made_lock);
    real->destroy_qp(id);
}

static void run_find(struct node *node, void *ctx)
{
    uint32_t *number = ctx;
    pthread_mutex_lock(&made_lock);
    for (uint32_t i = 0; i < made_count; i++) {
        *number = pthread_equal(made[i].thread, pthread_self()) ? made[i].qp->qp_num : *number;
    }
    pthread_mutex_unlock(&made_lock);
}

uint32_t rdma_table_queue_pair_of(struct node *node)
{
    uint32_t number = 0;
    node_run(node, run_find, &number);
    return number;
}

/* On the node's reactor, so that it does not end meanwhile. */
static void run_break(struct node *node, void *ctx)
{
    const uint32_t number = *(uint32_t *)ctx;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    pthread_mutex_lock(&made_lock);
    for (uint32_t i = 0; i < made_count; i++) {
        if (made[i].qp->qp_num == number) {
            assert_int_equal(real->modify_qp(made[i].qp, &attr, IBV_QP_STATE), 0);
        }
    }
    pthread_mutex_unlock(&made_lock);
}

void rdma_table_break(struct node *node, uint32_t number)
{
    node_run(node, run_break, &number);
}

void *rdma_table_get(void)
{
    const char *why;
    real = sl_rdma_library_get(&why);
    assert_non_null(real);
    table = *real;
    table.reg_mr = reg_mr;
    table.create_cq = create_cq;
    table.query_device = query_device;
    table.create_qp = create_qp;
    table.destroy_qp = destroy_qp;
    rdma_table_faults.no_memory = rdma_table_faults.no_shared_queue = false;
    rdma_table_faults.no_queue_pair = rdma_table_faults.no_completions = false;
    rdma_table_faults.failing_queue_pair = 0;
    rdma_table_faults.failing_receives = 0;
    rdma_table_faults.most_completions = 0;
    return &table;
}
