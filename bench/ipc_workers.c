#include "bench/ipc_workers.h"

#include <errno.h>
#include <semaphore.h>
#include <starling_kv.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/now.h"
#include "bench/pslite_arrays.h"
#include "bench/pslite_job.h"
#include "bench/pslite_keep.h"
#include "core/assert.h"
#include "core/log.h"
#include "worker/client/client_internal.h"

#define TABLE_NAME    "ipc"
#define ROWS_NAME     "ipc/rows"
#define ROW_DIM       16 /* a row of 64 bytes */
#define ROW_COUNT     1000
#define TIMEOUT_MS    60000U
#define START_NS      (60 * SL_CLOCK_NS_PER_S)
#define END_MS        10000U
#define LOOK_AGAIN_NS (20 * SL_CLOCK_NS_PER_MS)
#define LATE_NS       (60 * SL_CLOCK_NS_PER_S) /* how much longer than asked a turn may take */

/* Of one worker. */
struct tally {
    sem_t go;
    uint64_t keys; /* ROUNDS */
    double seconds;
    struct sl_metric_histogram latency;
    int err;
};

/* Between the processes. */
struct board {
    struct sl_bench_ipc_options options;
    struct sl_bench_ipc_turn turn;
    sem_t done; /* posted by each worker when it has joined, and after each turn */
    struct tally tallies[];
};

struct sl_bench_ipc_workers {
    struct sl_bench_pslite_keep *keep;
    struct sl_kv_handler handler;
    struct sl_bench_pslite_job job;
    struct board *board;
    size_t board_bytes;
};

/* In a worker's process. */
struct worker {
    struct board *board;
    struct tally *tally;
    struct sl_kv *kv;
    void *memory; /* of the longest arrays; the others have their beginnings */
    struct sl_bench_pslite_arrays arrays[SL_BENCH_IPC_LENS_MAX];
    bool is_there[SL_BENCH_IPC_LENS_MAX]; /* pushed once */
    struct sl_table *rows;
};

/* ---- In a worker: arrays --------------------------------------------------------------------- */

static int open_arrays(struct worker *worker, uint32_t len)
{
    struct sl_bench_pslite_load load = worker->board->options.load;
    load.len = worker->board->options.lens[len];
    struct sl_bench_pslite_arrays *arrays = &worker->arrays[len];
    int err = sl_bench_pslite_arrays_init(arrays, worker->kv, &load, len * load.keys_per_server,
                                          worker->memory);
    if (err == 0) {
        err = sl_bench_pslite_arrays_first(arrays);
        worker->is_there[len] = true;
    }
    return err;
}

static int one_round(struct sl_bench_pslite_arrays *arrays, enum sl_bench_pslite_mode mode,
                     uint64_t *keys)
{
    int err;
    if (mode == SL_BENCH_PSLITE_PUSH_THEN_PULL) {
        err = sl_bench_pslite_arrays_blocking(arrays, SL_BENCH_PSLITE_PUSH);
        err = err != 0 ? err : sl_bench_pslite_arrays_blocking(arrays, SL_BENCH_PSLITE_PULL);
        *keys += arrays->server_count;
    } else {
        err = sl_bench_pslite_arrays_round(arrays, mode);
        *keys += arrays->key_count;
    }
    return err;
}

static int measure_rounds(struct worker *worker)
{
    const struct sl_bench_ipc_turn *turn = &worker->board->turn;
    const enum sl_bench_pslite_mode mode = turn->mode;
    struct sl_bench_pslite_arrays *arrays = &worker->arrays[turn->len];
    int err = worker->is_there[turn->len] ? 0 : open_arrays(worker, turn->len);
    uint64_t keys = 0;
    const uint64_t warm_ns = sl_bench_now_ns() + sl_bench_ns(turn->warm_up);
    do {
        err = err != 0 ? err : one_round(arrays, mode, &keys);
    } while (err == 0 && sl_bench_now_ns() < warm_ns);
    const uint64_t begin_ns = sl_bench_now_ns();
    const uint64_t lasts_ns = sl_bench_ns(turn->seconds);
    uint64_t passed_ns = 0;
    uint32_t rounds = 0;
    keys = 0;
    while (err == 0 && (turn->repeat != 0 ? rounds < turn->repeat : passed_ns < lasts_ns)) {
        err = one_round(arrays, mode, &keys);
        passed_ns = sl_bench_now_ns() - begin_ns;
        rounds++;
    }
    worker->tally->keys = keys;
    worker->tally->seconds = sl_bench_seconds(passed_ns);
    return err;
}

/* ---- In a worker: rows ----------------------------------------------------------------------- */

/* A push of zeros creates the rows, or leaves those of an earlier turn as they are. */
static int create_rows(struct worker *worker)
{
    static const float zeros[ROW_COUNT * ROW_DIM];
    uint64_t keys[ROW_COUNT];
    for (uint32_t i = 0; i < ROW_COUNT; i++) {
        keys[i] = i;
    }
    return sl_client_push(sl_kv_client(worker->kv), worker->rows, keys, ROW_COUNT, zeros,
                          TIMEOUT_MS);
}

