/* Small versions in messages that are wrong. Real engines over loopback; node 0 hosts the
 * catalogue, node 1 is the agent of node 2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "objects/node/cache.h"
#include "objects/node/call.h"
#include "objects/node/node.h"
#include "objects/node/publish.h"
#include "tests/support/unit.h"
#include "tests/unit/objects/nodes.h"

#define BYTES 5000

static struct nodes nodes;
static uint8_t *bytes, *fetched;
static uint8_t image[SL_OBJECTS_IMAGE_BYTES]; /* of "other": the manifest and, behind it, bytes */
static struct sl_objects_part part;           /* its lengths and digest */

struct own_call {
    struct sl_objects_call call;
    struct sl_objects_request request;
    struct sl_objects_message message;
    const uint8_t *attached; /* NULL: nothing */
    uint32_t attached_bytes;
    /* Of a get at the cache. */
    struct sl_objects_ask ask;
    struct sl_objects_cache_use use;
};

static void attached_here(struct sl_objects *node, struct sl_objects_call *call)
{
    sl_objects_answer(call, node->membership.is_attached ? 0 : SL_ERR_AGAIN, "not yet");
}

static void start(const struct sl_objects_setup *setup)
{
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {
        .struct_size = sizeof options,
        .engine_options = &engine,
        .catalogue = nodes.count > 0 ? sl_objects_address(nodes.node[0]) : NULL,
        .host = nodes.count > 0 ? "here" : "there",
        .pool_bytes = 8 * SL_OBJECTS_BLOCK_BYTES};
    struct sl_objects_call call = {.run = attached_here};
    nodes_create(&nodes, &options, setup, &nodes.node[nodes.count]);
    nodes.count++;
    while (sl_objects_call(nodes.node[nodes.count - 1], &call) != 0) {
        nodes_pause(&nodes);
    }
}

/* Copies what node 0 has published. */
static void read_here(struct sl_objects *node, struct sl_objects_call *call)
{
    const struct sl_objects_copy *copy = sl_objects_copy_find(node, "other", 1, 0);
    assert_non_null(copy);
    part = copy->info;
    const void *manifest =
        sl_objects_place_read(copy->places, copy->place_count, 0, part.manifest_bytes, image);
    memmove(image, manifest, part.manifest_bytes);
    memcpy(image + part.manifest_bytes, bytes, BYTES);
    sl_objects_answer(call, 0, "read");
}

static void setup(void)
{
    char name[64];
    struct sl_objects_call call = {.run = read_here};
    sl_log_setup(SL_LOG_ERROR, "put");
    memset(&nodes, 0, sizeof nodes);
    nodes.hurry = true;
    (void)snprintf(name, sizeof name, "put-test-%d", (int)getpid());
    start(NULL);
    start(&(struct sl_objects_setup){.agent = name});
    start(NULL);
    bytes = nodes_bytes(BYTES, 1);
    fetched = calloc(1, BYTES);
    assert_non_null(fetched);
    assert_int_equal(nodes_publish(nodes.node[0], "other", SL_ORIGIN_CALLER, bytes, BYTES), 1);
    nodes_expect(sl_objects_call(nodes.node[0], &call));
}

static void teardown(void)
{
    nodes_fini(&nodes);
    free(bytes);
    free(fetched);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

/* PUT */

static void answered(struct sl_objects_request *request, const struct sl_objects_message *answer,
                     int err, const char *reason)
{
    sl_objects_answer(&SL_CONTAINER_OF(request, struct own_call, request)->call, err, "%s", reason);
}

static void put_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct own_call *put = SL_CONTAINER_OF(call, struct own_call, call);
    struct sl_transfer_async *async = sl_objects_link_async(node->link);
    if (put->attached != NULL) { /* to the next notice, which is this one */
        uint8_t *memory = sl_transfer_async_memory_get(async);
        assert_non_null(memory);
        memcpy(memory, put->attached, put->attached_bytes);
        sl_transfer_async_attach(async, memory, put->attached_bytes);
    }
    put->request.answered = answered;
    sl_objects_link_request(node->link, &put->request, sl_objects_address(nodes.node[1]),
                            &put->message, NODES_TIMEOUT);
}

