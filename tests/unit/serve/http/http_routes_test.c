/* A client over sockets, the server on a reactor with a thread, and behind it a stand-in for the
 * gateway: the answer to an inference has the inputs as its outputs; other models fail, or are held
 * until the test releases them. */
#include "serve/http/http_routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/rlimit.h"
#include "tests/support/reactor_thread.h"
#include "tests/support/unit.h"

/* ---- the gateway ---- */

struct sl_serve_gateway {
    struct sl_timer timer;
    struct sl_reactor *reactor;
    struct sl_list requests;
    bool is_holding;
    _Atomic uint32_t held;
    uint64_t last_timeout_ns;
    _Atomic int64_t memory_count; /* ranges in use */
    uint32_t workers;
};

static const struct sl_object_entry entries[] = {
    {.name = "echo", .version = 3},
    {.name = "echo", .version = 7},
    {.name = "late"},
    {.name = "team/model", .version = 1},
};
static const struct sl_object_list list = {4, (struct sl_object_entry *)entries};

uint8_t *sl_serve_gateway_memory(struct sl_serve_gateway *gateway, uint64_t bytes)
{
    atomic_fetch_add(&gateway->memory_count, 1);
    return aligned_alloc(64, bytes + 64);
}

void sl_serve_gateway_memory_free(struct sl_serve_gateway *gateway, uint8_t *memory)
{
    atomic_fetch_sub(&gateway->memory_count, 1);
    free(memory);
}

static void refuse(struct sl_serve_request *request, int err, const char *text)
{
    request->err = err;
    (void)snprintf(request->text, sizeof request->text, "%s", text);
}

static void compute(const struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    static const char description[] = "{\"name\":\"echo\",\"inputs\":[]}";
    request->answered_version = request->version != 0 ? request->version : 7;
    request->queue_us = 10;
    request->load_us = 20;
    request->compute_us = 30;
    if (gateway->workers == 0) {
        refuse(request, SL_ERR_AGAIN, "no worker has joined");
    } else if (request->version == 8) {
        refuse(request, SL_ERR_NOT_FOUND, "model echo has no version 8; it has: 3 7");
    } else if (strcmp(request->model, "late") == 0) {
        refuse(request, SL_ERR_DEADLINE, "20 ms in the queue, 981 ms for loading");
    } else if (strcmp(request->model, "busy") == 0) {
        request->retry_ms = 1200;
        refuse(request, SL_ERR_AGAIN, "cannot be answered in time");
    } else if (strcmp(request->model, "damaged") == 0) {
        refuse(request, SL_ERR_CORRUPT, "block 3");
    } else if (strcmp(request->model, "strict") == 0) {
        refuse(request, SL_ERR_INVALID, "input `x` has another type");
    } else if (strcmp(request->model, "echo") != 0 && strcmp(request->model, "team/model") != 0) {
        refuse(request, SL_ERR_NOT_FOUND, "model \xff is unknown");
    } else if (request->kind == SL_SERVE_DESCRIBE) {
        request->output = (const uint8_t *)description;
        request->output_count = 1;
        request->outputs[0].bytes = sizeof description - 1;
    } else if (request->kind == SL_SERVE_INFER) {
        request->output = request->input;
        request->output_count = request->input_count;
        memcpy(request->outputs, request->inputs, sizeof request->outputs);
    }
}

static void on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_gateway *gateway = SL_CONTAINER_OF(timer, struct sl_serve_gateway, timer);
    while (!gateway->is_holding && !sl_list_empty(&gateway->requests)) {
        struct sl_serve_request *request =
            SL_CONTAINER_OF(sl_list_pop(&gateway->requests), struct sl_serve_request, link);
        compute(gateway, request);
        request->done(request);
    }
}

void sl_serve_gateway_submit(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    sl_list_append(&gateway->requests, &request->link);
    gateway->last_timeout_ns = request->deadline_ns - request->arrived_ns;
    if (gateway->is_holding) {
        atomic_fetch_add(&gateway->held, 1);
    } else {
        sl_reactor_arm(gateway->reactor, &gateway->timer, 0);
    }
}

void sl_serve_gateway_release(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    if (request->input != NULL) {
        sl_serve_gateway_memory_free(gateway, request->input);
    }
}

void sl_serve_gateway_cancel(struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    sl_list_remove(&request->link);
    sl_serve_gateway_release(gateway, request);
}

