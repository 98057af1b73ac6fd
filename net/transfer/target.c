#include "net/transfer/target.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/session/greeting.h"
#include "net/transfer/engine.h"
#include "net/transfer/inbox.h"
#include "net/transfer/memory.h"
#include "net/transfer/own_segment_info.h"
#include "net/transport_impl.h"
#include "net/transport_rma.h"

/* A peer that takes none of its frames for so long, or up to twice as long, is closed: they occupy
 * the outbox, which all peers share. */
#define STUCK_NS   (10 * SL_CLOCK_NS_PER_S)

/* Unanswered ones of a guest: more than a peer has lanes. */
#define FENCES_MAX (SL_LIMIT_REACTORS * SL_TRANSFER_SETTINGS_LANES_MAX)

enum guest_state {
    GUEST_ACCEPTED,
    GUEST_CHALLENGED,
    GUEST_CONTROL, /* welcomed, with control messages only */
    GUEST_LANE,    /* welcomed, with data frames only */
    GUEST_ENDING   /* disconnect was called */
};

/* A connection that a peer has opened. */
struct guest {
    struct sl_list_link link; /* of io->guests */
    struct sl_transfer_io *io;
    const struct sl_transfer_device *device; /* that it was accepted on */
    uint64_t number;                         /* unique on its reactor */
    struct sl_conn *conn;
    struct sl_outbox_queue queue;
    enum guest_state state;
    struct sl_greeting greeting;
    struct sl_timer timer;   /* transfer_target_hello_late, then transfer_target_look_if_stuck */
    bool may_be_stuck;       /* had unsent frames, and none was sent since */
    uint8_t *control_memory; /* of a long control message being received; NULL: none */
    bool wants_changes;      /* has requested the buffers */
    uint32_t fence_count;    /* unanswered */
    struct sl_list asked;    /* notices that ask, until their answer is not kept any more */
    struct sl_transfer_work work;
    struct sl_rma_target *lane; /* NULL: it is no lane */
};

static void transfer_target_drop(struct guest *guest, const char *why)
{
    if (guest->state != GUEST_ENDING) {
        sl_log_debug("transfer: the connection of %s is closed: %s", guest->conn->peer, why);
        guest->state = GUEST_ENDING;
        sl_reactor_disarm(guest->io->reactor, &guest->timer);
        sl_transport_disconnect(guest->conn);
    }
}

/* Also a guest that is ending: what it was sent is dropped. Not in an upcall of its connection. */
static void drop_at_once(struct guest *guest, const char *why)
{
    guest->conn->is_abrupt = true;
    transfer_target_drop(guest, why);
    sl_transport_disconnect(guest->conn);
}

/* Runs every STUCK_NS once the guest is welcomed. */
static void transfer_target_look_if_stuck(struct sl_timer *timer, uint64_t now_ns)
{
    struct guest *guest = SL_CONTAINER_OF(timer, struct guest, timer);
    if (guest->may_be_stuck) {
        drop_at_once(guest, "it does not read what is sent to it");
        return;
    }
    guest->may_be_stuck = guest->queue.count > 0;
    sl_reactor_arm(guest->io->reactor, timer, STUCK_NS);
}

static void send_message(struct guest *guest, const struct sl_message *message)
{
    if (guest->state == GUEST_ENDING) {
        return;
    }
    const size_t bytes = sl_message_encoded_bytes(message);
    uint8_t *room = guest->queue.count > SL_LIMIT_UNSENT_ANSWERS
                        ? NULL
                        : sl_outbox_reserve(&guest->io->outbox, (uint32_t)bytes);
    if (room == NULL) {
        transfer_target_drop(guest, "it does not read what is sent to it");
        return;
    }
    sl_message_encode(message, room + SL_FRAME_HEADER_BYTES);
    const struct sl_frame frame = {
        .type = SL_FRAME_CONTROL,
        .payload_bytes = (uint32_t)bytes,
        .flags = guest->greeting.hello.checksum ? SL_FRAME_CHECKSUM : 0,
    };
    sl_outbox_commit(&guest->io->outbox, guest->conn, &guest->queue, &frame, NULL, 0, NULL, NULL);
}

