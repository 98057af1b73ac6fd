/* Keepers: parts that outlive their publisher, and with a directory the keeper too. Real engines
 * over loopback; node 0 hosts the catalogue and is no keeper. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "objects/node/call.h"
#include "objects/node/directory.h"
#include "objects/node/node.h"
#include "objects/node/publish.h"
#include "tests/support/memory_disk.h"
#include "tests/support/unit.h"
#include "tests/unit/objects/nodes.h"

#define BYTES (3 * SL_OBJECTS_BLOCK_BYTES + 1000)

static struct nodes nodes;
static struct memory_disk disks[NODES_MAX]; /* of one node each */
static uint8_t *bytes, *fetched;

static void attached_here(struct sl_objects *node, struct sl_objects_call *call)
{
    sl_objects_answer(call, node->membership.is_attached ? 0 : SL_ERR_AGAIN, "not yet");
}

/* Returns when the catalogue knows the node. */
static void start_with(uint32_t index, const struct sl_objects_setup *setup)
{
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {
        .struct_size = sizeof options,
        .engine_options = &engine,
        .catalogue = index > 0 ? sl_objects_address(nodes.node[0]) : NULL,
        .pool_bytes = 8 * SL_OBJECTS_BLOCK_BYTES};
    nodes_create(&nodes, &options, setup, &nodes.node[index]);
    nodes.count = index >= nodes.count ? index + 1 : nodes.count;
    struct sl_objects_call call = {.run = attached_here};
    const bool hurry = nodes.hurry;
    nodes.hurry = true;
    while (sl_objects_call(nodes.node[index], &call) != 0) {
        nodes_pause(&nodes);
    }
    nodes.hurry = hurry;
}

/* The node `index`: a keeper, with a directory if has_disk. */
static void start(uint32_t index, bool is_keeper, bool has_disk, uint32_t replicas)
{
    start_with(index, &(struct sl_objects_setup){.is_keeper = is_keeper,
                                                 .directory = has_disk ? "/c/objects" : NULL,
                                                 .disk = &disks[index].disk,
                                                 .replicas = replicas});
}

static void begin(uint32_t keepers, bool has_disk, uint32_t replicas)
{
    start(0, false, false, replicas);
    for (uint32_t i = 1; i <= keepers; i++) {
        start(i, true, has_disk, 0);
    }
    start(keepers + 1, false, false, 0);
}

static void setup(void)
{
    sl_log_setup(SL_LOG_ERROR, "store");
    memset(&nodes, 0, sizeof nodes);
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        memory_disk_init(&disks[i]);
    }
    bytes = nodes_bytes(BYTES, 1);
    fetched = calloc(1, BYTES);
    assert_non_null(fetched);
}

static void teardown(void)
{
    nodes_fini(&nodes);
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        memory_disk_fini(&disks[i]);
    }
    free(bytes);
    free(fetched);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

static uint32_t holders_of(const char *name)
{
    struct sl_object_list *list;
    nodes_expect(sl_object_list(nodes.node[0], name, NODES_TIMEOUT, &list));
    const uint32_t holders = list->count == 1 ? list->entries[0].holders : 0;
    sl_object_list_free(&list);
    return holders;
}

/* Of "llama": reports of nodes are on their way. */
static void wait_for_holders(uint32_t count)
{
    while (holders_of("llama") != count) {
        nodes_pause(&nodes);
    }
}

/* Looks at the node's own list, and whether it removes files: the disk belongs to a thread of it.
 */
static void count_here(struct sl_objects *node, struct sl_objects_call *call)
{
    const bool is_busy = node->directory != NULL && sl_objects_directory_is_busy(node->directory);
    sl_objects_answer(call, sl_list_empty(&node->stored) && !is_busy ? SL_ERR_NOT_FOUND : 0,
                      "none");
}

static bool is_stored(uint32_t node)
{
    struct sl_objects_call call = {.run = count_here};
    return sl_objects_call(nodes.node[node], &call) == 0;
}

static void expect_get(uint32_t node, uint64_t version)
{
    memset(fetched, 0, BYTES);
    nodes_get(nodes.node[node], "llama", version, fetched, BYTES);
    assert_memory_equal(fetched, bytes, BYTES);
    nodes_expect(sl_object_withdraw(nodes.node[node], "llama", version, NODES_TIMEOUT));
}

