#include "objects/node/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/transfer/inbox.h"
#include "reactor/reactor.h"

#define NOTICE_NAME "objects/2" /* version 1 answered with notices */
#define OPEN_MS     5000
#define SEND_MS     10000 /* a message without answer */
#define IDLE_NS     (60 * SL_CLOCK_NS_PER_S)
#define ASKED_NS    (SL_TRANSFER_TIMEOUT_MS_MAX * SL_CLOCK_NS_PER_MS) /* a peer waits no longer */
#define BUCKETS     256

struct sl_objects_link {
    struct sl_transfer_async *async;
    struct sl_reactor *reactor;
    const char *name; /* of the engine: messages to it stay here */
    uint64_t id;
    sl_objects_link_message_fn *arrived;
    void *ctx;
    struct sl_list buckets[BUCKETS]; /* of peers, by their name */
    struct sl_list asked[BUCKETS];   /* requests of peers, by their number here */
    uint32_t last_asked;
    uint32_t send_count;
    uint64_t refused;
    void (*ended)(void *ctx);
    void *ended_ctx;
};

struct sl_objects_link_peer {
    struct sl_list_link link; /* not linked: it has ended, failed, or was idle */
    struct sl_objects_link *owner;
    struct sl_transfer_segment *segment;  /* NULL: not open */
    bool is_opening, is_watched, is_here; /* is_here: this node, and has no segment */
    uint32_t pins;           /* keep the peer: messages at the engine, callbacks in progress */
    struct sl_list waiting;  /* messages, for the segment */
    struct sl_list requests; /* unanswered */
    struct sl_list uses;
    struct sl_timer news; /* at once: of waiting messages and uses */
    struct sl_timer idle;
    int err; /* the opening could not begin */
    char name[SL_TRANSFER_NAME_BYTES];
};

/* A message on its way. */
struct sl_objects_link_send {
    struct sl_list_link link; /* it waits */
    struct sl_objects_link_peer *peer;
    struct sl_objects_request *request; /* NULL: a message without answer, or the request is over */
    struct sl_transfer_sending *asking; /* NULL: not yet, or a message without answer */
    sl_transfer_done_fn *sent;
    void *ctx;
    uint32_t timeout_ms;
    int err;        /* it was refused */
    uint8_t *image; /* manifest and image of the message; NULL: none */
    uint32_t image_bytes;
    struct { /* to this node */
        bool is_delivered;
        struct sl_transfer_asked asked;
        uint8_t *answer; /* NULL: there is none */
        uint32_t answer_bytes;
    } here;
    uint32_t bytes;
    uint8_t text[];
};

/* Peers */

static struct sl_list *link_bucket_of(struct sl_objects_link *self, const char *name)
{
    return &self->buckets[sl_hash_bytes(name, strlen(name), 0) % BUCKETS];
}

static struct sl_objects_link_peer *link_find(struct sl_objects_link *self, const char *name)
{
    SL_LIST_FOREACH (link, link_bucket_of(self, name)) {
        struct sl_objects_link_peer *peer =
            SL_CONTAINER_OF(link, struct sl_objects_link_peer, link);
        if (strcmp(peer->name, name) == 0) {
            return peer;
        }
    }
    return NULL;
}

static bool link_is_idle(const struct sl_objects_link_peer *peer)
{
    return peer->pins == 0 && !peer->is_opening && sl_list_empty(&peer->waiting) &&
           sl_list_empty(&peer->requests) && sl_list_empty(&peer->uses);
}

/* After every change: a peer that nothing needs any more waits for its next use, or, if it has
 * left the table, is closed and freed. */
static void link_settle(struct sl_objects_link_peer *peer)
{
    struct sl_objects_link *self = peer->owner;
    if (!link_is_idle(peer)) {
        return;
    }
    if (sl_list_linked(&peer->link)) {
        sl_reactor_arm(self->reactor, &peer->idle, IDLE_NS);
        return;
    }
    if (peer->segment != NULL) {
        sl_transfer_async_close(self->async, &peer->segment, NULL, NULL);
    }
    if (!peer->is_watched) { /* else the close ends the watch */
        sl_reactor_disarm(self->reactor, &peer->news);
        sl_reactor_disarm(self->reactor, &peer->idle);
        free(peer);
    }
}