/* Refuses the hello. */
static void transfer_target_refuse(struct guest *guest, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void transfer_target_refuse(struct guest *guest, int err, const char *format, ...)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_ERROR, .id = guest->greeting.hello_id, .error.err = err};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message.error.text, sizeof message.error.text, format, args);
    va_end(args);
    if (sl_transport_may_log(guest->conn->transport)) {
        sl_log_warn("transfer: %s is refused: %s", guest->conn->peer, message.error.text);
    }
    send_message(guest, &message);
    transfer_target_drop(guest, message.error.text);
}

/* The lists of buffers */

static void answer_segment(struct guest *guest, const struct sl_message *request)
{
    struct sl_message message = {.kind = SL_MESSAGE_SEGMENT, .id = request->id};
    if (guest->queue.count > 0 && sl_outbox_is_half_full(&guest->io->outbox)) {
        transfer_target_drop(guest, "it does not read what is sent to it");
        return;
    }
    guest->wants_changes = true;
    sl_transfer_own_segment_info_page(guest->io->engine, request->above, &message.segment);
    send_message(guest, &message);
}

static void notify_all(struct sl_transfer_io *io, const struct sl_message *message)
{
    SL_LIST_FOREACH (link, &io->guests) {
        struct guest *guest = SL_CONTAINER_OF(link, struct guest, link);
        if (guest->wants_changes) {
            send_message(guest, message);
        }
    }
}

void sl_transfer_target_added(struct sl_transfer_io *io,
                              struct sl_transfer_registration *const *items, uint32_t count)
{
    struct sl_message message = {.kind = SL_MESSAGE_BUFFER_ADDED};
    for (uint32_t taken = 0; taken < count;) {
        taken += sl_transfer_own_segment_info_added(io->engine, &items[taken], count - taken,
                                                    &message.buffers);
        if (message.buffers.count > 0) {
            notify_all(io, &message);
        }
    }
}

void sl_transfer_target_gone(struct sl_transfer_io *io,
                             struct sl_transfer_registration *const *items, uint32_t count)
{
    struct sl_message message = {.kind = SL_MESSAGE_BUFFER_GONE};
    struct sl_message_buffer_keys *keys = &message.keys;
    for (uint32_t i = 0; i < count; i++) {
        if (sl_transfer_table_find(io->table, items[i]->regions[0].memory.key) != NULL) {
            keys->items[keys->count++] = items[i]->regions[0].memory.key;
        }
        if (keys->count == SL_MESSAGE_BUFFERS_MAX || (i + 1 == count && keys->count > 0)) {
            notify_all(io, &message);
            keys->count = 0;
        }
    }
}

/* One-sided operations */

static struct sl_rma_memory *transfer_target_find(void *ctx, uint64_t key)
{
    struct guest *guest = ctx;
    struct sl_transfer_region *region = sl_transfer_table_find(guest->io->table, key);
    return region != NULL ? &region->memory : NULL;
}

static void unused(void *ctx, struct sl_rma_memory *memory)
{
    struct guest *guest = ctx;
    if (memory->uses == 0 && !sl_list_empty(&guest->io->changes)) {
        sl_transfer_io_wake(guest->io, &guest->io->change_work);
    }
}

static bool transfer_target_may_send(void *ctx, uint32_t bytes)
{
    return sl_transfer_io_may_send(((struct guest *)ctx)->io, bytes);
}

static const struct sl_rma_target_events rma_events = {
    .find = transfer_target_find, .unused = unused, .may_send = transfer_target_may_send};

static bool transfer_target_pump(struct sl_transfer_work *work)
{
    struct guest *guest = SL_CONTAINER_OF(work, struct guest, work);
    return guest->state == GUEST_LANE && sl_rma_target_pump(guest->lane);
}

void sl_transfer_target_close_users(struct sl_transfer_io *io, const struct sl_rma_memory *memory)
{
    SL_LIST_FOREACH (link, &io->guests) {
        struct guest *guest = SL_CONTAINER_OF(link, struct guest, link);
        if (guest->lane != NULL && sl_rma_target_uses(guest->lane, memory)) {
            drop_at_once(guest, "it uses memory that is unregistered");
        }
    }
}

