/* A gateway on the engine of the catalogue, and workers that the test plays: it takes
 * their notices and sends their answers. */
#include "programs/serve/gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "tests/support/unit.h"
#include "tests/unit/programs/serve/partner.h"

#define TIMEOUT_MS  60000
#define ARENA_BYTES (1U << 20)
#define LONG_NS     (60 * SL_CLOCK_NS_PER_S)

struct worker {
    struct partner partner;
    struct sl_transfer *engine; /* the partner's */
    struct sl_transfer_segment *gateway;
    struct sl_transfer_batch *batch;
    uint8_t *arena, *outputs;
};

struct call {
    struct sl_serve_request request;
    struct fixture *fixture;
    struct sl_completion done;
    uint32_t done_count;
};

struct fixture {
    struct sl_transfer *engine;
    struct sl_objects *objects;
    struct reactor_thread thread; /* the engine's */
    struct sl_serve_gateway *gateway;
    struct sl_serve_gateway_stats stats;
    struct worker workers[2];
    struct call calls[9];
    struct call *call; /* of the function that runs on the reactor */
    uint64_t bytes;
    struct sl_completion drained;
};

/* ---- the gateway ---- */

static void publish(struct fixture *f, const char *name, uint64_t version)
{
    static const float weights[16] = {1};
    struct sl_publication *publication;
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = name, .version = version};
    const struct sl_object_tensor tensor = {
        .name = "w", .type = SL_OBJECT_F32, .rank = 1, .shape = {16}, .data = weights, .bytes = 64};
    uint64_t made;
    assert_int_equal(sl_publish_begin(f->objects, &options, TIMEOUT_MS, &publication), 0);
    assert_int_equal(sl_publish_tensor(publication, &tensor), 0);
    assert_int_equal(sl_publish_commit(publication, TIMEOUT_MS, &made), 0);
    sl_publish_end(&publication);
}

static void read_stats(void *ctx)
{
    struct fixture *f = ctx;
    sl_serve_gateway_stats(f->gateway, &f->stats);
}

static const struct sl_serve_gateway_stats *stats(struct fixture *f)
{
    reactor_thread_run(&f->thread, read_stats, f);
    return &f->stats;
}

#define AWAIT(f, condition)                                                                        \
    do {                                                                                           \
        while (!(stats(f)->condition)) {                                                           \
            (void)usleep(200);                                                                     \
        }                                                                                          \
    } while (false)

static void start_here(void *ctx)
{
    struct sl_reason reason;
    assert_int_equal(sl_serve_gateway_start(((struct fixture *)ctx)->gateway, &reason), 0);
}

static void set_up(struct fixture *f)
{
    const struct sl_transfer_options engine = {.name = "127.0.0.1:0"};
    struct sl_reason reason;
    memset(f, 0, sizeof *f);
    (void)unsetenv("STARLING_OBJECTS_CATALOGUE");
    assert_int_equal(sl_transfer_create(&engine, &f->engine), 0);
    const struct sl_objects_options objects = {
        .struct_size = sizeof objects, .engine = f->engine, .agent = "off"};
    assert_int_equal(sl_objects_create(&objects, &f->objects), 0);
    publish(f, "a", 3);
    publish(f, "a", 5);
    publish(f, "b", 1);
    reactor_thread_use(&f->thread, sl_transfer_async_reactor(f->engine));
    const struct sl_serve_gateway_options options = {.transfer = f->engine,
                                                     .objects = f->objects,
                                                     .strategy = SL_SERVE_COST,
                                                     .memory_bytes = 1U << 20};
    assert_int_equal(sl_serve_gateway_create(&options, &f->gateway, &reason), 0);
    reactor_thread_run(&f->thread, start_here, f);
    AWAIT(f, has_models);
}

/* ---- workers ---- */

static void tell(struct worker *worker, const struct sl_serve_message *message)
{
    partner_send(&worker->partner, worker->gateway, message);
}

static void join(struct worker *worker)
{
    tell(worker, &(struct sl_serve_message){.kind = SL_SERVE_MESSAGE_JOIN,
                                            .join = {.host = "host",
                                                     .arena_address = (uintptr_t)worker->arena,
                                                     .arena_bytes = ARENA_BYTES,
                                                     .batch_max = 4}});
}

