#include "objects/node/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nodes.h"
#include "objects/node/call.h"
#include "objects/node/node.h"

/* The pool of a node has 256 slots. Each version has COUNT blocks, and a manifest of one. */
enum { BLOCK = SL_OBJECTS_BLOCK_BYTES, COUNT = 100, NAMES = 3 };

static struct nodes nodes;
static uint8_t *bytes[NAMES];
static const char *const names[NAMES] = {"a", "b", "c"};

/* A use that a test makes on the reactor of node 1. */
struct user {
    struct sl_objects_cache_use use;
    struct sl_objects_call call;
    struct sl_objects_ask ask;
    struct sl_completion ended;
    uint32_t grown_count, beginning;
    int err;
    char reason[SL_REASON_BYTES];
};

static struct user *leaving; /* with the next callback */

static void grown(struct sl_objects_cache_use *use)
{
    struct user *user = SL_CONTAINER_OF(use, struct user, use);
    if (user == leaving) {
        leaving = NULL;
        sl_objects_cache_put(user->call.node, use);
        return;
    }
    const uint32_t beginning = use->copy->verified.beginning;
    assert_true(beginning >= user->beginning);
    user->beginning = beginning;
    user->grown_count++;
}

static void ended(struct sl_objects_cache_use *use, int err, const char *reason)
{
    struct user *user = SL_CONTAINER_OF(use, struct user, use);
    user->err = err;
    (void)snprintf(user->reason, sizeof user->reason, "%s", reason);
    sl_completion_end(&user->ended);
}

static void found(struct sl_objects_ask *ask, const struct sl_objects_message *answer, int err,
                  const char *reason)
{
    struct user *user = SL_CONTAINER_OF(ask, struct user, ask);
    struct sl_objects *node = user->call.node;
    sl_completion_begin(&user->ended);
    err = err != 0 ? err
                   : sl_objects_cache_get(node, &user->use, answer, 0,
                                          sl_objects_deadline_ns(node, NODES_TIMEOUT));
    sl_objects_answer(&user->call, err, "%s", reason);
}

static void find_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct user *user = SL_CONTAINER_OF(call, struct user, call);
    user->ask.answered = found;
    sl_objects_ask(node, &user->ask, SL_CLOCK_NEVER);
}

static void put_here(struct sl_objects *node, struct sl_objects_call *call)
{
    sl_objects_cache_put(node, &SL_CONTAINER_OF(call, struct user, call)->use);
    sl_objects_answer(call, 0, "put");
}

static void leave_here(struct sl_objects *node, struct sl_objects_call *call)
{
    leaving = SL_CONTAINER_OF(call, struct user, call);
    sl_objects_answer(call, 0, "leaving");
}

/* Returns the error of sl_objects_cache_get. */
static int use(struct user *user, uint32_t name)
{
    *user =
        (struct user){.use = {.grown = grown, .ended = ended},
                      .call.run = find_here,
                      .ask.message = {.kind = SL_OBJECTS_FIND, .name = names[name], .version = 1}};
    return sl_objects_call(nodes.node[1], &user->call);
}

static void put(struct user *user)
{
    user->call.run = put_here;
    nodes_expect(sl_objects_call(nodes.node[1], &user->call));
}

static int wait(struct user *user)
{
    sl_completion_wait(&user->ended);
    return user->err;
}

/* Uses it until its end, which is a success. */
static void fetch(uint32_t name)
{
    struct user user;
    nodes_expect(use(&user, name));
    assert_int_equal(wait(&user), 0);
    put(&user);
}

static void expect_bytes(const struct user *user, uint32_t name)
{
    const struct sl_objects_copy *copy = user->use.copy;
    assert_int_equal(copy->place_count, 1 + COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_memory_equal(copy->places[1 + i].base, bytes[name] + i * BLOCK, BLOCK);
    }
}

/* Node 0 publishes all names, node 1 has a pool. */
static void begin(uint64_t bytes_per_s)
{
    nodes_init(&nodes, 3, bytes_per_s);
    nodes_expect(sl_objects_copy_open_pool(nodes.node[1]));
    for (uint32_t i = 0; i < NAMES; i++) {
        bytes[i] = nodes_bytes(COUNT * BLOCK, i);
        (void)nodes_publish(nodes.node[0], names[i], SL_ORIGIN_CALLER, bytes[i], COUNT * BLOCK);
    }
}

