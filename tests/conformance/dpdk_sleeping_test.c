#include "dpdk.h"

int main(void)
{
    return dpdk_run(&(struct dpdk_target){.name = "dpdk sleeping"});
}
