/* Over TCP: what is counted, and how it ends, is the same by any transport. */
#include "bench/frames.h"

#include "core/log.h"
#include "tests/support/unit.h"

static const struct sl_bench_common common = {
    .seconds = 0.1, .warm_up = 0.02, .server_core = -1, .client_core = -1};

SL_CASE(run__counts_what_was_answered)
{
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

SL_CASE(run__one_way)
{
    static struct sl_bench_frames_result result;
    static const uint32_t depths[] = {1, 2, 5, 64};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        const struct sl_bench_frames frames = {
            .endpoint = "tcp://127.0.0.1:0", .bytes = 64, .depth = depths[i]};
        assert_int_equal(sl_bench_frames_run(&frames, &common, &result), 0);
        assert_true(result.frames_per_s > 0);
    }
}

SL_CASE(run__long_frames_arrive_as_they_were_written)
{
    static struct sl_bench_frames_result result;
    const struct sl_bench_frames frames = {
        .endpoint = "tcp://127.0.0.1:0", .bytes = (64 << 10) + 32, .depth = 4, .touched = true};
    assert_int_equal(sl_bench_frames_run(&frames, &common, &result), 0);
    assert_true(result.frames_per_s > 0);
}

SL_CASE(run__tells_what_is_wrong)
{
    static struct sl_bench_frames_result result;
    struct sl_bench_frames frames = {.endpoint = "nothing", .bytes = 64, .depth = 1};
    assert_int_equal(sl_bench_frames_run(&frames, &common, &result), SL_ERR_INVALID);
    frames.endpoint = "dpdk://127.0.0.1:0";
    assert_int_equal(sl_bench_frames_run(&frames, &common, &result), SL_ERR_UNSUPPORTED);
    frames.endpoint = "tcp://192.0.2.1:0"; /* no address of this machine */
    assert_int_not_equal(sl_bench_frames_run(&frames, &common, &result), 0);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