/* Fences */

/* On its way through the reactors. */
struct fence {
    struct sl_transfer_io *home; /* of the control connection, which may have ended */
    uint64_t guest_number, message_id;
    uint64_t client_id, epoch;
    uint32_t lane;
    uint32_t left; /* reactors */
};

static void fence_answered(void *ctx, uint64_t a, uint64_t b)
{
    struct fence *fence = ctx;
    if (--fence->left > 0) {
        return;
    }
    const struct sl_message message = {.kind = SL_MESSAGE_FENCED,
                                       .id = fence->message_id,
                                       .fence = {.lane = fence->lane, .epoch = fence->epoch}};
    SL_LIST_FOREACH (link, &fence->home->guests) {
        struct guest *guest = SL_CONTAINER_OF(link, struct guest, link);
        if (guest->number == fence->guest_number) {
            guest->fence_count--;
            send_message(guest, &message);
        }
    }
    free(fence);
}

/* On each reactor: ends the lane's connections. Answers when they are closed: from then on nothing
 * that they carried is applied. No later connection of the epoch can carry a WRITE: the initiator
 * gave it up before it was welcomed, or it is among these. */
static void fence_lanes(void *ctx, uint64_t index, uint64_t b)
{
    struct fence *fence = ctx;
    struct sl_transfer_io *io = &fence->home->engine->ios[index];
    bool has_lanes = false;
    SL_LIST_FOREACH (link, &io->guests) {
        struct guest *guest = SL_CONTAINER_OF(link, struct guest, link);
        const struct sl_message_hello *hello = &guest->greeting.hello;
        if (guest->lane != NULL && hello->client_id == fence->client_id &&
            hello->lane == fence->lane && hello->lane_epoch <= fence->epoch) {
            has_lanes = true;
            drop_at_once(guest, "its peer has given it up");
        }
    }
    sl_reactor_post(io->reactor, has_lanes ? (uint32_t)index : fence->home->index,
                    (struct sl_mail){
                        .run = has_lanes ? fence_lanes : fence_answered, .ctx = fence, .a = index});
}

static void take_fence(struct guest *guest, const struct sl_message *message)
{
    struct sl_transfer_io *io = guest->io;
    if (guest->fence_count == FENCES_MAX) {
        transfer_target_drop(guest, "it has sent too many fences");
        return;
    }
    struct fence *fence = calloc(1, sizeof *fence);
    if (fence == NULL) {
        transfer_target_drop(guest, "no memory to answer it");
        return;
    }
    *fence = (struct fence){.home = io,
                            .guest_number = guest->number,
                            .message_id = message->id,
                            .client_id = guest->greeting.hello.client_id,
                            .epoch = message->fence.epoch,
                            .lane = message->fence.lane,
                            .left = io->engine->settings.reactors.count};
    guest->fence_count++;
    for (uint32_t i = 0; i < io->engine->settings.reactors.count; i++) {
        sl_reactor_post(io->reactor, i, (struct sl_mail){.run = fence_lanes, .ctx = fence, .a = i});
    }
}

/* Handshake */

static void welcome(struct guest *guest)
{
    struct sl_message message = sl_greeting_welcome(&guest->greeting);
    message.welcome.incarnation = guest->io->engine->incarnation;
    message.welcome.credit_requests = SL_LIMIT_TRANSFER_SLICES;
    message.welcome.credit_bytes = SL_LIMIT_TRANSFER_CREDIT_BYTES;
    guest->conn->is_welcome = true;
    guest->state = guest->greeting.hello.lane == 0 ? GUEST_CONTROL : GUEST_LANE;
    guest->timer.run = transfer_target_look_if_stuck;
    sl_reactor_arm(guest->io->reactor, &guest->timer, STUCK_NS);
    send_message(guest, &message);
    if (guest->lane != NULL) {
        sl_rma_target_init(guest->lane, &rma_events, guest, guest->conn, &guest->io->outbox,
                           &guest->queue, guest->io->discard);
        guest->lane->checksum = guest->greeting.hello.checksum;
    }
}