static void end(void)
{
    nodes_fini(&nodes);
    for (uint32_t i = 0; i < NAMES; i++) {
        free(bytes[i]);
    }
}

/* Waits until so many nodes have all of it. */
static void wait_for_holders(uint32_t name, uint32_t holders)
{
    struct sl_object_list *list;
    uint32_t found;
    do {
        (void)usleep(1000);
        nodes_expect(sl_object_list(nodes.node[0], names[name], NODES_TIMEOUT, &list));
        found = list->count == 1 ? list->entries[0].holders : 0;
        sl_object_list_free(&list);
    } while (found != holders);
}

static void count_slots(struct sl_objects *node, struct sl_objects_call *call)
{
    const bool are_free = node->pool.free_count == node->pool.slot_count;
    sl_objects_answer(call, are_free ? 0 : SL_ERR_AGAIN, "slots are in use");
}

static void wait_for_slots(void)
{
    struct sl_objects_call count = {.run = count_slots};
    while (sl_objects_call(nodes.node[1], &count) != 0) {
        (void)usleep(1000);
    }
}

#define CASE(name, bytes_per_s) SL_CASE_WITH(name, begin(bytes_per_s), end())

CASE(cache_get__fetches_once_for_all_users_and_keeps_the_copy, 100 << 20)
{
    struct user first, second, later;
    nodes_expect(use(&first, 0));
    nodes_expect(use(&second, 0));
    assert_ptr_equal(first.use.copy, second.use.copy);
    assert_int_equal(wait(&first), 0);
    assert_int_equal(wait(&second), 0);
    assert_true(first.grown_count > 1);
    assert_int_equal(first.beginning, COUNT);
    put(&first);
    put(&second);
    wait_for_holders(0, 2);
    nodes_expect(sl_object_withdraw(nodes.node[0], "a", 1, NODES_TIMEOUT));
    nodes_expect(use(&later, 0));
    assert_int_equal(wait(&later), 0);
    assert_int_equal(later.grown_count, 0);
    expect_bytes(&later, 0);
    put(&later);
}

CASE(cache_put__in_a_callback_leaves_the_fetch_to_the_others, 50 << 20)
{
    struct user first, second;
    nodes_expect(use(&first, 0));
    nodes_expect(use(&second, 0));
    first.call.run = leave_here;
    nodes_expect(sl_objects_call(nodes.node[1], &first.call));
    assert_int_equal(wait(&second), 0);
    expect_bytes(&second, 0);
    assert_null(first.use.copy);
    put(&second);
}

CASE(cache_get__evicts_ends_of_others_and_fetches_them_again, 0)
{
    struct user user;
    fetch(0);
    fetch(1);
    wait_for_holders(0, 2);
    fetch(2);
    wait_for_holders(2, 2);
    wait_for_holders(0, 1);
    nodes_expect(use(&user, 0));
    assert_int_equal(wait(&user), 0);
    assert_int_equal(user.use.copy->counts.verified_bytes, COUNT * BLOCK);
    expect_bytes(&user, 0);
    wait_for_holders(0, 2);
    wait_for_holders(1, 1);
    put(&user);
}

CASE(cache_get__fails_if_the_pool_is_in_use, 0)
{
    struct user users[NAMES];
    for (uint32_t i = 0; i < NAMES; i++) {
        nodes_expect(use(&users[i], i));
        assert_int_equal(wait(&users[i]), i < 2 ? 0 : SL_ERR_NO_MEMORY);
    }
    assert_non_null(strstr(users[2].reason, "enlarge the pool"));
    put(&users[0]);
    put(&users[2]);
    fetch(2);
    expect_bytes(&users[1], 1);
    put(&users[1]);
}

SL_CASE(cache_get__leaves_memory_of_the_application_alone)
{
    struct user user;
    uint8_t *to = malloc(COUNT * BLOCK);
    begin(0);
    nodes_get(nodes.node[1], "a", 1, to, COUNT * BLOCK);
    assert_int_equal(use(&user, 0), SL_ERR_EXISTS);
    end();
    free(to);
}

