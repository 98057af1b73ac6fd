/* As where the kernel grants no ring of buffers: they are provided one by one. */
#include "tcp.h"

#include "reactor/ring.h"

static void cripple(struct sl_reactor *reactor)
{
    sl_reactor_ring(reactor)->provided_buffer_rings = false;
    sl_reactor_ring(reactor)->multishot_recv = false;
}

int main(void)
{
    return tcp_run("tcp without buffer rings", "127.0.0.1:0", false, cripple);
}