/* The peer has proved the secret, or there is none. */
static void admit(struct guest *guest)
{
    const struct sl_transfer *engine = guest->io->engine;
    const struct sl_message_hello *hello = &guest->greeting.hello;
    if (hello->purpose != SL_MESSAGE_PURPOSE_TRANSFER) {
        transfer_target_refuse(guest, SL_ERR_REFUSED, "%s is a transfer engine, no server",
                               engine->name);
    } else if (hello->incarnation != 0 && hello->incarnation != engine->incarnation) {
        transfer_target_refuse(guest, SL_ERR_REFUSED,
                               "%s has another incarnation: its process was restarted",
                               engine->name);
    } else if (hello->lane == 0 &&
               (guest->io->index != 0 || guest->device->scheme != SL_ENDPOINT_TCP)) {
        transfer_target_refuse(guest, SL_ERR_REFUSED, "control connections go to %s", engine->name);
    } else if (hello->lane > 0 && (guest->lane = calloc(1, sizeof *guest->lane)) == NULL) {
        transfer_target_refuse(guest, SL_ERR_NO_MEMORY, "%s has no memory for one more lane",
                               engine->name);
    } else if (guest->device->is_one_sided && sl_transport_rma_admit(guest->conn) != 0) {
        transfer_target_refuse(guest, SL_ERR_NO_MEMORY, "%s has no memory for one more peer",
                               engine->name);
    } else {
        welcome(guest);
    }
}

/* message: NULL behind the hello, then the answer to the challenge. */
static void authenticate(struct guest *guest, const struct sl_message *message)
{
    const char *why;
    struct sl_message answer;
    const int err = sl_greeting_authenticate(&guest->greeting, &guest->io->engine->settings.secret,
                                             message, &answer, &why);
    if (err == SL_ERR_PROTOCOL) {
        transfer_target_drop(guest, why);
    } else if (err != 0) {
        transfer_target_refuse(guest, err, "%s", why);
    } else if (answer.kind == SL_MESSAGE_CHALLENGE) {
        guest->state = GUEST_CHALLENGED;
        send_message(guest, &answer);
    } else {
        if (answer.kind == SL_MESSAGE_PROOF) {
            send_message(guest, &answer);
        }
        admit(guest);
    }
}

static void take_hello(struct guest *guest, const struct sl_message *message)
{
    const int err = sl_greeting_hello(&guest->greeting, message);
    if (err == SL_ERR_VERSION) {
        char text[SL_MESSAGE_TEXT_BYTES];
        sl_greeting_version_text(&guest->greeting, guest->io->engine->name, guest->conn->peer,
                                 guest->greeting.hello.protocol_version, text);
        transfer_target_refuse(guest, err, "%s", text);
    } else if (err != 0) {
        transfer_target_drop(guest, "its first message is not a hello");
    } else {
        authenticate(guest, NULL);
    }
}

static void transfer_target_hello_late(struct sl_timer *timer, uint64_t now_ns)
{
    transfer_target_drop(SL_CONTAINER_OF(timer, struct guest, timer),
                         "it has not authenticated itself");
}

/* Frames */

static void refuse_notice(struct guest *guest, uint64_t message_id, int err, const char *why)
{
    struct sl_message answer = {.kind = SL_MESSAGE_ERROR, .id = message_id, .error = {.err = err}};
    (void)snprintf(answer.error.text, sizeof answer.error.text, "%.250s: %.250s",
                   guest->io->engine->name, why);
    send_message(guest, &answer);
}

static void send_answer(const struct sl_transfer_asked *asked, const void *bytes, uint32_t count)
{
    struct sl_message answer = {
        .kind = SL_MESSAGE_NOTICE_TAKEN, .id = asked->message_id, .notice.byte_count = count};
    sl_assert(count > 0);
    sl_assert(count <= sizeof answer.notice.bytes);
    memcpy(answer.notice.bytes, bytes, count);
    send_message(asked->guest, &answer);
}

static void answer_notice(struct sl_transfer_asked *asked, const void *bytes, uint32_t count)
{
    const bool is_connected = sl_list_linked(&asked->by_guest);
    sl_reactor_assert_owner(asked->io->reactor);
    if (is_connected && bytes != NULL) {
        send_answer(asked, bytes, count);
    } else if (is_connected) {
        refuse_notice(asked->guest, asked->message_id, SL_ERR_CLOSED, "it gave no answer");
    }
    sl_transfer_inbox_keep(asked, bytes, count);
}

