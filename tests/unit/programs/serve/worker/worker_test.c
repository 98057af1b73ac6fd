/* A worker with a real engine, node and pool, and a gateway that the test plays: it sends notices
 * and looks at the answers. The models are toys: y = the sum of the row of x, plus the first value
 * of each layer's weights. */
#include "programs/serve/worker/worker.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/serve/worker/model_table.h"
#include "tests/support/free_port.h"
#include "tests/support/unit.h"
#include "tests/unit/programs/serve/partner.h"

#define TIMEOUT_MS   60000
#define LAYERS       3
#define WEIGHTS      100000 /* f32 of a layer: more than a block */
#define COLUMNS      4
#define WIDE_COLUMNS 1024
#define POOL_BYTES   (4 << 20) /* two models, and their manifests */
#define OUTPUT_BYTES (1 << 20)

/* ---- The engine ------------------------------------------------------------------------------ */

struct toy {
    const float *weights[LAYERS];
    struct sl_engine_layer layers[LAYERS];
    struct sl_engine_info info;
};

static const struct sl_engine_tensor X = {"x", SL_OBJECT_F32, 2, {0, COLUMNS}, 4 * COLUMNS, 0};
static const struct sl_engine_tensor Y = {"y", SL_OBJECT_F32, 2, {0, 1}, 4, 1 << 16};

/* Outputs that do not fit into a message. */
static const struct sl_engine_tensor WIDE = {
    "y", SL_OBJECT_F32, 2, {0, WIDE_COLUMNS}, 4 * WIDE_COLUMNS, 1 << 16};

static const struct sl_engine_tensor BAD = {"y\x01", SL_OBJECT_F32, 2, {0, 1}, 4, 1 << 16};

static struct {
    sem_t entered, go; /* if `stops`: a run waits for the test */
    sem_t stuck;       /* the worker says so */
    _Atomic bool stops;
    _Atomic uint32_t rows_most, runs;
} toys;

static int toy_open(const struct sl_engine_image *image, uint32_t rows_max,
                    struct sl_reason *reason, void **out)
{
    if (strcmp(image->tensors[0].name, ".toy") != 0) {
        return sl_reason_fail(reason, SL_ERR_UNSUPPORTED, "no toy");
    }
    const struct sl_engine_tensor *output = memcmp(image->tensors[0].data, "toy", 3) == 0   ? &Y
                                            : memcmp(image->tensors[0].data, "tow", 3) == 0 ? &WIDE
                                            : memcmp(image->tensors[0].data, "toz", 3) == 0 ? &BAD
                                                                                            : NULL;
    if (output == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "a broken toy");
    }
    struct toy *toy = calloc(1, sizeof *toy);
    assert_non_null(toy);
    for (uint32_t i = 0; i < LAYERS; i++) {
        toy->weights[i] = image->tensors[i + 1].data;
        toy->layers[i] = (struct sl_engine_layer){
            .image_end = image->offsets[i + 1] + image->tensors[i + 1].bytes, .flops = WEIGHTS};
    }
    toy->info = (struct sl_engine_info){.inputs = &X,
                                        .outputs = output,
                                        .layers = toy->layers,
                                        .input_count = 1,
                                        .output_count = 1,
                                        .layer_count = LAYERS,
                                        .scratch_bytes = 1 << 17};
    *out = toy;
    return 0;
}

static const struct sl_engine_info *toy_info(const void *model)
{
    return &((const struct toy *)model)->info;
}

static int toy_run(void *model, uint8_t *scratch, uint32_t layer, uint32_t rows,
                   struct sl_reason *reason)
{
    const struct toy *toy = model;
    const float *x = (const void *)scratch;
    float *y = (void *)(scratch + Y.scratch_offset);
    if (layer == 0) {
        toys.runs++;
        toys.rows_most = rows > toys.rows_most ? rows : toys.rows_most;
        if (toys.stops) {
            sem_post(&toys.entered);
            sem_wait(&toys.go);
        }
    }
    for (uint32_t row = 0; row < rows; row++, y += toy->info.outputs->row_bytes / sizeof *y) {
        *y = layer == 0 ? 0 : *y;
        for (uint32_t i = 0; layer == 0 && i < COLUMNS; i++) {
            if (x[row * COLUMNS + i] < 0) {
                return sl_reason_fail(reason, SL_ERR_INVALID, "`x` has a negative value");
            }
            *y += x[row * COLUMNS + i];
        }
        /* The last value: all bytes of the layer must be there. */
        *y += toy->weights[layer][WEIGHTS - 1];
    }
    return 0;
}

