/* Residency on the board: which bytes of the newest version of each followed name are in the pool,
 * and the cost of READs of the others. Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_BOARD_RESIDENCY_H
#define SL_OBJECTS_NODE_BOARD_RESIDENCY_H

struct sl_objects;

/* Blocks of the name have come or gone, or it has a newer version. No effect if it is not followed.
 */
void sl_objects_board_residency_changed(struct sl_objects *node, const char *name);

/* node->measured.cost has changed. */
void sl_objects_board_residency_cost(struct sl_objects *node);

#endif
