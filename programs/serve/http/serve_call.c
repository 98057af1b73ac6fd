#include "programs/serve/http/serve_call.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "reactor/reactor.h"

struct sl_serve_call *sl_serve_call_of(struct sl_http_call *http)
{
    return SL_CONTAINER_OF(http, struct sl_serve_call, http);
}

void sl_serve_call_fail(struct sl_serve_call *call, int err, const char *text, uint32_t retry_ms)
{
    static const struct {
        int err;
        uint32_t status;
    } statuses[] = {
        {SL_ERR_INVALID, 400},   {SL_ERR_NOT_FOUND, 404}, {SL_ERR_TOO_LARGE, 413},
        {SL_ERR_AGAIN, 503},     {SL_ERR_CORRUPT, 503},   {SL_ERR_CANCELLED, 503},
        {SL_ERR_NO_MEMORY, 503}, {SL_ERR_DEADLINE, 504},
    };
    uint32_t status = 500;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        status = statuses[i].err == err ? statuses[i].status : status;
    }
    if (status == 503) {
        sl_reply_header_format(&call->http.reply, "Retry-After", "%u",
                               (retry_ms + 999) / 1000 + (retry_ms == 0));
    }
    sl_http_call_reply_error(&call->http, status, "%s", text);
}

void sl_serve_call_reply_json(struct sl_serve_call *call, struct json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    json_decref(value);
    sl_http_call_reply(&call->http, text != NULL ? 200 : 500, SL_SERVE_CALL_JSON, text,
                       text != NULL ? strlen(text) : 0);
}

void sl_serve_call_reply_stream(struct sl_serve_call *call, const char *type, FILE *file,
                                char **text, const size_t *bytes)
{
    if (file != NULL && fclose(file) == 0) {
        sl_http_call_reply(&call->http, 200, type, *text, *bytes);
    } else {
        free(*text);
        sl_serve_call_fail(call, SL_ERR_NO_MEMORY, "no memory for the answer", 0);
    }
}

struct json_t *sl_serve_call_load(struct sl_serve_call *call)
{
    struct sl_reason reason;
    json_t *root = sl_http_body_load(call->text.bytes, call->text.count, &reason);
    if (root == NULL) {
        sl_serve_call_fail(call, SL_ERR_INVALID, reason.text, 0);
    }
    return root;
}

bool sl_serve_call_is_known(struct sl_serve_call *call)
{
    const struct sl_serve_request *request = &call->request;
    const struct sl_object_entry *first;
    const uint64_t count = sl_serve_gateway_versions(call->routes->gateway, request->model, &first);
    bool is_known = count > 0 && request->version == 0;
    for (uint64_t i = 0; i < count && !is_known; i++) {
        is_known = first[i].version == request->version;
    }
    if (count == 0) {
        sl_http_call_reply_error(&call->http, 404, "model `%s` is unknown", request->model);
    } else if (!is_known) {
        sl_http_call_reply_error(&call->http, 404, "model `%s` has no version %llu", request->model,
                                 (unsigned long long)request->version);
    }
    return is_known;
}

/* Whether the path of a model that is unknown begins with another one, as /v2/models/M/generate
 * does: then there is no such route; replied. */
static bool reply_no_route(struct sl_serve_call *call)
{
    char name[SL_OBJECTS_NAME_BYTES];
    const struct sl_object_entry *first;
    memcpy(name, call->request.model, sizeof name);
    for (char *slash; (slash = strrchr(name, '/')) != NULL;) {
        *slash = '\0';
        if (sl_serve_gateway_versions(call->routes->gateway, name, &first) > 0) {
            sl_http_call_reply_error(&call->http, 404,
                                     "no such route: `%s` of model `%s`; see /v2 and "
                                     "docs/serving-http.md",
                                     call->request.model + (slash - name), name);
            return true;
        }
    }
    return false;
}

/* Counts an inference, also one whose answer could not be written. One without an answer counts for
 * a version that there is, since a caller could make up numbers. */
static void serve_call_count(struct sl_serve_call *call)
{
    struct sl_serve_http_routes *routes = call->routes;
    const struct sl_serve_request *request = &call->request;
    const uint64_t now_ns = sl_reactor_now_ns(routes->reactor);
    const struct sl_object_entry *first;
    const uint64_t count = sl_serve_gateway_versions(routes->gateway, request->model, &first);
    uint64_t version = request->answer.err == 0 ? request->answer.version : 0;
    for (uint64_t i = count; i > 0 && version == 0; i--) { /* 0: the newest */
        const bool is_wanted = request->version == 0 || first[i - 1].version == request->version;
        version = is_wanted ? first[i - 1].version : 0;
    }
    sl_http_metrics_count(&routes->metrics, request, count > 0, now_ns);
    if (version != 0) {
        sl_http_stats_count(&routes->stats, request, version, call->input_ns, call->output_ns,
                            now_ns);
    }
}

static void on_done(struct sl_serve_request *request)
{
    struct sl_serve_call *call = request->ctx;
    if (request->answer.err == SL_ERR_NOT_FOUND && reply_no_route(call)) {
        /* replied */
    } else if (request->answer.err != 0) {
        sl_serve_call_fail(call, request->answer.err, request->answer.text,
                           request->answer.retry_ms);
    } else if (call->route->answer != NULL) {
        call->route->answer(call);
    } else {
        sl_http_call_reply(&call->http, 200, SL_SERVE_CALL_JSON, NULL, 0);
    }
    if (request->kind == SL_SERVE_INFER) {
        serve_call_count(call);
    }
    sl_serve_gateway_release(call->routes->gateway, request);
    call->is_submitted = false;
    request->input = NULL;
}

void sl_serve_call_submit(struct sl_serve_call *call, enum sl_serve_kind kind)
{
    sl_list_remove(&call->receiving); /* the body has come */
    call->request.kind = kind;
    call->request.done = on_done;
    call->request.ctx = call;
    call->is_submitted = true;
    sl_serve_gateway_submit(call->routes->gateway, &call->request);
}
