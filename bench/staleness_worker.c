/* A worker: a thread pulls, and writes to a pipe when it has a version; the process takes steps,
 * and posts. A step has no work of its own: its version is found from the times of the pulls. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/now.h"
#include "bench/staleness.h"

#define CLOCKS 8

/* A pull, as the thread that pulls reports it. */
struct pulled {
    uint64_t time_ns, version;
    uint64_t torn; /* pages of another version */
};

struct worker {
    struct sl_bench_staleness *run;
    int control, to, from; /* the pipe */
    int64_t ahead_ns;      /* the trainer's clock, to this one */
    struct sl_bench_staleness_use *uses;
    uint32_t use_count, use_capacity;
    uint32_t at;      /* the use of the next step */
    uint64_t step_ns; /* the next step; 0: there is no version yet */
    uint64_t torn, step_count, step_sum;
};

static uint64_t trainer_now(const struct worker *worker)
{
    return sl_bench_now_ns() + (uint64_t)worker->ahead_ns;
}

static void *pull_all(void *ctx)
{
    const struct worker *worker = ctx;
    struct sl_bench_staleness *run = worker->run;
    struct pulled pulled = {0};
    const uint8_t *memory;
    while (run->mode->pull(run, pulled.version, &pulled.version, &memory) == 0) {
        pulled.time_ns = trainer_now(worker);
        pulled.torn = 0;
        for (uint64_t at = 0; at < run->bytes; at += SL_BENCH_STALENESS_PAGE) {
            uint64_t stamp;
            memcpy(&stamp, memory + at, sizeof stamp);
            pulled.torn += stamp != pulled.version;
        }
        if (write(worker->to, &pulled, sizeof pulled) != sizeof pulled) {
            break;
        }
    }
    (void)close(worker->to);
    return NULL;
}

/* The fastest of some round trips. */
static int compare_clocks(struct worker *worker)
{
    uint64_t least_ns = UINT64_MAX;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < CLOCKS; i++) {
        struct sl_bench_staleness_message message = {.kind = SL_BENCH_STALENESS_CLOCK};
        const uint64_t from_ns = sl_bench_now_ns();
        err = sl_bench_staleness_send(worker->control, &message, NULL);
        err = err != 0 ? err : sl_bench_staleness_receive(worker->control, &message);
        const uint64_t took_ns = sl_bench_now_ns() - from_ns;
        if (err == 0 && took_ns < least_ns) {
            least_ns = took_ns;
            worker->ahead_ns = (int64_t)(message.a - from_ns - took_ns / 2);
        }
    }
    return err;
}

static int add_use(struct worker *worker, const struct pulled *pulled)
{
    if (worker->use_count == worker->use_capacity) {
        worker->use_capacity = 2 * worker->use_capacity + 64;
        struct sl_bench_staleness_use *more =
            realloc(worker->uses, worker->use_capacity * sizeof *more);
        if (more == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        worker->uses = more;
    }
    worker->uses[worker->use_count++] =
        (struct sl_bench_staleness_use){pulled->time_ns, pulled->version};
    worker->torn += pulled->torn > 0;
    worker->step_ns = worker->step_ns == 0 ? pulled->time_ns : worker->step_ns;
    return 0;
}

static void take_steps(struct worker *worker, uint64_t until_ns)
{
    while (worker->step_ns != 0 && worker->step_ns <= until_ns) {
        while (worker->at + 1 < worker->use_count &&
               worker->uses[worker->at + 1].time_ns <= worker->step_ns) {
            worker->at++;
        }
        worker->step_count++;
        worker->step_sum += worker->uses[worker->at].version;
        worker->step_ns += sl_bench_ns(worker->run->options.step_frequency);
    }
}

static int post(struct worker *worker)
{
    const uint64_t now_ns = trainer_now(worker);
    take_steps(worker, now_ns);
    const struct sl_bench_staleness_message message = {.kind = SL_BENCH_STALENESS_POST,
                                                       .a = now_ns,
                                                       .b = worker->step_count,
                                                       .c = worker->step_sum};
    worker->step_count = 0;
    worker->step_sum = 0;
    return message.b > 0 ? sl_bench_staleness_send(worker->control, &message, NULL) : 0;
}

/* Until the trainer ends. */
static int take_part(struct worker *worker, uint64_t start_ns)
{
    struct pollfd ends[] = {{.fd = worker->from, .events = POLLIN},
                            {.fd = worker->control, .events = POLLIN}};
    uint64_t due_ns = start_ns + sl_bench_ns(worker->run->options.post_frequency);
    int err = 0;
    while (err == 0) {
        const uint64_t now_ns = trainer_now(worker);
        struct pulled pulled;
        if (now_ns >= due_ns) {
            err = post(worker);
            due_ns += sl_bench_ns(worker->run->options.post_frequency);
            continue;
        }
        (void)poll(ends, 2, (int)((due_ns - now_ns) / SL_CLOCK_NS_PER_MS) + 1);
        if (ends[1].revents != 0) {
            return 0;
        }
        if (ends[0].revents != 0) {
            err = read(worker->from, &pulled, sizeof pulled) == sizeof pulled
                      ? add_use(worker, &pulled)
                      : SL_ERR_CLOSED;
        }
    }
    return err;
}

static int open_run(struct worker *worker)
{
    struct sl_bench_staleness *run = worker->run;
    struct sl_bench_staleness_message message = {.kind = SL_BENCH_STALENESS_PLACE};
    int ends[2];
    int err = sl_bench_staleness_connect(run->options.trainer, &worker->control);
    err = err != 0 ? err : compare_clocks(worker);
    err = err != 0 ? err : sl_bench_staleness_send(worker->control, &message, NULL);
    err = err != 0 ? err : sl_bench_staleness_receive(worker->control, &message);
    err = err != 0 ? err : sl_bench_staleness_read(worker->control, &run->place, sizeof run->place);
    run->is_first_of_host = err == 0 && message.a == 1;
    run->is_distributed = strncmp(run->options.trainer, "127.", 4) != 0;
    err = err != 0 ? err : run->mode->open_worker(run);
    if (err == 0 && pipe(ends) != 0) {
        err = SL_ERR_IO;
    }
    if (err == 0) {
        worker->from = ends[0];
        worker->to = ends[1];
        message = (struct sl_bench_staleness_message){.kind = SL_BENCH_STALENESS_READY};
        err = sl_bench_staleness_send(worker->control, &message, NULL);
    }
    return err;
}

int sl_bench_staleness_work(struct sl_bench_staleness *run)
{
    struct worker worker = {.run = run};
    struct sl_bench_staleness_message message;
    pthread_t thread;
    int err = open_run(&worker);
    if (err == 0 && pthread_create(&thread, NULL, pull_all, &worker) != 0) {
        err = SL_ERR_NO_MEMORY;
    }
    err = err != 0 ? err : sl_bench_staleness_receive(worker.control, &message);
    err = err != 0 ? err : take_part(&worker, message.a);
    message = (struct sl_bench_staleness_message){
        .kind = SL_BENCH_STALENESS_LOG,
        .bytes = worker.use_count * (uint32_t)sizeof *worker.uses,
        .a = worker.torn,
        .b = trainer_now(&worker),
    };
    err = err != 0 ? err : sl_bench_staleness_send(worker.control, &message, worker.uses);
    if (err != 0) {
        sl_log_error("a worker ends early: %s", sl_err_name(err));
    }
    _exit(err == 0 ? 0 : 1); /* with its threads */
}
