#include "objects/reader/staleness.h"

#include <math.h>

#include "core/clock.h"
#include "core/hash.h"
#include "tests/support/unit.h"

#define US       SL_CLOCK_NS_PER_US
#define COMMITS  400
#define RING     32
#define START_US 1000

static uint64_t seed;
static struct sl_objects_commit commits[COMMITS];

static uint64_t chance(uint64_t below)
{
    return sl_hash_random(&seed) % below;
}

/* A slow reference: looks at each microsecond. */
static struct sl_staleness reference;
static double behind_sum, behind_us_sum;

static uint32_t reference_bucket(uint64_t value)
{
    uint32_t bucket = 0;
    for (; value > 0; value /= 2) {
        bucket++;
    }
    return bucket;
}

static void reference_tick(uint64_t now_us)
{
    reference.newest = reference.version;
    reference.behind_us = 0;
    for (uint32_t i = 0; i < COMMITS && commits[i].time_ns <= now_us * US; i++) {
        if (commits[i].version > reference.version) {
            if (reference.newest == reference.version) {
                reference.behind_us = now_us - commits[i].time_ns / US;
            }
            reference.newest = commits[i].version;
        }
    }
    reference.behind = reference.newest - reference.version;
}

static void reference_count(void)
{
    reference.measured_us++;
    reference.behind_histogram[reference_bucket(reference.behind)]++;
    reference.behind_us_histogram[reference_bucket(reference.behind_us)]++;
    behind_sum += (double)reference.behind;
    behind_us_sum += (double)reference.behind_us;
}

/* Those of the ring at this time. */
static const struct sl_objects_commit *ring_at(uint64_t now_us, uint32_t *count)
{
    uint32_t end = 0;
    while (end < COMMITS && commits[end].time_ns <= now_us * US) {
        end++;
    }
    *count = end < RING ? end : RING;
    return commits + end - *count;
}

static void expect_same(const struct sl_staleness *is)
{
    assert_int_equal(is->version, reference.version);
    assert_int_equal(is->newest, reference.newest);
    assert_int_equal(is->behind, reference.behind);
    assert_int_equal(is->behind_us, reference.behind_us);
    assert_int_equal(is->measured_us, reference.measured_us);
    assert_int_equal(is->opened_count, reference.opened_count);
    assert_int_equal(is->skipped_count, reference.skipped_count);
    assert_memory_equal(is->behind_histogram, reference.behind_histogram,
                        sizeof is->behind_histogram);
    assert_memory_equal(is->behind_us_histogram, reference.behind_us_histogram,
                        sizeof is->behind_us_histogram);
    assert_memory_equal(is->visible_us_histogram, reference.visible_us_histogram,
                        sizeof is->visible_us_histogram);
    if (reference.measured_us > 0) {
        const double us = (double)reference.measured_us;
        assert_true(fabs(is->behind_mean - behind_sum / us) < 1e-6);
        /* The reference takes the age at the beginning of each microsecond. */
        assert_true(is->behind_us_mean >= behind_us_sum / us - 1e-6);
        assert_true(is->behind_us_mean <= behind_us_sum / us + 0.5 + 1e-6);
    }
}

static void make_commits(uint64_t gap_us_max)
{
    uint64_t version = 0, time_us = START_US;
    for (uint32_t i = 0; i < COMMITS; i++) {
        version += chance(4) == 0 ? 1 + chance(5) : 1;
        time_us += chance(3) == 0 ? 0 : chance(gap_us_max);
        commits[i] = (struct sl_objects_commit){version, time_us * US};
    }
}

static void reference_use(const struct sl_objects_commit *commit, uint64_t now_us)
{
    if (commit->version == reference.version) {
        return;
    }
    if (reference.version != 0 && commit->version > reference.version) {
        reference.skipped_count += commit->version - reference.version - 1;
    }
    reference.opened_count++;
    reference.version = commit->version;
    reference.visible_us_histogram[reference_bucket(now_us - commit->time_ns / US)]++;
}

