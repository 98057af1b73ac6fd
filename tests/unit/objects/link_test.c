/* Two nodes' links, each with an engine on loopback and a reactor; and a stranger with an engine.
 */
#include "objects/node/link.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "net/transfer/engine.h"
#include "objects/node/node.h"
#include "tests/support/reactor_thread.h"
#include "tests/support/silent.h"
#include "tests/support/unit.h"

#define TIMEOUT_MS 60000
#define LEASE_MS   1234

enum behaviour { ANSWERS, REFUSES, IGNORES };

struct node {
    struct sl_transfer *transfer;
    uint64_t id;
    char address[SL_TRANSFER_NAME_BYTES];
    struct reactor_thread thread;
    struct sl_clock clock;
    _Atomic uint64_t ahead_ns; /* of the system's clock */
    uint64_t turn_ns;          /* time of the reactor's turn in which read_turn ran */
    struct sl_objects_link *link;
    _Atomic enum behaviour behaviour;

    /* What has arrived. */
    _Atomic uint32_t arrived, uses; /* messages; USE of them */
    char sender[SL_TRANSFER_NAME_BYTES];
    uint64_t last_node;
    uint32_t last_blocks, last_request;
    bool disordered;
};

struct fixture {
    struct node a, b;
    struct sl_completion completion;

    /* Of a's request, message or use. */
    struct sl_objects_request request;
    struct sl_objects_peer_use use;
    struct sl_transfer_segment *segment;
    char address[SL_TRANSFER_NAME_BYTES]; /* to whom */
    uint32_t timeout_ms, count, ended, well, refused;
    int err;
    char reason[SL_TRANSFER_REASON_BYTES];
    uint32_t lease_ms;
    bool has_answer, is_void;
    uint64_t link_refused;
};

static uint64_t clock_now(void *ctx)
{
    struct node *node = ctx;
    return sl_clock_now_ns(sl_clock_system()) + atomic_load(&node->ahead_ns);
}

static void arrived(void *ctx, const char *address, const struct sl_objects_message *message)
{
    struct node *node = ctx;
    const enum behaviour behaviour = atomic_load(&node->behaviour);
    if (!message->is_answer && behaviour != IGNORES &&
        (message->kind == SL_OBJECTS_ALIVE || message->kind == SL_OBJECTS_NEWS)) {
        struct sl_objects_message answer = {.kind = message->kind,
                                            .is_answer = true,
                                            .request = message->request,
                                            .err = behaviour == REFUSES ? SL_ERR_NOT_FOUND : 0,
                                            .text = "not here",
                                            .attach.lease_ms = LEASE_MS};
        sl_objects_link_send(node->link, address, &answer, NULL, NULL);
    }
    (void)snprintf(node->sender, sizeof node->sender, "%s", address);
    node->last_node = message->node;
    node->last_request = message->request;
    node->disordered = node->disordered || (message->kind == SL_OBJECTS_HOLD &&
                                            message->commit.blocks <= node->last_blocks);
    node->last_blocks = message->commit.blocks;
    atomic_fetch_add(&node->uses, message->kind == SL_OBJECTS_USE);
    atomic_fetch_add(&node->arrived, 1);
}

static void create_link(void *ctx)
{
    struct node *node = ctx;
    assert_int_equal(sl_objects_link_create(node->transfer, node->id, arrived, node, &node->link),
                     0);
}

static void node_init(struct node *node, uint64_t id)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints = "tcp://127.0.0.1:0"};
    node->clock = (struct sl_clock){.now_ns = clock_now, .ctx = node};
    const struct sl_transfer_setup setup = {.clock = &node->clock};
    assert_int_equal(sl_transfer_create_with(&options, &setup, &node->transfer), 0);
    (void)snprintf(node->address, sizeof node->address, "%s", sl_transfer_name(node->transfer));
    node->id = id;
    reactor_thread_use(&node->thread, sl_transfer_async_reactor(node->transfer));
    reactor_thread_run(&node->thread, create_link, node);
}

struct ending {
    struct node *node;
    struct sl_completion completion;
};

static void link_ended(void *ctx)
{
    struct ending *ending = ctx;
    sl_completion_end(&ending->completion);
}

static void destroy_link(void *ctx)
{
    struct ending *ending = ctx;
    sl_objects_link_destroy(&ending->node->link, link_ended, ending);
}

