#include "worker/client/relay.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/list.h"
#include "core/log.h"
#include "reactor/mailbox.h"
#include "worker/client/control.h"

/* Sending */

static void relay_answered(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_relay_target *target = ctx;
    struct sl_control_op *op = &target->relay->op;
    if (err != 0) {
        const char *role = target->group == SL_MESSAGE_GROUP_PS       ? "ps"
                           : target->group == SL_MESSAGE_GROUP_WORKER ? "worker"
                                                                      : "scheduler";
        sl_control_op_fail(op, err, "to %s/%u: %s", role, target->rank, reason);
    } else {
        target->answer = answer->relay;
        target->answer.body = malloc(answer->relay.body_bytes + 1);
        target->is_answered = target->answer.body != NULL;
        if (!target->is_answered) {
            sl_control_op_fail(op, SL_ERR_NO_MEMORY, "no memory for an answer");
        } else if (answer->relay.body_bytes > 0) {
            memcpy(target->answer.body, answer->relay.body, answer->relay.body_bytes);
        }
    }
    sl_control_op_answer_one(op);
}

static void relay_send(struct sl_control_op *op)
{
    struct sl_relay *relay = SL_CONTAINER_OF(op, struct sl_relay, op);
    op->left = relay->target_count + 1;
    for (uint32_t i = 0; i < relay->target_count; i++) {
        struct sl_relay_target *target = &relay->targets[i];
        struct sl_message message = {.kind = SL_MESSAGE_RELAY,
                                     .relay = {.group = target->group,
                                               .rank = target->rank,
                                               .head = relay->head,
                                               .body = relay->body,
                                               .body_bytes = relay->body_bytes}};
        target->relay = relay;
        sl_control_ask_relay(op, &message, relay_answered, target);
    }
    sl_control_op_answer_one(op);
}

struct sl_relay *sl_relay_create(uint32_t head, const void *body, uint32_t body_bytes,
                                 uint32_t target_count)
{
    sl_assert(body_bytes <= SL_MESSAGE_RELAY_BYTES);
    struct sl_relay *relay =
        calloc(1, sizeof *relay + target_count * sizeof relay->targets[0] + body_bytes);
    if (relay == NULL) {
        return NULL;
    }
    relay->op.run = relay_send;
    relay->head = head;
    relay->body = (uint8_t *)&relay->targets[target_count];
    relay->body_bytes = body_bytes;
    relay->target_count = target_count;
    if (body_bytes > 0) {
        memcpy(relay->body, body, body_bytes);
    }
    return relay;
}

void sl_relay_destroy(struct sl_relay **relay)
{
    for (uint32_t i = 0; *relay != NULL && i < (*relay)->target_count; i++) {
        free((*relay)->targets[i].answer.body);
    }
    free(*relay);
    *relay = NULL;
}

/* Receiving */

void sl_relay_inbox_init(struct sl_relay_inbox *inbox)
{
    *inbox = (struct sl_relay_inbox){0};
    pthread_mutex_init(&inbox->lock, NULL);
}

static struct sl_relay_item *make_item(const struct sl_message_relay *message)
{
    struct sl_relay_item *item = calloc(1, sizeof *item + message->body_bytes);
    if (item != NULL) {
        item->message = *message;
        item->message.body = (uint8_t *)(item + 1);
        if (message->body_bytes > 0) {
            memcpy(item->message.body, message->body, message->body_bytes);
        }
    }
    return item;
}

static void append(struct sl_relay_item **first, struct sl_relay_item **last,
                   struct sl_relay_item *item)
{
    if (*first == NULL) {
        *first = item;
    } else {
        (*last)->next = item;
    }
    *last = item;
}

static void free_items(struct sl_relay_item **first)
{
    while (*first != NULL) {
        struct sl_relay_item *item = *first;
        *first = item->next;
        free(item);
    }
}

static void relay_rung(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_relay_inbox *inbox = ctx;
    pthread_mutex_lock(&inbox->lock);
    inbox->rings = false;
    pthread_mutex_unlock(&inbox->lock);
    inbox->is_rung = true;
}

/* Under the lock. A failed post is harmless: a full lane wakes the thread too. */
static void ring(struct sl_relay_inbox *inbox)
{
    if (inbox->lane != NULL && inbox->first != NULL && !inbox->rings) {
        inbox->rings =
            sl_mailbox_post(inbox->lane, (struct sl_mail){.run = relay_rung, .ctx = inbox}) == 0;
    }
}

