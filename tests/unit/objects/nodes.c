#include "nodes.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "objects/node/node.h"
#include "tests/support/free_port.h"

void nodes_expect(int err)
{
    if (err != 0) {
        fail_msg("%s: %s", sl_err_name(err), sl_objects_last_error());
    }
}

#define PAUSE_US   100
#define PAUSES     50 /* of a wait, until the clock is put forward */
#define FORWARD_NS (50 * SL_CLOCK_NS_PER_MS)

static _Atomic uint64_t forward_ns; /* the nodes' clock is ahead of the system's by this */

static uint64_t clock_now(void *ctx)
{
    return sl_clock_now_ns(sl_clock_system()) + atomic_load(&forward_ns);
}

/* A reactor that sleeps until a timer is due has to look at the clock again. */
static void put_forward(const struct nodes *nodes)
{
    atomic_fetch_add(&forward_ns, FORWARD_NS);
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        if (nodes->node[i] != NULL && nodes->node[i]->reactor != NULL) {
            sl_mailbox_wake(sl_reactor_mailbox(nodes->node[i]->reactor));
        }
    }
}

static void wait_for_node(void *ctx, struct sl_completion *completion)
{
    const struct nodes *nodes = ctx;
    for (uint32_t i = 1; nodes->hurry && !sl_completion_ended(completion); i++) {
        (void)usleep(PAUSE_US);
        if (i % PAUSES == 0) {
            put_forward(nodes);
        }
    }
    sl_completion_wait(completion);
}

void nodes_pause(struct nodes *nodes)
{
    (void)usleep(PAUSE_US * PAUSES);
    if (nodes->hurry) {
        put_forward(nodes);
    }
}

void nodes_create(struct nodes *nodes, const struct sl_objects_options *options,
                  const struct sl_objects_setup *setup, struct sl_objects **out)
{
    static const struct sl_clock clock = {.now_ns = clock_now};
    struct sl_objects_setup own = {.is_keeper = false};
    if (setup != NULL) {
        own = *setup;
    }
    own.clock = &clock;
    own.wait = wait_for_node;
    own.ctx = nodes;
    nodes_expect(sl_objects_create_with(options, &own, out));
}

static void add(struct nodes *nodes, uint64_t bytes_per_s)
{
    char name[32];
    (void)snprintf(name, sizeof name, "127.0.0.1:%u", free_port());
    const struct sl_transfer_options engine = {.name = name,
                                               .endpoints = "tcp://127.0.0.1:0",
                                               .bytes_per_s_max = bytes_per_s,
                                               .insecure = true};
    const char host[2] = {(char)('a' + nodes->count), '\0'};
    const struct sl_objects_options options = {
        .struct_size = sizeof options,
        .engine_options = &engine,
        .catalogue = nodes->count > 0 ? sl_objects_address(nodes->node[0]) : NULL,
        .host = host,
        .pool_bytes = 64 << 20};
    assert_true(nodes->count < NODES_MAX);
    nodes_create(nodes, &options, NULL, &nodes->node[nodes->count]);
    nodes->count++;
}

void nodes_init(struct nodes *nodes, uint32_t count, uint64_t bytes_per_s)
{
    struct sl_object_list *list;
    memset(nodes, 0, sizeof *nodes);
    nodes->hurry = true; /* the catalogue first waits for nodes that knew an earlier one */
    while (nodes->count < count) {
        add(nodes, bytes_per_s);
        nodes_expect(sl_object_list(nodes->node[nodes->count - 1], NULL, NODES_TIMEOUT, &list));
        sl_object_list_free(&list);
    }
    nodes->hurry = false;
}

void nodes_end(struct nodes *nodes, uint32_t index)
{
    sl_objects_destroy(&nodes->node[index]);
}

void nodes_fini(struct nodes *nodes)
{
    while (nodes->count > 0) {
        sl_objects_destroy(&nodes->node[--nodes->count]);
    }
}

uint8_t *nodes_bytes(size_t bytes, uint32_t seed)
{
    uint8_t *made = malloc(bytes + 1);
    assert_non_null(made);
    for (size_t i = 0; i < bytes; i++) {
        made[i] = (uint8_t)((i * 2654435761U + seed * 40503U) >> 13);
    }
    return made;
}

void nodes_expect_bytes(const uint8_t *memory, size_t bytes, uint32_t seed)
{
    uint8_t *expected = nodes_bytes(bytes, seed);
    assert_int_equal(memcmp(memory, expected, bytes), 0);
    free(expected);
}

uint64_t nodes_publish(struct sl_objects *node, const char *name, enum sl_object_origin origin,
                       void *memory, size_t bytes)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = name, .note = name, .origin = origin};
    const struct sl_object_extent extent = {.base = memory, .bytes = bytes};
    struct sl_publication *publication;
    uint64_t version;
    nodes_expect(sl_publish_begin(node, &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &version));
    sl_publish_end(&publication);
    return version;
}

struct sl_get *nodes_start(struct sl_objects *node, const char *name, uint64_t version,
                           void *memory, size_t bytes, uint32_t timeout_ms)
{
    const struct sl_object_extent extent = {.base = memory, .bytes = bytes};
    struct sl_get *get = NULL;
    nodes_expect(sl_get_start(node, name, version, &extent, 1, timeout_ms, &get));
    return get;
}

void nodes_finish(struct sl_get *get)
{
    nodes_expect(sl_get_wait(get));
    sl_get_close(&get);
}

void nodes_get(struct sl_objects *node, const char *name, uint64_t version, void *memory,
               size_t bytes)
{
    nodes_finish(nodes_start(node, name, version, memory, bytes, NODES_TIMEOUT));
}
