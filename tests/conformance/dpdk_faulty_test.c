#include "dpdk.h"

/* A network that does some of everything that is bad, now and then. */
int main(void)
{
    return dpdk_run(&(struct dpdk_target){
        .name = "dpdk faulty",
        .faults = "loss=0.01,reorder=0.01,duplicate=0.01,corrupt=0.01,truncate=0.01,short=0.01"});
}
