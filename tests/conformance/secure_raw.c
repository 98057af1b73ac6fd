#include "secure_raw.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "authority.h"
#include "core/assert.h"
#include "tcp.h"

#define PUMPS_MAX   512
#define PIECE_BYTES 16384

struct pump {
    pthread_t thread;
    SSL *ssl;
    int socket;   /* to the transport */
    int far, end; /* the pair: the test has `far` */
    bool renews_keys;
};

static struct pump pumps[PUMPS_MAX];
static unsigned pump_count;

/* OpenSSL writes to sockets without MSG_NOSIGNAL. */
static void hold_sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* From the test to the transport. False: the test has closed its end. */
static bool pump_out(struct pump *pump)
{
    char piece[PIECE_BYTES];
    ssize_t got = TEMP_FAILURE_RETRY(recv(pump->end, piece, sizeof piece, 0));
    if (got <= 0) {
        SSL_shutdown(pump->ssl);
        shutdown(pump->socket, SHUT_WR);
        return false;
    }
    if (pump->renews_keys) {
        SSL_key_update(pump->ssl, SSL_KEY_UPDATE_REQUESTED);
    }
    return SSL_write(pump->ssl, piece, (int)got) == got;
}

/* The other way. False: the transport has closed. */
static bool pump_in(struct pump *pump)
{
    char piece[PIECE_BYTES];
    do {
        int got = SSL_read(pump->ssl, piece, sizeof piece);
        if (got <= 0) {
            return false;
        }
        for (ssize_t at = 0, sent; at < got; at += sent) {
            sent = send(pump->end, piece + at, (size_t)(got - at), MSG_NOSIGNAL);
            if (sent <= 0) {
                sent = got; /* the test reads no more; what comes is thrown away until the end */
            }
        }
    } while (SSL_pending(pump->ssl) > 0);
    return true;
}

static void *run_pump(void *ctx)
{
    struct pump *pump = ctx;
    hold_sigpipe();
    struct pollfd polled[] = {{.fd = pump->end, .events = POLLIN},
                              {.fd = pump->socket, .events = POLLIN}};
    /* Either end is passed on, and the other way goes on. */
    while ((polled[0].fd >= 0 || polled[1].fd >= 0) && poll(polled, 2, -1) > 0) {
        if (polled[0].revents != 0 && !pump_out(pump)) {
            polled[0].fd = -1;
        }
        if (polled[1].revents != 0 && !pump_in(pump)) {
            shutdown(pump->end, SHUT_WR);
            polled[1].fd = -1;
        }
    }
    SSL_free(pump->ssl);
    close(pump->socket);
    close(pump->end);
    return NULL;
}

static SSL *shake_hands(int fd, const struct secure_raw_manner *manner)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    sl_assert(ctx != NULL);
    if (manner->files != NULL) {
        SSL_CTX_use_certificate_chain_file(ctx, manner->files->certificate);
        SSL_CTX_use_PrivateKey_file(ctx, manner->files->key, SSL_FILETYPE_PEM);
    }
    if (manner->version_max != 0) {
        SSL_CTX_set_max_proto_version(ctx, manner->version_max);
    }
    SSL *ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    SSL_set_fd(ssl, fd);
    int done;
    do { /* a receive with a timeout ends with EINTR if the process was stopped */
        errno = 0;
        done = SSL_connect(ssl);
    } while (done != 1 && errno == EINTR);
    if (done != 1) {
        SSL_free(ssl);
        return NULL;
    }
    return ssl;
}

int secure_raw_open(const struct sl_endpoint *endpoint, const struct secure_raw_manner *manner)
{
    int fd = tcp_connect_raw(endpoint);
    if (fd < 0) {
        return -1;
    }
    hold_sigpipe();
    SSL *ssl = shake_hands(fd, manner);
    int pair[2];
    if (ssl == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        close(fd);
        return -1;
    }
    sl_assert(pump_count < PUMPS_MAX);
    struct pump *pump = &pumps[pump_count++];
    *pump = (struct pump){.ssl = ssl,
                          .socket = fd,
                          .far = pair[0],
                          .end = pair[1],
                          .renews_keys = manner->renews_keys};
    struct timeval patience = {.tv_sec = WAIT_S};
    setsockopt(pump->far, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sl_assert(pthread_create(&pump->thread, NULL, run_pump, pump) == 0);
    return pump->far;
}

int secure_raw_connect(const struct sl_endpoint *endpoint)
{
    struct secure_raw_manner manner = {.files = authority_files(AUTHORITY_NODE)};
    return secure_raw_open(endpoint, &manner);
}

void secure_raw_join(void)
{
    while (pump_count > 0) {
        pthread_join(pumps[--pump_count].thread, NULL);
    }
}
