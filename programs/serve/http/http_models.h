/* Routes about models: metadata, configuration, statistics, and the repository. Functions named
 * `run_` run at the end of a body, those named `answer_` once the gateway has answered. Owner: the
 * reactor of the gateway. */
#ifndef SL_SERVE_HTTP_MODELS_H
#define SL_SERVE_HTTP_MODELS_H

#include "programs/serve/http/serve_call.h"

/* Asks a worker for the description of the model: metadata, configuration, or whether it is ready.
 */
void sl_http_models_run_describe(struct sl_serve_call *call);
void sl_http_models_answer_metadata(struct sl_serve_call *call);
void sl_http_models_answer_config(struct sl_serve_call *call);

/* Of a model's versions, or of all models. */
void sl_http_models_run_stats(struct sl_serve_call *call);
void sl_http_models_run_all_stats(struct sl_serve_call *call);

void sl_http_models_run_index(struct sl_serve_call *call);
void sl_http_models_run_load(struct sl_serve_call *call);
void sl_http_models_answer_load(struct sl_serve_call *call);
void sl_http_models_run_unload(struct sl_serve_call *call);

/* Whether this gateway refuses the model until `load`. */
bool sl_http_models_is_unloaded(const struct sl_serve_http_routes *routes, const char *model);

#endif
