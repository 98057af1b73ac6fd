/* A worker whose pushes can be counted afterwards: sums of integers, by the public API alone. In
 * each iteration it sends every shard one number, as one push of two keys: one that all workers
 * share, and one of its own, the witness, which belongs to this iteration of this run alone. A push
 * is carried out as a whole, so a witness says how often that was: not at all, once, or, what must
 * never be, more. What is asked for and what is acknowledged is written down, line by line. It
 * repeats nothing by itself. sum_job.py starts these workers and looks at what they leave. */
#include <fcntl.h>
#include <getopt.h>
#include <starling.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHARDS_MAX   64
#define SAY_EVERY    8 /* iterations */
#define EXIT_USAGE   2
#define TABLE_COUNT  2
#define KEYS_MAX     (2 * SHARDS_MAX)
#define MS_PER_S     1000
#define NS_PER_MS    1000000
#define WITNESS_BITS 16 /* among so many keys one is on each shard */
#define OPEN_MS      60000
#define LOOK_MS      5

struct job {
    struct sl_client_options client;
    struct sl_consistency_spec consistency;
    uint32_t iterations;
    uint32_t run; /* 0 for the first process of this index, 1 for the one in its place, ... */
    uint32_t timeout_ms, pause_ms;
    uint32_t checkpoint_after; /* so many iterations it asks for a checkpoint; 0: it does not */
    bool goes_on;              /* after a step that failed; such a worker does not tick */
    const char *gate; /* a file: until it is there, the last iteration waits; NULL: it does not */
    int record;       /* file descriptor */
    const char *metrics; /* folder for a file with the client's page, after its finish; or NULL */
};

struct worker {
    const struct job *job;
    struct sl_client *client;
    struct sl_table *tables[TABLE_COUNT];
    uint32_t shard_count;
    uint32_t acknowledged, failed;
    /* Of the step that is outstanding: the library reads and writes them until it is done. */
    uint64_t keys[KEYS_MAX]; /* the shared one of each shard, then each shard's witness */
    float gradients[TABLE_COUNT][KEYS_MAX];
    float rows[TABLE_COUNT][SHARDS_MAX];
};

/* The sum as ps-lite has it, and by gradient descent with a rate of 1. Narrow precisions push these
 * numbers without rounding. */
static const struct {
    const char *name;
    struct sl_optimizer_spec optimizer;
    float sign;
    enum sl_precision pull, push;
} TABLES[TABLE_COUNT] = {
    {"sum", {.kind = SL_OPTIMIZER_SUM, .lr = 1}, 1, SL_PRECISION_F32, SL_PRECISION_F32},
    {"sgd", {.kind = SL_OPTIMIZER_SGD, .lr = 1}, -1, SL_PRECISION_BF16, SL_PRECISION_INT8},
};

/* Where a key lives, as docs/protocol.md says it. */
static uint32_t shard_of(uint64_t key, uint32_t shard_count)
{
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9;
    key = (key ^ key >> 27) * 0x94d049bb133111eb;
    key ^= key >> 31;
    return (uint32_t)((key >> 48) * shard_count >> 16);
}

/* The first key from `base` on that the shard owns. */
static uint64_t key_on(uint32_t shard, uint32_t shard_count, uint64_t base)
{
    while (shard_of(base, shard_count) != shard) {
        base++;
    }
    return base;
}

/* Where the witnesses of one iteration begin; the shared keys begin at 0. */
static uint64_t witness_base(const struct job *job, uint32_t iteration)
{
    uint64_t process = ((uint64_t)job->client.task_index + 1) << 8 | job->run;
    return (process << 24 | iteration) << WITNESS_BITS;
}

static void say(const char *text, uint32_t iteration)
{
    printf("%s %u\n", text, iteration);
    (void)fflush(stdout);
}

/* Writes one line with one call: a reader of the file finds all lines that were written before a
 * kill. */
static void note(const struct worker *worker, const char *what, uint32_t iteration)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %u %u\n", what, worker->job->run, iteration);
    if (write(worker->job->record, line, (size_t)length) != length) {
        perror("sum_worker: --record");
        _exit(EXIT_FAILURE);
    }
}

static void choose(struct worker *worker, uint32_t iteration)
{
    const float number = (float)(1 + (iteration + (uint32_t)worker->job->client.task_index) % 7);
    uint32_t count = worker->shard_count;
    for (uint32_t shard = 0; shard < count; shard++) {
        worker->keys[shard] = key_on(shard, count, 0);
        worker->keys[count + shard] = key_on(shard, count, witness_base(worker->job, iteration));
    }
    for (uint32_t table = 0; table < TABLE_COUNT; table++) {
        for (uint32_t i = 0; i < 2 * count; i++) {
            worker->gradients[table][i] = TABLES[table].sign * number;
        }
    }
}

