/* Sending of notices over the control session of a segment. Each notice has a sequence, and is sent
 * again when the session reconnects: the peer's inbox takes it once. */
#ifndef SL_TRANSFER_NOTICE_H
#define SL_TRANSFER_NOTICE_H

#include "transfer/segment.h"

/* A notice on its way. On the heap: it may outlive what waits for it. */
struct sl_transfer_sending {
    struct sl_transfer_io *from;         /* the reactor that sends it */
    struct sl_transfer_segment *segment; /* may be closed meanwhile */
    uint64_t deadline_ns;
    /* On `from`, once: the peer has queued it, or err with the reason. Frees it. */
    void (*done)(struct sl_transfer_sending *sending);
    void *ctx;
    int err;
    char reason[SL_TRANSFER_REASON_BYTES];
    struct sl_message message;
};

/* Errors, with the reason in sl_transfer_last_error: INVALID (the name), TOO_LARGE, NO_MEMORY. Any
 * thread. */
int sl_transfer_notice_create(struct sl_transfer_segment *segment,
                              const struct sl_transfer_notice *notice, uint64_t deadline_ns,
                              struct sl_transfer_sending **out);

/* On the reactor `from`, which has a part of a batch to the segment, or is its home. */
void sl_transfer_notice_post(struct sl_transfer_sending *sending);

#endif
