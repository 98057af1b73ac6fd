/* Messages to a service manager, on real sockets. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/err.h"
#include "core/notify.h"
#include "tests/support/unit.h"

#define VARIABLE "NOTIFY_SOCKET"

/* A socket at the address, which the variable names; "@": abstract. */
static int service_manager(const char *address)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const size_t length = strlen(address);
    assert_true(length < sizeof at.sun_path);
    memcpy(at.sun_path, address, length);
    at.sun_path[0] = address[0] == '@' ? '\0' : address[0];
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)),
                     0);
    assert_int_equal(setenv(VARIABLE, address, 1), 0);
    return fd;
}

static void expect(int fd, const char *lines)
{
    char got[1024];
    const ssize_t bytes = recv(fd, got, sizeof got, 0);
    assert_int_equal(bytes, strlen(lines));
    assert_memory_equal(got, lines, strlen(lines));
}

static void check_at(const char *address)
{
    const int fd = service_manager(address);
    assert_int_equal(sl_notify_send("READY=1\nSTATUS=serves: %s", "shards 0-1"), 0);
    expect(fd, "READY=1\nSTATUS=serves: shards 0-1");
    assert_int_equal(sl_notify_send("STOPPING=1"), 0);
    expect(fd, "STOPPING=1");
    (void)close(fd);
}

SL_CASE(notify_send__to_a_path)
{
    char folder[] = "/tmp/starling-notify-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    check_at(path);
    assert_int_equal(sl_notify_send("READY=1"), SL_ERR_REFUSED); /* nobody has it open any more */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(sl_notify_send("READY=1"), SL_ERR_NOT_FOUND);
    assert_int_equal(rmdir(folder), 0);
}

SL_CASE(notify_send__to_an_abstract_name)
{
    char name[64];
    (void)snprintf(name, sizeof name, "@starling-notify-%d", (int)getpid());
    check_at(name);
    assert_int_equal(sl_notify_send("READY=1"), SL_ERR_REFUSED);
}

SL_CASE(notify_send__without_a_service_manager)
{
    assert_int_equal(unsetenv(VARIABLE), 0);
    assert_int_equal(sl_notify_send("READY=1"), 0);
    assert_int_equal(setenv(VARIABLE, "", 1), 0);
    assert_int_equal(sl_notify_send("READY=1"), 0);
}

SL_CASE(notify_send__refuses_other_addresses)
{
    char longer[sizeof((struct sockaddr_un *)0)->sun_path + 1];
    memset(longer, 'x', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    const char *const wrong[] = {"relative/path", "@", "/", "vsock:2:1234", longer};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(setenv(VARIABLE, wrong[i], 1), 0);
        assert_int_equal(sl_notify_send("READY=1"), SL_ERR_INVALID);
    }
}

SL_CASE(notify_send__cuts_what_is_too_long)
{
    char name[64], text[1024], sent[512];
    (void)snprintf(name, sizeof name, "@starling-notify-%d", (int)getpid());
    memset(text, 's', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    const int fd = service_manager(name);
    assert_int_equal(sl_notify_send("%s", text), 0);
    memset(sent, 's', sizeof sent - 1);
    sent[sizeof sent - 1] = '\0';
    expect(fd, sent);
    (void)close(fd);
}
