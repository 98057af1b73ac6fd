/* A client over sockets, the server on a reactor with a thread, and behind it a stand-in for the
 * gateway: the answer to an inference has the inputs as its outputs; other models fail, or are held
 * until the test releases them. */
#ifndef SL_TESTS_UNIT_SERVE_HTTP_FIXTURE_H
#define SL_TESTS_UNIT_SERVE_HTTP_FIXTURE_H

#include <stdatomic.h>

#include "core/clock.h"
#include "programs/serve/http/http_routes.h"
#include "tests/support/reactor_thread.h"
#include "tests/support/unit.h"

struct sl_serve_gateway {
    struct sl_timer timer;
    struct sl_reactor *reactor;
    struct sl_list requests;
    bool is_holding;
    _Atomic uint32_t held;
    uint64_t last_timeout_ns;
    _Atomic int64_t memory_count; /* ranges in use */
    int64_t memory_count_max;     /* 0: no limit */
    uint32_t workers, able_workers;
};

struct fixture {
    struct reactor_thread thread;
    struct sl_clock clock;
    _Atomic uint64_t now_ns; /* moved by the test alone */
    struct sl_serve_gateway gateway;
    struct sl_secret token;
    struct sl_http_listen listen;
    struct sl_serve_http_routes *routes;
    uint16_t port;
    int fd;
    char answer[32768], *body;
    int status;
};

void set_up(struct fixture *f, const char *token);
void tear_down(struct fixture *f);

#define CASE(name) SL_CASE_USING(name, struct fixture, f, set_up, tear_down, "")

/* A new connection in f->fd, after the one before was closed; 0: there is none. */
void dial(struct fixture *f);

void say(struct fixture *f, const void *bytes, size_t count);

/* Reads one answer with a Content-Length. False: the connection has ended before. */
bool hear(struct fixture *f);

/* Sends a request, and reads the answer. headers: each with its CRLF. */
void ask_bytes(struct fixture *f, const char *line, const char *headers, const void *body,
               size_t count);
void ask(struct fixture *f, const char *line, const char *headers, const char *body);

void expect(struct fixture *f, int status, const char *in_answer);
void check(struct fixture *f, const char *line, const char *headers, const char *body, int status,
           const char *in_answer); /* both */

#define X                                                                                          \
    "{\"id\":\"9\",\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\","             \
    "\"data\":[[1.5,-2]]}]}"

#endif
