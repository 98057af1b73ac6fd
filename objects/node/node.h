/* A node is the objects part of one process: an engine that moves bytes and messages, on whose
 * first reactor everything in this room runs, and a membership at the catalogue.
 *
 * Threads of the application make calls, which run on the reactor and which they wait for. The
 * reactor never waits: memory is registered and unregistered on threads of the application. */
#ifndef SL_OBJECTS_NODE_NODE_H
#define SL_OBJECTS_NODE_NODE_H

#include "objects/node/copy.h"
#include "objects/node/cost.h"
#include "objects/node/counters.h"
#include "objects/node/follow.h"
#include "objects/node/link.h"
#include "objects/node/local.h"
#include "objects/node/membership.h"
#include "objects/node/pool.h"
#include "objects/node/publish_tables.h"
#include "objects/node/serve.h"
#include "objects/node/setup.h"
#include "objects/node/stored.h"
#include "reactor/port.h"

struct sl_objects_delta_functions;
struct sl_objects_directory;
struct sl_objects_host;
struct sl_objects_local;
struct sl_objects_options;

struct sl_objects {
    struct sl_transfer *transfer;
    bool owns_transfer;
    struct sl_objects_setup setup;
    uint64_t pool_bytes, rate_bytes;
    struct {
        char location[SL_OBJECTS_LOCATION_BYTES];
        char host[SL_OBJECTS_LOCATION_BYTES];
        char
            agent[SL_OBJECTS_LOCAL_NAME_BYTES]; /* for subscriptions; "": the default, if it fits */
    } names;
    struct sl_reactor *reactor; /* the engine's first */
    struct sl_port_set *ports;

    /* The reactor's. */
    uint64_t id; /* random */
    struct sl_objects_link *link;
    struct sl_objects_host *host; /* of the catalogue; NULL: another node */
    struct sl_objects_membership membership;
    struct sl_list copies;
    struct sl_objects_follows follows;
    struct sl_objects_local *local; /* of an agent; NULL: it is none */
    struct sl_objects_serve serve;
    struct sl_list stored; /* struct sl_objects_stored */
    struct sl_objects_stored_index stored_index;
    bool is_leaving;                        /* nothing is stored any more */
    struct sl_objects_directory *directory; /* of these; NULL: none */
    struct sl_objects_tables tables;
    struct { /* of blocks that have arrived, or are rebuilt */
        const struct sl_objects_delta_functions *deltas;
        struct sl_offload *offload;
        uint8_t *scratch; /* [2][SL_OBJECTS_BLOCK_BYTES]: a block that does not lie in one place;
                             the second one is the offload thread's */
    } digests;
    struct sl_objects_requests {
        struct sl_transfer_request *items;
        uint32_t capacity;
    } requests; /* download.c: of the batch that is being made */
    struct {
        struct sl_objects_cost cost; /* of READs */
        struct sl_objects_counters counters;
    } measured;
    struct sl_objects_pool pool; /* base NULL: not used yet; opened under the lock of the ports */
};

/* As sl_objects_create. setup: NULL: nothing is replaced. */
int sl_objects_create_with(const struct sl_objects_options *options,
                           const struct sl_objects_setup *setup, struct sl_objects **out);

#endif
