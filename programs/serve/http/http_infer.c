#include "programs/serve/http/http_infer.h"

#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/clock.h"
#include "reactor/reactor.h"

#define TEXT_BYTES_MAX (256ULL << 20) /* of all bodies that are being received */
#define PROGRESS_BYTES 4096           /* of a body, after which its memory is the last to be lost */

static uint64_t http_infer_now(const struct sl_serve_call *call)
{
    return sl_clock_now_ns(sl_reactor_clock(call->routes->reactor));
}

/* ---- bodies ---- */

static void free_text(struct sl_serve_call *call, struct sl_serve_call_text *text)
{
    call->routes->text_bytes -= text->capacity;
    free(text->bytes);
    *text = (struct sl_serve_call_text){NULL, 0, 0};
}

/* Of a body that comes no more, or is not needed. */
void sl_http_infer_free_body(struct sl_serve_call *call)
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
static bool http_infer_evict(struct sl_serve_call *call, bool of_inputs)
{
    SL_LIST_EACH (struct sl_serve_call, other, receiving, &call->routes->receiving) {
        const bool has_it = of_inputs ? other->request.input != NULL
                                      : other->text.capacity + other->binary.capacity > 0;
        if (other != call && has_it) {
            if (other->http.reply.status == 0) {
                sl_serve_call_fail(
                    other, SL_ERR_AGAIN,
                    "other callers needed the memory, and this body came more slowly", 0);
            }
            sl_http_infer_free_body(other);
            return true;
        }
    }
    return false;
}

/* Appends, and a NUL behind it. False: there is no memory; replied. */
static bool http_infer_append(struct sl_serve_call *call, struct sl_serve_call_text *text,
                              const void *piece, size_t bytes)
{
    struct sl_serve_http_routes *routes = call->routes;
    const uint32_t capacity = text->capacity;
    while (routes->text_bytes + capacity + bytes > TEXT_BYTES_MAX &&
           http_infer_evict(call, false)) {
    }
    if (routes->text_bytes + capacity + bytes > TEXT_BYTES_MAX ||
        !sl_array_make_room(&text->bytes, &text->capacity, (uint32_t)(text->count + bytes), 1)) {
        sl_serve_call_fail(call, SL_ERR_AGAIN, "too many large bodies are being received", 0);
        return false;
    }
    routes->text_bytes += text->capacity - capacity;
    memcpy(text->bytes + text->count, piece, bytes);
    text->count += (uint32_t)bytes;
    text->bytes[text->count] = '\0';
    return true;
}

/* Takes the memory of the tensors, once most of them have come, and puts there what has. */
static int http_infer_place(struct sl_serve_call *call, struct sl_reason *reason)
{
    struct sl_serve_request *request = &call->request;
    do {
        request->input = sl_serve_gateway_memory(call->routes->gateway, request->input_bytes);
    } while (request->input == NULL && http_infer_evict(call, true));
    if (request->input == NULL) {
        return sl_reason_fail(reason, SL_ERR_AGAIN, "the gateway has no memory for the inputs");
    }
    const uint64_t begun_ns = http_infer_now(call);
    int err = sl_http_body_read_elements(&call->body, request, reason);
    for (uint32_t i = 0; err == 0 && i < request->input_count; i++) {
        const struct sl_http_body_range *range = &call->body.ranges[i];
        if (range->region[0] != '\0') {
            err = sl_http_regions_read(&call->routes->regions, range,
                                       request->input + request->inputs[i].offset, reason);
        }
    }
    sl_http_body_put_binary(&call->body, request, 0, call->binary.bytes, call->binary.count);
    call->input_ns = http_infer_now(call) - begun_ns;
    free_text(call, &call->text);
    free_text(call, &call->binary);
    return err;
}

/* The regions of inputs and outputs exist, before memory is taken and a worker computes. */
static int check_regions(const struct sl_serve_call *call, struct sl_reason *reason)
{
    const struct sl_http_body *body = &call->body;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < call->request.input_count + body->output_count; i++) {
        const struct sl_http_body_range *range =
            i < call->request.input_count ? &body->ranges[i]
                                          : &body->outputs[i - call->request.input_count].range;
        err = range->region[0] == '\0'
                  ? 0
                  : sl_http_regions_check(&call->routes->regions, range, reason);
    }
    return err;
}

/* The body's timeout is as that of the header. */
static int set_timeout(struct sl_serve_call *call, struct sl_reason *reason)
{
    struct sl_serve_request *request = &call->request;
    const uint64_t us = call->body.timeout_us;
    if (us > SL_HTTP_INFER_TIMEOUT_MS * 1000ULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "parameters.timeout is %llu us: at most %llu is accepted",
                              (unsigned long long)us, SL_HTTP_INFER_TIMEOUT_MS * 1000ULL);
    }
    if (us > 0) {
        request->deadline_ns = request->arrived_ns + us * SL_CLOCK_NS_PER_US;
    }
    return 0;
}