/* Publishes a version of "llama" under this number. */
static void store_version(struct sl_objects *node, uint64_t version, uint8_t *memory)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .version = version, .origin = SL_ORIGIN_PS};
    const struct sl_object_extent extent = {.base = memory, .bytes = BYTES};
    struct sl_publication *publication;
    uint64_t committed;
    nodes_expect(sl_publish_begin(node, &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &committed));
    assert_int_equal(committed, version);
    sl_publish_end(&publication);
}

CASE(store__of_other_bytes_under_a_taken_number_leaves_the_version_alone)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .version = 1, .origin = SL_ORIGIN_PS};
    struct sl_publication *publication;
    uint64_t version;
    begin(1, false, 0);
    assert_int_equal(nodes_publish(nodes.node[2], "llama", SL_ORIGIN_CALLER, bytes, BYTES), 1);
    uint8_t *other = nodes_bytes(BYTES, 2);
    const struct sl_object_extent extent = {.base = other, .bytes = BYTES};
    nodes_expect(sl_publish_begin(nodes.node[2], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    assert_int_equal(sl_publish_commit(publication, NODES_TIMEOUT, &version), SL_ERR_EXISTS);
    sl_publish_end(&publication);
    free(other);
    expect_get(0, 1);
    wait_for_holders(1);
}

CASE(withdraw__at_a_keeper_ends_what_it_keeps)
{
    begin(1, true, 0);
    store_version(nodes.node[2], 1, bytes);
    nodes_expect(sl_object_withdraw(nodes.node[1], "llama", 1, NODES_TIMEOUT));
    wait_for_holders(0);
    while (is_stored(1)) {
        nodes_pause(&nodes);
    }
}

CASE(store__outlives_the_publisher)
{
    begin(1, false, 0);
    uint8_t *own = nodes_bytes(BYTES, 1);
    store_version(nodes.node[2], 1, own);
    free(own); /* the memory is the caller's again */
    nodes_end(&nodes, 2);
    assert_int_equal(holders_of("llama"), 1);
    expect_get(0, 1);
}

CASE(store__of_origin_host_is_in_the_pool_of_the_agent)
{
    char name[64];
    (void)snprintf(name, sizeof name, "store-test-%d", (int)getpid());
    start(0, false, false, 0);
    start_with(1, &(struct sl_objects_setup){.agent = name});
    start(2, false, false, 0);
    uint8_t *own = nodes_bytes(BYTES, 1);
    assert_int_equal(nodes_publish(nodes.node[2], "llama", SL_ORIGIN_HOST, own, BYTES), 1);
    assert_true(is_stored(1));
    free(own);
    nodes_end(&nodes, 2);
    expect_get(0, 1);
}

/* Publishes a small version of origin HOST at node 2, whose agent is node 1; a node follows it. */
static void relay(uint64_t rate_bytes)
{
    char name[64];
    uint64_t version;
    struct sl_subscription *subscription;
    const struct sl_subscribe_options follow = {.struct_size = sizeof follow, .follow = true};
    (void)snprintf(name, sizeof name, "store-test-%d", (int)getpid());
    start(0, false, false, 0);
    start_with(1, &(struct sl_objects_setup){.agent = name, .host = "here"});
    start_with(2, &(struct sl_objects_setup){.host = "here"});
    nodes.node[2]->rate_bytes = rate_bytes; /* no other thread looks at it yet */
    nodes_expect(
        sl_subscription_open(nodes.node[0], "llama", &follow, NODES_TIMEOUT, &subscription));
    for (uint32_t i = 1; i <= 3; i++) {
        uint8_t *own = nodes_bytes(5000, i);
        assert_int_equal(nodes_publish(nodes.node[2], "llama", SL_ORIGIN_HOST, own, 5000), i);
        free(own);
        nodes_expect(sl_subscription_wait(subscription, i - 1, NODES_TIMEOUT, &version));
        assert_int_equal(version, i);
    }
    assert_true(is_stored(1));
    nodes_end(&nodes, 2);
    start(3, false, false, 0);
    for (uint32_t i = 1; i <= 3; i++) {
        nodes_get(nodes.node[3], "llama", i, fetched, 5000);
        nodes_expect_bytes(fetched, 5000, i);
        nodes_expect(sl_object_withdraw(nodes.node[3], "llama", i, NODES_TIMEOUT));
    }
    sl_subscription_close(&subscription);
}

CASE(put__brings_a_small_version_to_the_agent_and_its_followers)
{
    relay(0);
}

CASE(put__is_replaced_by_store_at_a_node_with_a_limited_rate)
{
    relay(1000000000);
}

CASE(store__is_on_as_many_keepers_as_the_catalogue_says)
{
    begin(2, true, 1);
    store_version(nodes.node[3], 1, bytes);
    assert_int_equal(holders_of("llama"), 2);
    for (uint32_t i = 1; i <= 2; i++) {
        assert_non_null(memory_disk_find(&disks[i], "/c/objects/llama/1.0.data"));
        assert_non_null(memory_disk_find(&disks[i], "/c/objects/llama/1.0.record"));
    }
    nodes_end(&nodes, 1);
    expect_get(0, 1);
}

CASE(store__by_a_keeper_itself)
{
    begin(1, true, 0);
    uint8_t *own = nodes_bytes(BYTES, 1);
    store_version(nodes.node[1], 1, own);
    free(own);
    assert_int_equal(holders_of("llama"), 1);
    assert_non_null(memory_disk_find(&disks[1], "/c/objects/llama/1.0.record"));
    expect_get(0, 1);
}

CASE(store__by_a_keeper_itself_that_tries_again)
{
    struct sl_publish_options options = {.struct_size = sizeof options,
                                         .name = "llama",
                                         .version = 1,
                                         .origin = SL_ORIGIN_PS,
                                         .part_count = 2}; /* the other part never comes */
    const struct sl_object_extent extent = {.base = bytes, .bytes = BYTES};
    struct sl_publication *publication;
    uint64_t version;
    begin(1, false, 0);
    for (; options.part_count > 0; options.part_count--) {
        nodes_expect(sl_publish_begin(nodes.node[1], &options, NODES_TIMEOUT, &publication));
        nodes_expect(sl_publish_bytes(publication, &extent, 1));
        const int err = sl_publish_commit(publication,
                                          options.part_count == 2 ? 1000 : NODES_TIMEOUT, &version);
        assert_int_equal(err, options.part_count == 2 ? SL_ERR_DEADLINE : 0);
        sl_publish_end(&publication);
    }
    expect_get(0, 1);
}

CASE(store__by_a_keeper_itself_is_on_the_others_too)
{
    begin(2, true, 1);
    store_version(nodes.node[2], 1, bytes);
    assert_int_equal(holders_of("llama"), 2);
    nodes_end(&nodes, 2);
    expect_get(0, 1);
}

static void restart(uint32_t index)
{
    nodes_end(&nodes, index);
    memory_disk_reopen(&disks[index]);
    start(index, true, true, 0);
    wait_for_holders(1);
}

CASE(store__outlives_the_keeper_in_its_directory)
{
    begin(1, true, 0);
    store_version(nodes.node[2], 1, bytes);
    nodes_end(&nodes, 2);
    restart(1);
    expect_get(0, 1);
}

CASE(store__reads_back_what_the_pool_had_no_room_for)
{
    begin(1, true, 0);
    for (uint64_t version = 1; version <= 3; version++) { /* the pool has room for one and a half */
        uint8_t *own = nodes_bytes(BYTES, (uint32_t)version);
        store_version(nodes.node[2], version, own);
        free(own);
    }
    assert_int_equal(holders_of("llama"), 0); /* three of them */
    for (uint32_t i = 0; i < 6; i++) {
        memset(fetched, 0, BYTES);
        nodes_get(nodes.node[0], "llama", 1 + i % 3, fetched, BYTES);
        nodes_expect_bytes(fetched, BYTES, 1 + i % 3);
        nodes_expect(sl_object_withdraw(nodes.node[0], "llama", 1 + i % 3, NODES_TIMEOUT));
    }
}

/* The disk fails when the catalogue stores the first number of "llama". The first number of another
 * name is the same: it is not given before it is stored. */
CASE(store__a_number_that_was_not_stored_is_stored_for_the_next_name)
{
    struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .origin = SL_ORIGIN_PS};
    struct sl_publication *publication;
    start(0, true, true, 0); /* hosts the catalogue, and keeps */
    start(1, false, false, 0);
    sl_log_setup(SL_LOG_OFF, "store");
    disks[0].fail_at = disks[0].operations;
    assert_true(sl_publish_begin(nodes.node[1], &options, NODES_TIMEOUT, &publication) != 0);
    assert_null(memory_disk_find(&disks[0], "/c/objects/numbers"));
    options.name = "gpt";
    nodes_expect(sl_publish_begin(nodes.node[1], &options, NODES_TIMEOUT, &publication));
    assert_non_null(memory_disk_find(&disks[0], "/c/objects/numbers"));
    sl_publish_end(&publication);
}