static struct worker *start_worker(struct fixture *f, uint32_t index)
{
    struct worker *worker = &f->workers[index];
    const struct sl_transfer_options options = {.name = "127.0.0.1:0"};
    const uint32_t before = stats(f)->workers;
    assert_int_equal(sl_transfer_create(&options, &worker->engine), 0);
    partner_init(&worker->partner, worker->engine);
    assert_int_equal(sl_transfer_segment_open(worker->engine, sl_transfer_name(f->engine),
                                              TIMEOUT_MS, &worker->gateway),
                     0);
    assert_int_equal(sl_transfer_memory_create(worker->engine, ARENA_BYTES, -1,
                                               SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE,
                                               (void **)&worker->arena),
                     0);
    assert_int_equal(sl_transfer_memory_create(worker->engine, ARENA_BYTES, -1, SL_TRANSFER_LOCAL,
                                               (void **)&worker->outputs),
                     0);
    assert_int_equal(sl_transfer_batch_create(worker->engine, 1, &worker->batch), 0);
    join(worker);
    AWAIT(f, workers == before + 1);
    return worker;
}

static void end_worker(struct worker *worker)
{
    if (worker->engine != NULL) {
        partner_stop(&worker->partner);
        sl_transfer_batch_free(&worker->batch);
        sl_transfer_segment_close(&worker->gateway);
        partner_fini(&worker->partner);
        worker->engine = NULL;
    }
}

static void take(struct worker *worker, enum sl_serve_message_kind kind,
                 struct sl_serve_message *out)
{
    assert_true(partner_take(&worker->partner, TIMEOUT_MS, out, NULL));
    assert_string_equal(sl_serve_message_name(out->kind), sl_serve_message_name(kind));
}

/* Whether a message comes soon. */
static bool has_message(struct worker *worker, struct sl_serve_message *out)
{
    return partner_take(&worker->partner, 20, out, NULL);
}

/* Answers with outputs, `bytes` bytes with this value; many are written before. */
static void answer(struct worker *worker, const struct sl_serve_message *infer, uint64_t bytes,
                   uint8_t value)
{
    struct sl_serve_message done = {
        .kind = SL_SERVE_MESSAGE_DONE,
        .request = infer->request,
        .version = 5,
        .output_bytes = bytes,
        .tensor_count = 1,
        .tensors =
            {{.name = "y", .type = SL_OBJECT_U8, .rank = 1, .shape = {bytes}, .bytes = bytes}},
        .queue_us = 1,
        .load_us = 2,
        .compute_us = 3,
        .tail = worker->outputs};
    const struct sl_transfer_request write = {.op = SL_TRANSFER_WRITE,
                                              .local = worker->outputs,
                                              .segment = worker->gateway,
                                              .remote = infer->output_address,
                                              .bytes = bytes};
    memset(worker->outputs, value, bytes);
    if (bytes > 3000) {
        done.tail = NULL;
        assert_int_equal(sl_transfer_batch_submit(worker->batch, &write, 1, TIMEOUT_MS, NULL), 0);
        assert_int_equal(sl_transfer_batch_wait(worker->batch), 0);
    }
    assert_true(partner_answer(&worker->partner, &done));
}

static void refuse(struct worker *worker, const struct sl_serve_message *infer, int err,
                   uint64_t output_bytes)
{
    assert_true(
        partner_answer(&worker->partner, &(struct sl_serve_message){.kind = SL_SERVE_MESSAGE_DONE,
                                                                    .request = infer->request,
                                                                    .err = err,
                                                                    .text = "why",
                                                                    .output_bytes = output_bytes}));
}

/* ---- requests ---- */

static void on_done(struct sl_serve_request *request)
{
    struct call *call = request->ctx;
    call->done_count++;
    sl_completion_end(&call->done);
}

static void submit_here(void *ctx)
{
    struct fixture *f = ctx;
    struct sl_serve_request *request = &f->call->request;
    request->arrived_ns = sl_reactor_now_ns(f->thread.reactor);
    request->deadline_ns += request->arrived_ns;
    request->input = sl_serve_gateway_memory(f->gateway, request->input_bytes);
    assert_non_null(request->input);
    memset(request->input, 7, request->input_bytes);
    sl_serve_gateway_submit(f->gateway, request);
}