static void node_fini(struct node *node)
{
    if (node->transfer != NULL) {
        struct ending ending = {.node = node};
        sl_completion_begin(&ending.completion);
        reactor_thread_run(&node->thread, destroy_link, &ending);
        sl_completion_wait(&ending.completion);
        reactor_thread_fini(&node->thread);
        sl_transfer_destroy(&node->transfer);
    }
}

static void set_up(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    node_init(&f->a, 11);
    node_init(&f->b, 22);
    (void)snprintf(f->address, sizeof f->address, "%s", f->b.address);
    f->timeout_ms = TIMEOUT_MS;
}

static void tear_down(struct fixture *f)
{
    node_fini(&f->a);
    node_fini(&f->b);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)

static void run_and_wait(struct fixture *f, void (*run)(void *ctx))
{
    sl_completion_begin(&f->completion);
    reactor_thread_run(&f->a.thread, run, f);
    sl_completion_wait(&f->completion);
}

static uint32_t segment_count(struct sl_transfer *transfer)
{
    sl_port_set_lock(transfer->ports);
    const uint32_t count = transfer->segment_count;
    sl_port_set_unlock(transfer->ports);
    return count;
}

static void await_segments(struct node *node, uint32_t count)
{
    while (segment_count(node->transfer) != count) {
        (void)usleep(100);
    }
}

static void await_arrived(struct node *node, uint32_t count)
{
    while (atomic_load(&node->arrived) < count) {
        (void)usleep(100);
    }
}

/* Requests */

static void answered(struct sl_objects_request *request, const struct sl_objects_message *answer,
                     int err, const char *reason)
{
    struct fixture *f = SL_CONTAINER_OF(request, struct fixture, request);
    f->has_answer = answer != NULL;
    f->lease_ms = answer != NULL ? answer->attach.lease_ms : 0;
    f->err = err;
    (void)snprintf(f->reason, sizeof f->reason, "%s", reason);
    f->ended++;
    sl_completion_end(&f->completion);
}

static void request(void *ctx)
{
    struct fixture *f = ctx;
    struct sl_objects_message message = {.kind = SL_OBJECTS_ALIVE, .attach.host = 1};
    f->request.answered = answered;
    sl_objects_link_request(f->a.link, &f->request, f->address, &message, f->timeout_ms);
    assert_int_equal(f->ended, 0);
}

static void request_anew(void *ctx)
{
    struct fixture *f = ctx;
    f->ended = 0;
    request(f);
}

static void cancel(void *ctx)
{
    struct fixture *f = ctx;
    sl_objects_link_cancel(f->a.link, &f->request);
    sl_objects_link_cancel(f->a.link, &f->request);
}

CASE(link_request__gets_the_answer)
{
    run_and_wait(fixture, request);
    assert_int_equal(fixture->err, 0);
    assert_int_equal(fixture->lease_ms, LEASE_MS);
    await_arrived(&fixture->b, 1);
    assert_string_equal(fixture->b.sender, fixture->a.address);
    assert_int_equal(fixture->b.last_node, 11);
    /* The same request again, over the same segment; and the error of an answer. */
    fixture->ended = 0;
    fixture->b.behaviour = REFUSES;
    run_and_wait(fixture, request);
    assert_true(fixture->has_answer);
    assert_int_equal(fixture->err, SL_ERR_NOT_FOUND);
    assert_string_equal(fixture->reason, "not here");
    assert_int_equal(segment_count(fixture->a.transfer), 1);
}

CASE(link_request__reaches_a_peer_by_another_name)
{
    (void)snprintf(fixture->address, sizeof fixture->address, "localhost%s",
                   strrchr(fixture->b.address, ':'));
    run_and_wait(fixture, request);
    assert_int_equal(fixture->err, 0);
    assert_int_equal(fixture->lease_ms, LEASE_MS);
}

CASE(link_request__to_this_node_needs_no_engine)
{
    (void)snprintf(fixture->address, sizeof fixture->address, "%s", fixture->a.address);
    run_and_wait(fixture, request);
    assert_int_equal(fixture->err, 0);
    assert_int_equal(fixture->lease_ms, LEASE_MS);
    assert_string_equal(fixture->a.sender, fixture->a.address);
    assert_int_equal(fixture->a.last_node, 11);
    assert_int_equal(segment_count(fixture->a.transfer), 0);
    fixture->ended = 0;
    fixture->a.behaviour = IGNORES;
    fixture->timeout_ms = 50;
    run_and_wait(fixture, request);
    assert_false(fixture->has_answer);
    assert_int_equal(fixture->err, SL_ERR_DEADLINE);
    /* Cancelled with the answer on its way; before it is delivered; at the node's end. */
    fixture->timeout_ms = TIMEOUT_MS;
    for (uint32_t i = 0; i < 100; i++) {
        fixture->a.behaviour = i % 2 == 0 ? ANSWERS : IGNORES;
        reactor_thread_run(&fixture->a.thread, request_anew, fixture);
        reactor_thread_run(&fixture->a.thread, cancel, fixture);
    }
    reactor_thread_run(&fixture->a.thread, request_anew, fixture);
}

