#include <string.h>

#include "bench/contest.h"
#include "bench/quiet.h"
#include "tests/support/unit.h"

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

/* In place of bench/quiet.c: the runs that are disturbed, as bits in the order of runs. */
static uint32_t disturbed_runs;
static uint32_t runs_seen;

void sl_bench_quiet_begin(struct sl_bench_quiet *quiet)
{
}

bool sl_bench_quiet_was_disturbed(const struct sl_bench_quiet *quiet)
{
    return (disturbed_runs >> runs_seen++ & 1) != 0;
}

static const struct sl_bench_quantity quantities[] = {{"requests", "1/s"}, {"p99", "us"}};
static const struct sl_bench_common common = {.rounds = 4, .seconds = 0.25};

static struct sl_bench_contestant contestant(const char *name, struct runner *runner)
{
    return (struct sl_bench_contestant){
        .name = name, .quantities = quantities, .quantity_count = 2, .run = run, .ctx = runner};
}

SL_CASE(contest_run__turns_the_order)
{
    struct runner runners[] = {{'a', 0, 0}, {'b', 0, 0}, {'c', 0, 0}};
    struct sl_bench_contestant contestants[] = {
        contestant("A", &runners[0]), contestant("B", &runners[1]), contestant("C", &runners[2])};
    memset(order, 0, sizeof order);
    struct sl_bench_report *report = sl_bench_report_create("contest", "");
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

SL_CASE(contest_run__ends_with_the_first_failure)
{
    struct runner runners[] = {{'a', 0, 0}, {'b', 2, 0}};
    struct sl_bench_contestant contestants[] = {contestant("A", &runners[0]),
                                                contestant("B", &runners[1])};
    memset(order, 0, sizeof order);
    struct sl_bench_report *report = sl_bench_report_create("contest", "");
    assert_int_equal(sl_bench_contest_run(contestants, 2, &common, report), SL_ERR_DEADLINE);
    assert_string_equal(order, "abb");
    sl_bench_report_destroy(&report);
}

/* Two contestants, four rounds. */
static struct sl_bench_report *run_disturbed(uint32_t runs,
                                             struct sl_bench_contestant contestants[2])
{
    static struct runner runners[2];
    runners[0] = (struct runner){'a', 0, 0};
    runners[1] = (struct runner){'b', 0, 0};
    contestants[0] = contestant("A", &runners[0]);
    contestants[1] = contestant("B", &runners[1]);
    memset(order, 0, sizeof order);
    disturbed_runs = runs;
    runs_seen = 0;
    struct sl_bench_report *report = sl_bench_report_create("contest", "");
    assert_int_equal(sl_bench_contest_run(contestants, 2, &common, report), 0);
    disturbed_runs = 0;
    return report;
}

SL_CASE(contest_run__leaves_out_rounds_that_others_disturbed)
{
    struct sl_bench_contestant contestants[2];
    const uint32_t runs = 1U << 3 | 1U << 4; /* the second round and the third */
    struct sl_bench_report *report = run_disturbed(runs, contestants);
    for (int i = 0; i < 2; i++) {
        const struct sl_bench_figure *figure = contestants[i].figures[0];
        assert_int_equal(figure->count, 2);
        assert_true(figure->samples[0] == ('a' + i) * 100 + 1);
        assert_true(figure->samples[1] == ('a' + i) * 100 + 4);
    }
    assert_int_equal(report->rounds_left_out, 2);
    assert_int_equal(report->rounds_disturbed, 0);
    sl_bench_report_destroy(&report);
}

SL_CASE(contest_run__counts_disturbed_rounds_where_there_is_no_other)
{
    struct sl_bench_contestant contestants[2];
    struct sl_bench_report *report = run_disturbed(0xff, contestants);
    assert_int_equal(contestants[0].figures[0]->count, 4);
    assert_int_equal(report->rounds_left_out, 0);
    assert_int_equal(report->rounds_disturbed, 4);
    sl_bench_report_destroy(&report);
}
