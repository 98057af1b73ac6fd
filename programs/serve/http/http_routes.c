#include "programs/serve/http/http_routes.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/number.h"
#include "core/array.h"
#include "core/clock.h"
#include "programs/serve/http/http_body.h"
#include "programs/serve/http/http_metrics.h"
#include "reactor/reactor.h"

#define JSON           "application/json"
#define TIMEOUT_MS     1000
#define TIMEOUT_MS_MAX 3600000
#define TEXT_BYTES_MAX (256ULL << 20) /* of all bodies that are being received */
#define PROGRESS_BYTES 4096           /* of a body, after which its memory is the last to be lost */
#define OPTION_BYTES   4096           /* of a body that has options only */
#define JSON_HEADER    "Inference-Header-Content-Length"

struct sl_serve_http_routes {
    struct sl_http_server *server;
    struct sl_reactor *reactor;
    struct sl_serve_gateway *gateway;
    uint64_t text_bytes;
    struct sl_list receiving; /* calls that hold memory for bodies that come, the slowest first */
    struct sl_http_metrics metrics;
    char (*unloaded)[SL_OBJECTS_NAME_BYTES]; /* models that are refused */
    uint32_t unloaded_count, unloaded_capacity;
};

struct call {
    struct sl_http_call http;
    struct sl_serve_http_routes *routes;
    const struct route *route;
    struct sl_serve_request request;
    struct sl_http_body body;
    struct text {
        char *bytes;
        uint32_t count, capacity;
    } text, binary;    /* JSON; binary tensors, as far as received before they have their memory */
    size_t json_bytes; /* of the JSON; SIZE_MAX: all of the body */
    uint64_t binary_at;
    struct sl_list_link receiving;
    uint64_t received_bytes, progress_bytes; /* of the body; at the last progress */
    bool is_parsed, is_submitted;
};

/* A path: `begin` alone, or with a model's name and perhaps a version before `end`. */
struct route {
    const char *begin, *end; /* end NULL: no model */
    bool is_post;
    uint64_t body_bytes_max;
    void (*run)(struct sl_serve_http_routes *routes,
                struct call *call); /* at the end of the body */
};

static struct call *http_routes_call_of(struct sl_http_call *http)
{
    return SL_CONTAINER_OF(http, struct call, http);
}

static void reply_json(struct call *call, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    json_decref(value);
    sl_http_call_reply(&call->http, text != NULL ? 200 : 500, JSON, text,
                       text != NULL ? strlen(text) : 0);
}

/* ---- requests to the gateway ---- */

static void reply_failure(struct call *call, int err, const char *text, uint32_t retry_ms)
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

static void reply_answer(struct call *call)
{
    const struct sl_serve_request *request = &call->request;
    struct sl_reason reason;
    char *text;
    size_t bytes, json_bytes;
    const int err = sl_http_body_answer(&call->body, request, &text, &bytes, &json_bytes, &reason);
    if (err != 0) {
        reply_failure(call, err, reason.text, 0);
        return;
    }
    if (json_bytes > 0) {
        sl_reply_header_format(&call->http.reply, JSON_HEADER, "%zu", json_bytes);
    }
    sl_http_call_reply(&call->http, 200, json_bytes > 0 ? "application/octet-stream" : JSON, text,
                       bytes);
}

/* The worker's description has the version that it has opened; that of a model has all. */
static void reply_description(struct call *call)
{
    const struct sl_serve_request *request = &call->request;
    const struct sl_serve_tensor *output = &request->answer.outputs[0];
    const struct sl_object_entry *first;
    const uint64_t count = sl_serve_gateway_versions(call->routes->gateway, request->model, &first);
    json_t *all = request->answer.output_count == 1
                      ? json_loadb((const char *)request->answer.output + output->offset,
                                   output->bytes, 0, NULL)
                      : NULL;
    if (!json_is_object(all)) {
        json_decref(all);
        reply_failure(call, SL_ERR_CORRUPT, "the worker's description of the model is no JSON", 0);
        return;
    }
    json_t *versions = json_array();
    for (uint64_t i = 0; i < count && request->version == 0; i++) {
        char number[24];
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)first[i].version);
        (void)json_array_append_new(versions, json_string(number));
    }
    if (json_array_size(versions) > 0) {
        (void)json_object_set(all, "versions", versions);
    }
    json_decref(versions);
    reply_json(call, all);
}

