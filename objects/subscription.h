/* Subscriptions: the newest version of a name, as the catalogue announces it. Owner: the node's
 * reactor. */
#ifndef SL_OBJECTS_SUBSCRIPTION_H
#define SL_OBJECTS_SUBSCRIPTION_H

#include "objects/message.h"

struct sl_objects;

/* NEWS of the catalogue. */
void sl_objects_subscription_news(struct sl_objects *node, const struct sl_objects_message *news);

/* The node has attached to a catalogue that knows nothing of it: sends FOLLOW for all names. */
void sl_objects_subscription_again(struct sl_objects *node);

#endif
