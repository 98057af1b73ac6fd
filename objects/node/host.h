/* Hosts the catalogue on the reactor of a node: for as long as the node lives, or while the node
 * holds the key SL_OBJECTS_HOST_KEY of a metadata store, whose value is the host's address. A node
 * that finds no such key creates it, and becomes the host; the others attach to the host that it
 * names. They read it only while they are not attached. A new host begins with the records that its
 * predecessor stored (net/store/record_log.h). Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_HOST_H
#define SL_OBJECTS_NODE_HOST_H

#include "objects/catalogue/message.h"

#define SL_OBJECTS_HOST_KEY    "starling/objects/catalogue"
#define SL_OBJECTS_RECORD_KEYS "starling/objects/names/" /* followed by NAME@VERSION */

struct sl_metastore_address;
struct sl_objects;
struct sl_objects_host;

/* store: NULL: the catalogue is here at once. Else it is where the store's key says; the membership
 * is told (sl_objects_membership_move). Errors: NO_MEMORY, IO. */
int sl_objects_host_create(struct sl_objects *node, const struct sl_metastore_address *store,
                           struct sl_objects_host **out);

/* A message to the catalogue from the engine with this address. */
void sl_objects_host_receive(struct sl_objects_host *host, const char *address,
                             const struct sl_objects_message *message);

/* Gives up the key. Returns false until that is done, for 2 s at most: call it again. */
bool sl_objects_host_leave(struct sl_objects_host *host);

/* Ends the catalogue, after leave. */
void sl_objects_host_stop(struct sl_objects_host *host);

/* After stop; any thread once the reactor was joined. Nulls *host. */
void sl_objects_host_destroy(struct sl_objects_host **host);

/* For a simulation, which looks at its state (catalogue_state.h). NULL: it is not here. */
struct sl_objects_catalogue;
const struct sl_objects_catalogue *sl_objects_host_catalogue(const struct sl_objects_host *host);

#endif
