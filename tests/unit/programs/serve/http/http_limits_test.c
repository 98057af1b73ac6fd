/* What a caller, slow or hostile, may hold and send. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/rlimit.h"
#include "http_fixture.h"

/* Sends a head that announces `all` bytes behind the JSON, the JSON, and `sent` of the bytes. */
static void begin_binary(struct fixture *f, size_t all, size_t sent)
{
    char json[256], head[512];
    char *bytes = calloc(1, sent + 1);
    assert_non_null(bytes);
    const int length =
        snprintf(json, sizeof json,
                 "{\"inputs\":[{\"name\":\"x\",\"shape\":[%zu],\"datatype\":\"UINT8\","
                 "\"parameters\":{\"binary_data_size\":%zu}}],\"outputs\":"
                 "[{\"name\":\"x\",\"parameters\":{\"binary_data\":true}}]}",
                 all, all);
    const int head_bytes = snprintf(head, sizeof head,
                                    "POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\n"
                                    "Inference-Header-Content-Length: %d\r\n"
                                    "Content-Length: %zu\r\n\r\n%s",
                                    length, (size_t)length + all, json);
    say(f, head, (size_t)head_bytes);
    say(f, bytes, sent);
    free(bytes);
}

static void await_memory(struct fixture *f, int64_t count)
{
    while (atomic_load(&f->gateway.memory_count) != count) {
        (void)usleep(1000);
    }
}

CASE(http_limits__memory_is_not_held_by_an_announcement)
{
    f->gateway.memory_count_max = 1;
    begin_binary(f, 32 << 20, 100);
    const int idle = f->fd;
    f->fd = 0;
    dial(f);
    ask(f, "POST /v2/models/echo/infer", "", X); /* its turn comes after that of the other one */
    expect(f, 200, "");
    assert_int_equal(atomic_load(&f->gateway.memory_count), 0);
    assert_int_equal(close(idle), 0);
}

CASE(http_limits__a_body_that_stands_still_loses_its_memory)
{
    const size_t all = 1 << 20;
    f->gateway.memory_count_max = 1;
    begin_binary(f, all, all / 2 + 1);
    await_memory(f, 1);
    const int slow = f->fd;
    f->fd = 0;
    dial(f);
    check(f, "POST /v2/models/echo/infer", "", X, 200, "");
    await_memory(f, 0);
    dial(f);
    begin_binary(f, 3000, 3000); /* a whole one: half of it would be buffered */
    assert_true(hear(f));
    assert_int_equal(f->status, 200);
    const int other = f->fd;
    f->fd = slow;
    char *rest = calloc(1, all);
    assert_non_null(rest);
    say(f, rest, all - all / 2 - 1);
    free(rest);
    assert_true(hear(f));
    expect(f, 503, "this body came more slowly");
    assert_int_equal(close(other), 0);
}

CASE(http_limits__a_body_above_the_limit_is_refused)
{
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

CASE(http_limits__each_route_has_its_limit)
{
    static char body[8192];
    memset(body, ' ', 4097);
    static const char *const routes[] = {"POST /v2/repository/index",
                                         "POST /v2/repository/models/echo/load",
                                         "POST /v2/repository/models/echo/unload"};
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        char head[256];
        (void)snprintf(head, sizeof head, "%s HTTP/1.1\r\nHost: a\r\nContent-Length: 4097\r\n\r\n",
                       routes[i]);
        say(f, head, strlen(head));
        say(f, body, 4097);
        assert_true(hear(f));
        expect(f, 413, "at most 4096 bytes");
    }
    static const char large[] = /* too large to be read only for the reply */
        "POST /v2/repository/index HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n";
    say(f, large, sizeof large - 1);
    assert_true(hear(f));
    expect(f, 413, "at most 4096 bytes");
    dial(f);
    check(f, "GET /v2/health/live", "", "x", 413, "at most 0 bytes");
}

CASE(http_limits__two_ends_of_a_body_are_refused)
{
    static const char *const heads[] = {
        "Content-Length: 0\r\nContent-Length: 40\r\n\r\n",
        "Content-Length: 40\r\nContent-Length: 0\r\n\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        char text[512];
        const int bytes = snprintf(text, sizeof text,
                                   "POST /v2/repository/index HTTP/1.1\r\nHost: a\r\n%s"
                                   "GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n",
                                   heads[i]);
        dial(f);
        say(f, text, (size_t)bytes);
        assert_true(hear(f));
        expect(f, 400, "Connection: close");
        assert_false(hear(f)); /* what follows is no request */
    }
    dial(f);
    check(f, "POST /v2/repository/index", "Content-Length: 0\r\n", "", 200, "");
}

