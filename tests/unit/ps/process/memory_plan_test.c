/* The division of a memory limit. */

#include <stdio.h>
#include <string.h>

#include "core/limits.h"
#include "net/outbox.h"
#include "ps/process/memory_plan.h"
#include "tests/support/unit.h"

#define MIB ((size_t)1 << 20)

static const struct sl_memory_plan_options EVERYTHING = {
    .reactors = 1,
    .shards = 1,
    .replicas = 1,
    .transports = {.has_shm = true, .has_bypass = true, .has_tls = true},
    .has_metastore = true,
    .has_checkpoints = true,
    .checkpoint_level = 19,
};

static struct sl_memory_plan make(struct sl_memory_plan_options options, size_t limit)
{
    struct sl_memory_plan plan;
    struct sl_reason reason = {0};
    options.limit_bytes = limit;
    if (sl_memory_plan_make(&options, &plan, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
    return plan;
}

/* What the pools and tables of the plan can hold, of the whole process; connections at 64 KiB. */
static size_t sum_of(const struct sl_memory_plan_options *options,
                     const struct sl_memory_plan *plan)
{
    const size_t servers = (size_t)options->shards * (1 + options->replicas);
    const size_t buffers =
        options->transports.has_shm ? plan->buffer_bytes / 2 * 3 : plan->buffer_bytes;
    const size_t receive = (options->transports.has_shm ? 81U : 49U) << 10;
    return plan->coordinator_log_bytes +
           servers * (plan->tables_bytes + plan->log_bytes + plan->snapshot_bytes) +
           options->reactors * (buffers + plan->kept_bytes + plan->unplaced_bytes +
                                plan->receive * receive + plan->connections * (44U << 10));
}

static void check(const struct sl_memory_plan_options *options, size_t limit)
{
    const struct sl_memory_plan plan = make(*options, limit);
    const bool snapshots = options->replicas > 0 || options->has_checkpoints;
    assert_true(sum_of(options, &plan) <= limit);
    assert_true(plan.tables_bytes >= 16 * MIB); /* 0 would be no limit */
    assert_true(plan.staging_bytes >= 8 * MIB);
    assert_true(plan.staging_bytes < plan.tables_bytes);
    assert_in_range(plan.buffer_bytes, 32 * MIB, 256 * MIB);
    assert_in_range(plan.kept_bytes, 2 * MIB, 256 * MIB);
    assert_in_range(plan.connections, 128, SL_LIMIT_CONNECTIONS);
    assert_in_range(plan.receive, 64, 256);
    assert_int_equal(plan.receive & (plan.receive - 1), 0);
    assert_in_range(plan.waiting, 4096, 65536);
    assert_true(options->replicas == 0 || plan.log_bytes >= SL_OUTBOX_MEMORY_BYTES_MIN);
    assert_int_equal(snapshots, plan.snapshot_bytes >= 16 * MIB);
    assert_int_equal(options->has_metastore, plan.coordinator_log_bytes > 0);
}

static void for_each_size(void (*run)(struct sl_memory_plan_options options))
{
    for (uint32_t reactors = 1; reactors <= 64; reactors++) {
        for (uint32_t replicas = 0; replicas <= 1; replicas++) {
            struct sl_memory_plan_options options = EVERYTHING;
            options.reactors = reactors;
            options.shards = reactors % 3 == 0 ? 4 * reactors - 1 : reactors;
            options.replicas = replicas;
            run(options);
            run((struct sl_memory_plan_options){
                .reactors = reactors, .shards = options.shards, .replicas = replicas});
        }
    }
}

static void least_is_accepted(struct sl_memory_plan_options options)
{
    struct sl_memory_plan plan;
    const size_t least = sl_memory_plan_least(&options);
    check(&options, least);
    options.limit_bytes = least - 1;
    assert_int_equal(sl_memory_plan_make(&options, &plan, NULL), SL_ERR_INVALID);
    assert_int_equal(plan.tables_bytes, 0);
}

SL_CASE(sl_memory_plan_make__least)
{
    for_each_size(least_is_accepted);
}

static void each_limit_is_kept(struct sl_memory_plan_options options)
{
    const size_t least = sl_memory_plan_least(&options);
    for (size_t more = 1; more < (size_t)1 << 44; more *= 7) {
        check(&options, least + more);
    }
    check(&options, SIZE_MAX);
}

SL_CASE(sl_memory_plan_make__every_limit)
{
    for_each_size(each_limit_is_kept);
}

SL_CASE(sl_memory_plan_make__no_limit)
{
    const struct sl_memory_plan none = {0};
    const struct sl_memory_plan plan = make(EVERYTHING, 0);
    assert_memory_equal(&plan, &none, sizeof plan);
}

/* The pools of a large limit are as large as without one; most of it is for tables. */
SL_CASE(sl_memory_plan_make__large_limit)
{
    const struct sl_memory_plan plan = make(EVERYTHING, (size_t)1 << 40);
    assert_int_equal(plan.buffer_bytes, 256 * MIB);
    assert_int_equal(plan.kept_bytes, 256 * MIB);
    assert_int_equal(plan.log_bytes, 16 * MIB);
    assert_int_equal(plan.snapshot_bytes, 128 * MIB);
    assert_int_equal(plan.unplaced_bytes, 256 * MIB);
    assert_int_equal(plan.coordinator_log_bytes, 256 * MIB);
    assert_int_equal(plan.staging_bytes, 256 * MIB);
    assert_int_equal(plan.connections, SL_LIMIT_CONNECTIONS);
    assert_int_equal(plan.receive, 256);
    assert_int_equal(plan.waiting, 65536);
    assert_true(plan.tables_bytes > (size_t)1 << 38);
}

SL_CASE(sl_memory_plan_make__reason)
{
    static const struct {
        size_t limit;
        uint32_t reactors, replicas;
        const char *begin;
    } CASES[] = {
        {31, 16, 1,
         "--memory-limit 31 is too small for 16 reactors with replicas: accepts 0, for "
         "none, or at least "},
        {31 * MIB, 1, 0,
         "--memory-limit 31M is too small for 1 reactor: accepts 0, for none, or "
         "at least "},
        {1, 2, 0,
         "--memory-limit 1 is too small for 2 reactors: accepts 0, for none, or at least "},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct sl_memory_plan plan;
        struct sl_memory_plan_options options = {.limit_bytes = CASES[i].limit,
                                                 .reactors = CASES[i].reactors,
                                                 .shards = CASES[i].reactors,
                                                 .replicas = CASES[i].replicas};
        struct sl_reason reason;
        char least[32];
        assert_int_equal(sl_memory_plan_make(&options, &plan, &reason), SL_ERR_INVALID);
        assert_memory_equal(reason.text, CASES[i].begin, strlen(CASES[i].begin));
        (void)snprintf(least, sizeof least, "%zuM", sl_memory_plan_least(&options) / MIB);
        assert_string_equal(reason.text + strlen(CASES[i].begin), least);
    }
}
