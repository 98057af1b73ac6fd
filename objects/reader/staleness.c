#include "objects/reader/staleness.h"

#include "core/clock.h"

/* Buckets. Values of `unit` 1 are versions, of SL_CLOCK_NS_PER_US nanoseconds. */

static uint64_t lower_bound(uint32_t bucket, uint64_t unit)
{
    return bucket == 0 ? 0 : unit << (bucket - 1);
}

static uint32_t staleness_bucket_of(uint64_t value, uint64_t unit)
{
    const uint64_t units = value / unit;
    const uint32_t bucket = units == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(units);
    return bucket < SL_STALENESS_BUCKETS ? bucket : SL_STALENESS_BUCKETS - 1;
}

/* The value grows evenly from `low` to `high` during this time: each bucket gets its share. */
static void add_ramp(uint64_t *histogram, uint64_t unit, uint64_t low, uint64_t high,
                     uint64_t time_ns)
{
    const uint32_t last = staleness_bucket_of(high, unit);
    uint64_t left_ns = time_ns;
    for (uint32_t i = staleness_bucket_of(low, unit); i < last; i++) {
        const uint64_t begin = lower_bound(i, unit), end = lower_bound(i + 1, unit);
        const uint64_t within = end - (low > begin ? low : begin);
        const uint64_t share_ns = (uint64_t)((unsigned __int128)time_ns * within / (high - low));
        histogram[i] += share_ns;
        left_ns -= share_ns;
    }
    histogram[last] += left_ns;
}

/* Time */

/* The time from *at_ns to `to_ns`, in which the number of versions behind grows from `low` to
 * `high`. */
static void add_time(struct sl_objects_staleness *staleness, uint64_t *at_ns, uint64_t to_ns,
                     uint64_t low, uint64_t high)
{
    const uint64_t newer_ns = staleness->newer_ns;
    uint64_t from_ns = *at_ns;
    if (to_ns <= from_ns) {
        return;
    }
    *at_ns = to_ns;
    staleness->total.measured_us += to_ns - from_ns;
    add_ramp(staleness->total.behind_histogram, 1, low, high, to_ns - from_ns);
    staleness->behind_ns += ((double)low + (double)high) / 2 * (double)(to_ns - from_ns);
    if (newer_ns == 0 || newer_ns >= to_ns) {
        staleness->total.behind_us_histogram[0] += to_ns - from_ns;
        return;
    }
    if (newer_ns > from_ns) {
        staleness->total.behind_us_histogram[0] += newer_ns - from_ns;
        from_ns = newer_ns;
    }
    add_ramp(staleness->total.behind_us_histogram, SL_CLOCK_NS_PER_US, from_ns - newer_ns,
             to_ns - newer_ns, to_ns - from_ns);
    staleness->behind_ns_ns +=
        ((double)(from_ns - newer_ns) + (double)(to_ns - newer_ns)) / 2 * (double)(to_ns - from_ns);
}

/* Adds the time of the version in use up to now. Its newest and newer_ns become those of now. */
static void staleness_measure(struct sl_objects_staleness *staleness, uint64_t now_ns,
                              const struct sl_objects_commit *commits, uint32_t count,
                              bool is_partial)
{
    const uint64_t version = staleness->total.version;
    uint64_t at_ns = staleness->since_ns;
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_objects_commit *commit = &commits[i];
        const uint64_t before = staleness->newest;
        if (commit->version <= before) {
            continue;
        }
        const uint64_t to_ns = commit->time_ns < now_ns ? commit->time_ns : now_ns;
        /* Commits before the first known one are taken as evenly spread since at_ns. */
        const bool is_ramp = i == 0 && is_partial && commit->version - before > 1 && to_ns > at_ns;
        if (staleness->newer_ns == 0) {
            staleness->newer_ns =
                is_ramp ? at_ns + (to_ns - at_ns) / (commit->version - before) : commit->time_ns;
        }
        add_time(staleness, &at_ns, to_ns, before - version,
                 (is_ramp ? commit->version : before) - version);
        staleness->newest = commit->version;
    }
    const uint64_t known = count > 0 ? commits[count - 1].version : staleness->newest;
    if (known < staleness->newest) { /* newer ones were removed */
        staleness->newest = known > version ? known : version;
        staleness->newer_ns = staleness->newest > version ? staleness->newer_ns : 0;
    }
    add_time(staleness, &at_ns, now_ns, staleness->newest - version, staleness->newest - version);
    staleness->since_ns = at_ns;
}

static uint64_t time_since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

static void use(struct sl_objects_staleness *staleness, uint64_t version, uint64_t now_ns,
                const struct sl_objects_commit *commits, uint32_t count)
{
    struct sl_staleness *total = &staleness->total;
    if (total->version != 0 && version > total->version) {
        total->skipped_count += version - total->version - 1;
    }
    total->opened_count++;
    total->version = version;
    staleness->newer_ns = 0;
    staleness->newest = version;
    for (uint32_t i = 0; i < count; i++) {
        if (commits[i].version == version) {
            total->visible_us_histogram[staleness_bucket_of(time_since(now_ns, commits[i].time_ns),
                                                            SL_CLOCK_NS_PER_US)]++;
        } else if (commits[i].version > version) {
            staleness->newest = commits[i].version;
            staleness->newer_ns =
                staleness->newer_ns != 0 ? staleness->newer_ns : commits[i].time_ns;
        }
    }
}

void sl_objects_staleness_open(struct sl_objects_staleness *staleness, uint64_t version,
                               uint64_t now_ns, const struct sl_objects_commit *commits,
                               uint32_t count, bool is_partial)
{
    if (staleness->total.version != 0) {
        staleness_measure(staleness, now_ns, commits, count, is_partial);
    }
    if (version != staleness->total.version) {
        use(staleness, version, now_ns, commits, count);
        staleness->since_ns = now_ns;
    }
}

void sl_objects_staleness_read(const struct sl_objects_staleness *staleness, uint64_t now_ns,
                               const struct sl_objects_commit *commits, uint32_t count,
                               bool is_partial, struct sl_staleness *out)
{
    struct sl_objects_staleness now = *staleness;
    if (now.total.version != 0) {
        staleness_measure(&now, now_ns, commits, count, is_partial);
    }
    *out = now.total;
    out->newest = now.newest;
    if (out->version == 0 && count > 0) {
        out->newest = commits[count - 1].version;
    }
    out->behind = now.newest - out->version;
    out->behind_us = now.newer_ns != 0 ? time_since(now_ns, now.newer_ns) / SL_CLOCK_NS_PER_US : 0;
    const double measured_ns = out->measured_us > 0 ? (double)out->measured_us : 1;
    out->behind_mean = now.behind_ns / measured_ns;
    out->behind_us_mean = now.behind_ns_ns / measured_ns / (double)SL_CLOCK_NS_PER_US;
    out->measured_us /= SL_CLOCK_NS_PER_US;
    for (uint32_t i = 0; i < SL_STALENESS_BUCKETS; i++) {
        out->behind_histogram[i] /= SL_CLOCK_NS_PER_US;
        out->behind_us_histogram[i] /= SL_CLOCK_NS_PER_US;
    }
}
