/* A pending is a request at a worker, from INFER until it is answered: its item is in the queue, in
 * the batch that computes, or in neither while outputs are WRITTEN. They lie in memory of the
 * worker until then. Owner: the worker's reactor. Allocates until enough requests have been pending
 * at one time. */
#ifndef SL_SERVE_PENDING_H
#define SL_SERVE_PENDING_H

#include "programs/serve/base/range.h"
#include "programs/serve/worker/model_table.h"
#include "programs/serve/worker/peer.h"

#define SL_SERVE_PENDINGS_MAX  4096
#define SL_SERVE_PENDING_BYTES SL_SERVE_BODY_BYTES_MAX /* outputs of all pendings */

/* With CANCELLED: the worker does not know the gateway, and will join it. */
#define SL_SERVE_GATEWAY_GONE  "the worker has no connection to this gateway"

struct sl_serve_pending {
    struct sl_serve_item item;
    struct sl_serve_model_entry *entry;
    struct sl_serve_peer *peer; /* NULL: the gateway has gone */
    struct sl_transfer_asked *asked;
    uint64_t number; /* the gateway's */
    uint64_t output_address, output_room;
    const struct sl_serve_version *checked; /* by which the inputs were checked */
    uint64_t load_ns, compute_ns;           /* of the time since it arrived */
    struct sl_serve_pendings *pendings;
    struct sl_serve_write write;
    struct sl_serve_range range; /* of its output */
    uint64_t output_bytes;
    uint8_t text[SL_SERVE_MESSAGE_BYTES]; /* inputs that came with INFER; then DONE */
    uint32_t text_bytes;                  /* of DONE */
};

struct sl_serve_pendings {
    struct sl_reactor *reactor;
    uint8_t *output;
    struct sl_serve_ranges ranges; /* of it */
    struct sl_list unused;
    uint32_t count;           /* pending now */
    uint32_t made;            /* with those that are unused */
    void (*ended)(void *ctx); /* one more is unused */
    void *ctx;
};

void sl_serve_pendings_init(struct sl_serve_pendings *pendings, struct sl_reactor *reactor,
                            uint8_t *output, void (*ended)(void *ctx), void *ctx);
void sl_serve_pendings_fini(struct sl_serve_pendings *pendings);

/* A new one, zero; NULL: no memory, or too many. */
struct sl_serve_pending *sl_serve_pendings_take(struct sl_serve_pendings *pendings);

/* Finds room for the output. False: there is none at present. */
bool sl_serve_pending_place(struct sl_serve_pending *pending, uint64_t bytes);
void sl_serve_pending_unplace(struct sl_serve_pending *pending);

/* Answers with DONE and the outputs, if err is 0, or WRITEs them before; then the pending is
 * unused. version: that computed. bytes: of the outputs; with TOO_LARGE: that they need. The
 * pending is in no list. */
void sl_serve_pending_answer(struct sl_serve_pending *pending, int err, uint64_t version,
                             uint64_t bytes, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Answers what is no pending, with an error. */
void sl_serve_pending_turn_away(struct sl_transfer_asked *asked, int err, const char *text);

/* Takes it out of its queue, and answers it with an error. */
void sl_serve_pending_refuse(struct sl_serve_pending *pending, int err, const char *text);

/* Of a queue: the requests of a model; those whose time is over. */
void sl_serve_pendings_refuse_all(struct sl_list *queue, const struct sl_serve_model_entry *entry,
                                  int err, const char *text);
void sl_serve_pendings_expire(struct sl_list *queue, uint64_t now_ns);

/* In and out of a queue. */
void sl_serve_pending_enqueue(struct sl_serve_pending *pending, struct sl_list *queue);
void sl_serve_pending_dequeue(struct sl_serve_pending *pending);

static inline struct sl_serve_pending *sl_serve_pending_of(struct sl_serve_item *item)
{
    return SL_CONTAINER_OF(item, struct sl_serve_pending, item);
}

#endif