const struct sl_object_list *sl_serve_gateway_models(const struct sl_serve_gateway *gateway)
{
    return &list;
}

uint64_t sl_serve_gateway_versions(const struct sl_serve_gateway *gateway, const char *model,
                                   const struct sl_object_entry **first)
{
    uint64_t count = 0;
    for (size_t i = list.count; i-- > 0;) {
        if (strcmp(entries[i].name, model) == 0) {
            *first = &entries[i];
            count++;
        }
    }
    return count;
}

void sl_serve_gateway_stats(const struct sl_serve_gateway *gateway,
                            struct sl_serve_gateway_stats *out)
{
    *out = (struct sl_serve_gateway_stats){
        .answered = 5, .workers = gateway->workers, .has_models = true};
}

/* ---- the fixture ---- */

struct fixture {
    struct reactor_thread thread;
    struct sl_clock clock;
    _Atomic uint64_t now_ns; /* moved by the test alone */
    struct sl_serve_gateway gateway;
    struct sl_serve_http_settings settings;
    struct sl_serve_http_routes *routes;
    uint16_t port;
    int fd;
    char answer[8192], *body;
    int status;
};

static uint64_t clock_now(void *ctx)
{
    struct fixture *f = ctx;
    return atomic_load(&f->now_ns);
}

static void start(void *ctx)
{
    struct fixture *f = ctx;
    struct sl_reason reason;
    f->gateway.reactor = f->thread.reactor;
    f->gateway.timer.run = on_timer;
    f->gateway.workers = 1;
    sl_list_init(&f->gateway.requests);
    assert_int_equal(sl_serve_http_routes_create(f->thread.reactor, &f->gateway, &f->settings,
                                                 &f->routes, &reason),
                     0);
    f->port = sl_serve_http_port(sl_serve_http_routes_server(f->routes));
}

static void dial(struct fixture *f)
{
    if (f->fd > 0) {
        assert_int_equal(close(f->fd), 0);
    }
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(f->port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(f->fd, (const struct sockaddr *)&address, sizeof address), 0);
}

static void set_up(struct fixture *f, const char *token)
{
    memset(f, 0, sizeof *f);
    f->settings.endpoint = (struct sl_endpoint){.host = "127.0.0.1"};
    f->settings.token.byte_count = (uint32_t)strlen(token);
    memcpy(f->settings.token.bytes, token, strlen(token));
    f->now_ns = SL_CLOCK_NS_PER_S;
    f->clock = (struct sl_clock){.now_ns = clock_now, .ctx = f};
    reactor_thread_init(&f->thread, "http", &f->clock);
    reactor_thread_start(&f->thread);
    reactor_thread_run(&f->thread, start, f);
    dial(f);
}

static void stop(void *ctx)
{
    struct fixture *f = ctx;
    sl_serve_http_routes_destroy(&f->routes);
}

static void tear_down(struct fixture *f)
{
    assert_int_equal(close(f->fd), 0);
    reactor_thread_run(&f->thread, stop, f);
    reactor_thread_fini(&f->thread);
    assert_int_equal(atomic_load(&f->gateway.memory_count), 0);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, set_up, tear_down, "")

