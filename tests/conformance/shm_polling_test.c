#include "shm.h"

int main(void)
{
    return shm_run("shm polling", true);
}
