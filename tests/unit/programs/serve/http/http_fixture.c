#include "http_fixture.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the gateway ---- */

static const struct sl_object_entry entries[] = {
    {.name = "echo", .version = 3},
    {.name = "echo", .version = 7},
    {.name = "late", .version = 2},
    {.name = "team/model", .version = 1},
};
static const struct sl_object_list list = {4, (struct sl_object_entry *)entries};

uint8_t *sl_serve_gateway_memory(struct sl_serve_gateway *gateway, uint64_t bytes)
{
    if (gateway->memory_count_max > 0 &&
        atomic_load(&gateway->memory_count) == gateway->memory_count_max) {
        return NULL;
    }
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
    request->answer.err = err;
    (void)snprintf(request->answer.text, sizeof request->answer.text, "%s", text);
}

static void compute(const struct sl_serve_gateway *gateway, struct sl_serve_request *request)
{
    static const char description[] =
        "{\"name\":\"echo\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,2]},"
        "{\"name\":\"n\",\"datatype\":\"BOOL\",\"shape\":[-1]}],\"max_batch_size\":4}";
    request->answer.version = request->version != 0 ? request->version : 7;
    request->answer.queue_us = 10;
    request->answer.load_us = 20;
    request->answer.compute_us = 30;
    if (gateway->workers == 0) {
        refuse(request, SL_ERR_AGAIN, "no worker has joined");
    } else if (request->version == 8) {
        refuse(request, SL_ERR_NOT_FOUND, "model echo has no version 8; it has: 3 7");
    } else if (strcmp(request->model, "late") == 0) {
        refuse(request, SL_ERR_DEADLINE, "20 ms in the queue, 981 ms for loading");
    } else if (strcmp(request->model, "busy") == 0) {
        request->answer.retry_ms = 1200;
        refuse(request, SL_ERR_AGAIN, "cannot be answered in time");
    } else if (strcmp(request->model, "damaged") == 0) {
        refuse(request, SL_ERR_CORRUPT, "block 3");
    } else if (strcmp(request->model, "strict") == 0) {
        refuse(request, SL_ERR_INVALID, "input `x` has another type");
    } else if (strcmp(request->model, "echo") != 0 && strcmp(request->model, "team/model") != 0) {
        refuse(request, SL_ERR_NOT_FOUND, "model \xff is unknown");
    } else if (request->kind == SL_SERVE_DESCRIBE) {
        request->answer.output = (const uint8_t *)description;
        request->answer.output_count = 1;
        request->answer.outputs[0].bytes = sizeof description - 1;
    } else if (request->kind == SL_SERVE_INFER) {
        request->answer.output = request->input;
        request->answer.output_count = request->input_count;
        memcpy(request->answer.outputs, request->inputs, sizeof request->answer.outputs);
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
    *out = (struct sl_serve_gateway_stats){.results = {[SL_SERVE_ANSWERED] = 5},
                                           .workers = gateway->workers,
                                           .able_workers = gateway->able_workers,
                                           .has_models = true};
}

/* ---- the fixture ---- */

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
    f->gateway.workers = f->gateway.able_workers = 1;
    sl_list_init(&f->gateway.requests);
    assert_int_equal(sl_serve_http_routes_create(f->thread.reactor, &f->gateway, &f->listen,
                                                 &f->routes, &reason),
                     0);
    f->port = sl_http_server_port(sl_serve_http_routes_server(f->routes));
}

void dial(struct fixture *f)
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

void set_up(struct fixture *f, const char *token)
{
    memset(f, 0, sizeof *f);
    f->token.byte_count = (uint32_t)strlen(token);
    memcpy(f->token.bytes, token, strlen(token));
    f->listen = (struct sl_http_listen){
        .endpoint = {.host = "127.0.0.1"}, .source = "--http", .token = &f->token};
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

void tear_down(struct fixture *f)
{
    assert_int_equal(close(f->fd), 0);
    reactor_thread_run(&f->thread, stop, f);
    reactor_thread_fini(&f->thread);
    assert_int_equal(atomic_load(&f->gateway.memory_count), 0);
}

void say(struct fixture *f, const void *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        const ssize_t sent = send(f->fd, (const char *)bytes + at, count - at, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

bool hear(struct fixture *f)
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

void ask_bytes(struct fixture *f, const char *line, const char *headers, const void *body,
               size_t count)
{
    char text[1024];
    const int bytes =
        snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n", line,
                 headers, count);
    say(f, text, (size_t)bytes);
    say(f, body, count);
    assert_true(hear(f));
}

void ask(struct fixture *f, const char *line, const char *headers, const char *body)
{
    ask_bytes(f, line, headers, body, strlen(body));
}

void expect(struct fixture *f, int status, const char *in_answer)
{
    if (f->status != status || strstr(f->answer, in_answer) == NULL) {
        fail_msg("%d with \"%s\" is expected, not %s", status, in_answer, f->answer);
    }
}

void check(struct fixture *f, const char *line, const char *headers, const char *body, int status,
           const char *in_answer)
{
    ask(f, line, headers, body);
    expect(f, status, in_answer);
}