CASE(link_request__ends_at_its_deadline)
{
    run_and_wait(fixture, request); /* there is a connection from now on */
    fixture->ended = 0;
    fixture->b.behaviour = IGNORES;
    fixture->timeout_ms = 50;
    run_and_wait(fixture, request);
    assert_false(fixture->has_answer);
    assert_int_equal(fixture->err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture->reason, fixture->b.address));
    assert_non_null(strstr(fixture->reason, "ALIVE"));
}

CASE(link_request__fails_when_the_peer_ends)
{
    fixture->b.behaviour = IGNORES;
    sl_completion_begin(&fixture->completion);
    reactor_thread_run(&fixture->a.thread, request, fixture);
    await_arrived(&fixture->b, 1);
    assert_false(sl_completion_ended(&fixture->completion));
    node_fini(&fixture->b);
    sl_completion_wait(&fixture->completion);
    assert_false(fixture->has_answer);
    assert_int_equal(fixture->err, SL_ERR_CLOSED);
    await_segments(&fixture->a, 0);
}

CASE(link_request__fails_when_no_peer_is_there)
{
    (void)snprintf(fixture->address, sizeof fixture->address, "no address");
    run_and_wait(fixture, request);
    assert_int_equal(fixture->err, SL_ERR_INVALID);
    assert_non_null(strstr(fixture->reason, "no address"));
    fixture->ended = 0;
    fixture->timeout_ms = 50;
    const int listener = silent_open(fixture->address);
    run_and_wait(fixture, request);
    assert_int_equal(fixture->err, SL_ERR_DEADLINE);
    close(listener);
    fixture->ended = 0;
    fixture->timeout_ms = TIMEOUT_MS;
    (void)snprintf(fixture->address, sizeof fixture->address, "127.0.0.1:1");
    run_and_wait(fixture, request);
    assert_int_equal(fixture->err, SL_ERR_REFUSED);
    assert_non_null(strstr(fixture->reason, "127.0.0.1:1"));
    await_segments(&fixture->a, 0);
}

CASE(link_cancel__is_silent)
{
    fixture->b.behaviour = IGNORES;
    reactor_thread_run(&fixture->a.thread, request, fixture);
    reactor_thread_run(&fixture->a.thread, cancel, fixture); /* it has perhaps not been sent */
    reactor_thread_run(&fixture->a.thread, request, fixture);
    await_arrived(&fixture->b, 1);
    reactor_thread_run(&fixture->a.thread, cancel, fixture);
    fixture->b.behaviour = ANSWERS;
    run_and_wait(fixture, request);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->err, 0);
}

/* Messages */

static void sent(void *ctx, int err, const char *reason)
{
    struct fixture *f = ctx;
    f->well += err == 0 ? 1 : 0;
    f->refused += err == SL_ERR_AGAIN ? 1 : 0;
    f->ended++;
    if (f->ended == f->count) {
        sl_completion_end(&f->completion);
    }
}

static void send_many(void *ctx)
{
    struct fixture *f = ctx;
    for (uint32_t i = 0; i < f->count; i++) {
        struct sl_objects_message message = {
            .kind = SL_OBJECTS_HOLD, .name = "n", .version = 1, .commit.blocks = i + 1};
        sl_objects_link_send(f->a.link, f->address, &message, sent, f);
    }
    assert_int_equal(f->ended, 0);
}

CASE(link_send__keeps_the_order)
{
    fixture->count = 500;
    run_and_wait(fixture, send_many);
    assert_int_equal(fixture->well, 500);
    await_arrived(&fixture->b, 500);
    assert_false(fixture->b.disordered);
}

static void is_full(void *ctx, int err, const char *reason)
{
    struct fixture *f = ctx;
    f->refused += err == SL_ERR_AGAIN ? 1 : 0;
    f->ended += err == SL_ERR_CANCELLED ? 1 : 0;
    if (f->refused == f->count - SL_LIMIT_OBJECTS_SENDS && err == SL_ERR_AGAIN) {
        sl_completion_end(&f->completion);
    }
}

