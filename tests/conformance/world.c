#include "conformance.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "peer.h"

#define CONTENT_OFFSETS (64U << 10)
#define SLAB_BYTES      (24U << 20)
#define SLAB_BYTES_RDMA (256U << 20) /* for all long frames */
#define SINKS_BYTES     (13U << 20)  /* for three */
#define LOSSY_STEPS     20
#define LOSSY_STEP_US   500
#define SLOWNESS        16

const struct conformance_target *conformance_target;

static uint8_t *content;

static atomic_ullong frozen_ns = SL_CLOCK_NS_PER_S;

/* What a medium has lost is sent again in time: there it passes by itself too, as it does. */
static uint64_t amber_now_ns(void *ctx)
{
    return frozen_ns + (conformance_target->is_lossy ? sl_clock_now_ns(sl_clock_system()) : 0);
}

static const struct sl_clock frozen = {.now_ns = amber_now_ns};

static uint64_t slow_now_ns(void *ctx)
{
    return sl_clock_now_ns(sl_clock_system()) / SLOWNESS;
}

static const struct sl_clock slow = {.now_ns = slow_now_ns};

static void nothing(struct node *node, void *ctx)
{
}

static void read_now(struct node *node, void *ctx)
{
    *(uint64_t *)ctx = sl_reactor_now_ns(node->reactor);
}

static uint64_t turns_of(const struct node *node)
{
    struct sl_reactor_stats stats;
    sl_reactor_get_stats(node->reactor, &stats);
    return stats.turns;
}

/* Many calls may be answered in one turn, which goes by the time at which it began: so what counts
 * is that the node has seen the new time, and that this turn has ended. */
static void pass_at_once(struct world *world, uint64_t time_ns)
{
    frozen_ns += time_ns;
    for (uint32_t i = 0; i < world->node_count; i++) {
        struct node *node = &world->nodes[i];
        uint64_t seen_ns = 0;
        while (seen_ns < frozen_ns) {
            node_run(node, read_now, &seen_ns);
        }
        uint64_t turns = turns_of(node);
        while (turns_of(node) < turns + 2) {
            node_run(node, nothing, NULL);
        }
    }
}

/* What a lossy medium has lost is sent again after a few round trips. If all the time passed at
 * once, a round trip would last as long, and a packet would have a single try in it. */
void world_pass(struct world *world, uint64_t time_ms)
{
    const uint32_t steps = conformance_target->is_lossy ? LOSSY_STEPS : 1;
    for (uint32_t i = 0; i < steps; i++) {
        pass_at_once(world, time_ms * SL_CLOCK_NS_PER_MS / steps);
        if (conformance_target->is_lossy) {
            usleep(LOSSY_STEP_US);
        }
    }
}

const uint8_t *content_of(uint32_t number, uint32_t payload_bytes)
{
    sl_assert(payload_bytes <= SL_LIMIT_FRAME_PAYLOAD_BYTES);
    return content + (number * 977U) % CONTENT_OFFSETS;
}

static void make_content(void)
{
    size_t bytes = SL_LIMIT_FRAME_PAYLOAD_BYTES + CONTENT_OFFSETS;
    content = malloc(bytes);
    sl_assert(content != NULL);
    uint64_t state = 1;
    for (size_t i = 0; i < bytes; i += sizeof state) {
        uint64_t value = sl_hash_random(&state);
        memcpy(content + i, &value, sizeof value);
    }
}

bool wait_expired(uint64_t *deadline_ns)
{
    uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    if (*deadline_ns == 0) {
        *deadline_ns = now_ns + WAIT_S * SL_CLOCK_NS_PER_S;
    }
    usleep(200);
    return now_ns > *deadline_ns;
}

struct call {
    struct node *node;
    void (*run)(struct node *node, void *ctx);
    void *ctx;
    sem_t done;
};

static void run_call(void *ctx, uint64_t a, uint64_t b)
{
    struct call *call = ctx;
    call->run(call->node, call->ctx);
    sem_post(&call->done);
}

void node_run(struct node *node, void (*run)(struct node *node, void *ctx), void *ctx)
{
    struct call call = {.node = node, .run = run, .ctx = ctx};
    sem_init(&call.done, 0, 0);
    while (sl_mailbox_post(node->lane, (struct sl_mail){.run = run_call, .ctx = &call}) != 0) {
        usleep(100);
    }
    while (sem_wait(&call.done) != 0) {
    }
    sem_destroy(&call.done);
}

struct open_call {
    const struct sl_transport_options *options;
    int err;
};

static void run_open(struct node *node, void *ctx)
{
    struct open_call *call = ctx;
    struct sl_transport *transport = NULL;
    call->err =
        sl_transport_open(conformance_target->ops, node->reactor, call->options, &transport);
    if (call->err == 0) {
        sl_transport_close(&transport);
    }
}

int node_open(struct node *node, const struct sl_transport_options *options)
{
    struct open_call call = {.options = options};
    node_run(node, run_open, &call);
    return call.err;
}

static void set_policy(struct node *node, void *ctx)
{
    node->policy = *(const struct policy *)ctx;
}

void node_set_policy(struct node *node, struct policy policy)
{
    node_run(node, set_policy, &policy);
}

static int make_memory(struct node *node, size_t bytes, struct sl_shared *out)
{
    int err = sl_shared_create("conformance", bytes, SL_SHARED_READ, out);
    return err != 0 ? err : sl_transport_memory_register(node->transport, out->base, bytes);
}

bool node_needs_registered(void)
{
    const uint32_t both = SL_TRANSPORT_DIRECT_REPLIES | SL_TRANSPORT_REGISTERS;
    return (conformance_target->ops->capabilities & both) == both;
}