static void link_unpin(struct sl_objects_link_peer *peer)
{
    peer->pins--;
    link_settle(peer);
}

/* Refuses what a stranger could send without end: logged at powers of two. */
static void link_refuse(struct sl_objects_link *self, const char *sender, const char *why)
{
    self->refused++;
    if ((self->refused & (self->refused - 1)) == 0) {
        sl_log_warn("objects: a message of %.255s is refused (number %llu): %.500s", sender,
                    (unsigned long long)self->refused, why);
    }
}

/* Messages */

/* Ends the message, which has been sent or has failed. May end its request. */
static void end_send(struct sl_objects_link_send *send, int err, const char *reason);
static void link_complete(struct sl_objects_request *request,
                          const struct sl_objects_message *answer, int err, const char *reason);

static void sent(void *ctx, int err, const char *reason)
{
    struct sl_objects_link_send *send = ctx;
    struct sl_objects_link_peer *peer = send->peer;
    end_send(send, err, reason);
    link_unpin(peer);
}

static void link_answered(void *ctx, int err, const char *reason, const void *bytes, uint32_t count)
{
    struct sl_objects_link_send *send = ctx;
    struct sl_objects_request *request = send->request;
    struct sl_objects_message answer;
    struct sl_reason why;
    send->asking = NULL;
    if (request == NULL || err != 0) { /* it was cancelled, or has failed */
        sent(send, err, reason);
    } else if (sl_objects_message_decode(bytes, count, &answer, &why) != 0) {
        link_refuse(send->peer->owner, send->peer->name, why.text);
        sent(send, SL_ERR_PROTOCOL, why.text);
    } else if (!answer.is_answer || answer.kind != request->kind) {
        link_refuse(send->peer->owner, send->peer->name, "it answers what was not asked");
        sent(send, SL_ERR_PROTOCOL, "the answer is of another kind than was asked for");
    } else {
        link_complete(request, &answer, answer.err, answer.err != 0 ? answer.text : "");
        sent(send, 0, "");
    }
}

/* Returns an error if the engine does not take it. */
static int transmit(struct sl_objects_link_send *send)
{
    struct sl_objects_link_peer *peer = send->peer;
    struct sl_transfer_async *async = peer->owner->async;
    if (send->image != NULL) {
        sl_transfer_async_attach(async, send->image, send->image_bytes);
        send->image = NULL;
    }
    const struct sl_transfer_notice notice = {
        .name = NOTICE_NAME, .text = send->text, .bytes = send->bytes};
    const int err =
        send->request != NULL
            ? sl_transfer_async_ask(async, peer->segment, &notice, send->timeout_ms, link_answered,
                                    send, &send->asking)
            : sl_transfer_async_send(async, peer->segment, &notice, send->timeout_ms, sent, send);
    peer->pins += err == 0;
    return err;
}

/* To this node. The answer is delivered in a later turn, outside the call that gives it. */
static void link_answer_here(struct sl_transfer_asked *asked, const void *bytes, uint32_t count)
{
    struct sl_objects_link_send *send =
        SL_CONTAINER_OF(asked, struct sl_objects_link_send, here.asked);
    struct sl_objects_link_peer *peer = send->peer;
    if (!sl_list_linked(&peer->link)) {
        sent(send, SL_ERR_CANCELLED, "this node ends");
        return;
    }
    send->here.answer = bytes != NULL ? malloc(count) : NULL;
    if (send->here.answer != NULL) {
        memcpy(send->here.answer, bytes, count);
        send->here.answer_bytes = count;
    }
    sl_list_append(&peer->waiting, &send->link);
    sl_reactor_arm(peer->owner->reactor, &peer->news, 0);
}

static void link_take(struct sl_objects_link *self, const char *sender, const void *text,
                      uint32_t bytes, const uint8_t *image, uint32_t image_bytes,
                      struct sl_transfer_asked *asked);

