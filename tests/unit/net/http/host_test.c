#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http/host.h"
#include "tests/support/unit.h"

struct fixture {
    int fd; /* bound to 127.0.0.3 */
};

static void set_up(struct fixture *f)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(0x7f000003)};
    f->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(f->fd, (const struct sockaddr *)&address, sizeof address), 0);
}

static void tear_down(struct fixture *f)
{
    assert_int_equal(close(f->fd), 0);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)

CASE(host_is_accepted__knows_its_names)
{
    char machine[80] = "";
    assert_int_equal(gethostname(machine, sizeof machine - 1), 0);
    static const char *const names[] = {
        "127.0.0.3", "127.0.0.3:80", "localhost", "LocalHost:9480", "ps.example", "PS.example:1",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(sl_host_is_accepted(names[i], fixture->fd, "ps.example"));
    }
    assert_true(sl_host_is_accepted(machine, fixture->fd, "ps.example"));
    assert_true(sl_host_is_accepted("[fd00::1]:80", fixture->fd, "fd00::1"));
}

CASE(host_is_accepted__refuses_others)
{
    static const char *const names[] = {
        "",
        "evil.example",
        "127.0.0.4",
        "localhost.evil.example",
        "localhost:80:80",
        "localhost:x",
        "[localhost",
        "[127.0.0.3]x",
        ":80",
        "ps.example.",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_false(sl_host_is_accepted(names[i], fixture->fd, "ps.example"));
    }
    char text[400];
    (void)snprintf(text, sizeof text, "%0399d", 1);
    assert_false(sl_host_is_accepted(text, fixture->fd, "ps.example"));
}
