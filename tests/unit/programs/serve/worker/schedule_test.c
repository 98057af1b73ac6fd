#include "programs/serve/worker/schedule.h"

#include "core/hash.h"
#include "tests/support/unit.h"

#define LAYERS_MAX 2000

static struct sl_serve_layer layers[LAYERS_MAX];
static struct sl_serve_search search;
static struct sl_serve_costs costs;
static uint64_t seed;

static double draw(double most)
{
    return (double)(sl_hash_random(&seed) % 10000) / 9999 * most;
}

/* Some layers have no bytes; the first `resident` ones miss none. */
static void draw_model(uint32_t count, uint32_t resident)
{
    costs = (struct sl_serve_costs){draw(200), draw(0.02), draw(50)};
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t bytes = sl_hash_random(&seed) % 3 == 0 ? 0 : sl_hash_random(&seed) % 100000;
        layers[i].missing_bytes = i < resident ? 0 : (double)bytes;
        layers[i].compute_us = draw(sl_hash_random(&seed) % 4 == 0 ? 0 : 800);
    }
}

static double plan(enum sl_serve_rule rule, uint64_t bytes, uint32_t count,
                   struct sl_serve_schedule *out)
{
    sl_serve_schedule_plan(rule, bytes, &costs, layers, count, &search, out);
    assert_true(out->group_count <= SL_SERVE_GROUPS_MAX);
    for (uint32_t i = 0; i < out->group_count; i++) {
        assert_true(out->ends[i] > (i == 0 ? 0 : out->ends[i - 1]));
    }
    assert_true(out->group_count == 0 || out->ends[out->group_count - 1] == count);
    return out->finish_us;
}

/* The finish as the design defines it, written down once more: each bit of `cuts` ends a group. */
static double finish_of(uint32_t count, uint32_t cuts)
{
    double arrived = 0, finish = 0;
    uint32_t i = 0;
    while (i < count && layers[i].missing_bytes <= 0) {
        finish += layers[i++].compute_us;
    }
    while (i < count) {
        double compute = 0;
        bool ended = false;
        arrived += costs.transfer_us;
        while (!ended) {
            arrived += costs.byte_us * layers[i].missing_bytes;
            compute += layers[i].compute_us;
            ended = (cuts >> i & 1) != 0 || i + 1 == count;
            i++;
        }
        finish = (finish > arrived ? finish : arrived) + costs.group_us + compute;
    }
    return finish;
}

SL_CASE(schedule_plan__is_the_best_of_all_groupings)
{
    struct sl_serve_schedule schedule;
    seed = 1;
    for (uint32_t round = 0; round < 10000; round++) {
        const uint32_t count = 1 + (uint32_t)(sl_hash_random(&seed) % 12);
        draw_model(count, (uint32_t)(sl_hash_random(&seed) % (count + 1)));
        double best = finish_of(count, 0);
        for (uint32_t cuts = 1; cuts < 1U << (count - 1); cuts++) {
            const double finish = finish_of(count, cuts);
            best = finish < best ? finish : best;
        }
        const double found = plan(SL_SERVE_OPTIMAL, 0, count, &schedule);
        if (found > best * (1 + 1e-9) || found < best * (1 - 1e-9)) {
            fail_msg("round %u: %.9f instead of %.9f", round, found, best);
        }
    }
}

SL_CASE(schedule_plan__is_never_above_a_fixed_rule)
{
    static const uint32_t COUNTS[] = {2, 20, 63, 64, 65, 200, SL_SERVE_UNITS_MAX};
    struct sl_serve_schedule schedule;
    seed = 2;
    for (uint32_t round = 0; round < 70; round++) {
        const uint32_t count = COUNTS[round % 7];
        draw_model(count, (uint32_t)(sl_hash_random(&seed) % count));
        const double most = plan(SL_SERVE_OPTIMAL, 0, count, &schedule) * (1 - 1e-9);
        assert_true(plan(SL_SERVE_LAYER, 0, count, &schedule) >= most);
        assert_true(plan(SL_SERVE_WHOLE, 0, count, &schedule) >= most);
        for (uint64_t bytes = 1; bytes < 10000000; bytes *= 4) {
            assert_true(plan(SL_SERVE_BYTES, bytes, count, &schedule) >= most);
        }
    }
}

