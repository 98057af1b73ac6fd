/* The whole suite, with TLS on every connection. */
#include "tcp_tls.h"

int main(void)
{
    return tcp_tls_run("tcp with TLS", "127.0.0.1:0", false);
}
