#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nodes.h"
#include "objects/node/copy.h"
#include "objects/node/node.h"

static struct nodes nodes;

#define CASE(name) SL_CASE_WITH(name, nodes_init(&nodes, 3, 0), nodes_fini(&nodes))

enum { BLOCK = SL_OBJECTS_BLOCK_BYTES };

/* Publishes at node 0, gets at node 1. */
static void move(enum sl_object_origin origin, size_t bytes)
{
    uint8_t *from = nodes_bytes(bytes, 7), *to = calloc(bytes + 1, 1);
    const uint64_t version = nodes_publish(nodes.node[0], "model", origin, from, bytes);
    assert_int_equal(version, 1);
    if (origin == SL_ORIGIN_HOST) {
        memset(from, 0, bytes);
    }
    nodes_get(nodes.node[1], "model", 0, to, bytes);
    nodes_expect_bytes(to, bytes, 7);
    nodes_fini(&nodes);
    free(from);
    free(to);
}

CASE(get__moves_one_byte)
{
    move(SL_ORIGIN_CALLER, 1);
}

CASE(get__moves_one_block)
{
    move(SL_ORIGIN_CALLER, BLOCK);
}

CASE(get__moves_one_block_and_a_byte)
{
    move(SL_ORIGIN_CALLER, BLOCK + 1);
}

CASE(get__moves_40_mb)
{
    move(SL_ORIGIN_CALLER, 40000000);
}

CASE(get__moves_an_image_of_no_bytes)
{
    move(SL_ORIGIN_CALLER, 0);
}

CASE(get__moves_what_was_copied_into_the_pool)
{
    move(SL_ORIGIN_HOST, 3 * BLOCK + 5);
}

CASE(get__moves_into_the_pool)
{
    uint8_t *from = nodes_bytes(2 * BLOCK + 1, 3), *to = calloc(2 * BLOCK + 1, 1);
    struct sl_get *get;
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, from, 2 * BLOCK + 1);
    nodes_expect(sl_get_start(nodes.node[1], "model", 0, NULL, 0, NODES_TIMEOUT, &get));
    nodes_finish(get);
    nodes_expect(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT));
    memset(from, 0, 2 * BLOCK + 1);
    nodes_get(nodes.node[2], "model", 1, to, 2 * BLOCK + 1);
    nodes_expect_bytes(to, 2 * BLOCK + 1, 3);
    nodes_fini(&nodes);
    free(from);
    free(to);
}

/* What lies between memory of the caller and a manifest belongs to neither. */
CASE(copy_register__joins_extents_and_no_manifest)
{
    uint8_t *memory = nodes_bytes(1000, 1);
    const struct sl_object_extent extents[3] = {{.base = memory + 200, .bytes = 100},
                                                {.base = memory + 800, .bytes = 0},
                                                {.base = memory, .bytes = 150}};
    struct sl_objects_copy copies[2] = {
        {.stored_manifest = memory + 300, .info.manifest_bytes = 36}, /* and 64 zeros */
        {.stored_manifest = memory + 410, .info.manifest_bytes = 36}};
    struct sl_objects_copy *const listed[2] = {&copies[0], &copies[1]};
    struct sl_transfer *transfer = nodes.node[0]->transfer;
    nodes_expect(sl_objects_copy_register(transfer, listed, 2, extents, 3));
    assert_int_equal(copies[0].memory.count, 3);
    assert_ptr_equal(copies[0].memory.bases[0], memory);
    assert_ptr_equal(copies[0].memory.bases[1], memory + 300);
    assert_ptr_equal(copies[0].memory.bases[2], memory + 410);
    nodes_expect(sl_objects_memory_unregister(transfer, &copies[0].memory, NODES_TIMEOUT));
    nodes_expect(sl_objects_copy_register(transfer, &listed[1], 1, NULL, 0));
    assert_int_equal(copies[1].memory.count, 1);
    nodes_expect(sl_objects_memory_unregister(transfer, &copies[1].memory, NODES_TIMEOUT));
    nodes_fini(&nodes);
    free(memory);
}

