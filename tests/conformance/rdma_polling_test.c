#include "rdma.h"

int main(void)
{
    return rdma_run("rdma polling", "RDMA_IP", true, NULL);
}