static void deliver_here(struct sl_objects_link_send *send)
{
    struct sl_objects_link *self = send->peer->owner;
    const bool asks = send->request != NULL;
    if (send->here.is_delivered) {
        link_answered(send, send->here.answer != NULL ? 0 : SL_ERR_CLOSED, "there is no answer",
                      send->here.answer, send->here.answer_bytes);
        return;
    }
    send->here.is_delivered = true;
    send->here.asked.answer = link_answer_here;
    send->peer->pins++;
    link_take(self, self->name, send->text, send->bytes, send->image, send->image_bytes,
              asks ? &send->here.asked : NULL);
    if (!asks) {
        sent(send, 0, "");
    }
}

/* Ends what was refused, and sends what waited for the segment. */
static void flush(struct sl_objects_link_peer *peer)
{
    struct sl_list now;
    struct sl_list_link *link;
    sl_list_init(&now);
    sl_list_append_all(&now, &peer->waiting);
    while ((link = sl_list_pop(&now)) != NULL) {
        struct sl_objects_link_send *send =
            SL_CONTAINER_OF(link, struct sl_objects_link_send, link);
        if (send->err == 0 && peer->segment == NULL) {
            if (peer->is_here) {
                deliver_here(send);
            } else {
                sl_list_append(&peer->waiting, link);
            }
            continue;
        }
        const int err = send->err != 0 ? send->err : transmit(send);
        if (err != 0) {
            end_send(send, err,
                     err == SL_ERR_AGAIN ? "this node sends too much at once" : sl_err_name(err));
        }
    }
}

/* Requests */

static void link_detach(struct sl_objects_request *request)
{
    struct sl_objects_link_send *send = request->send;
    sl_reactor_disarm(request->peer->owner->reactor, &request->timer);
    sl_list_remove(&request->link);
    request->peer = NULL;
    request->send = NULL;
    const bool waits = send != NULL && sl_list_linked(&send->link) && !send->here.is_delivered;
    if (waits) { /* need not be sent any more */
        send->peer->owner->send_count--;
        sl_list_remove(&send->link);
        sl_transfer_async_memory_put(send->peer->owner->async, send->image);
        free(send);
    } else if (send != NULL) {
        send->request = NULL;
        if (send->asking != NULL) {
            sl_transfer_async_forget(send->peer->owner->async, send->asking);
        }
    }
}

static void link_complete(struct sl_objects_request *request,
                          const struct sl_objects_message *answer, int err, const char *reason)
{
    struct sl_objects_link_peer *peer = request->peer;
    peer->pins++;
    link_detach(request);
    request->answered(request, answer, err, reason);
    link_unpin(peer);
}

static void request_late(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_request *request = SL_CONTAINER_OF(timer, struct sl_objects_request, timer);
    char reason[SL_TRANSFER_REASON_BYTES];
    if (request->peer == NULL) {
        request->answered(request, NULL, SL_ERR_NO_MEMORY, "no memory for a message");
        return;
    }
    (void)snprintf(reason, sizeof reason, "%s has not answered %s within %u ms",
                   request->peer->name, sl_objects_message_name(request->kind),
                   request->timeout_ms);
    link_complete(request, NULL, SL_ERR_DEADLINE, reason);
}

static void end_send(struct sl_objects_link_send *send, int err, const char *reason)
{
    struct sl_objects_request *request = send->request;
    send->peer->owner->send_count--;
    if (request != NULL) {
        request->send = NULL;
        if (err != 0) {
            link_complete(request, NULL, err, reason);
        }
    } else if (send->sent != NULL) {
        send->sent(send->ctx, err, reason);
    }
    sl_transfer_async_memory_put(send->peer->owner->async, send->image);
    free(send->here.answer);
    free(send);
}

/* Uses */

static void report_uses(struct sl_objects_link_peer *peer, int err, const char *reason)
{
    bool is_all = false;
    while (!is_all) { /* a callback may remove others */
        is_all = true;
        SL_LIST_FOREACH (link, &peer->uses) {
            struct sl_objects_peer_use *use =
                SL_CONTAINER_OF(link, struct sl_objects_peer_use, link);
            const bool has_ended = use->has_opened && err != 0 && use->ended != NULL;
            if (use->has_opened && !has_ended) {
                continue;
            }
            use->has_opened = true;
            if (err != 0) {
                sl_list_remove(&use->link);
                use->peer = NULL;
            }
            if (has_ended) {
                use->ended(use, reason);
            } else if (use->opened != NULL) {
                use->opened(use, err == 0 ? peer->segment : NULL, err, reason);
            }
            is_all = false;
            break;
        }
    }
}

