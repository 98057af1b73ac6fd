/* Nodes of one process, each with an engine and a host label of its own, over TCP on loopback. The
 * first one hosts the catalogue. */
#ifndef SL_TESTS_UNIT_OBJECTS_NODES_H
#define SL_TESTS_UNIT_OBJECTS_NODES_H

#include <starling_objects.h>

#include "objects/node/setup.h"
#include "tests/support/unit.h"

#define NODES_MAX     4
#define NODES_TIMEOUT 120000

struct nodes {
    struct sl_objects *node[NODES_MAX];
    uint32_t count;
    /* While the test waits for a node, the nodes' clock passes about ten times as fast as the
     * system's. For a test that waits for a timeout of a node; the engines' time is the system's.
     */
    bool hurry;
};

/* Returns when all nodes have attached. bytes_per_s: what each of them sends at most; 0: no limit.
 */
void nodes_init(struct nodes *nodes, uint32_t count, uint64_t bytes_per_s);
void nodes_fini(struct nodes *nodes);

/* Creates a node with the nodes' clock. setup: NULL: a plain one. */
void nodes_create(struct nodes *nodes, const struct sl_objects_options *options,
                  const struct sl_objects_setup *setup, struct sl_objects **out);

/* Sleeps for a moment, in a loop that waits for what a node does. */
void nodes_pause(struct nodes *nodes);

/* Ends one of them; its place stays empty. */
void nodes_end(struct nodes *nodes, uint32_t index);

/* Fails the test with the text of the last error. */
void nodes_expect(int err);

/* Memory of the caller with bytes that depend on their place and the seed. */
uint8_t *nodes_bytes(size_t bytes, uint32_t seed);
void nodes_expect_bytes(const uint8_t *memory, size_t bytes, uint32_t seed);

/* Publishes the bytes as one version, whose note is the name. Returns its number. */
uint64_t nodes_publish(struct sl_objects *node, const char *name, enum sl_object_origin origin,
                       void *memory, size_t bytes);

/* Starts a get of the version into the memory. */
struct sl_get *nodes_start(struct sl_objects *node, const char *name, uint64_t version,
                           void *memory, size_t bytes, uint32_t timeout_ms);

/* Expects that the get succeeds, and closes it. */
void nodes_finish(struct sl_get *get);

/* Both. */
void nodes_get(struct sl_objects *node, const char *name, uint64_t version, void *memory,
               size_t bytes);

#endif
