/* Keeps ids of ended connections for a while. A peer that still sends for one gets the RESET again.
 * A direct-mapped table, in which the newest entry replaces the old one: it is an optimisation,
 * since peers time out without it. */
#include "net/dpdk/time_wait.h"

#include <stdlib.h>
#include <string.h>

#include "net/dpdk/conn_table.h"
#include "net/dpdk/send.h"

#define PASTS    1024U /* 2^n */
#define AGAIN_NS SL_CLOCK_NS_PER_MS
#define LEAST_NS (10 * SL_CLOCK_NS_PER_S) /* longer than a cookie is valid */

struct time_wait {
    uint64_t id, until_ns; /* until_ns 0: a free place */
    struct sl_dpdk_netif *netif;
    struct sl_dpdk_address there;
    struct sl_dpdk_route route;
    struct sl_dpdk_last_words last;
    uint64_t told_ns;
    uint16_t queue;
};

struct sl_dpdk_time_wait {
    struct time_wait places[PASTS];
};

int sl_dpdk_time_wait_open(struct sl_dpdk *dpdk)
{
    dpdk->time_wait = calloc(1, sizeof *dpdk->time_wait);
    return dpdk->time_wait != NULL ? 0 : SL_ERR_NO_MEMORY;
}

void sl_dpdk_time_wait_close(struct sl_dpdk *dpdk)
{
    free(dpdk->time_wait);
    dpdk->time_wait = NULL;
}

static struct time_wait *time_wait_place_of(struct sl_dpdk *dpdk, uint64_t id)
{
    return &dpdk->time_wait->places[(id >> SL_DPDK_ID_SHIFT) % PASTS];
}

static struct time_wait *time_wait_find(struct sl_dpdk *dpdk, uint64_t id)
{
    struct time_wait *time_wait = time_wait_place_of(dpdk, id);
    bool is_it = time_wait->id == id && sl_dpdk_now_ns(dpdk) < time_wait->until_ns;
    return is_it ? time_wait : NULL;
}

static uint64_t until_ns(const struct sl_dpdk *dpdk)
{
    const uint64_t ns = 2 * sl_transport_patience_ns(&dpdk->base);
    return sl_dpdk_now_ns(dpdk) + (ns > LEAST_NS ? ns : LEAST_NS);
}

void sl_dpdk_time_wait_last_words(const struct sl_dpdk_conn *conn, int err,
                                  struct sl_dpdk_last_words *out)
{
    const uint32_t words = sl_dpdk_received_packets_words(
        &conn->received, (uint64_t *)(void *)out->body, SL_DPDK_SACK_WORDS);
    const uint32_t sack_bytes = words * (uint32_t)sizeof(uint64_t);
    out->body[sack_bytes] = (uint8_t)-err;
    out->header =
        (struct sl_dpdk_header){.connection = conn->id_peers,
                                .sequence = conn->sent_packets.next,
                                .acknowledged = conn->received.next,
                                .granted = conn->grant.granted,
                                .behind = sl_dpdk_sent_packets_behind(&conn->sent_packets),
                                .kind = SL_DPDK_RESET,
                                .flags = (uint8_t)words,
                                .body_bytes = (uint16_t)(sack_bytes + 1)};
}

void sl_dpdk_time_wait_ended(const struct sl_dpdk_conn *conn)
{
    struct sl_dpdk *dpdk = conn->dpdk;
    if (conn->id_peers == 0 || !conn->path.routed) {
        return;
    }
    struct time_wait *time_wait = time_wait_place_of(dpdk, conn->id);
    *time_wait = (struct time_wait){.id = conn->id,
                                    .until_ns = until_ns(dpdk),
                                    .netif = conn->path.netif,
                                    .there = conn->path.there,
                                    .route = conn->path.route,
                                    .queue = conn->path.queue};
    const bool was_orderly = conn->end.all_delivered ||
                             (conn->end.err == SL_OK && conn->end.fin == SL_DPDK_FIN_ACKNOWLEDGED);
    sl_dpdk_time_wait_last_words(conn, was_orderly ? SL_OK : SL_ERR_CLOSED, &time_wait->last);
}

bool sl_dpdk_time_wait_has(struct sl_dpdk *dpdk, uint64_t id)
{
    return time_wait_find(dpdk, id) != NULL;
}

/* Only packets that expect an answer get one, so that two ended sides do not answer each other for
 * ever. */
static bool waits(const struct sl_dpdk_header *header)
{
    return header->kind >= SL_DPDK_DATA && header->kind <= SL_DPDK_FIN;
}

static void tell_again(struct sl_dpdk *dpdk, struct time_wait *time_wait,
                       const struct sl_dpdk_parsed *parsed)
{
    const uint64_t now_ns = sl_dpdk_now_ns(dpdk);
    if (!waits(&parsed->header) ||
        memcmp(&time_wait->there.ip, &parsed->from.ip, sizeof time_wait->there.ip) != 0 ||
        (time_wait->told_ns != 0 && now_ns - time_wait->told_ns < AGAIN_NS)) {
        return;
    }
    time_wait->told_ns = now_ns;
    sl_dpdk_send_unnumbered(dpdk, time_wait->netif, &time_wait->route, time_wait->queue,
                            &time_wait->last.header, time_wait->last.body);
}

bool sl_dpdk_time_wait_take(struct sl_dpdk *dpdk, const struct sl_dpdk_parsed *parsed)
{
    struct time_wait *time_wait = time_wait_find(dpdk, parsed->header.connection);
    if (time_wait == NULL) {
        return false;
    }
    tell_again(dpdk, time_wait, parsed);
    return true;
}
