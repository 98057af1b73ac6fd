#include "bench/staleness_trainer.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/now.h"
#include "core/hash.h"

#define CONNECTIONS_MAX 1024 /* two of a worker */
#define START_NS        (300 * SL_CLOCK_NS_PER_S)
#define END_MS          60000
#define PRINT_NS        (5 * SL_CLOCK_NS_PER_S)

struct mean {
    double sum;
    uint64_t count;
};

struct sl_bench_staleness_trainer {
    struct sl_bench_staleness *run;
    char address[256];
    struct pollfd ends[1 + CONNECTIONS_MAX]; /* the first one listens */
    uint32_t end_count;
    bool is_worker[1 + CONNECTIONS_MAX]; /* from READY to LOG */
    uint32_t ready_count, log_count, host_count;
    struct sockaddr_in hosts[1 + CONNECTIONS_MAX];
    pid_t *children;
    uint32_t child_count;

    uint8_t *memories[SL_BENCH_STALENESS_KEPT];
    uint64_t version;               /* the newest */
    uint64_t *begun_ns, *pushed_ns; /* [version]: the push began, and ended */
    struct mean window, total;
    uint64_t print_ns;
    struct sl_bench_staleness_found *found;
};

/* ---- Reports of workers ---------------------------------------------------------------------- */

