#include "objects/catalogue/tombstones.h"

#include <string.h>

#include <starling_objects.h>

#define WAYS SL_OBJECTS_TOMBSTONE_WAYS

struct sl_hash_128 sl_objects_tombstone_of(const char *name, uint64_t version, uint32_t part,
                                           struct sl_hash_128 digest)
{
    struct {
        struct sl_hash_128 digest;
        uint64_t version, part;
        char name[SL_OBJECTS_NAME_BYTES];
    } text = {.digest = digest, .version = version, .part = part};
    memcpy(text.name, name, strnlen(name, sizeof text.name));
    return sl_hash_bytes_128(&text, sizeof text);
}

/* The way of the hash in its row; WAYS: it has none. */
static uint32_t tombstones_find(const struct sl_hash_128 *row, struct sl_hash_128 of)
{
    uint32_t way = 0;
    while (way < WAYS && !sl_hash_128_equal(row[way], of)) {
        way++;
    }
    return way;
}

bool sl_objects_tombstones_has(const struct sl_objects_tombstones *tombstones,
                               struct sl_hash_128 of)
{
    return tombstones_find(tombstones->rows[of.low % SL_OBJECTS_TOMBSTONE_ROWS], of) < WAYS;
}

bool sl_objects_tombstones_add(struct sl_objects_tombstones *tombstones, struct sl_hash_128 of)
{
    struct sl_hash_128 *row = tombstones->rows[of.low % SL_OBJECTS_TOMBSTONE_ROWS];
    const uint32_t way = tombstones_find(row, of);
    memmove(row + 1, row, (way < WAYS ? way : WAYS - 1) * sizeof *row);
    row[0] = of;
    return way == WAYS;
}

void sl_objects_tombstones_remove(struct sl_objects_tombstones *tombstones, struct sl_hash_128 of)
{
    struct sl_hash_128 *row = tombstones->rows[of.low % SL_OBJECTS_TOMBSTONE_ROWS];
    const uint32_t way = tombstones_find(row, of);
    if (way < WAYS) {
        memmove(row + way, row + way + 1, (WAYS - 1 - way) * sizeof *row);
        row[WAYS - 1] = (struct sl_hash_128){0};
    }
}
