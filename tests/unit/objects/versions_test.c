#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nodes.h"

static struct nodes nodes;
static uint8_t bytes[1000], other[1000], to[1000];

static void setup(void)
{
    nodes_init(&nodes, 2, 0);
    memset(bytes, 1, sizeof bytes);
    memset(other, 2, sizeof other);
}

#define CASE(name) SL_CASE_WITH(name, setup(), nodes_fini(&nodes))

/* Begins and commits; returns the error. Ends the publication only if it failed. */
static int publish(uint32_t node, const struct sl_publish_options *more, uint8_t *memory)
{
    struct sl_publish_options options = *more;
    const struct sl_object_extent extent = {memory, 1000};
    struct sl_publication *publication;
    uint64_t version;
    options.struct_size = sizeof options;
    options.name = "model";
    int err = sl_publish_begin(nodes.node[node], &options, NODES_TIMEOUT, &publication);
    if (err != 0) {
        return err;
    }
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    err = sl_publish_commit(publication, NODES_TIMEOUT, &version);
    sl_publish_end(&publication);
    return err;
}

CASE(destroy__frees_the_name_of_a_publisher_at_once)
{
    const struct sl_publish_options host = {.origin = SL_ORIGIN_HOST};
    nodes_expect(publish(1, &host, bytes));
    assert_int_equal(publish(0, &host, other), SL_ERR_EXISTS);
    nodes_end(&nodes, 1);
    nodes_expect(publish(0, &host, other));
}

CASE(publish__has_one_publisher_and_one_content_per_number)
{
    const struct sl_publish_options host = {.origin = SL_ORIGIN_HOST};
    const struct sl_publish_options over = {.origin = SL_ORIGIN_HOST, .take_over = true};
    const struct sl_publish_options fresh = {.origin = SL_ORIGIN_HOST, .new_name = true};
    const struct sl_publish_options third = {.origin = SL_ORIGIN_HOST, .version = 3};
    const struct sl_publish_options huge = {.origin = SL_ORIGIN_HOST, .version = 1ULL << 63};
    nodes_expect(publish(0, &host, bytes));
    nodes_expect(publish(0, &host, other));
    assert_int_equal(publish(1, &host, bytes), SL_ERR_EXISTS);
    assert_int_equal(publish(0, &fresh, bytes), SL_ERR_EXISTS);
    nodes_expect(publish(0, &third, bytes));
    assert_int_equal(publish(0, &third, other), SL_ERR_EXISTS);
    assert_int_equal(publish(0, &huge, bytes), SL_ERR_INVALID);
    nodes_expect(publish(1, &over, bytes));
    nodes_get(nodes.node[0], "model", 4, to, 1000);
    assert_memory_equal(to, bytes, 1000);
}

CASE(publish__of_the_same_bytes_makes_one_more_holder)
{
    const struct sl_publish_options first = {.origin = SL_ORIGIN_CALLER};
    const struct sl_publish_options again = {
        .origin = SL_ORIGIN_CALLER, .version = 1, .take_over = true};
    uint8_t same[1000];
    memset(same, 1, sizeof same);
    nodes_expect(publish(0, &first, bytes));
    nodes_expect(publish(1, &again, same));
    nodes_expect(sl_object_wait_held(nodes.node[1], "model", 1, 2, NODES_TIMEOUT));
    nodes_expect(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT));
    nodes_get(nodes.node[0], "model", 1, to, 1000);
    assert_memory_equal(to, bytes, 1000);
}

CASE(publish__is_closed_by_a_newer_publisher)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "model", .origin = SL_ORIGIN_HOST};
    const struct sl_publish_options over = {.origin = SL_ORIGIN_HOST, .take_over = true};
    const struct sl_object_extent extent = {bytes, 1000};
    struct sl_publication *publication;
    uint64_t version;
    nodes_expect(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    nodes_expect(publish(1, &over, other));
    assert_int_equal(sl_publish_commit(publication, NODES_TIMEOUT, &version), SL_ERR_CLOSED);
    sl_publish_end(&publication);
    nodes_get(nodes.node[0], "model", 0, to, 1000);
    assert_memory_equal(to, other, 1000);
}

