#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nodes.h"
#include "objects/catalogue/manifest.h"
#include "objects/node/call.h"
#include "objects/node/fetch.h"
#include "objects/node/node.h"
#include "stranger.h"
#include "tests/support/reactor_thread.h"

static struct nodes nodes;

enum { BLOCK = SL_OBJECTS_BLOCK_BYTES, COUNT = 80, BYTES = COUNT * BLOCK };

static uint8_t *from, *to[3];

/* Node 0 publishes; nodes 1 and 2 get. */
static void begin(uint64_t bytes_per_s)
{
    nodes_init(&nodes, 3, bytes_per_s);
    from = nodes_bytes(BYTES, 7);
    for (uint32_t i = 1; i < 3; i++) {
        to[i] = calloc(BYTES, 1);
    }
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, from, BYTES);
}

static void end(void)
{
    nodes_fini(&nodes);
    free(from);
    free(to[1]);
    free(to[2]);
}

static struct sl_get *start(uint32_t node)
{
    return nodes_start(nodes.node[node], "model", 1, to[node], BYTES, NODES_TIMEOUT);
}

static void wait_for_bytes(struct sl_get *get, uint64_t bytes)
{
    struct sl_get_progress progress;
    do {
        (void)usleep(1000);
        nodes_expect(sl_get_progress(get, &progress));
    } while (progress.verified_bytes < bytes && !progress.done);
}

/* Whether some child of the node was told where bytes lie. Its gets are over. */
static bool has_served(uint32_t node)
{
    const struct sl_objects_copy *copy = sl_objects_copy_find(nodes.node[node], "model", 1, 0);
    return copy != NULL && copy->verified.sent > 0;
}

#define CASE(name, bytes_per_s) SL_CASE_WITH(name, begin(bytes_per_s), end())

CASE(fetch__serves_while_it_receives, 40 << 20)
{
    struct sl_get *first = start(1), *second = start(2);
    nodes_finish(first);
    nodes_finish(second);
    nodes_expect_bytes(to[1], BYTES, 7);
    nodes_expect_bytes(to[2], BYTES, 7);
    assert_true(has_served(1) || has_served(2));
}

/* A plan in which the node is the parent of all stripes. */
static void plan(struct sl_objects_fetch *fetch, uint32_t node)
{
    struct sl_objects_message news = {.news.parent_count = SL_OBJECTS_STRIPES};
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        news.news.parents[i].node = nodes.node[node]->id;
        news.news.parents[i].address = sl_objects_address(nodes.node[node]);
    }
    sl_objects_fetch_news(fetch, &news);
}

static void plan_away_and_back(struct sl_objects *node, struct sl_objects_call *call)
{
    struct sl_objects_fetch *fetch = sl_objects_copy_find(node, "model", 1, 0)->fetch;
    plan(fetch, 1);
    plan(fetch, 0);
    sl_objects_answer(call, 0, "planned");
}

static void look_for_children(struct sl_objects *node, struct sl_objects_call *call)
{
    const bool is_read = !sl_list_empty(&sl_objects_copy_find(node, "model", 1, 0)->children.list);
    sl_objects_answer(call, is_read ? 0 : SL_ERR_NOT_FOUND, "it has no children");
}

CASE(fetch__is_a_child_of_a_source_that_it_has_left_and_chosen_again, 4 << 20)
{
    struct sl_objects_call away = {.run = plan_away_and_back}, look = {.run = look_for_children};
    struct sl_get *get = start(2);
    wait_for_bytes(get, 4 * BLOCK);
    nodes_expect(sl_objects_call(nodes.node[2], &away));
    wait_for_bytes(get, 12 * BLOCK);
    nodes_expect(sl_objects_call(nodes.node[0], &look));
    sl_get_close(&get);
}

CASE(fetch__takes_a_wrong_block_from_another_holder, 0)
{
    struct sl_get_progress progress;
    nodes_get(nodes.node[1], "model", 1, to[1], BYTES);
    nodes_expect(sl_object_wait_held(nodes.node[0], "model", 1, 2, NODES_TIMEOUT));
    memset(from, 0xff, BYTES); /* the plan has one stripe from here */
    struct sl_get *get = start(2);
    nodes_expect(sl_get_wait(get));
    nodes_expect(sl_get_progress(get, &progress));
    sl_get_close(&get);
    /* Under load it may be replaced before, since it is slow. */
    assert_true(progress.corrupt_blocks + progress.replaced_sources >= 1);
    assert_int_equal(progress.verified_bytes, BYTES);
    nodes_expect_bytes(to[2], BYTES, 7);
}

CASE(fetch__names_what_no_holder_has, 0)
{
    uint32_t timeout_ms = 250;
    from[10 * BLOCK] ^= 1;
    do { /* until that is time enough for the others */
        timeout_ms *= 4;
        assert_true(timeout_ms <= NODES_TIMEOUT);
        struct sl_get *get = nodes_start(nodes.node[1], "model", 1, to[1], BYTES, timeout_ms);
        assert_int_equal(sl_get_wait(get), SL_ERR_DEADLINE);
        sl_get_close(&get);
        assert_non_null(strstr(sl_objects_last_error(), "of 80)"));
    } while (strstr(sl_objects_last_error(), "missing blocks 10") == NULL);
    assert_non_null(strstr(sl_objects_last_error(), sl_objects_address(nodes.node[0])));
}