/* Pushes the iteration's numbers, ticks, and pulls the shared keys for the next one. */
static int fill(struct worker *worker, struct sl_step *step)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < TABLE_COUNT; i++) {
        err = sl_step_push(step, worker->tables[i], worker->keys, 2 * worker->shard_count,
                           worker->gradients[i]);
    }
    if (err == 0 && !worker->job->goes_on) {
        err = sl_step_tick(step);
    }
    for (uint32_t i = 0; err == 0 && i < TABLE_COUNT; i++) {
        err = sl_step_pull(step, worker->tables[i], worker->keys, worker->shard_count,
                           worker->rows[i]);
    }
    return err;
}

static int iterate(struct worker *worker, uint32_t iteration)
{
    struct sl_step *step;
    note(worker, "asked", iteration);
    int err = sl_step_begin(worker->client, worker->job->goes_on ? 0 : iteration, &step);
    if (err != 0) {
        return err;
    }
    choose(worker, iteration);
    err = fill(worker, step);
    if (err == 0) {
        err = sl_step_submit(step, worker->job->timeout_ms);
    }
    if (err == 0) {
        err = sl_step_wait(step);
    }
    if (err == 0) {
        note(worker, "acknowledged", iteration);
    } else {
        printf("iteration %u failed: %s: %s\n", iteration, sl_err_name(err), sl_step_error(step));
        (void)fflush(stdout);
    }
    sl_step_destroy(&step);
    return err;
}

static void rest(uint32_t pause_ms)
{
    const struct timespec pause = {
        .tv_sec = pause_ms / MS_PER_S,
        .tv_nsec = (long)(pause_ms % MS_PER_S) * NS_PER_MS,
    };
    (void)nanosleep(&pause, NULL);
}

/* So that a worker is not done before the test has come to it, however fast it is. */
static void wait_at_gate(const struct job *job, uint32_t iteration)
{
    bool waits = job->gate != NULL && iteration + 1 >= job->iterations;
    while (waits && access(job->gate, F_OK) != 0) {
        rest(LOOK_MS);
    }
}

/* What it has been acknowledged by then is in it. */
static void make_checkpoint(const struct worker *worker, uint32_t iteration)
{
    uint64_t number;
    if (worker->job->checkpoint_after == 0 || iteration + 1 != worker->job->checkpoint_after) {
        return;
    }
    int err = sl_client_checkpoint(worker->client, worker->job->timeout_ms, &number);
    if (err != 0) {
        (void)fprintf(stderr, "sum_worker: %s\n", sl_last_error());
        _exit(EXIT_FAILURE);
    }
    say("has checkpoint", (uint32_t)number);
}

static void work(struct worker *worker, uint32_t begin)
{
    const struct job *job = worker->job;
    for (uint32_t i = begin; i < job->iterations; i++) {
        wait_at_gate(job, i);
        if (iterate(worker, i) == 0) {
            worker->acknowledged++;
        } else if (++worker->failed != 0 && !job->goes_on) {
            return;
        }
        make_checkpoint(worker, i);
        if (i % SAY_EVERY == 0) {
            say("iteration", i);
        }
        rest(job->pause_ms);
    }
}

static int open_tables(struct worker *worker)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < TABLE_COUNT; i++) {
        struct sl_table_spec spec = {.struct_size = sizeof spec, .kind = SL_TABLE_SPARSE, .dim = 1};
        (void)snprintf(spec.name, sizeof spec.name, "%s", TABLES[i].name);
        spec.optimizer = TABLES[i].optimizer;
        spec.consistency = worker->job->consistency;
        err = sl_client_table_open(worker->client, &spec, OPEN_MS, &worker->tables[i]);
        const struct sl_encoding_options encoding = {
            .struct_size = sizeof encoding, .pull = TABLES[i].pull, .push = TABLES[i].push};
        err = err != 0 ? err : sl_table_set_encoding(worker->tables[i], &encoding);
    }
    return err;
}

/* Finishes, so that nothing is sent afterwards, and writes the page of all that was. */
static int write_metrics(const struct worker *worker)
{
    static char page[1 << 16], path[4096];
    struct sl_step *step;
    int err = sl_step_begin(worker->client, worker->job->iterations, &step);
    err = err != 0 ? err : sl_step_finish(step);
    err = err != 0 ? err : sl_step_submit(step, worker->job->timeout_ms);
    err = err != 0 ? err : sl_step_wait(step);
    if (err != 0) {
        return err;
    }
    sl_step_destroy(&step);
    (void)snprintf(path, sizeof path, "%s/%d", worker->job->metrics,
                   sl_client_task_index(worker->client));
    const int bytes = sl_client_metrics(worker->client, page, sizeof page);
    FILE *file = fopen(path, "we");
    if (bytes < 0 || bytes >= (int)sizeof page || file == NULL || fputs(page, file) < 0 ||
        fclose(file) != 0) {
        return SL_ERR_IO;
    }
    return 0;
}

/* 0 when every step was acknowledged, or the worker was told to go on. One that fails says no
 * goodbye, so that another can take its place. */