/* What the node's peers send from and receive into, where it matters that this is registered. */
static int register_memory(struct node *node)
{
    uint32_t can = conformance_target->ops->capabilities;
    int err = 0;
    if ((can & (SL_TRANSPORT_MAPS_MEMORY | SL_TRANSPORT_REGISTERS)) != 0) {
        err =
            make_memory(node, node_needs_registered() ? SLAB_BYTES_RDMA : SLAB_BYTES, &node->slab);
    }
    if (err == 0 && (can & SL_TRANSPORT_REGISTERS) != 0) {
        err = make_memory(node, SINKS_BYTES, &node->sinks);
    }
    return err;
}

static int start_node(void *ctx)
{
    struct node *node = ctx;
    if (conformance_target->cripple != NULL) {
        conformance_target->cripple(node->reactor);
    }
    int err =
        sl_transport_open(conformance_target->ops, node->reactor, &node->options, &node->transport);
    if (err == 0) {
        err = register_memory(node);
    }
    if (err != 0 || node->index != 0) {
        return err;
    }
    struct sl_endpoint endpoint;
    err = sl_endpoint_parse(conformance_target->endpoint, &endpoint, NULL);
    if (err != 0) {
        return err;
    }
    return sl_transport_listen(node->transport, &endpoint, &peer_events, node, &node->bound);
}

static void stop_node(void *ctx)
{
    struct node *node = ctx;
    sl_transport_close(&node->transport);
    sl_assert(node->transport == NULL);
}

static void open_node(struct world *world, uint32_t index)
{
    struct node *node = &world->nodes[index];
    node->index = index;
    node->options = world->options;
    node->options.number = index;
    struct sl_reactor_options options = {.index = index,
                                         .core = -1,
                                         .polling = conformance_target->polling,
                                         .spin_us = world->clock != &frozen ? 20 : 0,
                                         .clock = world->clock};
    snprintf(options.name, sizeof options.name, "node%u", index);
    assert_int_equal(sl_reactor_create(&options, &node->reactor), 0);
    sl_reactor_on_stop(node->reactor, stop_node, node);
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(node->reactor), &node->lane), 0);
}

static struct world *open_at(uint32_t node_count, const struct sl_transport_options *options,
                             const struct sl_clock *clock)
{
    sl_assert(node_count <= NODES_MAX);
    if (content == NULL) {
        make_content();
    }
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->node_count = node_count;
    world->clock = clock;
    if (options != NULL) {
        world->options = *options;
    }
    if (world->options.peer_timeout_ms == 0) {
        world->options.peer_timeout_ms = conformance_target->peer_timeout_ms;
    }
    if (world->options.tls == NULL) {
        world->options.tls = conformance_target->tls;
    }
    if (conformance_target->medium_open != NULL) {
        world->options.medium = conformance_target->medium_open(node_count);
    }
    struct sl_reactor *reactors[NODES_MAX];
    for (uint32_t i = 0; i < node_count; i++) {
        open_node(world, i);
        reactors[i] = world->nodes[i].reactor;
    }
    assert_int_equal(sl_reactor_connect(reactors, node_count), 0);
    for (uint32_t i = 0; i < node_count; i++) {
        struct node *node = &world->nodes[i];
        assert_int_equal(sl_reactor_start(node->reactor, start_node, node), 0);
    }
    return world;
}

struct world *world_open(uint32_t node_count, const struct sl_transport_options *options)
{
    return open_at(node_count, options, NULL);
}

struct world *world_open_with_frozen_clock(uint32_t node_count,
                                           const struct sl_transport_options *options)
{
    return open_at(node_count, options, &frozen);
}

struct world *world_open_unhurried(uint32_t node_count, const struct sl_transport_options *options)
{
    return open_at(node_count, options, conformance_target->is_lossy ? &slow : &frozen);
}

void world_close(struct world *world)
{
    for (uint32_t i = 0; i < world->node_count; i++) {
        sl_reactor_stop(world->nodes[i].reactor);
        sl_reactor_join(world->nodes[i].reactor);
    }
    for (uint32_t i = 0; i < world->node_count; i++) {
        struct node *node = &world->nodes[i];
        sl_mailbox_lane_close(&node->lane);
        sl_reactor_destroy(&node->reactor);
        for (uint32_t k = 0; k < node->peer_count; k++) {
            peer_destroy(node->peers[k]);
        }
        assert_int_equal(node->open_count, node->closed_count);
        assert_int_equal(node->slab_frames, 0);
        sl_shared_destroy(&node->slab);
        sl_shared_destroy(&node->sinks);
    }
    if (conformance_target->medium_close != NULL) {
        conformance_target->medium_close(world->options.medium);
    }
    free(world);
}

int conformance_run(const struct conformance_target *target)
{
    static const char *const files[] = {&conformance_transfer_cases, &conformance_close_cases,
                                        &conformance_raw_cases,      &conformance_silence_cases,
                                        &conformance_migrate_cases,  &conformance_target_cases,
                                        &conformance_rma_cases};
    (void)*(const char *const volatile *)files;
    conformance_target = target;
    const int failed = sl_unit_run(target->name, "/cases_");
    free(content);
    content = NULL;
    return failed;
}

size_t conformance_find_variant(int argc, char **argv, const void *rows, size_t row_bytes,
                                size_t row_count)
{
    for (size_t i = 0; argc == 2 && i < row_count; i++) {
        const char *const *name = (const void *)((const char *)rows + i * row_bytes);
        if (strcmp(*name, argv[1]) == 0) {
            return i;
        }
    }
    fprintf(stderr, "usage: %s VARIANT\n", argv[0]);
    exit(2);
}