/* Takes the peer from the table and ends what waits for it. A later use opens another segment. */
static void link_leave(struct sl_objects_link_peer *peer, int err, const char *reason)
{
    struct sl_list_link *link;
    peer->pins++;
    sl_list_remove(&peer->link);
    while ((link = sl_list_first(&peer->requests)) != NULL) {
        link_complete(SL_CONTAINER_OF(link, struct sl_objects_request, link), NULL, err, reason);
    }
    while ((link = sl_list_pop(&peer->waiting)) != NULL) {
        struct sl_objects_link_send *send =
            SL_CONTAINER_OF(link, struct sl_objects_link_send, link);
        if (send->here.is_delivered) {
            sent(send, err, reason);
        } else {
            end_send(send, err, reason);
        }
    }
    report_uses(peer, err, reason);
    link_unpin(peer);
}

static void idle_over(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_link_peer *peer = SL_CONTAINER_OF(timer, struct sl_objects_link_peer, idle);
    if (link_is_idle(peer)) {
        link_leave(peer, SL_ERR_CANCELLED, "not used");
    }
}

static void news_due(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_link_peer *peer = SL_CONTAINER_OF(timer, struct sl_objects_link_peer, news);
    char reason[SL_TRANSFER_REASON_BYTES];
    if (peer->err != 0) {
        (void)snprintf(reason, sizeof reason, "cannot open %.250s: %s", peer->name,
                       sl_err_name(peer->err));
        link_leave(peer, peer->err, reason);
        return;
    }
    peer->pins++;
    flush(peer);
    if (peer->segment != NULL) {
        report_uses(peer, 0, "");
    }
    link_unpin(peer);
}

static void link_watched(void *ctx, int err, const char *reason)
{
    struct sl_objects_link_peer *peer = ctx;
    peer->is_watched = false;
    if (sl_list_linked(&peer->link)) {
        link_leave(peer, err, reason);
    } else {
        link_settle(peer);
    }
}

static void link_opened(void *ctx, int err, const char *reason)
{
    struct sl_objects_link_peer *peer = ctx;
    struct sl_objects_link *self = peer->owner;
    peer->is_opening = false;
    if (!sl_list_linked(&peer->link)) {
        link_settle(peer);
    } else if (err != 0) {
        link_leave(peer, err, reason);
    } else {
        bool ends_with_connection = false;
        SL_LIST_EACH (struct sl_objects_peer_use, use, link, &peer->uses) {
            ends_with_connection |= use->ends_with_connection;
        }
        peer->is_watched = true;
        sl_transfer_async_watch(self->async, peer->segment, ends_with_connection, link_watched,
                                peer);
        news_due(&peer->news, 0);
    }
}

/* Returns NULL without memory. */
static struct sl_objects_link_peer *link_get(struct sl_objects_link *self, const char *name,
                                             uint32_t timeout_ms)
{
    struct sl_objects_link_peer *peer = link_find(self, name);
    if (peer != NULL) {
        return peer;
    }
    peer = calloc(1, sizeof *peer);
    if (peer == NULL) {
        return NULL;
    }
    peer->owner = self;
    peer->news.run = news_due;
    peer->idle.run = idle_over;
    (void)snprintf(peer->name, sizeof peer->name, "%s", name);
    sl_list_init(&peer->waiting);
    sl_list_init(&peer->requests);
    sl_list_init(&peer->uses);
    sl_list_append(link_bucket_of(self, peer->name), &peer->link);
    peer->is_here = strcmp(name, self->name) == 0;
    if (!peer->is_here) {
        peer->err = sl_transfer_async_open(self->async, name, timeout_ms, &peer->segment,
                                           link_opened, peer);
        peer->is_opening = peer->err == 0;
    }
    if (peer->err != 0) {
        sl_reactor_arm(self->reactor, &peer->news, 0);
    }
    return peer;
}

