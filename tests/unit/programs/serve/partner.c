#include "partner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "net/transfer/inbox.h"
#include "tests/support/unit.h"

struct arrival {
    struct sl_list_link link;
    struct sl_serve_message message;
    char sender[SL_TRANSFER_NAME_BYTES];
};

struct asked {
    struct sl_list_link link;
    struct sl_transfer_asked *asked;
    uint64_t request;
};

/* INFER, or a notice. */
struct asking {
    struct sl_list_link link;
    struct partner *partner;
    struct sl_transfer_segment *segment;
    struct sl_transfer_sending *sending;
    struct sl_serve_message message;
    uint8_t text[SL_SERVE_MESSAGE_BYTES];
    uint32_t bytes;
    struct sl_completion sent; /* of a notice */
};

struct answer {
    struct partner *partner;
    const struct sl_serve_message *done;
    bool is_asked;
};

static void *allocate(size_t bytes)
{
    void *made = calloc(1, bytes);
    assert_non_null(made);
    return made;
}

static uint32_t encode(const struct partner *partner, const struct sl_serve_message *message,
                       uint8_t *text)
{
    struct sl_serve_message named = *message;
    struct sl_reason reason;
    named.incarnation = sl_transfer_async_own_incarnation(partner->engine);
    const int length = sl_serve_message_encode(&named, text, &reason);
    assert_true(length > 0);
    return (uint32_t)length;
}

/* Makes a copy for the test; the tail goes to `to`. */
static void put(struct partner *partner, const char *sender, const struct sl_serve_message *message,
                uint64_t to, uint64_t bytes)
{
    struct arrival *made = allocate(sizeof *made);
    made->message = *message;
    (void)snprintf(made->sender, sizeof made->sender, "%s", sender);
    if (message->tail != NULL) {
        memcpy((void *)(uintptr_t)to, message->tail, bytes);
        made->message.tail = (const uint8_t *)"";
    }
    pthread_mutex_lock(&partner->lock);
    sl_list_append(&partner->arrived, &made->link);
    pthread_mutex_unlock(&partner->lock);
}

static void arrived(void *ctx, const struct sl_transfer_noticed *noticed,
                    struct sl_transfer_asked *asked)
{
    struct partner *partner = ctx;
    struct sl_serve_message message;
    struct sl_reason reason;
    assert_int_equal(sl_serve_message_decode(noticed->text, noticed->bytes, &message, &reason), 0);
    assert_true((asked != NULL) == (message.kind == SL_SERVE_MESSAGE_INFER));
    if (asked != NULL) {
        struct asked *made = allocate(sizeof *made);
        made->asked = asked;
        made->request = message.request;
        sl_list_append(&partner->asked, &made->link);
    }
    put(partner, noticed->sender, &message, message.input_address, message.input_bytes);
}

bool partner_take(struct partner *partner, uint32_t timeout_ms, struct sl_serve_message *out,
                  char sender[SL_TRANSFER_NAME_BYTES])
{
    struct sl_list_link *link = NULL;
    for (uint32_t waited_us = 0; link == NULL && waited_us < timeout_ms * 1000; waited_us += 100) {
        pthread_mutex_lock(&partner->lock);
        link = sl_list_pop(&partner->arrived);
        pthread_mutex_unlock(&partner->lock);
        if (link == NULL) {
            (void)usleep(100);
        }
    }
    if (link != NULL) {
        struct arrival *arrival = SL_CONTAINER_OF(link, struct arrival, link);
        *out = arrival->message;
        if (sender != NULL) {
            memcpy(sender, arrival->sender, sizeof arrival->sender);
        }
        free(arrival);
    }
    return link != NULL;
}

static void answered(void *ctx, int err, const char *reason, const void *bytes, uint32_t count)
{
    struct asking *asking = ctx;
    struct sl_serve_message done = {.kind = SL_SERVE_MESSAGE_DONE, .err = err};
    struct sl_reason why;
    if (err == 0) {
        assert_int_equal(sl_serve_message_decode(bytes, count, &done, &why), 0);
        assert_int_equal(done.kind, SL_SERVE_MESSAGE_DONE);
        assert_true(done.tail == NULL || done.output_bytes <= asking->message.output_room);
    } else {
        (void)snprintf(done.text, sizeof done.text, "%.500s", reason);
    }
    done.request = asking->message.request;
    if (err != SL_ERR_CANCELLED) { /* else it was forgotten */
        put(asking->partner, "", &done, asking->message.output_address, done.output_bytes);
    }
    sl_list_remove(&asking->link);
    free(asking);
}

