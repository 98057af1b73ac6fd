/* Views, in each case of a reader with a node of its own, and of one that has only an agent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/partition.h"
#include "nodes.h"
#include "objects/node/get.h"
#include "objects/node/node.h"

#define NAME  "model"
#define BYTES (3 * SL_OBJECTS_BLOCK_BYTES + 17)

static bool by_agent;
static struct nodes nodes; /* 0: the catalogue and the publisher */
static struct sl_objects *agent, *reader;
static struct sl_subscription *subscription;

static const char *next_way(uint32_t n)
{
    by_agent = n == 1;
    return n == 0 ? "own" : n == 1 ? "agent" : NULL;
}
SL_UNIT_WAYS(next_way);

static void agent_name(char name[64])
{
    (void)snprintf(name, 64, "view-test-%d", (int)getpid());
}

static void start_agent(void)
{
    static char name[64];
    agent_name(name);
    const struct sl_transfer_options engine = {.name = "127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = sl_objects_address(nodes.node[0]),
                                               .pool_bytes = 4 << 20};
    const struct sl_objects_setup setup = {.agent = name};
    nodes_expect(sl_objects_create_with(&options, &setup, &agent));
}

static void start_reader(void)
{
    char name[64];
    agent_name(name);
    const struct sl_transfer_options engine = {.name = "127.0.0.1:0", .insecure = true};
    const struct sl_objects_options own = {.struct_size = sizeof own,
                                           .engine_options = &engine,
                                           .catalogue = sl_objects_address(nodes.node[0]),
                                           .agent = "off",
                                           .pool_bytes = 4 << 20};
    const struct sl_objects_options options = {.struct_size = sizeof options, .agent = name};
    nodes_expect(sl_objects_create(by_agent ? &options : &own, &reader));
}

static void setup(void)
{
    nodes_init(&nodes, 1, 0);
    if (by_agent) {
        start_agent();
    }
    start_reader();
    nodes_expect(sl_subscription_open(reader, NAME, NULL, NODES_TIMEOUT, &subscription));
}

static void teardown(void)
{
    sl_subscription_close(&subscription);
    sl_objects_destroy(&reader);
    sl_objects_destroy(&agent);
    nodes_fini(&nodes);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

static uint64_t publish(uint32_t seed)
{
    uint8_t *bytes = nodes_bytes(BYTES, seed);
    const uint64_t version = nodes_publish(nodes.node[0], NAME, SL_ORIGIN_HOST, bytes, BYTES);
    free(bytes);
    return version;
}

static struct sl_view *open_newest(void)
{
    struct sl_view *view;
    nodes_expect(sl_view_open(subscription, NULL, NODES_TIMEOUT, &view));
    return view;
}

static void expect_view(const struct sl_view *view, uint64_t version, uint32_t seed)
{
    struct sl_object_tensor tensor;
    assert_int_equal(sl_view_version(view), version);
    nodes_expect(sl_view_tensor(view, "bytes", &tensor, NULL));
    assert_int_equal(tensor.bytes, BYTES);
    nodes_expect_bytes(tensor.data, BYTES, seed);
}

CASE(view__shows_the_newest_and_stays)
{
    assert_int_equal(publish(1), 1);
    struct sl_view *first = open_newest();
    assert_int_equal(publish(2), 2);
    uint64_t newest;
    nodes_expect(sl_subscription_wait(subscription, 1, NODES_TIMEOUT, &newest));
    assert_int_equal(newest, 2);
    assert_int_equal(sl_subscription_newest(subscription), 2);
    struct sl_view *second = open_newest();
    expect_view(second, 2, 2);
    nodes_expect(sl_object_remove(nodes.node[0], NAME, 0, NODES_TIMEOUT));
    expect_view(first, 1, 1);
    sl_view_close(&second);
    expect_view(first, 1, 1);
    sl_view_close(&first);
}

CASE(view_open__waits_for_the_first_version)
{
    struct sl_view *view;
    assert_int_equal(sl_view_open(subscription, NULL, 10, &view), SL_ERR_DEADLINE);
    assert_int_equal(publish(3), 1);
    view = open_newest();
    expect_view(view, 1, 3);
    sl_view_close(&view);
}

CASE(view_open__of_the_newest_takes_the_next_if_it_was_removed)
{
    uint64_t newest;
    struct sl_view *view;
    assert_int_equal(publish(1), 1);
    nodes_expect(sl_subscription_wait(subscription, 0, NODES_TIMEOUT, &newest));
    nodes_expect(sl_object_remove(nodes.node[0], NAME, 1, NODES_TIMEOUT));
    assert_int_equal(sl_view_open(subscription, NULL, 100, &view), SL_ERR_DEADLINE);
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = NAME, .version = 2};
    uint8_t *bytes = nodes_bytes(BYTES, 2);
    const struct sl_object_extent extent = {bytes, BYTES};
    struct sl_publication *publication;
    nodes_expect(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &newest));
    sl_publish_end(&publication);
    free(bytes);
    view = open_newest();
    expect_view(view, 2, 2);
    sl_view_close(&view);
}

