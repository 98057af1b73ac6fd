/* Servers on threads of a program, with handlers that answer later; for kv_later_test.py.
 *
 *   kv_later rounds PORT SERVERS WORKERS ROUNDS VALUES   all in one process
 *   kv_later servers PORT SERVERS WORKERS                scheduler and servers, until the job ends
 *   kv_later late PORT SERVERS WORKERS ROUNDS VALUES     one worker, which reads a line after round
 * 0 kv_later victim PORT SERVERS WORKERS ROUNDS VALUES   a worker that waits to be killed in round
 * 1 kv_later silent | stopped | twice | later | sum | refused PORT   see the functions
 *
 * The handler passes requests to engine threads. These add up the pushes of a round; when the last
 * worker has pushed, they answer the pulls of that round. */
#include <pthread.h>
#include <starling_kv.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS        4
#define ENGINES     2
#define SERVERS_MAX 8
#define WORKERS_MAX 8

#define CHECK(condition)                                                                           \
    ((condition)                                                                                   \
         ? (void)0                                                                                 \
         : (fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, sl_last_error()),   \
            exit(3)))

static uint32_t server_count, worker_count;
static const char *port;

/* Engines */

struct work {
    struct work *next;
    struct sl_kv_token *token;
    uint64_t key, value_count;
    int32_t worker;
    bool pushes;
    float values[];
};

/* The array of a key. */
struct sums {
    struct sums *next;
    uint64_t key;
    uint32_t pushed[WORKERS_MAX]; /* rounds, by worker */
    uint32_t pushes, rounds;
    uint64_t value_count;
    float *sum, *result; /* of this round, of the last one */
    struct work *pulls;  /* that wait for the end of this round */
};

struct engine {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **end;
    bool stops;
    struct sums *sums;
};

static struct engine engines[ENGINES];
static _Atomic uint32_t kept, answered, sent;

static void values_sent(void *ctx)
{
    free(ctx);
    sent++;
}

static void answer(struct work *work, const float *values)
{
    const size_t bytes = work->value_count * sizeof *values;
    struct sl_kv_answer answer = {.value_count = work->value_count, .sent = values_sent};
    if (values != NULL) {
        answer.values = answer.ctx = memcpy(malloc(bytes), values, bytes);
    }
    answered++;
    sl_kv_reply(work->token, &answer);
    free(work);
}

static struct sums *sums_of(struct engine *engine, const struct work *work)
{
    struct sums *sums = engine->sums;
    while (sums != NULL && sums->key != work->key) {
        sums = sums->next;
    }
    if (sums == NULL) {
        sums = calloc(1, sizeof *sums);
        *sums = (struct sums){.next = engine->sums, .key = work->key};
        sums->value_count = work->value_count;
        sums->sum = calloc(work->value_count, sizeof(float));
        sums->result = calloc(work->value_count, sizeof(float));
        engine->sums = sums;
    }
    CHECK(sums->value_count == work->value_count);
    return sums;
}

static void end_round(struct sums *sums)
{
    memcpy(sums->result, sums->sum, sums->value_count * sizeof(float));
    memset(sums->sum, 0, sums->value_count * sizeof(float));
    sums->pushes = 0;
    sums->rounds++;
    while (sums->pulls != NULL) {
        struct work *pull = sums->pulls;
        sums->pulls = pull->next;
        answer(pull, sums->result);
    }
}

static void run_work(struct engine *engine, struct work *work)
{
    struct sums *sums = sums_of(engine, work);
    if (work->pushes) {
        sums->pushed[work->worker]++;
        sums->pushes++;
        for (uint64_t i = 0; i < work->value_count; i++) {
            sums->sum[i] += work->values[i];
        }
        answer(work, NULL);
        if (sums->pushes == worker_count) {
            end_round(sums);
        }
    } else if (sums->rounds >= sums->pushed[work->worker]) {
        answer(work, sums->result);
    } else {
        work->next = sums->pulls;
        sums->pulls = work;
    }
}