static void take_parents(void *ctx, const struct sl_objects_message *answer)
{
    uint64_t *parents = ctx;
    for (uint32_t i = 0; i < answer->news.parent_count; i++) {
        parents[i] = answer->news.parents[i].node;
    }
}

/* Without label the host is that of the kernel. */
SL_CASE(membership__plans_a_fetch_from_a_node_of_the_same_host)
{
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    struct sl_objects_message find = {.kind = SL_OBJECTS_FIND, .name = "a", .version = 1};
    struct sl_objects *same[2];
    struct sl_get *get;
    uint64_t parents[SL_OBJECTS_STRIPES] = {0};
    begin(0);
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_objects_options options = {.struct_size = sizeof options,
                                                   .engine_options = &engine,
                                                   .catalogue = sl_objects_address(nodes.node[0])};
        nodes_expect(sl_objects_create(&options, &same[i]));
    }
    fetch(0);
    nodes_expect(sl_get_start(same[0], "a", 1, NULL, 0, NODES_TIMEOUT, &get));
    nodes_finish(get);
    wait_for_holders(0, 3);
    nodes_expect(sl_objects_ask_and_wait(same[1], &find, NODES_TIMEOUT, take_parents, parents));
    assert_int_equal(parents[0], same[0]->id);
    assert_int_equal(parents[1], same[0]->id);
    for (uint32_t i = 0; i < 2; i++) {
        sl_objects_destroy(&same[i]);
    }
    end();
}

/* A child reads the copy of name 0 in node 1, or does so no more. */
struct child_call {
    struct sl_objects_call call;
    bool is_done;
    uint32_t resident_count;
};

static void read_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct child_call *child = SL_CONTAINER_OF(call, struct child_call, call);
    const struct sl_objects_copy *copy = sl_objects_copy_find(node, names[0], 1, 0);
    struct sl_objects_message message = {.kind = child->is_done ? SL_OBJECTS_DONE : SL_OBJECTS_WANT,
                                         .node = 77,
                                         .name = names[0],
                                         .version = 1,
                                         .digest = copy->info.digest};
    child->resident_count = copy->pooled->resident_count;
    (child->is_done ? sl_objects_serve_done(node, &message)
                    : sl_objects_serve_want(node, sl_objects_address(nodes.node[2]), &message));
    sl_objects_answer(call, 0, "read");
}

CASE(cache__is_not_evicted_while_others_read_it, 0)
{
    struct child_call child = {.call = {.run = read_here}};
    fetch(0);
    fetch(1);
    nodes_expect(sl_objects_call(nodes.node[1], &child.call));
    fetch(2);
    child.is_done = true;
    nodes_expect(sl_objects_call(nodes.node[1], &child.call));
    assert_int_equal(child.resident_count, 1 + COUNT);
    fetch(1);
    nodes_expect(sl_objects_call(nodes.node[1], &child.call));
    assert_int_equal(child.resident_count, 1 + COUNT);
    fetch(2);
    fetch(1);
    nodes_expect(sl_objects_call(nodes.node[1], &child.call));
    assert_in_range(child.resident_count, 2, COUNT);
}

CASE(cache_put__of_the_last_user_cancels_the_fetch, 20 << 20)
{
    struct user first, second;
    nodes_expect(use(&first, 0));
    nodes_expect(use(&second, 0));
    put(&first);
    assert_int_equal(wait(&second), 0);
    put(&second);
    nodes_expect(use(&first, 1));
    put(&first);
    nodes_expect(sl_object_withdraw(nodes.node[1], "a", 1, NODES_TIMEOUT));
    wait_for_slots();
    fetch(1);
}

CASE(cache__keeps_what_is_used_though_it_is_removed, 0)
{
    struct user user, late;
    nodes_expect(use(&user, 0));
    assert_int_equal(wait(&user), 0);
    wait_for_holders(0, 2);
    nodes_expect(sl_object_remove(nodes.node[2], "a", 1, NODES_TIMEOUT));
    assert_int_equal(use(&late, 0), SL_ERR_NOT_FOUND);
    fetch(1);
    fetch(2);
    expect_bytes(&user, 0);
    put(&user);
    nodes_expect(sl_object_remove(nodes.node[2], "b", 1, NODES_TIMEOUT));
    nodes_expect(sl_object_remove(nodes.node[2], "c", 1, NODES_TIMEOUT));
    wait_for_slots();
}
