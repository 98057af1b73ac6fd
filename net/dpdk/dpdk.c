#include "net/dpdk/dpdk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/log.h"
#include "net/dpdk/internal.h"
#include "net/dpdk/module.h"
#include "net/dpdk/port_fault.h"

#define LOG_INTERVAL_NS SL_CLOCK_NS_PER_S
#define IDLE_MIN_NS     (20 * SL_CLOCK_NS_PER_US)
#define IDLE_MAX_NS     SL_CLOCK_NS_PER_MS
/* Packets after which answers leave before more are looked at: so that both sides work at once. */
#define GROUP_PACKETS   8U
/* Of a port, after which the turn ends: who sent them hears of it while it may still send. */
#define POLL_PACKETS    64U
#define REFUSED_NS      (100 * SL_CLOCK_NS_PER_MS)
#define GRANT_STEP      (4U * SL_DPDK_BLIND_BYTES)

bool sl_dpdk_may_log(struct sl_dpdk *dpdk)
{
    uint64_t now_ns = sl_reactor_now_ns(dpdk->base.reactor);
    if (now_ns < dpdk->log_next_ns) {
        dpdk->log_dropped++;
        return false;
    }
    dpdk->log_next_ns = now_ns + LOG_INTERVAL_NS;
    if (dpdk->log_dropped > 0) {
        sl_log_warn("dpdk: %u more lines about peers were left out", dpdk->log_dropped);
        dpdk->log_dropped = 0;
    }
    return true;
}

struct sl_dpdk_side *sl_dpdk_side_of(struct sl_dpdk *dpdk, const struct in6_addr *ip)
{
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        if (memcmp(&dpdk->sides[i].facts.self.ip, ip, sizeof *ip) == 0) {
            return &dpdk->sides[i];
        }
    }
    return NULL;
}

struct sl_dpdk_side *sl_dpdk_side_like(struct sl_dpdk *dpdk, const char *device,
                                       const struct in6_addr *ip)
{
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        const struct sl_dpdk_facts *facts = &dpdk->sides[i].facts;
        if (memcmp(&facts->self.ip, ip, sizeof *ip) == 0 && strcmp(facts->name, device) == 0) {
            return &dpdk->sides[i];
        }
    }
    return NULL;
}

/* ---- Packets that leave -----------------------------------------------------------------------
 */

/* What is for the queue of the first packet is lost, as in any network. */
static void drop_refused(struct sl_dpdk_side *side)
{
    const uint16_t queue = side->out[0].queue;
    struct sl_dpdk_packet lost[SL_DPDK_BURST];
    uint32_t kept_count = 0, lost_count = 0;
    for (uint32_t i = 0; i < side->out_count; i++) {
        struct sl_dpdk_packet *packet = &side->out[i];
        if (packet->queue != queue) {
            side->out[kept_count++] = *packet;
            continue;
        }
        if (packet->pending != NULL) {
            --*packet->pending;
        }
        lost[lost_count++] = *packet;
    }
    side->out_count = kept_count;
    side->port->ops->release(side->port, lost, lost_count);
}

/* A queue that takes nothing for long has a peer that looks at it no more: what is for others shall
 * not wait for it, from then on until it takes something. */
static void note_refused(struct sl_dpdk *dpdk, struct sl_dpdk_side *side)
{
    const uint64_t now_ns = sl_dpdk_now_ns(dpdk);
    if (side->is_stuck && side->stuck_queue == side->out[0].queue) {
        drop_refused(side);
    } else if (side->refused_since_ns == 0) {
        side->refused_since_ns = now_ns;
    } else if (now_ns - side->refused_since_ns >= REFUSED_NS) {
        side->is_stuck = true;
        side->stuck_queue = side->out[0].queue;
        side->refused_since_ns = 0;
        drop_refused(side);
    }
}

static void send_out(struct sl_dpdk *dpdk, struct sl_dpdk_side *side)
{
    const uint32_t sent = side->port->ops->send(side->port, side->out, side->out_count);
    dpdk->stats.send_calls++;
    for (uint32_t i = 0; side->is_stuck && i < sent; i++) {
        side->is_stuck = side->out[i].queue != side->stuck_queue;
    }
    side->out_count -= sent;
    if (sent > 0) {
        memmove(side->out, side->out + sent, side->out_count * sizeof side->out[0]);
        side->refused_since_ns = 0;
    } else {
        note_refused(dpdk, side);
    }
}