static void say(struct fixture *f, const void *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        const ssize_t sent = send(f->fd, (const char *)bytes + at, count - at, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

/* Reads one answer with a Content-Length. False: the connection has ended before. */
static bool hear(struct fixture *f)
{
    size_t have = 0;
    f->body = NULL;
    while (true) {
        f->answer[have] = '\0';
        char *end = strstr(f->answer, "\r\n\r\n");
        const char *length = strstr(f->answer, "\r\nContent-Length:");
        if (end != NULL && length != NULL &&
            have == (size_t)(end + 4 - f->answer) + strtoul(length + 17, NULL, 10)) {
            f->body = end + 4;
            f->status = atoi(f->answer + 9);
            return true;
        }
        const ssize_t got = recv(f->fd, f->answer + have, sizeof f->answer - 1 - have, 0);
        if (got <= 0) {
            return false;
        }
        have += (size_t)got;
    }
}

/* headers: each with its CRLF. */
static void ask(struct fixture *f, const char *line, const char *headers, const char *body)
{
    char text[4096];
    const int bytes =
        snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n%s",
                 line, headers, strlen(body), body);
    say(f, text, (size_t)bytes);
    assert_true(hear(f));
}

static void expect(struct fixture *f, int status, const char *in_answer)
{
    if (f->status != status || strstr(f->answer, in_answer) == NULL) {
        fail_msg("%d with \"%s\" is expected, not %s", status, in_answer, f->answer);
    }
}

#define X                                                                                          \
    "{\"id\":\"9\",\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\","             \
    "\"data\":[[1.5,-2]]}]}"

/* ---- the protocol ---- */

CASE(http_routes__server_health_and_metadata)
{
    struct fixture *f = fixture;
    ask(f, "GET /v2", "", "");
    expect(f, 200, "\"name\":\"starling-serve\"");
    expect(f, 200, "\"binary_tensor_data\"");
    ask(f, "GET /v2/health/live", "", "");
    expect(f, 200, "");
    ask(f, "GET /v2/health/ready", "", "");
    expect(f, 200, "");
    f->gateway.workers = 0;
    ask(f, "GET /v2/health/ready", "", "");
    expect(f, 503, "no worker");
    ask(f, "GET /v2/models/echo/ready", "", "");
    expect(f, 503, "Retry-After: 1");
    f->gateway.workers = 1;
    ask(f, "GET /v2/models/echo/ready", "", "");
    expect(f, 200, "");
    ask(f, "GET /v2/models/echo/versions/7/ready", "", "");
    expect(f, 200, "");
    ask(f, "GET /v2/models/echo/versions/8/ready", "", "");
    expect(f, 404, "it has: 3 7");
    ask(f, "GET /v2/models/none/ready", "", "");
    expect(f, 404, "unknown");
    ask(f, "GET /v2/models/echo", "", "");
    expect(f, 200, "{\"name\":\"echo\",\"inputs\":[]}");
    ask(f, "GET /v2/models/nothing", "", "");
    expect(f, 404, "model ? is unknown"); /* no UTF-8 */
    ask(f, "POST /v2/models/echo/infer", "", X);
    ask(f, "GET /metrics", "", "");
    expect(f, 200, "text/plain; version=0.0.4");
    expect(f, 200, "\nstarling_serve_requests_total{result=\"answered\"} 5\n");
    expect(f, 200, "\nstarling_serve_phase_seconds_total{phase=\"load\"} 2e-05\n");
}

CASE(http_routes__infer_with_json)
{
    struct fixture *f = fixture;
    for (int i = 0; i < 3; i++) { /* on one connection */
        ask(f, "POST /v2/models/echo/infer", "", X);
        expect(f, 200,
               "{\"model_name\":\"echo\",\"model_version\":\"7\",\"id\":\"9\",\"parameters\":"
               "{\"queue_us\":10,\"load_us\":20,\"compute_us\":30},\"outputs\":[{\"name\":\"x\","
               "\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":[1.5,-2]}]}");
    }
    assert_int_equal(f->gateway.last_timeout_ns, SL_CLOCK_NS_PER_S);
    ask(f, "POST /v2/models/echo/versions/3/infer", "Starling-Timeout-Ms: 250\r\n", X);
    expect(f, 200, "\"model_version\":\"3\"");
    assert_int_equal(f->gateway.last_timeout_ns, 250 * SL_CLOCK_NS_PER_MS);
    ask(f, "POST /v2/models/team/model/infer", "", X);
    expect(f, 200, "\"model_name\":\"team/model\"");
    ask(f, "POST /v2/models/team%2Fmodel/infer?a=b", "", X);
    expect(f, 200, "\"model_name\":\"team/model\"");
}

CASE(http_routes__infer_with_binary_tensors)
{
    struct fixture *f = fixture;
    static const char json[] =
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,8],\"datatype\":\"UINT8\","
        "\"parameters\":{\"binary_data_size\":8}}],"
        "\"parameters\":{\"binary_data_output\":true}}";
    char headers[64], body[256];
    (void)snprintf(headers, sizeof headers, "Inference-Header-Content-Length: %zu\r\n",
                   strlen(json));
    (void)snprintf(body, sizeof body, "%s%s", json, "ABCDEFGH");
    ask(f, "POST /v2/models/echo/infer", headers, body);
    expect(f, 200, "application/octet-stream");
    const char *length = strstr(f->answer, "Inference-Header-Content-Length: ");
    assert_non_null(length);
    assert_string_equal(f->body + atoi(length + strlen("Inference-Header-Content-Length: ")),
                        "ABCDEFGH");
    body[strlen(json) + 7] = '\0';
    ask(f, "POST /v2/models/echo/infer", headers, body);
    expect(f, 400, "7 bytes behind its JSON");
    ask(f, "POST /v2/models/echo/infer", "", json);
    expect(f, 400, "Inference-Header-Content-Length");
    ask(f, "POST /v2/models/echo/infer", "Inference-Header-Content-Length: 900\r\n", json);
    expect(f, 400, "Inference-Header-Content-Length: 900");
}