/* 0: none yet. */
static uint64_t newest_at(const struct sl_bench_staleness_trainer *trainer, uint64_t time_ns)
{
    uint64_t low = 0, high = trainer->version;
    while (low < high) {
        const uint64_t middle = (low + high + 1) / 2;
        if (trainer->pushed_ns[middle] <= time_ns) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static void take_post(struct sl_bench_staleness_trainer *trainer,
                      const struct sl_bench_staleness_message *post)
{
    const double difference =
        (double)newest_at(trainer, post->a) - (double)post->c / (double)post->b;
    trainer->window.sum += difference;
    trainer->window.count++;
    trainer->total.sum += difference;
    trainer->total.count++;
}

/* A version may be used a moment before its push has returned. */
static uint64_t since(uint64_t time_ns, uint64_t before_ns)
{
    return time_ns > before_ns ? time_ns - before_ns : 0;
}

static void take_log(struct sl_bench_staleness_trainer *trainer,
                     const struct sl_bench_staleness_message *log,
                     const struct sl_bench_staleness_use *uses)
{
    struct sl_bench_staleness_found *found = trainer->found;
    const uint64_t count = log->bytes / sizeof *uses;
    const uint64_t step_ns = sl_bench_ns(trainer->run->options.step_frequency);
    const uint64_t end_ns = trainer->pushed_ns[trainer->version];
    uint64_t time_ns = count > 0 ? uses[0].time_ns : 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t version = uses[i].version,
                       until_ns = i + 1 < count ? uses[i + 1].time_ns : end_ns;
        if (version == 0 || version > trainer->version) {
            continue;
        }
        sl_metric_record(&found->visible, since(uses[i].time_ns, trainer->pushed_ns[version]));
        sl_metric_record(&found->delivered, since(uses[i].time_ns, trainer->begun_ns[version]));
        for (; time_ns < until_ns; time_ns += step_ns) {
            const uint64_t newest = newest_at(trainer, time_ns);
            sl_metric_record(&found->behind, newest > version ? newest - version : 0);
            sl_metric_record(&found->behind_time,
                             newest > version ? since(time_ns, trainer->pushed_ns[version + 1])
                                              : 0);
        }
    }
    found->torn += log->a;
    found->pulls += count;
    trainer->log_count++;
}

static int send_pieces(struct sl_bench_staleness_trainer *trainer, int fd,
                       const struct sl_bench_staleness_message *fetch, const uint32_t *indexes)
{
    const uint64_t version = fetch->a;
    const uint32_t count = fetch->bytes / (uint32_t)sizeof *indexes;
    /* The memory of a version that is older is being filled, or was. */
    const bool has_it =
        version <= trainer->version + 1 && version + SL_BENCH_STALENESS_KEPT > trainer->version + 1;
    struct sl_bench_staleness_message answer = {.kind = fetch->kind};
    answer.bytes = has_it ? count * SL_BENCH_STALENESS_PIECE : 0;
    uint8_t *pieces = malloc(answer.bytes + 1U);
    for (uint32_t i = 0; pieces != NULL && has_it && i < count; i++) {
        const size_t at = (size_t)indexes[i] * SL_BENCH_STALENESS_PIECE;
        if (at + SL_BENCH_STALENESS_PIECE > trainer->run->bytes) {
            free(pieces);
            return SL_ERR_PROTOCOL;
        }
        memcpy(pieces + (size_t)i * SL_BENCH_STALENESS_PIECE,
               trainer->memories[version % SL_BENCH_STALENESS_KEPT] + at, SL_BENCH_STALENESS_PIECE);
    }
    const int err =
        pieces == NULL ? SL_ERR_NO_MEMORY : sl_bench_staleness_send(fd, &answer, pieces);
    free(pieces);
    return err;
}

/* Whether no process of the same address has asked for the place before. */
static bool is_first_of_host(struct sl_bench_staleness_trainer *trainer, uint32_t index)
{
    struct sockaddr_in *at = &trainer->hosts[trainer->host_count];
    socklen_t length = sizeof *at;
    bool is_first = getpeername(trainer->ends[index].fd, (struct sockaddr *)at, &length) == 0;
    for (uint32_t i = 0; i < trainer->host_count; i++) {
        is_first = is_first && trainer->hosts[i].sin_addr.s_addr != at->sin_addr.s_addr;
    }
    trainer->host_count += is_first;
    return is_first;
}

static int answer(struct sl_bench_staleness_trainer *trainer, uint32_t index,
                  const struct sl_bench_staleness_message *message, const void *payload)
{
    const int fd = trainer->ends[index].fd;
    struct sl_bench_staleness_message answer = {.kind = message->kind};
    switch (message->kind) {
    case SL_BENCH_STALENESS_CLOCK:
        answer.a = sl_bench_now_ns();
        return sl_bench_staleness_send(fd, &answer, NULL);
    case SL_BENCH_STALENESS_PLACE:
        answer.bytes = sizeof trainer->run->place;
        answer.a = is_first_of_host(trainer, index);
        return sl_bench_staleness_send(fd, &answer, &trainer->run->place);
    case SL_BENCH_STALENESS_READY:
        trainer->is_worker[index] = true;
        trainer->ready_count++;
        return 0;
    case SL_BENCH_STALENESS_POST:
        if (message->b > 0) {
            take_post(trainer, message);
        }
        return 0;
    case SL_BENCH_STALENESS_LOG:
        take_log(trainer, message, payload);
        trainer->is_worker[index] = false;
        return 0;
    case SL_BENCH_STALENESS_FETCH:
        return send_pieces(trainer, fd, message, payload);
    default:
        return SL_ERR_PROTOCOL;
    }
}

static int take_message(struct sl_bench_staleness_trainer *trainer, uint32_t index)
{
    const int fd = trainer->ends[index].fd;
    struct sl_bench_staleness_message message;
    int err = sl_bench_staleness_receive(fd, &message);
    void *payload = err == 0 && message.bytes < (64U << 20) ? malloc(message.bytes + 1U) : NULL;
    err = err == 0 && payload == NULL ? SL_ERR_NO_MEMORY : err;
    err = err != 0 ? err : sl_bench_staleness_read(fd, payload, message.bytes);
    err = err != 0 ? err : answer(trainer, index, &message, payload);
    free(payload);
    return err;
}

static void take_connection(struct sl_bench_staleness_trainer *trainer)
{
    const int fd = accept(trainer->ends[0].fd, NULL, NULL);
    if (fd >= 0 && trainer->end_count < 1 + CONNECTIONS_MAX) {
        trainer->ends[trainer->end_count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    } else if (fd >= 0) {
        (void)close(fd);
    }
}

static void print_average(const struct mean *mean)
{
    if (mean->count > 0) {
        printf("Average Version difference %.2f\n", mean->sum / (double)mean->count);
        (void)fflush(stdout);
    }
}

int sl_bench_staleness_serve(struct sl_bench_staleness_trainer *trainer, uint64_t until_ns)
{
    uint64_t now_ns;
    do {
        now_ns = sl_bench_now_ns();
        const uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        const struct timespec left = {.tv_sec = (time_t)(left_ns / SL_CLOCK_NS_PER_S),
                                      .tv_nsec = (long)(left_ns % SL_CLOCK_NS_PER_S)};
        (void)ppoll(trainer->ends, trainer->end_count, &left, NULL);
        for (uint32_t i = 1; i < trainer->end_count; i++) {
            const int err = trainer->ends[i].revents != 0 ? take_message(trainer, i) : 0;
            if (err != 0 && trainer->is_worker[i]) {
                sl_log_error("a worker has ended: %s", sl_err_name(err));
                return err;
            }
            if (err != 0) { /* its second connection, or after its log */
                trainer->ends[i].fd = -1;
            }
        }
        if (trainer->ends[0].revents != 0) {
            take_connection(trainer);
        }
        now_ns = sl_bench_now_ns();
        if (trainer->print_ns != 0 && now_ns >= trainer->print_ns) {
            print_average(&trainer->window);
            trainer->window = (struct mean){0};
            trainer->print_ns += PRINT_NS;
        }
    } while (now_ns < until_ns);
    return 0;
}

/* ---- Workers --------------------------------------------------------------------------------- */

/* argv of the workers: this program's, and the trainer's address. */
static int start_workers(struct sl_bench_staleness_trainer *trainer, int argc, char **argv)
{
    const struct sl_bench_staleness *run = trainer->run;
    const struct sl_bench_staleness_options *options = &run->options;
    static struct sl_bench_arguments arguments;
    char program[SL_BENCH_PATH_BYTES];
    if (!sl_bench_child_beside("starling-bench", X_OK, program)) {
        sl_log_error("there is no starling-bench beside this program");
        return SL_ERR_NOT_FOUND;
    }
    const uint64_t workers = options->workers;
    const uint64_t per_node = options->workers_per_node > 0 ? options->workers_per_node : workers;
    if (run->is_distributed) {
        sl_bench_arguments_add(&arguments, "srun");
        sl_bench_arguments_add(&arguments, "--ntasks=%" PRIu64, workers);
        sl_bench_arguments_add(&arguments, "--nodes=%" PRIu64, (workers + per_node - 1) / per_node);
        sl_bench_arguments_add(&arguments, "--ntasks-per-node=%" PRIu64, per_node);
        sl_bench_arguments_add(&arguments, "--overlap");
        sl_bench_arguments_add(&arguments, "--kill-on-bad-exit=1");
    }
    sl_bench_arguments_add(&arguments, "%s", program);
    sl_bench_arguments_add(&arguments, "staleness");
    for (int i = 1; i < argc; i++) {
        sl_bench_arguments_add(&arguments, "%s", argv[i]);
    }
    sl_bench_arguments_add(&arguments, "--trainer=%s", trainer->address);
    const uint32_t count = run->is_distributed ? 1 : (uint32_t)workers;
    trainer->children = calloc(count, sizeof *trainer->children);
    int err = trainer->children != NULL ? 0 : SL_ERR_NO_MEMORY;
    while (err == 0 && trainer->child_count < count) {
        err = sl_bench_child_start(&arguments, false, &trainer->children[trainer->child_count]);
        trainer->child_count += err == 0;
    }
    return err;
}

static int send_to_workers(struct sl_bench_staleness_trainer *trainer, uint32_t kind)
{
    const struct sl_bench_staleness_message message = {.kind = kind, .a = sl_bench_now_ns()};
    int err = 0;
    for (uint32_t i = 1; err == 0 && i < trainer->end_count; i++) {
        err = trainer->is_worker[i] ? sl_bench_staleness_send(trainer->ends[i].fd, &message, NULL)
                                    : 0;
    }
    return err;
}

/* Before it has connected, too. */
static bool has_ended(const struct sl_bench_staleness_trainer *trainer)
{
    for (uint32_t i = 0; i < trainer->child_count; i++) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)trainer->children[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid != 0) {
            return true;
        }
    }
    return false;
}

