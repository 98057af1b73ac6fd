/* As on a kernel before 6.0: every receive and every accept is armed again. */
#include "tcp.h"

#include "reactor/ring.h"

static void cripple(struct sl_reactor *reactor)
{
    sl_reactor_ring(reactor)->multishot_recv = false;
}

int main(void)
{
    return tcp_run("tcp single shot", "127.0.0.1:0", false, cripple);
}