static void toy_close(void **model)
{
    free(*model);
    *model = NULL;
}

static const struct sl_engine TOY = {
    .name = "toy", .open = toy_open, .info = toy_info, .run = toy_run, .close = toy_close};

/* ---- The fixture ----------------------------------------------------------------------------- */

struct fixture {
    struct sl_objects *publisher, *node;
    struct sl_transfer *engine;
    struct partner gateway;
    char gateway_name[SL_TRANSFER_NAME_BYTES];
    struct reactor_thread thread; /* the engine's */
    struct sl_serve_worker *worker;
    struct sl_completion drained;
    bool is_drained;
    struct sl_transfer_segment *segment;
    struct sl_transfer_batch *batch;
    uint64_t arena, next_input, next_request;
    float *input;    /* the gateway's memory */
    uint8_t *output; /* for the answer to request i at (i % 16) * OUTPUT_BYTES / 16 */
    struct sl_serve_message message;
    struct sl_serve_message load; /* the last LOAD that names a model, taken while waiting, too */
};

static void expect(int err, const char *text)
{
    if (err != 0) {
        fail_msg("%s: %s", sl_err_name(err), text);
    }
}

static struct sl_transfer *start_engine(const char *name)
{
    const struct sl_transfer_options options = {
        .name = name, .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    struct sl_transfer *made;
    expect(sl_transfer_create(&options, &made), sl_transfer_last_error());
    return made;
}

static struct sl_objects *start_node(struct sl_transfer *engine, const char *catalogue,
                                     uint64_t pool_bytes)
{
    const struct sl_transfer_options own = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine = engine,
                                               .engine_options = &own,
                                               .catalogue = catalogue,
                                               .agent = "off",
                                               .host = catalogue == NULL ? "publisher" : "host",
                                               .pool_bytes = pool_bytes};
    struct sl_objects *made;
    expect(sl_objects_create(&options, &made), sl_objects_last_error());
    return made;
}

/* sender: NULL: not wanted. */
static void take_from(struct fixture *f, uint32_t kind, char sender[SL_TRANSFER_NAME_BYTES])
{
    do {
        assert_true(partner_take(&f->gateway, TIMEOUT_MS, &f->message, sender));
        if (f->message.kind == SL_SERVE_MESSAGE_LOAD && f->message.load_count > 0) {
            f->load = f->message;
        }
    } while (f->message.kind != kind);
}

static void take(struct fixture *f, uint32_t kind)
{
    take_from(f, kind, NULL);
}

static void start_gateway(struct fixture *f)
{
    partner_init(&f->gateway, start_engine(f->gateway_name));
    void *memory;
    expect(
        sl_transfer_memory_create(f->gateway.engine, OUTPUT_BYTES, -1, SL_TRANSFER_LOCAL, &memory),
        "");
    f->input = memory;
    expect(sl_transfer_memory_create(f->gateway.engine, OUTPUT_BYTES, -1, SL_TRANSFER_PEERS_WRITE,
                                     &memory),
           "");
    f->output = memory;
}

static void end_gateway(struct fixture *f)
{
    void *input = f->input, *output = f->output;
    partner_stop(&f->gateway);
    sl_transfer_batch_free(&f->batch);
    sl_transfer_segment_close(&f->segment);
    (void)sl_transfer_memory_free(f->gateway.engine, &input, TIMEOUT_MS);
    (void)sl_transfer_memory_free(f->gateway.engine, &output, TIMEOUT_MS);
    partner_fini(&f->gateway);
}

/* The worker joins, and the gateway opens its segment. */
static void await_join(struct fixture *f)
{
    char worker[SL_TRANSFER_NAME_BYTES];
    take_from(f, SL_SERVE_MESSAGE_JOIN, worker);
    assert_string_equal(f->message.join.host, "here");
    assert_int_equal(f->message.join.batch_max, 8);
    f->arena = f->message.join.arena_address;
    expect(sl_transfer_segment_open(f->gateway.engine, worker, TIMEOUT_MS, &f->segment),
           sl_transfer_last_error());
    expect(sl_transfer_batch_create(f->gateway.engine, 1, &f->batch), sl_transfer_last_error());
}