bool sl_dpdk_get(struct sl_dpdk_side *side, struct sl_dpdk_packet *out)
{
    if (side->out_count == SL_DPDK_BURST) {
        return false;
    }
    if (side->spare_count == 0) {
        side->spare_count = side->port->ops->reserve(side->port, side->spare, SL_DPDK_BURST);
        if (side->spare_count == 0) {
            return false;
        }
    }
    *out = side->spare[--side->spare_count];
    return true;
}

void sl_dpdk_put(struct sl_dpdk *dpdk, struct sl_dpdk_side *side,
                 const struct sl_dpdk_packet *packet)
{
    sl_assert(side->out_count < SL_DPDK_BURST);
    side->out[side->out_count++] = *packet;
    if (side->out_count == SL_DPDK_BURST) {
        send_out(dpdk, side);
    }
}

/* ---- Packets that arrive ----------------------------------------------------------------------
 */

bool sl_dpdk_take(struct sl_dpdk *dpdk, struct sl_dpdk_side *side, struct sl_dpdk_packet *packet,
                  const struct sl_dpdk_parsed *parsed, bool is_stray)
{
    const struct sl_dpdk_header *header = &parsed->header;
    if (header->kind == SL_DPDK_OPEN) {
        if (is_stray || !sl_dpdk_stray_forward(dpdk, side, packet, parsed)) {
            sl_dpdk_listen_take(dpdk, side, parsed);
        }
        return false;
    }
    struct sl_dpdk_conn *conn = sl_dpdk_conn_find(dpdk, header->connection);
    if (conn != NULL) {
        return sl_dpdk_conn_take(conn, side, packet, parsed);
    }
    if (!is_stray && sl_dpdk_stray_forward(dpdk, side, packet, parsed)) {
        return false;
    }
    if (sl_dpdk_past_take(dpdk, side, packet, parsed)) {
        return false;
    }
    if (header->kind == SL_DPDK_ACCEPT) {
        sl_dpdk_setup_take(dpdk, side, NULL, parsed);
    } else if (header->kind == SL_DPDK_PROBE) {
        sl_dpdk_setup_stranger(dpdk, side, parsed);
    } else {
        dpdk->foreign++;
    }
    return false;
}

/* Returns whether the packet's memory was kept. */
static bool take_packet(struct sl_dpdk *dpdk, struct sl_dpdk_side *side,
                        struct sl_dpdk_packet *packet)
{
    struct sl_dpdk_parsed parsed;
    switch (sl_dpdk_parse(packet->bytes, packet->length, packet->checked, &parsed)) {
    case SL_DPDK_OURS:
        if (memcmp(&parsed.to.ip, &side->facts.self.ip, sizeof parsed.to.ip) == 0) {
            return sl_dpdk_take(dpdk, side, packet, &parsed, false);
        }
        dpdk->foreign++;
        return false;
    case SL_DPDK_NEIGHBOUR:
        sl_dpdk_route_neighbour(dpdk, side, packet->bytes, packet->length, packet);
        return false;
    case SL_DPDK_FOREIGN:
        dpdk->foreign++;
        return false;
    case SL_DPDK_BROKEN:
        if (parsed.version == 0 || !sl_dpdk_setup_other(dpdk, side, packet, &parsed, false)) {
            dpdk->broken++;
        }
        return false;
    }
    return false;
}

/* ---- The turn ---------------------------------------------------------------------------------
 */

static uint32_t visit_ready(struct sl_dpdk *dpdk)
{
    uint32_t work = 0;
    struct sl_dpdk_conn *list = dpdk->ready;
    dpdk->ready = NULL;
    dpdk->awake = false;
    while (list != NULL) {
        struct sl_dpdk_conn *conn = list;
        list = conn->ready_next;
        conn->ready = false;
        work += sl_dpdk_conn_visit(conn) ? 1 : 0;
    }
    return work;
}

static void flush_one(struct sl_dpdk_conn *conn)
{
    if (conn->life == SL_DPDK_LIVE || conn->life == SL_DPDK_DRAINING) {
        conn->pace_ns = sl_dpdk_send_flush(conn);
        sl_dpdk_conn_set_timer(conn);
    }
}

/* What fills packets; the rest may find company until the turn ends. */
static void flush_full(struct sl_dpdk *dpdk)
{
    for (struct sl_dpdk_conn **at = &dpdk->dirty; *at != NULL;) {
        struct sl_dpdk_conn *conn = *at;
        if (!sl_dpdk_send_is_full(conn)) {
            at = &conn->dirty_next;
            continue;
        }
        *at = conn->dirty_next;
        conn->dirty = false;
        flush_one(conn);
    }
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        if (dpdk->sides[i].out_count >= GROUP_PACKETS) {
            send_out(dpdk, &dpdk->sides[i]);
        }
    }
}

