/* A metadata server over HTTP for tests, as Mooncake has them: GET, PUT and DELETE of ?key=KEY, on
 * a thread of its own, a connection for each request. It may misbehave: then every request gets the
 * same bytes. Assertions of the test fail when it cannot start. */
#ifndef SL_TESTS_SUPPORT_HTTP_SERVER_H
#define SL_TESTS_SUPPORT_HTTP_SERVER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_SERVER_KEYS_MAX 16

struct http_server_pair {
    char key[300], value[4096];
};

struct http_server {
    uint16_t port;     /* on 127.0.0.1; nobody listens there after the stop */
    const char *says;  /* to every request; NULL: it is a good server */
    size_t blanks_max; /* with says: how many spaces follow */
    struct http_server_pair pairs[HTTP_SERVER_KEYS_MAX]; /* read when no request is in flight */
    uint32_t pair_count, asked;
    char last[512]; /* first line of the last request */
    int listener, stop[2];
    pthread_t thread;
};

void http_server_start(struct http_server *server, const char *says, size_t blanks_max);
void http_server_stop(struct http_server *server);

/* NULL: there is no such key. */
const char *http_server_value(const struct http_server *server, const char *key);

#endif