SL_CASE(staleness__is_that_of_a_slow_reference)
{
    for (seed = 1; seed < 40; seed++) {
        struct sl_objects_staleness staleness = {0};
        struct sl_staleness out;
        make_commits(1 + chance(60));
        reference = (struct sl_staleness){0};
        behind_sum = behind_us_sum = 0;
        const uint64_t end_us = commits[COMMITS - 1].time_ns / US + 100;
        uint32_t count, at_open = 0;
        for (uint64_t now_us = START_US; now_us < end_us; now_us++) {
            const struct sl_objects_commit *ring = ring_at(now_us, &count);
            const uint32_t seen = (uint32_t)(ring + count - commits);
            /* Before the ring has lost one that is newer than the version in use. */
            if (count > 0 && (seen - at_open > RING - 8 || chance(50) == 0)) {
                const struct sl_objects_commit *opened =
                    &ring[chance(8) == 0 ? chance(count) : count - 1];
                sl_objects_staleness_open(&staleness, opened->version, now_us * US, ring, count,
                                          count == RING);
                reference_use(opened, now_us);
                at_open = seen;
            }
            reference_tick(now_us);
            if (chance(20) == 0 && reference.version != 0) {
                sl_objects_staleness_read(&staleness, now_us * US, ring, count, count == RING,
                                          &out);
                expect_same(&out);
            }
            if (reference.version != 0) {
                reference_count();
            }
        }
    }
}

SL_CASE(staleness__before_the_first_view_is_not_measured)
{
    const struct sl_objects_staleness staleness = {0};
    const struct sl_objects_commit commit = {7, 5 * US};
    struct sl_staleness out;
    sl_objects_staleness_read(&staleness, 50 * US, &commit, 1, false, &out);
    assert_int_equal(out.newest, 7);
    assert_int_equal(out.version, 0);
    assert_int_equal(out.behind, 0);
    assert_int_equal(out.measured_us, 0);
    assert_true(out.behind_mean == 0);
}

SL_CASE(staleness__of_a_newest_version_that_was_removed)
{
    struct sl_objects_staleness staleness = {0};
    const struct sl_objects_commit three[] = {{1, 1 * US}, {2, 2 * US}, {3, 3 * US}};
    struct sl_staleness out;
    sl_objects_staleness_open(&staleness, 2, 4 * US, three, 3, false);
    sl_objects_staleness_read(&staleness, 5 * US, three, 3, false, &out);
    assert_int_equal(out.behind, 1);
    sl_objects_staleness_read(&staleness, 6 * US, three, 2, false, &out);
    assert_int_equal(out.newest, 2);
    assert_int_equal(out.behind, 0);
    assert_int_equal(out.behind_us, 0);
    sl_objects_staleness_read(&staleness, 6 * US, three, 1, false, &out); /* that one, too */
    assert_int_equal(out.newest, 2);
    assert_int_equal(out.behind, 0);
}

/* Commits that the ring has lost are taken as evenly spread. */
SL_CASE(staleness__of_a_reader_that_uses_one_version_for_long)
{
    struct sl_objects_staleness staleness = {0};
    struct sl_staleness out;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < COMMITS; i++) {
        commits[i] = (struct sl_objects_commit){i + 1, (START_US + 1000 * i) * US};
    }
    const uint64_t end_ns = commits[COMMITS - 1].time_ns;
    sl_objects_staleness_open(&staleness, 1, START_US * US, commits, 1, false);
    sl_objects_staleness_read(&staleness, end_ns, commits + COMMITS - RING, RING, true, &out);
    assert_int_equal(out.behind, COMMITS - 1);
    assert_in_range(out.behind_us, 1000 * (COMMITS - 3), 1000 * (COMMITS - 2));
    assert_int_equal(out.measured_us, 1000 * (COMMITS - 1));
    assert_true(fabs(out.behind_mean - COMMITS / 2.0) < 2);
    assert_true(fabs(out.behind_us_mean - 1000 * COMMITS / 2.0) < 2000);
    for (uint32_t i = 0; i < SL_STALENESS_BUCKETS; i++) {
        sum += out.behind_histogram[i];
    }
    assert_in_range(sum, out.measured_us - SL_STALENESS_BUCKETS, out.measured_us);
    assert_in_range(out.behind_histogram[8], 127000, 129000); /* 128 to 255 behind */
}