CASE(publish__leaves_nothing_without_a_commit)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "model", .origin = SL_ORIGIN_CALLER};
    const struct sl_object_extent extent = {bytes, 1000};
    struct sl_publication *publication;
    struct sl_object_list *list;
    nodes_expect(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication));
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    assert_int_equal(sl_publish_bytes(publication, &extent, 1), SL_ERR_EXISTS);
    sl_publish_end(&publication);
    nodes_expect(sl_object_list(nodes.node[1], NULL, NODES_TIMEOUT, &list));
    assert_int_equal(list->count, 0);
    sl_object_list_free(&list);
}

CASE(publish__adds_nothing_after_a_commit)
{
    const struct sl_publish_options first_of_two = {.struct_size = sizeof first_of_two,
                                                    .name = "model",
                                                    .version = 1,
                                                    .origin = SL_ORIGIN_HOST,
                                                    .part_count = 2};
    const struct sl_object_extent extent = {bytes, 1000};
    const struct sl_object_tensor tensor = {
        .name = "late", .type = SL_OBJECT_U8, .data = other, .bytes = 1};
    struct sl_publication *publication;
    uint64_t version;
    nodes_expect(sl_publish_begin(nodes.node[0], &first_of_two, NODES_TIMEOUT, &publication));
    assert_int_equal(sl_publish_commit(publication, NODES_TIMEOUT, &version), SL_ERR_INVALID);
    nodes_expect(sl_publish_bytes(publication, &extent, 1));
    assert_int_equal(sl_publish_commit(publication, 1, &version), SL_ERR_DEADLINE);
    assert_int_equal(sl_publish_tensor(publication, &tensor), SL_ERR_INVALID);
    assert_int_equal(sl_publish_group(publication, "late"), SL_ERR_INVALID);
    assert_int_equal(sl_publish_commit(publication, 1, &version), SL_ERR_DEADLINE);
    sl_publish_end(&publication);
}

CASE(list__shows_versions_and_holders)
{
    struct sl_object_list *list;
    for (uint32_t i = 0; i < 12; i++) { /* more than one message */
        char name[16];
        (void)snprintf(name, sizeof name, "model%02u", i);
        (void)nodes_publish(nodes.node[0], name, SL_ORIGIN_HOST, bytes, 1000 - i);
    }
    nodes_get(nodes.node[1], "model03", 1, to, 997);
    nodes_expect(sl_object_wait_held(nodes.node[1], "model03", 0, 2, NODES_TIMEOUT));
    nodes_expect(sl_object_list(nodes.node[1], "model", NODES_TIMEOUT, &list));
    assert_int_equal(list->count, 12);
    assert_string_equal(list->entries[3].name, "model03");
    assert_int_equal(list->entries[3].version, 1);
    assert_int_equal(list->entries[3].bytes, 997);
    assert_int_equal(list->entries[3].holders, 2);
    assert_int_equal(list->entries[4].holders, 1);
    sl_object_list_free(&list);
    nodes_expect(sl_object_list(nodes.node[1], "model1", NODES_TIMEOUT, &list));
    assert_int_equal(list->count, 2);
    sl_object_list_free(&list);
    assert_int_equal(sl_object_wait_held(nodes.node[1], "model03", 1, 3, 100), SL_ERR_DEADLINE);
    assert_int_equal(sl_object_wait_held(nodes.node[1], "model", 0, 1, NODES_TIMEOUT),
                     SL_ERR_NOT_FOUND);
}

CASE(remove__ends_a_version_everywhere)
{
    const struct sl_object_extent extent = {to, 1000};
    struct sl_get *get;
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, bytes, 1000);
    nodes_expect(sl_object_remove(nodes.node[1], "model", 1, NODES_TIMEOUT));
    assert_int_equal(sl_get_start(nodes.node[1], "model", 1, &extent, 1, NODES_TIMEOUT, &get),
                     SL_ERR_NOT_FOUND);
    assert_int_equal(sl_object_remove(nodes.node[1], "model", 1, NODES_TIMEOUT), SL_ERR_NOT_FOUND);
    nodes_expect(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT)); /* its memory */
}

