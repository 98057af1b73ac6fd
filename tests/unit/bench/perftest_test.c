/* What perftest 6.06 printed on a soft device, and what it must not be taken for. */
#include "bench/perftest.h"
#include "tests/support/unit.h"

#define HEAD                                                                                       \
    "---------------------------------------------------------------------------------------\n"    \
    "                    RDMA_Write BW Test\n"                                                     \
    " Dual-port       : OFF\t\tDevice         : rxe0\n"                                            \
    " Number of qps   : 1\t\tTransport type : IB\n"                                                \
    " local address: LID 0000 QPN 0x0011 PSN 0x60078d RKey 0x00030c VAddr 0x007f34fcbaf000\n"

#define RATES " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"

#define LATENCIES                                                                                  \
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "        \
    "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"

SL_CASE(read_rate__of_long_messages_is_by_bytes)
{
    struct sl_bench_perftest_rate rate;
    assert_int_equal(sl_bench_perftest_read_rate(
                         HEAD RATES
                         " 1048576    50               25.75              21.25  \t\t   0.000021\n",
                         1048576, &rate),
                     0);
    assert_true(rate.bytes_per_s == 21.25 * 1048576);
    assert_true(rate.messages_per_s == 21.25);
}

SL_CASE(read_rate__of_short_messages_is_by_messages)
{
    struct sl_bench_perftest_rate rate;
    assert_int_equal(sl_bench_perftest_read_rate(
                         RATES
                         " 64         2000             1.01               0.30   \t\t   0.004954\n",
                         64, &rate),
                     0);
    assert_true(rate.messages_per_s > 4953.9);
    assert_true(rate.messages_per_s < 4954.1);
    assert_true(rate.bytes_per_s == rate.messages_per_s * 64);
}

SL_CASE(read_rate__knows_units_of_other_versions)
{
    struct sl_bench_perftest_rate rate;
    assert_int_equal(sl_bench_perftest_read_rate(
                         " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   "
                         "MsgRate[Mpps]\n 65536 5000 11034.2 11030.5 0.176488\n",
                         65536, &rate),
                     0);
    assert_true(rate.messages_per_s > 176487);
    assert_true(rate.messages_per_s < 176489);
}

SL_CASE(read_rate__refuses_what_it_does_not_know)
{
    static const char *const texts[] = {
        "",
        HEAD,
        RATES,
        RATES " 64 2000 1.01\n",
        RATES " 64 2000 1.01 none 0.004954\n",
        RATES " 64 2000 1.01 0.30 nan\n",
        RATES " 64 2000 0.00 0.00 0.000000\n",
        RATES " 128 2000 1.01 0.30 0.004954\n", /* another size than was asked for */
        LATENCIES " 64 1000 33.20 172006.45 3977.29 5381.62 3354.47 33190.05 172006.45\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sl_bench_perftest_rate rate = {.messages_per_s = -1};
        assert_int_equal(sl_bench_perftest_read_rate(texts[i], 64, &rate), SL_ERR_PROTOCOL);
        assert_true(rate.messages_per_s == -1);
    }
}

SL_CASE(read_latency__is_median_and_tail)
{
    struct sl_bench_perftest_latency latency;
    assert_int_equal(sl_bench_perftest_read_latency(
                         HEAD LATENCIES
                         " 64      1000          33.20          172006.45      3977.29  \t       "
                         "5381.62     \t3354.47\t\t33190.05 \t\t172006.45\n",
                         &latency),
                     0);
    assert_true(latency.half_us_p50 == 3977.29);
    assert_true(latency.half_us_p99 == 33190.05);
}

SL_CASE(read_latency__refuses_what_it_does_not_know)
{
    struct sl_bench_perftest_latency latency = {.half_us_p50 = -1};
    /* What it prints when it is told a duration: no median. */
    assert_int_equal(sl_bench_perftest_read_latency(
                         " #bytes        #iterations       t_avg[usec]    tps average\n"
                         " 64 1000 33.20 172.45\n",
                         &latency),
                     SL_ERR_PROTOCOL);
    assert_int_equal(sl_bench_perftest_read_latency(LATENCIES " 64 1000 1 2 0 2 1 3 4\n", &latency),
                     SL_ERR_PROTOCOL);
    assert_true(latency.half_us_p50 == -1);
}