static int open_rows(struct worker *worker)
{
    const struct sl_table_spec spec = {
        .struct_size = sizeof spec,
        .name = ROWS_NAME,
        .kind = SL_TABLE_SPARSE,
        .dim = ROW_DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
    };
    struct sl_client *client = sl_kv_client(worker->kv);
    sl_assert(client != NULL);
    const int err = sl_client_table_open(client, &spec, TIMEOUT_MS, &worker->rows);
    return err != 0 ? err : create_rows(worker);
}

/* Pulls one row at a time until then; times that begin at warm_ns or later count. */
static int pull_rows(struct worker *worker, uint64_t warm_ns, uint64_t end_ns)
{
    struct sl_client *client = sl_kv_client(worker->kv);
    float row[ROW_DIM];
    uint64_t trips = 0;
    uint64_t before_ns = sl_bench_now_ns();
    int err = 0;
    do {
        const uint64_t key = trips++ % ROW_COUNT;
        err = sl_client_pull(client, worker->rows, &key, 1, row, TIMEOUT_MS);
        const uint64_t after_ns = sl_bench_now_ns();
        if (err == 0 && before_ns >= warm_ns) {
            sl_metric_record(&worker->tally->latency, after_ns - before_ns);
        }
        before_ns = after_ns;
    } while (err == 0 && (before_ns < end_ns || worker->tally->latency.count == 0));
    return err;
}

static int measure_round_trips(struct worker *worker)
{
    const struct sl_bench_ipc_turn *turn = &worker->board->turn;
    const int err = worker->rows != NULL ? 0 : open_rows(worker);
    const uint64_t warm_ns = sl_bench_now_ns() + sl_bench_ns(turn->warm_up);
    sl_metric_init(&worker->tally->latency);
    return err != 0 ? err : pull_rows(worker, warm_ns, warm_ns + sl_bench_ns(turn->seconds));
}

/* ---- In a worker: turns ---------------------------------------------------------------------- */

static int join(struct worker *worker)
{
    const struct sl_bench_ipc_options *options = &worker->board->options;
    uint64_t len_max = 0;
    for (uint32_t i = 0; i < options->len_count; i++) {
        len_max = options->lens[i] > len_max ? options->lens[i] : len_max;
    }
    return sl_bench_pslite_arrays_join(TABLE_NAME, &options->load, len_max, true, &worker->kv,
                                       &worker->memory);
}

static void leave(struct worker *worker)
{
    for (uint32_t i = 0; i < SL_BENCH_IPC_LENS_MAX; i++) {
        sl_bench_pslite_arrays_fini(&worker->arrays[i]);
    }
    sl_bench_pslite_arrays_leave(&worker->kv, &worker->memory);
}

/* The way by RDMA is one beside TCP, which takes over where it is lost. */
static int check_way(const struct worker *worker)
{
    const struct sl_client *client = sl_kv_client(worker->kv);
    for (uint32_t shard = 0; shard < client->shard_count; shard++) {
        if (client->conns[shard].reactor->path.scheme != SL_ENDPOINT_RDMA) {
            sl_log_error("RDMA does not carry the job: STARLING_LOG=info says why");
            return SL_ERR_UNSUPPORTED;
        }
    }
    return 0;
}

static void wait_for_turn(struct worker *worker)
{
    while (sem_wait(&worker->tally->go) != 0) {
        sl_assert(errno == EINTR);
    }
}

/* The main function of a worker's process; its exit status. */
static int work(void *ctx, uint32_t index)
{
    struct board *board = ctx;
    struct worker worker = {.board = board, .tally = &board->tallies[index]};
    int err = join(&worker);
    for (;;) {
        worker.tally->err = err;
        (void)sem_post(&board->done);
        wait_for_turn(&worker);
        if (board->turn.what == SL_BENCH_IPC_END) {
            break;
        }
        err = err != 0                                       ? err
              : board->turn.what == SL_BENCH_IPC_ROUND_TRIPS ? measure_round_trips(&worker)
                                                             : measure_rounds(&worker);
        if (err == 0 && board->options.rdma_address != NULL) {
            err = check_way(&worker);
        }
    }
    leave(&worker);
    return err == 0 ? 0 : 1;
}

/* ---- In the benchmark ------------------------------------------------------------------------ */

/* Until every worker has posted; a process that has ended meanwhile is noticed. */
static int await_all(struct sl_bench_ipc_workers *workers, uint64_t timeout_ns)
{
    const uint64_t end_ns = sl_bench_now_ns() + timeout_ns;
    uint32_t posted = 0;
    while (posted < workers->job.worker_count) {
        const uint64_t until_ns = sl_bench_now_ns() + LOOK_AGAIN_NS;
        const struct timespec until = {.tv_sec = (time_t)(until_ns / SL_CLOCK_NS_PER_S),
                                       .tv_nsec = (long)(until_ns % SL_CLOCK_NS_PER_S)};
        if (sem_clockwait(&workers->board->done, CLOCK_MONOTONIC, &until) == 0) {
            posted++;
            continue;
        }
        const int err = sl_bench_pslite_job_look(&workers->job);
        if (err != 0) {
            return err;
        }
        if (sl_bench_now_ns() >= end_ns) {
            sl_log_error("%u of %u workers are late", workers->job.worker_count - posted,
                         workers->job.worker_count);
            return SL_ERR_DEADLINE;
        }
    }
    int err = 0;
    for (uint32_t i = 0; i < workers->job.worker_count; i++) {
        err = err != 0 ? err : workers->board->tallies[i].err;
    }
    return err;
}

