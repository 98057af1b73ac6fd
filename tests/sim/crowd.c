#include "tests/sim/crowd.h"

#include <inttypes.h>
#include <starling_objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "core/log.h"
#include "net/session/message.h"
#include "objects/node/node.h"
#include "ps/coordinator/state.h"
#include "tests/sim/ps.h"
#include "worker/client/start.h"

#define MEMBERS      1000
#define SERVERS      4   /* of the members of a job; the others are workers */
#define COPIES       2   /* that each node reports */
#define REQUESTS_MAX 200 /* of all members, in any WINDOW_NS */
#define WINDOW_NS    (100 * SL_CLOCK_NS_PER_MS)
#define START_NS     (2 * SL_CLOCK_NS_PER_S) /* nodes start within this */
#define REST_NS      (4 * SL_CLOCK_NS_PER_S) /* a third of a lease, in which each node says ALIVE */
#define BACK_NS      (6 * SL_CLOCK_NS_PER_S) /* members are back so soon */
#define SHORT_NS     (50 * SL_CLOCK_NS_PER_MS)
#define LONG_NS      (8 * SL_CLOCK_NS_PER_S)
#define LEASE_NS     (10 * SL_CLOCK_NS_PER_S)
#define TIMEOUT_MS   600000

struct node {
    struct sl_sim_app app;
    struct sl_transfer *engine;
    struct sl_objects *node;
    uint8_t memory[COPIES][64];
    bool is_ready;
};

struct trainer {
    struct sl_sim_process process;
    struct sl_client *client;
    bool is_ready;
};

/* Host 0 has the service. */
static struct {
    bool is_job;
    uint64_t seed;
    struct sl_sim_network *network;
    struct sl_sim_process *processes[MEMBERS + 1]; /* NULL: none runs there */
    uint64_t due_ns[MEMBERS + 1];
    struct node nodes[MEMBERS + 1];
    struct sl_sim_ps servers[SERVERS + 1];
    struct trainer trainers[MEMBERS + 1];
} crowd;

/* Requests: messages to the service, and attempts to connect to it while it is away */

static struct {
    uint64_t times_ns[16 * MEMBERS]; /* a ring */
    uint64_t count, from, most;      /* from: the first one of the window */
} requests;

static void count_request(void)
{
    const uint64_t room = sizeof requests.times_ns / sizeof requests.times_ns[0];
    const uint64_t now_ns = sl_sim_network_now(crowd.network);
    requests.times_ns[requests.count++ % room] = now_ns;
    sl_assert(requests.count - requests.from <= room);
    while (requests.times_ns[requests.from % room] + WINDOW_NS <= now_ns) {
        requests.from++;
    }
    const uint64_t in_window = requests.count - requests.from;
    requests.most = in_window > requests.most ? in_window : requests.most;
}

/* What the catalogue gets is a notice; its engine answers the rest. Heartbeats have no answer. */
static bool is_request(const struct sl_message *message)
{
    return crowd.is_job ? message->kind != SL_MESSAGE_HEARTBEAT
                        : message->kind == SL_MESSAGE_NOTICE;
}

static void on_frame(void *ctx, const struct sl_sim_frame *frame)
{
    struct sl_message message;
    if (frame->delivered && frame->from == 0 && frame->to != 0 &&
        frame->header.type == SL_FRAME_CONTROL &&
        sl_message_decode(frame->payload, frame->header.payload_bytes, &message) == 0) {
        if (is_request(&message)) {
            count_request();
        }
        sl_message_fini(&message);
    }
}

static void on_ended(void *ctx, uint32_t host, uint64_t pair, bool connector, int err)
{
    if (crowd.processes[0] == NULL && err == SL_ERR_REFUSED) {
        count_request();
    }
}

static void on_wake(void *ctx, uint32_t host, uint64_t at_ns)
{
    if (crowd.processes[host] != NULL) {
        sl_sim_process_wake(crowd.processes[host], at_ns);
        crowd.due_ns[host] = at_ns < crowd.due_ns[host] ? at_ns : crowd.due_ns[host];
    }
}

static uint64_t seed_of(uint32_t host)
{
    return sl_hash_key((crowd.seed << 32) + host);
}

/* Nodes of objects */

static void publish(struct node *own, uint32_t copy)
{
    char name[32];
    struct sl_publication *publication;
    uint64_t version;
    (void)snprintf(name, sizeof name, "host%u.%u", own->app.process.host, copy);
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = name, .origin = SL_ORIGIN_CALLER};
    const struct sl_object_extent extent = {own->memory[copy], sizeof own->memory[copy]};
    int err = sl_publish_begin(own->node, &options, TIMEOUT_MS, &publication);
    err = err != 0 ? err : sl_publish_bytes(publication, &extent, 1);
    err = err != 0 ? err : sl_publish_commit(publication, TIMEOUT_MS, &version);
    sl_assert(err == 0);
    sl_publish_end(&publication);
}

