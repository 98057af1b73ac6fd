#include "tcp.h"

int main(void)
{
    return tcp_run("tcp polling", "127.0.0.1:0", true, NULL);
}