static void stuck(void *ctx, const char *model)
{
    if (model[0] != '\0') { /* else it has not ended in time */
        sem_post(&toys.stuck);
    }
}

static void start_worker(void *ctx)
{
    struct sl_reason reason;
    expect(sl_serve_worker_start(((struct fixture *)ctx)->worker, &reason), reason.text);
}

static void set_up(struct fixture *f)
{
    static const struct sl_engine *const engines[] = {&TOY};
    memset(f, 0, sizeof *f);
    sem_init(&toys.entered, 0, 0);
    sem_init(&toys.go, 0, 0);
    sem_init(&toys.stuck, 0, 0);
    toys.stops = false;
    toys.rows_most = toys.runs = 0;
    (void)snprintf(f->gateway_name, sizeof f->gateway_name, "127.0.0.1:%u", free_port());
    f->publisher = start_node(NULL, NULL, 64 << 20);
    f->engine = start_engine("127.0.0.1:0");
    f->node = start_node(f->engine, sl_objects_address(f->publisher), POOL_BYTES);
    start_gateway(f);
    const char *gateway = f->gateway_name;
    const struct sl_serve_worker_options options = {.transfer = f->engine,
                                                    .objects = f->node,
                                                    .gateways = &gateway,
                                                    .gateway_count = 1,
                                                    .host = "here",
                                                    .batch_max = 8,
                                                    .engines = engines,
                                                    .engine_count = 1,
                                                    .core = -1,
                                                    .stuck = stuck,
                                                    .patience_ns = 100 * SL_CLOCK_NS_PER_MS};
    struct sl_reason reason;
    expect(sl_serve_worker_create(&options, &f->worker, &reason), reason.text);
    reactor_thread_use(&f->thread, sl_transfer_async_reactor(f->engine));
    reactor_thread_run(&f->thread, start_worker, f);
    await_join(f);
}

static void drained(void *ctx)
{
    sl_completion_end(&((struct fixture *)ctx)->drained);
}

static void drain(void *ctx)
{
    struct fixture *f = ctx;
    sl_serve_worker_drain(f->worker, drained, f);
}

static void send(struct fixture *f)
{
    partner_send(&f->gateway, f->segment, &f->message);
}

static void tear_down(struct fixture *f)
{
    if (!f->is_drained) {
        sl_completion_begin(&f->drained);
        reactor_thread_run(&f->thread, drain, f);
        take(f, SL_SERVE_MESSAGE_LEAVE);
        send(f);
        sl_completion_wait(&f->drained);
    }
    reactor_thread_fini(&f->thread);
    sl_serve_worker_destroy(&f->worker);
    end_gateway(f);
    sl_objects_destroy(&f->node);
    sl_objects_destroy(&f->publisher);
    sl_transfer_destroy(&f->engine);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)

/* Publishes a toy whose layers add `value` each. */
static void publish(struct fixture *f, const char *name, float value, const char *text)
{
    static float weights[WEIGHTS];
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = name, .origin = SL_ORIGIN_HOST, .take_over = true};
    struct sl_publication *publication;
    uint64_t version;
    for (uint32_t i = 0; i < WEIGHTS; i++) {
        weights[i] = value;
    }
    expect(sl_publish_begin(f->publisher, &options, TIMEOUT_MS, &publication),
           sl_objects_last_error());
    const struct sl_object_tensor kind = {
        .name = ".toy", .type = SL_OBJECT_U8, .rank = 1, .shape = {3}, .data = text, .bytes = 3};
    expect(sl_publish_tensor(publication, &kind), sl_objects_last_error());
    for (uint32_t i = 0; i < LAYERS; i++) {
        char layer[16];
        (void)snprintf(layer, sizeof layer, "w%u", i);
        const struct sl_object_tensor tensor = {.name = layer,
                                                .type = SL_OBJECT_F32,
                                                .rank = 1,
                                                .shape = {WEIGHTS},
                                                .data = weights,
                                                .bytes = sizeof weights};
        expect(sl_publish_tensor(publication, &tensor), sl_objects_last_error());
    }
    expect(sl_publish_commit(publication, TIMEOUT_MS, &version), sl_objects_last_error());
    sl_publish_end(&publication);
}

