#include "net/rdma/rdma.h"

/* What stands for the folder where verbs' headers were not there, or not wanted. */
const struct sl_transport_ops *sl_rdma_find(const char **why)
{
    *why = "this program was built without it (libibverbs-dev and librdmacm-dev are needed for it, "
           "and -DSTARLING_RDMA=ON)";
    return NULL;
}
