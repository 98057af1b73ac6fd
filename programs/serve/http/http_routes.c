#include "programs/serve/http/http_routes.h"

#include <stdlib.h>
#include <string.h>

#include "config/number.h"
#include "core/clock.h"
#include "objects/catalogue/message.h"
#include "programs/serve/http/http_control.h"
#include "programs/serve/http/http_infer.h"
#include "programs/serve/http/http_models.h"

#define TIMEOUT_MS   1000 /* default */
#define OPTION_BYTES SL_SERVE_CALL_OPTION_BYTES
#define CODED_BYTES  (1U << 20) /* most of an answer that is compressed: other requests wait */

#define MODELS       "/v2/models/"
#define REPOSITORY   "/v2/repository/"

#define SYSTEM       "/v2/systemsharedmemory"
#define CUDA         "/v2/cudasharedmemory"
#define PLAIN        SL_SERVE_ROUTE_PLAIN
#define MODEL        SL_SERVE_ROUTE_MODEL
#define REGION       SL_SERVE_ROUTE_REGION

/* The first that fits the path; routes of one path with two methods follow each other. */
/* clang-format off */
static const struct sl_serve_route table[] = {
    {"/v2", "", PLAIN, false, 0, sl_http_control_run_server, NULL},
    {"/v2/", "", PLAIN, false, 0, sl_http_control_run_server, NULL},
    {"/v2/health/live", "", PLAIN, false, 0, sl_http_control_run_live, NULL},
    {"/v2/health/ready", "", PLAIN, false, 0, sl_http_control_run_ready, NULL},
    {MODELS "stats", "", PLAIN, false, 0, sl_http_models_run_all_stats, NULL},
    {MODELS, "/infer", MODEL, true, SL_SERVE_BODY_BYTES_MAX, sl_http_infer_run, sl_http_infer_answer},
    {MODELS, "/ready", MODEL, false, 0, sl_http_models_run_describe, NULL},
    {MODELS, "/config", MODEL, false, 0, sl_http_models_run_describe, sl_http_models_answer_config},
    {MODELS, "/stats", MODEL, false, 0, sl_http_models_run_stats, NULL},
    {MODELS, "/trace/setting", MODEL, false, 0, sl_http_control_run_trace, NULL},
    {MODELS, "/trace/setting", MODEL, true, OPTION_BYTES, sl_http_control_run_trace_set, NULL},
    {MODELS, "", MODEL, false, 0, sl_http_models_run_describe, sl_http_models_answer_metadata},
    {REPOSITORY "index", "", PLAIN, true, OPTION_BYTES, sl_http_models_run_index, NULL},
    {REPOSITORY "models/", "/load", MODEL, true, OPTION_BYTES, sl_http_models_run_load, sl_http_models_answer_load},
    {REPOSITORY "models/", "/unload", MODEL, true, OPTION_BYTES, sl_http_models_run_unload, NULL},
    {SYSTEM "/status", "", PLAIN, false, 0, sl_http_control_run_region_status, NULL},
    {SYSTEM "/unregister", "", PLAIN, true, OPTION_BYTES, sl_http_control_run_region_remove, NULL},
    {SYSTEM "/region/", "/status", REGION, false, 0, sl_http_control_run_region_status, NULL},
    {SYSTEM "/region/", "/register", REGION, true, OPTION_BYTES, sl_http_control_run_region_add, NULL},
    {SYSTEM "/region/", "/unregister", REGION, true, OPTION_BYTES, sl_http_control_run_region_remove, NULL},
    {CUDA "/status", "", PLAIN, false, 0, sl_http_control_run_cuda_status, NULL},
    {CUDA "/unregister", "", PLAIN, true, OPTION_BYTES, sl_http_control_run_cuda_remove, NULL},
    {CUDA "/region/", "/status", REGION, false, 0, sl_http_control_run_cuda_status, NULL},
    {CUDA "/region/", "/register", REGION, true, OPTION_BYTES, sl_http_control_run_cuda_add, NULL},
    {CUDA "/region/", "/unregister", REGION, true, OPTION_BYTES, sl_http_control_run_cuda_remove, NULL},
    {"/v2/trace/setting", "", PLAIN, false, 0, sl_http_control_run_trace, NULL},
    {"/v2/trace/setting", "", PLAIN, true, OPTION_BYTES, sl_http_control_run_trace_set, NULL},
    {"/v2/logging", "", PLAIN, false, 0, sl_http_control_run_log, NULL},
    {"/v2/logging", "", PLAIN, true, OPTION_BYTES, sl_http_control_run_log_set, NULL},
    {"/metrics", "", PLAIN, false, 0, sl_http_control_run_metrics, NULL},
};
#define ROUTES (sizeof table / sizeof table[0])
/* clang-format on */

/* Whether the path is one of the route; sets where the name begins that is in it, and its length.
 */