/* Makes a request in f->message: `rows` rows with the value in all columns. */
static void make(struct fixture *f, const char *model, uint32_t rows, float value)
{
    const uint64_t place = f->next_request++ % 16;
    float *input = f->input + place * (OUTPUT_BYTES / 64);
    for (uint32_t i = 0; i < rows * COLUMNS; i++) {
        input[i] = value;
    }
    f->message = (struct sl_serve_message){.kind = SL_SERVE_MESSAGE_INFER,
                                           .request = f->next_request,
                                           .deadline_us = TIMEOUT_MS * 1000,
                                           .input_address = f->arena + place * (OUTPUT_BYTES / 16),
                                           .input_bytes = rows * X.row_bytes,
                                           .output_address =
                                               (uintptr_t)f->output + place * (OUTPUT_BYTES / 16),
                                           .output_room = OUTPUT_BYTES / 16,
                                           .tail = (const uint8_t *)input,
                                           .tensor_count = 1,
                                           .tensors = {{.name = "x",
                                                        .type = SL_OBJECT_F32,
                                                        .rank = 2,
                                                        .shape = {rows, COLUMNS},
                                                        .bytes = rows * X.row_bytes}}};
    (void)snprintf(f->message.model, sizeof f->message.model, "%s", model);
}

static uint64_t submit(struct fixture *f)
{
    send(f);
    return f->message.request;
}

/* The inputs are written before. */
static uint64_t submit_apart(struct fixture *f)
{
    const struct sl_transfer_request write = {.op = SL_TRANSFER_WRITE,
                                              .local = (void *)f->message.tail,
                                              .segment = f->segment,
                                              .remote = f->message.input_address,
                                              .bytes = f->message.input_bytes};
    expect(sl_transfer_batch_submit(f->batch, &write, 1, TIMEOUT_MS, NULL),
           sl_transfer_last_error());
    expect(sl_transfer_batch_wait(f->batch), sl_transfer_last_error());
    f->message.tail = NULL;
    return submit(f);
}

static uint64_t ask(struct fixture *f, const char *model, uint32_t rows, float value)
{
    make(f, model, rows, value);
    return submit(f);
}

/* Takes the next answer, which has no error; returns the first row's y. */
static float take_answer(struct fixture *f)
{
    take(f, SL_SERVE_MESSAGE_DONE);
    if (f->message.err != 0) {
        fail_msg("%s: %s", sl_err_name(f->message.err), f->message.text);
    }
    const uint64_t place = (f->message.request - 1) % 16;
    const float *output = (const void *)(f->output + place * (OUTPUT_BYTES / 16));
    return f->message.tensor_count > 0 ? output[0] : 0;
}

/* The next answer is that of the request. */
static float await(struct fixture *f, uint64_t request)
{
    const float y = take_answer(f);
    assert_true(f->message.request == request);
    return y;
}

static void await_error(struct fixture *f, uint64_t request, int err, const char *text)
{
    take(f, SL_SERVE_MESSAGE_DONE);
    assert_true(f->message.request == request);
    if (f->message.err != err || strstr(f->message.text, text) == NULL) {
        fail_msg("%s: %s", sl_err_name(f->message.err), f->message.text);
    }
}

/* The worker says that the request has come. No answer is expected before. */
static void await_arrival(struct fixture *f, uint64_t request)
{
    do {
        take(f, SL_SERVE_MESSAGE_LOAD);
    } while (f->message.request < request);
}

static void stop_runs(void)
{
    toys.stops = true;
}