static void send_too_many(void *ctx)
{
    struct fixture *f = ctx;
    for (uint32_t i = 0; i < f->count; i++) {
        struct sl_objects_message message = {.kind = SL_OBJECTS_DROP, .name = "n", .version = 1};
        sl_objects_link_send(f->a.link, f->address, &message, is_full, f);
    }
}

CASE(link_send__is_bounded)
{
    fixture->count = SL_LIMIT_OBJECTS_SENDS + 100;
    const int listener = silent_open(fixture->address);
    run_and_wait(fixture, send_too_many);
    assert_int_equal(fixture->refused, 100);
    node_fini(&fixture->a); /* it ends what waits */
    close(listener);
    assert_int_equal(fixture->ended, SL_LIMIT_OBJECTS_SENDS);
}

/* Strangers */

static void count_refused(void *ctx)
{
    struct fixture *f = ctx;
    f->link_refused = sl_objects_link_refused(f->b.link);
}

static void expect_refused(struct fixture *f, uint64_t count)
{
    while (f->link_refused < count) {
        reactor_thread_run(&f->b.thread, count_refused, f);
    }
    assert_int_equal(f->link_refused, count);
}

CASE(link__refuses_garbage)
{
    uint8_t text[SL_TRANSFER_NOTICE_BYTES];
    uint64_t random = 7;
    struct sl_transfer_segment *segment;
    struct sl_transfer_notice notice = {.name = "objects/2", .text = text};
    struct sl_objects_message answer = {
        .kind = SL_OBJECTS_ALIVE, .is_answer = true, .request = 1, .attach.lease_ms = 1, .node = 5};
    assert_int_equal(
        sl_transfer_segment_open(fixture->a.transfer, fixture->b.address, TIMEOUT_MS, &segment), 0);
    for (uint32_t i = 0; i < 300; i++) {
        for (uint32_t k = 0; k < sizeof text; k++) {
            text[k] = (uint8_t)sl_hash_random(&random);
        }
        notice.bytes = (uint32_t)(sl_hash_random(&random) % (sizeof text + 1));
        text[0] = i % 2 == 0 ? text[0] : (uint8_t)(i / 2 % SL_OBJECTS_KINDS);
        int err;
        while ((err = sl_transfer_notice_send(segment, &notice, TIMEOUT_MS)) == SL_ERR_AGAIN) {
            (void)usleep(1000);
        }
        assert_int_equal(err, 0);
    }
    expect_refused(fixture, 300);
    /* An answer to nothing; another version. */
    notice.bytes = sl_objects_message_encode(&answer, text);
    assert_int_equal(sl_transfer_notice_send(segment, &notice, TIMEOUT_MS), 0);
    notice.name = "objects";
    assert_int_equal(sl_transfer_notice_send(segment, &notice, TIMEOUT_MS), SL_ERR_VERSION);
    assert_non_null(strstr(sl_transfer_last_error(), "speaks objects/2, and objects came"));
    expect_refused(fixture, 301);
    sl_transfer_segment_close(&segment);
    run_and_wait(fixture, request);
    assert_int_equal(fixture->err, 0);
}

static void send_news(void *ctx)
{
    struct fixture *f = ctx;
    struct sl_objects_message message = {.kind = SL_OBJECTS_NEWS, .request = 77};
    sl_objects_link_send(f->a.link, f->address, &message, NULL, NULL);
}

CASE(link__delivers_answers_to_news_which_the_catalogue_numbers)
{
    reactor_thread_run(&fixture->a.thread, send_news, fixture);
    await_arrived(&fixture->a, 1);
    assert_int_equal(fixture->a.last_node, 22);
    assert_int_equal(fixture->a.last_request, 77);
}

/* Segments */

static void opened(struct sl_objects_peer_use *use, struct sl_transfer_segment *segment, int err,
                   const char *reason)
{
    struct fixture *f = SL_CONTAINER_OF(use, struct fixture, use);
    f->segment = segment;
    f->err = err;
    f->ended++;
    sl_completion_end(&f->completion);
}

static void get(void *ctx)
{
    struct fixture *f = ctx;
    f->use.opened = opened;
    struct sl_transfer_segment *open =
        sl_objects_link_peer_get(f->a.link, &f->use, f->address, TIMEOUT_MS);
    assert_int_equal(f->ended, 0);
    if (open != NULL) {
        opened(&f->use, open, 0, "");
    }
}

