#include "rdma_asker.h"

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"

/* In the node's registered memory: above what the suite's peers use, over a border of what is
 * registered with the device at once. */
#define ANSWERS_AT ((19U << 20) + 40)
#define KEPT_MAX   QUESTIONS_MAX

static void ignore(void *ctx, struct sl_conn *conn)
{
}

struct answer {
    struct answer *next;
    struct sl_transport_frame frame;
    uint8_t head[SL_FRAME_HEADER_BYTES];
};

struct wish {
    uint64_t id;
    uint32_t bytes, manner;
};

/* A connection: its user. */
struct listener {
    struct listener *next;
    struct node *node;
    struct sl_conn *conn;
    struct answer *first, **end; /* in the order of sending; the first `taken` were taken */
    uint32_t taken;
    struct wish kept[KEPT_MAX];
    uint32_t kept_count;
};

atomic_uint answerer_open_count, answerer_kept_count;

static struct listener *listeners[NODES_MAX]; /* by node; touched there */
static const struct sl_transport_events answerer_events;

static const uint8_t *registered_content_of(struct node *node, uint32_t number, uint32_t bytes)
{
    uint8_t *answers = node->slab.base + ANSWERS_AT;
    const uint8_t *from = content_of(0, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    if (memcmp(answers, from, 64) != 0) { /* nothing is there yet */
        memcpy(answers, from, SL_LIMIT_FRAME_PAYLOAD_BYTES + (64U << 10));
    }
    return answers + (content_of(number, bytes) - from);
}

static void pump_answers(struct listener *listener)
{
    uint32_t index = 0;
    for (struct answer *answer = listener->first; answer != NULL; answer = answer->next, index++) {
        if (index < listener->taken) {
            continue;
        }
        if (sl_transport_send_burst(listener->conn, &answer->frame, 1) == 0) {
            return;
        }
        listener->taken++;
    }
}

static void answer_wish(struct listener *listener, const struct wish *wish)
{
    const bool is_refused = (wish->manner & ANSWER_REFUSED) != 0;
    const uint32_t number = (uint32_t)wish->id;
    struct answer *answer = calloc(1, sizeof *answer);
    sl_assert(answer != NULL);
    const struct sl_frame header = {.type = SL_FRAME_REPLY,
                                    .request_id = wish->id,
                                    .payload_bytes = is_refused ? 0 : wish->bytes,
                                    .status = is_refused ? 5 : 0};
    sl_frame_encode(&header, answer->head);
    answer->frame = (struct sl_transport_frame){.head = answer->head,
                                                .head_bytes = sizeof answer->head,
                                                .payload_bytes = header.payload_bytes,
                                                .cookie = answer};
    if (header.payload_bytes > 0) {
        const bool is_registered = (wish->manner & ANSWER_FROM_REGISTERED) != 0 ||
                                   wish->bytes > SL_TRANSPORT_UNREGISTERED_BYTES_MAX;
        answer->frame.payload = is_registered
                                    ? registered_content_of(listener->node, number, wish->bytes)
                                    : content_of(number, wish->bytes);
    }
    *listener->end = answer;
    listener->end = &answer->next;
    pump_answers(listener);
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct node *node = ctx;
    struct listener *listener = calloc(1, sizeof *listener);
    sl_assert(listener != NULL);
    conn->is_welcome = true;
    conn->user = listener;
    answerer_open_count++;
    *listener = (struct listener){
        .node = node, .conn = conn, .end = &listener->first, .next = listeners[node->index]};
    listeners[node->index] = listener;
}

static void forget(struct listener *listener)
{
    struct listener **at = &listeners[listener->node->index];
    while (*at != listener) {
        at = &(*at)->next;
    }
    *at = listener->next;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    sl_assert(false); /* requests are short */
    return NULL;
}

static void on_request(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct node *node = ctx;
    struct listener *listener = conn->user;
    struct wish wish = {.id = message->header.request_id};
    sl_assert(listener->conn == conn && listener->node == node);
    sl_assert(message->header.type == SL_FRAME_REQUEST && message->header.payload_bytes == 8);
    sl_assert(conn->reply_buffer == NULL); /* it is no address here */
    memcpy(&wish.bytes, message->payload, 4);
    memcpy(&wish.manner, message->payload + 4, 4);
    sl_transport_release(conn, message);
    if ((wish.manner & ANSWER_LATER) != 0) {
        sl_assert(listener->kept_count < KEPT_MAX);
        listener->kept[listener->kept_count++] = wish;
        answerer_kept_count++;
    } else {
        answer_wish(listener, &wish);
    }
}

static struct answer *pop_answer(struct listener *listener)
{
    struct answer *answer = listener->first;
    listener->first = answer->next;
    if (listener->first == NULL) {
        listener->end = &listener->first;
    }
    return answer;
}

static void on_answer_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct listener *listener = conn->user;
    sl_assert(listener->first == cookie);
    free(pop_answer(listener));
    listener->taken--;
}

