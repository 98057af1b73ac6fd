/* A request for an inference, from its arrival at the gateway to its answer. The front end (http)
 * fills its first part and owns it; the gateway fills the second part and calls `done` once.
 * Owner: the gateway's reactor. */
#ifndef SL_SERVE_REQUEST_H
#define SL_SERVE_REQUEST_H

#include <starling_objects.h>

#include "core/list.h"

#define SL_SERVE_TENSORS_MAX    16 /* inputs or outputs of a request */
#define SL_SERVE_TENSOR_NAME    64 /* bytes, with NUL */
#define SL_SERVE_BODY_BYTES_MAX (64ULL << 20)
#define SL_SERVE_TEXT_BYTES     512 /* with NUL */

struct sl_serve_tensor {
    char name[SL_SERVE_TENSOR_NAME];
    uint32_t type; /* enum sl_object_type */
    uint32_t rank;
    uint64_t shape[SL_OBJECTS_RANK_MAX];
    uint64_t offset; /* in the request's inputs or outputs; a multiple of 64 */
    uint64_t bytes;
};

enum sl_serve_kind {
    SL_SERVE_INFER = 0,
    SL_SERVE_DESCRIBE = 1, /* the output is one tensor of u8: JSON, the model's metadata as the Open
                              Inference Protocol has it */
    SL_SERVE_LOAD = 2      /* succeeds once all bytes of the model are in the pool of a host */
};

enum sl_serve_result {
    SL_SERVE_ANSWERED,
    SL_SERVE_REFUSED,   /* AGAIN: at once or later */
    SL_SERVE_LATE,      /* DEADLINE */
    SL_SERVE_INVALID,   /* the caller has to change the request */
    SL_SERVE_FAILED,    /* other errors */
    SL_SERVE_CANCELLED, /* by the front end */
    SL_SERVE_RESULTS
};

struct sl_serve_request {
    /* Of the front end; not changed until `done`. */
    enum sl_serve_kind kind;
    char model[SL_OBJECTS_NAME_BYTES];
    uint64_t version; /* 0: the newest */
    uint64_t arrived_ns, deadline_ns;
    struct sl_serve_tensor inputs[SL_SERVE_TENSORS_MAX];
    uint32_t input_count;
    uint8_t *input; /* memory of sl_serve_gateway_memory; the gateway's from `submit` on */
    uint64_t input_bytes;
    void (*done)(struct sl_serve_request *request);
    void *ctx;

    /* Of the gateway; valid from `done` on. err: 0; INVALID (the text names the tensor), NOT_FOUND
     * (model or version; the text lists the versions), DEADLINE (the text says where the time
     * went), AGAIN (cannot be answered in time: retry after retry_ms), CORRUPT, TOO_LARGE,
     * CANCELLED. */
    struct {
        int err;
        char text[SL_SERVE_TEXT_BYTES];
        uint32_t retry_ms;
        uint64_t version; /* that computed */
        struct sl_serve_tensor outputs[SL_SERVE_TENSORS_MAX];
        uint32_t output_count;
        const uint8_t *output; /* valid until the gateway's release of the request */
        uint32_t queue_us, load_us, compute_us;
    } answer;

    /* The gateway's own. */
    struct sl_list_link link, due_link;
    uint64_t due_ns;  /* when it has to be answered, also by DEADLINE */
    uint64_t cost_ns; /* expected, while it waits */
    uint64_t rows;
    uint64_t output_room;           /* bytes of the outputs, as a worker has said; 0: unknown */
    uint32_t tries;                 /* times that it was sent to a worker */
    bool is_waiting;                /* for a worker */
    struct sl_serve_model *state;   /* of the model; NULL: the model is not known yet */
    struct sl_serve_flight *flight; /* to a worker and back; NULL: not sent */
};

/* Name of a type in the Open Inference Protocol, such as "FP32"; NULL: it has none. */
const char *sl_serve_request_datatype(uint32_t type);

enum sl_serve_result sl_serve_request_result(int err);

/* False: no type has this name. */
bool sl_serve_request_type(const char *datatype, uint32_t *type);

/* Whether messages and JSON can have this name of a tensor: 1 to SL_SERVE_TENSOR_NAME - 1 bytes of
 * UTF-8 without control characters. */
bool sl_serve_request_name_is_valid(const char *name);

#endif
