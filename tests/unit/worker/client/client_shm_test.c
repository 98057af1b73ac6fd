/* A client and its ps through shared memory: when it is not to be had, what is moved, and what a
 * deadline costs. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "net/shm/socket.h"
#include "tests/unit/worker/client/client_fixture.h"
#include "worker/client/client_internal.h"

static struct sl_cluster *cluster;

static void start_cluster(bool is_deaf)
{
    const struct sl_cluster_options options = {
        .ps_count = 1, .shards_of_ps = 2, .worker_count = 2, .shm = true, .shm_is_deaf = is_deaf};
    cluster = sl_cluster_start(&options);
}

static struct sl_client *start_client(bool wants_none, int32_t task_index)
{
    const struct sl_client_options options = {
        .struct_size = sizeof options,
        .coordinator = sl_cluster_coordinator(cluster),
        .task_index = task_index,
        .manual_progress = true,
        .start_timeout_ms = TIMEOUT_MS,
        .disable_shm = wants_none,
    };
    struct sl_client *client = NULL;
    assert_int_equal(sl_client_create(&options, &client), 0);
    return client;
}

static void stop(struct sl_client *client)
{
    sl_client_destroy(&client);
    sl_cluster_stop(&cluster);
}

/* What is logged meanwhile: everything from warnings on, also by the cluster's threads. */
struct capture {
    FILE *file;
    int stderr_kept;
    char text[20000];
};

static void capture_begin(struct capture *capture)
{
    capture->file = tmpfile();
    capture->stderr_kept = dup(STDERR_FILENO);
    assert_non_null(capture->file);
    dup2(fileno(capture->file), STDERR_FILENO);
}

static void capture_end(struct capture *capture)
{
    dup2(capture->stderr_kept, STDERR_FILENO);
    close(capture->stderr_kept);
    rewind(capture->file);
    size_t bytes = fread(capture->text, 1, sizeof capture->text - 1, capture->file);
    capture->text[bytes] = '\0';
    fclose(capture->file);
}

static uint32_t count_of(const char *text, const char *part)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

static void pull_one(struct sl_client *client)
{
    const struct sl_table_spec spec = fixture_sparse("t", 1);
    struct sl_table *table = fixture_table(client, &spec);
    const uint64_t key = 1;
    float row = 1;
    assert_int_equal(sl_client_pull(client, table, &key, 1, &row, TIMEOUT_MS), 0);
    assert_true(row == 0);
}

static void expect_fallback(void)
{
    struct capture capture;
    char expected[200];
    capture_begin(&capture);
    struct sl_client *client = start_client(false, -1);
    capture_end(&capture);
    fixture_expect_ways(client, false);
    snprintf(expected, sizeof expected,
             "ps/0 reactor 1: not through shm://%s: refused; over tcp://%s\n",
             sl_cluster_coordinator(cluster), sl_cluster_coordinator(cluster));
    assert_int_equal(count_of(capture.text, expected), 1);
    assert_int_equal(count_of(capture.text, "ps/0 reactor 0: not through "), 1);
    pull_one(client);
    sl_client_destroy(&client);
}

SL_CASE(client_create__goes_over_tcp_where_nobody_listens_path)
{
    start_cluster(true);
    expect_fallback();
    sl_cluster_stop(&cluster);
}

/* A stranger has the name of the ps. As another user, which only root can become. */
static pid_t start_stranger(void)
{
    struct sl_endpoint endpoint;
    struct sockaddr_un address;
    socklen_t bytes;
    int ready[2];
    assert_int_equal(sl_endpoint_parse(sl_cluster_coordinator(cluster), &endpoint, NULL), 0);
    sl_shm_socket_address(&endpoint, &address, &bytes);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = setuid(65534) == 0 ? socket(AF_UNIX, SOCK_SEQPACKET, 0) : -1;
        bool listens = fd >= 0 && bind(fd, (const struct sockaddr *)&address, bytes) == 0 &&
                       listen(fd, 8) == 0 && write(ready[1], "", 1) == 1;
        while (listens && accept(fd, NULL, NULL) >= 0) {
        }
        _exit(1);
    }
    close(ready[1]);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

SL_CASE(client_create__uses_tcp_if_another_process_has_the_shm_path)
{
    if (geteuid() != 0) {
        skip();
    }
    start_cluster(true);
    pid_t stranger = start_stranger();
    expect_fallback();
    assert_int_equal(kill(stranger, SIGKILL), 0);
    assert_int_equal(waitpid(stranger, NULL, 0), stranger);
    sl_cluster_stop(&cluster);
}

SL_CASE(client_create__goes_over_tcp_when_told_to)
{
    start_cluster(false);
    struct sl_client *client = start_client(true, -1);
    fixture_expect_ways(client, false);
    void *buffer = NULL;
    assert_int_equal(sl_client_buffer_create(client, 100, &buffer), 0);
    pull_one(client);
    stop(client);
}

static struct sl_transport_stats stats_of(struct sl_client *client)
{
    struct sl_transport_stats stats;
    struct sl_client_io *io = &client->ios[client->first_io];
    sl_transport_get_stats(io->transports[SL_ENDPOINT_SHM], &stats);
    return stats;
}

#define LENGTH 4000000U

