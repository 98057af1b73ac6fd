#include "shm.h"

int main(void)
{
    return shm_run("shm sleeping", false);
}
