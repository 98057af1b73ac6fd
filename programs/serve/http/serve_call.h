/* A call of the Open Inference Protocol: its request to the gateway, its body and its reply; and
 * the front end, to which all calls belong. Below the files of the routes. Owner: the reactor of
 * the gateway. */
#ifndef SL_SERVE_HTTP_SERVE_CALL_H
#define SL_SERVE_HTTP_SERVE_CALL_H

#include <stdio.h>

#include "net/http/server.h"
#include "programs/serve/gateway/gateway.h"
#include "programs/serve/http/http_body.h"
#include "programs/serve/http/http_metrics.h"
#include "programs/serve/http/http_regions.h"
#include "programs/serve/http/http_stats.h"

#define SL_SERVE_CALL_JSON         "application/json"
#define SL_SERVE_CALL_OPTION_BYTES 4096 /* of a body that has options only */

struct json_t; /* of jansson */

struct sl_serve_http_routes {
    struct sl_http_server *server;
    struct sl_reactor *reactor;
    struct sl_serve_gateway *gateway;
    uint64_t text_bytes;
    struct sl_list receiving; /* calls that hold memory for bodies that come, the slowest first */
    struct sl_http_metrics metrics;
    struct sl_http_stats stats;
    struct sl_http_regions regions;
    char (*unloaded)[SL_OBJECTS_NAME_BYTES]; /* models that are refused */
    uint32_t unloaded_count, unloaded_capacity;
};

struct sl_serve_call_text {
    char *bytes;
    uint32_t count, capacity;
};

struct sl_serve_call {
    struct sl_http_call http;
    struct sl_serve_http_routes *routes;
    const struct sl_serve_route *route;
    char region[SL_HTTP_BODY_REGION_BYTES]; /* that the path names; "": none */
    struct sl_serve_request request;
    struct sl_http_body body;
    struct sl_serve_call_text text, binary; /* JSON; binary tensors, as far as received before they
                                               have their memory */
    size_t json_bytes;                      /* of the JSON; SIZE_MAX: all of the body */
    uint64_t binary_at;
    struct sl_list_link receiving;
    uint64_t received_bytes, progress_bytes; /* of the body; at the last progress */
    uint64_t input_ns, output_ns;            /* time to read the inputs, to write the outputs */
    bool is_parsed, is_submitted;
};

enum sl_serve_route_name { SL_SERVE_ROUTE_PLAIN, SL_SERVE_ROUTE_MODEL, SL_SERVE_ROUTE_REGION };

/* A path: `begin` alone, or with the name of a model, and perhaps a version, or of a region before
 * `end`. */
struct sl_serve_route {
    const char *begin, *end;
    enum sl_serve_route_name name;
    bool is_post;
    uint64_t body_bytes_max;
    void (*run)(struct sl_serve_call *call);    /* at the end of the body */
    void (*answer)(struct sl_serve_call *call); /* once the gateway has answered without error;
                                                   NULL: an empty body is the reply. An error of its
                                                   own becomes the answer's */
};

struct sl_serve_call *sl_serve_call_of(struct sl_http_call *http);

/* Replies with a status for the error. */
void sl_serve_call_fail(struct sl_serve_call *call, int err, const char *text, uint32_t retry_ms);

/* Drops the reference. NULL: no memory, 500. */
void sl_serve_call_reply_json(struct sl_serve_call *call, struct json_t *value);

/* Replies with what was written to the stream of open_memstream; file NULL: there was no memory. */
void sl_serve_call_reply_stream(struct sl_serve_call *call, const char *type, FILE *file,
                                char **text, const size_t *bytes);

/* Reads the body as JSON, an object; an empty body is {}. NULL: replied. */
struct json_t *sl_serve_call_load(struct sl_serve_call *call);

/* Whether the gateway lists the model and the version, if there is one; else replies. */
bool sl_serve_call_is_known(struct sl_serve_call *call);

/* Sends the request to the gateway; replies once it has answered. */
void sl_serve_call_submit(struct sl_serve_call *call, enum sl_serve_kind kind);

#endif
