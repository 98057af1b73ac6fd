/* A process of a job of ps-lite's kind, for kv_joint_test.py: the scheduler, a server, a worker, or
 * joint, a server and a worker at once; everything is given as variables of the options. Each part
 * speaks for its role: barriers of all groups, messages, and pulls whose lengths only the servers
 * know.
 *
 * kv_joint ROLE RANK PORT SERVERS WORKERS [wait]
 *
 * wait: stays at a barrier and with a message to ps/1, which never answers, and says how they
 * end. */
#include <starling_kv.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 60000
#define ALL        (SL_KV_SCHEDULER_GROUP | SL_KV_SERVER_GROUP | SL_KV_WORKER_GROUP)
#define KEYS       8

static const char *process; /* "joint/1" */

static void check(int err, const char *what)
{
    if (err != 0) {
        printf("%s %s: %s: %s\n", process, what, sl_err_name(err), sl_last_error());
        exit(1);
    }
}

static void expect(bool is_true, const char *what)
{
    if (!is_true) {
        printf("%s: %s is wrong\n", process, what);
        exit(1);
    }
}

/* The server's handler: keeps pushes of one value for a key, and answers a pull of key k with k % 5
 * values of it. */

static float sums[KEYS];
static pthread_mutex_t sums_lock = PTHREAD_MUTEX_INITIALIZER;

struct answered {
    uint32_t lens[KEYS];
    float values[KEYS * 5];
};

static void free_answer(void *ctx)
{
    free(ctx);
}

static int handle(void *ctx, const struct sl_kv_request *request)
{
    if (request->token == NULL) {
        return SL_ERR_INVALID;
    }
    struct answered *answered = calloc(1, sizeof *answered);
    struct sl_kv_answer answer = {
        .values = answered->values, .lens = answered->lens, .sent = free_answer, .ctx = answered};
    pthread_mutex_lock(&sums_lock);
    for (uint32_t i = 0; i < request->key_count; i++) {
        const uint32_t key = (uint32_t)(request->keys[i] >> 61);
        answered->lens[i] = key % 5;
        sums[key] += request->push != NULL ? ((const float *)request->push)[i] : 0;
        for (uint32_t j = 0; j < key % 5; j++) {
            answered->values[answer.value_count++] = sums[key];
        }
    }
    pthread_mutex_unlock(&sums_lock);
    sl_kv_reply(request->token, &answer);
    return SL_KV_LATER;
}

/* A part of the process */

struct part {
    struct sl_kv *kv;
    atomic_int answers, heads;
    bool is_silent;
};

static void on_message(void *ctx, const struct sl_kv_message *message)
{
    const struct part *part = ctx;
    if (!part->is_silent) {
        check(sl_kv_message_answer(part->kv, message, message->head + 1, message->body,
                                   message->bytes),
              "answer");
    }
}

static void on_answer(void *ctx, const struct sl_kv_message *message)
{
    struct part *part = ctx;
    part->answers++;
    part->heads += message->head;
    expect(message->bytes == 5 && memcmp(message->body, "hello", 5) == 0, "the answer's body");
}

static void part_begin(struct part *part, const char *const *variables,
                       const struct sl_kv_server *beside, bool is_silent)
{
    const struct sl_kv_options options = {
        .timeout_ms = TIMEOUT_MS, .variables = variables, .beside = beside};
    part->is_silent = is_silent;
    check(sl_kv_create(&options, &part->kv), "create");
    sl_kv_messages(part->kv, on_message, on_answer, part);
}

static void send_to(struct part *part, uint32_t groups, uint32_t receivers)
{
    uint64_t timestamp;
    part->answers = part->heads = 0;
    check(sl_kv_message_send(part->kv, groups, NULL, 6, "hello", 5, &timestamp), "send");
    check(sl_kv_wait(part->kv, timestamp), "wait for answers");
    expect(part->answers == (int)receivers && part->heads == (int)(7 * receivers), "the answers");
}

/* Pulls of unknown lengths, from the handler. */

struct placed {
    uint32_t lens[KEYS];
    float values[KEYS * 5];
    uint64_t count;
};

static void *place(void *ctx, const uint32_t *lens, uint64_t value_count)
{
    struct placed *placed = ctx;
    memcpy(placed->lens, lens, sizeof placed->lens);
    placed->count = value_count;
    return placed->values;
}