static void *engine_run(void *ctx)
{
    struct engine *engine = ctx;
    pthread_mutex_lock(&engine->lock);
    while (!engine->stops || engine->first != NULL) {
        struct work *work = engine->first;
        if (work == NULL) {
            pthread_cond_wait(&engine->changed, &engine->lock);
            continue;
        }
        engine->first = work->next;
        engine->end = engine->first == NULL ? &engine->first : engine->end;
        pthread_mutex_unlock(&engine->lock);
        run_work(engine, work);
        pthread_mutex_lock(&engine->lock);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

static void engines_start(void)
{
    for (uint32_t i = 0; i < ENGINES; i++) {
        pthread_mutex_init(&engines[i].lock, NULL);
        pthread_cond_init(&engines[i].changed, NULL);
        engines[i].end = &engines[i].first;
        CHECK(pthread_create(&engines[i].thread, NULL, engine_run, &engines[i]) == 0);
    }
}

/* Answers what is left, after the servers have stopped. */
static void engines_stop(void)
{
    for (uint32_t i = 0; i < ENGINES; i++) {
        struct engine *engine = &engines[i];
        pthread_mutex_lock(&engine->lock);
        engine->stops = true;
        pthread_cond_signal(&engine->changed);
        pthread_mutex_unlock(&engine->lock);
        pthread_join(engine->thread, NULL);
        while (engine->sums != NULL) {
            struct sums *sums = engine->sums;
            engine->sums = sums->next;
            end_round(sums);
            free(sums->sum);
            free(sums->result);
            free(sums);
        }
    }
    CHECK(kept == answered);
    CHECK(kept == sent);
}

/* One key a request. */
static int pass_to_engine(void *ctx, const struct sl_kv_request *request)
{
    const bool pushes = request->push != NULL;
    if (request->key_count != 1 || request->worker < 0 || request->token == NULL ||
        (pushes && request->pull != NULL)) {
        return SL_ERR_INVALID;
    }
    struct engine *engine = &engines[request->keys[0] / 7 % ENGINES];
    const size_t bytes = pushes ? request->value_count * sizeof(float) : 0;
    struct work *work = malloc(sizeof *work + bytes);
    *work = (struct work){.token = request->token,
                          .key = request->keys[0],
                          .value_count = request->value_count,
                          .worker = request->worker,
                          .pushes = pushes};
    if (pushes) {
        memcpy(work->values, request->push, bytes);
    }
    kept++;
    pthread_mutex_lock(&engine->lock);
    *engine->end = work;
    engine->end = &work->next;
    pthread_cond_signal(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    return SL_KV_LATER;
}

#define WHOLE_BYTES (16U << 20)

static const struct sl_kv_handler to_engines = {.handle = pass_to_engine,
                                                .whole_bytes = WHOLE_BYTES};

/* Processes */

struct variables {
    char texts[6][64];
    const char *list[7];
};

static const char *const *variables_of(struct variables *variables, const char *role)
{
    snprintf(variables->texts[0], sizeof variables->texts[0], "DMLC_ROLE=%s", role);
    snprintf(variables->texts[1], sizeof variables->texts[1], "DMLC_NUM_SERVER=%u", server_count);
    snprintf(variables->texts[2], sizeof variables->texts[2], "DMLC_NUM_WORKER=%u", worker_count);
    snprintf(variables->texts[3], sizeof variables->texts[3], "DMLC_PS_ROOT_URI=127.0.0.1");
    snprintf(variables->texts[4], sizeof variables->texts[4], "DMLC_PS_ROOT_PORT=%s", port);
    snprintf(variables->texts[5], sizeof variables->texts[5], "DMLC_NODE_HOST=127.0.0.1");
    for (int i = 0; i < 6; i++) {
        variables->list[i] = variables->texts[i];
    }
    return variables->list;
}

/* servers[0]: the scheduler. */
static void servers_start(struct sl_kv_server **servers, const struct sl_kv_handler *handler,
                          bool later)
{
    for (uint32_t i = 0; i <= server_count; i++) {
        struct variables variables = {0};
        const struct sl_kv_server_options options = {
            .variables = variables_of(&variables, i == 0 ? "scheduler" : "server"),
            .handler = i == 0 ? NULL : handler,
            .handler_later = later && i > 0,
        };
        CHECK(sl_kv_server_start(&options, &servers[i]) == 0);
        CHECK(sl_kv_server_rank(servers[i]) < server_count);
    }
}

/* The job has ended. */
static void servers_end(struct sl_kv_server **servers)
{
    for (uint32_t i = server_count + 1; i-- > 0;) {
        CHECK(sl_kv_server_wait(servers[i], 60000) == 0);
        CHECK(sl_kv_server_stop(&servers[i]) == 0);
        CHECK(servers[i] == NULL);
    }
}

static struct sl_kv *join(uint32_t timeout_ms)
{
    struct variables variables = {0};
    const struct sl_kv_options options = {.variables = variables_of(&variables, "worker"),
                                          .timeout_ms = timeout_ms};
    struct sl_kv *kv;
    CHECK(sl_kv_create(&options, &kv) == 0);
    return kv;
}

/* Workers */

static uint32_t round_count, value_count;

static uint64_t key_of(const struct sl_kv *kv, uint32_t i)
{
    uint64_t first, last;
    sl_kv_server_range(kv, i % sl_kv_server_count(kv), &first, &last);
    return first + 7 * i + 3;
}

static float pushed(uint32_t rank, uint32_t round, uint32_t key, uint32_t value)
{
    return (float)(rank + 1) * (float)(round % 16 + key) + (float)(value % 8);
}

/* Begins a push and a pull of each key before it waits. */
static void run_round(struct sl_kv *kv, uint32_t round, float *values)
{
    uint64_t timestamps[2 * KEYS];
    uint64_t keys[KEYS];
    float *pulled = values + (size_t)KEYS * value_count;
    for (uint32_t k = 0; k < KEYS; k++) {
        keys[k] = key_of(kv, k);
        float *push = values + (size_t)k * value_count;
        for (uint32_t i = 0; i < value_count; i++) {
            push[i] = pushed(sl_kv_rank(kv), round, k, i);
        }
        struct sl_kv_call call = {
            .batch = {.keys = &keys[k], .key_count = 1, .push = push, .value_count = value_count}};
        CHECK(sl_kv_begin(kv, &call, &timestamps[2 * k]) == 0);
        call.batch.push = NULL;
        call.batch.pull = pulled + (size_t)k * value_count;
        CHECK(sl_kv_begin(kv, &call, &timestamps[2 * k + 1]) == 0);
    }
    for (uint32_t i = 0; i < 2 * KEYS; i++) {
        CHECK(sl_kv_wait(kv, timestamps[i]) == 0);
    }
    for (uint32_t k = 0; k < KEYS; k++) {
        for (uint32_t i = 0; i < value_count; i++) {
            float sum = 0; /* an integer: exact */
            for (uint32_t rank = 0; rank < worker_count; rank++) {
                sum += pushed(rank, round, k, i);
            }
            CHECK(pulled[(size_t)k * value_count + i] == sum);
        }
    }
}

/* ctx not NULL: after the first round it waits for a line. */
static void *worker_run(void *ctx)
{
    struct sl_kv *kv = join(60000);
    float *values = calloc(2 * (size_t)KEYS * value_count, sizeof *values);
    for (uint32_t round = 0; round < round_count; round++) {
        run_round(kv, round, values);
        if (ctx != NULL && round == 0) {
            (void)getchar();
        }
    }
    printf("worker %u: %u rounds: as expected\n", sl_kv_rank(kv), round_count);
    fflush(stdout);
    free(values);
    sl_kv_destroy(&kv);
    return NULL;
}

/* All in one process. */
static void rounds(void)
{
    struct sl_kv_server *servers[SERVERS_MAX + 1];
    pthread_t workers[WORKERS_MAX];
    engines_start();
    servers_start(servers, &to_engines, false);
    for (uint32_t i = 0; i < worker_count; i++) {
        CHECK(pthread_create(&workers[i], NULL, worker_run, NULL) == 0);
    }
    for (uint32_t i = 0; i < worker_count; i++) {
        pthread_join(workers[i], NULL);
    }
    servers_end(servers);
    engines_stop();
}

static void late(void)
{
    (void)worker_run("");
}

static void only_servers(void)
{
    struct sl_kv_server *servers[SERVERS_MAX + 1];
    engines_start();
    servers_start(servers, &to_engines, false);
    printf("servers are there\n");
    fflush(stdout);
    for (uint32_t i = server_count + 1; i-- > 0;) {
        CHECK(sl_kv_server_wait(servers[i], 60000) == 0);
        printf("%s: status %d\n", i == 0 ? "scheduler" : "server", sl_kv_server_stop(&servers[i]));
    }
    engines_stop();
    printf("every token was answered\n");
}

/* Its pushes of a round are done, and its pulls wait for the others, when it says so. */
static void victim(void)
{
    struct sl_kv *kv = join(60000);
    float *values = calloc(2 * (size_t)KEYS * value_count, sizeof *values);
    run_round(kv, 0, values);
    for (uint32_t k = 0; k < KEYS; k++) {
        const uint64_t key = key_of(kv, k);
        float *push = values + (size_t)k * value_count;
        for (uint32_t i = 0; i < value_count; i++) {
            push[i] = pushed(sl_kv_rank(kv), 1, k, i);
        }
        CHECK(sl_kv_push(kv, &key, 1, NULL, push, value_count) == 0);
        struct sl_kv_call call = {
            .batch = {.keys = &key, .key_count = 1, .pull = push, .value_count = value_count},
            .copy_inputs = true};
        uint64_t timestamp;
        CHECK(sl_kv_begin(kv, &call, &timestamp) == 0);
    }
    printf("victim %u waits\n", sl_kv_rank(kv));
    fflush(stdout);
    for (;;) {
        pause();
    }
}

/* Keeps everything, without an answer. */

static struct sl_kv_token *_Atomic silent_tokens[8];
static _Atomic uint32_t silent_count;

static int keep_silently(void *ctx, const struct sl_kv_request *request)
{
    silent_tokens[silent_count] = request->token;
    silent_count++;
    return SL_KV_LATER;
}

static const struct sl_kv_handler keeps_silently = {.handle = keep_silently};

static void token_sent(void *ctx)
{
    sent++;
}

static void answer_all(void)
{
    const struct sl_kv_answer late = {.sent = token_sent};
    for (uint32_t i = 0; i < silent_count; i++) {
        sl_kv_reply(silent_tokens[i], &late);
    }
    CHECK(sent == silent_count);
}

/* The client's deadline ends it; answers come after the server has stopped. */
static void silent(void)
{
    struct sl_kv_server *servers[2];
    const uint64_t key = 5;
    float value = 1;
    servers_start(servers, &keeps_silently, false);
    struct sl_kv *kv = join(300);
    CHECK(sl_kv_push(kv, &key, 1, NULL, &value, 1) == SL_ERR_DEADLINE);
    CHECK(sl_kv_pull(kv, &key, 1, NULL, &value, 1) == SL_ERR_DEADLINE);
    CHECK(silent_count == 2);
    sl_kv_destroy(&kv);
    servers_end(servers);
    answer_all();
}

/* The server stops while tokens are out. */
static void stopped(void)
{
    struct sl_kv_server *servers[2];
    const uint64_t key = 5;
    float value = 1;
    uint64_t timestamps[2];
    servers_start(servers, &keeps_silently, false);
    struct sl_kv *kv = join(10000);
    struct sl_kv_call call = {
        .batch = {.keys = &key, .key_count = 1, .push = &value, .value_count = 1}};
    CHECK(sl_kv_begin(kv, &call, &timestamps[0]) == 0);
    call.batch =
        (struct sl_kv_batch){.keys = &key, .key_count = 1, .pull = &value, .value_count = 1};
    CHECK(sl_kv_begin(kv, &call, &timestamps[1]) == 0);
    while (silent_count < 2) {
        usleep(1000);
    }
    CHECK(sl_kv_server_wait(servers[1], 1) == SL_ERR_DEADLINE);
    CHECK(sl_kv_server_stop(&servers[1]) == 0);
    for (int i = 0; i < 2; i++) {
        const int err = sl_kv_wait(kv, timestamps[i]);
        CHECK(err == SL_ERR_CANCELLED || err == SL_ERR_CLOSED);
    }
    answer_all();
    sl_kv_destroy(&kv);
    (void)sl_kv_server_stop(&servers[0]);
}

/* Ends by an abort. */
static void twice(void)
{
    struct sl_kv_server *servers[2];
    const uint64_t key = 5;
    float value = 1;
    uint64_t timestamp;
    servers_start(servers, &keeps_silently, false);
    struct sl_kv *kv = join(10000);
    struct sl_kv_call call = {
        .batch = {.keys = &key, .key_count = 1, .push = &value, .value_count = 1}};
    CHECK(sl_kv_begin(kv, &call, &timestamp) == 0);
    while (silent_count < 1) {
        usleep(1000);
    }
    const struct sl_kv_answer once = {.err = 0};
    sl_kv_reply(silent_tokens[0], &once);
    CHECK(sl_kv_wait(kv, timestamp) == 0);
    printf("answered once\n");
    fflush(stdout);
    sl_kv_reply(silent_tokens[0], &once);
    printf("answered twice\n");
}

/* Requests wait for the handler. */

static _Atomic uint32_t handled;

static int handle_at_once(void *ctx, const struct sl_kv_request *request)
{
    handled++;
    for (uint64_t i = 0; request->pull != NULL && i < request->value_count; i++) {
        ((float *)request->pull)[i] = 7;
    }
    return 0;
}

static uint32_t length_of(void *ctx, const char *table, uint64_t key)
{
    return 9;
}

/* handler NULL: pushes are added up. */
static void set_later(const struct sl_kv_handler *handler, float expected, uint32_t length)
{
    struct sl_kv_server *servers[3];
    uint64_t timestamps[4];
    const uint64_t keys[2] = {5, UINT64_MAX - 5};
    float pushes[2] = {1, 2}, pulled[2] = {0};
    servers_start(servers, NULL, true);
    CHECK(sl_kv_server_handle(servers[1], &(struct sl_kv_handler){.ctx = NULL}) == SL_ERR_INVALID);
    struct sl_kv *kv = join(60000);
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_kv_call call = {
            .batch = {.keys = &keys[i], .key_count = 1, .push = &pushes[i], .value_count = 1}};
        CHECK(sl_kv_begin(kv, &call, &timestamps[2 * i]) == 0);
        call.batch.push = NULL;
        call.batch.pull = &pulled[i];
        CHECK(sl_kv_begin(kv, &call, &timestamps[2 * i + 1]) == 0);
    }
    usleep(200000);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(!sl_kv_done(kv, timestamps[i]));
    }
    for (uint32_t i = 1; i <= 2; i++) {
        CHECK(sl_kv_server_handle(servers[i], handler) == 0);
        CHECK(sl_kv_server_handle(servers[i], handler) == SL_ERR_INVALID);
    }
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(sl_kv_wait(kv, timestamps[i]) == 0);
    }
    CHECK(pulled[0] == expected && pulled[1] == (handler == NULL ? 2 * expected : expected));
    uint32_t lens[2];
    CHECK(sl_kv_lengths(kv, keys, 2, lens) == 0);
    CHECK(lens[0] == length && lens[1] == length);
    CHECK(handled == (handler == NULL ? 0 : 4));
    sl_kv_destroy(&kv);
    servers_end(servers);
}