static void node_live(void *ctx)
{
    struct node *own = ctx;
    const bool is_catalogue = own->app.process.host == 0;
    char catalogue[SL_SIM_APP_NAME_BYTES], name[SL_SIM_APP_NAME_BYTES];
    sl_sim_app_name(0, catalogue);
    sl_sim_app_name(own->app.process.host, name);
    if (!is_catalogue) {
        sl_sim_app_sleep(&own->app, sl_hash_random(&own->app.random) % START_NS);
    }
    own->engine = sl_sim_app_engine(&own->app, name);
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine = own->engine,
                                               .catalogue = catalogue,
                                               .host = name,
                                               .agent = "off",
                                               .pool_bytes = 1 << 20};
    struct sl_objects_setup setup = {0};
    sl_sim_app_setup(&own->app, &setup);
    const int err = sl_objects_create_with(&options, &setup, &own->node);
    sl_assert(err == 0);
    for (uint32_t i = 0; i < COPIES && !is_catalogue; i++) {
        publish(own, i);
    }
    own->is_ready = true;
    while (!own->app.dying) {
        sl_sim_app_sleep(&own->app, 1000 * SL_CLOCK_NS_PER_S);
    }
    sl_objects_destroy(&own->node);
    sl_transfer_destroy(&own->engine);
}

static void node_over(struct sl_sim_app *app)
{
}

static void start_node(uint32_t host)
{
    static const struct sl_sim_app_actions actions = {.ended = node_over, .fini = node_over};
    struct node *own = &crowd.nodes[host];
    *own = (struct node){.app = {.actions = &actions, .random = seed_of(host)}};
    sl_sim_process_init(&own->app.process, crowd.network, host, "node", 1,
                        sl_hash_random(&own->app.random), 0, 0);
    sl_sim_app_thread(&own->app, node_live, own);
    crowd.processes[host] = &own->app.process;
}

/* It belongs to the catalogue that runs now, which knows its copies. */
static bool node_is_in(const struct node *own)
{
    const struct sl_objects *catalogue = crowd.nodes[0].node;
    return own->is_ready && crowd.nodes[0].is_ready && own->node->membership.is_attached &&
           own->node->membership.term == catalogue->membership.term &&
           own->node->membership.reports.is_complete;
}

/* Processes of a job */

static void start_server(uint32_t host)
{
    const struct sl_sim_ps_options options = {
        .network = crowd.network,
        .host = host,
        .task_index = host == 0 ? SERVERS : host - 1, /* host 0 is no server */
        .ps_count = SERVERS,
        .shard_count = 1,
        .reactor_count = 1,
        .worker_count = MEMBERS - SERVERS,
        .lease_ns = LEASE_NS,
        .start_timeout_ns = TIMEOUT_MS * SL_CLOCK_NS_PER_MS,
        .seed = seed_of(host),
        .hosts_coordinator = host == 0,
        .is_scheduler = host == 0,
    };
    sl_sim_ps_start(&crowd.servers[host], &options);
    crowd.processes[host] = &crowd.servers[host].process;
}

static const struct sl_transport_ops *find_transport(enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_TCP ? &sl_sim_transport_ops : NULL;
}

static void start_trainer(uint32_t host)
{
    struct trainer *trainer = &crowd.trainers[host];
    struct sl_endpoint endpoint;
    char coordinator[SL_LIMIT_ENDPOINT_BYTES];
    sl_sim_process_init(&trainer->process, crowd.network, host, "worker", 1, seed_of(host), 0, 0);
    crowd.processes[host] = &trainer->process;
    sl_sim_network_endpoint(crowd.network, 0, &endpoint);
    sl_endpoint_format(&endpoint, coordinator, sizeof coordinator);
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator = coordinator,
                                              .task_index = (int32_t)(host - SERVERS - 1),
                                              .start_timeout_ms = TIMEOUT_MS};
    const struct sl_client_setup setup = {
        .reactors = trainer->process.reactors,
        .reactor_count = 1,
        .find_transport = find_transport,
        .medium = sl_sim_network_medium(crowd.network, host, 0),
        .client_id = host,
    };
    const int err = sl_start_begin(&options, &setup, &trainer->client);
    sl_assert(err == 0);
    sl_sim_process_look(&trainer->process);
}

static void poll_trainer(struct trainer *trainer)
{
    if (!trainer->is_ready) {
        const int err = sl_start_poll(trainer->client);
        sl_assert(err == 0 || err == SL_ERR_AGAIN);
        trainer->is_ready = err == 0;
        sl_sim_process_look(&trainer->process);
    }
}

/* Run */