static uint32_t take_burst(struct sl_dpdk *dpdk, struct sl_dpdk_side *side,
                           struct sl_dpdk_packet *packets, uint32_t count)
{
    uint32_t done = 0, work = count;
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && i % GROUP_PACKETS == 0) {
            work += dpdk->ready != NULL ? visit_ready(dpdk) : 0;
            flush_full(dpdk);
        }
        if (!take_packet(dpdk, side, &packets[i])) {
            packets[done++] = packets[i];
        }
    }
    if (done > 0) {
        side->port->ops->release(side->port, packets, done);
    }
    dpdk->stats.receive_calls += count > 0;
    return work;
}

static uint32_t poll_side(struct sl_dpdk *dpdk, struct sl_dpdk_side *side)
{
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    uint32_t work = 0, count = SL_DPDK_BURST;
    for (uint32_t taken = 0; count == SL_DPDK_BURST && taken < POLL_PACKETS; taken += count) {
        count = side->port->ops->receive(side->port, packets, SL_DPDK_BURST);
        work += take_burst(dpdk, side, packets, count);
    }
    return work;
}

static uint32_t dpdk_poll(struct sl_transport *transport, uint32_t budget)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    uint32_t work = 0;
    (void)budget; /* POLL_PACKETS are less */
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        work += poll_side(dpdk, &dpdk->sides[i]);
    }
    if (dpdk->ready != NULL) {
        work += visit_ready(dpdk);
    } else {
        dpdk->awake = false; /* whoever was to be visited is gone */
    }
    if (work > 0) {
        dpdk->idle_ns = IDLE_MIN_NS;
    }
    return work;
}

/* Its peer may send more, and shall know of it soon. */
static void tell_grant(void *ctx, struct sl_dpdk_grant *grant)
{
    (void)ctx;
    struct sl_dpdk_conn *conn =
        (struct sl_dpdk_conn *)((char *)grant - offsetof(struct sl_dpdk_conn, grant));
    conn->ack_due = conn->ack_now = true;
    sl_dpdk_mark_dirty(conn);
}

static void flush_dirty(struct sl_dpdk *dpdk)
{
    struct sl_dpdk_conn *list = dpdk->dirty;
    dpdk->dirty = NULL;
    while (list != NULL) {
        struct sl_dpdk_conn *conn = list;
        list = conn->dirty_next;
        conn->dirty = false;
        flush_one(conn);
    }
}

static void dpdk_flush(struct sl_transport *transport)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    sl_dpdk_grants_deal(&dpdk->grants, tell_grant, dpdk);
    if (dpdk->dirty != NULL) {
        flush_dirty(dpdk);
    }
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        if (dpdk->sides[i].out_count > 0) {
            send_out(dpdk, &dpdk->sides[i]);
        }
    }
}

static void on_idle(struct sl_timer *timer, uint64_t now_ns)
{
    (void)timer; /* the poll that follows is all that it is for */
    (void)now_ns;
}

/* Ports that wake nobody are looked at from time to time: the longer nothing came, the later, so
 * that what is in use costs little time and what is not little work. */
static void set_alarm(struct sl_dpdk *dpdk)
{
    struct sl_reactor *reactor = dpdk->base.reactor;
    sl_timer_arm(sl_reactor_timers(reactor), &dpdk->idle, sl_dpdk_now_ns(dpdk) + dpdk->idle_ns);
    dpdk->idle_ns = 2 * dpdk->idle_ns < IDLE_MAX_NS ? 2 * dpdk->idle_ns : IDLE_MAX_NS;
}

static bool dpdk_arm(struct sl_transport *transport)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    bool all_wake = true;
    if (dpdk->dirty != NULL || dpdk->awake) {
        return false;
    }
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        struct sl_dpdk_side *side = &dpdk->sides[i];
        if (side->out_count > 0 || !side->port->ops->arm(side->port)) {
            return false;
        }
        all_wake = all_wake && side->facts.wakes;
    }
    if (!all_wake) {
        set_alarm(dpdk);
    }
    return true;
}

static void dpdk_stats(const struct sl_transport *transport, struct sl_transport_stats *out)
{
    *out = ((const struct sl_dpdk *)transport)->stats;
}

/* ---- Memory -----------------------------------------------------------------------------------
 */

