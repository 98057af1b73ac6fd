/* What runs on the first reactors of two engines makes their calls, and waits for nothing. */
#include "net/transfer/async.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/limits.h"
#include "net/transfer/engine.h"
#include "pair.h"
#include "tests/support/reactor_thread.h"
#include "tests/support/silent.h"

#define BYTES (1U << 20)
#define MANY  2148

struct end {
    struct sl_completion completion;
    int err;
    char reason[SL_TRANSFER_REASON_BYTES];
};

/* `here` and, in some cases, `there` are used; the pair's segment and batch are here's. */
struct fixture {
    struct pair pair;
    struct reactor_thread on_here, on_there;
    struct sl_transfer_async *here, *there;
    struct sl_transfer_segment *segment;
    struct end end;

    /* Notices that have arrived. */
    _Atomic uint32_t arrived;
    uint32_t last;
    bool disordered;
    char sender[SL_TRANSFER_NAME_BYTES];

    uint32_t begun, well, refused; /* sends */
    char silent[SILENT_NAME_BYTES];
};

static void arrive(void *ctx, const struct sl_transfer_noticed *noticed,
                   struct sl_transfer_asked *asked)
{
    struct fixture *f = ctx;
    uint32_t number = 0;
    if (noticed->bytes == sizeof number) {
        memcpy(&number, noticed->text, sizeof number);
    }
    f->disordered = f->disordered || number <= f->last;
    f->last = number;
    memcpy(f->sender, noticed->sender, sizeof f->sender);
    atomic_fetch_add(&f->arrived, 1);
}

static void await_arrived(struct fixture *f, uint32_t count)
{
    while (atomic_load(&f->arrived) < count) {
        (void)usleep(100);
    }
}

static void create_here(void *ctx)
{
    struct fixture *f = ctx;
    assert_int_equal(sl_transfer_async_create(f->pair.here, "objects", arrive, f, &f->here), 0);
}

static void set_up(struct fixture *f)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0", .reactor_count = 2};
    memset(f, 0, sizeof *f);
    pair_init(&f->pair, BYTES, &options);
    reactor_thread_use(&f->on_here, sl_transfer_async_reactor(f->pair.here));
    reactor_thread_use(&f->on_there, sl_transfer_async_reactor(f->pair.there));
    reactor_thread_run(&f->on_here, create_here, f);
}

static void ended(void *ctx)
{
    struct end *end = ctx;
    sl_completion_end(&end->completion);
}

static void destroy_here(void *ctx)
{
    struct fixture *f = ctx;
    sl_transfer_async_destroy(&f->here, ended, &f->end);
}

static void destroy_there(void *ctx)
{
    struct fixture *f = ctx;
    sl_transfer_async_destroy(&f->there, ended, &f->end);
}

static void run_and_wait(struct fixture *f, void (*run)(void *ctx))
{
    sl_completion_begin(&f->end.completion);
    reactor_thread_run(run == destroy_there ? &f->on_there : &f->on_here, run, f);
    sl_completion_wait(&f->end.completion);
}

static void tear_down(struct fixture *f)
{
    if (f->here != NULL) {
        run_and_wait(f, destroy_here);
    }
    if (f->there != NULL) {
        run_and_wait(f, destroy_there);
    }
    reactor_thread_fini(&f->on_here);
    reactor_thread_fini(&f->on_there);
    pair_fini(&f->pair);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)

static void done(void *ctx, int err, const char *reason)
{
    struct end *end = ctx;
    end->err = err;
    (void)snprintf(end->reason, sizeof end->reason, "%s", reason);
    sl_completion_end(&end->completion);
}

static void create_there(void *ctx)
{
    struct fixture *f = ctx;
    f->end.err = sl_transfer_async_create(f->pair.there, "serve", arrive, f, &f->there);
}

/* Segments */

static void open_there(void *ctx)
{
    struct fixture *f = ctx;
    assert_int_equal(sl_transfer_async_open(f->here, sl_transfer_name(f->pair.there),
                                            PAIR_TIMEOUT_MS, &f->segment, done, &f->end),
                     0);
    assert_null(f->segment);
}

static void close_there(void *ctx)
{
    struct fixture *f = ctx;
    sl_transfer_async_close(f->here, &f->segment, done, &f->end);
    assert_null(f->segment);
}

static void open_nobody(void *ctx)
{
    struct fixture *f = ctx;
    assert_int_equal(
        sl_transfer_async_open(f->here, "127.0.0.1:1", PAIR_TIMEOUT_MS, &f->segment, done, &f->end),
        0);
}

