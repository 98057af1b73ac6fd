/* The nodes that may have a part, for a fetch: which of them can be its next source. Pure; one
 * owner. */
#ifndef SL_OBJECTS_NODE_FETCH_HOLDERS_H
#define SL_OBJECTS_NODE_FETCH_HOLDERS_H

#include "objects/catalogue/message.h"

#define SL_OBJECTS_FETCH_HOLDERS_MAX     16
#define SL_OBJECTS_HOLDER_MISMATCHES_MAX 2 /* then it is not used any more */

struct sl_objects_holder {
    uint64_t node;
    char address[SL_OBJECTS_ADDRESS_BYTES];
    uint32_t mismatches;
    bool has_failed;    /* for some time */
    uint64_t failed_ns; /* the last time; 0: never */
};

/* Zero: none. */
struct sl_objects_fetch_holders {
    struct sl_objects_holder items[SL_OBJECTS_FETCH_HOLDERS_MAX]; /* in the order of trial */
    uint32_t count;
};

/* NULL: it is none. */
struct sl_objects_holder *sl_objects_fetch_holders_find(struct sl_objects_fetch_holders *holders,
                                                        uint64_t node);

/* Adds the parents and other nodes of NEWS, but not `own`, the node that fetches. */
void sl_objects_fetch_holders_add(struct sl_objects_fetch_holders *holders, uint64_t own,
                                  const struct sl_objects_message *news);

/* Neither has it failed, nor sent wrong bytes twice. */
bool sl_objects_holder_is_usable(const struct sl_objects_holder *holder);

/* Holders that have failed a second ago are tried again. */
void sl_objects_fetch_holders_forgive(struct sl_objects_fetch_holders *holders, uint64_t now_ns);

/* A usable holder other than `node`: it has not failed yet, or not for the longest time. So each of
 * them gets its turn, however many have ended. NULL: there is none. */
const struct sl_objects_holder *
sl_objects_fetch_holders_other(const struct sl_objects_fetch_holders *holders, uint64_t node);

#endif