static void on_answerer_writable(void *ctx, struct sl_conn *conn)
{
    pump_answers(conn->user);
}

static void on_answerer_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct listener *listener = conn->user;
    forget(listener);
    while (listener->first != NULL) {
        free(pop_answer(listener));
    }
    free(listener);
    answerer_open_count--;
}

static const struct sl_transport_events answerer_events = {.accepted = on_accepted,
                                                           .sink = on_sink,
                                                           .received = on_request,
                                                           .sent = on_answer_sent,
                                                           .writable = on_answerer_writable,
                                                           .closed = on_answerer_closed};

static void run_listen(struct node *node, void *ctx)
{
    struct sl_endpoint endpoint = node->bound;
    endpoint.port = 0;
    sl_assert(sl_transport_listen(node->transport, &endpoint, &answerer_events, node, ctx) == 0);
}

void answerer_open(struct node *node, struct sl_endpoint *bound)
{
    answerer_kept_count = 0;
    node_run(node, run_listen, bound);
}

static void run_answer_kept(struct node *node, void *ctx)
{
    uint64_t seed = *(uint64_t *)ctx;
    for (struct listener *it = listeners[node->index]; it != NULL; it = it->next) {
        while (it->kept_count > 0) {
            uint32_t chosen = (uint32_t)(sl_hash_random(&seed) % it->kept_count);
            struct wish wish = it->kept[chosen];
            it->kept_count--;
            it->kept[chosen] = it->kept[it->kept_count];
            answerer_kept_count--;
            answer_wish(it, &wish);
        }
    }
}

void answerer_answer_kept(struct node *node, uint64_t seed)
{
    node_run(node, run_answer_kept, &seed);
}

static void run_disconnect_all(struct node *node, void *ctx)
{
    for (struct listener *it = listeners[node->index]; it != NULL; it = it->next) {
        sl_transport_disconnect(it->conn);
    }
}

void answerer_disconnect(struct node *node)
{
    node_run(node, run_disconnect_all, NULL);
}

static void pump_questions(struct asker *asker)
{
    while (asker->conn != NULL && asker->open && asker->taken < asker->asked) {
        const struct question *question = &asker->questions[asker->taken];
        const struct sl_transport_frame frame = {.head = asker->frames[asker->taken],
                                                 .head_bytes = sizeof asker->frames[0],
                                                 .cookie = asker->frames[asker->taken],
                                                 .reply_buffer = question->reply_buffer,
                                                 .reply_buffer_bytes =
                                                     question->reply_buffer_bytes};
        if (sl_transport_send_burst(asker->conn, &frame, 1) == 0) {
            return;
        }
        asker->taken++;
    }
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    struct asker *asker = conn->user;
    asker->open = true;
    pump_questions(asker);
}

static struct question *question_of(struct asker *asker, const struct sl_frame *header)
{
    sl_assert(header->type == SL_FRAME_REPLY);
    sl_assert(header->request_id >= 1 && header->request_id <= asker->taken);
    struct question *question = &asker->questions[header->request_id - 1];
    sl_assert(!asker->answered[header->request_id - 1]);
    bool is_refused = (question->manner & ANSWER_REFUSED) != 0;
    sl_assert(header->payload_bytes == (is_refused ? 0 : question->bytes));
    return question;
}

static uint8_t *place_of(const struct question *question)
{
    return question->elsewhere != NULL ? question->elsewhere : question->reply_buffer;
}