static void put(void *ctx)
{
    struct fixture *f = ctx;
    sl_objects_link_peer_put(f->a.link, &f->use);
    sl_objects_link_peer_put(f->a.link, &f->use);
}

static void read_turn(void *ctx)
{
    struct node *node = ctx;
    node->turn_ns = sl_reactor_now_ns(node->thread.reactor);
}

/* Returns when the reactor has a turn at the new time: one that has begun keeps its own. */
static void advance(struct node *node, uint64_t seconds)
{
    atomic_fetch_add(&node->ahead_ns, seconds * SL_CLOCK_NS_PER_S);
    const uint64_t now_ns = clock_now(node);
    do {
        reactor_thread_run(&node->thread, read_turn, node);
    } while (node->turn_ns < now_ns);
}

static void get_and_put(void *ctx)
{
    struct fixture *f = ctx;
    assert_non_null(sl_objects_link_peer_get(f->a.link, &f->use, f->address, TIMEOUT_MS));
    put(ctx);
}

CASE(link_peer_get__opens_the_segment_once_and_it_closes_when_idle)
{
    run_and_wait(fixture, request);
    fixture->ended = 0;
    run_and_wait(fixture, get);
    assert_int_equal(fixture->err, 0);
    assert_non_null(fixture->segment);
    assert_int_equal(segment_count(fixture->a.transfer), 1);
    advance(&fixture->a, 100);
    reactor_thread_run(&fixture->a.thread, put, fixture);
    assert_int_equal(segment_count(fixture->a.transfer), 1);
    advance(&fixture->a, 50);
    fixture->ended = 0;
    reactor_thread_run(&fixture->a.thread, get_and_put, fixture);
    advance(&fixture->a, 50);
    reactor_thread_run(&fixture->a.thread, cancel, fixture);
    assert_int_equal(segment_count(fixture->a.transfer), 1);
    advance(&fixture->a, 20);
    await_segments(&fixture->a, 0);
    assert_int_equal(fixture->ended, 0); /* it was open */
}

CASE(link_peer_get__fails_when_no_peer_is_there)
{
    (void)snprintf(fixture->address, sizeof fixture->address, "127.0.0.1:1");
    run_and_wait(fixture, get);
    assert_int_equal(fixture->err, SL_ERR_REFUSED);
    assert_null(fixture->segment);
    reactor_thread_run(&fixture->a.thread, put, fixture);
    await_segments(&fixture->a, 0);
}

CASE(link_peer_put__follows_the_end_of_the_peer)
{
    run_and_wait(fixture, get);
    assert_int_equal(fixture->err, 0);
    node_fini(&fixture->b);
    /* The request is the first to know, or finds that the peer is gone. */
    fixture->ended = 0;
    fixture->timeout_ms = 200;
    run_and_wait(fixture, request);
    assert_int_not_equal(fixture->err, 0);
    reactor_thread_run(&fixture->a.thread, put, fixture);
    await_segments(&fixture->a, 0);
}

/* Reports */

static struct sl_objects reporter; /* a's */

static void alive_answered(struct sl_timer *timer, uint64_t now_ns)
{
    sl_objects_reports_continue(&reporter);
}

static void attach_reporter(void *ctx)
{
    static struct sl_objects_follow follow = {.name = "n"};
    struct fixture *f = ctx;
    struct sl_objects_membership *membership = &reporter.membership;
    memset(&reporter, 0, sizeof reporter);
    sl_list_init(&reporter.copies);
    sl_list_init(&reporter.stored);
    reporter.link = f->a.link;
    reporter.reactor = f->a.thread.reactor;
    reporter.follows.items[0] = &follow;
    memcpy(membership->catalogue, f->address, sizeof membership->catalogue);
    membership->is_attached = true;
    membership->timer.run = alive_answered;
    sl_objects_reports_begin(&reporter);
}

static void detach_reporter(void *ctx)
{
    reporter.membership.is_attached = false;
    sl_objects_reports_cancel(&reporter);
    sl_reactor_disarm(reporter.reactor, &reporter.membership.timer);
}

/* b is a catalogue that stands still. */
CASE(reports__begin_again_if_no_batch_is_answered)
{
    reactor_thread_run(&fixture->a.thread, attach_reporter, fixture);
    await_arrived(&fixture->b, 1);
    advance(&fixture->a, 11);
    await_arrived(&fixture->b, 2);
    assert_int_equal(fixture->b.uses, 0); /* what had no answer is sent in a batch again */
    reactor_thread_run(&fixture->a.thread, detach_reporter, fixture);
}
