/* The catalogue's plans, played in the model of blocks: node 1 is the origin and the model's first
 * node, node n the model's n-th. */
#include "objects/catalogue/catalogue_plan.h"

#include <string.h>

#include "core/hash.h"
#include "objects/catalogue/manifest.h"
#include "tests/support/unit.h"
#include "tests/unit/objects/block_model.h"
#include "tests/unit/objects/catalogue_fixture.h"

#define BLOCKS  40 /* of the stored part, with its manifest */
#define UNIT_MS 50 /* that one uplink takes for a block */

static struct model model;
static uint64_t complete_ms[NODES_MAX]; /* 0: not yet */

/* "llama@1" of `BLOCKS` blocks at node 1. */
static void setup(void)
{
    uint64_t epoch, version;
    begin_catalogue(1000, 0);
    model_init(&model, BLOCKS);
    memset(complete_ms, 0, sizeof complete_ms);
    assert_int_equal(attach(1), 0);
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
}

#define CASE(name) SL_CASE_WITH(name, setup(), end_catalogue())

static void commit(void)
{
    struct sl_objects_message message = commit_of(1, "llama", 1, 1001, 1);
    message.commit.record.parts[0].bytes = (BLOCKS - 1) * SL_OBJECTS_BLOCK_BYTES;
    assert_int_equal(ask(1, message)->err, 0);
}

/* The next node, on a host of its own. */
static uint64_t add_node(void)
{
    const uint64_t node = model_add(&model) + 1;
    assert_int_equal(attach(node), 0);
    return node;
}

static void take_parents(uint64_t node, const struct sl_objects_message *news)
{
    for (uint32_t s = 0; s < SL_OBJECTS_STRIPES; s++) {
        model.nodes[node - 1].parents[s] =
            news->news.parent_count == 0 ? MODEL_NOBODY : (uint32_t)news->news.parents[s].node - 1;
    }
}

static void fetch(uint64_t node)
{
    const struct sl_objects_message *news = find(node, "llama", 1);
    assert_int_equal(news->err, 0);
    take_parents(node, news);
}

/* Takes the news of all nodes; returns their number. */
static uint32_t take_news(void)
{
    uint32_t count = 0;
    for (uint64_t node = 1; node <= model.node_count; node++) {
        const struct sl_objects_message *news;
        while ((news = received(node)) != NULL) {
            take_parents(node, news);
            answer_news(node, news);
            count++;
        }
    }
    return count;
}

/* No walk towards the origin comes back to where it was. */
static void check_no_cycle(void)
{
    for (uint32_t s = 0; s < SL_OBJECTS_STRIPES; s++) {
        for (uint32_t n = 1; n < model.node_count; n++) {
            uint32_t steps = 0;
            for (uint32_t at = n; at != MODEL_NOBODY && !model_is_complete(&model, at);
                 at = model.nodes[at].parents[s]) {
                if (steps++ > model.node_count) {
                    fail_msg("stripe %u: a cycle at node %u", s, n + 1);
                }
            }
        }
    }
}

/* One unit of time. Nodes report their blocks when they have all, and each second. */
static void step(void)
{
    model_step(&model);
    pass(UNIT_MS, model.node_count);
    for (uint32_t n = 1; n < model.node_count; n++) {
        const bool is_complete = model_is_complete(&model, n);
        if ((is_complete && complete_ms[n] == 0) || (!is_complete && now_ms % 1000 < UNIT_MS)) {
            hold(n + 1, "llama", 1, model.nodes[n].held_count);
            complete_ms[n] = is_complete ? now_ms : 0;
        }
    }
    (void)take_news();
    check_no_cycle();
}

static bool is_over(void)
{
    for (uint32_t n = 1; n < model.node_count; n++) {
        if (complete_ms[n] == 0) {
            return false;
        }
    }
    return true;
}

CASE(plan__at_a_commit_spreads_the_version_to_all_followers)
{
    for (uint32_t i = 0; i < 64; i++) {
        const struct sl_objects_message message = {.kind = SL_OBJECTS_FOLLOW, .name = "llama"};
        assert_int_equal(ask(add_node(), message)->err, 0);
    }
    commit();
    assert_int_equal(take_news(), 64);
    uint32_t units = 0;
    for (; !is_over(); units++) {
        step();
    }
    assert_in_range(units, BLOCKS, BLOCKS * 125 / 100);
    assert_int_equal(model.nodes[0].sent, BLOCKS);
}