/* Node 2 gets them into its pool, where their manifest has several slots. */
static void expect_tensors_in_pool(uint64_t version, const uint8_t *from, uint32_t count,
                                   uint32_t bytes)
{
    struct sl_get *get;
    struct sl_object_tensor tensor;
    uint64_t cursor = 0, offset;
    nodes_expect(sl_get_start(nodes.node[2], "model", version, NULL, 0, NODES_TIMEOUT, &get));
    nodes_expect(sl_get_wait(get));
    for (uint32_t i = 0; i < count; i++) {
        nodes_expect(sl_get_next_tensor(get, &cursor, &tensor, &offset));
        assert_int_equal(offset, 64 * i);
        assert_memory_equal(tensor.data, from + (size_t)i * bytes, bytes);
    }
    sl_get_close(&get);
}

/* More places than the requests of one batch may have, if it reads several blocks. */
CASE(get__moves_many_tiny_tensors)
{
    enum { COUNT = 60000, BYTES = 60 };
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "model", .origin = SL_ORIGIN_CALLER};
    struct sl_publication *publication;
    uint64_t version;
    uint8_t *from = nodes_bytes(COUNT * BYTES, 3), *to = calloc(COUNT, 64);
    nodes_expect(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication));
    for (uint32_t i = 0; i < COUNT; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%u", i);
        const struct sl_object_tensor tensor = {.name = name,
                                                .type = SL_OBJECT_U8,
                                                .rank = 1,
                                                .shape = {BYTES},
                                                .data = from + i * BYTES,
                                                .bytes = BYTES};
        nodes_expect(sl_publish_tensor(publication, &tensor));
    }
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &version));
    sl_publish_end(&publication);
    nodes_get(nodes.node[1], "model", version, to, 64 * (COUNT - 1) + BYTES);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_memory_equal(to + 64 * i, from + i * BYTES, BYTES);
    }
    expect_tensors_in_pool(version, from, COUNT, BYTES);
    nodes_fini(&nodes);
    free(from);
    free(to);
}

/* Gaps between tensors; tensors in several blocks and extents; extents cut anywhere. */
CASE(get__has_tensors_at_their_places)
{
    enum { BIG = 3 * BLOCK + 10, ALL = BIG + 54 + 4 + 60 + 6 };
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "model", .origin = SL_ORIGIN_CALLER};
    uint8_t *big = nodes_bytes(BIG, 1), small[4] = {1, 2, 3, 4};
    uint16_t last[3] = {7, 8, 9};
    const struct sl_object_tensor tensors[] = {
        {.name = "big", .type = SL_OBJECT_U8, .rank = 1, .shape = {BIG}, .data = big, .bytes = BIG},
        {.name = "small", .type = SL_OBJECT_F32, .data = small, .bytes = 4},
        {.name = "last",
         .type = SL_OBJECT_I16,
         .rank = 2,
         .shape = {1, 3},
         .data = last,
         .bytes = 6}};
    struct sl_publication *publication;
    uint64_t version, cursor = 0, offset;
    nodes_expect(sl_publish_begin(nodes.node[0], &options, NODES_TIMEOUT, &publication));
    for (uint32_t i = 0; i < 3; i++) {
        nodes_expect(sl_publish_group(publication, i == 0 ? "first" : i == 1 ? "second" : "third"));
        nodes_expect(sl_publish_tensor(publication, &tensors[i]));
    }
    nodes_expect(sl_publish_commit(publication, NODES_TIMEOUT, &version));
    sl_publish_end(&publication);

    uint8_t *to = malloc(ALL);
    memset(to, 0xee, ALL);
    const struct sl_object_extent extents[] = {
        {to, 1}, {to + 1, BLOCK + 5}, {to + BLOCK + 6, 0}, {to + BLOCK + 6, ALL - BLOCK - 6}};
    struct sl_get *get;
    struct sl_object_tensor found;
    nodes_expect(sl_get_start(nodes.node[1], "model", version, extents, 4, NODES_TIMEOUT, &get));
    nodes_expect(sl_get_wait(get));
    for (uint32_t i = 0; i < 3; i++) {
        nodes_expect(sl_get_next_tensor(get, &cursor, &found, &offset));
        assert_string_equal(found.name, tensors[i].name);
        assert_int_equal(found.type, tensors[i].type);
        assert_int_equal(found.rank, tensors[i].rank);
        assert_int_equal(found.bytes, tensors[i].bytes);
        assert_memory_equal(to + offset, tensors[i].data, tensors[i].bytes);
        assert_true(i == 0 ? found.data == NULL : found.data == to + offset);
    }
    assert_int_equal(sl_get_next_tensor(get, &cursor, &found, &offset), SL_ERR_NOT_FOUND);
    assert_int_equal(offset + found.bytes, ALL);
    assert_int_equal(to[BIG], 0); /* a gap */
    sl_get_close(&get);
    nodes_fini(&nodes);
    free(big);
    free(to);
}

