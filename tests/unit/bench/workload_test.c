#include <math.h>

#include "bench/workload.h"
#include "tests/support/unit.h"

enum { ROWS = 1000, DRAWS = 200000, RANKS = 3 };

/* How often each of the first ranks is drawn, against its share by the law, k^-s / sum. */
static void check_zipf(double exponent)
{
    struct sl_bench_workload workload;
    double sum = 0;
    uint32_t drawn[RANKS] = {0};
    for (uint32_t rank = 1; rank <= ROWS; rank++) {
        sum += pow(rank, -exponent);
    }
    sl_bench_workload_init(&workload, SL_BENCH_ZIPF, ROWS, exponent, 7);
    for (uint32_t i = 0; i < DRAWS; i++) {
        const uint64_t key = sl_bench_workload_next(&workload);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            drawn[rank] += key == sl_bench_workload_key(rank);
        }
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const double expected = DRAWS * pow(rank + 1, -exponent) / sum;
        const double deviation = sqrt(expected);
        assert_true(fabs(drawn[rank] - expected) < 5 * deviation);
    }
}

SL_CASE(workload_next__keeps_zipfs_law)
{
    check_zipf(0.5);
    check_zipf(1.05);
    check_zipf(2);
}

/* Where the integral of the law is the logarithm, and close to there. */
SL_CASE(workload_next__keeps_it_at_exponent_one)
{
    check_zipf(1);
    check_zipf(1 + 1e-9);
    check_zipf(1 - 1e-9);
}

SL_CASE(workload_next__draws_each_row_as_often)
{
    struct sl_bench_workload workload;
    uint32_t drawn = 0;
    sl_bench_workload_init(&workload, SL_BENCH_UNIFORM, ROWS, 0, 7);
    for (uint32_t i = 0; i < DRAWS; i++) {
        drawn += sl_bench_workload_next(&workload) == sl_bench_workload_key(ROWS - 1);
    }
    assert_true(fabs(drawn - (double)DRAWS / ROWS) < 5 * sqrt((double)DRAWS / ROWS));
}