CASE(store__is_removed_with_the_version)
{
    begin(1, true, 0);
    store_version(nodes.node[2], 1, bytes);
    nodes_expect(sl_object_remove(nodes.node[0], "llama", 1, NODES_TIMEOUT));
    while (is_stored(1)) {
        nodes_pause(&nodes);
    }
    nodes_end(&nodes, 1);
    assert_null(memory_disk_find(&disks[1], "/c/objects/llama/1.0.data"));
    assert_null(memory_disk_find(&disks[1], "/c/objects/llama/1.0.record"));
}

/* The keeper was away when its number was used again: it fetches the bytes that readers get, and
 * keeps its own until the number is removed. */
CASE(store__of_other_bytes_goes_with_the_number)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .version = 1, .origin = SL_ORIGIN_CALLER};
    const struct sl_object_extent extent = {.base = bytes, .bytes = BYTES};
    struct sl_publication *publication;
    uint64_t version;
    begin(1, true, 0);
    uint8_t *other = nodes_bytes(BYTES, 2);
    store_version(nodes.node[2], 1, other);
    free(other);
    nodes_end(&nodes, 1);
    wait_for_holders(0);
    nodes_expect(sl_publish_begin(nodes.node[2], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &version));
    sl_publish_end(&publication);
    sl_log_setup(SL_LOG_OFF, "store");
    start(1, true, true, 0);
    nodes_get(nodes.node[1], "llama", 1, fetched, BYTES);
    assert_memory_equal(fetched, bytes, BYTES);
    assert_true(is_stored(1));
    nodes_expect(sl_object_remove(nodes.node[0], "llama", 1, NODES_TIMEOUT));
    nodes.hurry = true;
    while (is_stored(1)) {
        nodes_pause(&nodes);
    }
    nodes.hurry = false;
}