static void take_notice(struct guest *guest, struct sl_message *message)
{
    const struct sl_message taken = {.kind = SL_MESSAGE_NOTICE_TAKEN, .id = message->id};
    struct sl_transfer_asked *asked;
    struct sl_reason reason;
    const int err = sl_transfer_inbox_put(guest->io, guest->greeting.hello.client_id,
                                          &message->notice, &asked, &reason);
    if (err != 0) {
        refuse_notice(guest, message->id, err, reason.text);
    } else if (asked == NULL) {
        send_message(guest, &taken);
    } else {
        asked->answer = answer_notice;
        asked->guest = guest;
        asked->message_id = message->id;
        sl_list_append(&guest->asked, &asked->by_guest);
        if (asked->bytes != NULL) { /* it comes again, since the connection was lost */
            send_answer(asked, asked->bytes, asked->count);
        }
    }
}

static void take_control(struct guest *guest, struct sl_message *message)
{
    switch (message->kind) {
    case SL_MESSAGE_SEGMENT_GET:
        answer_segment(guest, message);
        break;
    case SL_MESSAGE_NOTICE:
        take_notice(guest, message);
        break;
    case SL_MESSAGE_FENCE:
        take_fence(guest, message);
        break;
    case SL_MESSAGE_BUFFER_RELEASED:
        break; /* keys are checked with every request: nothing waits for this */
    case SL_MESSAGE_GOODBYE:
        transfer_target_drop(guest, "it says goodbye");
        break;
    default:
        transfer_target_drop(guest, "it sent a message that does not belong here");
        break;
    }
}

static void take_message(struct guest *guest, struct sl_message *message)
{
    switch (guest->state) {
    case GUEST_ACCEPTED:
        take_hello(guest, message);
        break;
    case GUEST_CHALLENGED:
        authenticate(guest, message);
        break;
    case GUEST_CONTROL:
        take_control(guest, message);
        break;
    default:
        transfer_target_drop(guest, message->kind == SL_MESSAGE_GOODBYE
                                        ? "it says goodbye"
                                        : "a lane carries data frames only");
        break;
    }
}

static void received_control(struct guest *guest, const struct sl_transport_message *frame)
{
    struct sl_message message;
    const int err = sl_message_decode(frame->payload, frame->header.payload_bytes, &message);
    struct sl_transfer_inbox *inbox = &guest->io->inbox;
    uint8_t *memory = guest->control_memory;
    struct sl_message_notice *notice =
        err == 0 && message.kind == SL_MESSAGE_NOTICE ? &message.notice : NULL;
    guest->control_memory = NULL;
    if (notice != NULL && notice->attached != NULL && memory == NULL) { /* it is short */
        memory = sl_transfer_inbox_memory_get(inbox, notice->attached_bytes);
        notice->attached =
            memory == NULL ? NULL : memcpy(memory, notice->attached, notice->attached_bytes);
    }
    sl_transport_release(guest->conn, frame);
    if (notice != NULL) {
        notice->memory = memory;
    }
    if (err == 0) {
        take_message(guest, &message);
    } else {
        transfer_target_drop(guest, "it sent a control message that is malformed");
    }
    sl_transfer_inbox_memory_put(inbox, notice != NULL ? notice->memory : memory);
    if (err == 0) {
        sl_message_fini(&message);
    }
}

static void received_data(struct guest *guest, const struct sl_transport_message *frame)
{
    const char *text = "it sent frames over RDMA, which moves data by one-sided operations only";
    if (sl_transport_needs_registered(guest->conn) ||
        sl_rma_target_received(guest->lane, frame, &text) != 0) {
        transfer_target_drop(guest, text);
    } else {
        sl_transfer_io_wake(guest->io, &guest->work);
    }
}

/* Transport events */