CASE(subscription__learns_of_new_versions)
{
    struct sl_subscription *subscription;
    uint64_t version;
    nodes_expect(sl_subscription_open(nodes.node[1], "model", NULL, NODES_TIMEOUT, &subscription));
    assert_int_equal(sl_subscription_newest(subscription), 0);
    assert_int_equal(sl_subscription_wait(subscription, 0, 20, &version), SL_ERR_DEADLINE);
    for (uint64_t i = 1; i <= 5; i++) {
        (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_HOST, i % 2 == 0 ? bytes : other,
                            1000);
        nodes_expect(sl_subscription_wait(subscription, i - 1, NODES_TIMEOUT, &version));
        assert_int_equal(version, i);
        nodes_get(nodes.node[1], "model", i, to, 1000);
        assert_memory_equal(to, i % 2 == 0 ? bytes : other, 1000);
        nodes_expect(sl_object_withdraw(nodes.node[1], "model", i, NODES_TIMEOUT));
    }
    assert_int_equal(sl_subscription_newest(subscription), 5);
    sl_subscription_close(&subscription);
}

static void wait_for_newest(const struct sl_subscription *subscription, uint64_t version)
{
    while (sl_subscription_newest(subscription) != version) {
        (void)usleep(1000); /* until the test's time ends */
    }
}

/* Readers go back when the newest version was removed, and only then. */
CASE(subscription__goes_back_when_the_newest_version_is_removed)
{
    struct sl_subscription *subscriptions[2];
    struct sl_view *view;
    for (uint32_t i = 0; i < 3; i++) {
        (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_HOST, i == 1 ? other : bytes, 1000);
    }
    for (uint32_t follow = 0; follow < 2; follow++) {
        const struct sl_subscribe_options options = {.struct_size = sizeof options,
                                                     .follow = follow != 0};
        nodes_expect(sl_subscription_open(nodes.node[1], "model", &options, NODES_TIMEOUT,
                                          &subscriptions[follow]));
        nodes_expect(sl_view_open(subscriptions[follow], NULL, NODES_TIMEOUT, &view));
        assert_int_equal(sl_view_version(view), 3);
        sl_view_close(&view);
    }
    nodes_expect(sl_object_remove(nodes.node[0], "model", 3, NODES_TIMEOUT));
    for (uint32_t follow = 0; follow < 2; follow++) {
        struct sl_staleness staleness;
        wait_for_newest(subscriptions[follow], 2);
        nodes_expect(sl_view_open(subscriptions[follow], NULL, NODES_TIMEOUT, &view));
        assert_int_equal(sl_view_version(view), 2);
        sl_view_close(&view);
        sl_subscription_staleness(subscriptions[follow], &staleness);
        assert_int_equal(staleness.newest, 2);
        assert_int_equal(staleness.behind, 0);
    }
    nodes_expect(sl_object_remove(nodes.node[0], "model", 0, NODES_TIMEOUT));
    for (uint32_t follow = 0; follow < 2; follow++) {
        wait_for_newest(subscriptions[follow], 0);
        assert_int_equal(sl_view_open(subscriptions[follow], NULL, 20, &view), SL_ERR_DEADLINE);
    }
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_HOST, bytes, 1000);
    for (uint32_t follow = 0; follow < 2; follow++) {
        wait_for_newest(subscriptions[follow], 4);
        sl_subscription_close(&subscriptions[follow]);
    }
}

CASE(create__needs_no_catalogue_but_calls_do)
{
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {
        .struct_size = sizeof options, .engine_options = &engine, .catalogue = "127.0.0.1:1"};
    struct sl_objects *alone;
    struct sl_object_list *list;
    nodes_expect(sl_objects_create(&options, &alone));
    assert_int_equal(sl_object_list(alone, NULL, 300, &list), SL_ERR_DEADLINE);
    assert_non_null(strstr(sl_objects_last_error(), "127.0.0.1:1"));
    sl_objects_destroy(&alone);
}

CASE(subscription__fetches_nothing)
{
    struct sl_subscription *subscription;
    struct sl_object_list *list;
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, bytes, 1000);
    nodes_expect(sl_subscription_open(nodes.node[1], "model", NULL, NODES_TIMEOUT, &subscription));
    assert_int_equal(sl_subscription_newest(subscription), 1);
    nodes_expect(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT));
    size_t count;
    do { /* the node that follows has no copy, so the catalogue deletes the version */
        nodes_expect(sl_object_list(nodes.node[0], NULL, NODES_TIMEOUT, &list));
        count = list->count;
        sl_object_list_free(&list);
    } while (count != 0);
    sl_subscription_close(&subscription);
}
