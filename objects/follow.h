/* The names that a node follows at the catalogue, for its sessions: one FOLLOW for each name, and
 * again after a restart of the catalogue. What is announced is on the board (board.h). Owner: the
 * node's reactor. */
#ifndef SL_OBJECTS_FOLLOW_H
#define SL_OBJECTS_FOLLOW_H

#include "core/shared.h"
#include "objects/board.h"
#include "objects/membership.h"
#include "objects/message.h"

struct sl_objects;

struct sl_objects_follow {
    struct sl_objects *node;
    char name[SL_OBJECTS_NAME_BYTES];
    uint32_t index, uses;
    bool is_known; /* the catalogue has answered */
    uint64_t announced_count;
    struct sl_objects_board_entry *entry;
    struct sl_list waits;
    struct sl_objects_ask ask;
    struct sl_objects_message message;
};

/* Zero at first. */
struct sl_objects_follows {
    struct sl_shared board; /* base NULL: no name was followed yet */
    struct sl_objects_follow
        *items[SL_LIMIT_OBJECTS_FOLLOWS]; /* by index on the board; NULL: free */
};

/* Storage of the waiting one, zero at first. */
struct sl_objects_follow_wait {
    struct sl_list_link link;
    /* The follow is known now, or a version is newer than before. Or FOLLOW has failed: an error
     * of the catalogue. May end this wait, no other. */
    void (*changed)(struct sl_objects_follow_wait *wait, int err, const char *reason);
};

/* Creates the board, if there is none yet. Errors: NO_MEMORY, IO. */
int sl_objects_follow_open_board(struct sl_objects *node);

/* A use of the name; the first one sends FOLLOW. Errors: NO_MEMORY, IO, TOO_LARGE (names). */
int sl_objects_follow_get(struct sl_objects *node, const char *name,
                          struct sl_objects_follow **out);

/* The last put tells the catalogue. No wait of the user is in the list. */
void sl_objects_follow_put(struct sl_objects_follow *follow);

/* NEWS of the catalogue. */
void sl_objects_follow_news(struct sl_objects *node, const struct sl_objects_message *news);

/* The node has attached to a catalogue that knows nothing of it: sends FOLLOW for all names. */
void sl_objects_follow_again(struct sl_objects *node);

/* After the node's end: no name is followed. */
void sl_objects_follow_fini(struct sl_objects *node);

#endif
