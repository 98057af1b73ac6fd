/* A program as ps-lite has them: one binary whose part DMLC_ROLE says. The servers have a handler
 * of their own in place of the sum: of each key they keep the average over all workers, round by
 * round, and a pull is answered when every worker has pushed that round.
 *
 *   cc kv_handler.c $(pkg-config --cflags --libs starling-kv) -o kv_handler
 *   ./kv_handler --local 9876        everything on this machine: a scheduler, 2 servers, 3 workers
 *
 * In a cluster, each process is started as `./kv_handler` with these variables:
 *
 *   DMLC_ROLE=scheduler|server|worker   DMLC_NUM_SERVER=2   DMLC_NUM_WORKER=3
 *   DMLC_PS_ROOT_URI=<the scheduler's host>   DMLC_PS_ROOT_PORT=9876 */
#include <starling_kv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY_COUNT   16
#define LEN         5
#define ROUNDS      20
#define SERVERS_MAX 256
#define WORKERS_MAX 64

/* ---- The servers */

struct average {
    struct average *next;
    uint64_t key;
    uint32_t pushed[WORKERS_MAX]; /* rounds, by worker */
    uint32_t pushes;              /* in the round that goes on */
    uint32_t rounds;              /* that are complete */
    float sum[LEN];               /* of the round that goes on */
    float values[LEN];            /* the average of the last complete one */
};

/* Each server has its own, which only the thread that serves it touches: no lock. */
struct averages {
    uint32_t worker_count;
    struct average *first[SERVERS_MAX];
};

static struct average *find(struct averages *averages, uint32_t server, uint64_t key)
{
    struct average *average = averages->first[server];
    while (average != NULL && average->key != key) {
        average = average->next;
    }
    if (average == NULL && (average = calloc(1, sizeof *average)) != NULL) {
        average->key = key;
        average->next = averages->first[server];
        averages->first[server] = average;
    }
    return average;
}

static void add(struct averages *averages, struct average *average, int32_t worker,
                const float *values)
{
    average->pushed[worker]++;
    average->pushes++;
    for (int i = 0; i < LEN; i++) {
        average->sum[i] += values[i];
    }
    if (average->pushes == averages->worker_count) {
        for (int i = 0; i < LEN; i++) {
            average->values[i] = average->sum[i] / (float)averages->worker_count;
            average->sum[i] = 0;
        }
        average->pushes = 0;
        average->rounds++;
    }
}

/* Looks at everything before it changes anything: a request that has to wait, or is wrong, must
 * leave no trace. */