CASE(http_routes__infer_in_chunks)
{
    struct fixture *f = fixture;
    static const char json[] = "{\"inputs\":[{\"name\":\"x\",\"shape\":[8],\"datatype\":\"UINT8\","
                               "\"parameters\":{\"binary_data_size\":8}}]}";
    static const char binary[] = "\1\2\3\4\5\6\7\10\11";
    for (size_t bytes = 7; bytes <= 9; bytes++) {
        char text[512];
        int at = snprintf(text, sizeof text,
                          "POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\n"
                          "Inference-Header-Content-Length: %zu\r\n"
                          "Transfer-Encoding: chunked\r\n\r\n",
                          strlen(json));
        for (size_t i = 0; i < strlen(json) + bytes; i++) { /* of one byte each */
            say(f, text, (size_t)at);
            at = snprintf(text, sizeof text, "1\r\n%c\r\n",
                          i < strlen(json) ? json[i] : binary[i - strlen(json)]);
        }
        say(f, text, (size_t)at);
        say(f, "0\r\n\r\n", 5);
        assert_true(hear(f));
        expect(f, bytes == 8 ? 200 : 400,
               bytes == 7   ? "ends before its binary tensors"
               : bytes == 8 ? "\"data\":[1,2,3,4,5,6,7,8]"
                            : "more bytes than its inputs");
    }
}

CASE(http_routes__each_error_has_its_status)
{
    struct fixture *f = fixture;
    ask(f, "POST /v2/models/echo/infer", "", "{");
    expect(f, 400, "{\"error\":\"the body is not a JSON object");
    ask(f, "POST /v2/models/echo/infer", "", "");
    expect(f, 400, "not a JSON object");
    ask(f, "POST /v2/models/strict/infer", "", X);
    expect(f, 400, "input `x` has another type");
    ask(f, "POST /v2/models/none/infer", "", X);
    expect(f, 404, "");
    ask(f, "POST /v2/models/late/infer", "", X);
    expect(f, 504, "981 ms for loading");
    ask(f, "POST /v2/models/busy/infer", "", X);
    expect(f, 503, "Retry-After: 2");
    ask(f, "POST /v2/models/damaged/infer", "", X);
    expect(f, 503, "block 3");
    ask(f, "POST /v2/models/echo/versions/x/infer", "", X);
    expect(f, 400, "version `x`");
    ask(f, "POST /v2/models/echo/versions/0/infer", "", X);
    expect(f, 400, "version `0`");
    static const char *const timeouts[] = {"0", "3600001", "-1", "1s", "", "1e3"};
    for (size_t i = 0; i < sizeof timeouts / sizeof timeouts[0]; i++) {
        char header[64];
        (void)snprintf(header, sizeof header, "Starling-Timeout-Ms: %s\r\n", timeouts[i]);
        ask(f, "POST /v2/models/echo/infer", header, X);
        expect(f, 400, "Starling-Timeout-Ms");
    }
    ask(f, "GET /v2/models/echo/infer", "", "");
    expect(f, 405, "Allow: POST");
    ask(f, "POST /v2", "", "");
    expect(f, 405, "Allow: GET, HEAD");
    ask(f, "DELETE /v2/models/echo", "", "");
    expect(f, 405, "DELETE");
    ask(f, "GET /v3", "", "");
    expect(f, 404, "/v3");
    ask(f, "POST /v2/models/echo/infer", "Content-Encoding: gzip\r\n", X);
    expect(f, 415, "gzip");
}

CASE(http_routes__a_body_above_the_limit_is_refused)
{
    struct fixture *f = fixture;
    static const char *const heads[] = {
        /* Before it is sent. */
        "Expect: 100-continue\r\nContent-Length: 67108865\r\n\r\n",
        "Content-Length: 1000000000000\r\n\r\n",
        /* After it was sent. */
        "Content-Length: 67108865\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n4000001\r\n",
    };
    static char zeros[1 << 20];
    char head[256];
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        const int bytes = snprintf(
            head, sizeof head, "POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\n%s", heads[i]);
        dial(f);
        say(f, head, (size_t)bytes);
        for (size_t mib = 0; i >= 2 && mib < 64; mib++) {
            say(f, zeros, sizeof zeros);
        }
        say(f, "x\r\n0\r\n\r\n", i == 2 ? 1 : i == 3 ? 8 : 0);
        assert_true(hear(f));
        expect(f, 413, "67108864");
    }
    ask(f, "POST /v2/models/echo/infer", "", /* a shape that is larger */
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[16777217],\"datatype\":\"FP32\",\"data\":[1]}]}");
    expect(f, 413, "input `x`");
}

