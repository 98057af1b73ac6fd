/* The suite over TCP, in the ways of the table. */
#include "tcp.h"

#include <sys/socket.h>
#include <unistd.h>

#include "authority.h"
#include "core/log.h"
#include "reactor/ring.h"
#include "secure_raw.h"

/* As on a kernel before 6.0: every receive and every accept is armed again. */
static void tcp_disable_multishot(struct sl_reactor *reactor)
{
    sl_reactor_ring(reactor)->multishot_recv = false;
}

/* As on a kernel that grants no ring of buffers: buffers are provided one by one. */
static void tcp_disable_buffer_ring(struct sl_reactor *reactor)
{
    sl_reactor_ring(reactor)->provided_buffer_rings = false;
    sl_reactor_ring(reactor)->multishot_recv = false;
}

static const struct tcp_variant {
    const char *name, *endpoint;
    bool polling, has_tls;
    void (*cripple)(struct sl_reactor *reactor);
} variants[] = {
    {.name = "v4", .endpoint = "127.0.0.1:0"},
    {.name = "v6", .endpoint = "[::1]:0"},
    {.name = "name", .endpoint = "tcp://localhost:0"},
    {.name = "polling", .endpoint = "127.0.0.1:0", .polling = true},
    {.name = "single_shot", .endpoint = "127.0.0.1:0", .cripple = tcp_disable_multishot},
    {.name = "no_buffer_ring", .endpoint = "127.0.0.1:0", .cripple = tcp_disable_buffer_ring},
    {.name = "tls", .endpoint = "127.0.0.1:0", .has_tls = true},
    {.name = "tls_v6", .endpoint = "[::1]:0", .polling = true, .has_tls = true},
};

/* Whether this machine has the address. */
static bool tcp_can_listen(const char *text)
{
    struct sl_endpoint endpoint;
    struct sockaddr_storage address;
    socklen_t bytes;
    if (sl_endpoint_parse(text, &endpoint, NULL) != 0 ||
        sl_endpoint_resolve(&endpoint, true, &address, &bytes, NULL) != 0) {
        return false;
    }
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0;
    close(fd);
    return can;
}

int main(int argc, char **argv)
{
    const struct tcp_variant *variant = CONFORMANCE_VARIANT(argc, argv, variants);
    if (!tcp_can_listen(variant->endpoint)) {
        return SKIPPED;
    }
    sl_log_setup(SL_LOG_ERROR, variant->name);
    struct conformance_target target = {
        .name = variant->name,
        .ops = sl_builtin_find(SL_ENDPOINT_TCP),
        .endpoint = variant->endpoint,
        .polling = variant->polling,
        .cripple = variant->cripple,
        .connect_raw = tcp_connect_raw,
    };
    if (variant->has_tls) {
        authority_make();
        target.tls = authority_files(AUTHORITY_NODE);
        target.connect_raw = secure_raw_connect;
    }
    const int failed = conformance_run(&target);
    secure_raw_join();
    return failed == 0 ? 0 : 1;
}
