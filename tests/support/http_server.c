#include "tests/support/http_server.h"
#include "tests/support/free_port.h"
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static struct http_server_pair *find(struct http_server *server, const char *key)
{
    for (uint32_t i = 0; i < server->pair_count; i++) {
        if (strcmp(server->pairs[i].key, key) == 0) {
            return &server->pairs[i];
        }
    }
    return NULL;
}

const char *http_server_value(const struct http_server *server, const char *key)
{
    const struct http_server_pair *pair = find((struct http_server *)(uintptr_t)server, key);
    return pair == NULL ? NULL : pair->value;
}

/* Decodes the value of ?key= in the first line of a request. */
static void read_key(const char *line, char *key, size_t bytes)
{
    const char *at = strstr(line, "?key=");
    size_t used = 0;
    at = at == NULL ? "" : at + 5;
    while (*at != '\0' && *at != ' ' && used + 1 < bytes) {
        unsigned byte = (unsigned char)*at;
        if (*at == '%' && sscanf(at + 1, "%2x", &byte) == 1) {
            at += 2;
        }
        key[used++] = (char)byte;
        at++;
    }
    key[used] = '\0';
}

static void say(int fd, const char *status, const char *body)
{
    char text[5000];
    const int bytes = snprintf(text, sizeof text,
                               "HTTP/1.1 %s\r\nContent-Length: %zu\r\n"
                               "Connection: close\r\n\r\n%s",
                               status, strlen(body), body);
    (void)send(fd, text, (size_t)bytes, MSG_NOSIGNAL);
}

static void put(struct http_server *server, const char *key, const char *value)
{
    struct http_server_pair *pair = find(server, key);
    if (pair == NULL && server->pair_count < HTTP_SERVER_KEYS_MAX) {
        pair = &server->pairs[server->pair_count++];
        (void)snprintf(pair->key, sizeof pair->key, "%s", key);
    }
    if (pair != NULL) {
        (void)snprintf(pair->value, sizeof pair->value, "%s", value);
    }
}

static void answer(struct http_server *server, int fd, const char *request, const char *body)
{
    char key[300];
    read_key(server->last, key, sizeof key);
    struct http_server_pair *pair = find(server, key);
    if (strncmp(request, "PUT ", 4) == 0) {
        put(server, key, body);
        say(fd, "200 OK", "updated");
    } else if (pair == NULL) {
        say(fd, "404 Not Found", "no such key");
    } else if (strncmp(request, "DELETE ", 7) == 0) {
        *pair = server->pairs[--server->pair_count];
        say(fd, "200 OK", "deleted");
    } else {
        say(fd, "200 OK", pair->value);
    }
}

static void misbehave(const struct http_server *server, int fd)
{
    static const char BLANKS[4096] = {[0 ... 4095] = ' '};
    ssize_t sent = send(fd, server->says, strlen(server->says), MSG_NOSIGNAL);
    for (size_t left = server->blanks_max; sent >= 0 && left > 0; left -= (size_t)sent) {
        sent = send(fd, BLANKS, left < sizeof BLANKS ? left : sizeof BLANKS, MSG_NOSIGNAL);
    }
}

static void serve_one(struct http_server *server, int fd)
{
    char request[8192] = "";
    size_t used = 0, length = 0;
    const char *body = NULL;
    while (used + 1 < sizeof request && (body == NULL || strlen(body) < length)) {
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                               {.fd = server->stop[0], .events = POLLIN}};
        (void)poll(fds, 2, -1);
        const ssize_t got =
            fds[0].revents == 0 ? 0 : recv(fd, request + used, sizeof request - 1 - used, 0);
        if (got <= 0) {
            return;
        }
        used += (size_t)got;
        request[used] = '\0';
        body = strstr(request, "\r\n\r\n");
        const char *header = strcasestr(request, "\r\nContent-Length:");
        length = body == NULL || header == NULL ? 0 : (size_t)atol(header + 17);
        body = body == NULL ? NULL : body + 4;
    }
    (void)snprintf(server->last, sizeof server->last, "%.*s", (int)strcspn(request, "\r"), request);
    server->asked++;
    if (server->says != NULL) {
        misbehave(server, fd);
    } else {
        answer(server, fd, request, body);
    }
}

static void *serve(void *ctx)
{
    struct http_server *server = ctx;
    struct pollfd fds[] = {{.fd = server->listener, .events = POLLIN},
                           {.fd = server->stop[0], .events = POLLIN}};
    while (poll(fds, 2, -1) > 0 && fds[1].revents == 0) {
        const int fd = accept(server->listener, NULL, NULL);
        if (fd >= 0) {
            serve_one(server, fd);
            (void)close(fd);
        }
    }
    return NULL;
}

void http_server_start(struct http_server *server, const char *says, size_t blanks_max)
{
    memset(server, 0, sizeof *server);
    server->port = free_port();
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                        .sin_port = htons(server->port)};
    server->says = says;
    server->blanks_max = blanks_max;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(server->listener >= 0);
    assert_int_equal(bind(server->listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server->listener, 8), 0);
    assert_int_equal(pipe(server->stop), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

void http_server_stop(struct http_server *server)
{
    assert_int_equal(write(server->stop[1], "x", 1), 1);
    assert_int_equal(pthread_join(server->thread, NULL), 0);
    (void)close(server->listener);
    (void)close(server->stop[0]);
    (void)close(server->stop[1]);
}