static const struct sl_objects_message *followers(uint64_t after)
{
    return ask(1, (struct sl_objects_message){
                      .kind = SL_OBJECTS_FOLLOWERS, .name = "llama", .followers.after = after});
}

CASE(followers__are_listed_with_what_they_use)
{
    commit();
    assert_int_equal(followers(0)->followers.count, 0);
    for (uint64_t n = 2; n <= 11; n++) {
        assert_int_equal(attach(n), 0);
        (void)ask(n, (struct sl_objects_message){.kind = SL_OBJECTS_FOLLOW, .name = "llama"});
    }
    (void)ask(3,
              (struct sl_objects_message){.kind = SL_OBJECTS_USE, .name = "llama", .version = 1});
    (void)ask(1, (struct sl_objects_message){/* does not follow it */
                                             .kind = SL_OBJECTS_USE,
                                             .name = "llama",
                                             .version = 1});
    assert_int_equal(publish(1, "llama"), 2);
    now_ms += 100;
    const struct sl_objects_message *listed = followers(0);
    assert_int_equal(listed->followers.count, 8);
    assert_int_equal(listed->followers.nodes[0].version, 0);
    assert_int_equal(listed->followers.nodes[0].behind, 0);
    const struct sl_objects_follower *third = &listed->followers.nodes[1];
    assert_string_equal(third->address, "node-3");
    assert_int_equal(third->host, 3);
    assert_int_equal(third->version, 1);
    assert_int_equal(third->behind, 1);
    assert_int_equal(third->age_ms, 100);
    listed = followers(listed->followers.nodes[7].node);
    assert_int_equal(listed->followers.count, 2);
    assert_int_equal(listed->followers.nodes[1].node, 11);
}

CASE(plan__of_many_at_once_is_the_same_after_a_tenth_of_a_second)
{
    commit();
    for (uint32_t i = 0; i < 64; i++) {
        fetch(add_node());
        check_no_cycle();
    }
    uint32_t units = 0;
    for (; !is_over(); units++) {
        step();
    }
    assert_in_range(units, BLOCKS, BLOCKS * 130 / 100);
    assert_in_range(model.nodes[0].sent, BLOCKS, BLOCKS * 110 / 100);
}

CASE(plan__changes_parents_once)
{
    uint32_t count = 0;
    commit();
    for (uint32_t i = 0; i < 50; i++) {
        fetch(add_node());
        pass(10, model.node_count);
        count += take_news();
    }
    pass(SL_CATALOGUE_PLAN_MS, model.node_count);
    count += take_news();
    assert_in_range(count, 1, 50);
    pass(1000, model.node_count);
    assert_int_equal(take_news(), 0);
}

CASE(plan__of_processes_on_one_host_reads_from_the_network_once)
{
    commit();
    fetch(add_node());
    for (uint64_t node = 10; node < 13; node++) {
        const struct sl_objects_message message = {
            .kind = SL_OBJECTS_ATTACH, .attach.host = 2, .attach.location = ""};
        assert_int_equal(ask(node, message)->err, 0);
        const struct sl_objects_message *news = find(node, "llama", 1);
        assert_int_equal(news->news.parents[0].node, 2);
        assert_int_equal(news->news.parents[1].node, 2);
    }
    const uint64_t next = add_node();
    fetch(next);
    pass(SL_CATALOGUE_PLAN_MS, 3);
    (void)take_news();
    assert_in_range(model.nodes[next - 1].parents[0], 0, 1);
}

CASE(plan__leaves_the_origin_alone_when_two_others_are_complete)
{
    commit();
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t node = add_node();
        fetch(node);
        hold(node, "llama", 1, BLOCKS);
    }
    for (uint32_t i = 0; i < 10; i++) {
        const uint64_t node = add_node();
        fetch(node);
        assert_true(model.nodes[node - 1].parents[0] != 0);
        assert_true(model.nodes[node - 1].parents[1] != 0);
    }
}

