#include "tcp.h"

int main(void)
{
    return tcp_run("tcp localhost", "tcp://localhost:0", false, NULL);
}