CASE(view_open__of_a_number)
{
    struct sl_view_options options = {.struct_size = sizeof options, .version = 1};
    struct sl_view *view;
    assert_int_equal(publish(1), 1);
    assert_int_equal(publish(2), 2);
    nodes_expect(sl_view_open(subscription, &options, NODES_TIMEOUT, &view));
    expect_view(view, 1, 1);
    sl_view_close(&view);
    options.version = 7;
    assert_int_equal(sl_view_open(subscription, &options, NODES_TIMEOUT, &view), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(sl_objects_last_error(), "1"));
    assert_non_null(strstr(sl_objects_last_error(), "2"));
}

CASE(view_open__takes_an_older_one_that_is_here)
{
    const struct sl_view_options options = {.struct_size = sizeof options, .behind_max = 1};
    uint64_t newest;
    assert_int_equal(publish(1), 1);
    struct sl_view *first = open_newest(), *view;
    assert_int_equal(publish(2), 2);
    nodes_expect(sl_subscription_wait(subscription, 1, NODES_TIMEOUT, &newest));
    nodes_expect(sl_view_open(subscription, &options, NODES_TIMEOUT, &view));
    expect_view(view, 1, 1);
    sl_view_close(&view);
    assert_int_equal(publish(3), 3);
    nodes_expect(sl_subscription_wait(subscription, 2, NODES_TIMEOUT, &newest));
    nodes_expect(sl_view_open(subscription, &options, NODES_TIMEOUT, &view));
    expect_view(view, 3, 3);
    sl_view_close(&view);
    sl_view_close(&first);
}

CASE(view_open__checks_its_options)
{
    struct sl_view_options options = {.struct_size = 1};
    struct sl_view *view;
    assert_int_equal(sl_view_open(subscription, &options, 1, &view), SL_ERR_INVALID);
    options = (struct sl_view_options){.struct_size = sizeof options, .stop_count = 65};
    assert_int_equal(sl_view_open(subscription, &options, 1, &view), SL_ERR_INVALID);
    assert_int_equal(sl_view_open(subscription, NULL, 0, &view), SL_ERR_INVALID);
}

CASE(view_open__larger_than_the_pool)
{
    uint8_t *bytes = nodes_bytes(5 << 20, 1);
    struct sl_view *view;
    (void)nodes_publish(nodes.node[0], NAME, SL_ORIGIN_HOST, bytes, 5 << 20);
    assert_int_equal(sl_view_open(subscription, NULL, NODES_TIMEOUT, &view), SL_ERR_TOO_LARGE);
    free(bytes);
}

CASE(view_open__streams)
{
    const uint64_t stops[] = {1000, SL_OBJECTS_BLOCK_BYTES + 1};
    const struct sl_view_options options = {
        .struct_size = sizeof options, .stream = true, .stops = stops, .stop_count = 2};
    struct sl_object_tensor tensor;
    struct sl_view *view;
    assert_int_equal(publish(4), 1);
    nodes_expect(sl_view_open(subscription, &options, NODES_TIMEOUT, &view));
    nodes_expect(sl_view_wait(view, 1000, NODES_TIMEOUT));
    nodes_expect(sl_view_tensor(view, "bytes", &tensor, NULL));
    nodes_expect_bytes(tensor.data, 1000, 4);
    nodes_expect(sl_view_wait(view, UINT64_MAX, NODES_TIMEOUT));
    expect_view(view, 1, 4);
    assert_int_equal(sl_view_wait(view, 0, 0), SL_ERR_INVALID);
    sl_view_close(&view);
}

