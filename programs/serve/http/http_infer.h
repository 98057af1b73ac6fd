/* Inferences: receives their bodies, places their inputs in the gateway's memory, and answers.
 * Bodies of other routes are received here too. Owner: the reactor of the gateway. */
#ifndef SL_SERVE_HTTP_INFER_H
#define SL_SERVE_HTTP_INFER_H

#include "programs/serve/http/serve_call.h"

#define SL_HTTP_INFER_JSON_HEADER "Inference-Header-Content-Length"
#define SL_HTTP_INFER_TIMEOUT_MS  3600000 /* most */

/* A piece of a body: of the handler of an HTTP server. */
void sl_http_infer_receive(void *ctx, struct sl_http_call *http, const void *piece, size_t bytes);

/* Frees the memory of a body that comes no more, or is not needed. */
void sl_http_infer_free_body(struct sl_serve_call *call);

/* Of a route: the body of an inference is complete; its answer has come. */
void sl_http_infer_run(struct sl_serve_call *call);
void sl_http_infer_answer(struct sl_serve_call *call);

#endif