/* Whether the path of a model that is unknown begins with another one, as /v2/models/M/config does:
 * then there is no such route; replied. */
static bool reply_no_route(struct call *call)
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

/* Replies with what was written to the stream of open_memstream; file NULL: there was no memory. */
static void reply_stream(struct call *call, const char *type, FILE *file, char **text,
                         const size_t *bytes)
{
    if (file != NULL && fclose(file) == 0) {
        sl_http_call_reply(&call->http, 200, type, *text, *bytes);
    } else {
        free(*text);
        reply_failure(call, SL_ERR_NO_MEMORY, "no memory for the answer", 0);
    }
}

static uint32_t find_unloaded(const struct sl_serve_http_routes *routes, const char *model)
{
    uint32_t i = 0;
    while (i < routes->unloaded_count && strcmp(routes->unloaded[i], model) != 0) {
        i++;
    }
    return i;
}

static void set_loaded(struct sl_serve_http_routes *routes, const char *model)
{
    const uint32_t i = find_unloaded(routes, model);
    if (i < routes->unloaded_count) {
        memmove(routes->unloaded[i], routes->unloaded[--routes->unloaded_count],
                sizeof routes->unloaded[i]);
    }
}

static void on_done(struct sl_serve_request *request)
{
    struct call *call = request->ctx;
    struct sl_serve_http_routes *routes = call->routes;
    const struct sl_object_entry *first;
    if (request->kind == SL_SERVE_INFER) {
        sl_http_metrics_count(&routes->metrics, request,
                              sl_serve_gateway_versions(routes->gateway, request->model, &first) >
                                  0,
                              sl_reactor_now_ns(routes->reactor));
    }
    if (request->answer.err == SL_ERR_NOT_FOUND && reply_no_route(call)) {
        /* replied */
    } else if (request->answer.err != 0) {
        reply_failure(call, request->answer.err, request->answer.text, request->answer.retry_ms);
    } else if (request->kind == SL_SERVE_INFER) {
        reply_answer(call);
    } else if (call->route->end[0] == '\0') {
        reply_description(call);
    } else { /* ready, load */
        if (request->kind == SL_SERVE_LOAD) {
            set_loaded(routes, request->model);
        }
        sl_http_call_reply(&call->http, 200, JSON, NULL, 0);
    }
    sl_serve_gateway_release(routes->gateway, request);
    call->is_submitted = false;
    request->input = NULL;
}

static void http_routes_submit(struct call *call, enum sl_serve_kind kind)
{
    sl_list_remove(&call->receiving); /* the body has come */
    call->request.kind = kind;
    call->request.done = on_done;
    call->request.ctx = call;
    call->is_submitted = true;
    sl_serve_gateway_submit(call->routes->gateway, &call->request);
}

/* ---- bodies ---- */

static void free_text(struct call *call, struct text *text)
{
    call->routes->text_bytes -= text->capacity;
    free(text->bytes);
    *text = (struct text){NULL, 0, 0};
}

/* Of a body that comes no more, or is not needed. */
static void free_body(struct call *call)
{
    free_text(call, &call->text);
    free_text(call, &call->binary);
    sl_list_remove(&call->receiving);
    if (!call->is_submitted && call->request.input != NULL) {
        sl_serve_gateway_memory_free(call->routes->gateway, call->request.input);
        call->request.input = NULL;
    }
}

/* Takes the memory of the body that has come on least for the longest time: what is held without
 * progress is lost to a caller that needs it. False: no other body has such memory. */