static void *on_answer_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct asker *asker = conn->user;
    sl_assert(header->payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES);
    asker->sink_asked++;
    return place_of(question_of(asker, header));
}

static void on_answer(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct asker *asker = conn->user;
    const struct sl_frame *header = &message->header;
    const struct question *question = question_of(asker, header);
    if (header->payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        sl_assert(message->token == NULL);
        sl_assert(message->payload == place_of(question));
    } else {
        sl_assert(message->token != NULL);
    }
    const uint8_t *content = content_of((uint32_t)header->request_id, header->payload_bytes);
    sl_assert(memcmp(message->payload, content, header->payload_bytes) == 0);
    sl_transport_release(conn, message);
    asker->answered[header->request_id - 1] = true;
    asker->answers++;
}

static void on_question_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct asker *asker = conn->user;
    sl_assert(cookie == asker->frames[asker->sent]);
    asker->sent++;
}

static void on_asker_writable(void *ctx, struct sl_conn *conn)
{
    pump_questions(conn->user);
}

/* Where the answers that have not come would have landed is the asker's own from now on. */
static void on_asker_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct asker *asker = conn->user;
    for (uint32_t i = 0; i < asker->asked; i++) {
        const struct question *question = &asker->questions[i];
        if (!asker->answered[i] && question->reply_buffer != NULL) {
            memset(question->reply_buffer, ASKER_POISON, question->reply_buffer_bytes);
        }
    }
    asker->conn = NULL;
    asker->close_err = err;
    asker->closed++;
}

static const struct sl_transport_events asker_events = {.accepted = ignore,
                                                        .connected = on_connected,
                                                        .sink = on_answer_sink,
                                                        .received = on_answer,
                                                        .sent = on_question_sent,
                                                        .writable = on_asker_writable,
                                                        .closed = on_asker_closed};

struct open_call {
    struct asker *asker;
    const struct sl_endpoint *endpoint;
};

static void run_connect(struct node *node, void *ctx)
{
    struct open_call *call = ctx;
    sl_assert(sl_transport_connect(node->transport, call->endpoint, 0, &asker_events, node,
                                   call->asker, &call->asker->conn) == 0);
}

struct asker *asker_open(struct node *node, const struct sl_endpoint *endpoint)
{
    struct asker *asker = calloc(1, sizeof *asker);
    assert_non_null(asker);
    asker->node = node;
    struct open_call call = {.asker = asker, .endpoint = endpoint};
    node_run(node, run_connect, &call);
    WAIT_UNTIL(asker->open);
    return asker;
}

struct ask_call {
    struct asker *asker;
    const struct question *questions;
    uint32_t count;
};

static void run_ask(struct node *node, void *ctx)
{
    const struct ask_call *call = ctx;
    struct asker *asker = call->asker;
    sl_assert(asker->asked + call->count <= QUESTIONS_MAX);
    for (uint32_t i = 0; i < call->count; i++) {
        const struct question *question = &call->questions[i];
        uint8_t *frame = asker->frames[asker->asked];
        asker->questions[asker->asked] = *question;
        asker->asked++;
        const struct sl_frame header = {.type = SL_FRAME_REQUEST,
                                        .payload_bytes = 8,
                                        .request_id = asker->asked,
                                        .budget_us = 1};
        sl_frame_encode(&header, frame);
        memcpy(frame + SL_FRAME_HEADER_BYTES, &question->bytes, 4);
        memcpy(frame + SL_FRAME_HEADER_BYTES + 4, &question->manner, 4);
    }
    pump_questions(asker);
}

void asker_ask(struct asker *asker, const struct question *questions, uint32_t count)
{
    struct ask_call call = {.asker = asker, .questions = questions, .count = count};
    node_run(asker->node, run_ask, &call);
}

static void run_disconnect(struct node *node, void *ctx)
{
    const struct asker *asker = ctx;
    if (asker->conn != NULL) {
        sl_transport_disconnect(asker->conn);
    }
}

void asker_disconnect(struct asker *asker)
{
    node_run(asker->node, run_disconnect, asker);
}

void asker_destroy(struct asker **asker)
{
    assert_int_equal((*asker)->closed, 1);
    free(*asker);
    *asker = NULL;
}
