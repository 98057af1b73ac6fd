/* The client side of the handshake, and the hellos of both sides. OPEN is sent until RETRY answers
 * with a cookie, and then until ACCEPT answers with the id of the connection. */
#include "net/dpdk/connect.h"

#include "core/bytes.h"
#include "core/log.h"
#include "net/dpdk/conn.h"
#include "net/dpdk/end.h"
#include "net/dpdk/liveness.h"
#include "net/dpdk/route.h"
#include "net/dpdk/send.h"

#define WORDS_BYTES  120U /* of the text of a REFUSE */
#define PAUSE_MIN_NS (20 * SL_CLOCK_NS_PER_MS)
#define PAUSE_MAX_NS (500 * SL_CLOCK_NS_PER_MS)

/* If this thread was stopped past the deadline of a connect, answers may wait unread. So the timer
 * expires this many more times, PAUSE_MIN_NS apart, before the connect fails. Each of the three
 * answers of a connect may lead to the next. */
#define LATE_COUNT   3U

/* A peer that shares its core answers late even under little load. So delay alone does not reduce
 * the window below the unscheduled bytes. */
#define WINDOW_MIN   SL_DPDK_UNSCHEDULED_BYTES

/* Hellos */

static uint16_t body_max_of(const struct sl_dpdk_netif *netif)
{
    const uint32_t outer = sl_dpdk_route_is_v4(&netif->info.self.ip) ? 42U : SL_DPDK_OUTER_MAX;
    return (uint16_t)(netif->info.frame_bytes_max - outer - SL_DPDK_HEADER_BYTES);
}

void sl_dpdk_connect_begin(struct sl_dpdk_conn *conn, const struct sl_dpdk_hello *hello,
                           const uint8_t mac[6])
{
    const uint16_t ours = body_max_of(conn->path.netif);
    conn->id_peers = hello->connection;
    conn->path.body_max = hello->body_max < ours ? hello->body_max : ours;
    conn->granted_theirs = hello->granted;
    sl_dpdk_received_packets_init(&conn->received, hello->sequence);
    sl_dpdk_rate_init(&conn->rate, conn->path.body_max, SL_DPDK_BUDGET_BYTES);
    conn->rate.bytes_min = WINDOW_MIN;
    conn->path.queues_peers = sl_dpdk_route_queues(hello);
    sl_dpdk_route_set(conn, mac);
    conn->phase = SL_DPDK_LIVE;
    conn->accept_pending = true;
    sl_dpdk_liveness_begin(conn);
    sl_dpdk_mark_ready(conn);
}

void sl_dpdk_connect_say(struct sl_dpdk_conn *conn, enum sl_dpdk_kind kind)
{
    const struct sl_dpdk_queues *queues = &conn->path.netif->info.queues;
    const struct sl_dpdk_hello hello = {.connection = conn->id,
                                        .cookie = conn->handshake.cookie,
                                        .sequence = conn->handshake.first_sequence,
                                        .granted = conn->grant.granted,
                                        .body_max = body_max_of(conn->path.netif),
                                        .queues = queues->straight ? queues->queues : 0,
                                        .reactors = queues->reactors,
                                        .index = queues->index,
                                        .blocks = queues->blocks};
    uint8_t body[SL_DPDK_HELLO_BYTES];
    sl_dpdk_hello_encode(&hello, body);
    struct sl_dpdk_header header = {.connection = kind == SL_DPDK_OPEN ? 0 : conn->id_peers,
                                    .sequence = conn->sent_packets.next,
                                    .acknowledged = kind == SL_DPDK_OPEN ? 0 : conn->received.next,
                                    .granted = conn->grant.granted,
                                    .kind = (uint8_t)kind,
                                    .body_bytes = sizeof body};
    sl_dpdk_send_unnumbered(conn->dpdk, conn->path.netif, &conn->path.route, conn->path.queue,
                            &header, body);
}

/* The client */

static void dpdk_connect_ask(struct sl_dpdk_conn *conn, uint64_t now_ns)
{
    struct sl_dpdk_handshake *handshake = &conn->handshake;
    if (handshake->asked_count > 0) { /* the peer may have another Ethernet address now */
        sl_dpdk_neighbours_doubt(conn->path.netif->neighbours, &conn->path.there.ip);
    }
    if (handshake->asked_count > 0 || !conn->path.routed) {
        (void)sl_dpdk_route_find(conn);
    }
    if (conn->path.routed) {
        sl_dpdk_connect_say(conn, SL_DPDK_OPEN);
        handshake->asked_ns = now_ns;
        handshake->asked_count++;
    }
    uint64_t due_ns =
        now_ns + sl_backoff_next(&handshake->backoff, sl_reactor_random(conn->dpdk->base.reactor));
    if (now_ns < handshake->deadline_ns && handshake->deadline_ns < due_ns) {
        due_ns = handshake->deadline_ns;
    }
    sl_timer_arm(sl_reactor_timers(conn->dpdk->base.reactor), &handshake->timer, due_ns);
}