static void transfer_target_on_accepted(void *ctx, struct sl_conn *conn)
{
    struct sl_transfer_device *device = ctx;
    struct sl_transfer_io *io = device->io;
    struct guest *guest = calloc(1, sizeof *guest);
    conn->user = guest;
    if (guest == NULL) {
        sl_transport_disconnect(conn);
        return;
    }
    guest->io = io;
    sl_list_init(&guest->asked);
    guest->device = device;
    guest->number = io->guest_count++;
    guest->conn = conn;
    guest->work.run = transfer_target_pump;
    guest->timer.run = transfer_target_hello_late;
    sl_list_append(&io->guests, &guest->link);
    sl_reactor_arm(io->reactor, &guest->timer, SL_GREETING_TIMEOUT_NS);
}

static void *transfer_target_on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct guest *guest = conn->user;
    if (guest == NULL || guest->state == GUEST_ENDING) {
        return NULL;
    }
    void *memory = NULL;
    if (guest->state == GUEST_LANE && header->type == SL_FRAME_DATA) {
        memory = sl_rma_target_sink(guest->lane, header);
    } else if (guest->state == GUEST_CONTROL && header->type == SL_FRAME_CONTROL) {
        sl_transfer_inbox_memory_put(&guest->io->inbox, guest->control_memory);
        memory = guest->control_memory =
            sl_transfer_inbox_memory_get(&guest->io->inbox, header->payload_bytes);
    }
    if (memory == NULL) {
        transfer_target_drop(guest, "it sent a long frame that was not announced");
    }
    return memory;
}

static void transfer_target_on_received(void *ctx, struct sl_conn *conn,
                                        const struct sl_transport_message *frame)
{
    struct guest *guest = conn->user;
    const char *flaw = NULL;
    if (guest == NULL || guest->state == GUEST_ENDING) {
        sl_transport_release(conn, frame);
        return;
    }
    if (frame->header.version != SL_FRAME_PROTOCOL_VERSION) {
        flaw = "it sent a frame of another version";
    } else if (sl_frame_verify(&frame->header, frame->payload) != 0) {
        flaw = "it sent a frame with a wrong checksum";
    } else if (frame->header.type != SL_FRAME_CONTROL && guest->state != GUEST_LANE) {
        flaw = "it sent a frame that does not belong here";
    }
    if (flaw != NULL) {
        sl_transport_release(conn, frame);
        transfer_target_drop(guest, flaw);
    } else if (frame->header.type == SL_FRAME_CONTROL) {
        received_control(guest, frame);
    } else {
        received_data(guest, frame);
    }
}

static void transfer_target_on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct guest *guest = conn->user;
    guest->may_be_stuck = false;
    sl_outbox_sent(&guest->io->outbox, cookie);
    if (guest->state == GUEST_LANE) {
        sl_transfer_io_wake(guest->io, &guest->work);
    }
}

static void transfer_target_on_writable(void *ctx, struct sl_conn *conn)
{
    struct guest *guest = conn->user;
    sl_outbox_writable(&guest->io->outbox, conn, &guest->queue);
    if (guest->state == GUEST_LANE) {
        sl_transfer_io_wake(guest->io, &guest->work);
    }
}

/* Or each request for it would end the lane that carries it. */
static void withdraw_unmapped(struct sl_rma_target *rma)
{
    for (uint32_t i = 0; i < SL_RMA_TARGET_SLICES; i++) {
        const struct sl_rma_target_slice *slice = &rma->slices[i];
        struct sl_rma_memory *memory = slice->memory;
        if (memory != NULL && (memory->peers_read || memory->peers_write) &&
            !sl_transfer_table_is_mapped(slice->at, slice->bytes)) {
            memory->peers_read = memory->peers_write = false;
            sl_log_error("transfer: registered memory at %p has been unmapped: peers get no access "
                         "to it any more; unregister it first",
                         (void *)memory->base);
        }
    }
}

