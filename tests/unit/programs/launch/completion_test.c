#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "programs/launch/completion.h"
#include "programs/launch/local.h"
#include "tests/support/unit.h"

static uint16_t port_of(const struct sl_completion *report)
{
    struct sockaddr_in6 address;
    socklen_t bytes = sizeof address;
    assert_int_equal(getsockname(report->fd, (struct sockaddr *)&address, &bytes), 0);
    return ntohs(address.sin6_port);
}

static void listen_at(uint16_t port, struct sl_completion *report, uint32_t worker_count)
{
    snprintf(report->token, sizeof report->token, "12.3");
    assert_int_equal(sl_completion_listen(report, port, worker_count, NULL), 0);
    assert_int_equal(report->workers_left, worker_count);
}

static void listen_for(struct sl_completion *report, uint32_t worker_count)
{
    listen_at(0, report, worker_count);
}

/* The worker's side of that job, for a ps launcher at this port. */
static void report_to(uint16_t port, struct sl_completion *worker)
{
    char peer[32];
    snprintf(peer, sizeof peer, "127.0.0.1:%u", port);
    assert_int_equal(sl_words_append(&worker->peers, peer), 0);
    snprintf(worker->token, sizeof worker->token, "12.3");
}

/* Nobody listens there, and no socket is given it by the kernel. */
static uint16_t unused_port(void)
{
    uint16_t port;
    assert_int_equal(sl_local_free_ports("127.0.0.1", 1, &port, NULL), 0);
    return port;
}

/* Sends from a socket of its own, and waits until it has arrived. */
static int send_text(const struct sl_completion *report, const char *text, size_t bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(port_of(report))};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(send(fd, text, bytes, 0), bytes);
    struct pollfd polled = {.fd = report->fd, .events = POLLIN};
    assert_int_equal(poll(&polled, 1, 10000), 1);
    return fd;
}

SL_CASE(report_take__each_worker_once_and_answered)
{
    struct sl_completion report = SL_COMPLETION_NONE;
    listen_for(&report, 4);
    const char text[] = "starling-done 12.3 2 7";
    for (int i = 0; i < 2; i++) {
        uint32_t worker = 0;
        int status = 0;
        char answer[128];
        const int fd = send_text(&report, text, sizeof text - 1);
        assert_int_equal(sl_completion_take(&report, &worker, &status), i == 0);
        assert_int_equal(report.workers_left, 3);
        if (i == 0) {
            assert_int_equal(worker, 2);
            assert_int_equal(status, 7);
        }
        assert_int_equal(recv(fd, answer, sizeof answer, 0), sizeof text - 1);
        close(fd);
    }
    sl_completion_fini(&report);
}

SL_CASE(report_take__strays_are_neither_believed_nor_answered)
{
    static const char *const strays[] = {
        "",
        "starling-done",
        "starling-done 12.3",
        "starling-done 12.3 1",
        "starling-done 12.4 1 0",
        "starling-done 12.3 4 0",
        "starling-done 12.3 -1 0",
        "starling-done 12.3 1 0 more",
        "starling-done 12.3 1 0\n",
        "other 12.3 1 0",
        "starling-done 99999999999999999999999999999999999999999999999999999999999999 1 0",
        "starling-done 12.3 99999999999999999999 0",
        "starling-done 12.3 1 99999999999999999999",
        "\xff\xfe\xfd",
    };
    struct sl_completion report = SL_COMPLETION_NONE;
    listen_for(&report, 4);
    for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++) {
        uint32_t worker;
        int status;
        char answer[128];
        const int fd = send_text(&report, strays[i], strlen(strays[i]));
        assert_false(sl_completion_take(&report, &worker, &status));
        assert_int_equal(report.workers_left, 4);
        assert_int_equal(recv(fd, answer, sizeof answer, MSG_DONTWAIT), -1);
        close(fd);
    }
    sl_completion_fini(&report);
}

static void *take_one(void *argument)
{
    struct sl_completion *report = argument;
    uint32_t worker = 0;
    int status = 0;
    struct pollfd polled = {.fd = report->fd, .events = POLLIN};
    while (poll(&polled, 1, 10000) == 1 && !sl_completion_take(report, &worker, &status)) {
    }
    return status == 5 && worker == 1 ? report : NULL;
}

SL_CASE(report_send__arrives)
{
    struct sl_completion ps = SL_COMPLETION_NONE, worker = SL_COMPLETION_NONE;
    listen_for(&ps, 2);
    report_to(port_of(&ps), &worker);
    worker.worker = 1;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_one, &ps), 0);
    sl_completion_send(&worker, 5);
    void *result;
    pthread_join(thread, &result);
    assert_ptr_equal(result, &ps);
    assert_int_equal(ps.workers_left, 1);
    sl_completion_fini(&worker);
    sl_completion_fini(&ps);
}

static void *send_five(void *worker)
{
    sl_completion_send(worker, 5);
    return NULL;
}

SL_CASE(report_send__to_a_launcher_that_starts_later)
{
    struct sl_completion ps = SL_COMPLETION_NONE, worker = SL_COMPLETION_NONE;
    const uint16_t port = unused_port();
    report_to(port, &worker);
    worker.worker = 1;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, send_five, &worker), 0);
    usleep(300000); /* most likely it was refused once; it arrives in any case */
    listen_at(port, &ps, 2);
    assert_ptr_equal(take_one(&ps), &ps);
    pthread_join(thread, NULL);
    sl_completion_fini(&worker);
    sl_completion_fini(&ps);
}

SL_CASE(report_send__nobody_there_is_no_hang)
{
    struct sl_completion worker = SL_COMPLETION_NONE;
    report_to(unused_port(), &worker);
    sl_completion_send(&worker, 0);
    sl_completion_fini(&worker);
}