/* Publishes one part of version 1: group "g<part>" with a tensor u8[part + 1], then two tensors;
 * then group and tensor "both". */
static struct sl_publication *publish_part(uint32_t part, uint32_t part_count, uint8_t *data)
{
    const struct sl_publish_options options = {.struct_size = sizeof options,
                                               .name = NAME,
                                               .version = 1,
                                               .part = part,
                                               .part_count = part_count};
    struct sl_publication *publication;
    char text[16];
    nodes_expect(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication));
    for (uint32_t i = 0; i < 3; i++) {
        const struct sl_object_tensor tensor = {.name = text,
                                                .type = SL_OBJECT_U8,
                                                .rank = 1,
                                                .shape = {part + 1},
                                                .data = data,
                                                .bytes = part + 1};
        if (i < 2) {
            (void)snprintf(text, sizeof text, "g%u.%u", part, i);
            nodes_expect(sl_publish_group(publication, text));
        }
        (void)snprintf(text, sizeof text, "t%u.%u", part, i);
        nodes_expect(sl_publish_tensor(publication, &tensor));
    }
    nodes_expect(sl_publish_group(publication, "both"));
    const struct sl_object_tensor scalar = {
        .name = "both", .type = SL_OBJECT_U8, .data = data, .bytes = 1};
    nodes_expect(sl_publish_tensor(publication, &scalar));
    return publication;
}

#define PART_BYTES (3 * 64 + 1) /* of part 0 */

CASE(view__has_tensors_and_groups_of_all_parts)
{
    uint8_t data[2][2] = {{'a'}, {'b', 'c'}};
    struct sl_object_tensor tensor;
    uint64_t version, cursor = 0, offset, bytes;
    struct sl_publication *parts[2] = {publish_part(0, 2, data[0]), publish_part(1, 2, data[1])};
    int first = sl_publish_commit(parts[0], 1, &version), second;
    assert_int_equal(first, SL_ERR_DEADLINE);
    /* The catalogue may have received a commit that missed its deadline, or not. */
    while ((second = sl_publish_commit(parts[1], 100, &version)) == SL_ERR_DEADLINE) {
        first = first != 0 ? sl_publish_commit(parts[0], 100, &version) : 0;
    }
    nodes_expect(second);
    nodes_expect(first != 0 ? sl_publish_commit(parts[0], NODES_TIMEOUT, &version) : 0);
    sl_publish_end(&parts[0]);
    sl_publish_end(&parts[1]);

    struct sl_view *view = open_newest();
    for (uint32_t i = 0; i < 8; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "t%u.%u", i / 4, i % 4);
        nodes_expect(sl_view_next_tensor(view, &cursor, &tensor, &offset));
        assert_string_equal(tensor.name, i % 4 == 3 ? "both" : text);
        assert_int_equal(offset, i % 4 * 64 + (i < 4 ? 0 : PART_BYTES));
        assert_memory_equal(tensor.data, data[i / 4], i % 4 == 3 ? 1 : i / 4 + 1);
    }
    assert_int_equal(sl_view_next_tensor(view, &cursor, &tensor, &offset), SL_ERR_NOT_FOUND);
    nodes_expect(sl_view_tensor(view, "t1.1", &tensor, &offset));
    assert_int_equal(offset, PART_BYTES + 64);
    assert_int_equal(tensor.rank, 1);
    assert_int_equal(tensor.shape[0], 2);
    assert_int_equal(sl_view_tensor(view, "t2.1", &tensor, &offset), SL_ERR_NOT_FOUND);
    nodes_expect(sl_view_group(view, "g0.0", &offset, &bytes));
    assert_int_equal(offset, 0);
    assert_int_equal(bytes, 1);
    nodes_expect(sl_view_group(view, "g1.1", &offset, &bytes));
    assert_int_equal(offset, PART_BYTES + 64);
    assert_int_equal(bytes, 66);
    assert_int_equal(sl_view_group(view, "g", &offset, &bytes), SL_ERR_NOT_FOUND);
    assert_int_equal(sl_view_tensor(view, "both", &tensor, &offset), SL_ERR_EXISTS);
    assert_non_null(strstr(sl_objects_last_error(), "2 times a tensor both"));
    assert_int_equal(sl_view_group(view, "both", &offset, &bytes), SL_ERR_EXISTS);
    assert_int_equal(tensor.rank, 1); /* outputs are as they were */
    sl_view_close(&view);

    struct sl_get *get;
    nodes_expect(sl_get_start(nodes.node[0], NAME, 1, NULL, 0, NODES_TIMEOUT, &get));
    nodes_expect(sl_get_wait(get));
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(sl_get_part(get, i), i / 4);
    }
    sl_get_close(&get);
}