static bool http_routes_evict(struct call *call, bool of_inputs)
{
    SL_LIST_EACH (struct call, other, receiving, &call->routes->receiving) {
        const bool has_it = of_inputs ? other->request.input != NULL
                                      : other->text.capacity + other->binary.capacity > 0;
        if (other != call && has_it) {
            if (other->http.reply.status == 0) {
                reply_failure(other, SL_ERR_AGAIN,
                              "other callers needed the memory, and this body came more slowly", 0);
            }
            free_body(other);
            return true;
        }
    }
    return false;
}

/* Appends, and a NUL behind it. False: there is no memory; replied. */
static bool http_routes_append(struct call *call, struct text *text, const void *piece,
                               size_t bytes)
{
    struct sl_serve_http_routes *routes = call->routes;
    const uint32_t capacity = text->capacity;
    while (routes->text_bytes + capacity + bytes > TEXT_BYTES_MAX &&
           http_routes_evict(call, false)) {
    }
    if (routes->text_bytes + capacity + bytes > TEXT_BYTES_MAX ||
        !sl_array_make_room(&text->bytes, &text->capacity, (uint32_t)(text->count + bytes), 1)) {
        reply_failure(call, SL_ERR_AGAIN, "too many large bodies are being received", 0);
        return false;
    }
    routes->text_bytes += text->capacity - capacity;
    memcpy(text->bytes + text->count, piece, bytes);
    text->count += (uint32_t)bytes;
    text->bytes[text->count] = '\0';
    return true;
}

/* Takes the memory of the tensors, once most of them have come, and puts there what has. */
static int http_routes_place(struct call *call, struct sl_reason *reason)
{
    struct sl_serve_request *request = &call->request;
    do {
        request->input = sl_serve_gateway_memory(call->routes->gateway, request->input_bytes);
    } while (request->input == NULL && http_routes_evict(call, true));
    if (request->input == NULL) {
        return sl_reason_fail(reason, SL_ERR_AGAIN, "the gateway has no memory for the inputs");
    }
    const int err = sl_http_body_read_elements(&call->body, request, reason);
    sl_http_body_put_binary(&call->body, request, 0, call->binary.bytes, call->binary.count);
    free_text(call, &call->text);
    free_text(call, &call->binary);
    return err;
}

/* The JSON of an inference is complete: decodes it. */
static int decode(struct call *call, struct sl_reason *reason)
{
    struct sl_serve_request *request = &call->request;
    const bool is_announced = call->json_bytes != SIZE_MAX;
    const int err =
        sl_http_body_parse(call->text.bytes, call->text.count, &call->body, request, reason);
    if (err != 0) {
        return err;
    }
    if (!is_announced && call->body.binary_bytes > 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "inputs with binary_data_size need the header " JSON_HEADER);
    }
    if (is_announced && call->http.body_bytes != SL_HTTP_UNKNOWN_BYTES &&
        call->http.body_bytes - call->json_bytes != call->body.binary_bytes) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "the body has %llu bytes behind its JSON, the binary_data_size of "
                              "its inputs are %llu together",
                              (unsigned long long)(call->http.body_bytes - call->json_bytes),
                              (unsigned long long)call->body.binary_bytes);
    }
    return call->body.binary_bytes == 0 ? http_routes_place(call, reason) : 0;
}

static void decode_text(struct call *call)
{
    struct sl_reason reason;
    call->is_parsed = true;
    const int err = http_routes_append(call, &call->text, "", 0) ? decode(call, &reason) : 0;
    if (err != 0) {
        reply_failure(call, err, reason.text, 0);
    }
}

/* Takes a piece of the binary tensors. Until half of their bytes have come, the call buffers them:
 * an announced length alone takes no memory of the gateway. */
static void receive_binary(struct call *call, const void *piece, size_t bytes)
{
    const uint64_t all = call->body.binary_bytes, at = call->binary_at;
    struct sl_reason reason;
    if (bytes > all - at) {
        sl_http_call_reply_error(&call->http, 400, "the body has more bytes than its inputs");
        return;
    }
    call->binary_at += bytes;
    if (call->request.input == NULL && call->binary_at < all - call->binary_at) {
        (void)http_routes_append(call, &call->binary, piece, bytes);
        return;
    }
    const int err = call->request.input == NULL ? http_routes_place(call, &reason) : 0;
    if (err != 0) {
        reply_failure(call, err, reason.text, 0);
    } else {
        sl_http_body_put_binary(&call->body, &call->request, at, piece, bytes);
    }
}

