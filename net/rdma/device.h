/* What the reactors of a process share of a device: librdmacm opens it once for all, so that each
 * may read an asynchronous event that concerns another's queue pair. Who reads one passes it to the
 * rail that it is for, and wakes its reactor. Any thread; takes a lock; events are rare. */
#ifndef SL_NET_RDMA_DEVICE_H
#define SL_NET_RDMA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct sl_rdma_device;
struct sl_rdma_nic;

struct sl_rdma_device_event {
    enum ibv_event_type type;
    uint32_t queue_pair; /* its number, for what concerns one */
};

/* One reactor's share. */
struct sl_rdma_member {
    struct sl_rdma_member *next;
    struct sl_rdma_nic *nic; /* cq_context of its completion queue, srq_context too */
    struct sl_rdma_device_event *events;
    uint32_t count, capacity;
    int wake_fd; /* readable while there are events; -1: not a member */
    struct sl_rdma_device *device;
};

#define SL_RDMA_NO_IWARP "iWARP is not supported: use RoCE mode or TCP"

static inline bool sl_rdma_device_is_iwarp(const struct ibv_device *device)
{
    return device->transport_type == IBV_TRANSPORT_IWARP;
}

/* So that to ask whether there is an event never waits. Errors: IO; errno says why. */
int sl_rdma_make_non_blocking(int fd);

/* *is_first: no other reactor of this process uses the device. Errors: NO_MEMORY, IO. */
int sl_rdma_device_join(struct sl_rdma_nic *nic, struct sl_rdma_member *member, bool *is_first);

/* What the rail had open is closed. The last who leaves a device that was removed also closes, in
 * the kernel, what librdmacm has open of it: Soft-RoCE is not gone before, and so long nobody can
 * add it again. */
void sl_rdma_device_leave(struct sl_rdma_member *member);

/* The device was removed: all members are told, by IBV_EVENT_DEVICE_FATAL. */
void sl_rdma_device_remove(struct sl_rdma_member *member);

/* It is still there, as far as can be seen from outside: for who has nothing on it that would be
 * told of its removal. */
bool sl_rdma_device_is_there(const struct sl_rdma_member *member);

/* Reads what the device has to tell, for all members, and takes the oldest event of this one's;
 * false: there is none. */
bool sl_rdma_device_next(struct sl_rdma_member *member, struct sl_rdma_device_event *out);

#endif