static void start(uint32_t host)
{
    if (!crowd.is_job) {
        start_node(host);
    } else if (host <= SERVERS) {
        start_server(host);
    } else {
        start_trainer(host);
    }
    crowd.due_ns[host] = sl_sim_network_now(crowd.network);
}

static void step(uint32_t host)
{
    if (!crowd.is_job) {
        (void)sl_sim_app_step(&crowd.nodes[host].app);
        crowd.due_ns[host] = sl_sim_app_due(&crowd.nodes[host].app);
        return;
    }
    (void)sl_sim_process_step(crowd.processes[host]);
    if (host > SERVERS) {
        poll_trainer(&crowd.trainers[host]);
    }
    crowd.due_ns[host] = sl_sim_process_due(crowd.processes[host]);
}

static bool all_are_in(void)
{
    bool are = !crowd.is_job || crowd.servers[0].wiring.coordinator->member_count == MEMBERS;
    for (uint32_t host = 1; host <= MEMBERS && are; host++) {
        are = crowd.is_job ? host <= SERVERS || crowd.trainers[host].is_ready
                           : node_is_in(&crowd.nodes[host]);
    }
    return are;
}

/* Until that time, or until done(); NULL: never. */
static void run(uint64_t for_ns, bool (*done)(void))
{
    const uint64_t until_ns = sl_sim_network_now(crowd.network) + for_ns;
    uint64_t next_ns = 0;
    while (next_ns < until_ns && (done == NULL || !done())) {
        next_ns = until_ns;
        for (uint32_t host = 0; host <= MEMBERS; host++) {
            next_ns = crowd.due_ns[host] < next_ns ? crowd.due_ns[host] : next_ns;
        }
        if (next_ns > sl_sim_network_now(crowd.network)) {
            sl_sim_network_advance(crowd.network, next_ns);
        }
        for (uint32_t host = 0; host <= MEMBERS; host++) {
            if (crowd.due_ns[host] <= next_ns) {
                step(host);
            }
        }
    }
}

/* The service is gone for that time, then its members return. Returns whether all is well. */
static bool restart(uint64_t away_ns)
{
    requests.count = requests.from = requests.most = 0;
    if (crowd.is_job) {
        sl_sim_ps_kill(&crowd.servers[0], false);
    } else {
        sl_sim_app_kill(&crowd.nodes[0].app, false);
    }
    crowd.processes[0] = NULL;
    crowd.due_ns[0] = SL_CLOCK_NEVER;
    run(away_ns, NULL);
    const uint64_t away_most = requests.most, since_ns = sl_sim_network_now(crowd.network);
    sl_sim_network_revive(crowd.network, 0);
    start(0);
    run(BACK_NS, all_are_in);
    const bool are_in = all_are_in();
    const uint64_t took_ms = (sl_sim_network_now(crowd.network) - since_ns) / SL_CLOCK_NS_PER_MS;
    run(REST_NS, NULL);
    printf("away for %" PRIu64 " ms, back after %" PRIu64 " ms; at most %" PRIu64
           " requests in 100 ms, %" PRIu64 " while it was away\n",
           (uint64_t)(away_ns / SL_CLOCK_NS_PER_MS), took_ms, requests.most, away_most);
    if (!are_in) {
        printf("seed %" PRIu64 ": return: some members are not back\n", crowd.seed);
    } else if (requests.most > REQUESTS_MAX) {
        printf("seed %" PRIu64 ": requests: more than %d in 100 ms\n", crowd.seed, REQUESTS_MAX);
    }
    return are_in && requests.most <= REQUESTS_MAX;
}

int sl_sim_crowd_main(int argument_count, char **arguments)
{
    crowd.is_job = argument_count > 0 && strcmp(arguments[0], "job") == 0;
    crowd.seed = argument_count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    if (argument_count == 0 || (!crowd.is_job && strcmp(arguments[0], "objects") != 0)) {
        printf("starling-sim --crowd objects|job [--seed N]\n");
        return 2;
    }
    sl_log_setup(SL_LOG_OFF, "sim");
    const struct sl_sim_network_options options = {
        .seed = crowd.seed,
        .bytes_per_us = 1000,
        .window_bytes = UINT32_MAX,
        .is_one_sided = true, /* without the checks that read all that is sent */
        .delay_us_min = 50,
        .delay_us_max = 150,
        .host_count = MEMBERS + 1,
    };
    const struct sl_sim_watch watch = {.frame = on_frame, .ended = on_ended, .wake = on_wake};
    crowd.network = sl_sim_network_create(&options, &watch);
    for (uint32_t host = 0; host <= MEMBERS; host++) {
        start(host);
    }
    run(LEASE_NS, all_are_in);
    sl_assert(all_are_in());
    run(REST_NS, NULL);
    /* The memory goes with the process. */
    return restart(SHORT_NS) && restart(LONG_NS) ? EXIT_SUCCESS : EXIT_FAILURE;
}