static void open_wrongly(void *ctx)
{
    struct fixture *f = ctx;
    assert_int_equal(sl_transfer_async_open(f->here, "nowhere", 100, &f->segment, done, &f->end),
                     SL_ERR_INVALID);
    assert_int_equal(sl_transfer_async_open(f->here, sl_transfer_name(f->pair.there), 0,
                                            &f->segment, done, &f->end),
                     SL_ERR_INVALID);
}

static uint32_t segment_count(struct sl_transfer *transfer)
{
    sl_port_set_lock(transfer->ports);
    const uint32_t count = transfer->segment_count;
    sl_port_set_unlock(transfer->ports);
    return count;
}

CASE(async_open__reports_its_end)
{
    run_and_wait(fixture, open_there);
    assert_int_equal(fixture->end.err, 0);
    assert_non_null(fixture->segment);
    assert_int_equal(segment_count(fixture->pair.here), 2);
    fixture->end.err = -1;
    run_and_wait(fixture, close_there);
    assert_int_equal(fixture->end.err, 0);
    assert_int_equal(segment_count(fixture->pair.here), 1);
}

CASE(async_open__fails_and_leaves_nothing)
{
    reactor_thread_run(&fixture->on_here, open_wrongly, fixture);
    run_and_wait(fixture, open_nobody);
    assert_int_equal(fixture->end.err, SL_ERR_REFUSED);
    assert_non_null(strstr(fixture->end.reason, "127.0.0.1:1"));
    assert_null(fixture->segment);
    while (segment_count(fixture->pair.here) > 1) {
        (void)usleep(100);
    }
}

static void watch_there(void *ctx)
{
    struct fixture *f = ctx;
    sl_transfer_async_watch(f->here, f->segment, false, done, &f->end);
}

static void watch_and_close(void *ctx)
{
    struct fixture *f = ctx;
    watch_there(f);
    sl_transfer_async_close(f->here, &f->segment, NULL, NULL);
}

CASE(async_watch__reports_the_end_of_the_peer_or_the_close)
{
    run_and_wait(fixture, open_there);
    run_and_wait(fixture, watch_and_close);
    assert_int_equal(fixture->end.err, SL_ERR_CANCELLED);
    run_and_wait(fixture, open_there);
    sl_completion_begin(&fixture->end.completion);
    reactor_thread_run(&fixture->on_here, watch_there, fixture);
    assert_false(sl_completion_ended(&fixture->end.completion));
    sl_transfer_destroy(&fixture->pair.there);
    sl_completion_wait(&fixture->end.completion);
    assert_int_equal(fixture->end.err, SL_ERR_CLOSED);
    assert_true(fixture->end.reason[0] != '\0');
    run_and_wait(fixture, close_there);
}

/* Batches */

static void submit_read(void *ctx)
{
    struct fixture *f = ctx;
    const struct sl_transfer_request request =
        pair_request(&f->pair, SL_TRANSFER_READ, 0, 0, BYTES);
    assert_int_equal(sl_transfer_async_submit(f->here, f->pair.batch, &request, 1, PAIR_TIMEOUT_MS,
                                              NULL, done, &f->end),
                     0);
}

static void submit_beyond(void *ctx)
{
    struct fixture *f = ctx;
    const struct sl_transfer_request requests[2] = {
        pair_request(&f->pair, SL_TRANSFER_READ, 0, 0, 100),
        pair_request(&f->pair, SL_TRANSFER_READ, 0, BYTES - 50, 100)};
    assert_int_equal(sl_transfer_async_submit(f->here, f->pair.batch, requests, 2, PAIR_TIMEOUT_MS,
                                              NULL, done, &f->end),
                     0);
}

static void submit_nothing(void *ctx)
{
    struct fixture *f = ctx;
    assert_int_equal(sl_transfer_async_submit(f->here, f->pair.batch, NULL, 0, PAIR_TIMEOUT_MS,
                                              NULL, done, &f->end),
                     SL_ERR_INVALID);
}

