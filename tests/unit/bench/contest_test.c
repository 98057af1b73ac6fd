#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bench/contest.h"

/* Every run in turn: who, by the address of its letter. */
static char order[64];

struct runner {
    char letter;
    int fail_in_run; /* from 1; 0: never */
    int runs;
};

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct runner *runner = ctx;
    order[strlen(order)] = runner->letter;
    runner->runs++;
    values[0] = runner->letter * 100 + runner->runs;
    values[1] = common->seconds;
    return runner->runs == runner->fail_in_run ? SL_ERR_DEADLINE : 0;
}

static const struct sl_bench_quantity quantities[] = {{"requests", "1/s"}, {"p99", "us"}};
static const struct sl_bench_common common = {.rounds = 4, .seconds = 0.25};

static struct sl_bench_contestant contestant(const char *name, struct runner *runner)
{
    return (struct sl_bench_contestant){
        .name = name, .quantities = quantities, .quantity_count = 2, .run = run, .ctx = runner};
}

static void contest_run__turns_the_order(void **state)
{
    (void)state;
    struct runner runners[] = {{'a', 0, 0}, {'b', 0, 0}, {'c', 0, 0}};
    struct sl_bench_contestant contestants[] = {
        contestant("A", &runners[0]), contestant("B", &runners[1]), contestant("C", &runners[2])};
    struct sl_bench_report *report;
    memset(order, 0, sizeof order);
    assert_int_equal(sl_bench_report_create("contest", "", &report), 0);
    assert_int_equal(sl_bench_contest_run(contestants, 3, &common, report), 0);
    assert_string_equal(order, "abcbcacababc");
    const struct sl_bench_figure *figure = contestants[1].figures[0];
    assert_string_equal(figure->name, "B");
    assert_string_equal(figure->quantity, "requests");
    assert_string_equal(figure->unit, "1/s");
    assert_int_equal(figure->count, common.rounds);
    for (uint32_t round = 0; round < figure->count; round++) {
        assert_true(figure->samples[round] == 'b' * 100 + (double)round + 1);
        assert_true(contestants[1].figures[1]->samples[round] == common.seconds);
    }
    sl_bench_report_destroy(&report);
}

static void contest_run__ends_with_the_first_failure(void **state)
{
    (void)state;
    struct runner runners[] = {{'a', 0, 0}, {'b', 2, 0}};
    struct sl_bench_contestant contestants[] = {contestant("A", &runners[0]),
                                                contestant("B", &runners[1])};
    struct sl_bench_report *report;
    memset(order, 0, sizeof order);
    assert_int_equal(sl_bench_report_create("contest", "", &report), 0);
    assert_int_equal(sl_bench_contest_run(contestants, 2, &common, report), SL_ERR_DEADLINE);
    assert_string_equal(order, "abb");
    sl_bench_report_destroy(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contest_run__turns_the_order),
        cmocka_unit_test(contest_run__ends_with_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
