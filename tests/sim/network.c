#include "tests/sim/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/network_internal.h"

#define PORT_FIRST  20000
#define BYTES_FIRST 10 /* of an address: "10.0.1.7" */

struct sl_sim_network *sl_sim_network_create(const struct sl_sim_network_options *options,
                                             const struct sl_sim_watch *watch)
{
    struct sl_sim_network *network = calloc(1, sizeof *network);
    sl_assert(network != NULL);
    network->options = *options;
    network->watch = *watch;
    network->meter = (struct sl_sim_meter){options->costs, options->server_count, 0, 0};
    network->random = options->seed;
    network->now_ns = SL_CLOCK_NS_PER_S;
    network->op_due_ns = SL_CLOCK_NEVER;
    network->hosts = calloc(options->host_count, sizeof *network->hosts);
    network->blocked = calloc((size_t)SL_SIM_RAILS_MAX * options->host_count, options->host_count);
    sl_assert(network->hosts != NULL && network->blocked != NULL);
    for (uint32_t i = 0; i < options->host_count; i++) {
        network->hosts[i] =
            (struct sl_sim_host){.network = network, .index = i, .port_next = PORT_FIRST};
    }
    if (options->has_packets) {
        network->ether = sl_sim_ether_create(network);
        network->dpdk = sl_sim_dpdk_create(network);
    }
    return network;
}

void sl_sim_network_destroy(struct sl_sim_network **network)
{
    struct sl_sim_network *gone = *network;
    for (uint32_t i = 0; i < gone->options.host_count; i++) {
        sl_assert(gone->hosts[i].transports == NULL);
        sl_assert(gone->hosts[i].listeners == NULL);
    }
    sl_assert(gone->message_count == 0);
    sl_assert(gone->ops == NULL);
    if (gone->ether != NULL) {
        sl_sim_dpdk_destroy(&gone->dpdk);
        sl_sim_ether_destroy(&gone->ether);
    }
    free(gone->hosts);
    free(gone->blocked);
    free(gone);
    *network = NULL;
}

uint64_t sl_sim_network_now(const struct sl_sim_network *network)
{
    return network->now_ns;
}

void sl_sim_network_advance(struct sl_sim_network *network, uint64_t now_ns)
{
    sl_assert(now_ns >= network->now_ns);
    network->now_ns = now_ns;
    if (network->op_due_ns <= now_ns) {
        sl_sim_rma_advance(network);
    }
    if (network->ether != NULL) {
        sl_sim_ether_advance(network->ether);
    }
}

uint64_t sl_sim_network_due(const struct sl_sim_network *network)
{
    return network->ether != NULL ? sl_sim_ether_due(network->ether) : SL_CLOCK_NEVER;
}

struct sl_sim_meter *sl_sim_network_meter(struct sl_sim_network *network)
{
    return &network->meter;
}

void *sl_sim_network_medium(struct sl_sim_network *network, uint32_t host, uint32_t place)
{
    sl_assert(host < network->options.host_count);
    return network->ether != NULL ? (void *)sl_sim_ether_medium(network->ether, host, place)
                                  : &network->hosts[host];
}

const struct sl_transport_ops *sl_sim_network_transport(const struct sl_sim_network *network)
{
    return network->ether != NULL ? sl_sim_dpdk_ops() : &sl_sim_transport_ops;
}

void sl_sim_network_endpoint(const struct sl_sim_network *network, uint32_t host,
                             struct sl_endpoint *out)
{
    *out = (struct sl_endpoint){.scheme = SL_ENDPOINT_TCP, .port = SL_SIM_PORT_BASE};
    if (network->ether != NULL) {
        sl_sim_ether_address(network->ether, host, out->host, sizeof out->host);
    } else {
        sl_sim_network_address(host, out->host, sizeof out->host);
    }
}

void sl_sim_network_address(uint32_t host, char *text, size_t text_bytes)
{
    sl_sim_network_rail_address(host, 0, text, text_bytes);
}

void sl_sim_network_rail_address(uint32_t host, uint32_t rail, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes, "%d.%u.%u.%u", BYTES_FIRST, rail, host >> 8, host & 0xff);
}

uint32_t sl_sim_network_connections(const struct sl_sim_network *network, uint32_t host)
{
    uint32_t count = 0;
    for (const struct sl_sim_transport *transport = network->hosts[host].transports;
         transport != NULL; transport = transport->next) {
        for (const struct sl_sim_conn *conn = transport->conns; conn != NULL; conn = conn->next) {
            count += !sl_sim_is_gone(conn);
        }
    }
    return count;
}