static void http_routes_receive(void *ctx, struct sl_http_call *http, const void *piece,
                                size_t bytes)
{
    struct call *call = http_routes_call_of(http);
    const size_t left = call->json_bytes - call->text.count;
    const size_t json = call->is_parsed ? 0 : bytes < left ? bytes : left;
    call->received_bytes += bytes;
    if (call->progress_bytes == 0 ||
        call->received_bytes - call->progress_bytes >= PROGRESS_BYTES) {
        call->progress_bytes = call->received_bytes;
        sl_list_append(&call->routes->receiving, &call->receiving);
    }
    const bool has_room = json == 0 || http_routes_append(call, &call->text, piece, json);
    if (has_room && !call->is_parsed && call->text.count == call->json_bytes) {
        decode_text(call);
    }
    if (http->reply.status == 0 && bytes > json) {
        receive_binary(call, (const uint8_t *)piece + json, bytes - json);
    }
    if (http->reply.status != 0) {
        free_body(call);
    }
}

/* Reads the only option of a body. False: replied. */
static bool read_option(struct call *call, bool is_parameter, const char *name, bool *value)
{
    struct sl_reason reason;
    const int err = sl_http_body_read_option(call->text.bytes, call->text.count, is_parameter, name,
                                             value, &reason);
    if (err != 0) {
        reply_failure(call, err, reason.text, 0);
    }
    return err == 0;
}

/* ---- routes ---- */

static void run_infer(struct sl_serve_http_routes *routes, struct call *call)
{
    if (call->json_bytes == SIZE_MAX) {
        decode_text(call);
    }
    if (call->http.reply.status != 0) {
        return;
    }
    if (!call->is_parsed || call->binary_at != call->body.binary_bytes) {
        sl_http_call_reply_error(&call->http, 400, "the body ends before its %s",
                                 call->is_parsed ? "binary tensors do" : JSON_HEADER);
        return;
    }
    http_routes_submit(call, SL_SERVE_INFER);
}

static void run_describe(struct sl_serve_http_routes *routes, struct call *call)
{
    http_routes_submit(call, SL_SERVE_DESCRIBE);
}

static void run_load(struct sl_serve_http_routes *routes, struct call *call)
{
    if (read_option(call, true, NULL, &(bool){false})) {
        http_routes_submit(call, SL_SERVE_LOAD);
    }
}

static void run_unload(struct sl_serve_http_routes *routes, struct call *call)
{
    const struct sl_object_entry *entry;
    const char *model = call->request.model;
    bool is_with_dependents; /* clients of the protocol send it; models have none */
    if (!read_option(call, true, "unload_dependents", &is_with_dependents)) {
        return;
    }
    if (sl_serve_gateway_versions(routes->gateway, model, &entry) == 0) {
        sl_http_call_reply_error(&call->http, 404, "model `%s` is unknown", model);
        return;
    }
    if (find_unloaded(routes, model) == routes->unloaded_count) {
        if (!sl_array_make_room(&routes->unloaded, &routes->unloaded_capacity,
                                routes->unloaded_count, sizeof *routes->unloaded)) {
            reply_failure(call, SL_ERR_NO_MEMORY, "no memory", 0);
            return;
        }
        memcpy(routes->unloaded[routes->unloaded_count++], model, SL_OBJECTS_NAME_BYTES);
    }
    sl_http_call_reply(&call->http, 200, JSON, NULL, 0);
}