static void fetch_in_a_batch_of_its_own(uint64_t node)
{
    fetch(node);
    pass(SL_CATALOGUE_PLAN_MS, model.node_count);
    (void)take_news();
}

/* The same as check_no_cycle, of what the catalogue remembers. */
static void check_plan(void)
{
    const struct sl_catalogue_object *object = sl_catalogue_find(&catalogue->objects, "llama", 0);
    const struct sl_catalogue_part *part = &sl_catalogue_newest(object)->parts[0];
    for (uint32_t i = 0; i < part->copies.count; i++) {
        for (uint32_t s = 0; s < SL_OBJECTS_STRIPES; s++) {
            uint32_t steps = 0;
            const struct sl_catalogue_copy *copy = sl_catalogue_item(&part->copies, i);
            while (copy != NULL && steps++ <= part->copies.count) {
                copy = sl_catalogue_find(&part->copies, NULL, copy->parents[s]);
            }
            assert_null(copy);
        }
    }
}

CASE(plan__has_no_cycle_when_a_fetcher_leaves_and_joins_again)
{
    commit();
    for (uint64_t node = 2; node <= 4; node++) { /* each fetches from the one before */
        fetch_in_a_batch_of_its_own(add_node());
        assert_int_equal(model.nodes[node - 1].parents[0], node - 2);
    }
    (void)ask(2,
              (struct sl_objects_message){.kind = SL_OBJECTS_DROP, .name = "llama", .version = 1});
    fetch_in_a_batch_of_its_own(add_node()); /* from the origin, and from node 4 */
    assert_int_equal(model.nodes[4].parents[0], 0);
    assert_int_equal(model.nodes[4].parents[1], 3);
    for (uint64_t node = 2; node <= 4; node++) {
        fetch_in_a_batch_of_its_own(node);
        check_plan();
    }
    assert_int_equal(model.nodes[1].parents[1], 4);
    assert_int_equal(model.nodes[2].parents[0], 0);
}

CASE(plan__has_no_cycle_when_a_holder_loses_blocks)
{
    commit();
    const uint64_t holder = add_node(), node = add_node();
    hold(holder, "llama", 1, BLOCKS);
    fetch_in_a_batch_of_its_own(node);
    hold(holder, "llama", 1, BLOCKS / 2);
    fetch_in_a_batch_of_its_own(add_node());
    fetch_in_a_batch_of_its_own(holder);
    check_plan();
}

CASE(plan__without_sources_waits_for_the_next_fetcher)
{
    commit();
    const uint64_t first = add_node(), second = add_node();
    fetch(first);
    (void)ask(1,
              (struct sl_objects_message){.kind = SL_OBJECTS_DROP, .name = "llama", .version = 1});
    fetch_in_a_batch_of_its_own(second);
    assert_int_equal(model.nodes[second - 1].parents[0], MODEL_NOBODY);
    hold(1, "llama", 1, BLOCKS);
    fetch_in_a_batch_of_its_own(add_node());
    assert_true(model.nodes[second - 1].parents[0] != MODEL_NOBODY);
    check_plan();
}

CASE(news__names_no_fetcher_as_a_parent_in_place_of_a_bad_one)
{
    commit();
    const uint64_t node = add_node(), child = add_node();
    fetch_in_a_batch_of_its_own(node);
    fetch_in_a_batch_of_its_own(child);
    assert_int_equal(model.nodes[child - 1].parents[0], node - 1);
    hold(child, "llama", 1, BLOCKS / 2);
    (void)ask(1,
              (struct sl_objects_message){.kind = SL_OBJECTS_DROP, .name = "llama", .version = 1});
    const struct sl_objects_message *news = find(node, "llama", 1);
    assert_int_equal(news->news.parent_count, 0);
    assert_int_equal(news->news.other_count, 1);
    assert_int_equal(news->news.others[0].node, child);
}

/* Sources besides parents */

static const struct sl_objects_message *find_without(uint64_t node, uint64_t bad)
{
    return ask(node, (struct sl_objects_message){.kind = SL_OBJECTS_FIND,
                                                 .name = "llama",
                                                 .version = 1,
                                                 .find.bad_count = 1,
                                                 .find.bad = {bad}});
}

