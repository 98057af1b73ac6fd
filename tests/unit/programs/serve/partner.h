/* The gateway of a worker, or the worker of a gateway, as a test plays it: what arrives at its
 * engine waits until the test takes it. Inputs and outputs that ride in a message are put where a
 * WRITE would have put them. */
#ifndef SL_TESTS_UNIT_PROGRAMS_SERVE_PARTNER_H
#define SL_TESTS_UNIT_PROGRAMS_SERVE_PARTNER_H

#include <pthread.h>

#include "net/transfer/async.h"
#include "programs/serve/base/message.h"
#include "tests/support/reactor_thread.h"

#define PARTNER_TIMEOUT_MS 60000

struct partner {
    struct sl_transfer *engine;
    struct reactor_thread thread; /* the engine's */
    struct sl_transfer_async *async;
    pthread_mutex_t lock;
    struct sl_list arrived; /* under the lock */
    struct sl_list asked;   /* INFERs without answer */
    struct sl_list asking;  /* the same of its own */
    struct sl_completion ended;
};

/* On an engine that is the partner's from then on. */
void partner_init(struct partner *partner, struct sl_transfer *engine);
/* Forgets what it has asked; then segments may be closed. */
void partner_stop(struct partner *partner);
/* Destroys the engine. Requests to it that have no answer yet get none. */
void partner_fini(struct partner *partner);

/* The next message: a notice, an INFER, or the answer to an INFER, in which `request` is set. Its
 * tail, if it has one, has no bytes. sender: NULL: not wanted. False: none came. */
bool partner_take(struct partner *partner, uint32_t timeout_ms, struct sl_serve_message *out,
                  char sender[SL_TRANSFER_NAME_BYTES]);

/* Sends a notice, or INFER, with the incarnation of the engine, and with the tail, if there is one.
 * Waits until a notice has arrived. */
void partner_send(struct partner *partner, struct sl_transfer_segment *segment,
                  const struct sl_serve_message *message);

/* Answers the INFER with the number of done->request. False: there is none. */
bool partner_answer(struct partner *partner, const struct sl_serve_message *done);

#endif
