/* A client whose ps is stopped in the middle of its answers: stall_client COORDINATOR PID ROUNDS,
 * by the public API alone. In each round it pulls an array into a buffer, stops the process PID a
 * moment later, and lets the deadline pass. Then the buffer is its own: it writes other values
 * there and lets the process go on. None of these may change. A round in which the answer came
 * before the stop checks that answer. */
#include <signal.h>
#include <starling.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNT      (4U << 20)
#define FIRST      1.0F /* what the ps has */
#define OURS       2.0F /* what the client writes after a failure */
#define DEADLINE   30
#define PATIENCE   60000
#define STOP_US    4000 /* after the submission, at most */
#define NS_PER_US  1000
#define EXIT_USAGE 2

static void check(int err, const char *what)
{
    if (err != 0) {
        (void)fprintf(stderr, "%s: %s\n", what, sl_err_name(err));
        exit(EXIT_FAILURE);
    }
}

static struct sl_table *open_table(struct sl_client *client)
{
    struct sl_table_spec spec = {
        .struct_size = sizeof spec,
        .name = "array",
        .kind = SL_TABLE_DENSE,
        .length = COUNT,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .initializer = {.kind = SL_INITIALIZER_CONSTANT, .value = FIRST},
    };
    struct sl_table *table = NULL;
    check(sl_client_table_open(client, &spec, PATIENCE, &table), "table");
    return table;
}

static struct sl_step *begin(struct sl_client *client, struct sl_table *table, float *to,
                             uint32_t timeout_ms)
{
    struct sl_step *step = NULL;
    check(sl_step_begin(client, 0, &step), "step");
    check(sl_step_dense_pull(step, table, 0, COUNT, to), "pull");
    check(sl_step_submit(step, timeout_ms), "submission");
    return step;
}

static void expect(const float *values, float wanted, const char *what)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        if (values[i] != wanted) {
            (void)fprintf(stderr, "%s: element %u is %g, not %g\n", what, i, (double)values[i],
                          (double)wanted);
            exit(EXIT_FAILURE);
        }
    }
}

/* True: the deadline passed. `other`: memory that no ps writes. */
static bool run_round(struct sl_client *client, struct sl_table *table, pid_t ps, float *other)
{
    void *memory = NULL;
    check(sl_client_buffer_create(client, COUNT * sizeof(float), &memory), "buffer");
    float *values = memory;
    memset(values, 0, COUNT * sizeof(float)); /* its pages are there: the answer is not held up */
    struct sl_step *step = begin(client, table, values, DEADLINE);
    const struct timespec pause = {.tv_nsec = (long)(random() % STOP_US) * NS_PER_US};
    (void)nanosleep(&pause, NULL);
    (void)kill(ps, SIGSTOP);
    const int err = sl_step_wait(step);
    sl_step_destroy(&step);
    for (uint32_t i = 0; err != 0 && i < COUNT; i++) {
        values[i] = OURS;
    }
    (void)kill(ps, SIGCONT);
    /* Its answer shows that the ps has gone on with what it was at. */
    step = begin(client, table, other, PATIENCE);
    check(sl_step_wait(step), "the next pull");
    sl_step_destroy(&step);
    expect(other, FIRST, "the next pull");
    expect(values, err == 0 ? FIRST : OURS, err == 0 ? "the pull" : "after a failed pull");
    sl_client_buffer_free(client, &memory);
    return err != 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        (void)fprintf(stderr, "stall_client COORDINATOR PID ROUNDS\n");
        return EXIT_USAGE;
    }
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator = argv[1],
                                              .task_index = -1,
                                              .start_timeout_ms = PATIENCE};
    const pid_t ps = (pid_t)strtol(argv[2], NULL, 10);
    const long rounds = strtol(argv[3], NULL, 10);
    struct sl_client *client = NULL;
    check(sl_client_create(&options, &client), "client");
    struct sl_table *table = open_table(client);
    float *other = malloc(COUNT * sizeof(float));
    long failed = 0;
    for (long i = 0; other != NULL && i < rounds; i++) {
        failed += run_round(client, table, ps, other);
    }
    free(other);
    sl_client_destroy(&client);
    (void)printf("%ld rounds, %ld past their deadline: as expected\n", rounds, failed);
    return EXIT_SUCCESS;
}