static uint64_t transport_next(struct sl_sim_transport *transport)
{
    const bool has_costs = transport->host->network->meter.costs != NULL;
    uint64_t next_ns = sl_sim_rma_regions_next(transport);
    for (struct sl_sim_conn *conn = transport->conns; conn != NULL; conn = conn->next) {
        uint64_t at_ns = conn->due_ns;
        if (at_ns == 0) {
            at_ns = sl_sim_is_gone(conn) ? SL_CLOCK_NEVER : sl_sim_conn_next(conn);
        }
        conn->due_ns = has_costs ? at_ns : 0;
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    return next_ns;
}

uint64_t sl_sim_network_next(const struct sl_sim_network *network, uint32_t host,
                             const struct sl_reactor *reactor)
{
    uint64_t next_ns =
        network->ether != NULL ? sl_sim_ether_next(network->ether, host, reactor) : SL_CLOCK_NEVER;
    for (struct sl_sim_transport *transport = network->hosts[host].transports; transport != NULL;
         transport = transport->next) {
        if (transport->reactor == reactor) {
            uint64_t at_ns = transport_next(transport);
            next_ns = at_ns < next_ns ? at_ns : next_ns;
        }
    }
    return next_ns;
}

uint64_t sl_sim_delay_ns(struct sl_sim_network *network)
{
    const struct sl_sim_network_options *options = &network->options;
    uint64_t us = sl_sim_between(&network->random, options->delay_us_min, options->delay_us_max);
    if (sl_sim_chance(&network->random, options->late_permille)) {
        us += sl_sim_below(&network->random, options->late_us_max + 1ULL);
    }
    return us * SL_CLOCK_NS_PER_US;
}

void sl_sim_wake(struct sl_sim_conn *conn, uint64_t at_ns)
{
    conn->due_ns = 0;
    struct sl_sim_network *network = sl_sim_network_of(conn);
    network->watch.wake(network->watch.ctx, sl_sim_home(conn)->host->index, at_ns);
}

void sl_sim_message_free(struct sl_sim_network *network, struct sl_sim_message *message)
{
    network->message_count--;
    memset(message->data, 0xdd, message->bytes);
    free(message);
}

void sl_sim_inbox_empty(struct sl_sim_conn *conn)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    if (network->options.is_one_sided && conn->sink != NULL) {
        const uint32_t words = (conn->inbox_first->bytes - SL_FRAME_HEADER_BYTES) / 8;
        memcpy(conn->sink, conn->inbox_first->data + SL_FRAME_HEADER_BYTES,
               8 * sl_sim_below(&network->random, words + 1ULL));
    }
    while (conn->inbox_first != NULL) {
        struct sl_sim_message *message = conn->inbox_first;
        conn->inbox_first = message->next;
        sl_sim_message_free(sl_sim_network_of(conn), message);
    }
    conn->inbox_last = NULL;
    conn->inbox_bytes = 0;
    conn->sink = NULL;
    conn->landed_ns = 0;
    conn->landed_bytes = conn->piece_bytes = 0;
}

void sl_sim_inbox_cut(struct sl_sim_conn *conn, uint64_t last_ns)
{
    struct sl_sim_message **at = &conn->inbox_first;
    conn->inbox_last = NULL;
    while (*at != NULL && ((*at)->arrival_ns <= last_ns || conn->sink != NULL)) {
        conn->inbox_last = *at;
        at = &(*at)->next;
        if (conn->sink != NULL) {
            break; /* the first is being written to its sink: the connection's end takes it */
        }
    }
    struct sl_sim_message *lost = *at;
    *at = NULL;
    while (lost != NULL) {
        struct sl_sim_message *next = lost->next;
        conn->inbox_bytes -= lost->bytes;
        sl_sim_message_free(sl_sim_network_of(conn), lost);
        lost = next;
    }
}

static void end_at(struct sl_sim_conn *conn, uint64_t at_ns, int err)
{
    conn->end_ns = at_ns < conn->end_ns ? at_ns : conn->end_ns;
    conn->end_err = err;
    sl_sim_wake(conn, at_ns);
}

/* Nothing is acknowledged any more. */
static void doom(struct sl_sim_conn *conn)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    if (conn->doom_ns == SL_CLOCK_NEVER && !sl_sim_is_gone(conn)) {
        uint64_t timeout_ns = sl_sim_home(conn)->peer_timeout_ns;
        conn->doom_ns =
            network->now_ns + timeout_ns + sl_sim_below(&network->random, timeout_ns / 4 + 1);
        sl_sim_wake(conn, conn->doom_ns);
    }
}