static int run(const struct job *job)
{
    struct worker worker = {.job = job};
    int err = sl_client_create(&job->client, &worker.client);
    if (err != 0) {
        (void)fprintf(stderr, "sum_worker: %s\n", sl_last_error());
        return EXIT_FAILURE;
    }
    worker.shard_count = sl_client_shard_count(worker.client);
    if (worker.shard_count > SHARDS_MAX || open_tables(&worker) != 0) {
        (void)fprintf(stderr, "sum_worker: cannot open its tables\n");
        _exit(EXIT_FAILURE);
    }
    uint32_t begin = sl_client_clock(worker.client);
    say("begins with iteration", begin);
    work(&worker, begin);
    if (job->metrics != NULL && write_metrics(&worker) != 0) {
        (void)fprintf(stderr, "sum_worker: --metrics: %s\n", sl_last_error());
        return EXIT_FAILURE;
    }
    printf("done: %u acknowledged, %u failed\n", worker.acknowledged, worker.failed);
    (void)fflush(stdout);
    if (worker.failed != 0 && !job->goes_on) {
        _exit(EXIT_FAILURE);
    }
    sl_client_destroy(&worker.client);
    return EXIT_SUCCESS;
}

/* "asp", "bsp", "ssp:N"; false: none of them. */
static bool parse_consistency(const char *text, struct sl_consistency_spec *out)
{
    if (strncmp(text, "ssp:", 4) == 0) {
        out->mode = SL_CONSISTENCY_SSP;
        out->staleness = (uint32_t)strtoul(text + 4, NULL, 10);
        return true;
    }
    out->mode = strcmp(text, "bsp") == 0 ? SL_CONSISTENCY_BSP : SL_CONSISTENCY_ASP;
    return strcmp(text, "bsp") == 0 || strcmp(text, "asp") == 0;
}

enum flag {
    COORDINATOR,
    TASK,
    WORKERS,
    CONSISTENCY,
    ITERATIONS,
    RUN,
    TIMEOUT,
    PAUSE,
    RECORD,
    GOES_ON,
    GATE,
    CHECKPOINT_AFTER,
    NO_SHM,
    DPDK_DEVICE,
    METRICS,
};

static const struct option FLAGS[] = {
    {"coordinator", required_argument, NULL, COORDINATOR},
    {"task-index", required_argument, NULL, TASK},
    {"workers", required_argument, NULL, WORKERS},
    {"consistency", required_argument, NULL, CONSISTENCY},
    {"iterations", required_argument, NULL, ITERATIONS},
    {"run", required_argument, NULL, RUN},
    {"timeout-ms", required_argument, NULL, TIMEOUT},
    {"pause-ms", required_argument, NULL, PAUSE},
    {"record", required_argument, NULL, RECORD},
    {"goes-on", no_argument, NULL, GOES_ON},
    {"gate", required_argument, NULL, GATE},
    {"checkpoint-after", required_argument, NULL, CHECKPOINT_AFTER},
    {"no-shm", no_argument, NULL, NO_SHM},
    {"dpdk-device", required_argument, NULL, DPDK_DEVICE},
    {"metrics", required_argument, NULL, METRICS},
    {NULL, 0, NULL, 0},
};

static bool take_flag(struct job *job, enum flag flag)
{
    uint32_t number = optarg == NULL ? 0 : (uint32_t)strtoul(optarg, NULL, 10);
    switch (flag) {
    case COORDINATOR:
        job->client.coordinator = optarg;
        return true;
    case TASK:
        job->client.task_index = (int32_t)number;
        return true;
    case WORKERS:
        job->consistency.worker_count = number;
        return true;
    case CONSISTENCY:
        return parse_consistency(optarg, &job->consistency);
    case ITERATIONS:
        job->iterations = number;
        return true;
    case RUN:
        job->run = number;
        return true;
    case TIMEOUT:
        job->timeout_ms = number;
        return true;
    case PAUSE:
        job->pause_ms = number;
        return true;
    case RECORD:
        job->record = open(optarg, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        return job->record >= 0;
    case GOES_ON:
        job->goes_on = true;
        return true;
    case GATE:
        job->gate = optarg;
        return true;
    case CHECKPOINT_AFTER:
        job->checkpoint_after = number;
        return true;
    case NO_SHM:
        job->client.disable_shm = true;
        return true;
    case DPDK_DEVICE:
        job->client.dpdk_device = optarg;
        return true;
    case METRICS:
        job->metrics = optarg;
        return true;
    }
    return false; /* unknown */
}

int main(int argc, char **argv)
{
    struct job job = {
        .client = SL_CLIENT_OPTIONS_INIT, .iterations = 100, .timeout_ms = 60000, .record = -1};
    bool fine = true;
    int flag;
    while (fine && (flag = getopt_long(argc, argv, "", FLAGS, NULL)) != -1) {
        fine = take_flag(&job, (enum flag)flag);
    }
    if (!fine || job.client.coordinator == NULL || job.record < 0) {
        (void)fprintf(stderr, "sum_worker: started by sum_job.py, which knows its flags\n");
        return EXIT_USAGE;
    }
    if (job.consistency.mode == SL_CONSISTENCY_ASP) {
        job.consistency.worker_count = 0;
    }
    return run(&job);
}