static bool matches(const struct sl_serve_route *route, const char *path, const char **name,
                    size_t *bytes)
{
    const size_t length = strlen(path), begin = strlen(route->begin);
    if (route->name == PLAIN) {
        return strcmp(path, route->begin) == 0;
    }
    const size_t end = strlen(route->end);
    *name = path + begin;
    *bytes = length - begin - end; /* only if the path is long enough */
    return length > begin + end && strncmp(path, route->begin, begin) == 0 &&
           strcmp(path + length - end, route->end) == 0;
}

/* The route of the path, with the method if it has that one; NULL: there is none. */
static const struct sl_serve_route *find_route(const char *path, bool is_post, const char **name,
                                               size_t *bytes)
{
    for (size_t i = 0; i < ROUTES; i++) {
        if (matches(&table[i], path, name, bytes)) {
            const bool is_next = table[i].is_post != is_post && i + 1 < ROUTES &&
                                 matches(&table[i + 1], path, name, bytes) &&
                                 strcmp(table[i + 1].end, table[i].end) == 0;
            return &table[i + is_next];
        }
    }
    return NULL;
}

/* Reads NAME or NAME/versions/V. False: replied. */
static bool read_model(struct sl_serve_call *call, const char *model, size_t bytes)
{
    static const char between[] = "/versions/";
    char text[SL_OBJECTS_NAME_BYTES + sizeof between + 24];
    if (bytes < sizeof text) {
        memcpy(text, model, bytes);
        text[bytes] = '\0';
        char *version = strstr(text, between);
        if (version != NULL) {
            *version = '\0';
            version += sizeof between - 1;
        }
        if (version != NULL && strchr(version, '/') != NULL) {
            sl_http_call_reply_error(&call->http, 404,
                                     "no such route: `%s` of a version of model `%s`",
                                     strchr(version, '/'), text);
            return false;
        }
        if (version != NULL &&
            !sl_number_parse_u64(version, 1, INT64_MAX, &call->request.version)) {
            sl_http_call_reply_error(&call->http, 400, "version `%s` is not a number of 1 or more",
                                     version);
            return false;
        }
        if (strlen(text) < sizeof call->request.model) {
            memcpy(call->request.model, text, strlen(text) + 1);
            return true;
        }
    }
    sl_http_call_reply_error(&call->http, 404, "a model's name has at most %d bytes",
                             SL_OBJECTS_NAME_BYTES - 1);
    return false;
}

/* False: replied. */
static bool read_region(struct sl_serve_call *call, const char *name, size_t bytes)
{
    const size_t room = sizeof call->region;
    memcpy(call->region, name, bytes < room ? bytes : room - 1);
    if (bytes < room && sl_objects_text_is_valid(call->region, room) &&
        sl_objects_text_is_utf8(call->region)) {
        return true;
    }
    sl_http_call_reply_error(&call->http, 400,
                             "a region's name has at most %zu bytes, of UTF-8 without control "
                             "characters",
                             room - 1);
    return false;
}

/* Reads the name that is in the path. False: replied. */
static bool read_path_name(struct sl_serve_call *call, const char *name, size_t bytes)
{
    switch (call->route->name) {
    case SL_SERVE_ROUTE_MODEL:
        return read_model(call, name, bytes);
    case SL_SERVE_ROUTE_REGION:
        return read_region(call, name, bytes);
    default:
        return true;
    }
}

/* False: replied. */
static bool read_headers(struct sl_serve_call *call)
{
    struct sl_serve_request *request = &call->request;
    const char *timeout = sl_http_call_header(&call->http, "Starling-Timeout-Ms");
    const char *json = call->route->run == sl_http_infer_run
                           ? sl_http_call_header(&call->http, SL_HTTP_INFER_JSON_HEADER)
                           : NULL;
    uint32_t timeout_ms = TIMEOUT_MS;
    uint64_t json_bytes = SIZE_MAX;
    if (timeout != NULL &&
        !sl_number_parse_u32(timeout, 1, SL_HTTP_INFER_TIMEOUT_MS, &timeout_ms)) {
        sl_http_call_reply_error(&call->http, 400,
                                 "Starling-Timeout-Ms: %.32s: 1 to %d is accepted", timeout,
                                 SL_HTTP_INFER_TIMEOUT_MS);
        return false;
    }
    const uint64_t most = call->http.body_bytes < SL_SERVE_BODY_BYTES_MAX ? call->http.body_bytes
                                                                          : SL_SERVE_BODY_BYTES_MAX;
    if (json != NULL && !sl_number_parse_u64(json, 1, most, &json_bytes)) {
        sl_http_call_reply_error(
            &call->http, 400,
            SL_HTTP_INFER_JSON_HEADER ": %.32s: 1 to the length of the body is accepted", json);
        return false;
    }
    call->json_bytes = json_bytes;
    request->arrived_ns = call->http.begun_ns;
    request->deadline_ns = request->arrived_ns + timeout_ms * SL_CLOCK_NS_PER_MS;
    return true;
}

