/* Staleness of the version that a subscription uses: how many versions and how much time it is
 * behind the newest one, weighted by time (starling_objects.h: struct sl_staleness).
 *
 * What is newest follows from commits, not from when they were noticed: so the time of one version
 * in use is measured when it ends, or on a copy when the application asks. Pure; one thread. */
#ifndef SL_OBJECTS_READER_STALENESS_H
#define SL_OBJECTS_READER_STALENESS_H

#include <starling_objects.h>

struct sl_objects_commit {
    uint64_t version, time_ns;
};

/* Zero at first. */
struct sl_objects_staleness {
    uint64_t since_ns; /* when `total.version` came into use */
    /* Of since_ns: the newest version that was announced; commit of the oldest version above that
     * in use, 0: none. */
    uint64_t newest, newer_ns;
    double behind_ns, behind_ns_ns; /* integrals over time */
    struct sl_staleness total;      /* until since_ns, in ns instead of us */
};

/* A view of the version was opened. commits[count]: the last commits that were announced, by
 * version, ascending. is_partial: there may have been others before the first one. */
void sl_objects_staleness_open(struct sl_objects_staleness *staleness, uint64_t version,
                               uint64_t now_ns, const struct sl_objects_commit *commits,
                               uint32_t count, bool is_partial);

/* Sets *out to the state of now_ns. */
void sl_objects_staleness_read(const struct sl_objects_staleness *staleness, uint64_t now_ns,
                               const struct sl_objects_commit *commits, uint32_t count,
                               bool is_partial, struct sl_staleness *out);

#endif