void sl_sim_part(struct sl_sim_conn *conn)
{
    struct sl_sim_conn *peer = conn->peer;
    if (peer == NULL) {
        return;
    }
    struct sl_sim_network *network = sl_sim_network_of(conn);
    conn->peer = peer->peer = NULL;
    if (sl_sim_is_cut(conn)) {
        doom(peer);
        return;
    }
    if (conn->base.is_abrupt) {
        peer->reset = sl_sim_chance(&network->random, 500);
    }
    uint64_t at_ns = network->now_ns + sl_sim_delay_ns(network);
    end_at(peer, at_ns > peer->last_arrival_ns ? at_ns : peer->last_arrival_ns + 1, SL_ERR_CLOSED);
}

/* Calls visit(conn, ctx) for every connection of the host that is not gone. */
static void each_conn(struct sl_sim_host *host, void (*visit)(struct sl_sim_conn *conn, void *ctx),
                      void *ctx)
{
    for (struct sl_sim_transport *transport = host->transports; transport != NULL;
         transport = transport->next) {
        for (struct sl_sim_conn *conn = transport->conns; conn != NULL; conn = conn->next) {
            if (!sl_sim_is_gone(conn)) {
                visit(conn, ctx);
            }
        }
    }
}

/* A host at the other end, and the rails that count. */
struct end {
    uint32_t host, rail; /* rail: SL_SIM_RAILS_MAX: all */
};

static bool leads_to(const struct sl_sim_conn *conn, const struct end *end)
{
    return conn->remote == end->host && (end->rail == SL_SIM_RAILS_MAX || conn->rail == end->rail);
}

static void doom_if_to(struct sl_sim_conn *conn, void *ctx)
{
    if (leads_to(conn, ctx) && conn->base.state != SL_CONN_CONNECTING) {
        doom(conn);
    }
    if (leads_to(conn, ctx) && conn->arriving) {
        doom(conn);
    }
}

/* Calls visit(conn, &end) for the connections between two hosts. */
static void each_between(struct sl_sim_network *network, uint32_t from, uint32_t to, uint32_t rail,
                         void (*visit)(struct sl_sim_conn *conn, void *ctx))
{
    each_conn(&network->hosts[from], visit, &(struct end){.host = to, .rail = rail});
    each_conn(&network->hosts[to], visit, &(struct end){.host = from, .rail = rail});
}

void sl_sim_network_block(struct sl_sim_network *network, uint32_t from, uint32_t to, uint32_t rail)
{
    for (uint32_t i = 0; i < SL_SIM_RAILS_MAX; i++) {
        if (rail == SL_SIM_RAILS_MAX || rail == i) {
            (*sl_sim_way(network, i, from, to))++;
        }
    }
    each_between(network, from, to, rail, doom_if_to);
}

/* What was held up goes on; who has lost his peer meanwhile is told. */
static void revive_if_to(struct sl_sim_conn *conn, void *ctx)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    if (!leads_to(conn, ctx)) {
        return;
    }
    bool hears = !sl_sim_is_deaf(conn);
    uint64_t at_ns = network->now_ns + sl_sim_delay_ns(network);
    for (struct sl_sim_message *message = conn->inbox_first; hears && message != NULL;
         message = message->next) {
        if (message->arrival_ns == SL_CLOCK_NEVER) {
            at_ns = at_ns > conn->last_arrival_ns ? at_ns : conn->last_arrival_ns + 1;
            message->arrival_ns = conn->last_arrival_ns = at_ns;
            sl_sim_wake(conn, at_ns);
        }
    }
    bool both = hears && !sl_sim_is_cut(conn);
    bool silent = network->hosts[conn->remote].dead && network->hosts[conn->remote].silent;
    if (both && !silent) {
        conn->doom_ns = SL_CLOCK_NEVER;
    }
    if (both && !silent && conn->peer == NULL && conn->base.state != SL_CONN_CONNECTING) {
        conn->reset = true;
        end_at(conn, at_ns + 1, SL_ERR_CLOSED);
    }
}

void sl_sim_network_heal(struct sl_sim_network *network, uint32_t from, uint32_t to, uint32_t rail)
{
    for (uint32_t i = 0; i < SL_SIM_RAILS_MAX; i++) {
        if (rail == SL_SIM_RAILS_MAX || rail == i) {
            sl_assert(*sl_sim_way(network, i, from, to) > 0);
            (*sl_sim_way(network, i, from, to))--;
        }
    }
    each_between(network, from, to, rail, revive_if_to);
}