/* Serves until all workers have sent what is counted. */
static int await(struct sl_bench_staleness_trainer *trainer, const uint32_t *count,
                 uint64_t timeout_ns)
{
    const uint64_t end_ns = sl_bench_now_ns() + timeout_ns;
    int err = 0;
    while (err == 0 && *count < trainer->run->options.workers) {
        const uint64_t now_ns = sl_bench_now_ns();
        err = now_ns >= end_ns ? SL_ERR_DEADLINE
              : count == &trainer->ready_count && has_ended(trainer)
                  ? SL_ERR_CLOSED
                  : sl_bench_staleness_serve(trainer, now_ns + SL_CLOCK_NS_PER_MS);
    }
    if (err != 0) {
        sl_log_error("%u of %" PRIu64 " workers: %s", *count, trainer->run->options.workers,
                     sl_err_name(err));
    }
    return err;
}

/* ---- Pushes ---------------------------------------------------------------------------------- */

/* A step: the version before, in which a share of the elements has another value. */
static void change(struct sl_bench_staleness_trainer *trainer, uint64_t version)
{
    const struct sl_bench_staleness *run = trainer->run;
    static uint64_t random;
    uint16_t *weights = (void *)trainer->memories[version % SL_BENCH_STALENESS_KEPT];
    const uint64_t count = run->bytes / sizeof *weights;
    const double share = run->options.changed;
    if (share == 0) {
        return;
    }
    memcpy(weights, trainer->memories[(version - 1) % SL_BENCH_STALENESS_KEPT], run->bytes);
    for (uint64_t i = 0; share < 1 && i < (uint64_t)(share * (double)count); i++) {
        const uint64_t drawn = sl_hash_random(&random);
        weights[drawn % count] ^= (uint16_t)(drawn >> 40 | 1);
    }
    for (uint64_t i = 0; share >= 1 && i < count; i++) {
        weights[i] = (uint16_t)sl_hash_random(&random);
    }
}

