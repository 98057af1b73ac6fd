/* The addresses of memory that a peer lent and withdrew. The layer above may still hold a pointer
 * there, so they stay mapped, to nothing, until the connection ends or the peer lends other memory.
 * That takes the smallest range that it fits; ranges that touch are one. So a peer that lends and
 * withdraws buffers of many sizes uses the same addresses again. */
#include <stdlib.h>

#include "net/shm/internal.h"

#define RANGES_FIRST 16U
#define RANGES_MAX   4096U

static void remove_at(struct sl_shm_imported *lent, uint32_t index)
{
    lent->retired[index] = lent->retired[--lent->retired_count];
}

static bool grow(struct sl_shm_imported *lent)
{
    const uint32_t capacity =
        lent->retired_capacity == 0 ? RANGES_FIRST : 2 * lent->retired_capacity;
    struct sl_shared *ranges = realloc(lent->retired, capacity * sizeof *ranges);
    if (ranges == NULL) {
        return false;
    }
    lent->retired = ranges;
    lent->retired_capacity = capacity;
    return true;
}

/* Joins the last range with those before and behind it. */
static void join_last(struct sl_shm_imported *lent)
{
    uint32_t last = lent->retired_count - 1;
    for (uint32_t i = 0; i < lent->retired_count;) {
        struct sl_shared *other = &lent->retired[i], *range = &lent->retired[last];
        if (i == last) {
            i++;
        } else if (sl_shared_join(range, other)) {
            remove_at(lent, i);
            last = last == lent->retired_count ? i : last;
        } else if (sl_shared_join(other, range)) {
            *range = *other;
            remove_at(lent, i);
            last = last == lent->retired_count ? i : last;
        } else {
            i++;
        }
    }
}

int sl_shm_retired_add(struct sl_shm_imported *lent, const struct sl_shared *hollow)
{
    if (lent->retired_count == RANGES_MAX) {
        return SL_ERR_TOO_LARGE;
    }
    if (lent->retired_count == lent->retired_capacity && !grow(lent)) {
        return SL_ERR_NO_MEMORY;
    }
    lent->retired[lent->retired_count++] = *hollow;
    join_last(lent);
    return 0;
}

/* It must be as writable: the layer above may still be about to write there. */
static uint32_t find_fit(const struct sl_shm_imported *lent, const struct sl_shared *fresh)
{
    uint32_t found = lent->retired_count;
    for (uint32_t i = 0; i < lent->retired_count; i++) {
        const struct sl_shared *range = &lent->retired[i];
        if (range->access == fresh->access && range->bytes >= fresh->bytes &&
            (found == lent->retired_count || range->bytes < lent->retired[found].bytes)) {
            found = i;
        }
    }
    return found;
}

void sl_shm_retired_reuse(struct sl_shm_imported *lent, struct sl_shared *fresh)
{
    const uint32_t index = find_fit(lent, fresh);
    if (index == lent->retired_count) {
        return;
    }
    struct sl_shared *range = &lent->retired[index];
    struct sl_shared rest = {.fd = -1};
    if (range->bytes > fresh->bytes && !sl_shared_split(range, fresh->bytes, &rest)) {
        return;
    }
    if (!sl_shared_move_into(fresh, range)) {
        (void)sl_shared_join(range, &rest);
        return;
    }
    lent->bytes -= fresh->bytes;
    if (rest.base != NULL) {
        *range = rest;
    } else {
        remove_at(lent, index);
    }
}

void sl_shm_retired_drop(struct sl_shm_imported *lent)
{
    for (uint32_t i = 0; i < lent->retired_count; i++) {
        sl_shared_detach(&lent->retired[i]);
    }
    free(lent->retired);
}
