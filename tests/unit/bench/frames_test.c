/* Over TCP: what is counted, and how it ends, is the same by any transport. */
#include "bench/frames.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/log.h"

static const struct sl_bench_common common = {
    .seconds = 0.1, .warm_up = 0.02, .server_core = -1, .client_core = -1};

static void run__counts_what_was_answered(void **state)
{
    (void)state;
    static struct sl_bench_frames_result result;
    const struct sl_bench_frames frames = {
        .endpoint = "tcp://127.0.0.1:0", .bytes = 64, .depth = 1, .answers = true};
    assert_int_equal(sl_bench_frames_run(&frames, &common, &result), 0);
    assert_true(result.frames_per_s > 0);
    assert_true(result.latency.count > 0);
    /* One at a time: they fill the time measured. */
    const double mean_s = (double)result.latency.sum / (double)result.latency.count / 1e9;
    assert_true(result.frames_per_s * mean_s > 0.99);
    assert_true(result.frames_per_s * mean_s < 1.01);
}

static void run__one_way(void **state)
{
    (void)state;
    static struct sl_bench_frames_result result;
    static const uint32_t depths[] = {1, 2, 5, 64};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        const struct sl_bench_frames frames = {
            .endpoint = "tcp://127.0.0.1:0", .bytes = 64, .depth = depths[i]};
        assert_int_equal(sl_bench_frames_run(&frames, &common, &result), 0);
        assert_true(result.frames_per_s > 0);
    }
}

static void run__long_frames_arrive_as_they_were_written(void **state)
{
    (void)state;
    static struct sl_bench_frames_result result;
    const struct sl_bench_frames frames = {
        .endpoint = "tcp://127.0.0.1:0", .bytes = (64 << 10) + 32, .depth = 4, .touched = true};
    assert_int_equal(sl_bench_frames_run(&frames, &common, &result), 0);
    assert_true(result.frames_per_s > 0);
}

static void run__tells_what_is_wrong(void **state)
{
    (void)state;
    static struct sl_bench_frames_result result;
    struct sl_bench_frames frames = {.endpoint = "nothing", .bytes = 64, .depth = 1};
    assert_int_equal(sl_bench_frames_run(&frames, &common, &result), SL_ERR_INVALID);
    frames.endpoint = "dpdk://127.0.0.1:0";
    assert_int_equal(sl_bench_frames_run(&frames, &common, &result), SL_ERR_UNSUPPORTED);
    frames.endpoint = "tcp://192.0.2.1:0"; /* no address of this machine */
    assert_int_not_equal(sl_bench_frames_run(&frames, &common, &result), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run__counts_what_was_answered),
        cmocka_unit_test(run__one_way),
        cmocka_unit_test(run__long_frames_arrive_as_they_were_written),
        cmocka_unit_test(run__tells_what_is_wrong),
    };
    sl_log_setup(SL_LOG_OFF, "test");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
