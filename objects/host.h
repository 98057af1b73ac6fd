/* Hosts the catalogue on the reactor of a node. Owner: that reactor. */
#ifndef SL_OBJECTS_HOST_H
#define SL_OBJECTS_HOST_H

#include "objects/message.h"

struct sl_objects_host;
struct sl_objects_link;
struct sl_objects_setup;
struct sl_reactor;

/* Errors: NO_MEMORY. The link and the setup outlive *out. */
int sl_objects_host_create(struct sl_reactor *reactor, struct sl_objects_link *link,
                           const struct sl_objects_setup *setup, struct sl_objects_host **out);

/* Nulls *host. */
void sl_objects_host_destroy(struct sl_objects_host **host);

/* A message to the catalogue from the engine with this address. */
void sl_objects_host_receive(struct sl_objects_host *host, const char *address,
                             const struct sl_objects_message *message);

/* For a simulation, which looks at its state (catalogue_state.h). */
struct sl_objects_catalogue;
const struct sl_objects_catalogue *sl_objects_host_catalogue(const struct sl_objects_host *host);

#endif
