/* Whole lives of connections over a network that does everything that is bad, from a seed:
 * beginnings, hand-overs under traffic, ends by either side, by both and of the process. What must
 * come comes, and every connection ends as it should. DPDK_FAULTY_SEED replays one run,
 * DPDK_FAULTY_SEEDS makes more of them. */
#include "tests/unit/net/dpdk/hosts.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/hash.h"
#include "tests/support/fault_port.h"
#include "tests/support/unit.h"

#define SEEDS       4U
#define CLIENTS_MAX 6U
#define FRAMES_MAX  40U

static const char *const networks[] = {
    "loss=0.01,reorder=0.01,duplicate=0.01,corrupt=0.01,truncate=0.01,short=0.01",
    "loss=0.05,corrupt=0.01,duplicate=0.01,delay_us=500",
    "loss=0.2",
    "reorder=0.4,duplicate=0.2,delay_us=2000",
    "loss=0.01,reorder=0.2,duplicate=0.2,short=0.5,delay_us=30000",
    "corrupt=0.1,truncate=0.05,duplicate=0.05",
    "blackout=0.002,blackout_ms=40,loss=0.01",
};
#define NETWORKS (sizeof networks / sizeof networks[0])

struct life {
    struct hosts hosts;
    struct sl_dpdk_faults faults;
    uint64_t seed;
    struct link *clients[CLIENTS_MAX];
    uint32_t frames[CLIENTS_MAX]; /* that each has sent */
    uint32_t client_count;
    uint32_t target; /* the node that the clients connect to */
    /* One has left before it was connected: where all is lost that it says then, its peer waits for
     * it as for a machine that is gone. */
    bool one_left_early;
};

static uint32_t below(struct life *life, uint32_t bound)
{
    return (uint32_t)(sl_hash_random(&life->seed) % bound);
}

static void life_open(struct life *life, uint64_t seed)
{
    static const enum sl_wire_steering ways[] = {SL_WIRE_STRAIGHT, SL_WIRE_SCATTER, SL_WIRE_FIRST};
    *life = (struct life){.seed = seed};
    const char *network = networks[below(life, NETWORKS)];
    assert_int_equal(sl_dpdk_faults_parse(network, &life->faults, NULL), 0);
    life->faults.seed = seed;
    struct hosts_options options = {.faults = &life->faults,
                                    .device = {.steering = ways[below(life, 3)],
                                               .drops = below(life, 2) == 0,
                                               .rx_interrupt = below(life, 2) == 0,
                                               .tx_checksum = below(life, 2) == 0,
                                               .queue_packets = below(life, 2) == 0 ? 32 : 256}};
    hosts_open(&life->hosts, &options);
    sl_wire_set_tap(life->hosts.wire, NULL, NULL);
    node_listen(&life->hosts.nodes[0], 0);
    node_listen(&life->hosts.nodes[1], life->hosts.nodes[0].bound.port);
}

static void connect_some(struct life *life)
{
    const struct sl_endpoint *bound = &life->hosts.nodes[0].bound;
    life->target = below(life, 2);
    life->client_count = 1 + below(life, CLIENTS_MAX);
    for (uint32_t i = 0; i < life->client_count; i++) {
        life->clients[i] =
            node_connect_to(&life->hosts.nodes[2], bound->host, bound->port, life->target);
    }
}

static void wait_until_open(struct life *life)
{
    for (uint32_t i = 0; i < life->client_count; i++) {
        hosts_until(&life->hosts, &life->clients[i]->opened, 1);
    }
}

static uint32_t some_size(struct life *life)
{
    static const uint32_t bounds[] = {10, 200, 1400, 3000, 16000};
    return below(life, bounds[below(life, 5)]);
}

/* Long payloads have one place at each node: only where one connection is. */
static void send_some(struct life *life, struct link *link, uint32_t count)
{
    const bool is_alone = life->client_count == 1 && below(life, 2) == 0;
    for (uint32_t i = 0; i < count; i++) {
        link_send(link, 1, is_alone ? below(life, 32768) : some_size(life));
    }
}

static void send_all(struct life *life)
{
    for (uint32_t i = 0; i < life->client_count; i++) {
        life->frames[i] = 1 + below(life, FRAMES_MAX);
        send_some(life, life->clients[i], life->frames[i]);
    }
}

static void pass_some_time(struct life *life)
{
    for (uint32_t steps = below(life, below(life, 2) == 0 ? 10 : 300); steps > 0; steps--) {
        hosts_step(&life->hosts, STEP_NS);
    }
}

/* All that the other host's nodes have had of what the clients have sent. */
static uint32_t received_there(const struct life *life)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < life->hosts.nodes[i].link_count; k++) {
            count += life->hosts.nodes[i].links[k].received;
        }
    }
    return count;
}

static uint32_t sent_here(const struct life *life)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < life->client_count; i++) {
        count += life->frames[i];
    }
    return count;
}

/* Every link of a node has ended, once; with one of two errors. */
static void wait_for_ends(struct life *life, uint32_t node, int err, int other)
{
    for (uint32_t i = 0; i < life->hosts.nodes[node].link_count; i++) {
        struct link *link = &life->hosts.nodes[node].links[i];
        hosts_until(&life->hosts, &link->closed, 1);
        const bool waited = link->err == SL_ERR_DEADLINE && node < 2 && life->one_left_early;
        if (link->err != err && link->err != other && !waited) {
            fail_msg("node %u: link %u ended with %s", node, i, sl_err_name(link->err));
        }
    }
}