static void run_index(struct sl_serve_http_routes *routes, struct call *call)
{
    bool only_ready;
    if (!read_option(call, false, "ready", &only_ready)) {
        return;
    }
    const struct sl_object_list *list = sl_serve_gateway_models(routes->gateway);
    if (list == NULL) {
        reply_failure(call, SL_ERR_AGAIN, "the catalogue has not answered yet", 0);
        return;
    }
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes); /* as text: there may be millions of versions */
    (void)(file != NULL ? fputc('[', file) : 0);
    for (uint64_t i = 0, count = 0; file != NULL && i < list->count; i++) {
        const struct sl_object_entry *entry = &list->entries[i];
        const bool is_ready = find_unloaded(routes, entry->name) == routes->unloaded_count;
        if (is_ready || !only_ready) {
            json_t *name = json_string(entry->name);
            (void)fputs(count++ == 0 ? "{\"name\":" : ",{\"name\":", file);
            (void)json_dumpf(name, file, JSON_ENCODE_ANY);
            (void)fprintf(file, ",\"version\":\"%llu\",\"state\":\"%s\",\"reason\":\"%s\"}",
                          (unsigned long long)entry->version, is_ready ? "READY" : "UNAVAILABLE",
                          is_ready ? "" : "unloaded");
            json_decref(name);
        }
    }
    (void)(file != NULL ? fputc(']', file) : 0);
    reply_stream(call, JSON, file, &text, &bytes);
}

static void run_server(struct sl_serve_http_routes *routes, struct call *call)
{
    reply_json(call,
               json_pack("{s:s,s:s,s:[s,s]}", "name", "starling-serve", "version", STARLING_VERSION,
                         "extensions", "binary_tensor_data", "model_repository"));
}

static void run_live(struct sl_serve_http_routes *routes, struct call *call)
{
    reply_json(call, json_pack("{s:b}", "live", 1));
}

static void run_ready(struct sl_serve_http_routes *routes, struct call *call)
{
    struct sl_serve_gateway_stats stats;
    sl_serve_gateway_stats(routes->gateway, &stats);
    const char *missing = stats.is_draining    ? "the gateway is ending"
                          : !stats.has_models  ? "the catalogue has not answered yet"
                          : stats.workers == 0 ? "no worker has joined"
                          : stats.able_workers == 0
                              ? "no worker answers: all are stuck in computations, or stopped"
                              : NULL;
    if (missing != NULL) {
        reply_failure(call, SL_ERR_AGAIN, missing, 0);
    } else {
        reply_json(call, json_pack("{s:b}", "ready", 1));
    }
}

static void run_metrics(struct sl_serve_http_routes *routes, struct call *call)
{
    struct sl_serve_gateway_stats stats;
    sl_serve_gateway_stats(routes->gateway, &stats);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file != NULL) {
        sl_http_metrics_write(&routes->metrics, &stats, routes->unloaded_count, file);
    }
    reply_stream(call, "text/plain; version=0.0.4", file, &text, &bytes);
}

#define MODELS     "/v2/models/"
#define REPOSITORY "/v2/repository/"

static const struct route table[] = {
    {"/v2", NULL, false, 0, run_server},
    {"/v2/", NULL, false, 0, run_server},
    {"/v2/health/live", NULL, false, 0, run_live},
    {"/v2/health/ready", NULL, false, 0, run_ready},
    {MODELS, "/infer", true, SL_SERVE_BODY_BYTES_MAX, run_infer},
    {MODELS, "/ready", false, 0, run_describe},
    {MODELS, "", false, 0, run_describe},
    {REPOSITORY "index", NULL, true, OPTION_BYTES, run_index},
    {REPOSITORY "models/", "/load", true, OPTION_BYTES, run_load},
    {REPOSITORY "models/", "/unload", true, OPTION_BYTES, run_unload},
    {"/metrics", NULL, false, 0, run_metrics},
};

/* Whether the path is one of the route; sets where the model's name begins, and its length. */
static bool matches(const struct route *route, const char *path, const char **model, size_t *bytes)
{
    const size_t length = strlen(path), begin = strlen(route->begin);
    if (route->end == NULL) {
        return strcmp(path, route->begin) == 0;
    }
    const size_t end = strlen(route->end);
    *model = path + begin;
    *bytes = length - begin - end; /* only if the path is long enough */
    return length > begin + end && strncmp(path, route->begin, begin) == 0 &&
           strcmp(path + length - end, route->end) == 0;
}

