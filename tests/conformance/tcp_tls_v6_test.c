#include "tcp_tls.h"

int main(void)
{
    return tcp_tls_run("tcp with TLS, ::1, polling", "[::1]:0", true);
}
