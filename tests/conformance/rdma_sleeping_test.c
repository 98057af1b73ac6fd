#include "rdma.h"

int main(void)
{
    return rdma_run("rdma sleeping", "RDMA_IP", false, NULL);
}
