#include "net/transfer/inbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/transfer/engine.h"
#include "net/transfer/error.h"

/* A sender is forgotten this long after its last notice: then it has given up sending that one
 * again. */
#define REMEMBER_NS (SL_TRANSFER_TIMEOUT_MS_MAX * SL_CLOCK_NS_PER_MS)
#define SENDERS_MAX SL_LIMIT_TRANSFER_SEGMENTS

struct notice {
    struct sl_list_link link;
    char sender[SL_TRANSFER_NAME_BYTES];
    char name[SL_TRANSFER_NOTICE_NAME_BYTES];
    uint32_t bytes;
    uint8_t text[];
};

struct sender {
    struct sl_list_link link; /* by ascending heard_ns */
    uint64_t client_id, sequence, heard_ns;
};

static void queue_init(struct sl_transfer_inbox_queue *queue)
{
    sl_list_init(&queue->notices);
    sl_list_init(&queue->takers);
}

static void queue_fini(struct sl_transfer_inbox_queue *queue)
{
    struct sl_list_link *link;
    while ((link = sl_list_pop(&queue->notices)) != NULL) {
        free(SL_CONTAINER_OF(link, struct notice, link));
    }
    queue->count = 0;
}

void sl_transfer_inbox_init(struct sl_transfer_inbox *inbox)
{
    queue_init(&inbox->application);
    queue_init(&inbox->outside);
    sl_list_init(&inbox->senders);
}

void sl_transfer_inbox_fini(struct sl_transfer_inbox *inbox)
{
    struct sl_list_link *link;
    if (!sl_list_linked(&inbox->senders.head)) {
        return; /* the start has failed before */
    }
    queue_fini(&inbox->application);
    queue_fini(&inbox->outside);
    while ((link = sl_list_pop(&inbox->senders)) != NULL) {
        free(SL_CONTAINER_OF(link, struct sender, link));
    }
}

/* Taking */

static void inbox_give(struct sl_transfer_io *io, struct sl_transfer_inbox_queue *queue)
{
    struct sl_list_link *first = sl_list_pop(&queue->takers);
    struct sl_list_link *link = sl_list_pop(&queue->notices);
    sl_assert(first != NULL);
    sl_assert(link != NULL);
    struct sl_transfer_take *take = SL_CONTAINER_OF(first, struct sl_transfer_take, link);
    struct notice *notice = SL_CONTAINER_OF(link, struct notice, link);
    queue->count--;
    memcpy(take->out->sender, notice->sender, sizeof notice->sender);
    memcpy(take->out->name, notice->name, sizeof notice->name);
    memcpy(take->out->text, notice->text, notice->bytes);
    take->out->text[notice->bytes] = '\0';
    take->out->bytes = notice->bytes;
    free(notice);
    sl_reactor_disarm(io->reactor, &take->timer);
    sl_transfer_io_answer(&take->call, 0, "taken");
}

static void inbox_take_late(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_transfer_take *take = SL_CONTAINER_OF(timer, struct sl_transfer_take, timer);
    sl_list_remove(&take->link);
    sl_transfer_io_answer(&take->call, SL_ERR_DEADLINE, "no notice came within %u ms",
                          take->timeout_ms);
}