CASE(async_submit__ends_with_the_first_error)
{
    struct sl_transfer_status status;
    pair_fill(fixture->pair.remote.base, BYTES, 5);
    run_and_wait(fixture, submit_read);
    assert_int_equal(fixture->end.err, 0);
    pair_expect(fixture->pair.local.base, BYTES, 5);
    reactor_thread_run(&fixture->on_here, submit_nothing, fixture);
    run_and_wait(fixture, submit_beyond);
    assert_int_equal(fixture->end.err, SL_ERR_INVALID);
    assert_non_null(strstr(fixture->end.reason, "request 1"));
    assert_int_equal(sl_transfer_batch_status(fixture->pair.batch, 0, &status), 0);
    assert_int_equal(status.state, SL_TRANSFER_COMPLETED);
    /* The same batch may then be used by a thread that waits. */
    pair_move(&fixture->pair, SL_TRANSFER_READ, 0, 0, BYTES);
}

static void write_with_notice(void *ctx)
{
    struct fixture *f = ctx;
    const uint32_t number = 1;
    const struct sl_transfer_request request =
        pair_request(&f->pair, SL_TRANSFER_WRITE, 0, 0, BYTES);
    const struct sl_transfer_notice notice = {
        .name = "written", .text = &number, .bytes = sizeof number};
    assert_int_equal(sl_transfer_async_submit(f->here, f->pair.batch, &request, 1, PAIR_TIMEOUT_MS,
                                              &notice, done, &f->end),
                     0);
}

