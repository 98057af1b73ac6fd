#include "free_port.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <arpa/inet.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/unit.h"

#define PORT_FIRST 3000 /* tests/integration/harness.py has the same, and says why */
#define PORT_COUNT 7000

/* A socket that stands for the port until this process ends, for all tests on this machine; or -1
 * where another has it. */
static int claim(uint16_t port)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int length =
        snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "starling-test-port-%u", port);
    const size_t bytes = offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (bind(fd, (struct sockaddr *)&address, (socklen_t)bytes) == 0) {
        return fd;
    }
    (void)close(fd);
    return -1;
}

static bool is_free(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    const bool can_bind = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    (void)close(fd);
    return can_bind;
}

uint16_t free_port(void)
{
    uint32_t start;
    assert_int_equal(getrandom(&start, sizeof start, 0), sizeof start);
    start %= PORT_COUNT;
    for (uint32_t i = 0; i < PORT_COUNT; i++) {
        const uint16_t port = (uint16_t)(PORT_FIRST + (start + i) % PORT_COUNT);
        const int fd = claim(port);
        if (fd >= 0 && is_free(port)) {
            return port;
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    fail_msg("no free port");
    return 0;
}