SL_CASE(dense_push_pull__in_buffers_is_not_copied_by_the_client)
{
    start_cluster(false);
    struct sl_client *client = start_client(false, -1);
    fixture_expect_ways(client, true);
    const struct sl_table_spec spec = fixture_dense("d", LENGTH);
    struct sl_table *table = fixture_table(client, &spec);
    void *memory = NULL;
    assert_int_equal(sl_client_buffer_create(client, 2 * LENGTH * sizeof(float), &memory), 0);
    float *gradients = memory, *values = gradients + LENGTH;
    for (uint32_t i = 0; i < LENGTH; i++) {
        gradients[i] = (float)(i % 100);
    }
    const uint64_t before = stats_of(client).copied_bytes;
    for (uint32_t round = 1; round < 3; round++) {
        struct sl_step *step = fixture_step(client, 0);
        assert_int_equal(sl_step_dense_push_pull(step, table, 0, LENGTH, gradients, values), 0);
        fixture_run(step);
        for (uint32_t i = 0; i < LENGTH; i++) {
            assert_true(values[i] == (float)round * gradients[i]);
        }
    }
    const uint64_t copied = stats_of(client).copied_bytes - before;
    assert_in_range(copied, 0, 2 * LENGTH * sizeof(float) / 100); /* headers, and the like */
    stop(client);
}

/* Nor is what steps put together by themselves: keys and gradients of a sparse push. */
SL_CASE(push__of_rows_is_not_copied_by_the_transport)
{
    enum { KEYS = 50000, DIM = 16 };
    start_cluster(false);
    struct sl_client *client = start_client(false, -1);
    const struct sl_table_spec spec = fixture_sparse("s", DIM);
    struct sl_table *table = fixture_table(client, &spec);
    uint64_t *keys = calloc(KEYS, sizeof *keys);
    float *gradients = calloc((size_t)KEYS * DIM, sizeof *gradients);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        gradients[i * DIM] = (float)i;
    }
    const uint64_t before = stats_of(client).copied_bytes;
    assert_int_equal(sl_client_push(client, table, keys, KEYS, gradients, TIMEOUT_MS), 0);
    const uint64_t copied = stats_of(client).copied_bytes - before;
    assert_in_range(copied, 0, KEYS * DIM * sizeof(float) / 100);
    assert_int_equal(sl_client_pull(client, table, keys, KEYS, gradients, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(gradients[i * DIM] == (float)i);
    }
    free(keys);
    free(gradients);
    stop(client);
}

/* A pull into a buffer that waits for a slower worker: its shard keeps the deadline too. */
SL_CASE(step_wait__of_a_pull_into_a_buffer_ends_by_its_deadline)
{
    enum { COUNT = 100000 };
    start_cluster(false);
    struct sl_client *client = start_client(false, 0);
    struct sl_table_spec spec = fixture_dense("d", COUNT);
    spec.consistency = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_BSP, .worker_count = 2};
    struct sl_table *table = fixture_table(client, &spec);
    void *memory = NULL;
    assert_int_equal(sl_client_buffer_create(client, COUNT * sizeof(float), &memory), 0);
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_tick(step), 0);
    fixture_run(step);
    for (uint32_t i = 0; i < 5; i++) {
        step = fixture_step(client, 1);
        assert_int_equal(sl_step_dense_pull(step, table, 0, COUNT, memory), 0);
        assert_int_equal(sl_step_submit(step, 30), 0);
        assert_int_equal(sl_step_wait(step), SL_ERR_DEADLINE);
        sl_step_destroy(&step);
    }
    step = fixture_step(client, 0);
    assert_int_equal(sl_step_dense_pull(step, table, 0, COUNT, memory), 0);
    fixture_run(step);
    stop(client);
}

/* A ps that stands still answers nothing: the connections end, and are made again. */
SL_CASE(step_wait__of_a_pull_into_a_buffer_does_not_wait_for_a_ps_that_stands_still)
{
    enum { COUNT = 100000 };
    start_cluster(false);
    struct sl_client *client = start_client(false, -1);
    const struct sl_table_spec spec = fixture_dense("d", COUNT);
    struct sl_table *table = fixture_table(client, &spec);
    void *memory = NULL;
    assert_int_equal(sl_client_buffer_create(client, COUNT * sizeof(float), &memory), 0);
    for (uint32_t i = 0; i < 2; i++) {
        sl_cluster_pause(cluster, 0);
        struct sl_step *step = fixture_step(client, 0);
        assert_int_equal(sl_step_dense_pull(step, table, 0, COUNT, memory), 0);
        assert_int_equal(sl_step_submit(step, 30), 0);
        assert_int_equal(sl_step_wait(step), SL_ERR_DEADLINE);
        sl_step_destroy(&step);
        sl_cluster_resume(cluster, 0);
        memset(memory, 1, COUNT * sizeof(float));
        step = fixture_step(client, 0);
        assert_int_equal(sl_step_dense_pull(step, table, 0, COUNT, memory), 0);
        fixture_run(step);
        for (uint32_t at = 0; at < COUNT; at++) {
            assert_true(((const float *)memory)[at] == 0);
        }
        fixture_expect_ways(client, true);
    }
    stop(client);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_WARN, "test");
}