static void *commit(void *ctx)
{
    uint64_t version;
    nodes_expect(sl_publish_commit(ctx, NODES_TIMEOUT, &version));
    assert_int_equal(version, 5);
    return NULL;
}

CASE(get__has_the_parts_in_their_order)
{
    enum { FIRST = 5 * BLOCK + 3, SECOND = 2 * BLOCK };
    const size_t bytes[2] = {FIRST, SECOND};
    uint8_t *from[2], *to = calloc(FIRST + SECOND, 1);
    struct sl_publication *publications[2];
    pthread_t thread;
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_publish_options options = {.struct_size = sizeof options,
                                                   .name = "model",
                                                   .version = 5,
                                                   .origin = SL_ORIGIN_CALLER,
                                                   .part = i,
                                                   .part_count = 2};
        from[i] = nodes_bytes(bytes[i], i);
        const struct sl_object_extent extent = {from[i], bytes[i]};
        nodes_expect(sl_publish_begin(nodes.node[i], &options, NODES_TIMEOUT, &publications[i]));
        nodes_expect(sl_publish_bytes(publications[i], &extent, 1));
    }
    assert_int_equal(pthread_create(&thread, NULL, commit, publications[1]), 0);
    (void)commit(publications[0]);
    pthread_join(thread, NULL);
    nodes_get(nodes.node[2], "model", 5, to, FIRST + SECOND);
    nodes_expect_bytes(to, FIRST, 0);
    nodes_expect_bytes(to + FIRST, SECOND, 1);
    for (uint32_t i = 0; i < 2; i++) {
        sl_publish_end(&publications[i]);
    }
    nodes_fini(&nodes);
    free(from[0]);
    free(from[1]);
    free(to);
}