/* Node 2 sends its agent the first bytes of what is attached. */
static int put(const struct sl_publication *publication, const uint8_t *attached, uint32_t count)
{
    struct own_call put = {.call.run = put_here, .attached = attached, .attached_bytes = count};
    put.message = (struct sl_objects_message){.kind = SL_OBJECTS_PUT,
                                              .part_count = 1,
                                              .timeout_ms = 60000,
                                              .commit.record_count = 1,
                                              .commit.record = {.name = "llama",
                                                                .note = "",
                                                                .version = publication->version,
                                                                .epoch = publication->epoch,
                                                                .origin = SL_ORIGIN_HOST,
                                                                .part_count = 1,
                                                                .parts = {part}}};
    return sl_objects_call(nodes.node[2], &put.call);
}

static void stored_here(struct sl_objects *node, struct sl_objects_call *call)
{
    sl_objects_answer(call, sl_list_empty(&node->stored) ? SL_ERR_NOT_FOUND : 0, "none");
}

static void expect_stored(bool is)
{
    struct sl_objects_call call = {.run = stored_here};
    assert_int_equal(sl_objects_call(nodes.node[1], &call), is ? 0 : SL_ERR_NOT_FOUND);
}

CASE(put__with_another_image_is_refused_and_not_stored)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "llama", .origin = SL_ORIGIN_HOST};
    const uint32_t whole = part.manifest_bytes + BYTES;
    struct sl_publication *publication;
    nodes_expect(sl_publish_begin(nodes.node[2], &options, NODES_TIMEOUT, &publication));
    assert_int_equal(publication->keeper_count, 1);
    const uint32_t lengths[] = {0, 1, whole - 1, whole + 1, SL_OBJECTS_IMAGE_BYTES};
    assert_int_equal(put(publication, NULL, 0), SL_ERR_AGAIN);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(put(publication, image, lengths[i]), SL_ERR_AGAIN);
        expect_stored(false);
    }
    /* Of the right length. */
    const uint32_t places[] = {0, part.manifest_bytes - 1, part.manifest_bytes, whole - 1};
    for (uint32_t i = 0; i < 4; i++) {
        image[places[i]] ^= 1;
        assert_int_equal(put(publication, image, whole), SL_ERR_AGAIN);
        image[places[i]] ^= 1;
        expect_stored(false);
    }
    nodes_expect(put(publication, image, whole));
    expect_stored(true);
    nodes_get(nodes.node[0], "llama", publication->version, fetched, BYTES);
    assert_memory_equal(fetched, bytes, BYTES);
    sl_publish_end(&publication);
}

/* NEWS */

static void ended(struct sl_objects_cache_use *use, int err, const char *reason)
{
    struct own_call *get = SL_CONTAINER_OF(use, struct own_call, use);
    const struct sl_objects_copy *copy = use->copy;
    assert_int_equal(err, 0);
    assert_int_equal(copy->place_count, 2);
    assert_int_equal(copy->places[1].bytes, BYTES);
    memcpy(fetched, copy->places[1].base, BYTES);
    sl_objects_cache_put(get->call.node, use);
    sl_objects_answer(&get->call, 0, "fetched");
}

static void found(struct sl_objects_ask *ask, const struct sl_objects_message *answer, int err,
                  const char *reason)
{
    struct own_call *get = SL_CONTAINER_OF(ask, struct own_call, ask);
    struct sl_objects_message news = *answer;
    news.commit.image.manifest = get->attached;
    news.commit.image.bytes = get->attached + part.manifest_bytes;
    get->use.ended = ended;
    assert_int_equal(sl_objects_cache_get(get->call.node, &get->use, &news, 0,
                                          sl_objects_deadline_ns(get->call.node, NODES_TIMEOUT)),
                     0);
}

static void find_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct own_call *get = SL_CONTAINER_OF(call, struct own_call, call);
    get->ask = (struct sl_objects_ask){
        .message = {.kind = SL_OBJECTS_FIND, .name = "other", .version = 1}, .answered = found};
    sl_objects_ask(node, &get->ask, SL_CLOCK_NEVER);
}

CASE(news__with_another_image_is_fetched)
{
    const uint32_t places[] = {0, part.manifest_bytes - 1, part.manifest_bytes,
                               part.manifest_bytes + BYTES - 1};
    for (uint32_t i = 0; i < 4; i++) {
        struct own_call get = {.call.run = find_here, .attached = image};
        image[places[i]] ^= 1;
        memset(fetched, 0, BYTES);
        nodes_expect(sl_objects_call(nodes.node[1], &get.call));
        assert_memory_equal(fetched, bytes, BYTES);
        image[places[i]] ^= 1;
        nodes_expect(sl_object_withdraw(nodes.node[1], "other", 1, NODES_TIMEOUT));
    }
}
