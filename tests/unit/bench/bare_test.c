#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bare.h"
#include "bench/bare_peer.h"
#include "bench/bare_rows_loops.h"
#include "tests/support/unit.h"

static const struct sl_bench_common BRIEF = {
    .rounds = 1, .seconds = 0.05, .warm_up = 0.01, .server_core = -1, .client_core = -1};

static struct sl_metric_histogram latency;

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
    double rate = 0;
    const int err = sl_bench_bare_echo_run(&options, &BRIEF, &rate, &latency);
    if (err == SL_ERR_UNSUPPORTED) {
        skip();
    }
    assert_int_equal(err, 0);
    assert_true(rate > 0);
    assert_true(latency.count > 0);
    /* What the rate counts is what the histogram holds, and the time is the one asked for. */
    assert_true(rate * BRIEF.seconds <= (double)latency.count * 1.001);
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
    (void)ctx;
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
    (void)fds;
    (void)count;
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

SL_CASE(bulk_run__every_way_both_directions)
{
    for (int way = SL_BENCH_BARE_BEST; way < SL_BENCH_BARE_WAYS; way++) {
        for (int to_server = 0; to_server < 2; to_server++) {
            const struct sl_bench_bare_bulk options = {
                .bytes = 300001,
                .to_server = to_server,
                .depth = 2,
                .way = (enum sl_bench_bare_way)way,
                .congestion = "cubic",
            };
            double rate = 0;
            const int err = sl_bench_bare_bulk_run(&options, &BRIEF, &rate);
            if (err != 0) { /* a kernel without what this way needs, said by one end or the other */
                assert_true(way >= SL_BENCH_BARE_WAIT_ALL);
                assert_true(err == SL_ERR_UNSUPPORTED || err == SL_ERR_IO);
                continue;
            }
            assert_true(rate > 0);
            assert_non_null(sl_bench_bare_way_name((enum sl_bench_bare_way)way));
        }
    }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

enum { ROWS = 40, COUNT = 100, HEADER = 4 };
static const uint32_t DIMS[] = {3, 16, 64, 128};
#define DIM_COUNT (sizeof DIMS / sizeof DIMS[0])
#define DIM_MAX   128

static float memory[ROWS * (HEADER + 2 * DIM_MAX)];
static float block[COUNT * DIM_MAX];

static float *row_of(uint32_t place, uint32_t dim)
{
    return memory + place * (HEADER + 2 * dim) + HEADER;
}

static void number_memory(void)
{
    for (uint32_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        memory[i] = (float)i;
    }
}

SL_CASE(rows_loops__gather_takes_each_row_from_its_address)
{
    float *rows[COUNT];
    number_memory();
    for (size_t d = 0; d < DIM_COUNT; d++) {
        const uint32_t dim = DIMS[d];
        for (uint32_t i = 0; i < COUNT; i++) {
            rows[i] = row_of(i * 7 % ROWS, dim);
        }
        sl_bench_bare_rows_select()->gather(rows, COUNT, dim, block);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_memory_equal(block + (size_t)i * dim, rows[i], dim * sizeof *block);
        }
    }
}

/* One row, twice in one call: 0 + 2^2 gives a step of lr * 2 / 2, then 4 + 2^2 one of
 * lr * 2 / sqrt(8). What stands before and behind it stays. */
SL_CASE(rows_loops__update_is_adagrads)
{
    const float expected = -0.05F * (1 + 2 / 2.8284271F);
    for (size_t d = 0; d < DIM_COUNT; d++) {
        const uint32_t dim = DIMS[d];
        float *row = row_of(1, dim);
        float *const twice[2] = {row, row};
        number_memory();
        memset(row, 0, 2 * dim * sizeof *row);
        for (uint32_t i = 0; i < 2 * dim; i++) {
            block[i] = 2;
        }
        sl_bench_bare_rows_select()->update(twice, 2, dim, block);
        for (uint32_t k = 0; k < dim; k++) {
            assert_float_equal(row[k], expected, 1e-6F);
            assert_float_equal(row[dim + k], 8, 1e-6F);
        }
        assert_float_equal(row[-1], (float)(row - memory - 1), 0);
        assert_float_equal(row[2 * dim], (float)(row - memory + 2 * dim), 0);
    }
}

/* The last batch is shorter than the others. */
SL_CASE(rows_gather__and_update_go_through_all_rows)
{
    static float gradients[COUNT * DIM_MAX];
    float *rows[ROWS];
    number_memory();
    for (uint32_t i = 0; i < ROWS; i++) {
        rows[i] = row_of(i, DIM_MAX);
    }
    memset(block, 0, sizeof block);
    for (uint32_t i = 0; i < COUNT * DIM_MAX; i++) {
        gradients[i] = 1;
    }
    const struct sl_bench_bare_rows measured = {.rows = rows,
                                                .row_count = ROWS,
                                                .dim = DIM_MAX,
                                                .batch = ROWS - 1,
                                                .values = block,
                                                .gradients = gradients};
    double ns = 0;
    assert_int_equal(sl_bench_bare_rows_gather(&measured, &BRIEF, &ns), 0);
    assert_true(ns > 0);
    assert_memory_equal(block + DIM_MAX, rows[1], DIM_MAX * sizeof *block);
    /* On a busy machine the time may be over before the second batch. */
    const float *last = rows[ROWS - 1] + DIM_MAX;
    const float before = *last;
    for (int tries = 0; *last == before && tries < 100; tries++) {
        ns = 0;
        assert_int_equal(sl_bench_bare_rows_update(&measured, &BRIEF, &ns), 0);
        assert_true(ns > 0);
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_true(rows[i][DIM_MAX] > (float)(rows[i] + DIM_MAX - memory));
    }
}

SL_CASE(rows_create__draws_among_its_rows)
{
    const struct sl_bench_bare_rows_drawn options = {
        .rows = 1000, .dim = 16, .batch = 100, .header_bytes = 16, .seed = 1};
    struct sl_bench_bare_rows_memory *drawn;
    assert_int_equal(sl_bench_bare_rows_create(&options, &drawn), 0);
    const struct sl_bench_bare_rows *rows = sl_bench_bare_rows_of(drawn);
    assert_true(rows->row_count >= options.rows);
    assert_int_equal(rows->row_count % options.batch, 0);
    for (uint64_t i = 0; i < rows->row_count; i += 997) {
        assert_true(rows->rows[i][0] >= 0 && rows->rows[i][0] < 1000);
        assert_float_equal(rows->rows[i][1] - rows->rows[i][0], 1.0F / 1024, 1e-4F);
    }
    sl_bench_bare_rows_destroy(&drawn);
    assert_null(drawn);
}

SL_CASE(memory_run__one_thread_and_two)
{
    for (uint32_t threads = 1; threads <= 2; threads++) {
        const struct sl_bench_bare_memory options = {
            .bytes = 100000, .pieces = 3, .threads = threads};
        double rate = 0;
        assert_int_equal(sl_bench_bare_memory_run(&options, &BRIEF, &rate), 0);
        assert_true(rate > 0);
    }
}

SL_CASE(spsc_run__every_message_is_taken)
{
    double value = 0;
    assert_int_equal(sl_bench_bare_spsc_run(1, &BRIEF, &value), 0);
    assert_true(value > 0);
    assert_int_equal(sl_bench_bare_spsc_run(16, &BRIEF, &value), 0);
    assert_true(value > 0);
    value = 0;
    assert_int_equal(sl_bench_bare_spsc_round_trip(&BRIEF, &value), 0);
    assert_true(value > 0);
}