static void unregister_with(struct sl_dpdk *dpdk, uint32_t side_count, void *base)
{
    for (uint32_t i = 0; i < side_count; i++) {
        struct sl_dpdk_port *port = dpdk->sides[i].port;
        if (dpdk->sides[i].facts.gathers) {
            port->ops->memory_unregister(port, base);
        }
    }
}

/* Where no port gathers, or none has room for more, it is sent by a copy as any other. */
static int dpdk_memory_register(struct sl_transport *transport, void *base, size_t bytes)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    if (dpdk->region_count == SL_DPDK_REGIONS) {
        return 0;
    }
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        struct sl_dpdk_port *port = dpdk->sides[i].port;
        int err = dpdk->sides[i].facts.gathers ? port->ops->memory_register(port, base, bytes) : 0;
        if (err != 0) {
            unregister_with(dpdk, i, base);
            return err == SL_ERR_UNSUPPORTED ? 0 : err;
        }
    }
    dpdk->regions[dpdk->region_count++] = (struct sl_dpdk_region){.base = base, .bytes = bytes};
    return 0;
}

static void dpdk_memory_unregister(struct sl_transport *transport, void *base)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    for (uint32_t i = 0; i < dpdk->region_count; i++) {
        if (dpdk->regions[i].base == base) {
            dpdk->regions[i] = dpdk->regions[--dpdk->region_count];
            unregister_with(dpdk, dpdk->side_count, base);
            return;
        }
    }
}

bool sl_dpdk_is_registered(const struct sl_dpdk_conn *conn, const void *at, size_t bytes)
{
    const struct sl_dpdk *dpdk = conn->dpdk;
    for (uint32_t i = 0; conn->side->facts.gathers && i < dpdk->region_count; i++) {
        const struct sl_dpdk_region *region = &dpdk->regions[i];
        const uintptr_t offset = (uintptr_t)at - (uintptr_t)region->base;
        if (offset < region->bytes && bytes <= region->bytes - offset) {
            return true;
        }
    }
    return false;
}

/* ---- Open and close ---------------------------------------------------------------------------
 */

static int open_ports(struct sl_dpdk *dpdk, const struct sl_dpdk_medium *medium)
{
    struct sl_dpdk_port *ports[SL_DPDK_PORTS];
    int count = medium->ops->open(medium->ctx, dpdk->base.reactor, ports, SL_DPDK_PORTS);
    if (count < 0) {
        return count;
    }
    int err = count > 0 ? 0 : SL_ERR_NOT_FOUND;
    for (int i = 0; i < count; i++) {
        struct sl_dpdk_side *side = &dpdk->sides[dpdk->side_count++];
        side->port = ports[i];
        side->port->ops->facts(side->port, &side->facts);
        if (err == 0) {
            err = sl_dpdk_neighbours_open(&side->facts.self, &side->neighbours);
        }
    }
    return err;
}

/* What is sent at last may lie in memory that is registered: that goes afterwards. */
static void close_ports(struct sl_dpdk *dpdk)
{
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        struct sl_dpdk_side *side = &dpdk->sides[i];
        if (side->out_count > 0) {
            send_out(dpdk, side);
            side->port->ops->release(side->port, side->out, side->out_count);
            side->out_count = 0;
        }
    }
    while (dpdk->region_count > 0) {
        dpdk_memory_unregister(&dpdk->base, dpdk->regions[0].base);
    }
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        struct sl_dpdk_side *side = &dpdk->sides[i];
        const struct sl_dpdk_port_ops *ops = side->port->ops;
        ops->release(side->port, side->spare, side->spare_count);
        sl_dpdk_neighbours_close(&side->neighbours);
        ops->close(&side->port);
    }
    dpdk->side_count = 0;
}

/* A stepped reactor's seed decides all that happens on it; else nobody shall guess. */
static void make_secret(struct sl_dpdk *dpdk)
{
    struct sl_reactor *reactor = dpdk->base.reactor;
    uint64_t words[2] = {sl_reactor_random(reactor), sl_reactor_random(reactor)};
    static_assert(sizeof words == sizeof dpdk->secret, "both of the secret's halves");
    if (sl_reactor_ring(reactor) != NULL) {
        (void)getrandom(words, sizeof words, 0);
    }
    memcpy(dpdk->secret, words, sizeof words);
    dpdk->era = (uint16_t)sl_dpdk_conn_random(dpdk);
}

