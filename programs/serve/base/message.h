/* The notices named "serve/2" that gateways and workers send each other, as structs. Pure
 * functions; any thread; no allocation.
 *
 * A worker sends JOIN to each gateway; the gateway finds the worker by the sender of the notice.
 * Both then open the other's segment. INFER asks; DONE is its answer, also after CANCEL. Inputs
 * ride in INFER, and outputs in DONE, behind the message, if they fit. Else they are WRITTEN
 * before, inputs into the worker's arena, outputs into the gateway's memory; the gateway chooses
 * both ranges. Notices of one sender arrive in order.
 *
 * One struct serves all kinds: a kind uses the members named beside it. Decoding checks every
 * length, number and text, and that nothing is left over. */
#ifndef SL_SERVE_MESSAGE_H
#define SL_SERVE_MESSAGE_H

#include "core/reason.h"
#include "programs/serve/base/request.h"

#define SL_SERVE_NOTICE        "serve/2" /* their name; version 1 answered with notices */
#define SL_SERVE_MESSAGE_BYTES SL_TRANSFER_NOTICE_BYTES
#define SL_SERVE_LABEL_BYTES   64 /* with NUL */
#define SL_SERVE_LOADS_MAX     12 /* models of one LOAD; further ones are in the next */

/* Numbers of the wire: never renumber, only append. */
enum sl_serve_message_kind {
    SL_SERVE_MESSAGE_JOIN = 1,
    /* Worker to gateway: send no more requests. The gateway's answer, LEAVE: none follows. Then the
     * worker finishes what it has, and ends. */
    SL_SERVE_MESSAGE_LEAVE = 2,
    SL_SERVE_MESSAGE_LOAD = 3,   /* worker to gateway, after a change, at most every 50 ms */
    SL_SERVE_MESSAGE_INFER = 4,  /* gateway to worker */
    SL_SERVE_MESSAGE_CANCEL = 5, /* gateway to worker: the answer is not needed; no error if late */
    SL_SERVE_MESSAGE_DONE = 6,   /* worker to gateway: the answer to INFER */
    SL_SERVE_MESSAGE_KINDS       /* one more than the last */
};

/* State of a model on a worker. */
struct sl_serve_load {
    char model[SL_OBJECTS_NAME_BYTES];
    uint64_t version;
    uint64_t bytes;          /* of the images */
    uint64_t resident_bytes; /* in the pool of the worker's host; <= bytes */
    /* To transfer x missing bytes takes alpha_ns + x * beta_ps / 1000 ns. Both 0: unknown. */
    uint64_t alpha_ns, beta_ps;
    /* To compute r rows takes about batch_ns + r * row_ns. */
    uint64_t batch_ns, row_ns;
    /* Time from the open to the end of one row's run, without its compute time. */
    uint64_t exposed_ns;
};

struct sl_serve_message {
    uint32_t kind; /* enum sl_serve_message_kind */
    /* INFER, CANCEL: the gateway's number of the request, > 0, ascending. LOAD: of the last INFER
     * that came from this gateway; 0: none. */
    uint64_t request;
    /* JOIN, LEAVE, INFER, CANCEL: of the sender's engine. Another process may have had its name,
     * and memory at the same addresses; and a gateway may have several names. */
    uint64_t incarnation;

    struct {
        char host[SL_SERVE_LABEL_BYTES]; /* workers of one label share a pool */
        /* The worker's memory for inputs. The sum does not overflow. */
        uint64_t arena_address, arena_bytes;
        uint32_t batch_max; /* rows that the worker computes together, > 0 */
    } join;

    /* LOAD */
    uint32_t queue_count; /* requests that the worker has: waiting, loading, computing */
    uint64_t queue_ns;    /* expected time until all of them are answered */
    char current[SL_OBJECTS_NAME_BYTES]; /* the model that computes, or was the last; "": none */
    uint32_t load_count;                 /* models about which something has changed */
    struct sl_serve_load loads[SL_SERVE_LOADS_MAX];

    /* INFER */
    uint32_t request_kind; /* enum sl_serve_kind */
    char model[SL_OBJECTS_NAME_BYTES];
    uint64_t version;     /* 0: the newest. DONE: that computed; 0: none */
    uint64_t deadline_us; /* from now */
    /* Inputs at [input_address, + input_bytes) of the worker, room for outputs at the gateway. The
     * sums do not overflow. */
    uint64_t input_address, input_bytes;
    uint64_t output_address, output_room;

    /* INFER: inputs; DONE: outputs. Offsets are multiples of 64 in input_bytes or output_bytes;
     * bytes are those of shape and type; names are not empty. */
    uint32_t tensor_count;
    struct sl_serve_tensor tensors[SL_SERVE_TENSORS_MAX];

    /* DONE */
    int err;                        /* 0, or a negative sl_err, as in struct sl_serve_request */
    char text[SL_SERVE_TEXT_BYTES]; /* why; "" if err is 0 */
    /* Bytes that were written to the room. TOO_LARGE: that the outputs need, if above output_room;
     * 0: the model is too large. */
    uint64_t output_bytes;
    struct {
        uint32_t queue_us, load_us, compute_us;
    };

    /* Behind the message. INFER: input_bytes of inputs; DONE: output_bytes of outputs. NULL: they
     * were WRITTEN, or there are none. */
    const uint8_t *tail;
};

/* Writes the message to `to`, which has room for SL_SERVE_MESSAGE_BYTES, and returns its length:
 * every message fits without its tail. Errors: INVALID, if decoding would refuse a member, with a
 * reason that names kind and member; else TOO_LARGE: the tail does not fit. */
int sl_serve_message_encode(const struct sl_serve_message *message, void *to,
                            struct sl_reason *reason);

/* Fills in *out; members that the kind has not are zero, and the tail is a part of `bytes`. Errors:
 * PROTOCOL, with a reason that names kind and member. The receiver checks that ranges lie in its
 * memory. */
int sl_serve_message_decode(const void *bytes, uint32_t byte_count, struct sl_serve_message *out,
                            struct sl_reason *reason);

/* "INFER", for log lines; "unknown" for other numbers. */
const char *sl_serve_message_name(uint32_t kind);

#endif