/* Table "t" of two shards, whose row of key k is {k, -k}; table "bad" lacks its rows. */
static void publish_table(void)
{
    const struct sl_publish_options options = {.struct_size = sizeof options, .name = NAME};
    uint64_t keys[2][100], version;
    float rows[2][100][2];
    uint32_t counts[2] = {0};
    struct sl_publication *publication;
    for (uint64_t key = 0; key < 100; key += 2) {
        const uint32_t shard = sl_partition_owner(key, 2);
        rows[shard][counts[shard]][0] = (float)key;
        rows[shard][counts[shard]][1] = -(float)key;
        keys[shard][counts[shard]++] = key;
    }
    nodes_expect(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication));
    for (uint32_t s = 0; s < 2; s++) {
        struct sl_object_tensor tensor = {.name = s == 0 ? "t/keys.0" : "t/keys.1",
                                          .type = SL_OBJECT_U64,
                                          .rank = 1,
                                          .shape = {counts[s]},
                                          .data = keys[s],
                                          .bytes = counts[s] * sizeof keys[0][0]};
        nodes_expect(sl_publish_tensor(publication, &tensor));
        tensor.name = s == 0 ? "bad/keys.0" : "bad/keys.1";
        nodes_expect(sl_publish_tensor(publication, &tensor));
        tensor = (struct sl_object_tensor){.name = s == 0 ? "t/rows.0" : "t/rows.1",
                                           .type = SL_OBJECT_F32,
                                           .rank = 2,
                                           .shape = {counts[s], 2},
                                           .data = rows[s],
                                           .bytes = counts[s] * sizeof rows[0][0]};
        nodes_expect(sl_publish_tensor(publication, &tensor));
    }
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &version));
    sl_publish_end(&publication);
}

CASE(view_rows__finds_rows_of_a_table)
{
    const uint64_t keys[] = {4, 5, 98, UINT64_MAX, 0};
    float rows[5][2] = {{0}};
    uint8_t found[5];
    publish_table();
    struct sl_view *view = open_newest();
    for (uint32_t again = 0; again < 2; again++) {
        nodes_expect(sl_view_rows(view, "t", keys, 5, 2, rows[0], found));
        assert_memory_equal(found, ((uint8_t[]){1, 0, 1, 0, 1}), 5);
        assert_true(rows[0][0] == 4 && rows[0][1] == -4 && rows[2][0] == 98 && rows[2][1] == -98);
        assert_int_equal(sl_view_rows(view, "bad", keys, 5, 2, rows[0], found), SL_ERR_CORRUPT);
        assert_int_equal(sl_view_rows(view, "none", keys, 5, 2, rows[0], found), SL_ERR_NOT_FOUND);
        assert_int_equal(sl_view_rows(view, "t", keys, 5, 3, rows[0], found), SL_ERR_INVALID);
    }
    sl_view_close(&view);
}

CASE(staleness__counts_versions_that_were_skipped)
{
    struct sl_staleness staleness;
    uint64_t newest;
    sl_subscription_staleness(subscription, &staleness);
    assert_int_equal(staleness.version, 0);
    assert_int_equal(publish(1), 1);
    struct sl_view *view = open_newest();
    sl_view_close(&view);
    for (uint32_t i = 2; i <= 4; i++) {
        assert_int_equal(publish(i), i);
    }
    nodes_expect(sl_subscription_wait(subscription, 3, NODES_TIMEOUT, &newest));
    sl_subscription_staleness(subscription, &staleness);
    assert_int_equal(staleness.version, 1);
    assert_int_equal(staleness.newest, 4);
    assert_int_equal(staleness.behind, 3);
    view = open_newest();
    sl_view_close(&view);
    sl_subscription_staleness(subscription, &staleness);
    assert_int_equal(staleness.version, 4);
    assert_int_equal(staleness.behind, 0);
    assert_int_equal(staleness.behind_us, 0);
    assert_int_equal(staleness.opened_count, 2);
    assert_int_equal(staleness.skipped_count, 2);
}