static void set_options(struct sl_dpdk *dpdk, const struct sl_transport_options *options)
{
    const struct sl_dpdk_facts *facts = &dpdk->sides[0].facts;
    dpdk->connections_max =
        options->connections_max != 0 ? options->connections_max : SL_LIMIT_CONNECTIONS;
    dpdk->peer_timeout_ms =
        options->peer_timeout_ms != 0 ? options->peer_timeout_ms : SL_DPDK_PEER_TIMEOUT_MS;
    dpdk->port_base = facts->port_base;
    dpdk->port = (uint16_t)(facts->port_base + facts->queues.index);
    dpdk->idle_ns = IDLE_MIN_NS;
    dpdk->idle.run = on_idle;
}

static void unmake(struct sl_dpdk *dpdk)
{
    close_ports(dpdk);
    sl_dpdk_past_close(dpdk);
    free(dpdk);
}

/* NULL stands for the plug-in. Its ports only read the options. */
static int find_medium(const struct sl_transport_options *options, struct sl_dpdk_medium *out)
{
    if (options->medium != NULL) {
        *out = *(const struct sl_dpdk_medium *)options->medium;
        return 0;
    }
    const char *why;
    *out = (struct sl_dpdk_medium){.ops = sl_dpdk_module_ports(&why),
                                   .ctx = (void *)(uintptr_t)options->dpdk};
    if (out->ops == NULL) {
        sl_log_error("dpdk: %s", why);
        return SL_ERR_UNSUPPORTED;
    }
    return 0;
}

static int dpdk_open(struct sl_reactor *reactor, const struct sl_transport_options *options,
                     struct sl_transport **out)
{
    struct sl_dpdk_medium medium;
    struct sl_dpdk_fault_medium faulty;
    int err = find_medium(options, &medium);
    if (err != 0) {
        return err;
    }
    if (options->dpdk != NULL && options->dpdk->faults != NULL) {
        faulty = (struct sl_dpdk_fault_medium){.inner = medium, .faults = *options->dpdk->faults};
        medium = (struct sl_dpdk_medium){.ops = &sl_dpdk_fault_ports, .ctx = &faulty};
    }
    struct sl_dpdk *dpdk = calloc(1, sizeof *dpdk);
    if (dpdk == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    dpdk->base.reactor = reactor;
    err = open_ports(dpdk, &medium);
    if (err == 0) {
        err = sl_dpdk_past_open(dpdk);
    }
    if (err == 0) {
        err = sl_dpdk_store_open(dpdk);
    }
    if (err != 0) {
        unmake(dpdk);
        return err;
    }
    set_options(dpdk, options);
    make_secret(dpdk);
    sl_dpdk_grants_init(&dpdk->grants, SL_DPDK_BUDGET_BYTES, SL_DPDK_BLIND_BYTES, GRANT_STEP);
    sl_dpdk_sweep_open(dpdk);
    sl_dpdk_stray_open(dpdk);
    *out = &dpdk->base;
    return 0;
}

static void dpdk_close(struct sl_transport **transport)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)*transport;
    sl_dpdk_stray_close(dpdk);
    sl_dpdk_listen_close(dpdk);
    sl_dpdk_conn_end_all(dpdk);
    close_ports(dpdk); /* from now on no device reads what connections gave to be sent */
    sl_dpdk_conn_cancel_all(dpdk);
    sl_dpdk_sweep_close(dpdk);
    if (sl_timer_armed(&dpdk->idle)) {
        sl_timer_disarm(sl_reactor_timers(dpdk->base.reactor), &dpdk->idle);
    }
    sl_dpdk_store_close(dpdk);
    sl_dpdk_conn_free_all(dpdk);
    unmake(dpdk);
    *transport = NULL;
}

const struct sl_transport_ops sl_dpdk_ops = {
    .scheme = "dpdk",
    .capabilities = SL_TRANSPORT_REGISTERS | SL_TRANSPORT_HANDS_OVER | SL_TRANSPORT_STREAMS |
                    SL_TRANSPORT_JOINS | SL_TRANSPORT_CHECKSUMS,
    .open = dpdk_open,
    .close = dpdk_close,
    .memory_register = dpdk_memory_register,
    .memory_unregister = dpdk_memory_unregister,
    .listen = sl_dpdk_listen,
    .connect = sl_dpdk_connect,
    .disconnect = sl_dpdk_conn_disconnect,
    .hand_over = sl_dpdk_move_hand_over,
    .send_burst = sl_dpdk_send_burst,
    .release = sl_dpdk_release,
    .flush = dpdk_flush,
    .poll = dpdk_poll,
    .arm = dpdk_arm,
    .stats = dpdk_stats,
};