/* Logs the cause of a failed connect, if this side can know it. */
static void explain(const struct sl_dpdk_conn *conn)
{
    const char *name = conn->path.netif->info.name;
    if (!conn->path.netif->port->ops->link_is_up(conn->path.netif->port)) {
        sl_log_warn("%s: no answer: the link of %s is down", conn->base.peer, name);
    } else if (sl_dpdk_route_is_own(conn)) {
        sl_log_warn("%s: no answer: this is the device's own address, and it may be that "
                    "neither %s nor its switch returns what it sends to itself",
                    conn->base.peer, name);
    } else if (!conn->path.routed) {
        sl_log_warn("%s: no answer: nobody in the network of %s says that it has this address, or "
                    "the gateway's",
                    conn->base.peer, name);
    }
}

static void dpdk_connect_on_timer(struct sl_timer *timer, uint64_t timer_ns)
{
    struct sl_dpdk_conn *conn = SL_CONTAINER_OF(timer, struct sl_dpdk_conn, handshake.timer);
    struct sl_dpdk_handshake *handshake = &conn->handshake;
    const uint64_t now_ns = sl_dpdk_now_ns(conn->dpdk);
    const bool is_late = now_ns >= handshake->deadline_ns;
    if (is_late && handshake->late_count++ == LATE_COUNT) {
        if (sl_transport_may_log(&conn->dpdk->base)) {
            explain(conn);
        }
        sl_dpdk_conn_end(conn, SL_ERR_DEADLINE, false);
        return;
    }
    handshake->backoff.limit_ns = is_late ? PAUSE_MIN_NS / 2 : handshake->backoff.limit_ns;
    dpdk_connect_ask(conn, now_ns);
}

void sl_dpdk_connect_routed(struct sl_dpdk_conn *conn)
{
    conn->handshake.backoff.limit_ns = PAUSE_MIN_NS / 2;
    dpdk_connect_ask(conn, sl_dpdk_now_ns(conn->dpdk));
}

int sl_dpdk_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                    uint32_t target, const struct sl_transport_events *events, void *ctx,
                    struct sl_conn **out)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    struct in6_addr ip;
    int err = sl_dpdk_route_parse(endpoint, false, &ip);
    if (err != 0) {
        return err;
    }
    struct sl_dpdk_netif *netif = sl_dpdk_route_side(dpdk, &ip);
    if (netif == NULL) {
        sl_log_error("dpdk: %s: no device has an address of this family", endpoint->host);
        return SL_ERR_NOT_FOUND;
    }
    struct sl_dpdk_conn *conn = sl_dpdk_conn_new(dpdk, events, ctx);
    if (conn == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    const uint64_t now_ns = sl_dpdk_now_ns(dpdk);
    sl_endpoint_format(endpoint, conn->base.peer, sizeof conn->base.peer);
    conn->path.netif = netif;
    conn->path.here =
        (struct sl_dpdk_address){.ip = netif->info.self.ip, .port = dpdk->settings.port};
    conn->path.there =
        (struct sl_dpdk_address){.ip = ip, .port = (uint16_t)(endpoint->port + target)};
    conn->handshake.timer.run = dpdk_connect_on_timer;
    conn->handshake.deadline_ns = now_ns + sl_transport_patience_ns(&dpdk->base);
    conn->handshake.backoff = (struct sl_backoff){
        .least_ns = PAUSE_MIN_NS, .most_ns = PAUSE_MAX_NS, .limit_ns = PAUSE_MIN_NS / 2};
    *out = &conn->base;
    if (target > (uint32_t)UINT16_MAX - endpoint->port) {
        sl_dpdk_conn_end(conn, SL_ERR_REFUSED, false); /* there is no such port */
        return 0;
    }
    dpdk_connect_ask(conn, now_ns);
    return 0;
}

static void take_retry(struct sl_dpdk_conn *conn, const struct sl_dpdk_hello *hello)
{
    if (hello->cookie == 0 || hello->cookie == conn->handshake.cookie) {
        return; /* an answer to a repeated OPEN */
    }
    conn->handshake.cookie = hello->cookie;
    conn->handshake.asked_count = 0;
    dpdk_connect_ask(conn, sl_dpdk_now_ns(conn->dpdk));
}

static void take_accept(struct sl_dpdk_conn *conn, const struct sl_dpdk_hello *hello,
                        const struct sl_dpdk_parsed *packet)
{
    const uint64_t took_ns = sl_dpdk_now_ns(conn->dpdk) - conn->handshake.asked_ns;
    sl_reactor_disarm(conn->dpdk->base.reactor, &conn->handshake.timer);
    if (conn->handshake.asked_count == 1 && took_ns > 0) {
        sl_dpdk_sent_packets_measured(&conn->sent_packets, took_ns);
    }
    sl_dpdk_connect_begin(conn, hello, packet->from_mac);
}

