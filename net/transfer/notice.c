#include "net/transfer/notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/transfer/engine.h"
#include "net/transfer/error.h"

static bool is_name(const char *name)
{
    size_t length = 0;
    while (name != NULL && name[length] >= ' ' && name[length] <= '~') {
        length++;
    }
    return length > 0 && name[length] == '\0' && length < SL_TRANSFER_NOTICE_NAME_BYTES;
}

int sl_transfer_notice_create(struct sl_transfer_segment *segment,
                              const struct sl_transfer_notice *notice, uint64_t deadline_ns,
                              struct sl_transfer_sending **out)
{
    if (!is_name(notice->name)) {
        return sl_transfer_fail(SL_ERR_INVALID,
                                "the name of a notice has 1 to %d printable ASCII characters",
                                SL_TRANSFER_NOTICE_NAME_BYTES - 1);
    }
    if (notice->bytes > SL_TRANSFER_NOTICE_BYTES) {
        return sl_transfer_fail(SL_ERR_TOO_LARGE, "a notice of %u bytes: at most %d", notice->bytes,
                                SL_TRANSFER_NOTICE_BYTES);
    }
    struct sl_transfer_sending *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_transfer_fail(SL_ERR_NO_MEMORY, "no memory for a notice");
    }
    made->segment = segment;
    made->deadline_ns = deadline_ns;
    made->message.kind = SL_MESSAGE_NOTICE;
    struct sl_message_notice *to = &made->message.notice;
    (void)snprintf(to->sender, sizeof to->sender, "%s", segment->engine->name);
    (void)snprintf(to->name, sizeof to->name, "%s", notice->name);
    to->byte_count = notice->bytes;
    if (notice->bytes > 0) {
        memcpy(to->bytes, notice->text, notice->bytes);
    }
    *out = made;
    return 0;
}

static void notice_deliver(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_transfer_sending *sending = ctx;
    sending->done(sending);
}

static void notice_answered(void *ctx, const struct sl_message *message, int err,
                            const char *reason)
{
    struct sl_transfer_sending *sending = ctx;
    struct sl_reactor *home = sl_reactor_running();
    const bool is_closed = err == SL_ERR_CANCELLED && sending->segment->reason[0] != '\0';
    sl_list_remove(&sending->asking);
    if (message != NULL) {
        sending->message.notice = message->notice;
    }
    sending->call.err = is_closed ? SL_ERR_CLOSED : err;
    (void)snprintf(sending->call.text, sizeof sending->call.text, "%s",
                   is_closed ? sending->segment->reason : reason);
    if (err == 0 && home == sending->call.io->reactor && sending->call.ended != NULL) {
        sending->done(sending); /* the callbacks of async.h run at the end of the turn */
    } else { /* an error perhaps because the segment ends: its watch is told first */
        sl_reactor_post(home, sending->call.io->index,
                        (struct sl_mail){.run = notice_deliver, .ctx = sending});
    }
}

static void send_here(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_transfer_sending *sending = ctx;
    struct sl_transfer_segment *segment = sending->segment;
    const uint64_t now_ns = sl_reactor_now_ns(segment->home->reactor);
    if (segment->err != 0 || segment->session == NULL || sending->is_cancelled) {
        notice_answered(sending, NULL, sending->is_cancelled ? SL_ERR_CANCELLED : SL_ERR_CLOSED,
                        segment->reason);
        return;
    }
    struct sl_message_notice *notice = &sending->message.notice;
    notice->sequence = ++segment->notice_sequence;
    if (notice->asks) {
        sl_list_append(&segment->asking, &sending->asking);
    }
    const struct sl_list_link *first = sl_list_first(&segment->asking);
    notice->answered =
        first == NULL
            ? notice->sequence
            : SL_CONTAINER_OF(first, struct sl_transfer_sending, asking)->message.notice.sequence;
    sl_session_request(segment->session, &sending->message,
                       sending->deadline_ns > now_ns ? sending->deadline_ns - now_ns : 1,
                       notice_answered, sending);
}

void sl_transfer_notice_cancel(struct sl_transfer_sending *sending)
{
    sending->is_cancelled = true;
    if (sending->segment->session != NULL) {
        sl_session_cancel(sending->segment->session, sending);
    }
}

/* The mail is delivered before the answer of this reactor's route to a close. */
void sl_transfer_notice_post(struct sl_transfer_sending *sending)
{
    const struct sl_transfer_io *home = sending->segment->home;
    if (sending->call.io == home) {
        send_here(sending, 0, 0);
    } else {
        sl_reactor_post(sending->call.io->reactor, home->index,
                        (struct sl_mail){.run = send_here, .ctx = sending});
    }
}

/* Without a batch */

static void sent(struct sl_transfer_sending *sending)
{
    sl_transfer_io_end(&sending->call);
}

static void post_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    sl_transfer_notice_post(SL_CONTAINER_OF(call, struct sl_transfer_sending, call));
}

int sl_transfer_notice_prepare(struct sl_transfer_segment *segment,
                               const struct sl_transfer_notice *notice, uint32_t timeout_ms,
                               struct sl_transfer_sending **out)
{
    const uint64_t now_ns = sl_clock_now_ns(sl_reactor_clock(segment->home->reactor));
    int err = sl_transfer_settings_check_timeout(timeout_ms);
    err = err != 0 ? err
                   : sl_transfer_notice_create(segment, notice,
                                               now_ns + timeout_ms * SL_CLOCK_NS_PER_MS, out);
    if (err == 0) {
        (*out)->call.run = post_here;
        (*out)->call.io = segment->home;
        (*out)->done = sent;
    }
    return err;
}

int sl_transfer_notice_send(struct sl_transfer_segment *segment,
                            const struct sl_transfer_notice *notice, uint32_t timeout_ms)
{
    sl_assert(segment != NULL);
    sl_assert(notice != NULL);
    struct sl_transfer_sending *sending = NULL;
    int err = sl_transfer_notice_prepare(segment, notice, timeout_ms, &sending);
    err = err != 0 ? err : sl_transfer_io_call(segment->home, &sending->call);
    free(sending);
    return err != 0 ? err : sl_transfer_succeed();
}
