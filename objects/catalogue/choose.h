/* Chooses from which nodes a node fetches. Pure functions; any thread; no allocation.
 *
 * The blocks of a version are dealt to two stripes (block i to stripe i mod 2), and each stripe
 * spreads through a binary tree of its own. A fetcher has children in one of the two trees at most:
 * it sends two children half an image each, so no uplink sends more than one image. (SplitStream;
 * Castro and others, SOSP 2003, with two trees and one formula instead of a protocol.) */
#ifndef SL_OBJECTS_CATALOGUE_CHOOSE_H
#define SL_OBJECTS_CATALOGUE_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#define SL_OBJECTS_STRIPES    2
#define SL_OBJECTS_OTHERS_MAX 4

struct sl_objects_parent {
    bool is_holder; /* else it is a fetcher */
    uint32_t index; /* below the number of holders, or of fetchers */
};

/* The parent, in one stripe, of a fetcher (numbered from 0 in order of arrival) of a version with
 * this many complete holders and fetchers: at least one each. */
struct sl_objects_parent sl_objects_choose_parent(uint32_t fetcher, uint32_t stripe,
                                                  uint32_t holder_count, uint32_t fetcher_count);

/* A node that has the version, or a part of it. */
struct sl_objects_source {
    uint64_t node;
    const char *location; /* a label */
};

/* Chooses up to `room` sources in the circular order that begins with the one at `first` (of any
 * size): those at the same location before the others, and none of the `refused` nodes. Writes
 * their indices to chosen[], and returns their number. */
uint32_t sl_objects_choose_others(const struct sl_objects_source *sources, uint32_t count,
                                  uint32_t first, const char *location, const uint64_t *refused,
                                  uint32_t refused_count, uint32_t *chosen, uint32_t room);

#endif