int sl_relay_inbox_open(struct sl_relay_inbox *inbox, struct sl_client_io *io,
                        struct sl_reactor *driven)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->io = io;
    int err = sl_mailbox_lane_open(sl_reactor_mailbox(io->reactor), &inbox->answer_lane);
    err = err != 0 ? err : sl_mailbox_lane_open(sl_reactor_mailbox(driven), &inbox->lane);
    ring(inbox);
    pthread_mutex_unlock(&inbox->lock);
    return err;
}

void sl_relay_inbox_close(struct sl_relay_inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    if (inbox->lane != NULL) {
        sl_mailbox_lane_close(&inbox->lane);
    }
    if (inbox->answer_lane != NULL) {
        sl_mailbox_lane_close(&inbox->answer_lane);
    }
    pthread_mutex_unlock(&inbox->lock);
}

void sl_relay_inbox_fini(struct sl_relay_inbox *inbox)
{
    free_items(&inbox->first);
    free_items(&inbox->first_answer);
    pthread_mutex_destroy(&inbox->lock);
}

struct sl_relay_item *sl_relay_inbox_take(struct sl_relay_inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    struct sl_relay_item *first = inbox->first;
    inbox->first = NULL;
    inbox->count = 0;
    pthread_mutex_unlock(&inbox->lock);
    inbox->is_rung = false;
    return first;
}

static void send_answer(struct sl_client_io *io, const struct sl_message_relay *answer)
{
    struct sl_message message = {.kind = SL_MESSAGE_RELAY_ANSWER, .relay = *answer};
    const int err = io->coordinator.session == NULL
                        ? SL_ERR_CLOSED
                        : sl_session_notify(io->coordinator.session, &message);
    if (err != 0) {
        sl_log_debug("an answer to a message is dropped: %s", sl_err_name(err));
    }
}

/* The coordinator fails the messages of a broken connection, so their answers may be dropped. */
static void flush_answers(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_relay_inbox *inbox = ctx;
    pthread_mutex_lock(&inbox->lock);
    struct sl_relay_item *first = inbox->first_answer;
    inbox->first_answer = NULL;
    inbox->flushes = false;
    pthread_mutex_unlock(&inbox->lock);
    for (const struct sl_relay_item *item = first; item != NULL; item = item->next) {
        send_answer(inbox->io, &item->message);
    }
    free_items(&first);
}

int sl_relay_inbox_answer(struct sl_relay_inbox *inbox, uint64_t token, uint32_t head,
                          const void *body, uint32_t body_bytes)
{
    struct sl_relay_item *item = make_item(&(struct sl_message_relay){
        .head = head,
        .token = token,
        .body = (uint8_t *)(uintptr_t)body,
        .body_bytes = body_bytes,
    });
    if (item == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    pthread_mutex_lock(&inbox->lock);
    int err = inbox->answer_lane == NULL ? SL_ERR_CLOSED : 0;
    if (err == 0 && !inbox->flushes) {
        err = sl_mailbox_post(inbox->answer_lane,
                              (struct sl_mail){.run = flush_answers, .ctx = inbox});
        inbox->flushes = err == 0;
    }
    if (err == 0) {
        append(&inbox->first_answer, &inbox->last_answer, item);
    }
    pthread_mutex_unlock(&inbox->lock);
    if (err != 0) {
        free(item);
    }
    return err;
}

void sl_relay_receive(struct sl_client_io *io, const struct sl_message_relay *message)
{
    struct sl_relay_inbox *inbox = io->options->inbox;
    struct sl_message_relay refusal = {.token = message->token, .err = SL_ERR_UNSUPPORTED};
    if (inbox != NULL) {
        pthread_mutex_lock(&inbox->lock);
        struct sl_relay_item *item = inbox->count < SL_RELAY_INBOX_MAX ? make_item(message) : NULL;
        if (item != NULL) {
            inbox->count++;
            append(&inbox->first, &inbox->last, item);
            ring(inbox);
        }
        pthread_mutex_unlock(&inbox->lock);
        refusal.err = item == NULL ? SL_ERR_NO_MEMORY : 0;
    }
    if (refusal.err != 0) {
        send_answer(io, &refusal);
    }
}
