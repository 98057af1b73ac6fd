#include "net/transfer/inbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/transfer/engine.h"
#include "net/transfer/error.h"

/* A sender is forgotten this long after its last notice: then it has given up sending that one
 * again. */
#define REMEMBER_NS  (SL_TRANSFER_TIMEOUT_MS_MAX * SL_CLOCK_NS_PER_MS)
#define SENDERS_MAX  SL_LIMIT_TRANSFER_SEGMENTS
#define MEMORY_BYTES (SL_MESSAGE_ATTACHED_BYTES + 2 * SL_MESSAGE_NOTICE_BYTES) /* of a notice */
#define ATTACHED_MAX 64 /* notices of a queue: behind so many, what is attached is dropped */

struct notice {
    struct sl_list_link link;
    char sender[SL_TRANSFER_NAME_BYTES];
    char name[SL_TRANSFER_NOTICE_NAME_BYTES];
    struct sl_transfer_asked *asked; /* NULL: it does not ask */
    const uint8_t *attached;         /* NULL: nothing */
    uint32_t attached_bytes, bytes;
    uint8_t *memory; /* of `attached`; NULL: none */
    uint8_t text[];
};

struct sl_transfer_sender {
    struct sl_list_link link; /* by ascending heard_ns */
    uint64_t client_id, sequence, heard_ns;
    struct sl_list asked; /* ascending */
    uint64_t answered;    /* lower ones are not needed any more */
};

/* Asked notices */

static void asked_free(struct sl_transfer_asked *asked)
{
    sl_list_remove(&asked->link);
    sl_list_remove(&asked->by_guest);
    asked->io->asked_count--;
    free(asked->bytes);
    free(asked);
}

/* Open ones are freed once they are answered. */
static void sender_free(struct sl_transfer_sender *sender)
{
    SL_LIST_FOREACH (link, &sender->asked) {
        struct sl_transfer_asked *asked = SL_CONTAINER_OF(link, struct sl_transfer_asked, link);
        asked->sender = NULL;
        if (asked->bytes != NULL) {
            asked_free(asked);
        } else {
            sl_list_remove(link);
        }
    }
    free(sender);
}

/* Frees what the sender does not need any more. */
static void sender_set_answered(struct sl_transfer_sender *sender, uint64_t answered)
{
    sender->answered = answered > sender->answered ? answered : sender->answered;
    SL_LIST_FOREACH (link, &sender->asked) {
        struct sl_transfer_asked *asked = SL_CONTAINER_OF(link, struct sl_transfer_asked, link);
        if (asked->sequence >= sender->answered) {
            return;
        }
        if (asked->bytes != NULL) {
            asked_free(asked);
        }
    }
}

/* Memory */

uint8_t *sl_transfer_inbox_memory_get(struct sl_transfer_inbox *inbox, uint32_t bytes)
{
    return bytes > MEMORY_BYTES     ? malloc(bytes)
           : inbox->spare_count > 0 ? inbox->spares[--inbox->spare_count]
                                    : malloc(MEMORY_BYTES);
}

void sl_transfer_inbox_memory_put(struct sl_transfer_inbox *inbox, uint8_t *memory)
{
    if (memory != NULL && inbox->spare_count < SL_TRANSFER_INBOX_SPARES) {
        inbox->spares[inbox->spare_count++] = memory;
    } else {
        free(memory);
    }
}

/* Queues */

static void queue_fini(struct sl_transfer_inbox_queue *queue)
{
    struct sl_list_link *link;
    while ((link = sl_list_pop(&queue->notices)) != NULL) {
        struct notice *notice = SL_CONTAINER_OF(link, struct notice, link);
        if (notice->asked != NULL) {
            notice->asked->answer(notice->asked, NULL, 0);
        }
        sl_transfer_inbox_memory_put(queue->inbox, notice->memory);
        free(notice);
    }
    sl_transfer_inbox_memory_put(queue->inbox, queue->memory);
    queue->memory = NULL;
    queue->count = 0;
}

static void queue_append(struct sl_transfer_inbox_queue *queue, struct notice *notice)
{
    sl_list_append(&queue->notices, &notice->link);
    queue->count++;
}

static bool queue_take(struct sl_transfer_inbox_queue *queue, struct sl_transfer_noticed *out,
                       struct sl_transfer_asked **asked)
{
    struct sl_list_link *link = sl_list_pop(&queue->notices);
    if (link == NULL) {
        return false;
    }
    struct notice *notice = SL_CONTAINER_OF(link, struct notice, link);
    queue->count--;
    memcpy(out->sender, notice->sender, sizeof notice->sender);
    memcpy(out->name, notice->name, sizeof notice->name);
    memcpy(out->text, notice->text, notice->bytes);
    out->text[notice->bytes] = '\0';
    out->bytes = notice->bytes;
    *asked = notice->asked;
    sl_transfer_inbox_memory_put(queue->inbox, queue->memory);
    queue->attached = notice->attached;
    queue->attached_bytes = notice->attached_bytes;
    queue->memory = notice->memory;
    free(notice);
    return true;
}

