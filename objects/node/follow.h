/* The names that a node follows at the catalogue, for its sessions: one FOLLOW for each name, and
 * again after a restart of the catalogue. The board has the announced versions (board.h). The
 * newest version goes down only if the catalogue says that it was removed.
 *
 * With a user that wants it, the node fetches each new version into its pool: one fetch ends before
 * that of the newest version then begins, and versions in between are skipped. Without, it tells
 * the catalogue that it does not fetch. Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_FOLLOW_H
#define SL_OBJECTS_NODE_FOLLOW_H

#include <string.h>

#include "core/backoff.h"
#include "core/shared.h"
#include "objects/catalogue/message.h"
#include "objects/node/board.h"
#include "objects/node/membership.h"

struct sl_objects;
struct sl_objects_pin;

struct sl_objects_follow {
    struct sl_objects *node;
    char name[SL_OBJECTS_NAME_BYTES];
    uint32_t index, uses;
    uint32_t always; /* uses of the node itself: no reader */
    uint64_t in_use; /* the version of the view that was opened last; 0: no reader has one */
    bool is_known;   /* the catalogue has answered */
    uint64_t announced_count;
    uint64_t
        removed; /* the announced version: FOLLOW asks for the newest one left; 0: it was not */
    struct sl_objects_board_entry *entry;
    struct sl_list waits;
    struct sl_objects_ask ask;

    uint32_t fetchers; /* users that want fetches */
    bool is_kept;      /* the newest complete version stays in the pool */
    struct sl_objects_pin *fetching, *kept;
    struct sl_objects_ask find;
    struct sl_timer retry;
    struct sl_backoff backoff;
    char reason[SL_OBJECTS_TEXT_BYTES]; /* why the last fetch failed; "": it did not */
};

/* Zero at first. */
struct sl_objects_follows {
    struct sl_shared board; /* base NULL: no name was followed yet */
    struct sl_objects_follow
        *items[SL_LIMIT_OBJECTS_FOLLOWS]; /* by index on the board; NULL: free */
};

/* NULL: the name is not followed. */
static inline struct sl_objects_follow *
sl_objects_follow_find(const struct sl_objects_follows *follows, const char *name)
{
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_FOLLOWS; i++) {
        struct sl_objects_follow *follow = follows->items[i];
        if (follow != NULL && strcmp(follow->name, name) == 0) {
            return follow;
        }
    }
    return NULL;
}

/* Storage of the waiting one, zero at first. */
struct sl_objects_follow_wait {
    struct sl_list_link link;
    /* The follow is known now; a newer version is announced, or complete here. Or FOLLOW has
     * failed: an error of the catalogue. May end this wait, no other, and puts no follow. */
    void (*changed)(struct sl_objects_follow_wait *wait, int err, const char *reason);
};

/* Creates the board, if there is none yet. Errors: NO_MEMORY, IO. */
int sl_objects_follow_open_board(struct sl_objects *node);

/* A use of the name; the first one sends FOLLOW. fetches: the user wants all versions; the node has
 * its pool. Errors: NO_MEMORY, IO, TOO_LARGE (names). */
int sl_objects_follow_get(struct sl_objects *node, const char *name, bool fetches,
                          struct sl_objects_follow **out);

/* fetches: as with get. The last put tells the catalogue. No wait of the user is in the list. */
void sl_objects_follow_put(struct sl_objects_follow *follow, bool fetches);

/* Follows a name until the node leaves, and fetches; is_kept: the newest complete version stays in
 * the pool, pinned, until the next one is complete. Logs an error. */
void sl_objects_follow_always(struct sl_objects *node, const char *name, bool is_kept);

/* A version is complete in this process. */
void sl_objects_follow_completed(struct sl_objects_follow *follow, uint64_t version);

/* NEWS of the catalogue. */
void sl_objects_follow_news(struct sl_objects *node, const struct sl_objects_message *news);

/* RETIRE: the version was removed. If it is the newest that the node knows, an older one, or none,
 * is the newest now. */
void sl_objects_follow_removed(struct sl_objects *node, const char *name, uint64_t version);

/* The node has attached to a catalogue that knows nothing of it: sends FOLLOW for all names. */
void sl_objects_follow_again(struct sl_objects *node);

/* Before the node leaves: no name is followed any more. */
void sl_objects_follow_stop(struct sl_objects *node);

/* After its end. */
void sl_objects_follow_fini(struct sl_objects *node);

#endif