CASE(async_submit__sends_the_notice_after_the_writes)
{
    struct sl_transfer_noticed noticed;
    pair_fill(fixture->pair.local.base, BYTES, 6);
    run_and_wait(fixture, write_with_notice);
    assert_int_equal(fixture->end.err, 0);
    assert_int_equal(sl_transfer_notice_take(fixture->pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
    assert_string_equal(noticed.name, "written");
    pair_expect(fixture->pair.remote.base, BYTES, 6);
}

static atomic_bool goes_on;

static void hold_reactor(void *ctx, uint64_t a, uint64_t b)
{
    sl_reactor_excuse_turn(sl_reactor_running());
    while (!atomic_load(&goes_on)) {
        (void)usleep(1000);
    }
}

/* The engine's reactors stand still until goes_on. */
static void hold(struct sl_transfer *transfer)
{
    struct sl_port *port;
    atomic_store(&goes_on, false);
    assert_int_equal(sl_port_here(transfer->ports, &port), 0);
    for (uint32_t i = 0; i < transfer->settings.reactors.count; i++) {
        assert_int_equal(sl_mailbox_post(port->lanes[i].to, (struct sl_mail){.run = hold_reactor}),
                         0);
    }
}

static void submit_and_cancel(void *ctx)
{
    struct fixture *f = ctx;
    submit_read(ctx);
    sl_transfer_async_cancel(f->here, f->pair.batch);
    sl_transfer_async_cancel(f->here, f->pair.batch);
}

CASE(async_cancel__ends_the_batch_once)
{
    hold(fixture->pair.there);
    run_and_wait(fixture, submit_and_cancel);
    assert_int_equal(fixture->end.err, SL_ERR_CANCELLED);
    atomic_store(&goes_on, true);
    run_and_wait(fixture, submit_read);
    assert_int_equal(fixture->end.err, 0);
}

/* Notices */

static int send_number(struct fixture *f, const char *name, uint32_t number)
{
    const struct sl_transfer_notice notice = {
        .name = name, .text = &number, .bytes = sizeof number};
    return sl_transfer_notice_send(f->pair.segment, &notice, PAIR_TIMEOUT_MS);
}

CASE(async_arrived__gets_notices_by_their_name)
{
    struct sl_transfer_noticed noticed;
    reactor_thread_run(&fixture->on_there, create_there, fixture);
    assert_int_equal(fixture->end.err, 0);
    for (uint32_t i = 1; i <= 100; i++) {
        assert_int_equal(send_number(fixture, "serve", i), 0);
    }
    assert_int_equal(send_number(fixture, "objects", 1), 0);
    await_arrived(fixture, 100);
    assert_false(fixture->disordered);
    assert_string_equal(fixture->sender, sl_transfer_name(fixture->pair.here));
    assert_int_equal(sl_transfer_notice_take(fixture->pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
    assert_string_equal(noticed.name, "objects");
    assert_int_equal(sl_transfer_notice_take(fixture->pair.there, 10, &noticed), SL_ERR_DEADLINE);
    /* Afterwards the application gets them. */
    run_and_wait(fixture, destroy_there);
    assert_int_equal(send_number(fixture, "serve", 1), 0);
    assert_int_equal(sl_transfer_notice_take(fixture->pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
    assert_string_equal(noticed.name, "serve");
}

CASE(async_arrived__gets_notices_that_came_before_it)
{
    struct sl_transfer_noticed noticed;
    assert_int_equal(send_number(fixture, "serve", 1), 0);
    assert_int_equal(send_number(fixture, "other", 2), 0);
    assert_int_equal(send_number(fixture, "serve", 3), 0);
    reactor_thread_run(&fixture->on_there, create_there, fixture);
    assert_int_equal(fixture->end.err, 0);
    await_arrived(fixture, 2);
    assert_int_equal(fixture->last, 3);
    assert_false(fixture->disordered);
    assert_int_equal(sl_transfer_notice_take(fixture->pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
    assert_string_equal(noticed.name, "other");
}

static void sent(void *ctx, int err, const char *reason)
{
    struct fixture *f = ctx;
    f->well += err == 0 ? 1 : 0;
    f->refused += err == SL_ERR_AGAIN ? 1 : 0;
    if (f->well + f->refused == f->begun) {
        sl_completion_end(&f->end.completion);
    }
}

static void send_many(void *ctx)
{
    struct fixture *f = ctx;
    for (f->begun = 0; f->begun < MANY; f->begun++) {
        const uint32_t number = f->begun + 1;
        const struct sl_transfer_notice notice = {
            .name = "serve", .text = &number, .bytes = sizeof number};
        assert_int_equal(
            sl_transfer_async_send(f->here, f->pair.segment, &notice, PAIR_TIMEOUT_MS, sent, f), 0);
    }
}

CASE(async_send__takes_many_calls)
{
    reactor_thread_run(&fixture->on_there, create_there, fixture);
    run_and_wait(fixture, send_many);
    assert_int_equal(fixture->well + fixture->refused, MANY);
    assert_true(fixture->well >= SL_LIMIT_TRANSFER_NOTICES);
    await_arrived(fixture, fixture->well);
    assert_false(fixture->disordered);
}

/* Create and destroy */

static void create_again(void *ctx)
{
    struct fixture *f = ctx;
    struct sl_transfer_async *other = NULL;
    f->end.err = sl_transfer_async_create(f->pair.here, "objects", arrive, f, &other);
    assert_null(other);
}

CASE(async_create__is_once_per_prefix)
{
    reactor_thread_run(&fixture->on_here, create_again, fixture);
    assert_int_equal(fixture->end.err, SL_ERR_EXISTS);
    for (uint32_t i = 0; i < 20; i++) {
        reactor_thread_run(&fixture->on_there, create_there, fixture);
        assert_int_equal(fixture->end.err, 0);
        run_and_wait(fixture, destroy_there);
    }
}

static void done_first(void *ctx, int err, const char *reason)
{
    struct fixture *f = ctx;
    f->begun++;
    f->end.err = err;
}

static void ended_last(void *ctx)
{
    struct fixture *f = ctx;
    f->well = f->begun;
    sl_completion_end(&f->end.completion);
}

static void leave_calls(void *ctx)
{
    struct fixture *f = ctx;
    const struct sl_transfer_request request =
        pair_request(&f->pair, SL_TRANSFER_READ, 0, 0, BYTES);
    const struct sl_transfer_notice notice = {.name = "objects"};
    assert_int_equal(sl_transfer_async_submit(f->here, f->pair.batch, &request, 1, PAIR_TIMEOUT_MS,
                                              NULL, done_first, f),
                     0);
    assert_int_equal(
        sl_transfer_async_send(f->here, f->pair.segment, &notice, PAIR_TIMEOUT_MS, done_first, f),
        0);
    sl_transfer_async_destroy(&f->here, ended_last, f);
    assert_null(f->here);
}

static void open_and_destroy(void *ctx)
{
    struct fixture *f = ctx;
    f->end.err = 0;
    assert_int_equal(
        sl_transfer_async_open(f->here, f->silent, PAIR_TIMEOUT_MS, &f->segment, done_first, f), 0);
    sl_transfer_async_destroy(&f->here, ended_last, f);
}

CASE(async_destroy__abandons_openings)
{
    const int listener = silent_open(fixture->silent);
    run_and_wait(fixture, open_and_destroy);
    close(listener);
    assert_int_equal(fixture->well, 1);
    assert_int_equal(fixture->end.err, SL_ERR_CANCELLED);
    assert_int_equal(segment_count(fixture->pair.here), 1);
}

CASE(async_destroy__lets_calls_end)
{
    run_and_wait(fixture, leave_calls);
    assert_int_equal(fixture->well, 2);
    assert_int_equal(fixture->end.err, 0);
}