CASE(store__of_damaged_data_comes_from_the_other_keeper)
{
    begin(2, true, 1);
    store_version(nodes.node[3], 1, bytes);
    nodes_end(&nodes, 3);
    nodes_end(&nodes, 1);
    memory_disk_reopen(&disks[1]);
    struct memory_disk_node *data = memory_disk_find(&disks[1], "/c/objects/llama/1.0.data");
    data->bytes[2 * SL_OBJECTS_BLOCK_BYTES + 17] ^= 1;
    sl_log_setup(SL_LOG_OFF, "store");
    start(1, true, true, 0);
    nodes_expect(sl_object_wait_held(nodes.node[0], "llama", 1, 2, NODES_TIMEOUT));
    expect_get(0, 1);
    expect_get(0, 1);
}

/* It has found that the data of a file of it is damaged. */
static void damaged_here(struct sl_objects *node, struct sl_objects_call *call)
{
    const struct sl_objects_stored *stored =
        SL_CONTAINER_OF(sl_list_first(&node->stored), struct sl_objects_stored, link);
    sl_objects_answer(call, stored->has_file ? SL_ERR_AGAIN : 0, "not yet");
}

CASE(store__again_replaces_damaged_data)
{
    struct sl_objects_call damaged = {.run = damaged_here};
    struct sl_get_progress progress;
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .version = 1, .origin = SL_ORIGIN_PS};
    const struct sl_object_extent extent = {.base = bytes, .bytes = BYTES};
    struct sl_publication *publication;
    uint64_t version;
    begin(1, true, 0);
    store_version(nodes.node[2], 1, bytes);
    nodes_end(&nodes, 1);
    memory_disk_reopen(&disks[1]);
    memory_disk_find(&disks[1], "/c/objects/llama/1.0.data")
        ->bytes[2 * SL_OBJECTS_BLOCK_BYTES + 17] ^= 1;
    sl_log_setup(SL_LOG_OFF, "store");
    start(1, true, true, 0);
    wait_for_holders(1);
    struct sl_get *get = nodes_start(nodes.node[0], "llama", 1, fetched, BYTES, NODES_TIMEOUT);
    while (sl_objects_call(nodes.node[1], &damaged) != 0) {
        nodes_pause(&nodes);
    }
    nodes_expect(sl_get_progress(get, &progress));
    assert_false(progress.done);
    sl_get_close(&get);
    nodes_expect(sl_publish_begin(nodes.node[2], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &version));
    sl_publish_end(&publication);
    expect_get(0, 1);
    nodes_end(&nodes, 1);
    memory_disk_restart(&disks[1], 1);
    start(1, true, true, 0);
    wait_for_holders(1);
    expect_get(0, 1);
}

