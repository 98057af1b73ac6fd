#include "tcp.h"

int main(void)
{
    return tcp_run("tcp ::1", "[::1]:0", false, NULL);
}
