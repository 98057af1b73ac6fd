#include "bench/ratio_workers.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/fork.h"
#include "bench/now.h"
#include "bench/rows.h"
#include "core/assert.h"
#include "core/log.h"

#define TIMEOUT_MS  60000
#define STEPS_DRAWN 64 /* whose keys are drawn beforehand, and then used in turns */
#define LOOK_NS     (1 * SL_CLOCK_NS_PER_MS)
#define START_LIMIT (60 * SL_CLOCK_NS_PER_S)

/* What one worker found. */
struct tally {
    uint64_t steps;     /* measured */
    uint64_t all_steps; /* with those of the warm-up */
    uint64_t cpu_ns;    /* of the process meanwhile; in the tally of its first worker only */
    struct sl_client_stats traffic;
    struct sl_metric_histogram latency;
};

/* Between the processes. */
struct board {
    sem_t ready, failed;      /* posted by each worker that is, or has */
    sem_t go;                 /* posted once for each worker, when the times below are known */
    uint64_t warm_ns, end_ns; /* when what is counted begins and ends */
    struct tally tallies[];   /* of each worker */
};

/* One worker: a client and its thread. */
struct worker {
    const struct sl_bench_ratio_workers *workers;
    struct board *board;
    uint32_t index;
    struct sl_client *client;
    struct sl_table *tables[SL_BENCH_RATIO_TABLES_MAX];
    uint64_t *keys;   /* [STEPS_DRAWN][tables][keys] */
    float *rows;      /* [tables][keys][dim] */
    float *gradients; /* likewise */
    pthread_t thread;
};

/* ---- Tables ---------------------------------------------------------------------------------- */

static int connect_worker(struct worker *worker)
{
    const struct sl_bench_ratio_workers *workers = worker->workers;
    const struct sl_client_options options = {
        .coordinator = workers->coordinator,
        .task_index = -1,
        .reactor_count = 1,
        .manual_progress = workers->driven,
        .protocol = workers->protocol,
        .congestion_control = workers->congestion,
        .disable_shm = workers->no_shm,
    };
    int err = sl_client_create(&options, &worker->client);
    for (uint32_t t = 0; err == 0 && t < workers->tables; t++) {
        char name[32];
        (void)snprintf(name, sizeof name, "ratio/%u/%u", workers->dim, t);
        const struct sl_table_spec spec =
            sl_bench_rows_table(name, workers->dim, SL_OPTIMIZER_ADAGRAD);
        err = sl_client_table_open(worker->client, &spec, TIMEOUT_MS, &worker->tables[t]);
    }
    return err;
}

int sl_bench_ratio_fill(const struct sl_bench_ratio_workers *workers)
{
    struct worker worker = {.workers = workers};
    int err = connect_worker(&worker);
    for (uint32_t t = 0; err == 0 && t < workers->tables; t++) {
        err = sl_bench_rows_create(worker.client, worker.tables[t], workers->rows);
    }
    if (worker.client != NULL) {
        sl_client_destroy(&worker.client);
    }
    if (err != 0) {
        sl_log_error("the tables' rows could not be created: %s", sl_err_name(err));
    }
    return err;
}

/* ---- One worker ------------------------------------------------------------------------------ */