static void begin_all(struct sl_bench_ipc_workers *workers, const struct sl_bench_ipc_turn *turn)
{
    workers->board->turn = *turn;
    for (uint32_t i = 0; i < workers->job.worker_count; i++) {
        (void)sem_post(&workers->board->tallies[i].go);
    }
}

int sl_bench_ipc_workers_run(struct sl_bench_ipc_workers *workers,
                             const struct sl_bench_ipc_turn *turn, struct sl_bench_ipc_result *out)
{
    const double lasts = turn->warm_up + turn->seconds;
    sl_bench_pslite_job_park(&workers->job, false);
    begin_all(workers, turn);
    const int err = await_all(workers, sl_bench_ns(lasts) + LATE_NS);
    sl_bench_pslite_job_park(&workers->job, true);
    if (err != 0) {
        return err;
    }
    out->keys_per_s = 0;
    sl_metric_init(&out->latency);
    for (uint32_t i = 0; i < workers->job.worker_count; i++) {
        const struct tally *tally = &workers->board->tallies[i];
        if (turn->what == SL_BENCH_IPC_ROUNDS) {
            out->keys_per_s += (double)tally->keys / tally->seconds;
        } else {
            sl_metric_merge(&out->latency, &tally->latency);
        }
    }
    return 0;
}

static int make_board(const struct sl_bench_ipc_options *options,
                      struct sl_bench_ipc_workers *workers)
{
    workers->board_bytes = sizeof(struct board) + options->workers * sizeof(struct tally);
    struct board *board =
        mmap(NULL, workers->board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        sl_log_error("no memory for the workers' results");
        return SL_ERR_NO_MEMORY;
    }
    board->options = *options;
    (void)sem_init(&board->done, 1, 0);
    for (uint32_t i = 0; i < options->workers; i++) {
        (void)sem_init(&board->tallies[i].go, 1, 0);
    }
    workers->board = board;
    return 0;
}

static int start(const struct sl_bench_ipc_options *options, struct sl_bench_ipc_workers *workers)
{
    int err = make_board(options, workers);
    err = err != 0 ? err : sl_bench_pslite_keep_create(&workers->keep);
    if (err != 0) {
        return err;
    }
    workers->handler = sl_bench_pslite_keep_handler(workers->keep);
    const struct sl_bench_pslite_job_options of_job = {
        .workers = options->workers,
        .server_core = options->server_core,
        .worker_core = options->worker_core,
        .no_shm = options->no_shm,
        .rdma_address = options->rdma_address,
        .rdma_device = options->rdma_device,
        .server_polling = options->server_polls ? "true" : "false",
        .worker_polling = options->workers_poll ? "true" : "false",
        .congestion = options->congestion,
        .handler = options->load.handler == SL_BENCH_PSLITE_KEEP ? &workers->handler : NULL,
        .work = work,
        .ctx = workers->board,
    };
    err = sl_bench_pslite_job_start(&of_job, &workers->job);
    err = err != 0 ? err : await_all(workers, START_NS);
    sl_bench_pslite_job_park(&workers->job, true);
    return err;
}

int sl_bench_ipc_workers_start(const struct sl_bench_ipc_options *options,
                               struct sl_bench_ipc_workers **out)
{
    sl_assert(options->len_count >= 1);
    sl_assert(options->len_count <= SL_BENCH_IPC_LENS_MAX);
    struct sl_bench_ipc_workers *workers = calloc(1, sizeof *workers);
    const int err = workers == NULL ? SL_ERR_NO_MEMORY : start(options, workers);
    if (err != 0) {
        sl_log_error("the job's processes cannot be started: %s", sl_err_name(err));
        sl_bench_ipc_workers_stop(&workers);
        return err;
    }
    *out = workers;
    return 0;
}

void sl_bench_ipc_workers_stop(struct sl_bench_ipc_workers **workers)
{
    struct sl_bench_ipc_workers *gone = *workers;
    *workers = NULL;
    if (gone == NULL) {
        return;
    }
    sl_bench_pslite_job_park(&gone->job, false); /* for the goodbyes */
    if (gone->job.worker_count > 0 && sl_bench_pslite_job_look(&gone->job) == 0) {
        begin_all(gone, &(struct sl_bench_ipc_turn){.what = SL_BENCH_IPC_END});
        (void)sl_bench_pslite_job_wait(&gone->job, END_MS);
    }
    sl_bench_pslite_job_stop(&gone->job);
    sl_bench_pslite_keep_destroy(&gone->keep);
    if (gone->board != NULL) {
        (void)munmap(gone->board, gone->board_bytes);
    }
    free(gone);
}