/* What was accepted by nobody yet may be later: until all is quiet. */
static void wait_for_all_ends(struct life *life, int err, int other)
{
    uint32_t links;
    do {
        links = life->hosts.nodes[0].link_count + life->hosts.nodes[1].link_count;
        wait_for_ends(life, 2, SL_OK, SL_ERR_CLOSED);
        wait_for_ends(life, 0, err, other);
        wait_for_ends(life, 1, err, other);
        hosts_run_ms(&life->hosts, 100);
    } while (links != life->hosts.nodes[0].link_count + life->hosts.nodes[1].link_count);
}

static void leave(struct life *life, struct link *link)
{
    if (link->conn != NULL && link->closed == 0) {
        sl_transport_disconnect(link->conn);
    }
    pass_some_time(life);
}

static void life_close(struct life *life)
{
    hosts_close(&life->hosts);
}

static void each_seed(void (*run)(struct life *life))
{
    static struct life life;
    const char *one = getenv("DPDK_FAULTY_SEED"), *many = getenv("DPDK_FAULTY_SEEDS");
    const uint64_t first = one != NULL ? strtoull(one, NULL, 10) : 1;
    const uint64_t count = one != NULL ? 1 : many != NULL ? strtoull(many, NULL, 10) : SEEDS;
    for (uint64_t seed = first; seed < first + count; seed++) {
        if (one != NULL || many != NULL) {
            fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        }
        life_open(&life, seed);
        run(&life);
        life_close(&life);
    }
}

/* ---- The cases --------------------------------------------------------------------------------
 */

static void run_echo(struct life *life)
{
    struct hosts *hosts = &life->hosts;
    hosts->nodes[0].echoes = hosts->nodes[1].echoes = true;
    connect_some(life);
    wait_until_open(life);
    send_all(life);
    for (uint32_t i = 0; i < life->client_count; i++) {
        hosts_until(hosts, &life->clients[i]->received, life->frames[i]);
        hosts_until(hosts, &life->clients[i]->sent, life->frames[i]);
    }
    for (uint32_t i = 0; i < life->client_count; i++) {
        leave(life, below(life, 2) == 0 ? life->clients[i] : &hosts->nodes[life->target].links[i]);
    }
}

SL_CASE(echo__then_one_leaves)
{
    each_seed(run_echo);
}

static void run_last_words(struct life *life)
{
    struct hosts *hosts = &life->hosts;
    connect_some(life);
    wait_until_open(life);
    for (uint32_t i = 0; i < life->client_count; i++) {
        life->frames[i] = 1 + below(life, FRAMES_MAX / 4);
        for (uint32_t k = 0; k < life->frames[i]; k++) {
            link_send(life->clients[i], 1, some_size(life));
        }
        sl_transport_disconnect(life->clients[i]->conn);
    }
    const uint64_t begun_ns = hosts->now_ns;
    uint32_t told = 0;
    for (uint32_t i = 0; i < life->client_count; i++) {
        hosts_until(hosts, &life->clients[i]->closed, 1);
        told += life->clients[i]->sent;
    }
    const bool in_time = hosts->now_ns - begun_ns < SL_CLOCK_NS_PER_S;
    wait_for_all_ends(life, SL_ERR_CLOSED, SL_ERR_CLOSED);
    assert_in_range(received_there(life), in_time ? sent_here(life) : told, sent_here(life));
}

/* What was taken is there before the end is, within the second that it is given. */
SL_CASE(disconnect__sends_what_was_taken)
{
    each_seed(run_last_words);
}

static void run_leave(struct life *life)
{
    struct hosts *hosts = &life->hosts;
    hosts->nodes[1].echoes = true;
    connect_some(life);
    pass_some_time(life);
    for (uint32_t i = 0; i < life->client_count; i++) {
        if (life->clients[i]->opened == 1) {
            send_some(life, life->clients[i], 1 + below(life, 10));
        }
    }
    pass_some_time(life);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < hosts->nodes[i].link_count; k++) {
            if (below(life, 2) == 0) {
                leave(life, &hosts->nodes[i].links[k]);
            }
        }
    }
    for (uint32_t i = 0; i < life->client_count; i++) {
        life->one_left_early = life->one_left_early || life->clients[i]->opened == 0;
        leave(life, life->clients[i]);
    }
    wait_for_all_ends(life, SL_OK, SL_ERR_CLOSED);
}

/* At any moment, also before they are connected, and both at once. */
SL_CASE(disconnect__whenever)
{
    each_seed(run_leave);
}

static void run_close(struct life *life)
{
    struct hosts *hosts = &life->hosts;
    const bool is_client = below(life, 2) == 0;
    hosts->nodes[0].echoes = hosts->nodes[1].echoes = true;
    connect_some(life);
    pass_some_time(life);
    for (uint32_t i = 0; i < life->client_count; i++) {
        if (life->clients[i]->opened == 1) {
            send_some(life, life->clients[i], 1 + below(life, 10));
        }
    }
    pass_some_time(life);
    if (is_client) {
        sl_transport_close(&hosts->nodes[2].transport);
        wait_for_ends(life, 2, SL_ERR_CANCELLED, SL_ERR_CANCELLED);
        hosts_run_ms(hosts, 100);
        wait_for_ends(life, 0, SL_ERR_CLOSED, SL_ERR_DEADLINE);
        wait_for_ends(life, 1, SL_ERR_CLOSED, SL_ERR_DEADLINE);
    } else {
        sl_transport_close(&hosts->nodes[0].transport);
        sl_transport_close(&hosts->nodes[1].transport);
        for (uint32_t i = 0; i < life->client_count; i++) {
            hosts_until(hosts, &life->clients[i]->closed, 1);
            const int err = life->clients[i]->err;
            assert_true(err == SL_ERR_CLOSED || err == SL_ERR_DEADLINE);
        }
    }
}

SL_CASE(transport_close__whenever)
{
    each_seed(run_close);
}
