/* A flight is one way of a request to a worker and back. It lives until the worker has answered or
 * is lost, nothing is being sent, and the front end has released the outputs: only then its ranges
 * of memory are used again. Owner: the gateway's reactor. */
#ifndef SL_SERVE_FLIGHT_H
#define SL_SERVE_FLIGHT_H

#include "programs/serve/gateway/remote.h"

struct sl_serve_flight {
    struct sl_list_link link; /* of the free ones */
    struct sl_serve_use use;  /* at its worker until that has answered, or is lost */
    struct sl_serve_flights *flights;
    struct sl_serve_remote *remote;
    struct sl_serve_request *request; /* NULL: nobody waits for it any more */
    struct sl_transfer_batch *batch;
    struct sl_transfer_sending *asking; /* INFER; NULL: not sent yet, or answered */
    uint64_t id;                        /* in INFER; 0: not sent yet */
    uint64_t sent_ns;
    struct sl_serve_range input, output; /* of remote->inputs, remote->outputs */
    bool is_writing;                     /* reads the inputs */
    bool is_read;                        /* the front end reads the outputs */
    bool is_repeated;     /* the request waits for a worker again once nothing is written */
    uint8_t *left_memory; /* inputs of a request that ended while they were written */
};

/* Of one gateway. */
struct sl_serve_flights {
    struct sl_transfer *transfer;
    uint64_t last_id;
    struct sl_list free;
    void (*free_memory)(void *ctx, uint8_t *memory); /* of inputs; ctx: memory_ctx */
    void *memory_ctx;
    /* The worker has answered: err is 0, and its outputs lie in the flight's range. Or it has no
     * answer, and will not use the flight's ranges any more, unless err is DEADLINE. */
    void (*returned)(void *ctx, struct sl_serve_flight *flight, const struct sl_serve_message *done,
                     int err, const char *reason);
    void *ctx;
};

void sl_serve_flights_fini(struct sl_serve_flights *flights);

/* Takes ranges of both memories for a request. NULL: no memory, or no such ranges are free. */
struct sl_serve_flight *sl_serve_flight_create(struct sl_serve_flights *flights,
                                               struct sl_serve_remote *remote,
                                               struct sl_serve_request *request,
                                               uint64_t output_room);

/* Sends INFER with the inputs, or after them; then `returned` runs. Its use has begun. Errors:
 * AGAIN; INVALID: of sl_serve_message_encode. */
int sl_serve_flight_send(struct sl_serve_flight *flight, uint64_t now_ns, struct sl_reason *reason);

/* The worker has answered, has never received it, or is lost: its use ends, and so does what is
 * being sent. */
void sl_serve_flight_leave(struct sl_serve_flight *flight);

/* The request, if it has a flight, ends or waits again, or its outputs were read. A worker that
 * still has it gets CANCEL. */
void sl_serve_flight_detach(struct sl_serve_request *request);

/* After a change of what it waits for: ends it, if that was the last. */
void sl_serve_flight_look(struct sl_serve_flight *flight);

#endif