CASE(http_routes__repository)
{
    struct fixture *f = fixture;
    static const char unloaded[] =
        "{\"name\":\"echo\",\"version\":\"3\",\"state\":\"UNAVAILABLE\",\"reason\":\"unloaded\"}";
    ask(f, "POST /v2/repository/index", "", "");
    expect(f, 200, "{\"name\":\"echo\",\"version\":\"3\",\"state\":\"READY\",\"reason\":\"\"}");
    for (int i = 0; i < 2; i++) {
        ask(f, "POST /v2/repository/models/echo/unload", "", "");
        expect(f, 200, "");
        ask(f, "POST /v2/models/echo/infer", "", X);
        expect(f, 404, "unloaded");
        ask(f, "GET /v2/models/echo/ready", "", "");
        expect(f, 404, "unloaded");
        ask(f, "POST /v2/repository/index", "", "");
        expect(f, 200, unloaded);
        ask(f, "POST /v2/repository/index", "", "{\"ready\":true}");
        assert_null(strstr(f->answer, "echo"));
        expect(f, 200, "team/model");
    }
    ask(f, "POST /v2/repository/models/echo/load", "", "");
    expect(f, 200, "");
    ask(f, "POST /v2/models/echo/infer", "", X);
    expect(f, 200, "");
    ask(f, "POST /v2/repository/models/none/unload", "", "");
    expect(f, 404, "none");
    ask(f, "POST /v2/repository/models/none/load", "", "");
    expect(f, 404, "");
}

/* ---- access ---- */

SL_CASE_USING(http_routes__the_token_is_needed, struct fixture, set_up, tear_down,
              "0123456789abcdef")
{
    struct fixture *f = fixture;
    ask(f, "GET /v2", "", "");
    expect(f, 401, "WWW-Authenticate: Bearer");
    ask(f, "POST /v2/models/echo/infer", "Authorization: Basic 0123456789abcdef\r\n", X);
    expect(f, 401, "");
    ask(f, "GET /v2", "Authorization: Bearer 0123456789abcdeg\r\n", "");
    expect(f, 403, "token");
    ask(f, "GET /v2", "Authorization: Bearer 0123456789abcde\r\n", "");
    expect(f, 403, "token");
    ask(f, "GET /v2", "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n", "");
    expect(f, 403, "token");
    ask(f, "POST /v2/models/echo/infer", "authorization: bearer 0123456789abcdef\r\n", X);
    expect(f, 200, "");
}

SL_CASE(http_settings__beyond_loopback_need_a_token_or_leave)
{
    struct sl_serve_http_flags flags = {.address = "0.0.0.0:80"};
    struct sl_serve_http_settings settings;
    struct sl_reason reason;
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "--http-token-file"));
    assert_int_equal(sl_serve_http_settings_resolve(&flags, true, &settings, &reason), 0);
    flags.address = "here";
    assert_int_equal(sl_serve_http_settings_resolve(&flags, true, &settings, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "--http here"));

    char path[] = "/tmp/http-token-XXXXXX";
    const int fd = mkstemp(path);
    assert_int_equal(write(fd, "0123456789abcdef\n", 17), 17);
    flags = (struct sl_serve_http_flags){.address = "[::]:0", .token_file = path};
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason), 0);
    assert_int_equal(settings.token.byte_count, 16);
    sl_serve_http_settings_fini(&settings);
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason),
                     SL_ERR_INVALID);
    flags = (struct sl_serve_http_flags){.address = "127.0.0.1:0", .certificate = "/nowhere.pem"};
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "--http-tls-key"));
    flags.key = path;
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason), SL_ERR_IO);
    assert_non_null(strstr(reason.text, "/nowhere.pem"));
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}

/* ---- peers ---- */

static void hold(void *ctx)
{
    struct fixture *f = ctx;
    f->gateway.is_holding = true;
}