CASE(subscription__fetches_ahead_if_it_follows)
{
    const struct sl_subscribe_options options = {.struct_size = sizeof options, .follow = true};
    const struct sl_subscribe_options wrong = {.struct_size = 1};
    struct sl_subscription *following;
    uint64_t version;
    assert_int_equal(sl_subscription_open(reader, NAME, &wrong, 1, &following), SL_ERR_INVALID);
    nodes_expect(sl_subscription_open(reader, NAME, &options, NODES_TIMEOUT, &following));
    assert_int_equal(publish(5), 1);
    nodes_expect(sl_object_wait_held(nodes.node[0], NAME, 1, 2, NODES_TIMEOUT));
    nodes_expect(sl_subscription_wait(following, 0, NODES_TIMEOUT, &version));
    assert_int_equal(version, 1);
    assert_int_equal(sl_subscription_newest(following), 1);
    sl_subscription_close(&following);
}

/* Another version takes the last blocks of the pool of 4 MB. */
CASE(subscription_residency__says_what_the_pool_has)
{
    const uint64_t stop = SL_OBJECTS_BLOCK_BYTES;
    const struct sl_view_options stream = {
        .struct_size = sizeof stream, .stream = true, .stop_count = 1, .stops = &stop};
    struct sl_residency residency;
    struct sl_subscription *other;
    struct sl_view *view;
    const size_t bytes = 12 * SL_OBJECTS_BLOCK_BYTES;
    uint8_t *memory = nodes_bytes(bytes, 2);
    sl_subscription_residency(subscription, &residency);
    assert_int_equal(residency.version, 0);
    assert_int_equal(residency.bytes, 0);
    assert_true(residency.mib_us == 0);
    assert_int_equal(publish(1), 1);
    view = open_newest();
    assert_string_equal(sl_view_note(view), NAME);
    sl_subscription_residency(subscription, &residency);
    assert_int_equal(residency.version, 1);
    assert_int_equal(residency.bytes, BYTES);
    sl_view_close(&view);
    assert_int_equal(nodes_publish(nodes.node[0], "other", SL_ORIGIN_HOST, memory, bytes), 1);
    nodes_expect(sl_subscription_open(reader, "other", NULL, NODES_TIMEOUT, &other));
    nodes_expect(sl_view_open(other, &stream, NODES_TIMEOUT, &view));
    nodes_expect(sl_view_wait(view, bytes, NODES_TIMEOUT));
    sl_subscription_residency(subscription, &residency);
    assert_int_equal(residency.bytes, 2 * SL_OBJECTS_BLOCK_BYTES);
    assert_true(residency.mib_us > 0); /* it took several READs */
    sl_view_close(&view);
    sl_subscription_close(&other);
    free(memory);
}

CASE(subscription_wait__says_whether_the_catalogue_answers)
{
    uint64_t version;
    assert_int_equal(sl_subscription_wait(subscription, 0, 1, &version), SL_ERR_DEADLINE);
    assert_non_null(strstr(sl_objects_last_error(), "catalogue"));
}

CASE(agent__that_is_replaced)
{
    if (!by_agent) {
        skip();
    }
    assert_int_equal(publish(1), 1);
    struct sl_view *old = open_newest(), *view;
    sl_objects_destroy(&agent);
    expect_view(old, 1, 1);
    assert_int_equal(sl_view_open(subscription, NULL, 100, &view), SL_ERR_DEADLINE);
    start_agent();
    view = open_newest();
    expect_view(view, 1, 1);
    expect_view(old, 1, 1);
    sl_view_close(&old);
    sl_view_close(&view);
}

CASE(node__that_only_reads)
{
    const struct sl_publish_options options = {.struct_size = sizeof options, .name = NAME};
    struct sl_publication *publication;
    struct sl_object_list *list;
    struct sl_get *get;
    if (!by_agent) {
        skip();
    }
    assert_int_equal(sl_publish_begin(reader, &options, 1000, &publication), SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_get_start(reader, NAME, 0, NULL, 0, 1000, &get), SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_object_list(reader, NULL, 1000, &list), SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_object_withdraw(reader, NAME, 1, 1000), SL_ERR_UNSUPPORTED);
    assert_string_equal(sl_objects_address(reader), "");
}
