/* The node that hosts the catalogue ends, and another one takes its address. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "net/store/etcd.h"
#include "nodes.h"
#include "objects/node/host.h"
#include "tests/unit/net/store/real_etcd.h"

enum { BYTES = 300000 };

static struct nodes nodes;
static uint8_t *from, to[BYTES];
static char address[256];

/* Node 0 hosts the catalogue; node 1 has published "model@1". */
static void setup(void)
{
    nodes_init(&nodes, 3, 0);
    from = nodes_bytes(BYTES, 3);
    (void)snprintf(address, sizeof address, "%s", sl_objects_address(nodes.node[0]));
    assert_int_equal(nodes_publish(nodes.node[1], "model", SL_ORIGIN_CALLER, from, BYTES), 1);
}

static void teardown(void)
{
    nodes_fini(&nodes);
    free(from);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

/* Returns when the others have attached: what a catalogue promises about earlier numbers and
 * publishers needs them to come within its first 300 ms, which a busy machine may not keep. */
static void restart_host(void)
{
    struct sl_object_list *list;
    const struct sl_transfer_options engine = {
        .name = address, .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine};
    nodes_end(&nodes, 0);
    nodes.hurry = true; /* the new one waits for nodes that knew the earlier one */
    nodes_create(&nodes, &options, NULL, &nodes.node[0]);
    assert_string_equal(sl_objects_address(nodes.node[0]), address);
    for (uint32_t i = 1; i < 3; i++) {
        if (nodes.node[i] != NULL) {
            nodes_expect(sl_object_list(nodes.node[i], NULL, NODES_TIMEOUT, &list));
            sl_object_list_free(&list);
        }
    }
}

CASE(host__learns_from_nodes_what_they_hold)
{
    struct sl_object_list *list;
    restart_host();
    nodes_get(nodes.node[2], "model", 0, to, BYTES);
    nodes_expect_bytes(to, BYTES, 3);
    nodes_expect(sl_object_list(nodes.node[0], NULL, NODES_TIMEOUT, &list));
    assert_int_equal(list->count, 1);
    assert_string_equal(list->entries[0].name, "model");
    assert_int_equal(list->entries[0].version, 1);
    sl_object_list_free(&list);
}

CASE(host__continues_numbers_and_publishers)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "model", .origin = SL_ORIGIN_HOST};
    struct sl_publication *publication;
    restart_host();
    /* A process that has just come, as the catalogue. */
    assert_int_equal(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication),
                     SL_ERR_EXISTS);
    assert_int_equal(nodes_publish(nodes.node[1], "model", SL_ORIGIN_HOST, from, BYTES), 2);
}

CASE(host__keeps_subscriptions)
{
    struct sl_subscription *subscription;
    uint64_t version;
    nodes_expect(sl_subscription_open(nodes.node[2], "model", NULL, NODES_TIMEOUT, &subscription));
    restart_host();
    (void)nodes_publish(nodes.node[1], "model", SL_ORIGIN_HOST, from, BYTES);
    nodes_expect(sl_subscription_wait(subscription, 1, NODES_TIMEOUT, &version));
    assert_int_equal(version, 2);
    sl_subscription_close(&subscription);
}

CASE(host__continues_numbers_that_subscribers_know)
{
    struct sl_subscription *subscription;
    uint64_t version;
    nodes_expect(sl_subscription_open(nodes.node[2], "model", NULL, NODES_TIMEOUT, &subscription));
    nodes_end(&nodes, 1); /* the only holder */
    restart_host();
    assert_int_equal(nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, from, BYTES), 2);
    nodes_expect(sl_subscription_wait(subscription, 1, NODES_TIMEOUT, &version));
    assert_int_equal(version, 2);
    sl_subscription_close(&subscription);
}

/* Where etcd says which node hosts the catalogue */

