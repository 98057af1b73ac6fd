/* A model of a fan-out: every node's uplink sends one block in one unit of time, to its children by
 * turns. Downlinks and the network between are free, so a single fetcher takes as many units as the
 * image has blocks. Used with the parents that objects/catalogue/choose.h or the catalogue chooses.
 */
#ifndef SL_TESTS_UNIT_OBJECTS_BLOCK_MODEL_H
#define SL_TESTS_UNIT_OBJECTS_BLOCK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define BLOCKS_MAX   1024
#define NODES_MAX    1100
#define MODEL_NOBODY UINT32_MAX

struct model_node {
    uint32_t parents[2]; /* of each stripe; MODEL_NOBODY: waits */
    bool held[BLOCKS_MAX];
    uint32_t held_count, sent; /* blocks */
    uint32_t next[2];          /* the first block of each stripe that is not held */
    uint32_t edge;             /* child and stripe that were served last */
};

struct model {
    uint32_t block_count, node_count;
    struct model_node nodes[NODES_MAX]; /* the first one has all blocks */
};

/* Only node 0, with all blocks. */
void model_init(struct model *model, uint32_t block_count);

/* Adds a node without blocks and without parents; returns its index. */
uint32_t model_add(struct model *model);

/* One unit of time. */
void model_step(struct model *model);

bool model_is_complete(const struct model *model, uint32_t node);

#endif