/* input_bytes 0: DESCRIBE, which has none. */
static struct call *submit(struct fixture *f, uint32_t index, const char *model, uint64_t version,
                           uint64_t input_bytes, uint64_t timeout_ns)
{
    struct call *call = &f->calls[index];
    memset(call, 0, sizeof *call);
    call->fixture = f;
    call->request =
        (struct sl_serve_request){.kind = input_bytes > 0 ? SL_SERVE_INFER : SL_SERVE_DESCRIBE,
                                  .version = version,
                                  .deadline_ns = timeout_ns,
                                  .input_bytes = input_bytes,
                                  .input_count = input_bytes > 0 ? 1 : 0,
                                  .inputs = {{.name = "x",
                                              .type = SL_OBJECT_U8,
                                              .rank = 2,
                                              .shape = {2, input_bytes / 2},
                                              .bytes = input_bytes}},
                                  .done = on_done,
                                  .ctx = call};
    (void)snprintf(call->request.model, sizeof call->request.model, "%s", model);
    sl_completion_begin(&call->done);
    f->call = call;
    reactor_thread_run(&f->thread, submit_here, f);
    return call;
}

static void release_here(void *ctx)
{
    struct fixture *f = ctx;
    sl_serve_gateway_release(f->gateway, &f->call->request);
}

static void cancel_here(void *ctx)
{
    struct fixture *f = ctx;
    sl_serve_gateway_cancel(f->gateway, &f->call->request);
}

static void wait_for(struct call *call, int err)
{
    sl_completion_wait(&call->done);
    if (call->request.answer.err != err) {
        fail_msg("%d, not %d: %s", call->request.answer.err, err, call->request.answer.text);
    }
    assert_int_equal(call->done_count, 1);
}

static void release(struct call *call)
{
    call->fixture->call = call;
    reactor_thread_run(&call->fixture->thread, release_here, call->fixture);
}

static void finish(struct call *call, int err)
{
    wait_for(call, err);
    release(call);
}

/* Expects outputs of this value. */
static void finish_well(struct call *call, uint64_t bytes, uint8_t value)
{
    wait_for(call, 0);
    assert_int_equal(call->request.answer.version, 5);
    assert_int_equal(call->request.answer.output_count, 1);
    assert_int_equal(call->request.answer.outputs[0].bytes, bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        assert_int_equal(call->request.answer.output[i], value);
    }
    release(call);
}

/* ---- end ---- */

static void on_drained(void *ctx)
{
    struct fixture *f = ctx;
    sl_completion_end(&f->drained);
}

static void stop_here(void *ctx)
{
    struct fixture *f = ctx;
    sl_serve_gateway_stop(f->gateway, on_drained, f);
}

/* Nothing is left. A transfer that is still in progress keeps the inputs of a request that has
 * ended. */
static void tear_down(struct fixture *f)
{
    AWAIT(f, memory_in_use == 0);
    assert_int_equal(stats(f)->waiting + f->stats.running, 0);
    assert_int_equal(f->stats.memory_in_use, 0);
    sl_completion_begin(&f->drained);
    reactor_thread_run(&f->thread, stop_here, f);
    sl_completion_wait(&f->drained);
    reactor_thread_fini(&f->thread);
    sl_serve_gateway_destroy(&f->gateway);
    end_worker(&f->workers[0]);
    end_worker(&f->workers[1]);
    sl_objects_destroy(&f->objects);
    sl_transfer_destroy(&f->engine);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)

/* ---- cases ---- */