static void transfer_target_on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct guest *guest = conn->user;
    if (guest == NULL) {
        return;
    }
    struct sl_transfer_io *io = guest->io;
    if (guest->lane != NULL) {
        withdraw_unmapped(guest->lane);
    }
    sl_outbox_closed(&io->outbox, conn, &guest->queue);
    if (guest->lane != NULL && guest->lane->conn != NULL) {
        sl_rma_target_closed(guest->lane);
    }
    while (sl_list_pop(&guest->asked) != NULL) { /* their answers wait for the next connection */
    }
    sl_reactor_disarm(io->reactor, &guest->timer);
    sl_list_remove(&guest->link);
    sl_list_remove(&guest->work.link);
    sl_transfer_inbox_memory_put(&io->inbox, guest->control_memory);
    free(guest->lane);
    free(guest);
}

static const struct sl_transport_events guest_events = {
    .accepted = transfer_target_on_accepted,
    .sink = transfer_target_on_sink,
    .received = transfer_target_on_received,
    .sent = transfer_target_on_sent,
    .writable = transfer_target_on_writable,
    .closed = transfer_target_on_closed,
};

/* The end of the engine */

/* Until the peers have received the Goodbye and closed their connections. */
#define LEAVE_NS (200 * SL_CLOCK_NS_PER_MS)

struct leaving {
    struct sl_transfer_call call;
    struct sl_timer timer;
    uint64_t until_ns;
};

static void look_if_left(struct sl_timer *timer, uint64_t now_ns)
{
    struct leaving *leaving = SL_CONTAINER_OF(timer, struct leaving, timer);
    struct sl_transfer_io *io = leaving->call.io;
    bool has_left = true;
    SL_LIST_FOREACH (link, &io->guests) {
        const struct guest *guest = SL_CONTAINER_OF(link, struct guest, link);
        has_left = has_left && (guest->state != GUEST_ENDING || guest->lane != NULL);
    }
    if (has_left || now_ns >= leaving->until_ns) {
        sl_transfer_io_answer(&leaving->call, 0, "left");
    } else {
        sl_reactor_arm(io->reactor, timer, SL_CLOCK_NS_PER_MS);
    }
}

static void transfer_target_leave_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct leaving *leaving = SL_CONTAINER_OF(call, struct leaving, call);
    const uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    const struct sl_message goodbye = {.kind = SL_MESSAGE_GOODBYE};
    SL_LIST_FOREACH (link, &io->guests) {
        struct guest *guest = SL_CONTAINER_OF(link, struct guest, link);
        if (guest->state == GUEST_CONTROL) {
            send_message(guest, &goodbye);
            transfer_target_drop(guest, "this engine ends");
        }
    }
    leaving->timer.run = look_if_left;
    leaving->until_ns = now_ns + LEAVE_NS;
    look_if_left(&leaving->timer, now_ns);
}

void sl_transfer_target_leave(struct sl_transfer *engine)
{
    struct leaving leaving = {.call = {.run = transfer_target_leave_here}};
    (void)sl_transfer_io_call(&engine->ios[0], &leaving.call);
}

/* Listening */

static void answer_listening(struct sl_transfer_call *call, const struct sl_endpoint *wanted,
                             int err)
{
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(wanted, text, sizeof text);
    sl_transfer_io_answer(call, err, "cannot listen on %s: %s", text, sl_err_name(err));
}

void sl_transfer_target_listen(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    const struct sl_transfer_settings *settings = &io->engine->settings;
    int err = 0;
    uint32_t i = 0;
    if (io->index == 0) {
        sl_transfer_inbox_init(&io->inbox);
    }
    for (; err == 0 && i < settings->endpoint_count; i++) {
        err = sl_transfer_device_listen(&io->devices[i], &guest_events);
    }
    answer_listening(call, &settings->endpoints[i - 1], err);
}

void sl_transfer_target_listen_for_control(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_transfer *engine = io->engine;
    const struct sl_endpoint *wanted = &engine->settings.control;
    struct sl_endpoint bound;
    int err = sl_transfer_own_segment_info_create(engine);
    err = err != 0 ? err
                   : sl_transport_listen(io->devices[0].transport, wanted, &guest_events,
                                         &io->devices[0], &bound);
    if (err == 0) {
        const bool is_v6 = strchr(wanted->host, ':') != NULL;
        (void)snprintf(engine->name, sizeof engine->name, is_v6 ? "[%.230s]:%u" : "%.230s:%u",
                       wanted->host, bound.port);
    }
    answer_listening(call, wanted, err);
}
