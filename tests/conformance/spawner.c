#include "spawner.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/hash.h"

#define IN_FLIGHT_MAX   60
#define ORDER_BYTES_MAX 1024

static int spawner_fd;
static pid_t spawner_pid;
static size_t bytes_of_order;

/* A child that only stops would keep the test's output open, so all children are killed when their
 * parent ends. */
_Noreturn static void spawn(int fd, void (*live)(const void *order))
{
    _Alignas(max_align_t) uint8_t order[ORDER_BYTES_MAX];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN);
    while (read(fd, order, bytes_of_order) == (ssize_t)bytes_of_order) {
        pid_t pid = fork();
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(fd);
            live(order);
        }
        if (write(fd, &pid, sizeof pid) != (ssize_t)sizeof pid) {
            break;
        }
    }
    _exit(0);
}

bool spawner_open(size_t order_bytes, void (*live)(const void *order))
{
    int ends[2];
    bytes_of_order = order_bytes;
    if (order_bytes > ORDER_BYTES_MAX ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    spawner_pid = fork();
    if (spawner_pid == 0) {
        close(ends[0]);
        spawn(ends[1], live);
    }
    close(ends[1]);
    spawner_fd = ends[0];
    return spawner_pid > 0;
}

void spawner_close(void)
{
    close(spawner_fd);
    waitpid(spawner_pid, NULL, 0);
}

pid_t spawner_fork(const void *order)
{
    pid_t pid = -1;
    assert_int_equal(write(spawner_fd, order, bytes_of_order), bytes_of_order);
    assert_int_equal(read(spawner_fd, &pid, sizeof pid), sizeof pid);
    assert_true(pid > 0);
    return pid;
}

struct peer *spawner_connect(struct node *node, const struct sl_endpoint *endpoint)
{
    for (;;) {
        struct peer *peer = peer_connect(node, endpoint);
        WAIT_UNTIL(peer->open || peer->closed != 0);
        if (peer->open) {
            return peer;
        }
        fprintf(stderr, "could not connect: %s; again\n", sl_err_name(peer->close_err));
    }
}

_Noreturn void spawner_send(struct peer *peer, uint64_t seed, uint32_t long_bytes)
{
    for (uint32_t made = 16;; made += 16) {
        uint32_t sizes[16];
        for (uint32_t i = 0; i < 16; i++) {
            uint64_t random = sl_hash_random(&seed);
            sizes[i] = (uint32_t)(random >> 8) % (random % 4 == 0 ? long_bytes : 300);
        }
        peer_send_from_test(peer, sizes, 16);
        WAIT_UNTIL(made - peer->received < IN_FLIGHT_MAX);
    }
}