static int push_all(struct sl_bench_staleness_trainer *trainer)
{
    struct sl_bench_staleness *run = trainer->run;
    const struct sl_bench_staleness_options *options = &run->options;
    const uint64_t begun_ns = sl_bench_now_ns(), interval_ns = sl_bench_ns(options->push_frequency);
    const uint64_t end_ns = begun_ns + sl_bench_ns(options->max_time);
    uint64_t due_ns = begun_ns, now_ns = begun_ns, push_ns = 0, version = 1;
    int err = 0;
    trainer->print_ns = begun_ns + PRINT_NS;
    for (; err == 0 && version <= options->max_version && now_ns < end_ns; version++) {
        uint8_t *memory = trainer->memories[version % SL_BENCH_STALENESS_KEPT];
        change(trainer, version);
        for (uint64_t at = 0; at < run->bytes; at += SL_BENCH_STALENESS_PAGE) {
            memcpy(memory + at, &version, sizeof version);
        }
        const uint64_t from_ns = sl_bench_now_ns();
        err = run->mode->push(run, version);
        now_ns = sl_bench_now_ns();
        push_ns += now_ns - from_ns;
        if (version == SL_BENCH_STALENESS_FIRST) {
            trainer->found->first_bytes = run->sent_bytes + sl_bench_tcp_bytes_sent();
        }
        trainer->begun_ns[version] = from_ns;
        trainer->pushed_ns[version] = now_ns;
        trainer->version = version;
        due_ns = due_ns + interval_ns > now_ns ? due_ns + interval_ns : now_ns;
        err = err != 0 ? err : sl_bench_staleness_serve(trainer, due_ns);
        now_ns = sl_bench_now_ns();
    }
    trainer->found->pushes = trainer->version;
    trainer->found->push_seconds =
        trainer->version > 0 ? sl_bench_seconds(push_ns) / (double)trainer->version : 0;
    trainer->found->sent_bytes = run->sent_bytes + sl_bench_tcp_bytes_sent();
    print_average(&trainer->total);
    printf("Final verison: %" PRIu64 "\n", version);
    printf("Time per push: %.2f seconds\n", trainer->found->push_seconds);
    (void)fflush(stdout);
    return err;
}

static int train(struct sl_bench_staleness_trainer *trainer, int argc, char **argv)
{
    int err = start_workers(trainer, argc, argv);
    err = err != 0 ? err : await(trainer, &trainer->ready_count, START_NS);
    err = err != 0 ? err : send_to_workers(trainer, SL_BENCH_STALENESS_READY);
    err = err != 0 ? err : push_all(trainer);
    err = err != 0 ? err : send_to_workers(trainer, SL_BENCH_STALENESS_END);
    err = err != 0 ? err : await(trainer, &trainer->log_count, START_NS);
    for (uint32_t i = 0; i < trainer->child_count; i++) {
        if (err == 0) {
            err = sl_bench_child_wait(&trainer->children[i], END_MS);
        } else {
            sl_bench_child_stop(&trainer->children[i]);
        }
    }
    trainer->found->average =
        trainer->total.count > 0 ? trainer->total.sum / (double)trainer->total.count : 0;
    return err;
}

int sl_bench_staleness_train(struct sl_bench_staleness *run, int argc, char **argv,
                             struct sl_bench_staleness_found *found)
{
    static struct sl_bench_staleness_trainer trainer;
    trainer.run = run;
    trainer.found = found;
    run->trainer = &trainer;
    sl_metric_init(&found->behind);
    sl_metric_init(&found->behind_time);
    sl_metric_init(&found->visible);
    sl_metric_init(&found->delivered);
    trainer.begun_ns = calloc(run->options.max_version + 1, sizeof *trainer.begun_ns);
    trainer.pushed_ns = calloc(run->options.max_version + 1, sizeof *trainer.pushed_ns);
    bool has_memory = trainer.pushed_ns != NULL && trainer.begun_ns != NULL;
    for (uint32_t i = 0; i < SL_BENCH_STALENESS_KEPT; i++) {
        run->memories[i] = trainer.memories[i] = calloc(1, run->bytes);
        has_memory = has_memory && trainer.memories[i] != NULL;
    }
    int err = has_memory ? 0 : SL_ERR_NO_MEMORY;
    err = err != 0 ? err
                   : sl_bench_staleness_listen(run->is_distributed, &trainer.ends[0].fd,
                                               trainer.address);
    trainer.ends[0].events = POLLIN;
    trainer.end_count = 1;
    err = err != 0 ? err : run->mode->open_trainer(run);
    err = err != 0 ? err : train(&trainer, argc, argv);
    run->mode->close_trainer(run);
    for (uint32_t i = 0; i < SL_BENCH_STALENESS_KEPT; i++) {
        free(trainer.memories[i]);
    }
    free(trainer.begun_ns);
    free(trainer.pushed_ns);
    free(trainer.children);
    return err;
}
