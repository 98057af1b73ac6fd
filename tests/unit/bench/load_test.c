/* The load against real servers in the same process. */
#include "bench/load.h"

#include <time.h>

#include "core/clock.h"
#include "core/log.h"
#include "tests/support/cluster.h"
#include "tests/support/unit.h"

#define MS           1000000L
#define PAUSE_MS     200
#define SECONDS_MAX  20
#define LONG_WAIT_NS (50 * 1000000ULL)

static struct sl_cluster *cluster;
static struct sl_bench_load_options options; /* of a load on it; for the case to change */

static void start(uint32_t shards)
{
    cluster = sl_cluster_start(&(struct sl_cluster_options){.ps_count = 1, .shards_of_ps = shards});
    options = (struct sl_bench_load_options){
        .coordinator = sl_cluster_coordinator(cluster),
        .table = {.struct_size = sizeof(struct sl_table_spec),
                  .name = "rows",
                  .kind = SL_TABLE_SPARSE,
                  .dim = 3,
                  .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD),
                  .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -1, .high = 1, .seed = 3}},
        .operation = SL_BENCH_PULL,
        .connections = 3,
        .depth = 4,
        .keys = 5,
        .rows = 1000,
        .seed = 1,
        .core = -1,
    };
}

#define CASE(name, shards) SL_CASE_WITH(name, start(shards), sl_cluster_stop(&cluster))

static void sleep_ms(long ms)
{
    const struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * MS};
    (void)nanosleep(&wait, NULL);
}

/* A run of a load that must succeed. On a busy machine a short one may see no answer: then a longer
 * one follows. */
static struct sl_bench_load_result run_once(double seconds)
{
    static struct sl_bench_load_result result;
    struct sl_bench_load *load;
    assert_int_equal(sl_bench_load_open(&options, &load), 0);
    do {
        assert_int_equal(sl_bench_load_run(load, 0.02, seconds, &result), 0);
        seconds *= 4;
    } while (result.requests == 0 && seconds < SECONDS_MAX);
    sl_bench_load_close(&load);
    assert_null(load);
    return result;
}

static void check_closed(const struct sl_bench_load_result *result, uint32_t keys)
{
    assert_true(result->requests > 0);
    assert_int_equal(result->keys, result->requests * keys);
    assert_int_equal(result->latency.count, result->requests);
    assert_true(result->all_requests >= result->requests);
    assert_int_equal(result->unsent, 0);
    assert_true(result->seconds >= 0.05);
    assert_true(result->cpu_seconds > 0);
    assert_true(result->latency.min > 0);
}

/* ---- Closed loop ----------------------------------------------------------------------------- */

CASE(load_run__counts_what_it_is_answered, 2)
{
    for (int operation = SL_BENCH_PULL; operation <= SL_BENCH_PUSH_PULL; operation++) {
        options.operation = (enum sl_bench_operation)operation;
        const struct sl_bench_load_result result = run_once(0.05);
        check_closed(&result, 5);
    }
}

/* Replies that are received in place, gradients that are sent from one place. */
CASE(load_run__long_requests_and_replies, 1)
{
    options.operation = SL_BENCH_PUSH_PULL;
    options.keys = 2000;
    options.table.dim = 16;
    const struct sl_bench_load_result result = run_once(0.05);
    check_closed(&result, 2000);
}

CASE(load_run__dense_tables, 2)
{
    options.table.kind = SL_TABLE_DENSE;
    options.table.dim = 0;
    options.table.length = 10000;
    options.keys = 1001;
    for (int operation = SL_BENCH_PULL; operation <= SL_BENCH_PUSH_PULL; operation++) {
        options.operation = (enum sl_bench_operation)operation;
        const struct sl_bench_load_result result = run_once(0.05);
        check_closed(&result, 1001);
    }
}

CASE(load_run__again_and_two_at_a_time, 1)
{
    static struct sl_bench_load_result result;
    struct sl_bench_load *loads[2];
    options.distribution = SL_BENCH_ZIPF;
    options.zipf_exponent = 1.1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sl_bench_load_open(&options, &loads[i]), 0);
        options.polling = true;
    }
    int good = 0;
    for (double seconds = 0.05; good < 4 && seconds < SECONDS_MAX; seconds *= 2) {
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sl_bench_load_begin(loads[i], 0, seconds), 0);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sl_bench_load_wait(loads[i], &result), 0);
            if (result.requests > 0) { /* some are, unless the machine is very busy */
                check_closed(&result, 5);
                good++;
            }
        }
    }
    assert_true(good >= 4);
    sl_bench_load_close(&loads[0]);
    sl_bench_load_close(&loads[1]);
}

/* Two loads on one thread, of which one ends while the other goes on. */
CASE(load_run__beside_another_on_its_thread, 1)
{
    static struct sl_bench_load_result result;
    struct sl_bench_load *host, *guest;
    assert_int_equal(sl_bench_load_open(&options, &host), 0);
    options.table.kind = SL_TABLE_DENSE;
    options.table.name[0] = 'd';
    options.table.dim = 0;
    options.table.length = 1 << 20;
    options.operation = SL_BENCH_PUSH;
    options.keys = 1 << 18;
    options.host = host;
    assert_int_equal(sl_bench_load_open(&options, &guest), 0);
    bool both = false;
    for (double seconds = 0.05; !both && seconds < SECONDS_MAX; seconds *= 2) {
        assert_int_equal(sl_bench_load_begin(host, 0, seconds), 0);
        assert_int_equal(sl_bench_load_run(guest, 0, seconds, &result), 0);
        both = result.requests > 0;
        assert_int_equal(sl_bench_load_wait(host, &result), 0);
        both = both && result.requests > 0;
    }
    assert_true(both);
    assert_int_equal(sl_bench_load_begin(host, 0, 0.05), 0);
    sl_bench_load_close(&guest);
    assert_int_equal(sl_bench_load_wait(host, &result), 0);
    sl_bench_load_close(&host);
}

