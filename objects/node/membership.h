/* The membership of a node at the catalogue: it attaches, renews its lease, and sends requests,
 * which it repeats over restarts of the catalogue. After a restart the catalogue knows nothing of
 * the node: it attaches again, and reports its copies. Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_MEMBERSHIP_H
#define SL_OBJECTS_NODE_MEMBERSHIP_H

#include "core/backoff.h"
#include "objects/node/link.h"
#include "objects/node/reports.h"
#include "reactor/timer.h"

struct sl_objects;
struct sl_objects_copy;

struct sl_objects_membership {
    char catalogue[SL_OBJECTS_ADDRESS_BYTES]; /* the name of its engine; "": not known yet */
    /* The same for all nodes of one catalogue: its fixed address, or the etcd that says where it
     * is.
     */
    char identity[SL_OBJECTS_NAME_BYTES];
    struct sl_objects_peer_use
        use; /* of the catalogue's segment: tells at once when that process ends */
    struct sl_objects_request request; /* ATTACH, ALIVE, DETACH */
    struct sl_timer timer;             /* when the next of these is sent */
    struct sl_backoff backoff;         /* before what has failed is sent again */
    bool is_attached, is_asking;
    uint64_t host; /* equal numbers: nodes share memory */
    uint64_t term;
    uint32_t lease_ms;
    struct sl_objects_reports reports;
    bool are_reports_awaited; /* the last ATTACH or ALIVE said that the first ones follow */
    uint64_t reported_ns;     /* when they began, or went on */
    char reason[SL_TRANSFER_REASON_BYTES];  /* why the last one failed */
    char trouble[SL_TRANSFER_REASON_BYTES]; /* of the store that names the catalogue; "": none */
    struct sl_list asks;      /* requests to the catalogue that are not answered yet */
    struct sl_timer progress; /* of reports about fetches */
    void (*attached)(struct sl_objects *node);
};

/* A request to the catalogue that is repeated until an answer comes, or until its deadline. Storage
 * of the asker, with all that its message points to, until `answered` or cancel. Zero at first. */
struct sl_objects_ask {
    struct sl_list_link link;
    struct sl_objects_request request;
    struct sl_objects *node;
    struct sl_objects_message message;
    struct sl_timer late;
    bool is_sent;
    /* err 0: answer is set. Else it is that of the answer, or DEADLINE without one. May free *ask.
     */
    void (*answered)(struct sl_objects_ask *ask, const struct sl_objects_message *answer, int err,
                     const char *reason);
};

/* On the reactor, when the node starts and ends. attached_fn: the catalogue knows this node now,
 * and its copies, but nothing else of it. Asks must have ended before the stop, which sends DETACH:
 * is_asking until that is over. */
void sl_objects_membership_start(struct sl_objects *node, void (*attached_fn)(struct sl_objects *));
void sl_objects_membership_stop(struct sl_objects *node);

/* The catalogue is at this address from now on; "": that is not known yet. */
void sl_objects_membership_move(struct sl_objects *node, const char *address);

/* Why the catalogue does not answer, and its address, for the text of a DEADLINE. */
const char *sl_objects_membership_reason(const struct sl_objects_membership *membership);
const char *sl_objects_membership_place(const struct sl_objects_membership *membership);

/* `answered` runs in a later turn. */
void sl_objects_ask(struct sl_objects *node, struct sl_objects_ask *ask, uint64_t deadline_ns);

/* Without a callback. No effect if it does not wait. */
void sl_objects_ask_cancel(struct sl_objects_ask *ask);

/* A thread of the application asks the catalogue and waits. take runs on the reactor with an answer
 * that is no error; NULL: nothing in it is of interest. Errors: those of the answer; DEADLINE. */
int sl_objects_ask_and_wait(struct sl_objects *node, const struct sl_objects_message *message,
                            uint32_t timeout_ms,
                            void (*take)(void *ctx, const struct sl_objects_message *answer),
                            void *ctx);

#endif
