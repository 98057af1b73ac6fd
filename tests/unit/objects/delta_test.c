/* Deltas between nodes: node 0 publishes, node 1 follows. */
#include "objects/node/delta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "nodes.h"
#include "objects/node/call.h"
#include "objects/node/node.h"
#include "objects/node/publish.h"
#include "tests/support/wrong_delta.h"

enum { BLOCK = SL_OBJECTS_BLOCK_BYTES, BLOCKS = 9, BYTES = BLOCKS * BLOCK - 63 };

#define NAME  "weights"
#define DELTA NAME "~delta0"

static struct nodes nodes;
static uint8_t *weights;
static uint64_t random_state;

/* What node 1 has counted. */
struct counted {
    uint64_t fetched, shared, saved, fallbacks;
};

static int set_up(void **state)
{
    (void)state;
    nodes_init(&nodes, 3, 0);
    weights = nodes_bytes(BYTES, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nodes_fini(&nodes);
    free(weights);
    return 0;
}
SL_UNIT_GROUP(set_up, tear_down);

static struct counted count(void)
{
    const struct sl_objects_counters *counters = &nodes.node[1]->measured.counters;
    return (struct counted){.fetched = sl_cell_get(&counters->fetched_bytes),
                            .shared = sl_cell_get(&counters->shared_bytes),
                            .saved = sl_cell_get(&counters->delta_saved_bytes),
                            .fallbacks = sl_cell_get(&counters->delta_fallbacks)};
}

/* Changes one of 50 elements of two bytes from the block on. */
static void train(uint32_t from_block)
{
    for (uint32_t i = from_block * BLOCK; i + 2 <= BYTES; i += 2) {
        const uint64_t drawn = sl_hash_random(&random_state);
        weights[i] ^= drawn % 50 == 0 ? (uint8_t)(drawn >> 32 | 1) : 0;
    }
}

static uint64_t publish(bool delta)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = NAME, .take_over = true, .delta = delta};
    const struct sl_object_tensor tensor = {.name = "w",
                                            .type = SL_OBJECT_BF16,
                                            .rank = 1,
                                            .shape = {BYTES / 2},
                                            .data = weights,
                                            .bytes = BYTES / 2 * 2};
    const struct sl_object_tensor last = {
        .name = "last", .type = SL_OBJECT_U8, .data = weights + BYTES - 1, .bytes = 1};
    struct sl_publication *publication;
    uint64_t version;
    nodes_expect(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_tensor(publication, &tensor));
    nodes_expect(sl_publish_tensor(publication, &last));
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &version));
    sl_publish_end(&publication);
    return version;
}

/* Fetches the version into the pool of the node, and compares it. */
static void follow(uint32_t node, uint64_t version)
{
    const struct sl_view_options options = {.struct_size = sizeof options, .version = version};
    struct sl_subscription *subscription;
    struct sl_view *view;
    struct sl_object_tensor tensor;
    nodes_expect(sl_subscription_open(nodes.node[node], NAME, NULL, NODES_TIMEOUT, &subscription));
    nodes_expect(sl_view_open(subscription, &options, NODES_TIMEOUT, &view));
    nodes_expect(sl_view_wait(view, UINT64_MAX, NODES_TIMEOUT));
    nodes_expect(sl_view_tensor(view, "w", &tensor, NULL));
    assert_memory_equal(tensor.data, weights, tensor.bytes);
    nodes_expect(sl_view_tensor(view, "last", &tensor, NULL));
    assert_memory_equal(tensor.data, weights + BYTES - 1, 1);
    sl_view_close(&view);
    sl_subscription_close(&subscription);
}

/* Publishes and follows a version without a delta: the base of the next one. */
static uint64_t make_base(void)
{
    train(0);
    const uint64_t base = publish(true);
    follow(1, base);
    return base;
}

SL_CASE(delta__moves_what_has_changed)
{
    (void)make_base();
    const struct counted before = count();
    train(0);
    follow(1, publish(true));
    const struct counted after = count();
    assert_int_equal(after.fallbacks, before.fallbacks);
    assert_in_range(after.saved - before.saved, BYTES / 10 * 9, BYTES);
    assert_in_range(after.fetched - before.fetched, 1, BYTES / 10);
}

SL_CASE(delta__moves_nothing_of_equal_blocks)
{
    (void)make_base();
    const struct counted before = count();
    train(5);
    follow(1, publish(true));
    const struct counted after = count();
    assert_int_equal(after.fallbacks, before.fallbacks);
    assert_int_equal(after.shared - before.shared, 5 * BLOCK);
    assert_in_range(after.saved - before.saved, 1, 4 * BLOCK);
}