/* Few bytes ride in the messages, many are written before. */
static void pass(struct fixture *f, struct worker *worker, uint64_t input_bytes,
                 uint64_t output_bytes)
{
    struct sl_serve_message infer;
    struct call *call = submit(f, 0, "a", 0, input_bytes, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    assert_string_equal(infer.model, "a");
    assert_int_equal(infer.version, 0);
    assert_int_equal(infer.input_bytes, input_bytes);
    assert_int_equal(infer.tensor_count, 1);
    assert_string_equal(infer.tensors[0].name, "x");
    assert_true(infer.deadline_us > 0 && infer.deadline_us <= LONG_NS / 1000);
    assert_true((infer.tail != NULL) == (input_bytes < 3000));
    const uint8_t *inputs = worker->arena + (infer.input_address - (uintptr_t)worker->arena);
    for (uint64_t i = 0; i < input_bytes; i++) {
        assert_int_equal(inputs[i], 7);
    }
    answer(worker, &infer, output_bytes, 9);
    finish_well(call, output_bytes, 9);
    assert_int_equal(call->request.answer.load_us, 2);
    assert_int_equal(call->request.answer.compute_us, 3);
}

CASE(gateway_submit__passes_inputs_and_outputs)
{
    struct sl_serve_message infer;
    struct worker *worker = start_worker(fixture, 0);
    pass(fixture, worker, 1000, 500);
    pass(fixture, worker, 100000, 500);
    pass(fixture, worker, 1000, 60000);
    pass(fixture, worker, 100000, 60000);
    /* Without inputs; a given version. */
    struct call *call = submit(fixture, 0, "a", 3, 0, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    assert_int_equal(infer.request_kind, SL_SERVE_DESCRIBE);
    assert_int_equal(infer.version, 3);
    answer(worker, &infer, 10, 8);
    finish_well(call, 10, 8);
    assert_int_equal(stats(fixture)->results[SL_SERVE_ANSWERED], 5);
}

CASE(gateway_submit__knows_models_and_versions)
{
    struct call *call = submit(fixture, 0, "c", 0, 8, LONG_NS);
    finish(call, SL_ERR_NOT_FOUND);
    assert_string_equal(call->request.answer.text, "there is no model c");
    call = submit(fixture, 0, "a", 4, 8, LONG_NS);
    finish(call, SL_ERR_NOT_FOUND);
    assert_string_equal(call->request.answer.text, "model a has no version 4; it has: 3 5");
    /* One that was published since then. */
    struct sl_serve_message infer;
    struct worker *worker = start_worker(fixture, 0);
    publish(fixture, "c", 1);
    call = submit(fixture, 0, "c", 1, 8, LONG_NS);
    do { /* the list may be a moment too old */
        if (sl_completion_ended(&call->done)) {
            finish(call, SL_ERR_NOT_FOUND);
            call = submit(fixture, 0, "c", 1, 8, LONG_NS);
        }
    } while (!has_message(worker, &infer));
    answer(worker, &infer, 8, 1);
    finish_well(call, 8, 1);
}

CASE(gateway_submit__waits_for_a_worker)
{
    struct sl_serve_message infer;
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    struct call *late = submit(fixture, 1, "b", 0, 8, 50 * SL_CLOCK_NS_PER_MS);
    finish(late, SL_ERR_AGAIN);
    assert_string_equal(late->request.answer.text, "no worker has joined");
    assert_true(late->request.answer.retry_ms > 0);
    struct worker *worker = start_worker(fixture, 0);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    answer(worker, &infer, 8, 2);
    finish_well(call, 8, 2);
}

/* Its ranges are not used again before the worker has answered; that answer changes nothing. */
CASE(gateway_deadline__leaves_the_ranges_to_the_worker)
{
    struct sl_serve_message first, cancel, second;
    struct worker *worker = start_worker(fixture, 0);
    struct call *call = submit(fixture, 0, "a", 0, 1000, 100 * SL_CLOCK_NS_PER_MS);
    take(worker, SL_SERVE_MESSAGE_INFER, &first);
    finish(call, SL_ERR_DEADLINE);
    assert_non_null(strstr(call->request.answer.text, sl_transfer_name(worker->engine)));
    take(worker, SL_SERVE_MESSAGE_CANCEL, &cancel);
    assert_int_equal(cancel.request, first.request);
    call = submit(fixture, 0, "a", 0, 1000, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &second);
    assert_int_not_equal(second.request, first.request);
    assert_int_not_equal(second.input_address, first.input_address);
    assert_int_not_equal(second.output_address, first.output_address);
    answer(worker, &first, 700, 1);
    answer(worker, &second, 700, 2);
    finish_well(call, 700, 2);
    /* Now the first ranges are free. */
    call = submit(fixture, 0, "a", 0, 1000, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &second);
    assert_int_equal(second.input_address, first.input_address);
    assert_int_equal(second.output_address, first.output_address);
    answer(worker, &second, 1, 3);
    finish_well(call, 1, 3);
    assert_int_equal(stats(fixture)->results[SL_SERVE_LATE], 1);
}

CASE(gateway_cancel__reaches_the_worker)
{
    struct sl_serve_message infer, cancel;
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS); /* while it waits */
    fixture->call = call;
    reactor_thread_run(&fixture->thread, cancel_here, fixture);
    struct worker *worker = start_worker(fixture, 0);
    call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    fixture->call = call;
    reactor_thread_run(&fixture->thread, cancel_here, fixture);
    take(worker, SL_SERVE_MESSAGE_CANCEL, &cancel);
    assert_int_equal(cancel.request, infer.request);
    refuse(worker, &infer, SL_ERR_CANCELLED, 0);
    assert_int_equal(call->done_count, 0);
    assert_int_equal(stats(fixture)->results[SL_SERVE_CANCELLED], 2);
}

CASE(gateway_worker_ends__others_get_its_requests)
{
    struct sl_serve_message infer;
    struct worker *one = start_worker(fixture, 0);
    struct call *calls[3];
    for (uint32_t i = 0; i < 3; i++) {
        calls[i] = submit(fixture, i, i == 2 ? "b" : "a", 0, 100 + 2 * i, LONG_NS);
        take(one, SL_SERVE_MESSAGE_INFER, &infer);
    }
    struct worker *two = start_worker(fixture, 1);
    end_worker(one);
    for (uint32_t i = 0; i < 3; i++) {
        take(two, SL_SERVE_MESSAGE_INFER, &infer);
        answer(two, &infer, infer.input_bytes, (uint8_t)i);
    }
    for (uint32_t i = 0; i < 3; i++) {
        wait_for(calls[i], 0);
        assert_int_equal(calls[i]->request.answer.outputs[0].bytes, 100 + 2 * i);
        release(calls[i]);
    }
    assert_int_equal(stats(fixture)->lost_workers, 1);
    assert_int_equal(fixture->stats.repeated, 3);
    assert_int_equal(fixture->stats.workers, 1);
}

CASE(gateway_worker_ends__outputs_stay_until_they_are_released)
{
    struct sl_serve_message infer;
    struct worker *worker = start_worker(fixture, 0);
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    answer(worker, &infer, 5000, 4);
    wait_for(call, 0);
    end_worker(worker);
    AWAIT(fixture, workers == 0);
    finish_well(call, 5000, 4);
}

CASE(gateway_worker_joins_again__gets_its_requests_again)
{
    struct sl_serve_message first, second;
    struct worker *worker = start_worker(fixture, 0);
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &first);
    join(worker);
    take(worker, SL_SERVE_MESSAGE_INFER, &second);
    assert_int_not_equal(first.request, second.request);
    refuse(worker, &first, SL_ERR_CORRUPT, 0); /* it has not forgotten the first one */
    answer(worker, &second, 8, 5);
    finish_well(call, 8, 5);
}