CASE(get__refuses_what_it_cannot_do)
{
    uint8_t *from = nodes_bytes(100, 7), to[100];
    struct sl_object_extent extent = {to, 100};
    struct sl_get *get;
    assert_int_equal(sl_get_start(nodes.node[1], "model", 0, &extent, 1, NODES_TIMEOUT, &get),
                     SL_ERR_NOT_FOUND);
    assert_int_equal(sl_get_start(nodes.node[1], "a b", 0, &extent, 1, NODES_TIMEOUT, &get),
                     SL_ERR_INVALID);
    assert_int_equal(sl_get_start(nodes.node[1], "model", 0, &extent, 1, 0, &get), SL_ERR_INVALID);
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, from, 100);
    extent.bytes = 99;
    assert_int_equal(sl_get_start(nodes.node[1], "model", 0, &extent, 1, NODES_TIMEOUT, &get),
                     SL_ERR_INVALID);
    assert_non_null(strstr(sl_objects_last_error(), "100 bytes"));
    const struct sl_object_extent overlap[] = {{to, 60}, {to + 60, 0}, {to + 59, 40}};
    assert_int_equal(sl_get_start(nodes.node[1], "model", 0, overlap, 3, NODES_TIMEOUT, &get),
                     SL_ERR_INVALID);
    assert_non_null(strstr(sl_objects_last_error(), "0 and 2"));
    nodes_get(nodes.node[1], "model", 1, to, 100);
    extent.bytes = 100;
    assert_int_equal(sl_get_start(nodes.node[1], "model", 1, &extent, 1, NODES_TIMEOUT, &get),
                     SL_ERR_EXISTS);
    assert_int_equal(sl_get_start(nodes.node[1], "model", 2, &extent, 1, NODES_TIMEOUT, &get),
                     SL_ERR_NOT_FOUND);
    nodes_fini(&nodes);
    free(from);
}

CASE(get__is_closed_before_its_end)
{
    enum { BYTES = 20 * BLOCK };
    uint8_t *from = nodes_bytes(BYTES, 7), *to = NULL;
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, from, BYTES);
    for (long i = 0; i < 20; i++) { /* while it asks, reads, or computes digests */
        const struct timespec pause = {.tv_nsec = i * 300000};
        free(to);
        to = calloc(BYTES, 1);
        struct sl_get *get = nodes_start(nodes.node[1], "model", 1, to, BYTES, NODES_TIMEOUT);
        (void)nanosleep(&pause, NULL);
        sl_get_close(&get);
        memset(to, 0, BYTES); /* whether it was fetched or not, nobody reads or writes it */
        (void)sl_object_withdraw(nodes.node[1], "model", 1, NODES_TIMEOUT);
    }
    nodes_get(nodes.node[1], "model", 1, to, BYTES);
    nodes_expect_bytes(to, BYTES, 7);
    nodes_fini(&nodes);
    free(from);
    free(to);
}

/* A get without extents that is open keeps its slots of the pool, though its version is retired. */
CASE(get__into_the_pool_keeps_its_bytes_until_it_is_closed)
{
    enum { BYTES = BLOCK / 2 };
    struct sl_get *first = NULL, *get;
    struct sl_object_tensor tensor = {0};
    uint64_t cursor = 0, at;
    for (uint32_t version = 1; version <= 6; version++) {
        uint8_t *from = nodes_bytes(BYTES, version);
        (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_HOST, from, BYTES);
        free(from);
        nodes_expect(sl_get_start(nodes.node[1], "model", version, NULL, 0, NODES_TIMEOUT, &get));
        nodes_expect(sl_get_wait(get));
        if (version == 1) {
            first = get;
            nodes_expect(sl_get_next_tensor(first, &cursor, &tensor, &at));
        } else {
            sl_get_close(&get);
        }
    }
    nodes_expect_bytes(tensor.data, BYTES, 1);
    sl_get_close(&first);
}

CASE(get__is_closed_while_its_source_is_opened)
{
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = sl_objects_address(nodes.node[0])};
    uint8_t *from = nodes_bytes(BLOCK, 1), *to = nodes_bytes(BLOCK, 2);
    (void)nodes_publish(nodes.node[1], "model", SL_ORIGIN_CALLER, from, BLOCK);
    for (long i = 0; i < 20; i++) {
        const struct timespec pause = {.tv_nsec = i * 50000};
        struct sl_objects *node;
        nodes_expect(sl_objects_create(&options, &node));
        struct sl_get *get = nodes_start(node, "model", 1, to, BLOCK, NODES_TIMEOUT);
        (void)nanosleep(&pause, NULL);
        sl_get_close(&get);
        sl_objects_destroy(&node);
    }
    nodes_fini(&nodes);
    free(from);
    free(to);
}
