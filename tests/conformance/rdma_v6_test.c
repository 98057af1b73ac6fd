#include "rdma.h"

int main(void)
{
    return rdma_run("rdma v6", "RDMA_IP6", false, "target__*");
}