static int prepare(struct worker *worker)
{
    const struct sl_bench_ratio_workers *workers = worker->workers;
    const size_t keys = (size_t)workers->tables * workers->keys;
    worker->keys = malloc(STEPS_DRAWN * keys * sizeof *worker->keys);
    worker->rows = calloc(keys * workers->dim, sizeof *worker->rows);
    worker->gradients = malloc(keys * workers->dim * sizeof *worker->gradients);
    if (worker->keys == NULL || worker->rows == NULL || worker->gradients == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_bench_workload workload;
    sl_bench_workload_init(&workload, SL_BENCH_ZIPF, workers->rows, workers->zipf_exponent,
                           workers->seed + worker->index);
    for (size_t i = 0; i < STEPS_DRAWN * keys; i++) {
        worker->keys[i] = sl_bench_workload_next(&workload);
    }
    for (size_t i = 0; i < keys * workers->dim; i++) {
        worker->gradients[i] = (float)(i % 13) * 0.001F - 0.006F;
    }
    return 0;
}

/* Pulls the rows of all tables, or pushes their gradients. */
static int visit(struct worker *worker, const uint64_t *keys, bool push)
{
    const struct sl_bench_ratio_workers *workers = worker->workers;
    const size_t floats = (size_t)workers->keys * workers->dim;
    struct sl_step *step;
    int err = sl_step_begin(worker->client, 0, &step);
    if (err != 0) {
        return err;
    }
    for (uint32_t t = 0; err == 0 && t < workers->tables; t++) {
        const uint64_t *of_table = keys + (size_t)t * workers->keys;
        err = push ? sl_step_push(step, worker->tables[t], of_table, workers->keys,
                                  worker->gradients + t * floats)
                   : sl_step_pull(step, worker->tables[t], of_table, workers->keys,
                                  worker->rows + t * floats);
    }
    return sl_bench_rows_finish(step, err, "a step");
}

static int go_on(struct worker *worker, struct tally *tally)
{
    const struct sl_bench_ratio_workers *workers = worker->workers;
    const struct board *board = worker->board;
    const size_t keys = (size_t)workers->tables * workers->keys;
    uint64_t before_ns = sl_bench_now_ns();
    int err = 0;
    while (err == 0 && before_ns < board->end_ns) {
        const uint64_t *of_step = worker->keys + tally->all_steps % STEPS_DRAWN * keys;
        err = visit(worker, of_step, false);
        err = err != 0 ? err : visit(worker, of_step, true);
        const uint64_t after_ns = sl_bench_now_ns();
        if (err == 0 && before_ns >= board->warm_ns && after_ns < board->end_ns) {
            sl_metric_record(&tally->latency, after_ns - before_ns);
        }
        tally->steps += err == 0 && after_ns >= board->warm_ns && after_ns < board->end_ns;
        tally->all_steps++;
        before_ns = after_ns;
    }
    return err;
}

static int work(struct worker *worker)
{
    struct board *board = worker->board;
    struct tally *tally = &board->tallies[worker->index];
    int err = prepare(worker);
    err = err != 0 ? err : connect_worker(worker);
    if (err != 0) {
        return err;
    }
    (void)sem_post(&board->ready);
    while (sem_wait(&board->go) != 0) {
        sl_assert(errno == EINTR);
    }
    struct sl_client_stats before;
    sl_client_stats(worker->client, &before);
    const uint64_t cpu_before_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    err = go_on(worker, tally);
    if (worker->index % worker->workers->clients == 0) {
        tally->cpu_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_before_ns;
    }
    sl_client_stats(worker->client, &tally->traffic);
    tally->traffic.bytes_sent -= before.bytes_sent;
    tally->traffic.bytes_received -= before.bytes_received;
    tally->traffic.requests -= before.requests;
    return err;
}

static void *run_thread(void *ctx)
{
    struct worker *worker = ctx;
    int err = work(worker);
    if (worker->client != NULL) {
        sl_client_destroy(&worker->client);
    }
    free(worker->keys);
    free(worker->rows);
    free(worker->gradients);
    if (err != 0) {
        sl_log_error("worker %u: %s", worker->index, sl_err_name(err));
        (void)sem_post(&worker->board->failed);
    }
    return NULL;
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* In a process of its own. */
static _Noreturn void run_process(const struct sl_bench_ratio_workers *workers, struct board *board,
                                  uint32_t process)
{
    /* Threads that share a core with many others are late now and then: no news here. */
    sl_log_setup(SL_LOG_ERROR, "worker");
    struct worker *all = calloc(workers->clients, sizeof *all);
    uint32_t started = 0;
    while (all != NULL && started < workers->clients) {
        all[started] = (struct worker){
            .workers = workers, .board = board, .index = process * workers->clients + started};
        if (pthread_create(&all[started].thread, NULL, run_thread, &all[started]) != 0) {
            break;
        }
        started++;
    }
    if (started < workers->clients) {
        sl_log_error("no memory or no thread for a worker");
        (void)sem_post(&board->failed);
    }
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(all[i].thread, NULL);
    }
    free(all);
    _exit(0);
}

static int start_processes(const struct sl_bench_ratio_workers *workers, struct board *board,
                           int core, pid_t *pids)
{
    for (uint32_t i = 0; i < workers->processes; i++) {
        pids[i] = sl_bench_fork_process(core);
        if (pids[i] == 0) {
            run_process(workers, board, i);
        }
        if (pids[i] < 0) {
            return SL_ERR_IO;
        }
    }
    return 0;
}

static bool has_failed(struct board *board)
{
    int count = 0;
    (void)sem_getvalue(&board->failed, &count);
    return count > 0;
}

/* Until all workers are ready; then tells them when to begin and to end. */
static int lead(const struct sl_bench_ratio_workers *workers, struct board *board, double warm_up,
                double seconds)
{
    const uint32_t count = workers->processes * workers->clients;
    const uint64_t limit_ns = sl_bench_now_ns() + START_LIMIT;
    uint32_t ready = 0;
    while (ready < count) {
        if (sem_trywait(&board->ready) == 0) {
            ready++;
            continue;
        }
        if (has_failed(board)) {
            return SL_ERR_CLOSED;
        }
        if (sl_bench_now_ns() > limit_ns) {
            sl_log_error("not all workers have connected");
            return SL_ERR_DEADLINE;
        }
        sl_bench_sleep_ns(LOOK_NS);
    }
    const uint64_t begin_ns = sl_bench_now_ns();
    board->warm_ns = begin_ns + sl_bench_ns(warm_up);
    board->end_ns = board->warm_ns + sl_bench_ns(seconds);
    for (uint32_t i = 0; i < count; i++) {
        (void)sem_post(&board->go);
    }
    return 0;
}

/* Waits for their end; after a failure they are killed. */
static int end_processes(const struct sl_bench_ratio_workers *workers, const pid_t *pids, int err)
{
    for (uint32_t i = 0; i < workers->processes && pids[i] > 0; i++) {
        int status = 0;
        if (err != 0) {
            (void)kill(pids[i], SIGKILL);
        }
        (void)waitpid(pids[i], &status, 0);
        if (err == 0 && status != 0) {
            sl_log_error("worker process %u ended badly", i);
            err = SL_ERR_CLOSED;
        }
    }
    return err;
}

static void sum_up(const struct sl_bench_ratio_workers *workers, const struct board *board,
                   struct sl_bench_ratio_result *out)
{
    uint64_t all_steps = 0;
    uint64_t bytes = 0;
    uint64_t requests = 0;
    uint64_t cpu_ns = 0;
    *out = (struct sl_bench_ratio_result){0};
    sl_metric_init(&out->latency);
    for (uint32_t i = 0; i < workers->processes * workers->clients; i++) {
        const struct tally *tally = &board->tallies[i];
        out->steps += tally->steps;
        all_steps += tally->all_steps;
        bytes += tally->traffic.bytes_sent + tally->traffic.bytes_received;
        requests += tally->traffic.requests;
        cpu_ns += tally->cpu_ns;
        sl_metric_merge(&out->latency, &tally->latency);
    }
    const double steps = all_steps == 0 ? 1 : (double)all_steps;
    out->keys = out->steps * 2 * workers->tables * workers->keys;
    out->bytes_per_step = (double)bytes / steps;
    out->requests_per_step = (double)requests / steps;
    out->cpu_seconds = sl_bench_seconds(cpu_ns) / steps;
}

int sl_bench_ratio_workers_run(const struct sl_bench_ratio_workers *workers, int core,
                               double warm_up, double seconds, struct sl_bench_ratio_result *out)
{
    const uint32_t count = workers->processes * workers->clients;
    sl_assert(workers->tables <= SL_BENCH_RATIO_TABLES_MAX);
    sl_assert(count <= SL_BENCH_RATIO_WORKERS_MAX);
    pid_t pids[SL_BENCH_RATIO_WORKERS_MAX] = {0};
    const size_t bytes = sizeof(struct board) + count * sizeof(struct tally);
    struct board *board =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        sl_log_error("no memory for the workers' results");
        return SL_ERR_NO_MEMORY;
    }
    (void)sem_init(&board->ready, 1, 0);
    (void)sem_init(&board->failed, 1, 0);
    (void)sem_init(&board->go, 1, 0);
    for (uint32_t i = 0; i < count; i++) {
        sl_metric_init(&board->tallies[i].latency);
    }
    int err = start_processes(workers, board, core, pids);
    err = err != 0 ? err : lead(workers, board, warm_up, seconds);
    err = end_processes(workers, pids, err);
    if (err == 0 && has_failed(board)) {
        err = SL_ERR_CLOSED; /* logged by the worker */
    }
    if (err == 0) {
        sum_up(workers, board, out);
    }
    (void)munmap(board, bytes);
    return err;
}