static int publish(uint32_t node, const char *name, uint32_t timeout_ms)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = name, .origin = SL_ORIGIN_PS};
    const struct sl_object_extent extent = {.base = bytes, .bytes = BYTES};
    struct sl_publication *publication;
    uint64_t version;
    int err = sl_publish_begin(nodes.node[node], &options, timeout_ms, &publication);
    if (err != 0) {
        return err;
    }
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    err = sl_publish_commit(publication, timeout_ms, &version);
    sl_publish_end(&publication);
    return err;
}

CASE(store__without_a_commit_is_dropped_after_the_publisher_ended)
{
    begin(1, true, 0);
    const struct sl_publish_options options = {.struct_size = sizeof options,
                                               .name = "llama",
                                               .version = 1,
                                               .origin = SL_ORIGIN_PS,
                                               .part_count = 2}; /* the other part never comes */
    const struct sl_object_extent extent = {.base = bytes, .bytes = BYTES};
    struct sl_publication *publication;
    uint64_t version;
    nodes_expect(sl_publish_begin(nodes.node[2], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    assert_int_equal(sl_publish_commit(publication, 1000, &version), SL_ERR_DEADLINE);
    sl_publish_end(&publication);
    nodes_end(&nodes, 2);
    sl_log_setup(SL_LOG_OFF, "store");
    nodes.hurry = true;
    while (is_stored(1)) {
        nodes_pause(&nodes);
    }
    assert_int_equal(holders_of("llama"), 0);
}

CASE(store__on_a_full_disk_fails_and_others_continue)
{
    begin(1, true, 0);
    disks[1].bytes_left = BYTES / 2;
    assert_int_equal(publish(2, "large", NODES_TIMEOUT), SL_ERR_IO);
    assert_non_null(strstr(sl_objects_last_error(), sl_objects_address(nodes.node[1])));
    assert_non_null(strstr(sl_objects_last_error(), "/c/objects/large/"));
    assert_int_equal(holders_of("large"), 0);
    disks[1].bytes_left = UINT64_MAX;
    assert_int_equal(publish(2, "llama", NODES_TIMEOUT), 0);
    nodes_get(nodes.node[0], "llama", 0, fetched, BYTES);
    assert_memory_equal(fetched, bytes, BYTES);
}

/* Returns the result of the first commit. Each version is acknowledged by the one that succeeds. */
static int publish_at_last(uint32_t node, uint64_t fail_at, uint64_t *version, bool *is_visible)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .origin = SL_ORIGIN_PS};
    const struct sl_object_extent extent = {.base = bytes, .bytes = BYTES};
    struct sl_publication *publication;
    nodes_expect(sl_publish_begin(nodes.node[node], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    disks[1].fail_at = disks[1].operations + fail_at;
    const int err = sl_publish_commit(publication, NODES_TIMEOUT, version);
    disks[1].fail_at = MEMORY_DISK_NEVER;
    if (err != 0) {
        assert_int_equal(err, SL_ERR_IO);
        assert_non_null(strstr(sl_objects_last_error(), "/c/objects"));
        *is_visible |= strstr(sl_objects_last_error(), "is visible, but") != NULL;
    }
    if (err != 0 && node != 1) { /* a keeper has given up its own copy: it begins again */
        nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, version));
    }
    sl_publish_end(&publication);
    if (err != 0 && node == 1) {
        *version = nodes_publish(nodes.node[1], "llama", SL_ORIGIN_PS, bytes, BYTES);
    }
    return err;
}

CASE(commit__that_failed_at_any_operation_of_the_disk_can_be_repeated)
{
    begin(1, true, 0);
    sl_log_setup(SL_LOG_OFF, "store");
    for (uint32_t publisher = 2; publisher >= 1; publisher--) { /* then the keeper itself */
        uint64_t version;
        bool is_visible = false;
        int err = SL_ERR_IO;
        for (uint64_t at = 0; err != 0; at++) {
            err = publish_at_last(publisher, at, &version, &is_visible);
            expect_get(0, version);
            nodes_expect(sl_object_remove(nodes.node[0], "llama", 0, NODES_TIMEOUT));
            while (is_stored(1)) {
                nodes_pause(&nodes);
            }
        }
        assert_true(is_visible);
        nodes_end(&nodes, 2); /* the name has another publisher then */
    }
}

