#include "net/rdma/device_list.h"
#include "net/rdma/rdma.h"

/* Replaces this folder in builds without RDMA. */
const struct sl_transport_ops *sl_rdma_find(const char **why)
{
    *why =
        "this program was built without it: install libibverbs-dev and librdmacm-dev and build it "
        "again";
    return NULL;
}

uint32_t sl_rdma_device_list(char names[][SL_RDMA_DEVICE_NAME_BYTES], uint32_t most)
{
    return 0;
}