CASE(gateway_worker_leaves__gets_no_more_requests)
{
    struct sl_serve_message infer, infer_more, leave;
    struct worker *one = start_worker(fixture, 0);
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(one, SL_SERVE_MESSAGE_INFER, &infer);
    tell(one, &(struct sl_serve_message){.kind = SL_SERVE_MESSAGE_LEAVE});
    take(one, SL_SERVE_MESSAGE_LEAVE, &leave);
    struct call *other = submit(fixture, 1, "a", 0, 8, LONG_NS);
    assert_false(has_message(one, &infer_more));
    answer(one, &infer, 8, 6);
    finish_well(call, 8, 6);
    end_worker(one);
    AWAIT(fixture, workers == 0);
    struct worker *two = start_worker(fixture, 1);
    take(two, SL_SERVE_MESSAGE_INFER, &infer);
    answer(two, &infer, 8, 7);
    finish_well(other, 8, 7);
    assert_int_equal(stats(fixture)->lost_workers, 0);
}

CASE(gateway_outputs__that_need_more_room_are_asked_for_once_more)
{
    struct sl_serve_message infer;
    struct worker *worker = start_worker(fixture, 0);
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    const uint64_t needed = infer.output_room + 1000;
    refuse(worker, &infer, SL_ERR_TOO_LARGE, needed);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    assert_true(infer.output_room >= needed);
    answer(worker, &infer, needed, 1);
    finish_well(call, needed, 1);
    /* Later requests for the model have it at once, others have not. */
    call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    assert_true(infer.output_room >= needed);
    refuse(worker, &infer, SL_ERR_TOO_LARGE, 2 * needed);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    refuse(worker, &infer, SL_ERR_TOO_LARGE, 3 * needed);
    finish(call, SL_ERR_TOO_LARGE);
    call = submit(fixture, 0, "b", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    assert_true(infer.output_room < needed);
    refuse(worker, &infer, SL_ERR_TOO_LARGE, 0); /* the model */
    finish(call, SL_ERR_TOO_LARGE);
    call = submit(fixture, 0, "b", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    refuse(worker, &infer, SL_ERR_TOO_LARGE, 1ULL << 40);
    finish(call, SL_ERR_TOO_LARGE);
}

CASE(gateway_errors__of_a_worker_are_passed_or_tried_elsewhere)
{
    struct sl_serve_message infer;
    struct worker *worker = start_worker(fixture, 0);
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    refuse(worker, &infer, SL_ERR_INVALID, 0);
    finish(call, SL_ERR_INVALID);
    assert_string_equal(call->request.answer.text, "why");
    call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    for (uint32_t i = 0; i < 3; i++) {
        take(worker, SL_SERVE_MESSAGE_INFER, &infer);
        refuse(worker, &infer, SL_ERR_AGAIN, 0);
    }
    finish(call, SL_ERR_AGAIN);
    assert_true(call->request.answer.retry_ms > 0);
}

/* The worker has lost its connection to the gateway, and joins again. */
CASE(gateway_errors__a_worker_that_does_not_know_the_gateway_is_lost)
{
    struct sl_serve_message infer;
    struct worker *worker = start_worker(fixture, 0);
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    refuse(worker, &infer, SL_ERR_CANCELLED, 0);
    AWAIT(fixture, lost_workers == 1);
    join(worker);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    answer(worker, &infer, 8, 1);
    finish_well(call, 8, 1);
}

CASE(gateway_slots__are_not_exceeded)
{
    struct sl_serve_message infer[8];
    struct worker *worker = start_worker(fixture, 0);
    struct call *calls[8];
    for (uint32_t i = 0; i < 8; i++) { /* twice batch_max */
        calls[i] = submit(fixture, i, "a", 0, 8, LONG_NS);
        take(worker, SL_SERVE_MESSAGE_INFER, &infer[i]);
    }
    struct call *extra = submit(fixture, 8, "a", 0, 8, LONG_NS);
    assert_int_equal(stats(fixture)->running, 8);
    assert_int_equal(fixture->stats.waiting, 1);
    answer(worker, &infer[0], 8, 0);
    finish_well(calls[0], 8, 0);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer[0]);
    answer(worker, &infer[0], 8, 9);
    finish_well(extra, 8, 9);
    for (uint32_t i = 1; i < 8; i++) {
        answer(worker, &infer[i], 8, (uint8_t)i);
        finish_well(calls[i], 8, (uint8_t)i);
    }
}

/* Inputs that do not fit beside each other in the worker's arena go there one after the other. */
CASE(gateway_arena__is_shared_by_turns)
{
    struct sl_serve_message infer, more;
    struct worker *worker = start_worker(fixture, 0);
    struct call *calls[3];
    for (uint32_t i = 0; i < 3; i++) {
        calls[i] = submit(fixture, i, "a", 0, 300000, LONG_NS);
        take(worker, SL_SERVE_MESSAGE_INFER, &infer);
        refuse(worker, &infer, SL_ERR_INVALID, 0);
        finish(calls[i], SL_ERR_INVALID);
    }
    tell(worker, &(struct sl_serve_message){.kind = SL_SERVE_MESSAGE_JOIN,
                                            .join = {.host = "host",
                                                     .arena_address = (uintptr_t)worker->arena,
                                                     .arena_bytes = 1024,
                                                     .batch_max = 4}});
    AWAIT(fixture, lost_workers == 1);
    AWAIT(fixture, workers == 1);
    struct call *first = submit(fixture, 0, "a", 0, 1000, LONG_NS);
    struct call *second = submit(fixture, 1, "a", 0, 1000, LONG_NS);
    struct call *large = submit(fixture, 2, "a", 0, 2000, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    assert_false(has_message(worker, &more));
    answer(worker, &infer, 8, 1);
    finish_well(first, 8, 1);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    answer(worker, &infer, 8, 2);
    finish_well(second, 8, 2);
    finish(large, SL_ERR_TOO_LARGE);
}

static void drain_here(void *ctx)
{
    struct fixture *f = ctx;
    sl_serve_gateway_drain(f->gateway, on_drained, f);
}

CASE(gateway_drain__finishes_what_was_accepted)
{
    struct sl_serve_message infer;
    struct worker *worker = start_worker(fixture, 0);
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    sl_completion_begin(&fixture->drained);
    reactor_thread_run(&fixture->thread, drain_here, fixture);
    finish(submit(fixture, 1, "a", 0, 8, LONG_NS), SL_ERR_AGAIN);
    assert_false(sl_completion_ended(&fixture->drained));
    answer(worker, &infer, 8, 1);
    finish_well(call, 8, 1);
    sl_completion_wait(&fixture->drained);
}

static void take_memory(void *ctx)
{
    struct fixture *f = ctx;
    uint8_t *all = sl_serve_gateway_memory(f->gateway, (1U << 20) - 64);
    assert_non_null(all);
    assert_int_equal((uintptr_t)all % 64, 0);
    assert_null(sl_serve_gateway_memory(f->gateway, 1));
    sl_serve_gateway_memory_free(f->gateway, all);
    uint8_t *parts[4];
    for (uint32_t i = 0; i < 4; i++) {
        parts[i] = sl_serve_gateway_memory(f->gateway, (1U << 18) - 64);
        assert_non_null(parts[i]);
    }
    sl_serve_gateway_memory_free(f->gateway, parts[2]);
    assert_ptr_equal(sl_serve_gateway_memory(f->gateway, 100), parts[2]);
    for (uint32_t i = 0; i < 4; i++) {
        sl_serve_gateway_memory_free(f->gateway, parts[i]);
    }
}

CASE(gateway_memory__is_limited)
{
    reactor_thread_run(&fixture->thread, take_memory, fixture);
}

/* Hostile notices change nothing. */
CASE(gateway_notices__that_no_worker_sends_are_ignored)
{
    struct sl_serve_message infer;
    struct worker *worker = start_worker(fixture, 0);
    const struct sl_transfer_notice notice = {
        .name = SL_SERVE_NOTICE, .text = "\x07nonsense", .bytes = 9};
    const struct sl_transfer_notice older = {.name = "serve", .text = "", .bytes = 0};
    assert_int_equal(sl_transfer_notice_send(worker->gateway, &notice, TIMEOUT_MS), 0);
    assert_int_equal(sl_transfer_notice_send(worker->gateway, &older, TIMEOUT_MS), SL_ERR_VERSION);
    partner_send(
        &worker->partner, worker->gateway,
        &(struct sl_serve_message){
            .kind = SL_SERVE_MESSAGE_INFER, .request = 1, .model = "a", .output_room = 64});
    take(worker, SL_SERVE_MESSAGE_DONE, &infer); /* a gateway does not compute */
    assert_int_equal(infer.err, SL_ERR_CLOSED);
    tell(worker, &(struct sl_serve_message){.kind = SL_SERVE_MESSAGE_CANCEL, .request = 1});
    struct call *call = submit(fixture, 0, "a", 0, 8, LONG_NS);
    take(worker, SL_SERVE_MESSAGE_INFER, &infer);
    answer(worker, &infer, 8, 1);
    finish_well(call, 8, 1);
}