CASE(fetch__goes_on_when_a_holder_ends, 40 << 20)
{
    nodes_get(nodes.node[1], "model", 1, to[1], BYTES);
    struct sl_get *get = start(2);
    wait_for_bytes(get, 4 * BLOCK);
    nodes_end(&nodes, 1);
    nodes_finish(get);
    nodes_expect_bytes(to[2], BYTES, 7);
}

/* A node of the catalogue that says that it has the version, and has ended since: as one that
 * was killed. */
struct pretender {
    struct reactor_thread thread;
    struct sl_transfer *transfer;
    uint64_t id;
    struct sl_objects_link *link;
    struct sl_objects_request attach;
    struct sl_completion completion, wanted;
    bool has_none;  /* and says so; else it answers no WANT */
    uint32_t wants; /* that have come */
};

static void arrive(void *ctx, const char *address, const struct sl_objects_message *message)
{
    struct pretender *pretender = ctx;
    struct sl_objects_message have = *message;
    if (message->kind == SL_OBJECTS_WANT && ++pretender->wants == 2) {
        sl_completion_end(&pretender->wanted);
    } else if (message->kind == SL_OBJECTS_WANT && pretender->has_none) {
        have.is_answer = true;
        sl_objects_link_send(pretender->link, address, &have, NULL, NULL);
    }
}

static void reported(void *ctx, int err, const char *reason)
{
    struct pretender *pretender = ctx;
    assert_int_equal(err, 0);
    sl_completion_end(&pretender->completion);
}

static void attached(struct sl_objects_request *request, const struct sl_objects_message *answer,
                     int err, const char *reason)
{
    struct pretender *pretender = SL_CONTAINER_OF(request, struct pretender, attach);
    struct sl_objects_message hold = {
        .kind = SL_OBJECTS_HOLD, .name = "model", .version = 1, .commit.blocks = COUNT + 1};
    assert_int_equal(err, 0);
    hold.term = answer->term;
    sl_objects_link_send(pretender->link, sl_objects_address(nodes.node[0]), &hold, reported,
                         pretender);
}

static void attach(void *ctx)
{
    struct pretender *pretender = ctx;
    assert_int_equal(sl_objects_link_create(pretender->transfer, pretender->id, arrive, pretender,
                                            &pretender->link),
                     0);
    struct sl_objects_message message = {.kind = SL_OBJECTS_ATTACH, .attach.host = 1};
    pretender->attach.answered = attached;
    sl_objects_link_request(pretender->link, &pretender->attach, sl_objects_address(nodes.node[0]),
                            &message, NODES_TIMEOUT);
}

static void pretender_ended(void *ctx)
{
    sl_completion_end(ctx);
}

static void leave(void *ctx)
{
    struct pretender *pretender = ctx;
    sl_objects_link_destroy(&pretender->link, pretender_ended, &pretender->completion);
}

/* Attaches, and reports the version. */
static void pretend(struct pretender *pretender, uint64_t id)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints = "tcp://127.0.0.1:0"};
    *pretender = (struct pretender){.link = NULL};
    assert_int_equal(sl_transfer_create(&options, &pretender->transfer), 0);
    pretender->id = id;
    reactor_thread_use(&pretender->thread, sl_transfer_async_reactor(pretender->transfer));
    sl_completion_begin(&pretender->wanted);
    sl_completion_begin(&pretender->completion);
    reactor_thread_run(&pretender->thread, attach, pretender);
    sl_completion_wait(&pretender->completion);
}

/* Ends without a word to the catalogue. */
static void end_pretender(struct pretender *pretender)
{
    sl_completion_begin(&pretender->completion);
    reactor_thread_run(&pretender->thread, leave, pretender);
    sl_completion_wait(&pretender->completion);
    reactor_thread_fini(&pretender->thread);
    sl_transfer_destroy(&pretender->transfer);
}

CASE(fetch__finds_the_holder_that_is_left, 0)
{
    static struct pretender pretender;
    for (uint64_t id = 1; id <= 6; id++) {
        pretend(&pretender, id);
        end_pretender(&pretender);
    }
    nodes.hurry = true;
    nodes_finish(nodes_start(nodes.node[1], "model", 1, to[1], BYTES, NODES_TIMEOUT));
    nodes_expect_bytes(to[1], BYTES, 7);
}

static void want_twice(bool has_none)
{
    static struct pretender pretender;
    begin(0);
    pretend(&pretender, 1);
    pretender.has_none = has_none;
    nodes_expect(sl_object_wait_held(nodes.node[0], "model", 1, 2, NODES_TIMEOUT));
    nodes_expect(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT));
    struct sl_get *get = start(1);
    sl_completion_wait(&pretender.wanted);
    sl_get_close(&get);
    end_pretender(&pretender);
    end();
}

SL_CASE(fetch__sends_want_again_if_the_answer_is_lost)
{
    want_twice(false);
}

