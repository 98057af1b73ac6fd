#include "net/rdma/wake.h"

#include <sys/epoll.h>

#include "net/base/liveness.h"

#define RETRY_NS (10 * SL_CLOCK_NS_PER_MS)

int sl_rdma_wake_watch(struct sl_rdma *rdma, int fd, struct sl_rdma_nic *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(rdma->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : SL_ERR_NO_MEMORY;
}

void sl_rdma_wake_unwatch(struct sl_rdma *rdma, int fd)
{
    (void)epoll_ctl(rdma->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void sl_rdma_wake_sweep(struct sl_rdma *rdma)
{
    if (!sl_timer_armed(&rdma->sweep.timer)) {
        sl_reactor_arm(rdma->base.reactor, &rdma->sweep.timer,
                       sl_transport_patience_ns(&rdma->base) / SL_LIVENESS_ROUNDS);
    }
}

void sl_rdma_wake_retry(struct sl_rdma *rdma)
{
    if (!sl_timer_armed(&rdma->retry.timer)) {
        sl_reactor_arm(rdma->base.reactor, &rdma->retry.timer, RETRY_NS);
    }
}
