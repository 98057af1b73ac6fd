/* Sending of notices over the control session of a segment. Each notice has a sequence, and is sent
 * again when the session reconnects: the peer's inbox takes it once. */
#ifndef SL_NET_TRANSFER_NOTICE_H
#define SL_NET_TRANSFER_NOTICE_H

#include "net/transfer/segment.h"

/* A notice on its way. On the heap: it may outlive the batch that waits for it. */
struct sl_transfer_sending {
    /* Of a batch: no call, only the reactor that sends it (io) and the result. */
    struct sl_transfer_call call;
    struct sl_transfer_segment *segment; /* may be closed meanwhile */
    uint64_t deadline_ns;
    /* On call.io, once: the peer has queued it, or there is an error. */
    void (*done)(struct sl_transfer_sending *sending);
    void *ctx;
    /* async.c, of one that asks. */
    struct sl_list_link asking; /* of the segment's, at its home */
    struct sl_transfer_call forgetting;
    uint32_t calls_left; /* of both */
    bool is_cancelled;   /* at home */
    void (*answered)(void *ctx, int err, const char *reason, const void *bytes, uint32_t count);
    uint8_t *attached;         /* async.c: to the notice; owned */
    struct sl_message message; /* once there is an answer to one that asks: its bytes */
};

/* Errors, with the reason in sl_transfer_last_error: INVALID (the name), TOO_LARGE, NO_MEMORY. Any
 * thread. The caller frees *out after `done`. */
int sl_transfer_notice_create(struct sl_transfer_segment *segment,
                              const struct sl_transfer_notice *notice, uint64_t deadline_ns,
                              struct sl_transfer_sending **out);

/* The same for a notice without a batch: (*out)->call, made on the segment's home, sends it. Also
 * INVALID: the timeout. */
int sl_transfer_notice_prepare(struct sl_transfer_segment *segment,
                               const struct sl_transfer_notice *notice, uint32_t timeout_ms,
                               struct sl_transfer_sending **out);

/* On the segment's home: ends the notice (CANCELLED), if it is not over. */
void sl_transfer_notice_cancel(struct sl_transfer_sending *sending);

/* On the reactor call.io, which has a part of a batch to the segment, or is its home. */
void sl_transfer_notice_post(struct sl_transfer_sending *sending);

#endif