SL_CASE(fetch__sends_want_again_if_a_have_may_be_lost)
{
    want_twice(true);
}

CASE(withdraw__frees_the_memory_while_others_fetch_it, 40 << 20)
{
    nodes_get(nodes.node[1], "model", 1, to[1], BYTES);
    struct sl_get *get = start(2);
    wait_for_bytes(get, 4 * BLOCK);
    nodes_expect(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT));
    memset(from, 0, BYTES);
    nodes_finish(get);
    nodes_expect_bytes(to[2], BYTES, 7);
    assert_int_equal(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT),
                     SL_ERR_NOT_FOUND);
}

/* The next version gets its slots when nobody reads them any more. */
SL_CASE(withdraw__of_a_copy_in_the_pool_waits_for_children)
{
    struct sl_get_progress progress;
    nodes_init(&nodes, 2, 8 << 20); /* more than the get has time for */
    uint8_t *first = nodes_bytes(BYTES, 1), *second = nodes_bytes(BYTES, 2), *got = malloc(BYTES);
    nodes_publish(nodes.node[0], "model", SL_ORIGIN_HOST, first, BYTES);
    struct sl_get *get = nodes_start(nodes.node[1], "model", 1, got, BYTES, 2000);
    wait_for_bytes(get, 4 * BLOCK);
    nodes_expect(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT));
    nodes_publish(nodes.node[0], "other", SL_ORIGIN_HOST, second, BYTES);
    assert_int_equal(sl_get_wait(get), SL_ERR_DEADLINE);
    nodes_expect(sl_get_progress(get, &progress));
    assert_int_equal(progress.corrupt_blocks, 0);
    sl_get_close(&get);
    nodes_fini(&nodes);
    free(first);
    free(second);
    free(got);
}

CASE(withdraw__cancels_a_get, 4 << 20)
{
    struct sl_get *get = start(1);
    uint64_t cursor = 0, offset;
    struct sl_object_tensor tensor;
    wait_for_bytes(get, BLOCK);
    assert_int_equal(sl_get_next_tensor(get, &cursor, &tensor, &offset), SL_ERR_AGAIN);
    assert_int_equal(sl_object_withdraw(nodes.node[1], "model", 0, NODES_TIMEOUT), SL_ERR_INVALID);
    nodes_expect(sl_object_withdraw(nodes.node[1], "model", 1, NODES_TIMEOUT));
    assert_int_equal(sl_get_wait(get), SL_ERR_CANCELLED);
    assert_int_equal(sl_get_next_tensor(get, &cursor, &tensor, &offset), SL_ERR_CANCELLED);
    memset(to[1], 0, BYTES);
    sl_get_close(&get);
}

CASE(withdraw__of_the_last_copy_ends_gets_at_their_deadline, 4 << 20)
{
    struct sl_get *get = nodes_start(nodes.node[1], "model", 1, to[1], BYTES, 4000);
    wait_for_bytes(get, BLOCK);
    nodes_expect(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT));
    nodes.hurry = true;
    assert_int_equal(sl_get_wait(get), SL_ERR_DEADLINE);
    assert_non_null(strstr(sl_objects_last_error(), "of 80)"));
    sl_get_close(&get);
}

/* Of the one tensor that nodes_publish publishes. */
static struct sl_hash_128 digest_of(const uint8_t *bytes, uint64_t count)
{
    struct sl_objects_manifest manifest;
    struct sl_reason reason;
    sl_objects_manifest_init(&manifest);
    assert_int_equal(
        sl_objects_manifest_add_tensor(&manifest, "bytes", SL_OBJECT_U8, 1, &count, &reason), 0);
    assert_int_equal(sl_objects_manifest_seal(&manifest, &reason), 0);
    sl_objects_manifest_hash(&manifest, 0, bytes);
    uint8_t *encoded = malloc(manifest.encoded_bytes);
    const struct sl_hash_128 digest = sl_objects_manifest_encode(&manifest, encoded);
    free(encoded);
    sl_objects_manifest_fini(&manifest);
    return digest;
}

SL_CASE(serve__has_at_most_1024_children_of_a_copy)
{
    uint8_t bytes[100] = {1};
    struct stranger stranger;
    nodes_init(&nodes, 1, 0);
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, bytes, sizeof bytes);
    stranger_init(&stranger, sl_objects_address(nodes.node[0]));
    struct sl_objects_message want = {.kind = SL_OBJECTS_WANT,
                                      .name = "model",
                                      .version = 1,
                                      .digest = digest_of(bytes, sizeof bytes)};
    for (want.node = 1; want.node <= 1024; want.node++) {
        assert_int_equal(stranger_ask(&stranger, &want), 0);
    }
    assert_int_equal(stranger_ask(&stranger, &want), SL_ERR_AGAIN);
    struct sl_objects_message done = want;
    done.kind = SL_OBJECTS_DONE;
    done.node = 7;
    stranger_send(&stranger, &done);
    assert_int_equal(stranger_ask(&stranger, &want), 0);
    stranger_fini(&stranger);
    nodes_fini(&nodes);
}
