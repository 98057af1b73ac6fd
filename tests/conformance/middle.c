#include "middle.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/assert.h"
#include "tcp.h"

#define PIECE_BYTES 4096

struct way {
    int from, to;
    int64_t flip_at, cut_at;
    int64_t passed;
};

/* False: this way is at its end. */
static bool pass(struct middle *middle, struct way *way)
{
    uint8_t piece[PIECE_BYTES];
    ssize_t got = recv(way->from, piece, sizeof piece, 0);
    if (got <= 0) {
        shutdown(way->to, SHUT_WR);
        return false;
    }
    int64_t flip = way->flip_at - way->passed, cut = way->cut_at - way->passed;
    if (way->flip_at >= 0 && flip >= 0 && flip < got) {
        piece[flip] ^= 0x10;
        middle->meddled = true;
    }
    if (way->cut_at >= 0 && cut <= got) {
        got = cut;
        middle->meddled = true;
    }
    for (ssize_t at = 0, sent; at < got; at += sent) {
        sent = send(way->to, piece + at, (size_t)(got - at), MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
    }
    way->passed += got;
    return way->cut_at < 0 || way->passed < way->cut_at;
}

static void *run(void *ctx)
{
    struct middle *middle = ctx;
    int client = accept4(middle->listener, NULL, NULL, SOCK_CLOEXEC);
    int server = client >= 0 ? tcp_connect_raw(&middle->to) : -1;
    if (server >= 0) {
        struct way ways[2] = {{client, server, -1, -1, 0}, {server, client, -1, -1, 0}};
        struct way *meddled = &ways[middle->plan.to_client ? 1 : 0];
        meddled->flip_at = middle->plan.flip_at;
        meddled->cut_at = middle->plan.cut_at;
        struct pollfd polled[2] = {{.fd = client, .events = POLLIN},
                                   {.fd = server, .events = POLLIN}};
        bool cut = false;
        while (!cut && (polled[0].fd >= 0 || polled[1].fd >= 0) && poll(polled, 2, -1) > 0) {
            for (int i = 0; i < 2; i++) {
                if (polled[i].revents != 0 && !pass(middle, &ways[i])) {
                    polled[i].fd = -1;
                    cut = cut || (&ways[i] == meddled && meddled->cut_at >= 0);
                }
            }
        }
        shutdown(client, SHUT_RDWR);
        shutdown(server, SHUT_RDWR);
    }
    close(client);
    close(server);
    return NULL;
}

void middle_start(struct middle *middle, const struct sl_endpoint *to, struct middle_plan plan)
{
    *middle = (struct middle){.plan = plan, .endpoint = *to, .to = *to};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    middle->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sl_assert(bind(middle->listener, (struct sockaddr *)&address, bytes) == 0);
    sl_assert(listen(middle->listener, 8) == 0);
    sl_assert(getsockname(middle->listener, (struct sockaddr *)&address, &bytes) == 0);
    middle->endpoint.port = ntohs(address.sin_port);
    sl_assert(pthread_create(&middle->thread, NULL, run, middle) == 0);
}

void middle_stop(struct middle *middle)
{
    shutdown(middle->listener, SHUT_RDWR); /* for one to which nobody came */
    pthread_join(middle->thread, NULL);
    close(middle->listener);
}