/* Sending */

/* Returns NULL without memory. */
static struct sl_objects_link_send *send_create(struct sl_objects_link *self, const char *address,
                                                struct sl_objects_message *message,
                                                uint32_t timeout_ms,
                                                struct sl_objects_request *request)
{
    uint8_t text[SL_OBJECTS_MESSAGE_BYTES];
    message->node = self->id;
    const uint32_t bytes = sl_objects_message_encode(message, text);
    struct sl_objects_link_send *made = calloc(1, sizeof *made + bytes);
    struct sl_objects_link_peer *peer = made != NULL ? link_get(self, address, OPEN_MS) : NULL;
    if (peer == NULL) {
        free(made);
        return NULL;
    }
    made->peer = peer;
    made->request = request;
    made->timeout_ms = timeout_ms;
    made->bytes = bytes;
    memcpy(made->text, text, bytes);
    made->image_bytes =
        message->commit.image.manifest != NULL ? sl_objects_message_image_bytes(message) : 0;
    made->image = made->image_bytes > 0 ? sl_transfer_async_memory_get(self->async) : NULL;
    if (made->image != NULL) { /* else the receiver does without it */
        const uint32_t manifest_bytes = message->commit.record.parts[0].manifest_bytes;
        memcpy(made->image, message->commit.image.manifest, manifest_bytes);
        memcpy(made->image + manifest_bytes, message->commit.image.bytes,
               made->image_bytes - manifest_bytes);
    }
    made->err = self->send_count >= SL_LIMIT_OBJECTS_SENDS ? SL_ERR_AGAIN : 0;
    self->send_count++;
    const bool waits = made->err != 0 || peer->segment == NULL || !sl_list_empty(&peer->waiting);
    if (waits || (made->err = transmit(made)) != 0) {
        sl_list_append(&peer->waiting, &made->link);
        sl_reactor_arm(self->reactor, &peer->news, 0);
    }
    return made;
}

void sl_objects_link_request(struct sl_objects_link *self, struct sl_objects_request *request,
                             const char *address, struct sl_objects_message *message,
                             uint32_t timeout_ms)
{
    sl_assert(request->peer == NULL);
    message->request = 0;
    request->kind = message->kind;
    request->timeout_ms = timeout_ms;
    request->timer = (struct sl_timer){.run = request_late};
    request->link = (struct sl_list_link){NULL, NULL};
    request->send = send_create(self, address, message, timeout_ms, request);
    if (request->send != NULL) {
        request->peer = request->send->peer;
        sl_list_append(&request->peer->requests, &request->link);
    }
    sl_reactor_arm(self->reactor, &request->timer,
                   request->send != NULL ? timeout_ms * SL_CLOCK_NS_PER_MS : 0);
}

void sl_objects_link_cancel(struct sl_objects_link *self, struct sl_objects_request *request)
{
    struct sl_objects_link_peer *peer = request->peer;
    if (peer != NULL) {
        link_detach(request);
        link_settle(peer);
    } else {
        sl_reactor_disarm(self->reactor, &request->timer);
    }
}

static struct sl_list *link_asked_of(struct sl_objects_link *self, uint32_t number)
{
    return &self->asked[number % BUCKETS];
}

/* Returns the request's number here. */
static uint32_t remember_asked(struct sl_objects_link *self, struct sl_transfer_asked *asked)
{
    const uint64_t now_ns = sl_reactor_now_ns(self->reactor);
    self->last_asked += self->last_asked == UINT32_MAX ? 2 : 1; /* 0: no answer is expected */
    struct sl_list *bucket = link_asked_of(self, self->last_asked);
    struct sl_list_link *first;
    while ((first = sl_list_first(bucket)) != NULL) { /* those that nobody has answered */
        struct sl_transfer_asked *oldest =
            SL_CONTAINER_OF(first, struct sl_transfer_asked, reader.link);
        if (now_ns - oldest->reader.since_ns < ASKED_NS) {
            break;
        }
        sl_list_remove(first);
        sl_transfer_async_answer(oldest, NULL, 0);
    }
    asked->reader.number = self->last_asked;
    asked->reader.since_ns = now_ns;
    sl_list_append(bucket, &asked->reader.link);
    return self->last_asked;
}