/* The JSON of an inference is complete: decodes it. */
static int decode(struct sl_serve_call *call, struct sl_reason *reason)
{
    struct sl_serve_request *request = &call->request;
    const bool is_announced = call->json_bytes != SIZE_MAX;
    int err = sl_http_body_parse(call->text.bytes, call->text.count, &call->body, request, reason);
    err = err != 0 ? err : check_regions(call, reason);
    err = err != 0 ? err : set_timeout(call, reason);
    if (err != 0) {
        return err;
    }
    if (!is_announced && call->body.binary_bytes > 0) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "inputs with binary_data_size need the header " SL_HTTP_INFER_JSON_HEADER);
    }
    if (is_announced && call->http.body_bytes != SL_HTTP_UNKNOWN_BYTES &&
        call->http.body_bytes - call->json_bytes != call->body.binary_bytes) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "the body has %llu bytes behind its JSON, the binary_data_size of "
                              "its inputs are %llu together",
                              (unsigned long long)(call->http.body_bytes - call->json_bytes),
                              (unsigned long long)call->body.binary_bytes);
    }
    return call->body.binary_bytes == 0 ? http_infer_place(call, reason) : 0;
}

static void decode_text(struct sl_serve_call *call)
{
    struct sl_reason reason;
    call->is_parsed = true;
    const int err = http_infer_append(call, &call->text, "", 0) ? decode(call, &reason) : 0;
    if (err != 0) {
        sl_serve_call_fail(call, err, reason.text, 0);
    }
}

/* Takes a piece of the binary tensors. Until half of their bytes have come, the call buffers them:
 * an announced length alone takes no memory of the gateway. */
static void receive_binary(struct sl_serve_call *call, const void *piece, size_t bytes)
{
    const uint64_t all = call->body.binary_bytes, at = call->binary_at;
    struct sl_reason reason;
    if (bytes > all - at) {
        sl_http_call_reply_error(&call->http, 400, "the body has more bytes than its inputs");
        return;
    }
    call->binary_at += bytes;
    if (call->request.input == NULL && call->binary_at < all - call->binary_at) {
        (void)http_infer_append(call, &call->binary, piece, bytes);
        return;
    }
    const int err = call->request.input == NULL ? http_infer_place(call, &reason) : 0;
    if (err != 0) {
        sl_serve_call_fail(call, err, reason.text, 0);
    } else {
        sl_http_body_put_binary(&call->body, &call->request, at, piece, bytes);
    }
}

void sl_http_infer_receive(void *ctx, struct sl_http_call *http, const void *piece, size_t bytes)
{
    struct sl_serve_call *call = sl_serve_call_of(http);
    const size_t left = call->json_bytes - call->text.count;
    const size_t json = call->is_parsed ? 0 : bytes < left ? bytes : left;
    call->received_bytes += bytes;
    if (call->progress_bytes == 0 ||
        call->received_bytes - call->progress_bytes >= PROGRESS_BYTES) {
        call->progress_bytes = call->received_bytes;
        sl_list_append(&call->routes->receiving, &call->receiving);
    }
    const bool has_room = json == 0 || http_infer_append(call, &call->text, piece, json);
    if (has_room && !call->is_parsed && call->text.count == call->json_bytes) {
        decode_text(call);
    }
    if (http->reply.status == 0 && bytes > json) {
        receive_binary(call, (const uint8_t *)piece + json, bytes - json);
    }
    if (http->reply.status != 0) {
        sl_http_infer_free_body(call);
    }
}

/* ---- the inference ---- */

void sl_http_infer_run(struct sl_serve_call *call)
{
    if (call->json_bytes == SIZE_MAX) {
        decode_text(call);
    }
    if (call->http.reply.status != 0) {
        return;
    }
    if (!call->is_parsed || call->binary_at != call->body.binary_bytes) {
        sl_http_call_reply_error(&call->http, 400, "the body ends before its %s",
                                 call->is_parsed ? "binary tensors do" : SL_HTTP_INFER_JSON_HEADER);
        return;
    }
    sl_serve_call_submit(call, SL_SERVE_INFER);
}

/* Writes the outputs that the caller wants in shared memory. */
static int write_regions(struct sl_serve_call *call, struct sl_reason *reason)
{
    const struct sl_serve_request *request = &call->request;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < call->body.output_count; i++) {
        const struct sl_http_body_range *range = &call->body.outputs[i].range;
        const struct sl_serve_tensor *tensor = sl_http_body_find_output(&call->body, request, i);
        if (range->region[0] == '\0' || tensor == NULL) {
            continue; /* NULL: sl_http_body_answer says so */
        }
        err = tensor->bytes <= range->bytes
                  ? sl_http_regions_write(&call->routes->regions, range,
                                          request->answer.output + tensor->offset, tensor->bytes,
                                          reason)
                  : sl_reason_fail(reason, SL_ERR_INVALID,
                                   "output `%s` has %llu bytes: its shared_memory_byte_size in "
                                   "region `%s` is %llu",
                                   tensor->name, (unsigned long long)tensor->bytes, range->region,
                                   (unsigned long long)range->bytes);
    }
    return err;
}

void sl_http_infer_answer(struct sl_serve_call *call)
{
    struct sl_serve_request *request = &call->request;
    const uint64_t begun_ns = http_infer_now(call);
    struct sl_reason reason;
    char *text;
    size_t bytes, json_bytes;
    int err = write_regions(call, &reason);
    err = err != 0 ? err
                   : sl_http_body_answer(&call->body, request, &text, &bytes, &json_bytes, &reason);
    call->output_ns = http_infer_now(call) - begun_ns;
    request->answer.err = err;
    if (err != 0) {
        sl_serve_call_fail(call, err, reason.text, 0);
        return;
    }
    if (json_bytes > 0) {
        sl_reply_header_format(&call->http.reply, SL_HTTP_INFER_JSON_HEADER, "%zu", json_bytes);
    }
    sl_http_call_reply(&call->http, 200,
                       json_bytes > 0 ? "application/octet-stream" : SL_SERVE_CALL_JSON, text,
                       bytes);
}
