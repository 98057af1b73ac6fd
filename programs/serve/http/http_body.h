/* Bodies of the Open Inference Protocol, version 2, with its extension for binary tensors: from a
 * body to a request, and from an answer to a body. Pure. Any thread.
 *
 * A body begins with JSON. After it follow the bytes of its binary tensors, in the order of the
 * inputs. The elements of JSON tensors do not become values of the JSON library: they are read from
 * the text into the request's memory. So a body needs no memory beside its text and its tensors.
 * FP16 and BF16 are accepted, and answered, in binary only, since JSON has no such numbers. */
#ifndef SL_SERVE_HTTP_BODY_H
#define SL_SERVE_HTTP_BODY_H

#include "core/bytes.h"
#include "core/reason.h"
#include "programs/serve/base/request.h"

#define SL_HTTP_BODY_ID_BYTES     256         /* with NUL */
#define SL_HTTP_BODY_JSON_BYTES   (64U << 10) /* of the JSON without the elements of `data` */
#define SL_HTTP_BODY_REGION_BYTES 128         /* of the name of a region, with NUL */
#define SL_HTTP_BODY_KEY_BYTES    256         /* of the name of a file, with NUL */

struct json_t; /* of jansson */

/* A region of shared memory, as a caller registers it. */
struct sl_http_body_region {
    char key[SL_HTTP_BODY_KEY_BYTES]; /* as given; not empty */
    uint64_t offset, bytes;           /* each at most INT64_MAX; bytes > 0 */
};

/* Where a tensor lies in a region. */
struct sl_http_body_range {
    char region[SL_HTTP_BODY_REGION_BYTES]; /* "": in the body */
    uint64_t offset, bytes;                 /* each at most INT64_MAX */
};

struct sl_http_body_output {
    char name[SL_SERVE_TENSOR_NAME];
    bool binary;
    struct sl_http_body_range range; /* where the caller wants it */
};

/* Parts of a body beside the tensors of its request. */
struct sl_http_body {
    char id[SL_HTTP_BODY_ID_BYTES];                         /* "": none */
    struct sl_bytes elements[SL_SERVE_TENSORS_MAX];         /* text of each input's `data`, with its
                                                               brackets; next NULL: elsewhere */
    struct sl_http_body_range ranges[SL_SERVE_TENSORS_MAX]; /* of each input */
    uint64_t binary_bytes;                                  /* of all inputs behind the JSON */
    uint64_t timeout_us;                                    /* of the request; 0: none */
    struct sl_http_body_output outputs[SL_SERVE_TENSORS_MAX]; /* that the caller wants */
    uint32_t output_count;                                    /* 0: all outputs of the model */
    bool binary_output;                                       /* of outputs that are not listed */
};

/* Reads the JSON of a body for the model of the request, behind which the text has a NUL: sets the
 * inputs (name, type, shape, bytes, and offsets aligned to 64) and input_bytes. *body points into
 * the text.
 * reason: names the field. Errors: INVALID; TOO_LARGE (the inputs, or the JSON without `data`). */
int sl_http_body_parse(const char *text, size_t bytes, struct sl_http_body *body,
                       struct sl_serve_request *request, struct sl_reason *reason);

/* Reads a body that is empty, or an object whose only member is the boolean `name`, in its member
 * `parameters` if is_parameter; name NULL: none. *value: false if it is missing. Errors: INVALID.
 */
int sl_http_body_read_option(const char *text, size_t bytes, bool is_parameter, const char *name,
                             bool *value, struct sl_reason *reason);

/* Reads a body that registers a region. Errors: INVALID. */
int sl_http_body_read_region(const char *text, size_t bytes, struct sl_http_body_region *region,
                             struct sl_reason *reason);

/* Reads a body that is an object; an empty one is {}. The caller drops the reference. NULL: it is
 * none, with a reason. */
struct json_t *sl_http_body_load(const char *text, size_t bytes, struct sl_reason *reason);

/* Reads the elements of the JSON inputs into request->input, which has input_bytes. The text is
 * still there. Errors: INVALID. */
int sl_http_body_read_elements(const struct sl_http_body *body, struct sl_serve_request *request,
                               struct sl_reason *reason);

/* Copies a piece of the binary inputs to request->input. at: bytes of them that were copied before;
 * at + bytes is at most binary_bytes. */
void sl_http_body_put_binary(const struct sl_http_body *body, struct sl_serve_request *request,
                             uint64_t at, const void *piece, size_t bytes);

/* The tensor of the answer that is the i-th output; NULL: the model has none of that name, or its
 * type has no name in the protocol. */
const struct sl_serve_tensor *sl_http_body_find_output(const struct sl_http_body *body,
                                                       const struct sl_serve_request *request,
                                                       uint32_t i);

/* Makes the body of the answer to a request without error; the caller frees *out. *json_bytes:
 * where its binary tensors begin; 0: it has none. A value that is not finite is null in JSON. It
 * has no values of outputs in regions, which the caller has written there.
 * Errors: INVALID (the model has no such output), UNSUPPORTED (an output of a type that the
 * protocol lacks), NO_MEMORY. */
int sl_http_body_answer(const struct sl_http_body *body, const struct sl_serve_request *request,
                        char **out, size_t *out_bytes, size_t *json_bytes,
                        struct sl_reason *reason);

#endif