static struct sl_transfer_asked *take_asked(struct sl_objects_link *self, uint32_t number)
{
    SL_LIST_FOREACH (link, link_asked_of(self, number)) {
        struct sl_transfer_asked *asked =
            SL_CONTAINER_OF(link, struct sl_transfer_asked, reader.link);
        if (asked->reader.number == number) {
            sl_list_remove(link);
            return asked;
        }
    }
    return NULL;
}

/* Nobody waits for it any more if the request is not found. */
static void link_answer(struct sl_objects_link *self, struct sl_objects_message *message)
{
    uint8_t text[SL_OBJECTS_MESSAGE_BYTES];
    struct sl_transfer_asked *asked = take_asked(self, message->request);
    if (asked != NULL) {
        message->node = self->id;
        sl_transfer_async_answer(asked, text, sl_objects_message_encode(message, text));
    }
}

void sl_objects_link_send(struct sl_objects_link *self, const char *address,
                          struct sl_objects_message *message, sl_transfer_done_fn *done, void *ctx)
{
    if (message->is_answer && message->kind != SL_OBJECTS_NEWS) {
        link_answer(self, message);
        if (done != NULL) {
            done(ctx, 0, "");
        }
        return;
    }
    struct sl_objects_link_send *send = send_create(self, address, message, SEND_MS, NULL);
    if (send != NULL) {
        send->sent = done;
        send->ctx = ctx;
    } else if (done != NULL) {
        done(ctx, SL_ERR_NO_MEMORY, "no memory for a message");
    }
}

void sl_objects_link_refuse(struct sl_objects_link *self, const char *address,
                            const struct sl_objects_message *message, int err, const char *text)
{
    struct sl_objects_message answer = {.kind = message->kind,
                                        .is_answer = true,
                                        .request = message->request,
                                        .err = err,
                                        .text = text};
    if (message->request != 0) {
        sl_objects_link_send(self, address, &answer, NULL, NULL);
    }
}

static void use_failed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_peer_use *use = SL_CONTAINER_OF(timer, struct sl_objects_peer_use, no_memory);
    if (use->opened != NULL) {
        use->opened(use, NULL, SL_ERR_NO_MEMORY, "no memory for a peer");
    }
}

struct sl_transfer_segment *sl_objects_link_peer_get(struct sl_objects_link *self,
                                                     struct sl_objects_peer_use *use,
                                                     const char *address, uint32_t timeout_ms)
{
    sl_assert(use->peer == NULL);
    use->peer = link_get(self, address, timeout_ms);
    use->link = (struct sl_list_link){NULL, NULL};
    if (use->peer == NULL) {
        use->no_memory = (struct sl_timer){.run = use_failed};
        sl_reactor_arm(self->reactor, &use->no_memory, 0);
        return NULL;
    }
    use->has_opened = use->peer->segment != NULL;
    sl_list_append(&use->peer->uses, &use->link);
    return use->peer->segment;
}

void sl_objects_link_peer_put(struct sl_objects_link *self, struct sl_objects_peer_use *use)
{
    struct sl_objects_link_peer *peer = use->peer;
    if (peer != NULL) {
        sl_list_remove(&use->link);
        use->peer = NULL;
        link_settle(peer);
    } else {
        sl_reactor_disarm(self->reactor, &use->no_memory);
    }
}

/* Receiving */