CASE(news__names_no_bad_source)
{
    commit();
    const uint64_t holder = add_node(), node = add_node();
    hold(holder, "llama", 1, BLOCKS);
    const struct sl_objects_message *news = find_without(node, 1);
    assert_int_equal(news->news.parents[0].node, holder);
    assert_int_equal(news->news.parents[1].node, holder);
    news = find_without(node, holder);
    assert_int_equal(news->news.parents[0].node, 1);
    assert_int_equal(news->news.other_count, 0);
}

CASE(news__has_holders_of_the_same_location_first)
{
    commit();
    for (uint64_t node = 10; node < 20; node++) {
        const struct sl_objects_message message = {.kind = SL_OBJECTS_ATTACH,
                                                   .attach.host = node,
                                                   .attach.location =
                                                       node % 5 == 0 ? "rack-1" : "rack-2"};
        assert_int_equal(ask(node, message)->err, 0);
        hold(node, "llama", 1, node == 19 ? 0 : BLOCKS);
    }
    const struct sl_objects_message message = {
        .kind = SL_OBJECTS_ATTACH, .attach.host = 30, .attach.location = "rack-1"};
    assert_int_equal(ask(30, message)->err, 0);
    const struct sl_objects_message *news = find(30, "llama", 1);
    assert_int_equal(news->news.other_count, 4);
    const bool has_near = news->news.others[0].node % 5 == 0 || news->news.parents[0].node % 5 == 0;
    assert_true(has_near);
}

CASE(news__without_a_holder_has_each_fetcher_with_blocks_in_turn)
{
    bool seen[64] = {false};
    commit();
    for (uint32_t i = 0; i < 20; i++) {
        const uint64_t node = add_node();
        fetch(node);
        hold(node, "llama", 1, i % 2);
    }
    (void)ask(1,
              (struct sl_objects_message){.kind = SL_OBJECTS_DROP, .name = "llama", .version = 1});
    const uint64_t node = add_node();
    for (uint32_t i = 0; i < 3; i++) {
        const struct sl_objects_message *news = find(node, "llama", 1);
        assert_int_equal(news->news.other_count, 4);
        for (uint32_t o = 0; o < news->news.other_count; o++) {
            seen[news->news.others[o].node] = true;
        }
    }
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(seen[i + 2], i % 2);
    }
}

/* Arrivals of 64 fetchers over `percent` of the time that one takes. */
static void check_arrivals(uint32_t percent)
{
    uint64_t begin_ms[NODES_MAX] = {0}, sum_ms = 0, slowest_ms = 0;
    const uint32_t count = 64, spread = BLOCKS * percent / 100;
    setup();
    commit();
    for (uint32_t unit = 0, added = 0; added < count || !is_over(); unit++) {
        while (added < count && unit >= added * spread / count) {
            const uint64_t node = add_node();
            fetch(node);
            begin_ms[node - 1] = now_ms;
            added++;
        }
        step();
        assert_in_range(unit, 0, 10000);
    }
    for (uint32_t n = 1; n <= count; n++) {
        const uint64_t took_ms = complete_ms[n] - begin_ms[n];
        sum_ms += took_ms;
        slowest_ms = slowest_ms > took_ms ? slowest_ms : took_ms;
    }
    const uint64_t one_ms = (uint64_t)BLOCKS * UNIT_MS;
    if (sum_ms / count > one_ms * 165 / 100 || slowest_ms > one_ms * 190 / 100 ||
        model.nodes[0].sent > 2 * BLOCKS + 1) {
        fail_msg("arrivals within %u %%: mean %.2f, slowest %.2f times one; the origin sent %.2f",
                 percent, (double)sum_ms / count / (double)one_ms,
                 (double)slowest_ms / (double)one_ms, (double)model.nodes[0].sent / BLOCKS);
    }
}

CASE(plan__of_fetchers_that_arrive_one_by_one)
{
    static const uint32_t percents[] = {0, 25, 50, 100, 200, 300, 500, 1000};
    for (uint32_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        check_arrivals(percents[i]);
    }
}