/* The text of a REFUSE, with unprintable characters replaced. */
static void read_words(const uint8_t *body, uint32_t bytes, char words[WORDS_BYTES + 1])
{
    uint32_t length = 0;
    for (uint32_t i = SL_DPDK_HELLO_BYTES; i < bytes && length < WORDS_BYTES; i++) {
        words[length++] = body[i] >= ' ' && body[i] <= '~' ? (char)body[i] : '?';
    }
    words[length] = '\0';
}

/* A refusal because there is no listener is usual: debug level. */
static void take_refuse(struct sl_dpdk_conn *conn, uint8_t version, int err,
                        const struct sl_dpdk_parsed *packet)
{
    char words[WORDS_BYTES + 1];
    read_words(packet->body, packet->body_bytes, words);
    if (err == SL_ERR_REFUSED || err == SL_ERR_CLOSED) {
        sl_log_debug("%s: refused: %s: %s", conn->base.peer, sl_err_name(err), words);
    } else if (!sl_transport_may_log(&conn->dpdk->base)) {
        /* rate limit */
    } else if (version != SL_DPDK_VERSION) {
        sl_log_warn("%s: refused: it speaks version %u of the protocol on the wire, we version %u: "
                    "both sides must run releases that go together",
                    conn->base.peer, version, SL_DPDK_VERSION);
    } else {
        sl_log_warn("%s: refused: %s: %s", conn->base.peer, sl_err_name(err), words);
    }
    sl_dpdk_conn_end(conn, SL_ERR_REFUSED, false);
}

bool sl_dpdk_connect_take_other(struct sl_dpdk_conn *conn, const struct sl_dpdk_netif *netif,
                                const struct sl_dpdk_parsed *packet)
{
    if (conn->phase != SL_DPDK_ASKING || !sl_dpdk_route_is_from_peer(conn, netif, packet)) {
        return false;
    }
    take_refuse(conn, packet->version, SL_ERR_VERSION, packet);
    return true;
}

/* Sends a RESET for an unknown connection. acknowledged: a number that the owner of `id` accepts.
 */
static void deny(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                 const struct sl_dpdk_parsed *packet, uint64_t id, uint32_t acknowledged)
{
    const struct sl_dpdk_queues no_queues = {0};
    struct sl_dpdk_route route;
    if (!sl_dpdk_route_is_answerable(&packet->from)) {
        dpdk->counts.not_ours++;
        return;
    }
    sl_dpdk_route_build(&route, netif->info.self.mac, packet->from_mac, &packet->to, &packet->from);
    const uint8_t err = (uint8_t)-SL_ERR_CLOSED;
    struct sl_dpdk_header header = {.connection = id,
                                    .sequence = packet->header.acknowledged,
                                    .acknowledged = acknowledged,
                                    .kind = SL_DPDK_RESET,
                                    .body_bytes = sizeof err};
    sl_dpdk_send_unnumbered(dpdk, netif, &route,
                            sl_dpdk_route_queue(&netif->info.queues, &no_queues), &header, &err);
}

/* Answers a peer that does not know that this process has restarted. Ids with the present boot
 * epoch are answered by time_wait.c. */
void sl_dpdk_connect_stranger(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                              const struct sl_dpdk_parsed *packet)
{
    const struct sl_dpdk_header *header = &packet->header;
    struct sl_bytes body = sl_bytes_over(packet->body, packet->body_bytes);
    const uint64_t id = sl_bytes_u64(&body);
    if (body.bad || id == 0 || (uint16_t)(header->connection >> 8) == dpdk->ids.boot_epoch) {
        dpdk->counts.not_ours++;
        return;
    }
    deny(dpdk, netif, packet, id, header->sequence - header->behind); /* the oldest in flight */
}

void sl_dpdk_connect_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                          struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *packet)
{
    struct sl_dpdk_hello hello;
    if (sl_dpdk_hello_decode(packet->body, packet->body_bytes, &hello) != 0) {
        dpdk->counts.malformed++;
        return;
    }
    if (conn == NULL) {
        if (packet->header.kind == SL_DPDK_ACCEPT) {
            /* The listener need not wait for its timeout. */
            deny(dpdk, netif, packet, hello.connection, hello.sequence);
        }
        return;
    }
    if (conn->phase != SL_DPDK_ASKING || conn->inbound) {
        return; /* a repeated answer */
    }
    switch (packet->header.kind) {
    case SL_DPDK_RETRY:
        take_retry(conn, &hello);
        return;
    case SL_DPDK_ACCEPT:
        take_accept(conn, &hello, packet);
        return;
    case SL_DPDK_REFUSE:
        take_refuse(conn, SL_DPDK_VERSION, -(int)hello.err, packet);
        return;
    default:
        return;
    }
}
