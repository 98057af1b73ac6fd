/* Relays messages of nodes to each other (RELAY, RELAY_ANSWER). A message is delivered to its
 * receiver at most once, and its sender gets the answer or an error:
 * - A message waits while its receiver has not registered, is disconnected, or has not answered
 *   SL_COORDINATOR_RELAYS_RECEIVED messages.
 * - It fails when its receiver has ended, or loses the connection with which it was delivered; when
 *   its timeout has passed; or when its sender has too many messages without an answer.
 * Owner reactor. */
#ifndef SL_PS_COORDINATOR_RELAY_H
#define SL_PS_COORDINATOR_RELAY_H

#include "ps/coordinator/node.h"

/* Takes a RELAY from its sender. */
void sl_coordinator_relay_send(struct sl_coordinator *coordinator,
                               struct sl_coordinator_member *sender,
                               const struct sl_message *message, uint64_t now_ns);

/* Takes a RELAY_ANSWER from the receiver. One of an unknown message is ignored. */
void sl_coordinator_relay_answer(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *receiver,
                                 const struct sl_message_relay *answer);

/* The member has registered on its connection: delivers what waits for it. */
void sl_coordinator_relay_open(struct sl_coordinator *coordinator,
                               struct sl_coordinator_member *receiver);

/* The member has lost its connection, or is about to be freed: fails what was delivered to it and
 * drops what it sent. */
void sl_coordinator_relay_disconnect(struct sl_coordinator *coordinator,
                                     struct sl_coordinator_member *member);

/* The node has ended: fails what is for it. */
void sl_coordinator_relay_lose(struct sl_coordinator *coordinator, struct sl_coordinator_node node,
                               enum sl_coordinator_end end);

/* Sends Waiting messages and fails timed-out messages. */
void sl_coordinator_relay_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

void sl_coordinator_relay_fini(struct sl_coordinator *coordinator);

#endif