static void set_layers(uint32_t count, double bytes, double compute_us)
{
    for (uint32_t i = 0; i < count; i++) {
        layers[i] = (struct sl_serve_layer){bytes, compute_us};
    }
}

SL_CASE(schedule_plan__a_resident_model_has_no_groups)
{
    struct sl_serve_schedule schedule;
    costs = (struct sl_serve_costs){20, 0.001, 1};
    set_layers(5, 0, 10);
    for (enum sl_serve_rule rule = SL_SERVE_OPTIMAL; rule <= SL_SERVE_WHOLE; rule++) {
        assert_true(plan(rule, 100, 5, &schedule) == 50);
        assert_int_equal(schedule.group_count, 0);
        assert_true(plan(rule, 100, 0, &schedule) == 0);
    }
}

SL_CASE(schedule_plan__layers_without_bytes_go_with_the_one_before)
{
    struct sl_serve_schedule schedule;
    costs = (struct sl_serve_costs){0, 1, 0};
    set_layers(6, 0, 10);
    layers[1].missing_bytes = layers[3].missing_bytes = 10;
    plan(SL_SERVE_LAYER, 0, 6, &schedule);
    assert_int_equal(schedule.group_count, 2);
    assert_int_equal(schedule.ends[0], 3);
    /* The first layer runs during the first transfer, the second transfer during two layers. */
    assert_true(schedule.finish_us == 60);
}

SL_CASE(schedule_plan__follows_the_fixed_rules)
{
    struct sl_serve_schedule schedule;
    costs = (struct sl_serve_costs){20, 0.001, 1};
    set_layers(200, 100, 10);
    plan(SL_SERVE_WHOLE, 0, 200, &schedule);
    assert_int_equal(schedule.group_count, 1);
    plan(SL_SERVE_LAYER, 0, 200, &schedule);
    assert_int_equal(schedule.group_count, SL_SERVE_GROUPS_MAX);
    for (uint32_t i = 0; i < SL_SERVE_GROUPS_MAX; i++) {
        const uint32_t size = schedule.ends[i] - (i == 0 ? 0 : schedule.ends[i - 1]);
        assert_true(size == 3 || size == 4);
    }
    plan(SL_SERVE_BYTES, 950, 200, &schedule);
    assert_int_equal(schedule.group_count, 20);
    assert_int_equal(schedule.ends[0], 10);
    plan(SL_SERVE_BYTES, 1, 200, &schedule);
    assert_true(schedule.group_count <= SL_SERVE_GROUPS_MAX);
    assert_int_equal(schedule.ends[0], 4);
}

/* Free transfers: a group for each layer. Dear ones: one group. */
SL_CASE(schedule_plan__weighs_the_costs)
{
    struct sl_serve_schedule schedule;
    costs = (struct sl_serve_costs){0, 0.1, 0};
    set_layers(40, 100, 10);
    assert_true(plan(SL_SERVE_OPTIMAL, 0, 40, &schedule) < 411);
    assert_int_equal(schedule.group_count, 40);
    costs.transfer_us = 10000;
    plan(SL_SERVE_OPTIMAL, 0, 40, &schedule);
    assert_int_equal(schedule.group_count, 1);
}

SL_CASE(schedule_plan__merges_the_units_of_huge_models)
{
    struct sl_serve_schedule schedule;
    costs = (struct sl_serve_costs){1, 0.1, 0};
    set_layers(LAYERS_MAX, 100, 10);
    const double found = plan(SL_SERVE_OPTIMAL, 0, LAYERS_MAX, &schedule);
    assert_true(found <= plan(SL_SERVE_WHOLE, 0, LAYERS_MAX, &schedule));
    assert_true(found < 1.05 * LAYERS_MAX * 10);
}
