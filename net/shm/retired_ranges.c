#include "net/shm/retired_ranges.h"

#include <stdlib.h>

#include "core/array.h"

#define RANGES_MAX 4096U

static void remove_at(struct sl_shm_imported_memory *imported, uint32_t index)
{
    imported->retired[index] = imported->retired[--imported->retired_count];
}

/* Joins the last range with its neighbours. */
static void join_last(struct sl_shm_imported_memory *imported)
{
    uint32_t last = imported->retired_count - 1;
    for (uint32_t i = 0; i < imported->retired_count;) {
        struct sl_shared *other = &imported->retired[i], *range = &imported->retired[last];
        if (i == last) {
            i++;
        } else if (sl_shared_join(range, other)) {
            remove_at(imported, i);
            last = last == imported->retired_count ? i : last;
        } else if (sl_shared_join(other, range)) {
            *range = *other;
            remove_at(imported, i);
            last = last == imported->retired_count ? i : last;
        } else {
            i++;
        }
    }
}

int sl_shm_retired_ranges_add(struct sl_shm_imported_memory *imported,
                              const struct sl_shared *placeholder)
{
    if (imported->retired_count == RANGES_MAX) {
        return SL_ERR_TOO_LARGE;
    }
    if (!sl_array_make_room(&imported->retired, &imported->retired_capacity,
                            imported->retired_count, sizeof *imported->retired)) {
        return SL_ERR_NO_MEMORY;
    }
    imported->retired[imported->retired_count++] = *placeholder;
    join_last(imported);
    return 0;
}

/* Requires the same access: the upper layer may still write there. */
static uint32_t find_fit(const struct sl_shm_imported_memory *imported,
                         const struct sl_shared *fresh)
{
    uint32_t found = imported->retired_count;
    for (uint32_t i = 0; i < imported->retired_count; i++) {
        const struct sl_shared *range = &imported->retired[i];
        if (range->access == fresh->access && range->bytes >= fresh->bytes &&
            (found == imported->retired_count || range->bytes < imported->retired[found].bytes)) {
            found = i;
        }
    }
    return found;
}

void sl_shm_retired_ranges_reuse(struct sl_shm_imported_memory *imported, struct sl_shared *fresh)
{
    const uint32_t index = find_fit(imported, fresh);
    if (index == imported->retired_count) {
        return;
    }
    struct sl_shared *range = &imported->retired[index];
    struct sl_shared tail = {.fd = -1};
    if (range->bytes > fresh->bytes && !sl_shared_split(range, fresh->bytes, &tail)) {
        return;
    }
    if (!sl_shared_move_into(fresh, range)) {
        (void)sl_shared_join(range, &tail);
        return;
    }
    imported->bytes -= fresh->bytes;
    if (tail.base != NULL) {
        *range = tail;
    } else {
        remove_at(imported, index);
    }
}

void sl_shm_retired_ranges_drop(struct sl_shm_imported_memory *imported)
{
    for (uint32_t i = 0; i < imported->retired_count; i++) {
        sl_shared_detach(&imported->retired[i]);
    }
    free(imported->retired);
}