static void link_take(struct sl_objects_link *self, const char *sender, const void *text,
                      uint32_t bytes, const uint8_t *image, uint32_t image_bytes,
                      struct sl_transfer_asked *asked)
{
    struct sl_objects_message message;
    struct sl_reason reason;
    int err = SL_ERR_PROTOCOL;
    if (!sl_objects_text_is_valid(sender, SL_OBJECTS_ADDRESS_BYTES)) {
        sl_reason_set(&reason, "the name of its engine is longer than %d bytes",
                      SL_OBJECTS_ADDRESS_BYTES - 1);
    } else {
        err = sl_objects_message_decode(text, bytes, &message, &reason);
    }
    if (err == 0 && message.is_answer && (asked != NULL || message.kind != SL_OBJECTS_NEWS)) {
        err = sl_reason_fail(&reason, SL_ERR_PROTOCOL, "it answers what was not asked");
    }
    if (err != 0) {
        link_refuse(self, sender, reason.text);
        if (asked != NULL) {
            sl_transfer_async_answer(asked, NULL, 0);
        }
        return;
    }
    if (asked != NULL) {
        message.request = remember_asked(self, asked);
    } else if (message.kind != SL_OBJECTS_NEWS) {
        message.request = 0;
    }
    if (image != NULL && image_bytes == sl_objects_message_image_bytes(&message)) {
        message.commit.image.manifest = image;
        message.commit.image.bytes = image + message.commit.record.parts[0].manifest_bytes;
    }
    self->arrived(self->ctx, sender, &message);
}

static void link_arrive(void *ctx, const struct sl_transfer_noticed *noticed,
                        struct sl_transfer_asked *asked)
{
    const struct sl_objects_link *self = ctx;
    uint32_t image_bytes;
    const uint8_t *image = sl_transfer_async_attached(self->async, &image_bytes);
    link_take(ctx, noticed->sender, noticed->text, noticed->bytes, image, image_bytes, asked);
}

/* Create and destroy */

int sl_objects_link_create(struct sl_transfer *transfer, uint64_t id,
                           sl_objects_link_message_fn *arrived, void *ctx,
                           struct sl_objects_link **out)
{
    if (!sl_objects_text_is_valid(sl_transfer_name(transfer), SL_OBJECTS_ADDRESS_BYTES)) {
        return SL_ERR_TOO_LARGE;
    }
    struct sl_objects_link *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    made->reactor = sl_transfer_async_reactor(transfer);
    made->name = sl_transfer_name(transfer);
    made->id = id;
    made->arrived = arrived;
    made->ctx = ctx;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        sl_list_init(&made->buckets[i]);
        sl_list_init(&made->asked[i]);
    }
    const int err =
        sl_transfer_async_create(transfer, NOTICE_NAME, link_arrive, made, &made->async);
    if (err != 0) {
        free(made);
        return err;
    }
    *out = made;
    return 0;
}

static void link_async_ended(void *ctx)
{
    struct sl_objects_link *self = ctx;
    void (*const ended)(void *ctx) = self->ended;
    void *const ended_ctx = self->ended_ctx;
    free(self);
    ended(ended_ctx);
}

static void end_peer(struct sl_objects_link_peer *peer)
{
    struct sl_list_link *link;
    while ((link = sl_list_first(&peer->requests)) != NULL) {
        link_detach(SL_CONTAINER_OF(link, struct sl_objects_request, link));
    }
    sl_assert(sl_list_empty(&peer->uses));
    link_leave(peer, SL_ERR_CANCELLED, "this node ends");
}

void sl_objects_link_destroy(struct sl_objects_link **link, void (*ended)(void *ctx), void *ctx)
{
    struct sl_objects_link *self = *link;
    struct sl_transfer_async *async = self->async; /* it lives until its end */
    *link = NULL;
    self->ended = ended;
    self->ended_ctx = ctx;
    sl_transfer_async_destroy(&async, link_async_ended, self);
    for (uint32_t i = 0; i < BUCKETS; i++) {
        struct sl_list_link *first;
        while ((first = sl_list_first(&self->buckets[i])) != NULL) {
            end_peer(SL_CONTAINER_OF(first, struct sl_objects_link_peer, link));
        }
        while ((first = sl_list_pop(&self->asked[i])) != NULL) {
            sl_transfer_async_answer(SL_CONTAINER_OF(first, struct sl_transfer_asked, reader.link),
                                     NULL, 0);
        }
    }
}

struct sl_transfer_async *sl_objects_link_async(struct sl_objects_link *link)
{
    return link->async;
}

uint64_t sl_objects_link_refused(const struct sl_objects_link *link)
{
    return link->refused;
}