static void let_go(void *ctx)
{
    struct fixture *f = ctx;
    f->gateway.is_holding = false;
    sl_reactor_arm(f->thread.reactor, &f->gateway.timer, 0);
}

static void nothing(void *ctx)
{
}

/* Passes time, and a turn in which timers run. */
static void pass(struct fixture *f, uint64_t seconds)
{
    for (uint64_t i = 0; i < 2 * seconds; i++) {
        atomic_fetch_add(&f->now_ns, SL_CLOCK_NS_PER_S / 2);
        reactor_thread_run(&f->thread, nothing, NULL);
        reactor_thread_run(&f->thread, nothing, NULL);
    }
}

/* Passes the seconds, and more if the server has accepted late: until it answers or disconnects. */
static void pass_until_heard(struct fixture *f, uint64_t seconds)
{
    char byte;
    pass(f, seconds);
    while (recv(f->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {
        pass(f, 1);
    }
}

CASE(http__a_slow_peer_is_disconnected_after_10_s)
{
    struct fixture *f = fixture;
    static const char head[] = "POST /v2/models/echo/infer HTTP/1.1\r\nContent-Length: 100\r\n\r\n";
    dial(f); /* says nothing */
    pass_until_heard(f, 12);
    assert_false(hear(f));
    dial(f); /* bytes of a head */
    for (size_t i = 0; i < 6; i++) {
        (void)send(f->fd, head + i, 1, MSG_NOSIGNAL);
        pass(f, 2);
    }
    pass_until_heard(f, 0);
    assert_false(hear(f));
    dial(f); /* bytes of a body */
    say(f, head, sizeof head - 1);
    for (size_t i = 0; i < 6; i++) {
        (void)send(f->fd, " ", 1, MSG_NOSIGNAL);
        pass(f, 2);
    }
    pass_until_heard(f, 0);
    assert_false(hear(f));
    dial(f); /* in time */
    pass(f, 9);
    ask(f, "POST /v2/models/echo/infer", "", X);
    expect(f, 200, "");
    pass(f, 9);
    ask(f, "POST /v2/models/echo/infer", "", X);
    expect(f, 200, "");
}

CASE(http__a_request_that_computes_is_not_disconnected)
{
    struct fixture *f = fixture;
    char text[512];
    reactor_thread_run(&f->thread, hold, f);
    const int bytes = snprintf(text, sizeof text,
                               "POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\n"
                               "Content-Length: %zu\r\n\r\n%s",
                               strlen(X), X);
    say(f, text, (size_t)bytes);
    while (atomic_load(&f->gateway.held) == 0) {
        (void)usleep(1000);
    }
    pass(f, 60);
    reactor_thread_run(&f->thread, let_go, f);
    assert_true(hear(f));
    expect(f, 200, "");
}

CASE(http__a_full_server_accepts_again_when_peers_have_ended)
{
    struct fixture *f = fixture;
    static int fds[SL_HTTP_CONNECTIONS_MAX];
    struct rlimit limit;
    sl_rlimit_raise(RLIMIT_NOFILE);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < 2 * SL_HTTP_CONNECTIONS_MAX + 64) {
        print_message("this process may open too few files\n");
        skip();
    }
    static const char begun[] =
        "POST /v2/models/echo/infer HTTP/1.1\r\nContent-Length: 100\r\n\r\n";
    for (size_t i = 0; i < SL_HTTP_CONNECTIONS_MAX; i++) {
        say(f, begun, sizeof begun - 1);
        fds[i] = f->fd;
        f->fd = 0;
        dial(f);
    }
    static const char question[] = "GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n";
    say(f, question, sizeof question - 1);
    pass_until_heard(f, 12);
    assert_true(hear(f));
    expect(f, 200, "");
    for (size_t i = 0; i < SL_HTTP_CONNECTIONS_MAX; i++) {
        assert_int_equal(close(fds[i]), 0);
    }
}

static void quiesce(void *ctx)
{
    struct fixture *f = ctx;
    sl_serve_http_quiesce(sl_serve_http_routes_server(f->routes));
}

CASE(http__quiesce_ends_nothing_but_the_listener)
{
    struct fixture *f = fixture;
    ask(f, "GET /v2", "", "");
    reactor_thread_run(&f->thread, quiesce, f);
    ask(f, "POST /v2/models/echo/infer", "", X);
    expect(f, 200, "");
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(f->port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), -1);
    assert_int_equal(close(fd), 0);
}
