#include <stddef.h>

#include "net/dpdk/dpdk.h"
#include "net/rdma/device_list.h"
#include "net/rdma/rdma.h"
#include "net/shm/shm.h"
#include "net/tcp/tcp.h"
#include "net/transport.h"

/* Sets *why if there is no implementation. */
static const struct sl_transport_ops *builtin_find(enum sl_endpoint_scheme scheme, const char **why)
{
    switch (scheme) {
    case SL_ENDPOINT_TCP:
        return &sl_tcp_ops;
    case SL_ENDPOINT_SHM:
        return &sl_shm_ops;
    case SL_ENDPOINT_RDMA:
        return sl_rdma_find(why);
    case SL_ENDPOINT_DPDK:
        return sl_dpdk_find(why);
    }
    *why = "this program is built without it";
    return NULL;
}

const struct sl_transport_ops *sl_builtin_find(enum sl_endpoint_scheme scheme)
{
    const char *why;
    return builtin_find(scheme, &why);
}

const char *sl_builtin_missing(enum sl_endpoint_scheme scheme)
{
    const char *why = NULL;
    if (builtin_find(scheme, &why) == NULL) {
        return why;
    }
    const bool has_device = scheme != SL_ENDPOINT_RDMA || sl_rdma_device_list(NULL, 0) != 0;
    return has_device ? NULL : "this machine has no RDMA device that libibverbs knows";
}