/* ---- Open loop ------------------------------------------------------------------------------- */

/* Every request that was due in the time measured has a latency, no more and no fewer. */
CASE(load_run__open_loop_counts_what_was_due, 2)
{
    options.rate = 3000;
    const struct sl_bench_load_result result = run_once(0.2);
    const double due = options.rate * result.seconds;
    assert_true((double)result.latency.count >= due - 1);
    assert_true((double)result.latency.count <= due + 1);
}

/* A rate beyond anybody's reach: what could not be sent counts with its delay. */
CASE(load_run__open_loop_counts_what_could_not_be_sent, 1)
{
    options.rate = 2e6;
    options.connections = 1;
    options.depth = 1;
    const struct sl_bench_load_result result = run_once(0.05);
    const double due = options.rate * result.seconds;
    assert_true((double)result.latency.count >= due - 1);
    assert_true((double)result.latency.count <= due + 1);
    assert_true(result.unsent > result.latency.count / 2);
    assert_true(sl_metric_quantile(&result.latency, 0.5) > 10 * MS);
}

static uint64_t count_longer(const struct sl_metric_histogram *histogram, uint64_t ns)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        uint64_t upper;
        const uint64_t here = sl_metric_bucket(histogram, i, &upper);
        count += upper > ns ? here : 0;
    }
    return count;
}

/* A pause of the server delays all that was due in it, not only what was under way. */
CASE(load_run__open_loop_does_not_leave_out_a_pause, 1)
{
    static struct sl_bench_load_result result;
    struct sl_bench_load *load;
    options.rate = 2000;
    options.connections = 1;
    options.depth = 1;
    assert_int_equal(sl_bench_load_open(&options, &load), 0);
    uint64_t took_ns;
    do { /* until the pause was in the time measured: this thread may be slow */
        const uint64_t begin_ns = sl_clock_now_ns(sl_clock_system());
        assert_int_equal(sl_bench_load_begin(load, 0, 1), 0);
        sleep_ms(100);
        sl_cluster_pause(cluster, 0);
        sleep_ms(PAUSE_MS);
        took_ns = sl_clock_now_ns(sl_clock_system()) - begin_ns;
        sl_cluster_resume(cluster, 0);
        assert_int_equal(sl_bench_load_wait(load, &result), 0);
    } while (took_ns > SL_CLOCK_NS_PER_S);
    /* Due in the first 150 ms of the pause, or later: half of that leaves room for a slow machine
     * that paused in the end of the run. */
    assert_true(count_longer(&result.latency, LONG_WAIT_NS) >= 2000 * 150 / 1000 / 2);
    sl_bench_load_close(&load);
}

/* ---- What goes wrong ------------------------------------------------------------------------- */

CASE(load_open__refuses_wrong_options, 1)
{
    const struct sl_bench_load_options good = options;
    struct sl_bench_load_options wrong[6];
    for (size_t i = 0; i < 6; i++) {
        wrong[i] = good;
    }
    wrong[0].connections = 0;
    wrong[1].depth = 0;
    wrong[2].depth = 129;
    wrong[3].keys = 8193;
    wrong[4].rows = 0;
    wrong[5].rate = -1;
    for (size_t i = 0; i < 6; i++) {
        struct sl_bench_load *load;
        assert_int_equal(sl_bench_load_open(&wrong[i], &load), SL_ERR_INVALID);
    }
    struct sl_bench_load_options large = good;
    struct sl_bench_load *load;
    large.table.dim = 4096;
    large.keys = 1000;
    assert_int_equal(sl_bench_load_open(&large, &load), SL_ERR_TOO_LARGE);
}

/* So large a penalty that no gradient moves a weight from zero: a load whose pushes do nothing must
 * not count. */
CASE(load_open__notices_that_pushes_change_nothing, 1)
{
    struct sl_bench_load *load;
    options.operation = SL_BENCH_PUSH;
    options.table.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_FTRL);
    options.table.optimizer.l1 = 1e9F;
    options.table.initializer = (struct sl_initializer_spec){.kind = SL_INITIALIZER_ZEROS};
    assert_int_equal(sl_bench_load_open(&options, &load), SL_ERR_CORRUPT);
}

CASE(load_run__fails_when_the_ps_ends, 1)
{
    static struct sl_bench_load_result result;
    struct sl_bench_load *load;
    assert_int_equal(sl_bench_load_open(&options, &load), 0);
    assert_int_equal(sl_bench_load_begin(load, 0, 60), 0);
    sleep_ms(20);
    sl_cluster_kill(cluster, 0);
    assert_int_not_equal(sl_bench_load_wait(load, &result), 0);
    assert_int_not_equal(sl_bench_load_run(load, 0, 0.1, &result), 0);
    sl_bench_load_close(&load);
    sl_cluster_restart(cluster, 0);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