static void later(void)
{
    const struct sl_kv_handler handler = {.handle = handle_at_once, .length = length_of};
    set_later(&handler, 7, 9);
}

static void sum(void)
{
    set_later(NULL, 1, 1);
}

/* Starts that fail. */
static void refused(void)
{
    struct sl_kv_server *server = NULL;
    struct variables variables = {0};
    const char *const *list = variables_of(&variables, "worker");
    CHECK(sl_kv_server_start(&(struct sl_kv_server_options){.variables = list}, &server) ==
          SL_ERR_INVALID);
    list = variables_of(&variables, "server");
    const char *const flags[] = {"--reactors", "0", NULL};
    CHECK(sl_kv_server_start(&(struct sl_kv_server_options){.variables = list, .flags = flags},
                             &server) == SL_ERR_INVALID);
    CHECK(strstr(sl_last_error(), "--reactors") != NULL);
    const char *const soon[] = {"--start-timeout", "1", NULL};
    CHECK(sl_kv_server_start(&(struct sl_kv_server_options){.variables = list, .flags = soon},
                             &server) == SL_ERR_DEADLINE);
    const struct sl_kv_handler handler = {.handle = handle_at_once};
    CHECK(sl_kv_server_start(&(struct sl_kv_server_options){.variables = list,
                                                            .handler = &handler,
                                                            .handler_later = true},
                             &server) == SL_ERR_INVALID);
    CHECK(server == NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
        uint32_t servers;
    } modes[] = {{"rounds", rounds, 0},  {"servers", only_servers, 0}, {"late", late, 0},
                 {"victim", victim, 0},  {"silent", silent, 1},        {"stopped", stopped, 1},
                 {"twice", twice, 1},    {"later", later, 2},          {"sum", sum, 2},
                 {"refused", refused, 1}};
    CHECK(argc >= 3);
    port = argv[2];
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(modes[i].name, argv[1]) != 0) {
            continue;
        }
        server_count = modes[i].servers != 0 ? modes[i].servers : (uint32_t)atoi(argv[3]);
        worker_count = modes[i].servers != 0 ? 1 : (uint32_t)atoi(argv[4]);
        round_count = argc > 5 ? (uint32_t)atoi(argv[5]) : 0;
        value_count = argc > 6 ? (uint32_t)atoi(argv[6]) : 0;
        CHECK(server_count <= SERVERS_MAX && worker_count <= WORKERS_MAX);
        modes[i].run();
        return 0;
    }
    return 2;
}