static void let_run(void)
{
    toys.stops = false;
    sem_post(&toys.go);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

CASE(worker__computes_a_cold_model)
{
    publish(fixture, "m", 10, "toy");
    const uint64_t request = ask(fixture, "m", 3, 1);
    assert_true(await(fixture, request) == 4 * 1 + 3 * 10);
    assert_int_equal(fixture->message.tensor_count, 1);
    assert_string_equal(fixture->message.tensors[0].name, "y");
    assert_true(fixture->message.tensors[0].shape[0] == 3);
    assert_true(fixture->message.version > 0);
    assert_true(fixture->message.load_us > 0);
    while (fixture->load.loads[0].row_ns + fixture->load.loads[0].batch_ns == 0) {
        take(fixture, SL_SERVE_MESSAGE_LOAD);
    }
    assert_string_equal(fixture->load.loads[0].model, "m");
    assert_true(fixture->load.loads[0].bytes >= sizeof(float) * LAYERS * WEIGHTS);
}

CASE(worker__takes_waiting_requests_together)
{
    uint64_t request[6];
    publish(fixture, "m", 1, "toy");
    stop_runs();
    request[0] = ask(fixture, "m", 1, 1);
    sem_wait(&toys.entered);
    for (uint32_t i = 1; i < 6; i++) {
        request[i] = ask(fixture, "m", 2, (float)i);
    }
    await_arrival(fixture, request[5]);
    let_run();
    for (uint32_t count = 0; count < 6; count++) { /* answers of one run come in any order */
        const float y = take_answer(fixture);
        uint32_t i = 0;
        while (i < 6 && request[i] != fixture->message.request) {
            i++;
        }
        assert_true(i < 6 && y == 4 * (float)(i > 0 ? i : 1) + 3);
        request[i] = 0;
    }
    assert_int_equal(toys.rows_most, 8); /* four of the five */
    assert_int_equal(toys.runs, 3);
}

CASE(worker__names_a_wrong_tensor)
{
    publish(fixture, "m", 1, "toy");
    make(fixture, "m", 1, 1);
    (void)snprintf(fixture->message.tensors[0].name, SL_SERVE_TENSOR_NAME, "z");
    await_error(fixture, submit(fixture), SL_ERR_INVALID, "`z` is no input of the model");
    await_error(fixture, ask(fixture, "m", 9, 1), SL_ERR_INVALID, "accepted are 1 to 8");
    make(fixture, "m", 4, 1);
    fixture->message.output_room = 15;
    await_error(fixture, submit(fixture), SL_ERR_TOO_LARGE,
                "the outputs have 64 bytes, their room 15");
    assert_true(fixture->message.output_bytes == 64);
    /* Inputs outside the arena are not read. */
    make(fixture, "m", 1, 1);
    fixture->message.input_address = fixture->arena - 64;
    send(fixture);
    await_error(fixture, fixture->next_request, SL_ERR_INVALID, "not in the worker's memory");
}

CASE(worker__a_bad_value_fails_only_its_request)
{
    uint64_t request[4];
    publish(fixture, "m", 1, "toy");
    stop_runs();
    request[0] = ask(fixture, "m", 1, 1);
    sem_wait(&toys.entered);
    request[1] = ask(fixture, "m", 1, 2);
    request[2] = ask(fixture, "m", 1, -1);
    request[3] = ask(fixture, "m", 1, 3);
    await_arrival(fixture, request[3]);
    let_run();
    for (uint32_t i = 0; i < 4; i++) { /* DONE without outputs may come first */
        take(fixture, SL_SERVE_MESSAGE_DONE);
        const bool is_bad = fixture->message.request == request[2];
        assert_int_equal(fixture->message.err, is_bad ? SL_ERR_INVALID : 0);
        assert_true(!is_bad || strstr(fixture->message.text, "`x` has a negative value") != NULL);
    }
}

CASE(worker__ends_requests_at_their_deadline)
{
    publish(fixture, "m", 1, "toy");
    stop_runs();
    const uint64_t first = ask(fixture, "m", 1, 1);
    sem_wait(&toys.entered);
    make(fixture, "m", 1, 1);
    fixture->message.deadline_us = 20000;
    await_error(fixture, submit(fixture), SL_ERR_DEADLINE, "ms in the worker's queue");
    const uint64_t cancelled = ask(fixture, "m", 1, 1);
    fixture->message =
        (struct sl_serve_message){.kind = SL_SERVE_MESSAGE_CANCEL, .request = cancelled};
    send(fixture);
    await_error(fixture, cancelled, SL_ERR_CANCELLED, "cancelled");
    let_run();
    assert_true(await(fixture, first) == 7);
    await_error(fixture, ask(fixture, "absent", 1, 1), SL_ERR_NOT_FOUND, "absent has no versions");
}

CASE(worker__says_that_a_computation_is_stuck)
{
    publish(fixture, "m", 1, "toy");
    publish(fixture, "stuck", 1, "toy");
    stop_runs();
    const uint64_t patient = ask(fixture, "m", 1, 1);
    sem_wait(&toys.entered);
    (void)usleep(300000); /* longer than its patience, but the deadline is far */
    assert_int_equal(sem_trywait(&toys.stuck), -1);
    let_run();
    assert_true(await(fixture, patient) == 7);
    stop_runs();
    make(fixture, "stuck", 1, 1);
    fixture->message.deadline_us = 200000;
    const uint64_t late = submit(fixture);
    sem_wait(&toys.entered);
    sem_wait(&toys.stuck);
    let_run();
    take(fixture, SL_SERVE_MESSAGE_DONE);
    assert_int_equal(fixture->message.request, late);
}

/* More names than the worker can know, although it looks up some of them meanwhile. */
CASE(worker__answers_when_it_can_know_no_more_models)
{
    enum { NAMES = SL_SERVE_MODELS_MAX + 256 };
    static uint8_t answers[NAMES];
    uint64_t first = 0;
    uint32_t refused = 0;
    memset(answers, 0, sizeof answers);
    for (uint32_t i = 0; i < NAMES; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "absent%u", i);
        const uint64_t request = ask(fixture, name, 1, 1);
        first = i == 0 ? request : first;
    }
    for (uint32_t i = 0; i < NAMES; i++) {
        fixture->message =
            (struct sl_serve_message){.kind = SL_SERVE_MESSAGE_CANCEL, .request = first + i};
        send(fixture);
        take(fixture, SL_SERVE_MESSAGE_DONE);
        const uint64_t place = fixture->message.request - first;
        const int err = fixture->message.err;
        assert_true(place < NAMES && answers[place]++ == 0);
        refused += err == SL_ERR_AGAIN && strstr(fixture->message.text, "other models") != NULL;
        assert_true(err == SL_ERR_AGAIN || err == SL_ERR_CANCELLED || err == SL_ERR_NOT_FOUND);
    }
    assert_true(refused > 0);
}