static int handle(void *ctx, const struct sl_kv_request *request)
{
    struct averages *averages = ctx;
    if (request->server >= SERVERS_MAX || request->array_length != 0 || request->worker < 0 ||
        (uint32_t)request->worker >= averages->worker_count ||
        request->value_count != (uint64_t)request->key_count * LEN ||
        (request->push != NULL && request->pull != NULL)) {
        return SL_ERR_INVALID;
    }
    for (uint32_t i = 0; i < request->key_count; i++) {
        struct average *average = find(averages, request->server, request->keys[i]);
        if (average == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        if (request->pull != NULL && average->rounds < average->pushed[request->worker]) {
            return SL_ERR_AGAIN; /* asked again when another request has been done */
        }
    }
    for (uint32_t i = 0; i < request->key_count; i++) {
        struct average *average = find(averages, request->server, request->keys[i]);
        if (request->push != NULL) {
            add(averages, average, request->worker, (const float *)request->push + i * LEN);
        } else {
            memcpy((float *)request->pull + i * LEN, average->values, sizeof average->values);
        }
    }
    return 0;
}

static int serve(int argc, char **argv)
{
    struct averages averages = {0};
    const char *workers = getenv("DMLC_NUM_WORKER");
    averages.worker_count = workers == NULL ? 0 : (uint32_t)strtoul(workers, NULL, 10);
    if (averages.worker_count < 1 || averages.worker_count > WORKERS_MAX) {
        fprintf(stderr, "DMLC_NUM_WORKER: accepts 1 to %d\n", WORKERS_MAX);
        return 2;
    }
    const struct sl_kv_handler handler = {.handle = handle, .ctx = &averages};
    int status = sl_kv_serve(argc, argv, &handler);
    for (int server = 0; server < SERVERS_MAX; server++) {
        while (averages.first[server] != NULL) {
            struct average *average = averages.first[server];
            averages.first[server] = average->next;
            free(average);
        }
    }
    return status;
}

/* ---- The workers */

static int check(const float *values, float expected)
{
    for (int i = 0; i < KEY_COUNT * LEN; i++) {
        if (values[i] != expected) {
            fprintf(stderr, "value %d is %g instead of %g\n", i, (double)values[i],
                    (double)expected);
            return SL_ERR_PROTOCOL;
        }
    }
    return 0;
}

/* Push and pull are begun one after the other, without waiting in between: the requests of a worker
 * reach a server in this order. */
static int run_round(struct sl_kv *kv, const uint64_t *keys, uint32_t round)
{
    float push[KEY_COUNT * LEN], pull[KEY_COUNT * LEN];
    for (int i = 0; i < KEY_COUNT * LEN; i++) {
        push[i] = (float)(sl_kv_rank(kv) + round);
    }
    struct sl_kv_call call = {
        .batch = {
            .keys = keys, .key_count = KEY_COUNT, .value_count = KEY_COUNT * LEN, .push = push}};
    uint64_t pushed, pulled;
    int err = sl_kv_begin(kv, &call, &pushed);
    if (err != 0) {
        return err;
    }
    call.batch.push = NULL;
    call.batch.pull = pull;
    err = sl_kv_begin(kv, &call, &pulled);
    int push_err = sl_kv_wait(kv, pushed);
    if (err == 0) {
        err = sl_kv_wait(kv, pulled);
    }
    err = err == 0 ? push_err : err;
    float mean_rank = (float)(sl_kv_worker_count(kv) - 1) / 2;
    return err == 0 ? check(pull, mean_rank + (float)round) : err;
}

static int work(void)
{
    struct sl_kv *kv;
    int err = sl_kv_create(&(struct sl_kv_options){0}, &kv);
    if (err != 0) {
        fprintf(stderr, "%s\n", sl_last_error());
        return 1;
    }
    uint64_t keys[KEY_COUNT];
    for (uint64_t i = 0; i < KEY_COUNT; i++) {
        keys[i] = UINT64_MAX / KEY_COUNT * i; /* so that every server has some */
    }
    uint32_t round = 0;
    while (err == 0 && round < ROUNDS) {
        err = run_round(kv, keys, round);
        round += err == 0 ? 1 : 0;
    }
    if (err == 0) {
        err = sl_kv_barrier(kv, "end", 60000);
    }
    printf("worker %u of %u, %u servers: %u rounds: %s\n", sl_kv_rank(kv), sl_kv_worker_count(kv),
           sl_kv_server_count(kv), round, err == 0 ? "as expected" : sl_err_name(err));
    sl_kv_destroy(&kv);
    return err == 0 ? 0 : 1;
}

/* ---- All of it on this machine */

static void start(char **argv, const char *role)
{
    char *const child[] = {argv[0], NULL};
    if (fork() == 0) {
        setenv("DMLC_ROLE", role, 1);
        execv("/proc/self/exe", child);
        _exit(127);
    }
}

static int run_locally(char **argv, const char *port)
{
    setenv("DMLC_PS_ROOT_URI", "127.0.0.1", 1);
    setenv("DMLC_PS_ROOT_PORT", port, 1);
    setenv("DMLC_NODE_HOST", "127.0.0.1", 1);
    setenv("DMLC_NUM_SERVER", "2", 1);
    setenv("DMLC_NUM_WORKER", "3", 1);
    setenv("NETWORK_PS_CORE_NUMBER", "1", 0);
    const char *const roles[] = {"worker", "server", "worker", "scheduler", "server", "worker"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        start(argv, roles[i]);
    }
    int status, failed = 0;
    while (wait(&status) > 0) {
        failed |= status;
    }
    return failed == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--local") == 0) {
        return run_locally(argv, argv[2]);
    }
    enum sl_kv_role role;
    if (sl_kv_role(&role) != 0) {
        fprintf(stderr, "%s\n", sl_last_error());
        return 2;
    }
    return role == SL_KV_WORKER ? work() : serve(argc, argv);
}