void sl_transfer_inbox_init(struct sl_transfer_inbox *inbox)
{
    sl_list_init(&inbox->application.notices);
    inbox->application.inbox = inbox;
    sl_list_init(&inbox->takers);
    sl_list_init(&inbox->readers);
    sl_list_init(&inbox->senders);
}

void sl_transfer_inbox_fini(struct sl_transfer_inbox *inbox)
{
    struct sl_list_link *link;
    if (!sl_list_linked(&inbox->senders.head)) {
        return; /* the start has failed before */
    }
    queue_fini(&inbox->application);
    while ((link = sl_list_pop(&inbox->senders)) != NULL) {
        sender_free(SL_CONTAINER_OF(link, struct sl_transfer_sender, link));
    }
    while (inbox->spare_count > 0) {
        free(inbox->spares[--inbox->spare_count]);
    }
}

/* Readers */

/* Whether both are about the same; their versions may differ. */
static bool is_about(const char *name, const char *other)
{
    const size_t length = strcspn(name, "/");
    return length == strcspn(other, "/") && strncmp(name, other, length) == 0;
}

static struct sl_transfer_inbox_reader *inbox_reader_of(const struct sl_transfer_inbox *inbox,
                                                        const char *name)
{
    SL_LIST_FOREACH (link, &inbox->readers) {
        struct sl_transfer_inbox_reader *reader =
            SL_CONTAINER_OF(link, struct sl_transfer_inbox_reader, link);
        if (is_about(name, reader->name)) {
            return reader;
        }
    }
    return NULL;
}

int sl_transfer_inbox_open(struct sl_transfer_inbox *inbox, struct sl_transfer_inbox_reader *reader)
{
    if (inbox_reader_of(inbox, reader->name) != NULL) {
        return SL_ERR_EXISTS;
    }
    sl_list_init(&reader->queue.notices);
    reader->queue.inbox = inbox;
    sl_list_append(&inbox->readers, &reader->link);
    SL_LIST_FOREACH (link, &inbox->application.notices) {
        struct notice *notice = SL_CONTAINER_OF(link, struct notice, link);
        if (strcmp(notice->name, reader->name) == 0) {
            sl_list_remove(link);
            inbox->application.count--;
            queue_append(&reader->queue, notice);
        }
    }
    if (reader->queue.count > 0) {
        reader->put(reader);
    }
    return 0;
}

void sl_transfer_inbox_close(struct sl_transfer_inbox_reader *reader)
{
    if (sl_list_linked(&reader->link)) {
        sl_list_remove(&reader->link);
        queue_fini(&reader->queue);
    }
}

bool sl_transfer_inbox_next(struct sl_transfer_inbox_reader *reader,
                            struct sl_transfer_noticed *out, struct sl_transfer_asked **asked)
{
    return queue_take(&reader->queue, out, asked);
}

/* Taking */