CASE(worker__refuses_what_it_cannot_open)
{
    publish(fixture, "broken", 1, "tox");
    await_error(fixture, ask(fixture, "broken", 1, 1), SL_ERR_CORRUPT, "a broken toy");
    publish(fixture, "named", 1, "toz");
    await_error(fixture, ask(fixture, "named", 1, 1), SL_ERR_UNSUPPORTED, "1 to 63 bytes");
    publish(fixture, "m", 1, "toy");
    make(fixture, "m", 1, 1);
    fixture->message.version = 1ULL << 40;
    await_error(fixture, submit(fixture), SL_ERR_NOT_FOUND, "m@1099511627776");
    assert_true(await(fixture, ask(fixture, "m", 1, 1)) == 7);
}

CASE(worker__a_newer_version_takes_over)
{
    publish(fixture, "m", 1, "toy");
    assert_true(await(fixture, ask(fixture, "m", 1, 1)) == 7);
    const uint64_t first = fixture->message.version;
    publish(fixture, "m", 2, "toy");
    float y;
    do {
        y = await(fixture, ask(fixture, "m", 1, 1));
        assert_true(y == 7 || y == 10);
        assert_true((fixture->message.version == first) == (y == 7));
    } while (y == 7);
    /* A request for the older one. */
    make(fixture, "m", 1, 1);
    fixture->message.version = first;
    assert_true(await(fixture, submit(fixture)) == 7);
    assert_true(fixture->message.version == first);
}

CASE(worker__a_version_that_cannot_be_opened_does_not_take_over)
{
    publish(fixture, "m", 1, "toy");
    stop_runs();
    const uint64_t first = ask(fixture, "m", 1, 1);
    sem_wait(&toys.entered);
    publish(fixture, "m", 2, "tox");
    const uint64_t second = ask(fixture, "m", 1, 2);
    let_run();
    assert_true(await(fixture, first) == 7);
    assert_true(await(fixture, second) == 11);
}

CASE(worker__describes_and_loads)
{
    publish(fixture, "m", 1, "toy");
    make(fixture, "m", 0, 1);
    fixture->message.request_kind = SL_SERVE_LOAD;
    fixture->message.tensor_count = 0;
    (void)await(fixture, submit(fixture));
    assert_int_equal(fixture->message.tensor_count, 0);
    make(fixture, "m", 0, 1);
    fixture->message.request_kind = SL_SERVE_DESCRIBE;
    fixture->message.tensor_count = 0;
    const uint64_t request = submit(fixture);
    (void)await(fixture, request);
    assert_int_equal(fixture->message.tensor_count, 1);
    const char *text = (const char *)fixture->output + (request - 1) % 16 * (OUTPUT_BYTES / 16);
    assert_non_null(strstr(text, "\"platform\":\"starling_toy\""));
    assert_int_equal(strnlen(text, 4096), fixture->message.tensors[0].bytes);
    assert_int_equal(toys.runs, 0);
}

