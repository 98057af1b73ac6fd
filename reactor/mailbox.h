/* A mailbox passes work from threads to one receiver thread, which owns it. Every sender has its
 * own lane, an SPSC ring, so that no sender waits for a lock. Reactors have a lane for each ordered
 * pair. An application thread that calls the client opens lanes as needed, and has a mailbox for
 * the replies.
 *
 * A sender wakes the receiver only if the receiver has announced that it sleeps. Opening a lane
 * allocates; posting and draining do not. */
#ifndef SL_REACTOR_MAILBOX_H
#define SL_REACTOR_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

/* Runs on the receiver's thread with the sender's arguments. */
typedef void sl_mail_fn(void *ctx, uint64_t a, uint64_t b);

struct sl_mail {
    sl_mail_fn *run;
    void *ctx;
    uint64_t a, b;
    /* Called instead of `run` if the receiver is destroyed first: releases what ctx holds. Runs on
     * the thread that releases the mailbox last. NULL: nothing to release. */
    void (*drop)(void *ctx);
};

struct sl_mailbox;
struct sl_mailbox_lane;

/* Errors: NO_MEMORY, IO (no eventfd). Before start. */
int sl_mailbox_create(struct sl_mailbox **out);

/* Ends the receiver: undelivered mail is dropped, at the latest when the last lane closes. Senders
 * may still post to open lanes, without effect, and close them; the last one frees the memory.
 * Nulls *mailbox. */
void sl_mailbox_destroy(struct sl_mailbox **mailbox);

/* Opens a lane, owned by the caller, used by one thread at a time. Takes a lock: not on the data
 * path. Errors: NO_MEMORY, TOO_LARGE (SL_LIMIT_LANES). Any thread. */
int sl_mailbox_lane_open(struct sl_mailbox *mailbox, struct sl_mailbox_lane **out);

/* Closes a lane. The receiver still gets the posted mail, and then frees the lane. Nulls *lane. */
void sl_mailbox_lane_close(struct sl_mailbox_lane **lane);

/* Posts one mail and wakes a sleeping receiver. AGAIN if the lane is full: the sender keeps the
 * mail and retries later. The lane's thread. */
int sl_mailbox_post(struct sl_mailbox_lane *lane, struct sl_mail mail);

/* Runs up to `budget` mails, round-robin over the lanes; returns the number run. Receiver. */
uint32_t sl_mailbox_drain(struct sl_mailbox *mailbox, uint32_t budget);

/* Whether a drain would find work. Receiver. */
bool sl_mailbox_pending(const struct sl_mailbox *mailbox);

/* Whether the next drain looks into the lanes, where mail may wait. Receiver. */
bool sl_mailbox_is_rung(const struct sl_mailbox *mailbox);

/* Announces that the receiver is about to sleep. True: no mail is waiting, and a later post makes
 * the eventfd readable. False: there is mail, do not sleep. Receiver. */
bool sl_mailbox_arm(struct sl_mailbox *mailbox);

/* Ends the announcement and empties the eventfd. Receiver. */
void sl_mailbox_disarm(struct sl_mailbox *mailbox);

/* Like disarm, for a receiver that empties the eventfd itself if it is readable: saves a system
 * call for each sleep that something else ended. Receiver. */
void sl_mailbox_awake(struct sl_mailbox *mailbox);

/* Makes the eventfd readable without mail, for a flag that the receiver checks when it wakes. Any
 * thread, also a signal handler. */
void sl_mailbox_wake(struct sl_mailbox *mailbox);

/* The eventfd, readable after a wake-up; owned by the mailbox. */
int sl_mailbox_fd(const struct sl_mailbox *mailbox);

/* For receivers without a reactor: waits for mail, at most `timeout_ns` (may be SL_CLOCK_NEVER).
 * May return early, so check again. Spins for a few microseconds as long as that has recently been
 * enough (not if the sender needs this core), then sleeps. Receiver. */
void sl_mailbox_wait(struct sl_mailbox *mailbox, uint64_t timeout_ns);

#endif
