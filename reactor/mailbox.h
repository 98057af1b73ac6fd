/* A mailbox: how one thread hands work to another. The receiver owns the mailbox; every sender has
 * a lane of its own into it, one SPSC ring, so that nobody ever waits for a lock. Reactors have a
 * lane for each ordered pair; an application thread that calls the client opens lanes as it needs
 * them, and has a mailbox of its own for the answers.
 *
 * A sender wakes the receiver only when the receiver has said that it sleeps. Lanes are allocated
 * when opened; posting and draining never allocate. */
#ifndef SL_REACTOR_MAILBOX_H
#define SL_REACTOR_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

/* Runs on the receiver's thread, with what the sender named. */
typedef void sl_mail_fn(void *ctx, uint64_t a, uint64_t b);

struct sl_mail {
    sl_mail_fn *run;
    void *ctx;
    uint64_t a, b;
    /* Instead of `run`, for a mail that its receiver did not live to see: gives up what ctx holds.
     * On whatever thread lets go of the mailbox last. NULL: nothing to give up. */
    void (*drop)(void *ctx);
};

struct sl_mailbox;
struct sl_mailbox_lane;

/* Errors: NO_MEMORY, IO (no eventfd). Before start. */
int sl_mailbox_create(struct sl_mailbox **out);

/* The receiver is gone: mail not yet drained is dropped, at the latest with the last lane. Lanes
 * that are still open remain valid for their senders, who may post (to nobody) and close; the
 * memory goes with the last of them. Nulls *mailbox. */
void sl_mailbox_destroy(struct sl_mailbox **mailbox);

/* A new lane, owned by the caller, used by one thread at a time. Takes a lock: not on the data
 * path. Errors: NO_MEMORY, TOO_LARGE (SL_LIMIT_LANES). Any thread. */
int sl_mailbox_lane_open(struct sl_mailbox *mailbox, struct sl_mailbox_lane **out);

/* What was posted is still delivered; the receiver frees the lane afterwards. Nulls *lane. */
void sl_mailbox_lane_close(struct sl_mailbox_lane **lane);

/* Posts one mail; wakes the receiver if it sleeps. AGAIN when the lane is full: the sender keeps
 * the mail and tries again later. The lane's thread. */
int sl_mailbox_post(struct sl_mailbox_lane *lane, struct sl_mail mail);

/* Runs up to `budget` mails, round the lanes; returns how many ran. Receiver. */
uint32_t sl_mailbox_drain(struct sl_mailbox *mailbox, uint32_t budget);

/* True when a drain would find something to do. Receiver. */
bool sl_mailbox_pending(const struct sl_mailbox *mailbox);

/* Says that the receiver is about to sleep. True: nothing is waiting, a later post will make the
 * eventfd readable. False: there is mail, do not sleep. Receiver. */
bool sl_mailbox_arm(struct sl_mailbox *mailbox);

/* The receiver is awake again; empties the eventfd. Receiver. */
void sl_mailbox_disarm(struct sl_mailbox *mailbox);

/* The same for a receiver that empties the eventfd elsewhere, when it turns out to be readable: one
 * system call less for each sleep that something else ended. Receiver. */
void sl_mailbox_awake(struct sl_mailbox *mailbox);

/* Makes the eventfd readable although nothing was posted: for a flag that the receiver looks at
 * when it wakes. Any thread, also a signal handler. */
void sl_mailbox_wake(struct sl_mailbox *mailbox);

/* Readable when the receiver was woken; the mailbox's own. */
int sl_mailbox_fd(const struct sl_mailbox *mailbox);

/* For receivers without a reactor: returns when there is mail or `timeout_ns` has passed (may be
 * SL_CLOCK_NEVER); it may also return early, so look again. Spins for a few microseconds while that
 * has lately been enough (not where the sender needs this very core), then sleeps. Receiver. */
void sl_mailbox_wait(struct sl_mailbox *mailbox, uint64_t timeout_ns);

#endif