/* The pool has room for two of five models. */
CASE(worker__models_larger_together_than_the_pool)
{
    char name[8];
    for (uint32_t i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "m%u", i);
        publish(fixture, name, (float)i, "toy");
    }
    for (uint32_t round = 0; round < 3; round++) {
        uint64_t requests[5], request;
        for (uint32_t i = 0; i < 5; i++) {
            (void)snprintf(name, sizeof name, "m%u", i);
            requests[i] = ask(fixture, name, 1, (float)round);
        }
        for (uint32_t i = 0; i < 5; i++) {
            take(fixture, SL_SERVE_MESSAGE_DONE);
            request = fixture->message.request;
            assert_int_equal(fixture->message.err, 0);
            for (uint32_t j = 0; j < 5; j++) {
                const float *y =
                    (const void *)(fixture->output + (request - 1) % 16 * (OUTPUT_BYTES / 16));
                assert_true(requests[j] != request || *y == 4 * (float)round + 3 * (float)j);
            }
        }
    }
}

CASE(worker__joins_again_after_the_gateway_ended)
{
    publish(fixture, "m", 1, "toy");
    assert_true(await(fixture, ask(fixture, "m", 1, 1)) == 7);
    end_gateway(fixture);
    start_gateway(fixture);
    await_join(fixture);
    assert_true(await(fixture, ask(fixture, "m", 1, 1)) == 7);
}

CASE(worker__answers_before_it_leaves)
{
    publish(fixture, "m", 1, "toy");
    stop_runs();
    const uint64_t first = ask(fixture, "m", 1, 1);
    sem_wait(&toys.entered);
    sl_completion_begin(&fixture->drained);
    reactor_thread_run(&fixture->thread, drain, fixture);
    take(fixture, SL_SERVE_MESSAGE_LEAVE);
    const uint64_t second = ask(fixture, "m", 1, 2); /* it was on its way */
    fixture->message = (struct sl_serve_message){.kind = SL_SERVE_MESSAGE_LEAVE};
    send(fixture);
    let_run();
    assert_true(await(fixture, first) == 7);
    assert_true(await(fixture, second) == 11);
    sl_completion_wait(&fixture->drained);
    fixture->is_drained = true;
}

CASE(worker__takes_inputs_that_were_written_before)
{
    publish(fixture, "m", 10, "toy");
    make(fixture, "m", 3, 1);
    assert_true(await(fixture, submit_apart(fixture)) == 4 * 1 + 3 * 10);
    assert_non_null(fixture->message.tail);
}

CASE(worker__writes_outputs_that_do_not_fit_into_the_answer)
{
    publish(fixture, "m", 10, "tow");
    for (uint32_t i = 0; i < 3; i++) {
        const uint64_t request = ask(fixture, "m", 2, (float)i);
        assert_true(await(fixture, request) == (float)(4 * i) + 3 * 10);
        assert_null(fixture->message.tail);
        const float *output = (const void *)(fixture->output + i * (OUTPUT_BYTES / 16));
        assert_true(output[WIDE_COLUMNS] == output[0]);
    }
}

/* A gateway that the worker has not joined. */
CASE(worker__turns_strangers_away)
{
    struct sl_transfer_segment *segment;
    struct partner stranger;
    struct sl_serve_message message;
    make(fixture, "m", 1, 1);
    partner_init(&stranger, start_engine("127.0.0.1:0"));
    expect(sl_transfer_segment_open(stranger.engine, sl_transfer_name(fixture->engine), TIMEOUT_MS,
                                    &segment),
           sl_transfer_last_error());
    partner_send(&stranger, segment, &fixture->message);
    assert_true(partner_take(&stranger, TIMEOUT_MS, &message, NULL));
    assert_int_equal(message.err, SL_ERR_CANCELLED);
    partner_stop(&stranger);
    sl_transfer_segment_close(&segment);
    partner_fini(&stranger);
}

CASE(worker__drops_what_is_no_notice)
{
    const struct sl_transfer_notice notice = {.name = SL_SERVE_NOTICE, .text = "x", .bytes = 1};
    expect(sl_transfer_notice_send(fixture->segment, &notice, TIMEOUT_MS), "");
    publish(fixture, "m", 1, "toy");
    assert_true(await(fixture, ask(fixture, "m", 1, 1)) == 7);
}
