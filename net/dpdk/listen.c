/* The listener keeps no state of a client until the client returns a cookie, which proves that it
 * is reachable at its address. The id of an accepted connection is a hash of the request: so a
 * repeated request, after a lost answer, leads to the same connection. */
#include "net/dpdk/listen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/log.h"
#include "net/dpdk/conn.h"
#include "net/dpdk/conn_table.h"
#include "net/dpdk/connect.h"
#include "net/dpdk/cookie.h"
#include "net/dpdk/route.h"
#include "net/dpdk/send.h"
#include "net/dpdk/time_wait.h"

#define SLOT_NS     (4 * SL_CLOCK_NS_PER_S) /* a cookie is valid in its slot and the next */
#define WORDS_BYTES 120U                    /* of the text of a REFUSE */

struct sl_dpdk_listener {
    struct sl_dpdk_listener *next;
    const struct sl_transport_events *events;
    void *ctx;
    struct in6_addr ip; /* unspecified: any local address */
    uint16_t port;
};

static bool is_same_ip(const struct in6_addr *a, const struct in6_addr *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Listeners */

static bool is_taken(const struct sl_dpdk *dpdk, const struct in6_addr *ip, uint16_t port)
{
    for (const struct sl_dpdk_listener *listener = dpdk->listeners; listener != NULL;
         listener = listener->next) {
        if (listener->port == port && (sl_dpdk_route_is_any(&listener->ip) ||
                                       sl_dpdk_route_is_any(ip) || is_same_ip(&listener->ip, ip))) {
            return true;
        }
    }
    return false;
}

/* Chooses the endpoint's port: this reactor listens on that plus its index. So the reactors of a
 * device listen on one endpoint, and a UDP port belongs to one reactor, whatever queue its packets
 * arrive on. */
static int choose_port(const struct sl_dpdk *dpdk, const struct in6_addr *ip, uint16_t wanted,
                       uint16_t *out)
{
    const uint16_t stride = dpdk->netifs[0].info.queues.reactors;
    const uint16_t index = (uint16_t)(dpdk->settings.port - dpdk->settings.port_base);
    if (wanted != 0) {
        *out = wanted;
        return (uint16_t)(wanted - dpdk->settings.port_base) % stride != 0 ||
                       wanted > UINT16_MAX - (stride - 1)
                   ? SL_ERR_INVALID
               : is_taken(dpdk, ip, (uint16_t)(wanted + index)) ? SL_ERR_IN_USE
                                                                : 0;
    }
    for (uint32_t port = dpdk->settings.port_base; port + stride - 1U <= UINT16_MAX;
         port += stride) {
        if (!is_taken(dpdk, ip, (uint16_t)(port + index))) {
            *out = (uint16_t)port;
            return 0;
        }
    }
    return SL_ERR_IN_USE;
}

static const char *advice(int err)
{
    return err == SL_ERR_INVALID     ? "; with n reactors a port is base, base + n, and so on: "
                                       "reactor i has that plus i"
           : err == SL_ERR_NOT_FOUND ? "; no device has this address"
                                     : "";
}

int sl_dpdk_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    struct in6_addr ip;
    uint16_t port = 0;
    int err = sl_dpdk_route_parse(endpoint, true, &ip);
    if (err == 0 && !sl_dpdk_route_is_any(&ip) && sl_dpdk_netif_of(dpdk, &ip) == NULL) {
        err = SL_ERR_NOT_FOUND;
    }
    err = err != 0 ? err : choose_port(dpdk, &ip, endpoint->port, &port);
    struct sl_dpdk_listener *listener = err == 0 ? malloc(sizeof *listener) : NULL;
    if (err == 0 && listener == NULL) {
        err = SL_ERR_NO_MEMORY;
    }
    if (err != 0) {
        char text[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(endpoint, text, sizeof text);
        sl_log_error("cannot listen on %s: %s%s", text, sl_err_name(err), advice(err));
        return err;
    }
    *listener = (struct sl_dpdk_listener){
        .next = dpdk->listeners,
        .events = events,
        .ctx = ctx,
        .ip = ip,
        .port = (uint16_t)(port + dpdk->settings.port - dpdk->settings.port_base)};
    dpdk->listeners = listener;
    *bound = *endpoint;
    bound->port = port;
    if (sl_dpdk_route_is_any(&ip)) { /* peers need an address */
        sl_dpdk_route_host(&dpdk->netifs[0].info.self.ip, bound->host);
    }
    return 0;
}

void sl_dpdk_listen_close(struct sl_dpdk *dpdk)
{
    while (dpdk->listeners != NULL) {
        struct sl_dpdk_listener *listener = dpdk->listeners;
        dpdk->listeners = listener->next;
        free(listener);
    }
}

static const struct sl_dpdk_listener *find_listener(const struct sl_dpdk *dpdk,
                                                    const struct sl_dpdk_address *to)
{
    for (const struct sl_dpdk_listener *listener = dpdk->listeners; listener != NULL;
         listener = listener->next) {
        if (listener->port == to->port &&
            (sl_dpdk_route_is_any(&listener->ip) || is_same_ip(&listener->ip, &to->ip))) {
            return listener;
        }
    }
    return NULL;
}

/* Cookies */

enum use { COOKIE, ID };

static uint64_t dpdk_listen_hash(const struct sl_dpdk *dpdk, const struct sl_dpdk_parsed *packet,
                                 uint64_t id, uint8_t use, uint64_t more)
{
    uint8_t text[2 * (sizeof(struct in6_addr) + sizeof(uint16_t)) + 2 * sizeof id + 1];
    struct sl_bytes_writer writer = sl_bytes_writer_over(text, sizeof text);
    sl_bytes_put(&writer, &packet->from.ip, sizeof packet->from.ip);
    sl_bytes_put(&writer, &packet->from.port, sizeof packet->from.port);
    sl_bytes_put(&writer, &packet->to.ip, sizeof packet->to.ip);
    sl_bytes_put(&writer, &packet->to.port, sizeof packet->to.port);
    sl_bytes_put(&writer, &id, sizeof id);
    sl_bytes_put(&writer, &more, sizeof more);
    sl_bytes_put(&writer, &use, sizeof use);
    sl_assert(!writer.bad && writer.left == 0);
    return sl_dpdk_cookie_hash(dpdk->ids.secret, text, sizeof text);
}

static uint64_t cookie_of(const struct sl_dpdk *dpdk, const struct sl_dpdk_parsed *packet,
                          uint64_t id, uint64_t slot)
{
    const uint64_t cookie = dpdk_listen_hash(dpdk, packet, id, COOKIE, slot);
    return cookie != 0 ? cookie : 1;
}

static uint64_t slot_now(const struct sl_dpdk *dpdk)
{
    return sl_dpdk_now_ns(dpdk) / SLOT_NS;
}

static bool is_good(const struct sl_dpdk *dpdk, const struct sl_dpdk_parsed *packet,
                    const struct sl_dpdk_hello *hello)
{
    const uint64_t slot = slot_now(dpdk);
    return hello->cookie == cookie_of(dpdk, packet, hello->connection, slot) ||
           hello->cookie == cookie_of(dpdk, packet, hello->connection, slot - 1);
}

/* Answers */

/* words: text for a REFUSE, or "". */
static void dpdk_listen_answer(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                               const struct sl_dpdk_parsed *packet, enum sl_dpdk_kind kind,
                               const struct sl_dpdk_hello *asked, const struct sl_dpdk_hello *hello,
                               const char *words)
{
    struct sl_dpdk_route route;
    const size_t words_bytes = strlen(words);
    uint8_t body[SL_DPDK_HELLO_BYTES + WORDS_BYTES];
    sl_assert(words_bytes <= WORDS_BYTES);
    sl_dpdk_route_build(&route, netif->info.self.mac, packet->from_mac, &packet->to, &packet->from);
    sl_dpdk_hello_encode(hello, body);
    memcpy(body + SL_DPDK_HELLO_BYTES, words, words_bytes);
    const struct sl_dpdk_queues queues = sl_dpdk_route_queues(asked);
    struct sl_dpdk_header header = {.connection = asked->connection,
                                    .kind = (uint8_t)kind,
                                    .body_bytes = (uint16_t)(SL_DPDK_HELLO_BYTES + words_bytes)};
    sl_dpdk_send_unnumbered(dpdk, netif, &route, sl_dpdk_route_queue(&netif->info.queues, &queues),
                            &header, body);
}

static void dpdk_listen_refuse(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                               const struct sl_dpdk_parsed *packet,
                               const struct sl_dpdk_hello *asked, int err, const char *words)
{
    const struct sl_dpdk_hello hello = {
        .connection = asked->connection, .body_max = SL_DPDK_BODY_MIN, .err = (uint8_t)-err};
    dpdk_listen_answer(dpdk, netif, packet, SL_DPDK_REFUSE, asked, &hello, words);
}

/* An OPEN begins with the sender's id in every version. The address is not proven, so that the
 * answer has no text. */
void sl_dpdk_listen_other(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                          const struct sl_dpdk_parsed *packet)
{
    struct sl_bytes body = sl_bytes_over(packet->body, packet->body_bytes);
    const struct sl_dpdk_hello asked = {.connection = sl_bytes_u64(&body)};
    if (asked.connection == 0 || !sl_dpdk_route_is_answerable(&packet->from)) {
        return;
    }
    if (sl_transport_may_log(&dpdk->base)) {
        char text[SL_LIMIT_ENDPOINT_BYTES];
        sl_dpdk_route_format(&packet->from, text);
        sl_log_warn("%s refused: it speaks version %u of the protocol on the wire, we version %u: "
                    "both sides must run releases that go together",
                    text, packet->version, SL_DPDK_VERSION);
    }
    dpdk_listen_refuse(dpdk, netif, packet, &asked, SL_ERR_VERSION, "");
}

static void turn_away(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                      const struct sl_dpdk_parsed *packet, const struct sl_dpdk_hello *asked)
{
    char text[SL_LIMIT_ENDPOINT_BYTES], words[WORDS_BYTES + 1];
    (void)snprintf(words, sizeof words, "%u connections are open, which is the limit",
                   dpdk->base.connections_max);
    if (sl_transport_may_log(&dpdk->base)) {
        sl_dpdk_route_format(&packet->from, text);
        sl_log_warn("%s refused: %s", text, words);
    }
    dpdk_listen_refuse(dpdk, netif, packet, asked, SL_ERR_TOO_LARGE, words);
}

static void accept_one(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                       const struct sl_dpdk_parsed *packet, const struct sl_dpdk_hello *asked,
                       uint64_t id)
{
    const struct sl_dpdk_listener *listener = find_listener(dpdk, &packet->to);
    if (listener == NULL) {
        dpdk_listen_refuse(dpdk, netif, packet, asked, SL_ERR_REFUSED, "no process listens there");
        return;
    }
    if (sl_transport_is_full(&dpdk->base)) {
        turn_away(dpdk, netif, packet, asked);
        return;
    }
    struct sl_dpdk_conn *conn = sl_dpdk_conn_make(dpdk, listener->events, listener->ctx, id);
    if (conn == NULL) {
        dpdk_listen_refuse(dpdk, netif, packet, asked, SL_ERR_NO_MEMORY,
                           "there is no memory for it");
        return;
    }
    conn->inbound = true;
    conn->path.netif = netif;
    conn->path.here = packet->to;
    conn->path.there = packet->from;
    sl_dpdk_route_format(&packet->from, conn->base.peer);
    sl_dpdk_connect_begin(conn, asked, packet->from_mac);
    sl_dpdk_connect_say(conn, SL_DPDK_ACCEPT);
}

void sl_dpdk_listen_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                         const struct sl_dpdk_parsed *packet)
{
    struct sl_dpdk_hello asked;
    if (sl_dpdk_hello_decode(packet->body, packet->body_bytes, &asked) != 0) {
        dpdk->counts.malformed++;
        return;
    }
    if (!sl_dpdk_route_is_answerable(&packet->from)) {
        dpdk->counts.not_ours++;
        return;
    }
    if (asked.cookie == 0 || !is_good(dpdk, packet, &asked)) {
        const struct sl_dpdk_hello hello = {
            .connection = asked.connection,
            .cookie = cookie_of(dpdk, packet, asked.connection, slot_now(dpdk)),
            .body_max = SL_DPDK_BODY_MIN};
        dpdk_listen_answer(dpdk, netif, packet, SL_DPDK_RETRY, &asked, &hello, "");
        return;
    }
    const uint64_t random = dpdk_listen_hash(dpdk, packet, asked.connection, ID, 0);
    const uint64_t id = sl_dpdk_conn_table_id(dpdk, random);
    struct sl_dpdk_conn *conn = sl_dpdk_conn_table_find(dpdk, id);
    if (conn != NULL && conn->id_peers == asked.connection) {
        sl_dpdk_connect_say(conn, SL_DPDK_ACCEPT);
    } else if (conn != NULL) {
        dpdk->counts.not_ours++; /* practically impossible: another connection has this id; the
                             client may retry with another */
    } else if (sl_dpdk_time_wait_has(dpdk, id)) {
        dpdk_listen_refuse(dpdk, netif, packet, &asked, SL_ERR_CLOSED,
                           "it ended before you heard of it");
    } else {
        accept_one(dpdk, netif, packet, &asked, id);
    }
}
