/* A pin keeps one version in the node's pool: all of its parts, which are fetched if they are not
 * there. Parts that lie in memory of the application are used there. Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_PIN_H
#define SL_OBJECTS_NODE_PIN_H

#include "objects/node/cache.h"

struct sl_objects_pin;

struct sl_objects_pin_part {
    struct sl_objects_pin *pin;
    struct sl_objects_cache_use use;
    struct sl_objects_copy *own; /* in memory of the application; NULL: use.copy */
};

struct sl_objects_pin {
    struct sl_objects *node;
    void *ctx;
    void (*grown)(struct sl_objects_pin *pin); /* NULL: of no interest */
    /* Once, in a later turn than open: 0: all blocks are verified; else a fetch has failed. */
    void (*ended)(struct sl_objects_pin *pin);
    uint64_t version;
    bool has_ended;
    int err; /* of `ended`, with its reason */
    char reason[SL_OBJECTS_TEXT_BYTES];
    /* Private */
    struct sl_timer timer; /* of `ended`, if nothing is fetched */
    uint32_t left;         /* parts that have not ended */
    uint32_t part_count;
    struct sl_objects_pin_part parts[];
};

/* news has the record; as sl_objects_cache_get. The callbacks and ctx are set afterwards. They may
 * close the pin. Errors, with a reason: those of sl_objects_cache_get; AGAIN (a get into memory of
 * the application is in progress, or a publication that keepers store from there). */
int sl_objects_pin_open(struct sl_objects *node, const struct sl_objects_message *news,
                        uint64_t deadline_ns, struct sl_objects_pin **out,
                        struct sl_reason *reason);

/* Nulls *pin. NULL is allowed. */
void sl_objects_pin_close(struct sl_objects_pin **pin);

static inline struct sl_objects_copy *sl_objects_pin_copy(const struct sl_objects_pin_part *part)
{
    return part->own != NULL ? part->own : part->use.copy;
}

/* Whether all manifests are verified, and all blocks have their slots. */
bool sl_objects_pin_is_placed(const struct sl_objects_pin *pin);

/* Verified bytes of all images taken together, from the first one on. */
uint64_t sl_objects_pin_verified(const struct sl_objects_pin *pin);

/* Ascending offsets in the images taken together: sl_objects_copy_set_stops. */
void sl_objects_pin_set_stops(struct sl_objects_pin *pin, const uint64_t *stops, uint32_t count);

/* Writes which bytes of the fetched parts are missing; "": none. */
void sl_objects_pin_describe(const struct sl_objects_pin *pin, char text[SL_REASON_BYTES]);

#endif