CASE(http_limits__options_without_effect_are_refused)
{
    static const struct {
        const char *line, *body, *why; /* NULL: accepted */
    } asked[] = {
        {"POST /v2/repository/index", "{\"ready\":\"yes\"}",
         "ready is of another type: true or false"},
        {"POST /v2/repository/index", "{\"raedy\":true}", "raedy is not supported"},
        {"POST /v2/repository/index", "[]", "the body is not a JSON object"},
        {"POST /v2/repository/index", "{\"ready\":false}", NULL},
        {"POST /v2/repository/models/echo/load", "not JSON", "the body is not a JSON object"},
        {"POST /v2/repository/models/echo/load", "{\"parameters\":{\"config\":\"{}\"}}",
         "parameters.config is not supported"},
        {"POST /v2/repository/models/echo/load", "{\"parameters\":1}",
         "parameters is of another type: an object"},
        {"POST /v2/repository/models/echo/load", "{\"config\":1}", "config is not supported"},
        {"POST /v2/repository/models/echo/load", "{\"parameters\":{}}", NULL},
        {"POST /v2/repository/models/echo/unload", "{\"parameters\":{\"unload_dependents\":1}}",
         "unload_dependents is of another type"},
        {"POST /v2/repository/models/echo/unload", "{\"parameters\":{\"unload_dependents\":false}}",
         NULL},
        {"POST /v2/repository/models/echo/load", "", NULL},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        ask(f, asked[i].line, "", asked[i].body);
        expect(f, asked[i].why == NULL ? 200 : 400, asked[i].why == NULL ? "" : asked[i].why);
    }
    ask(f, "POST /v2/repository/models/echo/versions/3/unload", "", "");
    expect(f, 404, "no such route: unload is for all versions");
    check(f, "POST /v2/models/echo/infer", "", X, 200, "");
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

/* Passes the seconds, and more if the server has accepted late: until it answers or disconnects.
 * The kernel delivers packets in real time, also while it is busy: so each of these seconds takes
 * some of it. */
static void pass_until_heard(struct fixture *f, uint64_t seconds)
{
    struct pollfd answer = {.fd = f->fd, .events = POLLIN};
    pass(f, seconds);
    while (poll(&answer, 1, 20) == 0) {
        pass(f, 1);
    }
}

CASE(http_limits__a_slow_peer_is_disconnected_after_10_s)
{
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
    check(f, "POST /v2/models/echo/infer", "", X, 200, "");
    pass(f, 9);
    check(f, "POST /v2/models/echo/infer", "", X, 200, "");
}

CASE(http_limits__a_request_that_computes_is_not_disconnected)
{
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

CASE(http_limits__a_full_server_refuses_until_peers_have_ended)
{
    static int fds[SL_SERVE_HTTP_CONNECTIONS_MAX];
    struct rlimit limit;
    sl_rlimit_raise(RLIMIT_NOFILE);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < 2 * SL_SERVE_HTTP_CONNECTIONS_MAX + 64) {
        print_message("this process may open too few files\n");
        skip();
    }
    static const char begun[] =
        "POST /v2/models/echo/infer HTTP/1.1\r\nContent-Length: 100\r\n\r\n";
    for (size_t i = 0; i < SL_SERVE_HTTP_CONNECTIONS_MAX; i++) {
        say(f, begun, sizeof begun - 1);
        fds[i] = f->fd;
        f->fd = 0;
        dial(f);
    }
    assert_false(hear(f)); /* the answer has no length: it ends with the connection */
    assert_non_null(strstr(f->answer, "HTTP/1.1 503 "));
    pass(f, 12);
    for (f->status = 0; f->status != 200;) { /* the peers' connections end in real time */
        static const char question[] = "GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n";
        dial(f);
        (void)send(f->fd, question, sizeof question - 1, MSG_NOSIGNAL);
        (void)hear(f);
    }
    for (size_t i = 0; i < SL_SERVE_HTTP_CONNECTIONS_MAX; i++) {
        assert_int_equal(close(fds[i]), 0);
    }
}

static void quiesce(void *ctx)
{
    struct fixture *f = ctx;
    sl_http_server_quiesce(sl_serve_http_routes_server(f->routes));
}

CASE(http_limits__quiesce_ends_nothing_but_the_listener)
{
    ask(f, "GET /v2", "", "");
    reactor_thread_run(&f->thread, quiesce, f);
    check(f, "POST /v2/models/echo/infer", "", X, 200, "");
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(f->port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), -1);
    assert_int_equal(close(fd), 0);
}
