/* Serves copies: answers a child's WANT with the places of all verified bytes, and sends HAVE with
 * further ones as they are verified. READs of the child need no work of this node. Owner:
 * the node's reactor. */
#ifndef SL_OBJECTS_NODE_SERVE_H
#define SL_OBJECTS_NODE_SERVE_H

#include "core/list.h"
#include "objects/catalogue/message.h"
#include "reactor/timer.h"

struct sl_objects;
struct sl_objects_copy;

struct sl_objects_serve {
    struct sl_list parked; /* WANTs of versions that are not known yet, by their time */
    uint32_t parked_count;
    struct sl_timer parked_late; /* of the first one */
    struct sl_timer grown;       /* some copies have bytes that their children do not know */
    uint32_t grown_blocks;       /* since the last HAVE */
    uint32_t child_count;        /* of all copies: they share the node's rate */
};

void sl_objects_serve_init(struct sl_objects *node);
void sl_objects_serve_fini(struct sl_objects *node);

/* Messages of children. */
void sl_objects_serve_want(struct sl_objects *node, const char *address,
                           const struct sl_objects_message *message);
void sl_objects_serve_done(struct sl_objects *node, const struct sl_objects_message *message);

/* Adds the copy to the node's list, which uses it, and answers WANTs that wait for it. */
void sl_objects_serve_add(struct sl_objects *node, struct sl_objects_copy *copy);

/* The copy has one more range, or block: children learn of it within 1 ms. */
void sl_objects_serve_grown(struct sl_objects *node);

/* The copy was withdrawn: sends GONE to its children. They answer with DONE, when they do not read
 * it any more. */
void sl_objects_serve_gone(struct sl_objects *node, struct sl_objects_copy *copy,
                           const char *reason);

/* Forgets children that have sent nothing for 30 s, and frees copies that only they kept. Every
 * second. */
void sl_objects_serve_look(struct sl_objects *node);

/* Whether children still read a withdrawn copy in the pool: that ends soon. */
bool sl_objects_serve_is_ending(const struct sl_objects *node);

/* Forgets the children, before the copy is freed; a withdrawn one in the pool is freed now, unless
 * it has other uses. */
void sl_objects_serve_forget(struct sl_objects *node, struct sl_objects_copy *copy);

#endif
