#include "tcp.h"

int main(void)
{
    return tcp_run("tcp 127.0.0.1", "127.0.0.1:0", false, NULL);
}
