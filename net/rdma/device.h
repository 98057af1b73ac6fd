/* Shares one device among the reactors of a process. librdmacm opens the device once, so any
 * reactor may read an asynchronous event of another reactor's queue pair; it passes the event on
 * and wakes that reactor. Any thread; takes a lock; events are rare. */
#ifndef SL_NET_RDMA_DEVICE_H
#define SL_NET_RDMA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct sl_rdma_device;
struct sl_rdma_nic;

struct sl_rdma_device_event {
    enum ibv_event_type type;
    uint32_t queue_pair; /* number of the queue pair, if the event concerns one */
};

/* The share of one reactor. */
struct sl_rdma_member {
    struct sl_rdma_member *next;
    struct sl_rdma_nic *nic; /* cq_context and srq_context of its queues */
    struct sl_rdma_device_event *events;
    uint32_t count, capacity;
    int wake_fd; /* readable while events are queued; -1: not a member */
    struct sl_rdma_device *device;
};

#define SL_RDMA_NO_IWARP "iWARP is not supported: use RoCE mode or TCP"

static inline bool sl_rdma_device_is_iwarp(const struct ibv_device *device)
{
    return device->transport_type == IBV_TRANSPORT_IWARP;
}

/* Errors: IO; see errno. */
int sl_rdma_make_non_blocking(int fd);

/* *is_first: no other reactor uses the device. Errors: NO_MEMORY, IO. */
int sl_rdma_device_join(struct sl_rdma_nic *nic, struct sl_rdma_member *member, bool *is_first);

/* The NIC is closed. The last member of a removed device also closes the descriptors that
 * librdmacm keeps open: until then Soft-RoCE's removal waits, and the device cannot be added
 * again. */
void sl_rdma_device_leave(struct sl_rdma_member *member);

/* The device was removed: queues IBV_EVENT_DEVICE_FATAL for all members. */
void sl_rdma_device_remove(struct sl_rdma_member *member);

/* Whether the device still has its entry in sysfs: a member without connections or listeners
 * gets no event of its removal. */
bool sl_rdma_device_is_there(const struct sl_rdma_member *member);

/* Reads events of the device for all members, and takes this member's oldest. False: none. */
bool sl_rdma_device_next(struct sl_rdma_member *member, struct sl_rdma_device_event *out);

#endif
