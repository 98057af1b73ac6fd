#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bare.h"
#include "bench/bare_peer.h"
#include "tests/support/unit.h"

static const struct sl_bench_common BRIEF = {
    .seconds = 0.05, .warm_up = 0.01, .server_core = -1, .client_core = -1};

static struct sl_metric_histogram latency;

/* A short run may count nothing on a busy machine; then a longer one follows. */
static void make_longer(struct sl_bench_common *common)
{
    common->seconds *= 4;
    assert_true(common->seconds < 60);
}

static void echo(uint32_t connections, uint32_t depth, uint32_t request_bytes, uint32_t reply_bytes,
                 bool polling)
{
    const struct sl_bench_bare_echo options = {
        .connections = connections,
        .depth = depth,
        .request_bytes = request_bytes,
        .reply_bytes = reply_bytes,
        .polling = polling,
        .congestion = "reno",
    };
    struct sl_bench_common common = BRIEF;
    double rate = 0;
    const int err = sl_bench_bare_echo_run(&options, &common, &rate, &latency);
    if (err == SL_ERR_UNSUPPORTED) {
        skip();
    }
    assert_int_equal(err, 0);
    while (rate == 0) {
        make_longer(&common);
        assert_int_equal(sl_bench_bare_echo_run(&options, &common, &rate, &latency), 0);
    }
    assert_true(latency.count > 0);
    /* What the rate counts is what the histogram holds, and the time is the one asked for. */
    assert_true(rate * common.seconds <= (double)latency.count * 1.001);
    assert_true(latency.min > 0);
}

SL_CASE(echo_run__one_at_a_time)
{
    echo(1, 1, 64, 64, false);
}

SL_CASE(echo_run__polling)
{
    echo(2, 4, 64, 64, true);
}

SL_CASE(echo_run__many_connections)
{
    echo(64, 8, 80, 96, false);
}

/* Messages longer than a receive buffer, more of them than one send takes, of odd sizes. */
SL_CASE(echo_run__messages_in_parts)
{
    echo(3, 16, 873, 25633, false);
    echo(1, 32, SL_BENCH_BARE_MESSAGE_BYTES_MAX, 1, false);
}

SL_CASE(echo_run__unknown_congestion_control_is_refused)
{
    const struct sl_bench_bare_echo options = {
        .connections = 1, .depth = 1, .request_bytes = 1, .reply_bytes = 1, .congestion = "none"};
    double rate = 0;
    assert_int_equal(sl_bench_bare_echo_run(&options, &BRIEF, &rate, &latency), SL_ERR_INVALID);
    assert_true(rate == 0);
}

SL_CASE(echo_run__a_core_that_is_not_there_is_refused)
{
    const struct sl_bench_bare_echo options = {
        .connections = 1, .depth = 1, .request_bytes = 1, .reply_bytes = 1};
    struct sl_bench_common common = BRIEF;
    common.client_core = 1000;
    double rate = 0;
    assert_int_equal(sl_bench_bare_echo_run(&options, &common, &rate, &latency), SL_ERR_INVALID);
    common.client_core = -1;
    common.server_core = 1000;
    assert_int_equal(sl_bench_bare_echo_run(&options, &common, &rate, &latency), SL_ERR_IO);
}

/* ---- The other end --------------------------------------------------------------------------- */

static int serve_one_byte(const void *ctx, const int *fds, uint32_t count)
{
    char byte = 'x';
    for (uint32_t i = 0; i < count; i++) {
        (void)send(fds[i], &byte, 1, MSG_NOSIGNAL);
    }
    return recv(fds[0], &byte, 1, 0) > 0 ? SL_ERR_PROTOCOL : 0;
}

SL_CASE(peer_end__tells_that_the_process_failed)
{
    struct sl_bench_bare_peer peer;
    char byte;
    for (int fails = 0; fails < 2; fails++) {
        assert_int_equal(sl_bench_bare_peer_start(&peer, 2, NULL, &BRIEF, serve_one_byte, NULL), 0);
        assert_int_equal(recv(peer.fds[1], &byte, 1, 0), 1);
        if (fails) {
            assert_int_equal(recv(peer.fds[0], &byte, 1, 0), 1);
            assert_int_equal(send(peer.fds[0], &byte, 1, 0), 1);
            assert_true(recv(peer.fds[0], &byte, 1, 0) <= 0);
        }
        assert_int_equal(sl_bench_bare_peer_end(&peer), fails ? SL_ERR_IO : 0);
    }
}

static int serve_forever(const void *ctx, const int *fds, uint32_t count)
{
    const int *pipe_fd = ctx;
    const pid_t self = getpid();
    (void)!write(*pipe_fd, &self, sizeof self);
    while (pause() < 0) {
    }
    return 0;
}

/* We take in the orphans of a process that is killed, and see its peer end too. */
SL_CASE(peer_start__ends_with_its_parent)
{
    int fds[2];
    pid_t peer_pid = 0;
    int status = 0;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(pipe(fds), 0);
    const pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        struct sl_bench_bare_peer peer;
        (void)sl_bench_bare_peer_start(&peer, 1, NULL, &BRIEF, serve_forever, &fds[1]);
        for (;;) {
            pause();
        }
    }
    assert_int_equal(read(fds[0], &peer_pid, sizeof peer_pid), sizeof peer_pid);
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_int_equal(waitpid(peer_pid, &status, 0), peer_pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    close(fds[0]);
    close(fds[1]);
}

/* ---- Bulk ------------------------------------------------------------------------------------ */

SL_CASE(bulk_run__both_directions)
{
    for (int to_server = 0; to_server < 2; to_server++) {
        const struct sl_bench_bare_bulk options = {
            .bytes = 300001, .to_server = to_server, .depth = 2, .congestion = "cubic"};
        struct sl_bench_common common = BRIEF;
        double rate = 0;
        assert_int_equal(sl_bench_bare_bulk_run(&options, &common, &rate), 0);
        while (rate == 0) {
            make_longer(&common);
            assert_int_equal(sl_bench_bare_bulk_run(&options, &common, &rate), 0);
        }
    }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

SL_CASE(memory_run__counts_bytes)
{
    const struct sl_bench_bare_memory options = {.bytes = 100000, .pieces = 3};
    struct sl_bench_common common = BRIEF;
    double rate = 0;
    assert_int_equal(sl_bench_bare_memory_run(&options, &common, &rate), 0);
    while (rate == 0) {
        make_longer(&common);
        assert_int_equal(sl_bench_bare_memory_run(&options, &common, &rate), 0);
    }
}