static void sent(void *ctx, int err, const char *reason)
{
    assert_int_equal(err, 0);
    sl_completion_end(&((struct asking *)ctx)->sent);
}

static void send_here(void *ctx)
{
    struct asking *asking = ctx;
    struct sl_transfer_async *async = asking->partner->async;
    const struct sl_transfer_notice notice = {
        .name = SL_SERVE_NOTICE, .text = asking->text, .bytes = asking->bytes};
    int err;
    if (asking->message.kind == SL_SERVE_MESSAGE_INFER) {
        sl_list_append(&asking->partner->asking, &asking->link);
        err = sl_transfer_async_ask(async, asking->segment, &notice, PARTNER_TIMEOUT_MS, answered,
                                    asking, &asking->sending);
    } else {
        err = sl_transfer_async_send(async, asking->segment, &notice, PARTNER_TIMEOUT_MS, sent,
                                     asking);
    }
    assert_int_equal(err, 0);
}

void partner_send(struct partner *partner, struct sl_transfer_segment *segment,
                  const struct sl_serve_message *message)
{
    struct asking *made = allocate(sizeof *made);
    const bool asks = message->kind == SL_SERVE_MESSAGE_INFER;
    made->partner = partner;
    made->segment = segment;
    made->message = *message;
    made->bytes = encode(partner, message, made->text);
    sl_completion_begin(&made->sent);
    reactor_thread_run(&partner->thread, send_here, made);
    if (!asks) {
        sl_completion_wait(&made->sent);
        free(made);
    }
}

static void answer_here(void *ctx)
{
    struct answer *answer = ctx;
    uint8_t text[SL_SERVE_MESSAGE_BYTES];
    SL_LIST_FOREACH (link, &answer->partner->asked) {
        struct asked *asked = SL_CONTAINER_OF(link, struct asked, link);
        if (asked->request == answer->done->request) {
            answer->is_asked = true;
            sl_transfer_async_answer(asked->asked, text,
                                     encode(answer->partner, answer->done, text));
            sl_list_remove(link);
            free(asked);
            return;
        }
    }
}

bool partner_answer(struct partner *partner, const struct sl_serve_message *done)
{
    struct answer answer = {.partner = partner, .done = done};
    reactor_thread_run(&partner->thread, answer_here, &answer);
    return answer.is_asked;
}

static void create_here(void *ctx)
{
    struct partner *partner = ctx;
    assert_int_equal(sl_transfer_async_create(partner->engine, SL_SERVE_NOTICE, arrived, partner,
                                              &partner->async),
                     0);
}

void partner_init(struct partner *partner, struct sl_transfer *engine)
{
    partner->engine = engine;
    pthread_mutex_init(&partner->lock, NULL);
    sl_list_init(&partner->arrived);
    sl_list_init(&partner->asked);
    sl_list_init(&partner->asking);
    reactor_thread_use(&partner->thread, sl_transfer_async_reactor(engine));
    reactor_thread_run(&partner->thread, create_here, partner);
}

static void ended(void *ctx)
{
    sl_completion_end(&((struct partner *)ctx)->ended);
}

static void destroy_here(void *ctx)
{
    struct partner *partner = ctx;
    SL_LIST_FOREACH (link, &partner->asking) {
        sl_transfer_async_forget(partner->async,
                                 SL_CONTAINER_OF(link, struct asking, link)->sending);
    }
    sl_transfer_async_destroy(&partner->async, ended, partner);
}

void partner_stop(struct partner *partner)
{
    sl_completion_begin(&partner->ended);
    reactor_thread_run(&partner->thread, destroy_here, partner);
    sl_completion_wait(&partner->ended);
    reactor_thread_fini(&partner->thread);
}

void partner_fini(struct partner *partner)
{
    struct sl_list_link *link;
    sl_transfer_destroy(&partner->engine);
    while ((link = sl_list_pop(&partner->arrived)) != NULL) {
        free(SL_CONTAINER_OF(link, struct arrival, link));
    }
    while ((link = sl_list_pop(&partner->asked)) != NULL) {
        struct asked *asked = SL_CONTAINER_OF(link, struct asked, link);
        free(asked->asked);
        free(asked);
    }
    pthread_mutex_destroy(&partner->lock);
}