SL_CASE(delta__is_not_made_where_it_does_not_pay)
{
    (void)make_base();
    struct sl_object_list *list;
    struct counted before = count();
    for (uint32_t i = 0; i < BYTES; i++) {
        weights[i] ^= (uint8_t)(sl_hash_random(&random_state) | 1);
    }
    const uint64_t version = publish(true);
    follow(1, version);
    assert_int_equal(count().fetched - before.fetched, BYTES);
    assert_int_equal(count().saved, before.saved);
    nodes_expect(sl_object_list(nodes.node[0], DELTA, NODES_TIMEOUT, &list));
    for (uint64_t i = 0; i < list->count; i++) {
        assert_int_not_equal(list->entries[i].version, version);
    }
    sl_object_list_free(&list);
}

/* Node 2 has no version before, and a node that has missed one has another base. */
SL_CASE(delta__is_of_no_use_without_its_base)
{
    (void)make_base();
    train(0);
    (void)publish(true); /* which node 1 does not fetch */
    train(0);
    const uint64_t version = publish(true);
    const struct counted before = count();
    follow(2, version);
    follow(1, version);
    const struct counted after = count();
    assert_int_equal(after.fallbacks, before.fallbacks + 1);
    assert_int_equal(after.saved, before.saved);
    assert_int_equal(after.fetched - before.fetched, BYTES);
}

/* Publishes bytes as the delta of the next version. */
static void publish_delta(uint64_t version, uint64_t base, const void *bytes, uint64_t byte_count)
{
    char note[24];
    (void)snprintf(note, sizeof note, "%llu", (unsigned long long)base);
    const struct sl_publish_options options = {.struct_size = sizeof options,
                                               .name = DELTA,
                                               .note = note,
                                               .version = version,
                                               .take_over = true};
    const struct sl_object_extent extent = {.base = (void *)(uintptr_t)bytes, .bytes = byte_count};
    struct sl_publication *publication;
    nodes_expect(sl_publish_start(nodes.node[0], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &version));
    sl_publish_end(&publication);
}

/* A delta of a base that node 1 does not have, a short one, one with lengths behind its end, and
 * one whose blocks are no encoding. */
SL_CASE(delta__that_is_damaged_is_replaced_by_whole_blocks)
{
    enum { HEAD = 4 * BLOCKS, ENCODED = 8 };
    static uint8_t bytes[HEAD + ENCODED * BLOCKS];
    for (uint32_t way = 0; way < 4; way++) {
        const uint64_t base = make_base();
        struct counted before = count();
        train(0);
        const uint64_t version = publish(false);
        const uint32_t length = way == 2 ? ENCODED * BLOCKS + 1 : ENCODED;
        for (uint32_t i = 0; i < BLOCKS; i++) {
            memcpy(bytes + 4 * i, &length, sizeof length);
        }
        publish_delta(version, way == 0 ? version : base, bytes,
                      way == 1 ? HEAD - 1 : sizeof bytes);
        follow(1, version);
        assert_int_equal(count().fallbacks, before.fallbacks + (way == 3 ? BLOCKS : 1));
        assert_int_equal(count().saved, before.saved);
    }
}

SL_CASE(delta__whose_blocks_have_other_bytes_is_not_believed)
{
    (void)make_base();
    train(0);
    const uint64_t version = publish(false);
    const struct counted before = count();
    nodes_expect(wrong_delta_publish(nodes.node[0], NAME, version, NODES_TIMEOUT));
    follow(1, version);
    assert_int_equal(count().fallbacks, before.fallbacks + BLOCKS);
    assert_int_equal(count().fetched - before.fetched > BYTES, true);
}

SL_CASE(delta__goes_with_its_version)
{
    struct sl_object_list *list;
    (void)make_base();
    train(0);
    const uint64_t version = publish(true);
    follow(1, version);
    nodes_expect(sl_object_list(nodes.node[2], NAME, NODES_TIMEOUT, &list));
    for (uint64_t i = 0; i < list->count; i++) {
        assert_string_equal(list->entries[i].name, NAME); /* deltas are hidden */
    }
    sl_object_list_free(&list);
    nodes_expect(sl_object_remove(nodes.node[2], NAME, version, NODES_TIMEOUT));
    uint64_t count;
    do {
        nodes_pause(&nodes);
        nodes_expect(sl_object_list(nodes.node[2], DELTA, NODES_TIMEOUT, &list));
        count = 0;
        for (uint64_t i = 0; i < list->count; i++) {
            count += list->entries[i].version == version;
        }
        sl_object_list_free(&list);
    } while (count > 0);
}

SL_CASE(publish_begin__refuses_names_of_deltas_and_deltas_of_other_origins)
{
    struct sl_publication *publication;
    struct sl_publish_options options = {.struct_size = sizeof options, .name = "a~delta12"};
    assert_int_equal(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication),
                     SL_ERR_INVALID);
    options = (struct sl_publish_options){
        .struct_size = sizeof options, .name = "a", .origin = SL_ORIGIN_CALLER, .delta = true};
    assert_int_equal(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication),
                     SL_ERR_INVALID);
    assert_false(sl_objects_delta_is_name("a~delta"));
    assert_false(sl_objects_delta_is_name("a~delta1x"));
    assert_true(sl_objects_delta_is_name("a~delta1~delta2"));
}