/* This side is told within told_us_max; what has not arrived by a moment of chance is lost. */
static void break_side(struct sl_sim_conn *conn, uint32_t told_us_max)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    uint64_t told_ns =
        network->now_ns + SL_CLOCK_NS_PER_US * sl_sim_below(&network->random, told_us_max + 1ULL);
    sl_sim_inbox_cut(conn, sl_sim_between(&network->random, network->now_ns, told_ns));
    conn->peer = NULL;
    conn->reset = sl_sim_chance(&network->random, 500);
    end_at(conn, told_ns, sl_sim_chance(&network->random, 500) ? SL_ERR_CLOSED : SL_ERR_IO);
}

void sl_sim_break_pair(struct sl_sim_conn *conn, uint32_t told_us_max)
{
    struct sl_sim_conn *peer = conn->peer;
    sl_sim_rma_break(conn, told_us_max);
    sl_sim_rma_break(peer, told_us_max);
    break_side(conn, told_us_max);
    break_side(peer, told_us_max);
}

void sl_sim_network_calm(struct sl_sim_network *network)
{
    network->options.break_per_10000 = network->options.connect_fail_permille = 0;
    if (network->options.is_one_sided) {
        network->options.late_permille = 0; /* a late answer is a stall */
    }
    if (network->ether != NULL) {
        sl_sim_ether_calm(network->ether);
    }
    network->options.link_bytes_per_ms = 0;
}

struct breaking {
    uint32_t only, at, told_us_max; /* only: UINT32_MAX breaks all */
};

static void break_one(struct sl_sim_conn *conn, void *ctx)
{
    struct breaking *breaking = ctx;
    uint32_t at = breaking->at++;
    if (conn->peer == NULL || (breaking->only != UINT32_MAX && breaking->only != at)) {
        return;
    }
    sl_sim_break_pair(conn, breaking->told_us_max);
}

static uint64_t longer(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

uint64_t sl_sim_network_break(struct sl_sim_network *network, uint32_t host, bool all,
                              uint32_t told_us_max)
{
    const uint64_t told_ns = told_us_max * SL_CLOCK_NS_PER_US;
    if (network->dpdk != NULL) {
        const uint64_t asked_ns = network->options.peer_timeout_ms * SL_CLOCK_NS_PER_MS / 2;
        return sl_sim_dpdk_break(network->dpdk, host, all) ? told_ns : longer(told_ns, asked_ns);
    }
    uint32_t count = sl_sim_network_connections(network, host);
    if (count == 0) {
        return told_ns;
    }
    struct breaking breaking = {.only = all ? UINT32_MAX : sl_sim_below(&network->random, count),
                                .told_us_max = told_us_max};
    each_conn(&network->hosts[host], break_one, &breaking);
    return told_ns;
}

static void kill_one(struct sl_sim_conn *conn, void *ctx)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    struct sl_sim_host *host = sl_sim_home(conn)->host;
    struct sl_sim_conn *peer = conn->peer;
    conn->peer = NULL;
    sl_sim_inbox_empty(conn);
    sl_sim_rma_close(conn);
    conn->reset = true;
    conn->settle_ns = network->now_ns;
    end_at(conn, network->now_ns, SL_ERR_CANCELLED);
    if (peer == NULL) {
        return;
    }
    if (host->silent || sl_sim_is_cut(conn)) {
        peer->peer = NULL;
        doom(peer);
    } else {
        break_side(peer, network->options.delay_us_max);
    }
}

void sl_sim_network_kill(struct sl_sim_network *network, uint32_t host, bool silent)
{
    struct sl_sim_host *killed = &network->hosts[host];
    killed->dead = true;
    killed->silent = silent;
    if (network->ether != NULL) {
        sl_sim_ether_forget(network->ether, host);
    }
    each_conn(killed, kill_one, NULL);
}

void sl_sim_network_revive(struct sl_sim_network *network, uint32_t host)
{
    struct sl_sim_host *revived = &network->hosts[host];
    sl_assert(revived->transports == NULL);
    revived->dead = revived->silent = false;
    if (network->ether != NULL) {
        sl_sim_ether_revive(network->ether, host);
    }
    for (uint32_t i = 0; i < network->options.host_count; i++) {
        each_conn(&network->hosts[i], revive_if_to,
                  &(struct end){.host = host, .rail = SL_SIM_RAILS_MAX});
    }
}

void sl_sim_network_refuse(struct sl_sim_network *network, uint32_t host, bool refuse)
{
    network->hosts[host].refuses = refuse;
}
