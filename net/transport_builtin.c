#include <stddef.h>

#include "net/shm/shm.h"
#include "net/tcp/tcp.h"
#include "net/transport.h"

const struct sl_transport_ops *sl_transport_find(enum sl_endpoint_scheme scheme)
{
    switch (scheme) {
    case SL_ENDPOINT_TCP:
        return &sl_tcp_ops;
    case SL_ENDPOINT_SHM:
        return &sl_shm_ops;
    case SL_ENDPOINT_RDMA:
    case SL_ENDPOINT_DPDK:
        return NULL;
    }
    return NULL;
}

const char *sl_transport_missing(enum sl_endpoint_scheme scheme)
{
    return sl_transport_find(scheme) == NULL ? "this program is built without it" : NULL;
}