/* One process has the catalogue and the files; it loses what was not synced. */
CASE(store__that_was_acknowledged_outlives_a_power_cut_at_any_operation)
{
    int err = SL_ERR_IO;
    sl_log_setup(SL_LOG_OFF, "store");
    nodes.hurry = true; /* a catalogue that was restarted waits for nodes that knew it */
    for (uint64_t at = 0; err != 0; at++) {
        start(0, true, true, 0);
        start(1, false, false, 0);
        disks[0].stop_at = disks[0].operations + at;
        err = publish(1, "llama", NODES_TIMEOUT);
        nodes_fini(&nodes);
        memory_disk_restart(&disks[0], at);
        if (err == 0) {
            start(0, true, true, 0);
            start(1, false, false, 0);
            expect_get(1, 1);
            return;
        }
        memory_disk_fini(&disks[0]);
        memory_disk_init(&disks[0]);
    }
}

/* The keeper's machine stops before the commit is recorded; the catalogue has a record of it, since
 * a reader has the version. */
CASE(store__that_is_committed_but_not_recorded_is_found_by_the_next_start)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .origin = SL_ORIGIN_PS};
    const struct sl_object_extent extent = {.base = bytes, .bytes = BYTES};
    struct sl_publication *publication;
    uint64_t version, at = 12;
    begin(1, true, 0);
    sl_log_setup(SL_LOG_OFF, "store");
    do {
        nodes_expect(sl_publish_begin(nodes.node[2], &options, NODES_TIMEOUT, &publication));
        nodes_expect(sl_publish_bytes(publication, &extent, 1));
        disks[1].fail_at = disks[1].operations + ++at;
        assert_int_equal(sl_publish_commit(publication, NODES_TIMEOUT, &version), SL_ERR_IO);
        version = publication->version;
        sl_publish_end(&publication);
    } while (strstr(sl_objects_last_error(), "is visible, but") == NULL);
    disks[1].stop_at = disks[1].operations;
    nodes_get(nodes.node[0], "llama", version, fetched, BYTES);
    nodes_end(&nodes, 1);
    memory_disk_restart(&disks[1], 1);
    start(1, true, true, 0);
    nodes_expect(sl_object_wait_held(nodes.node[0], "llama", version, 2, NODES_TIMEOUT));
    nodes_end(&nodes, 1);
    memory_disk_restart(&disks[1], 2);
    start(1, true, true, 0);
    nodes_expect(sl_object_wait_held(nodes.node[0], "llama", version, 2, NODES_TIMEOUT));
    nodes_expect(sl_object_withdraw(nodes.node[0], "llama", version, NODES_TIMEOUT));
    expect_get(0, version);
}

CASE(store__without_a_keeper_names_what_it_waits_for)
{
    uint32_t timeout_ms = 125;
    begin(0, false, 0);
    do { /* until that is time enough for the catalogue to answer */
        timeout_ms *= 4;
        assert_true(timeout_ms <= NODES_TIMEOUT);
        assert_int_equal(publish(1, "llama", timeout_ms), SL_ERR_DEADLINE);
    } while (strstr(sl_objects_last_error(), "no keeper") == NULL);
}

CASE(store__at_another_keeper_if_one_has_ended)
{
    begin(2, false, 0);
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .origin = SL_ORIGIN_PS};
    const struct sl_object_extent extent = {.base = bytes, .bytes = BYTES};
    struct sl_publication *publication;
    uint64_t version;
    nodes_expect(sl_publish_begin(nodes.node[3], &options, NODES_TIMEOUT, &publication));
    const uint32_t named =
        strcmp(publication->keepers[0].address, sl_objects_address(nodes.node[1])) == 0 ? 1 : 2;
    nodes_end(&nodes, named);
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &version));
    sl_publish_end(&publication);
    assert_true(is_stored(3 - named));
    expect_get(0, version);
}

CASE(store__at_a_keeper_that_has_ended_names_it)
{
    begin(1, false, 0);
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .origin = SL_ORIGIN_PS};
    const struct sl_object_extent extent = {.base = bytes, .bytes = BYTES};
    struct sl_publication *publication;
    uint64_t version;
    char address[64];
    nodes_expect(sl_publish_begin(nodes.node[2], &options, NODES_TIMEOUT, &publication));
    (void)snprintf(address, sizeof address, "%s", sl_objects_address(nodes.node[1]));
    nodes_end(&nodes, 1);
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    assert_int_equal(sl_publish_commit(publication, 1000, &version), SL_ERR_DEADLINE);
    assert_non_null(strstr(sl_objects_last_error(), address));
    sl_publish_end(&publication);
    assert_int_equal(holders_of("llama"), 0);
}