static void push_and_pull(struct part *part, uint32_t workers)
{
    uint64_t keys[KEYS], timestamp;
    float ones[KEYS];
    struct placed placed = {0};
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = (uint64_t)i << 61;
        ones[i] = 1;
    }
    check(sl_kv_push(part->kv, keys, KEYS, NULL, ones, KEYS), "push");
    check(sl_kv_barrier(part->kv, "pushed", TIMEOUT_MS), "barrier of workers");
    const struct sl_kv_call call = {
        .batch = {.keys = keys, .key_count = KEYS}, .place = place, .ctx = &placed};
    for (uint32_t round = 0; round < 2; round++) {
        uint64_t at = 0;
        check(sl_kv_begin(part->kv, &call, &timestamp), "begin");
        check(sl_kv_wait(part->kv, timestamp), "pull");
        for (uint32_t i = 0; i < KEYS; i++) {
            expect(placed.lens[i] == i % 5, "a length");
            for (uint32_t j = 0; j < i % 5; j++) {
                expect(placed.values[at++] == (float)workers, "a value");
            }
        }
        expect(placed.count == at, "the count");
    }
}

/* A part that waits for what never happens. */
static void *wait_at_barrier(void *ctx)
{
    struct part *part = ctx;
    const int err = sl_kv_barrier_of(part->kv, "never", ALL, TIMEOUT_MS);
    printf("%s barrier: %s: %s\n", process, sl_err_name(err), sl_last_error());
    return NULL;
}

static void wait_for_ever(struct part *part)
{
    const struct sl_kv_node to = {.role = SL_KV_SERVER, .rank = 1};
    pthread_t thread;
    uint64_t timestamp;
    check(sl_kv_message_send(part->kv, 0, &to, 1, NULL, 0, &timestamp), "send");
    expect(pthread_create(&thread, NULL, wait_at_barrier, part) == 0, "a thread");
    printf("%s waits\n", process);
    const int err = sl_kv_wait(part->kv, timestamp);
    printf("%s message: %s: %s\n", process, sl_err_name(err), sl_last_error());
    pthread_join(thread, NULL);
}

/* What the parts do in a job that nothing disturbs. */
static void work(struct part *beside, struct part *worker, uint32_t servers, uint32_t workers)
{
    struct part *const parts[] = {beside, worker};
    if (worker != NULL) {
        push_and_pull(worker, workers);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (parts[i] != NULL) {
            send_to(parts[i], ALL, 1 + servers + workers);
            send_to(parts[i], SL_KV_SERVER_GROUP, servers);
        }
    }
    pthread_t thread; /* both parts of a process are at the barrier at once */
    const bool is_joint = beside != NULL && worker != NULL;
    if (is_joint) {
        expect(pthread_create(&thread, NULL, wait_at_barrier, worker) == 0, "a thread");
    }
    check(sl_kv_barrier_of(beside != NULL ? beside->kv : worker->kv, "never", ALL, TIMEOUT_MS),
          "end");
    if (is_joint) {
        pthread_join(thread, NULL);
    }
    printf("%s is done\n", process);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        return 2;
    }
    char name[64], texts[5][64];
    const char *role = argv[1];
    static const char *const names[] = {"DMLC_ROLE", "DMLC_RANK", "DMLC_PS_ROOT_PORT",
                                        "DMLC_NUM_SERVER", "DMLC_NUM_WORKER"};
    const char *variables[8] = {"DMLC_PS_ROOT_URI=127.0.0.1", "DMLC_NODE_HOST=127.0.0.1"};
    for (uint32_t i = 0; i < 5; i++) {
        snprintf(texts[i], sizeof texts[i], "%s=%s", names[i], argv[1 + i]);
        variables[2 + i] = texts[i];
    }
    snprintf(name, sizeof name, "%s/%s", role, argv[2]);
    process = name;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const bool waits = argc > 6;
    const bool is_joint = strcmp(role, "joint") == 0;
    const bool is_worker = strcmp(role, "worker") == 0;
    static struct part parts[2];
    struct part *beside = is_worker ? NULL : &parts[0];
    struct part *worker = is_worker || is_joint ? &parts[1] : NULL;
    struct sl_kv_server *server = NULL;
    const struct sl_kv_handler handler = {.handle = handle};
    if (beside != NULL) {
        const struct sl_kv_server_options options = {.variables = variables,
                                                     .handler = is_joint ? &handler : NULL};
        check(sl_kv_server_start(&options, &server), "start");
    }
    if (worker != NULL) {
        part_begin(worker, variables, NULL, false);
    }
    if (beside != NULL) {
        part_begin(beside, NULL, server, waits);
        expect(sl_kv_rank(beside->kv) == (uint32_t)atoi(argv[2]), "the rank");
    }
    if (waits) {
        wait_for_ever(worker != NULL ? worker : beside);
        _exit(0); /* without its job's end */
    }
    work(beside, worker, (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]));
    for (uint32_t i = 0; i < 2; i++) {
        sl_kv_destroy(&parts[i].kv);
    }
    if (server != NULL) {
        check(sl_kv_server_wait(server, TIMEOUT_MS), "the job's end");
        expect(sl_kv_server_stop(&server) == 0, "the exit status");
    }
    return 0;
}