static bool is_for_outside(const struct sl_transfer_inbox *inbox, const char *name)
{
    const char *prefix = inbox->outside_prefix;
    return prefix != NULL && strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Notices that came before the reactor outside. */
static void move_to_outside(struct sl_transfer_inbox *inbox)
{
    SL_LIST_FOREACH (link, &inbox->application.notices) {
        if (is_for_outside(inbox, SL_CONTAINER_OF(link, struct notice, link)->name)) {
            sl_list_remove(link);
            inbox->application.count--;
            sl_list_append(&inbox->outside.notices, link);
            inbox->outside.count++;
        }
    }
}

void sl_transfer_inbox_take(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_take *take = SL_CONTAINER_OF(call, struct sl_transfer_take, call);
    struct sl_transfer_inbox *inbox = &io->inbox;
    struct sl_transfer_inbox_queue *queue =
        take->outside_prefix != NULL ? &inbox->outside : &inbox->application;
    if (take->outside_prefix != NULL && inbox->outside_prefix == NULL) {
        inbox->outside_prefix = take->outside_prefix;
        move_to_outside(inbox);
    }
    take->timer.run = inbox_take_late;
    sl_list_append(&queue->takers, &take->link);
    if (queue->count > 0) {
        inbox_give(io, queue);
    } else if (take->outside_prefix == NULL) {
        sl_reactor_arm(io->reactor, &take->timer, take->timeout_ms * SL_CLOCK_NS_PER_MS);
    }
}

void sl_transfer_inbox_stop(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_inbox *inbox = &io->inbox;
    struct sl_list_link *link;
    inbox->outside_prefix = NULL;
    queue_fini(&inbox->outside);
    while ((link = sl_list_pop(&inbox->outside.takers)) != NULL) {
        struct sl_transfer_take *take = SL_CONTAINER_OF(link, struct sl_transfer_take, link);
        sl_transfer_io_answer(&take->call, SL_ERR_CANCELLED, "stopped");
    }
    sl_transfer_io_answer(call, 0, "stopped");
}

int sl_transfer_notice_take(struct sl_transfer *transfer, uint32_t timeout_ms,
                            struct sl_transfer_noticed *out)
{
    sl_assert(transfer != NULL);
    sl_assert(out != NULL);
    struct sl_transfer_take take = {
        .call = {.run = sl_transfer_inbox_take}, .timeout_ms = timeout_ms, .out = out};
    int err = sl_transfer_settings_check_timeout(timeout_ms);
    err = err != 0 ? err : sl_transfer_io_call(&transfer->ios[0], &take.call);
    return err != 0 ? err : sl_transfer_succeed();
}

/* Queueing */

static struct sender *find_sender(struct sl_transfer_inbox *inbox, uint64_t client_id)
{
    SL_LIST_FOREACH (link, &inbox->senders) {
        struct sender *sender = SL_CONTAINER_OF(link, struct sender, link);
        if (sender->client_id == client_id) {
            return sender;
        }
    }
    return NULL;
}

/* Drops the senders that are silent for long, and, beyond the limit, the most silent one. */
static void forget_senders(struct sl_transfer_inbox *inbox, uint64_t now_ns)
{
    struct sl_list_link *link;
    while ((link = sl_list_first(&inbox->senders)) != NULL) {
        struct sender *oldest = SL_CONTAINER_OF(link, struct sender, link);
        if (inbox->sender_count < SENDERS_MAX && now_ns - oldest->heard_ns < REMEMBER_NS) {
            return;
        }
        sl_list_remove(link);
        inbox->sender_count--;
        free(oldest);
    }
}

static struct sender *remember_sender(struct sl_transfer_io *io, uint64_t client_id)
{
    struct sl_transfer_inbox *inbox = &io->inbox;
    const uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    struct sender *sender = find_sender(inbox, client_id);
    if (sender == NULL) {
        forget_senders(inbox, now_ns);
        sender = calloc(1, sizeof *sender);
        if (sender == NULL) {
            return NULL;
        }
        sender->client_id = client_id;
        inbox->sender_count++;
    }
    sender->heard_ns = now_ns;
    sl_list_append(&inbox->senders, &sender->link);
    return sender;
}

static struct notice *notice_create(const struct sl_message_notice *from)
{
    struct notice *made = calloc(1, sizeof *made + from->byte_count);
    if (made != NULL) {
        (void)snprintf(made->sender, sizeof made->sender, "%s", from->sender);
        (void)snprintf(made->name, sizeof made->name, "%s", from->name);
        made->bytes = from->byte_count;
        memcpy(made->text, from->bytes, from->byte_count);
    }
    return made;
}

int sl_transfer_inbox_put(struct sl_transfer_io *io, uint64_t client_id,
                          const struct sl_message_notice *notice)
{
    struct sl_transfer_inbox *inbox = &io->inbox;
    struct sl_transfer_inbox_queue *queue =
        is_for_outside(inbox, notice->name) ? &inbox->outside : &inbox->application;
    struct sender *sender = remember_sender(io, client_id);
    if (sender == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    if (notice->sequence <= sender->sequence) {
        return 0;
    }
    if (queue->count == SL_LIMIT_TRANSFER_NOTICES) {
        return SL_ERR_AGAIN;
    }
    struct notice *made = notice_create(notice);
    if (made == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sender->sequence = notice->sequence;
    sl_list_append(&queue->notices, &made->link);
    queue->count++;
    if (!sl_list_empty(&queue->takers)) {
        inbox_give(io, queue);
    }
    return 0;
}
