#include "objects/catalogue/choose.h"

#include <string.h>

#include "core/assert.h"

/* A tree in heap order, whose first `holder_count` places hang from the holders. Stripe 1 has the
 * same tree, turned by half of the fetchers: the inner places of a tree are less than half of all,
 * so a fetcher with children in one tree is a leaf in the other. */
struct sl_objects_parent sl_objects_choose_parent(uint32_t fetcher, uint32_t stripe,
                                                  uint32_t holder_count, uint32_t fetcher_count)
{
    sl_assert(fetcher < fetcher_count);
    sl_assert(stripe < SL_OBJECTS_STRIPES);
    sl_assert(holder_count > 0);
    const uint32_t turn = stripe * (fetcher_count / 2);
    const uint32_t place = (fetcher + fetcher_count - turn) % fetcher_count;
    if (place < holder_count) {
        const uint32_t half = stripe * (holder_count / 2);
        return (struct sl_objects_parent){.is_holder = true,
                                          .index = (place + half) % holder_count};
    }
    return (struct sl_objects_parent){.index = ((place - holder_count) / 2 + turn) % fetcher_count};
}

static bool is_refused(uint64_t node, const uint64_t *refused, uint32_t refused_count)
{
    for (uint32_t i = 0; i < refused_count; i++) {
        if (refused[i] == node) {
            return true;
        }
    }
    return false;
}

uint32_t sl_objects_choose_others(const struct sl_objects_source *sources, uint32_t count,
                                  uint32_t first, const char *location, const uint64_t *refused,
                                  uint32_t refused_count, uint32_t *chosen, uint32_t room)
{
    uint32_t found = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < count && found < room; i++) {
            const uint32_t index = (uint32_t)(((uint64_t)first + i) % count);
            const bool is_near = strcmp(sources[index].location, location) == 0;
            if (is_near == (pass == 0) &&
                !is_refused(sources[index].node, refused, refused_count)) {
                chosen[found++] = index;
            }
        }
    }
    return found;
}