/* Reads NAME or NAME/versions/V. False: replied. */
static bool read_model(struct call *call, const char *model, size_t bytes)
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
static bool read_headers(struct call *call)
{
    struct sl_serve_request *request = &call->request;
    const char *timeout = sl_http_call_header(&call->http, "Starling-Timeout-Ms");
    const char *json =
        call->route->run == run_infer ? sl_http_call_header(&call->http, JSON_HEADER) : NULL;
    uint32_t timeout_ms = TIMEOUT_MS;
    uint64_t json_bytes = SIZE_MAX;
    if (timeout != NULL && !sl_number_parse_u32(timeout, 1, TIMEOUT_MS_MAX, &timeout_ms)) {
        sl_http_call_reply_error(&call->http, 400,
                                 "Starling-Timeout-Ms: %.32s: 1 to %d is accepted", timeout,
                                 TIMEOUT_MS_MAX);
        return false;
    }
    const uint64_t most = call->http.body_bytes < SL_SERVE_BODY_BYTES_MAX ? call->http.body_bytes
                                                                          : SL_SERVE_BODY_BYTES_MAX;
    if (json != NULL && !sl_number_parse_u64(json, 1, most, &json_bytes)) {
        sl_http_call_reply_error(
            &call->http, 400, JSON_HEADER ": %.32s: 1 to the length of the body is accepted", json);
        return false;
    }
    call->json_bytes = json_bytes;
    request->arrived_ns = call->http.begun_ns;
    request->deadline_ns = request->arrived_ns + timeout_ms * SL_CLOCK_NS_PER_MS;
    return true;
}

static void begin(void *ctx, struct sl_http_call *http)
{
    struct call *call = http_routes_call_of(http);
    struct sl_serve_http_routes *routes = ctx;
    const char *model = NULL;
    size_t bytes = 0;
    call->routes = routes;
    for (size_t i = 0; call->route == NULL && i < sizeof table / sizeof table[0]; i++) {
        call->route = matches(&table[i], http->path, &model, &bytes) ? &table[i] : NULL;
    }
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
    if (!read_headers(call) || (call->route->end != NULL && !read_model(call, model, bytes))) {
        return;
    }
    if (call->route->run == run_unload && call->request.version != 0) {
        sl_http_call_reply_error(http, 404,
                                 "no such route: unload is for all versions of a model: " REPOSITORY
                                 "models/%s/unload",
                                 call->request.model);
    } else if (strcmp(call->route->begin, MODELS) == 0 &&
               find_unloaded(routes, call->request.model) < routes->unloaded_count) {
        sl_http_call_reply_error(http, 404, "model `%s` was unloaded from this gateway: load it",
                                 call->request.model);
    }
}

static void end(void *ctx, struct sl_http_call *http)
{
    http_routes_call_of(http)->route->run(ctx, http_routes_call_of(http));
    if (http->reply.status != 0) {
        free_body(http_routes_call_of(http));
    }
}

static void free_call(void *ctx, struct sl_http_call *http)
{
    struct call *call = http_routes_call_of(http);
    struct sl_serve_http_routes *routes = ctx;
    if (call->routes == NULL) {
        return; /* refused before `begin` */
    }
    if (call->is_submitted) {
        sl_serve_gateway_cancel(routes->gateway, &call->request);
    }
    free_body(call);
}

static const struct sl_http_handler handler = {
    .connections_max = SL_SERVE_HTTP_CONNECTIONS_MAX,
    .call_bytes = sizeof(struct call),
    .body_bytes_max = SL_SERVE_BODY_BYTES_MAX,
    .accepts_post = true,
    .wrong_token_status = 403,
    .begin = begin,
    .receive = http_routes_receive,
    .end = end,
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
        free(routes->unloaded);
        free(routes);
        *to_destroy = NULL;
    }
}

struct sl_http_server *sl_serve_http_routes_server(struct sl_serve_http_routes *routes)
{
    return routes->server;
}
