#include "net/base/unix_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/support/unit.h"

static int pair[2], fds[SL_UNIX_SOCKET_FDS_MAX];
static uint32_t fd_count;
static const uint64_t packet = 0x0123456789abcdef;
static uint64_t got;

static void setup(void)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    got = 0;
}

static void teardown(void)
{
    (void)close(pair[0]);
    (void)close(pair[1]);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

static uint32_t open_descriptors(void)
{
    uint32_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count;
}

static int receive(uint32_t fds_most)
{
    return sl_unix_socket_receive(pair[1], &got, sizeof got, fds, fds_most, &fd_count);
}

CASE(unix_socket__passes_a_packet_with_descriptors)
{
    assert_int_equal(receive(0), SL_ERR_AGAIN);
    assert_int_equal(sl_unix_socket_send(pair[0], &packet, sizeof packet, pair, 2), 0);
    assert_int_equal(receive(2), 0);
    assert_true(got == packet);
    assert_int_equal(fd_count, 2);
    assert_int_not_equal(fcntl(fds[0], F_GETFD) & FD_CLOEXEC, 0);
    (void)close(fds[0]);
    (void)close(fds[1]);
    int pid;
    assert_true(sl_unix_socket_is_ours(pair[0], &pid));
    assert_int_equal(pid, getpid());
}

CASE(unix_socket__refuses_another_length)
{
    assert_int_equal(sl_unix_socket_send(pair[0], &packet, sizeof packet - 1, NULL, 0), 0);
    assert_int_equal(receive(0), SL_ERR_PROTOCOL);
    const uint64_t two[2] = {packet, packet};
    assert_int_equal(sl_unix_socket_send(pair[0], two, sizeof two, NULL, 0), 0);
    assert_int_equal(receive(0), SL_ERR_PROTOCOL);
}

CASE(unix_socket__closes_descriptors_that_nobody_wants)
{
    const int many[] = {0, 0, 0, 0};
    const uint32_t before = open_descriptors();
    for (uint32_t most = 0; most < 4; most++) {
        assert_int_equal(sl_unix_socket_send(pair[0], &packet, sizeof packet, many, 4), 0);
        assert_int_equal(receive(most), SL_ERR_PROTOCOL);
    }
    assert_int_equal(open_descriptors(), before);
}

CASE(unix_socket__tells_of_a_peer_that_ended_or_does_not_read)
{
    int err = 0;
    while (err == 0) {
        err = sl_unix_socket_send(pair[0], &packet, sizeof packet, NULL, 0);
    }
    assert_int_equal(err, SL_ERR_AGAIN);
    while (receive(0) == 0) {
    }
    (void)close(pair[0]);
    assert_int_equal(receive(0), SL_ERR_CLOSED);
    assert_int_equal(sl_unix_socket_send(pair[1], &packet, sizeof packet, NULL, 0), SL_ERR_CLOSED);
    pair[0] = -1;
}
