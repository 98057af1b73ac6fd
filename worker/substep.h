/* A step's share on one worker reactor: its requests, their deadline, and what is still out.
 *
 * Two things end separately. The part is *complete* when nothing writes to or reads from the
 * caller's memory any more and every request is answered or given up: then the caller may have his
 * result. It is *returned* when, besides, the transport holds none of the step's own memory: then
 * the step may be used again. Each is told to the step's port by one mail, or both by one. */
#ifndef SL_WORKER_SUBSTEP_H
#define SL_WORKER_SUBSTEP_H

#include "reactor/mailbox.h"
#include "reactor/timer.h"
#include "worker/encode.h"

#define SL_SUBSTEP_ERROR_BYTES 768

struct sl_client_io;

struct sl_substep {
    /* Set by the step's thread before the part is posted. */
    struct sl_client_io *io;
    struct sl_encode_list requests;
    uint64_t deadline_ns;
    uint32_t timeout_ms;
    struct sl_mailbox_lane *answers; /* to the step's port; NULL: its thread is the reactor's */
    sl_mail_fn *on_complete;         /* ctx: the part; a: 1 when it is returned too */
    sl_mail_fn *on_return;           /* ctx: the part */
    void *step;

    /* The reactor's, until it is complete. */
    struct sl_timer timer;
    uint32_t left; /* requests not over, and one more while a loop over them is on */
    bool completed;
    int err;
    uint32_t staleness;
    char error[SL_SUBSTEP_ERROR_BYTES];

    uint32_t unsent; /* the reactor's until returned: pieces of memory in the transport's hands */
};

/* Mail on the hub's reactor: ctx is the part. */
void sl_substep_start(void *ctx, uint64_t a, uint64_t b);

/* The request's reply has been scattered; `floor` is the clock that came with it. May complete the
 * part: the request is not to be touched afterwards. */
void sl_substep_replied(struct sl_request *request, uint32_t floor);

/* The request is given up; its part fails with "<link>: text" if it has not failed yet, and what
 * else of the part can be given up is. With DEADLINE the deadline is named before the text, which
 * says what kept the request. The same warning. */
void sl_substep_failed(struct sl_request *request, int err, const char *text);

/* The transport no longer touches the caller's memory for this request. The same warning. */
void sl_substep_settle(struct sl_request *request);

/* For the outbox: a piece of the request's memory was sent. ctx: the request. */
void sl_substep_rest_sent(void *ctx);

#endif