static void begin(void *ctx, struct sl_http_call *http)
{
    struct sl_serve_call *call = sl_serve_call_of(http);
    struct sl_serve_http_routes *routes = ctx;
    const char *name = NULL;
    size_t bytes = 0;
    call->routes = routes;
    call->route = find_route(http->path, http->is_post, &name, &bytes);
    if (call->route == NULL) {
        sl_http_call_reply_error(http, 404, "path %.200s: see /v2 and docs/serving-http.md",
                                 http->path);
        return;
    }
    http->body_bytes_max = call->route->body_bytes_max;
    if (http->is_post != call->route->is_post) {
        sl_reply_header(&http->reply, "Allow", call->route->is_post ? "POST" : "GET, HEAD");
        sl_http_call_reply_error(http, 405, "path %.200s: the method is %s", http->path,
                                 call->route->is_post ? "POST" : "GET");
        return;
    }
    if (!read_headers(call) || !read_path_name(call, name, bytes)) {
        return;
    }
    if (call->route->run == sl_http_models_run_unload && call->request.version != 0) {
        sl_http_call_reply_error(http, 404,
                                 "no such route: unload is for all versions of a model: " REPOSITORY
                                 "models/%s/unload",
                                 call->request.model);
    } else if (strcmp(call->route->begin, MODELS) == 0 &&
               sl_http_models_is_unloaded(routes, call->request.model)) {
        sl_http_call_reply_error(http, 404, "model `%s` was unloaded from this gateway: load it",
                                 call->request.model);
    }
}

static void end(void *ctx, struct sl_http_call *http)
{
    struct sl_serve_call *call = sl_serve_call_of(http);
    call->route->run(call);
    if (http->reply.status != 0) {
        sl_http_infer_free_body(call);
    }
}

/* Compresses the answer to an inference, if its caller asks for that. */
static void finish(void *ctx, struct sl_http_call *http)
{
    const struct sl_serve_call *call = sl_serve_call_of(http);
    struct sl_reply *reply = &http->reply;
    const char *accepted = sl_http_call_header(http, "Accept-Encoding");
    const bool is_gzip = sl_reply_accepts(accepted, "gzip");
    if (call->route != NULL && call->route->run == sl_http_infer_run && reply->status == 200 &&
        reply->bytes <= CODED_BYTES && (is_gzip || sl_reply_accepts(accepted, "deflate"))) {
        sl_reply_compress(reply, is_gzip ? "gzip" : "deflate", 1);
        sl_reply_header(reply, "Content-Encoding", reply->encoding);
    }
}

static void free_call(void *ctx, struct sl_http_call *http)
{
    struct sl_serve_call *call = sl_serve_call_of(http);
    struct sl_serve_http_routes *routes = ctx;
    if (call->routes == NULL) {
        return; /* refused before `begin` */
    }
    if (call->is_submitted) {
        sl_serve_gateway_cancel(routes->gateway, &call->request);
    }
    sl_http_infer_free_body(call);
}

static const struct sl_http_handler handler = {
    .connections_max = SL_SERVE_HTTP_CONNECTIONS_MAX,
    .call_bytes = sizeof(struct sl_serve_call),
    .body_bytes_max = SL_SERVE_BODY_BYTES_MAX,
    .accepts_post = true,
    .accepts_codings = true,
    .wrong_token_status = 403,
    .begin = begin,
    .receive = sl_http_infer_receive,
    .end = end,
    .finish = finish,
    .free = free_call,
};

int sl_serve_http_routes_create(struct sl_reactor *reactor, struct sl_serve_gateway *gateway,
                                const struct sl_http_listen *listen,
                                struct sl_serve_http_routes **out, struct sl_reason *reason)
{
    struct sl_serve_http_routes *routes = calloc(1, sizeof *routes);
    if (routes == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for HTTP");
    }
    routes->reactor = reactor;
    routes->gateway = gateway;
    sl_list_init(&routes->receiving);
    const int err = sl_http_server_create(listen, &handler, routes, &routes->server, reason);
    if (err != 0) {
        free(routes);
        return err;
    }
    sl_http_server_attach(routes->server, reactor);
    *out = routes;
    return 0;
}

void sl_serve_http_routes_destroy(struct sl_serve_http_routes **to_destroy)
{
    struct sl_serve_http_routes *routes = *to_destroy;
    if (routes != NULL) {
        sl_http_server_destroy(&routes->server);
        sl_http_metrics_fini(&routes->metrics);
        sl_http_stats_fini(&routes->stats);
        sl_http_regions_fini(&routes->regions);
        free(routes->unloaded);
        free(routes);
        *to_destroy = NULL;
    }
}

struct sl_http_server *sl_serve_http_routes_server(struct sl_serve_http_routes *routes)
{
    return routes->server;
}