static void inbox_give(struct sl_transfer_io *io)
{
    struct sl_list_link *first = sl_list_pop(&io->inbox.takers);
    sl_assert(first != NULL);
    struct sl_transfer_take *take = SL_CONTAINER_OF(first, struct sl_transfer_take, link);
    struct sl_transfer_asked *asked; /* NULL: an application does not answer */
    const bool is_taken = queue_take(&io->inbox.application, take->out, &asked);
    sl_assert(is_taken);
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

static void inbox_take(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer_take *take = SL_CONTAINER_OF(call, struct sl_transfer_take, call);
    take->timer.run = inbox_take_late;
    sl_list_append(&io->inbox.takers, &take->link);
    if (io->inbox.application.count > 0) {
        inbox_give(io);
    } else {
        sl_reactor_arm(io->reactor, &take->timer, take->timeout_ms * SL_CLOCK_NS_PER_MS);
    }
}

int sl_transfer_notice_take(struct sl_transfer *transfer, uint32_t timeout_ms,
                            struct sl_transfer_noticed *out)
{
    sl_assert(transfer != NULL);
    sl_assert(out != NULL);
    struct sl_transfer_take take = {
        .call = {.run = inbox_take}, .timeout_ms = timeout_ms, .out = out};
    int err = sl_transfer_settings_check_timeout(timeout_ms);
    err = err != 0 ? err : sl_transfer_io_call(&transfer->ios[0], &take.call);
    return err != 0 ? err : sl_transfer_succeed();
}

/* Queueing */

static struct sl_transfer_sender *find_sender(struct sl_transfer_inbox *inbox, uint64_t client_id)
{
    SL_LIST_FOREACH (link, &inbox->senders) {
        struct sl_transfer_sender *sender = SL_CONTAINER_OF(link, struct sl_transfer_sender, link);
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
        struct sl_transfer_sender *oldest = SL_CONTAINER_OF(link, struct sl_transfer_sender, link);
        if (inbox->sender_count < SENDERS_MAX && now_ns - oldest->heard_ns < REMEMBER_NS) {
            return;
        }
        sl_list_remove(link);
        inbox->sender_count--;
        sender_free(oldest);
    }
}

static struct sl_transfer_sender *remember_sender(struct sl_transfer_io *io, uint64_t client_id)
{
    struct sl_transfer_inbox *inbox = &io->inbox;
    const uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    struct sl_transfer_sender *sender = find_sender(inbox, client_id);
    if (sender == NULL) {
        forget_senders(inbox, now_ns);
        sender = calloc(1, sizeof *sender);
        if (sender == NULL) {
            return NULL;
        }
        sender->client_id = client_id;
        sl_list_init(&sender->asked);
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

/* Errors: those of the function below. */
static int check(const struct sl_transfer_inbox_reader *reader,
                 const struct sl_message_notice *notice, struct sl_reason *reason)
{
    if (reader != NULL && strcmp(notice->name, reader->name) != 0) {
        return sl_reason_fail(reason, SL_ERR_VERSION, "it speaks %s, and %s came: update the older",
                              reader->name, notice->name);
    }
    return reader == NULL && notice->asks
               ? sl_reason_fail(reason, SL_ERR_AGAIN, "it does not answer %s yet", notice->name)
               : 0;
}

static struct sl_transfer_asked *find_asked(const struct sl_transfer_sender *sender,
                                            uint64_t sequence)
{
    SL_LIST_FOREACH (link, &sender->asked) {
        struct sl_transfer_asked *asked = SL_CONTAINER_OF(link, struct sl_transfer_asked, link);
        if (asked->sequence == sequence) {
            return asked;
        }
    }
    return NULL;
}

static struct sl_transfer_asked *asked_create(struct sl_transfer_io *io,
                                              struct sl_transfer_sender *sender, uint64_t sequence)
{
    struct sl_transfer_asked *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->io = io;
        made->sender = sender;
        made->sequence = sequence;
        sl_list_append(&sender->asked, &made->link);
        io->asked_count++;
    }
    return made;
}

int sl_transfer_inbox_put(struct sl_transfer_io *io, uint64_t client_id,
                          struct sl_message_notice *notice, struct sl_transfer_asked **asked,
                          struct sl_reason *reason)
{
    struct sl_transfer_inbox *inbox = &io->inbox;
    struct sl_transfer_inbox_reader *reader = inbox_reader_of(inbox, notice->name);
    struct sl_transfer_inbox_queue *queue = reader != NULL ? &reader->queue : &inbox->application;
    struct sl_transfer_sender *sender = remember_sender(io, client_id);
    const int err = check(reader, notice, reason);
    *asked = NULL;
    if (err != 0) {
        return err;
    }
    if (sender != NULL && notice->sequence <= sender->sequence) {
        *asked = notice->asks ? find_asked(sender, notice->sequence) : NULL;
        return !notice->asks || *asked != NULL
                   ? 0
                   : sl_reason_fail(reason, SL_ERR_CLOSED, "its answer is not kept any more");
    }
    if (queue->count == SL_LIMIT_TRANSFER_NOTICES) {
        return sl_reason_fail(reason, SL_ERR_AGAIN, "%d notices wait to be taken",
                              SL_LIMIT_TRANSFER_NOTICES);
    }
    if (notice->asks && io->asked_count == SL_TRANSFER_INBOX_ASKED_MAX) {
        return sl_reason_fail(reason, SL_ERR_AGAIN, "%d notices wait for their answers",
                              SL_TRANSFER_INBOX_ASKED_MAX);
    }
    struct notice *made = sender != NULL ? notice_create(notice) : NULL;
    if (made != NULL && notice->asks) {
        *asked = made->asked = asked_create(io, sender, notice->sequence);
    }
    if (made == NULL || (notice->asks && *asked == NULL)) {
        free(made);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for a notice");
    }
    if (reader != NULL && queue->count < ATTACHED_MAX) {
        made->attached = notice->attached;
        made->attached_bytes = notice->attached_bytes;
        made->memory = notice->memory;
        notice->memory = NULL;
    }
    sender->sequence = notice->sequence;
    sender_set_answered(sender, notice->answered);
    queue_append(queue, made);
    if (reader != NULL) {
        reader->put(reader);
    } else if (!sl_list_empty(&inbox->takers)) {
        inbox_give(io);
    }
    return 0;
}

void sl_transfer_inbox_keep(struct sl_transfer_asked *asked, const void *bytes, uint32_t count)
{
    const bool is_needed = bytes != NULL && asked->sender != NULL &&
                           asked->sequence >= asked->sender->answered &&
                           asked->io->asked_count < SL_TRANSFER_INBOX_ASKED_MAX / 2;
    asked->bytes = is_needed ? malloc(count) : NULL;
    if (asked->bytes == NULL) {
        asked_free(asked);
        return;
    }
    memcpy(asked->bytes, bytes, count);
    asked->count = count;
}