static void add_elected(struct nodes *all, const char *store)
{
    const struct sl_transfer_options engine = {.name = "127.0.0.1:0",
                                               .endpoints = "tcp://127.0.0.1:0",
                                               .metadata = store,
                                               .insecure = true};
    const struct sl_objects_options options = {
        .struct_size = sizeof options, .engine_options = &engine, .agent = "off"};
    struct sl_object_list *list;
    nodes_expect(sl_objects_create(&options, &all->node[all->count]));
    nodes_expect(sl_object_list(all->node[all->count++], NULL, NODES_TIMEOUT, &list));
    sl_object_list_free(&list);
}

/* Writes a key below the prefix of the store; value NULL: only reads it, into the answer. */
static void use_key(const char *store, const char *name, const char *value,
                    struct sl_metastore_request *ask)
{
    struct sl_metastore_address parsed;
    struct sl_etcd *etcd;
    struct sl_reason reason;
    struct sl_metastore_change change = {.value = (uint8_t *)(uintptr_t)value,
                                         .value_bytes = value == NULL ? 0 : strlen(value)};
    assert_int_equal(sl_metastore_address_parse(store, &parsed, &reason), 0);
    assert_int_equal(sl_etcd_create(&parsed, &etcd), 0);
    *ask = (struct sl_metastore_request){.kind =
                                             value == NULL ? SL_METASTORE_READ : SL_METASTORE_WRITE,
                                         .timeout_ns = NODES_TIMEOUT * SL_CLOCK_NS_PER_MS,
                                         .changes = &change,
                                         .change_count = 1};
    assert_true(sl_metastore_address_key(&parsed, name, "", ask->key));
    memcpy(change.key, ask->key, sizeof change.key);
    sl_etcd_perform(etcd, ask);
    assert_int_equal(ask->answer.err, 0);
    sl_etcd_destroy(&etcd);
}

/* The record of a version can be read by hosts of other versions of the program. */
static void expect_record(const char *store, const char *key, const char *name)
{
    struct sl_metastore_request ask;
    struct sl_objects_message message;
    use_key(store, key, NULL, &ask);
    assert_int_equal(ask.answer.item_count, 1);
    assert_int_equal(sl_objects_message_decode(ask.answer.pairs[0].value,
                                               (uint32_t)ask.answer.pairs[0].value_bytes, &message,
                                               NULL),
                     0);
    assert_int_equal(message.kind, SL_OBJECTS_COMMIT);
    assert_string_equal(message.commit.record.name, name);
    sl_metastore_answer_fini(&ask.answer);
}

/* The next host ignores what is no record, and continues above the number that was stored. */
SL_CASE(host__etcd_names_the_next_one)
{
    struct sl_metastore_request ask;
    static struct real_etcd etcd;
    static struct nodes all;
    char store[64];
    if (!real_etcd_start(&etcd, NULL)) {
        skip();
    }
    (void)snprintf(store, sizeof store, "etcd://127.0.0.1:%u/jobs/a", etcd.port);
    all = (struct nodes){.count = 0};
    for (uint32_t i = 0; i < 3; i++) {
        add_elected(&all, store);
    }
    uint8_t *memory = nodes_bytes(BYTES, 3);
    assert_int_equal(nodes_publish(all.node[1], "model", SL_ORIGIN_CALLER, memory, BYTES), 1);
    nodes_get(all.node[2], "model", 1, to, BYTES);
    expect_record(store, SL_OBJECTS_RECORD_KEYS "model@1", "model");
    use_key(store, SL_OBJECTS_RECORD_KEYS "strange@1", "no record", &ask);
    use_key(store, SL_OBJECTS_RECORD_KEYS "@", "41", &ask);
    nodes_end(&all, 0); /* it was the first */
    assert_int_equal(nodes_publish(all.node[1], "model", SL_ORIGIN_HOST, memory, BYTES), 42);
    nodes_expect(sl_object_wait_held(all.node[2], "model", 1, 2, NODES_TIMEOUT));
    nodes_end(&all, 1);
    nodes_expect(sl_object_wait_held(all.node[2], "model", 1, 1, NODES_TIMEOUT));
    nodes_expect_bytes(to, BYTES, 3);
    nodes_fini(&all);
    free(memory);
    real_etcd_stop(&etcd);
}
