/* A node is a process of the job in one of its groups: the scheduler, a server, a worker. A worker
 * speaks for itself; for the scheduler or a server speaks the client beside it (`beside` of its
 * hello). Owner reactor. */
#ifndef SL_PS_COORDINATOR_NODE_H
#define SL_PS_COORDINATOR_NODE_H

#include "ps/coordinator/state.h"

struct sl_coordinator_node {
    uint32_t group; /* one of SL_MESSAGE_GROUP_... */
    uint32_t rank;  /* its task index; 0 of the scheduler */
};

/* Returns whether the member is, or is beside, a process of the job. */
bool sl_coordinator_node_of(const struct sl_coordinator_member *member,
                            struct sl_coordinator_node *out);

/* Returns the member that speaks for the node, or NULL. */
struct sl_coordinator_member *sl_coordinator_node_find(const struct sl_coordinator *coordinator,
                                                       struct sl_coordinator_node node);

/* Returns whether the job has this node, be it there or not. */
bool sl_coordinator_node_exists(const struct sl_coordinator *coordinator,
                                struct sl_coordinator_node node);

/* Steps through the nodes that the job has in the groups: writes the first after *node, which is
 * {0} at first. False: there is none. */
bool sl_coordinator_node_next(const struct sl_coordinator *coordinator, uint32_t groups,
                              struct sl_coordinator_node *node);

/* Returns how the node's process ended, if it did and no other has its place; else NONE. */
enum sl_coordinator_end sl_coordinator_node_ended(const struct sl_coordinator *coordinator,
                                                  struct sl_coordinator_node node);

/* Writes "ps/1 expired: no heartbeat for 10 s". */
void sl_coordinator_node_why(const struct sl_coordinator *coordinator,
                             struct sl_coordinator_node node, enum sl_coordinator_end end,
                             char why[SL_MESSAGE_TEXT_BYTES]);

/* "scheduler", "ps", "worker". */
const char *sl_coordinator_node_role(uint32_t group);

#endif
