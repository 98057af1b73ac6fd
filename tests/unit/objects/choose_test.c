#include "objects/catalogue/choose.h"

#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/objects/block_model.h"

#define FETCHERS_MAX 4096
#define HOLDERS_MAX  8

/* Of one plan: children of fetchers and holders by stripe, and whether a fetcher's parent is known
 * to end at a holder. */
static uint32_t fetcher_children[FETCHERS_MAX][2], holder_children[HOLDERS_MAX][2];
static uint32_t reached[FETCHERS_MAX];

static void count_children(uint32_t holders, uint32_t fetchers)
{
    memset(fetcher_children, 0, sizeof fetcher_children);
    memset(holder_children, 0, sizeof holder_children);
    for (uint32_t r = 0; r < fetchers; r++) {
        for (uint32_t s = 0; s < SL_OBJECTS_STRIPES; s++) {
            const struct sl_objects_parent p = sl_objects_choose_parent(r, s, holders, fetchers);
            if (p.index >= (p.is_holder ? holders : fetchers)) {
                fail();
            }
            (p.is_holder ? holder_children : fetcher_children)[p.index][s]++;
        }
    }
}

static void check_uplinks(uint32_t holders, uint32_t fetchers)
{
    for (uint32_t r = 0; r < fetchers; r++) {
        const uint32_t *children = fetcher_children[r];
        if (children[0] + children[1] > 2 || (children[0] > 0 && children[1] > 0)) {
            fail_msg("%u holders, %u fetchers: fetcher %u has %u and %u children", holders,
                     fetchers, r, children[0], children[1]);
        }
    }
    for (uint32_t h = 0; h < holders; h++) {
        if (holder_children[h][0] > 1 || holder_children[h][1] > 1) {
            fail_msg("%u holders, %u fetchers: holder %u has %u and %u children", holders, fetchers,
                     h, holder_children[h][0], holder_children[h][1]);
        }
    }
}

/* Walks from each fetcher towards the holders; a walk that meets its own steps is a cycle. */
static void check_cycles(uint32_t stripe, uint32_t holders, uint32_t fetchers)
{
    memset(reached, 0, sizeof reached);
    for (uint32_t r = 0; r < fetchers; r++) {
        struct sl_objects_parent p = {.index = r};
        while (!p.is_holder && reached[p.index] == 0) {
            reached[p.index] = r + 1;
            p = sl_objects_choose_parent(p.index, stripe, holders, fetchers);
        }
        if (!p.is_holder && reached[p.index] == r + 1) {
            fail_msg("%u holders, %u fetchers: a cycle at %u", holders, fetchers, p.index);
        }
    }
}

static void check_plan(uint32_t holders, uint32_t fetchers)
{
    count_children(holders, fetchers);
    check_uplinks(holders, fetchers);
    check_cycles(0, holders, fetchers);
    check_cycles(1, holders, fetchers);
}

SL_CASE(choose_parent__has_no_cycle_and_loads_no_uplink_with_more_than_an_image)
{
    for (uint32_t holders = 1; holders <= HOLDERS_MAX; holders++) {
        for (uint32_t fetchers = 1; fetchers <= FETCHERS_MAX; fetchers += STRIDE) {
            check_plan(holders, fetchers);
        }
        check_plan(holders, FETCHERS_MAX);
    }
}

SL_CASE(choose_parent__of_one_fetcher_takes_a_stripe_from_each_of_two_holders)
{
    struct sl_objects_parent p = sl_objects_choose_parent(0, 0, 2, 1);
    assert_true(p.is_holder);
    assert_int_equal(p.index, 0);
    p = sl_objects_choose_parent(0, 1, 2, 1);
    assert_true(p.is_holder);
    assert_int_equal(p.index, 1);
}

/* The units of time that a fan-out of `fetchers` from one holder takes, in percent of one image. */
static double fan_out_percent(uint32_t fetchers, uint32_t blocks)
{
    static struct model model;
    model_init(&model, blocks);
    for (uint32_t r = 0; r < fetchers; r++) {
        const uint32_t node = model_add(&model);
        for (uint32_t s = 0; s < SL_OBJECTS_STRIPES; s++) {
            const struct sl_objects_parent p = sl_objects_choose_parent(r, s, 1, fetchers);
            model.nodes[node].parents[s] = p.is_holder ? 0 : 1 + p.index;
        }
    }
    uint32_t units = 0, complete = 0;
    while (complete < model.node_count) {
        model_step(&model);
        units++;
        assert_in_range(units, 1, 10ULL * blocks);
        for (complete = 0; complete < model.node_count; complete++) {
            if (!model_is_complete(&model, complete)) {
                break;
            }
        }
    }
    assert_int_equal(model.nodes[0].sent, blocks); /* the origin sends one image */
    for (uint32_t n = 1; n < model.node_count; n++) {
        assert_in_range(model.nodes[n].sent, 0, blocks);
    }
    return 100.0 * units / blocks;
}

SL_CASE(choose_parent__spreads_an_image_in_little_more_than_its_time_to_one)
{
    static const struct {
        uint32_t fetchers, blocks;
        double percent;
    } bounds[] = {{1, 40, 100},     {8, 40, 110},      {64, 40, 125},    {1000, 40, 143},
                  {8, 1024, 100.5}, {64, 1024, 101.1}, {1000, 1024, 102}};
    for (uint32_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const double percent = fan_out_percent(bounds[i].fetchers, bounds[i].blocks);
        if (percent > bounds[i].percent) {
            fail_msg("%u fetchers, %u blocks: %.2f %% of one image's time, more than %.2f %%",
                     bounds[i].fetchers, bounds[i].blocks, percent, bounds[i].percent);
        }
    }
}

static const struct sl_objects_source sources[] = {{10, "a"}, {11, "b"}, {12, "a"},
                                                   {13, "b"}, {14, "c"}, {15, "b"}};

static void check_others(uint32_t first, const char *location, const uint64_t *refused,
                         uint32_t refused_count, uint32_t room, const char *expected)
{
    uint32_t chosen[6];
    char text[7] = "";
    const uint32_t count =
        sl_objects_choose_others(sources, 6, first, location, refused, refused_count, chosen, room);
    for (uint32_t i = 0; i < count; i++) {
        text[i] = (char)('0' + chosen[i]);
    }
    text[count] = '\0';
    assert_string_equal(text, expected);
}

SL_CASE(choose_others__takes_those_of_the_same_location_before_the_others)
{
    check_others(0, "b", NULL, 0, 4, "1350");
    check_others(0, "nowhere", NULL, 0, 4, "0123");
    check_others(0, "c", NULL, 0, 6, "401235");
}

SL_CASE(choose_others__begins_elsewhere_each_time)
{
    check_others(2, "b", NULL, 0, 4, "3512");
    check_others(6 + 2, "b", NULL, 0, 4, "3512");
    check_others(UINT32_MAX, "nowhere", NULL, 0, 4, "3450");
}

SL_CASE(choose_others__leaves_out_the_refused_ones)
{
    const uint64_t refused[] = {11, 10, 15};
    check_others(0, "b", refused, 3, 4, "324");
    const uint64_t all[] = {10, 11, 12, 13, 14, 15};
    check_others(0, "b", all, 6, 4, "");
}

SL_CASE(choose_others__has_none_of_none)
{
    uint32_t chosen[1];
    assert_int_equal(sl_objects_choose_others(NULL, 0, 3, "", NULL, 0, chosen, 1), 0);
}
