/* A substep is a step's part on one reactor of the client: requests, deadline, outstanding work.
 *
 * It ends twice. It is *complete* when every request is answered or abandoned and nothing accesses
 * the caller's memory any more: the caller may have the result. It is *returned* when the transport
 * also holds none of the step's own memory: the step may be reused. One mail each, or one for both,
 * notifies the step's thread. */
#ifndef SL_WORKER_CLIENT_SUBSTEP_H
#define SL_WORKER_CLIENT_SUBSTEP_H

#include "reactor/mailbox.h"
#include "reactor/timer.h"
#include "worker/client/encode.h"

#define SL_SUBSTEP_ERROR_BYTES 768

struct sl_client_io;

struct sl_substep {
    /* Set by the step's thread before posting. */
    struct sl_client_io *io;
    struct sl_encode_list requests;
    uint64_t deadline_ns;
    uint32_t timeout_ms;
    struct sl_mailbox_lane *answers; /* to the step's thread; NULL: the same thread */
    sl_mail_fn *on_complete;         /* ctx: the substep; a: 1 if also returned */
    sl_mail_fn *on_return;           /* ctx: the substep */
    void *step;

    /* The reactor's, until complete. */
    struct sl_timer timer;
    uint32_t left; /* requests not over, plus 1 during a loop over them */
    bool completed;
    int err;
    uint32_t staleness;
    uint64_t ended_ns; /* when it was complete */
    char error[SL_SUBSTEP_ERROR_BYTES];

    uint32_t unsent; /* memory pieces held by the transport; the reactor's until returned */
};

/* Mail on the reactor; ctx: the substep. */
void sl_substep_start(void *ctx, uint64_t a, uint64_t b);

/* The same without a mail. Returns false, and sends nothing, if a connection cannot take its
 * request: a start would fail. */
bool sl_substep_try_start(struct sl_substep *substep);

/* The reply was scattered; `floor`: min_clock of the reply. May complete the substep: do not touch
 * the request afterwards. */
void sl_substep_replied(struct sl_request *request, uint32_t floor);

/* Abandons the request. Its substep fails with "<shard connection>: text", unless it has failed
 * before, and its other requests are abandoned as far as possible. With DEADLINE the text follows
 * the deadline and names the cause. Do not touch the request afterwards. */
void sl_substep_failed(struct sl_request *request, int err, const char *text);

/* Marks the request as over if nothing uses it any more. Do not touch it afterwards. */
void sl_substep_settle(struct sl_request *request);

/* Outbox callback: a piece of the request's memory was sent. ctx: the request. */
void sl_substep_tail_sent(void *ctx);

#endif
