/* Requests for a checkpoint. Each is answered once.
 * - Of clients: by the first checkpoint that begins after the request.
 * - Of servers that stop: all share one, even after it has begun. It begins when every server has
 *   asked, or one second after the first request. None waits for a missing server. */
#ifndef SL_PS_COORDINATOR_CHECKPOINT_REQUEST_H
#define SL_PS_COORDINATOR_CHECKPOINT_REQUEST_H

#include "ps/coordinator/state.h"

/* Returns true if it adds a request: the caller calls sl_coordinator_checkpoint_update. False: the
 * request repeats one that waits, or is refused. */
bool sl_coordinator_checkpoint_request_add(struct sl_coordinator *coordinator,
                                           struct sl_coordinator_member *member,
                                           const struct sl_message *message, uint64_t now_ns);

/* Drops the requests of a former member. */
void sl_coordinator_checkpoint_request_leave(struct sl_coordinator *coordinator,
                                             const struct sl_coordinator_member *member);

/* Returns true if a request is waiting. Requests of stopping servers count when every server has
 * asked, or after one second. */
bool sl_coordinator_checkpoint_request_is_due(const struct sl_coordinator *coordinator,
                                              uint64_t now_ns);

/* Refuses requests of stopping servers: they do not wait for a missing server to restart. */
void sl_coordinator_checkpoint_request_refuse_ps(struct sl_coordinator *coordinator,
                                                 const char *missing);

/* Assigns waiting requests to a checkpoint that begins. Returns true if one is from a server. */
bool sl_coordinator_checkpoint_request_take(struct sl_coordinator *coordinator, uint64_t number);

/* Answers the requests of a checkpoint; number 0: those that wait for the next one. */
void sl_coordinator_checkpoint_request_answer(struct sl_coordinator *coordinator, uint64_t number,
                                              const struct sl_message *answer);

/* Sends Waiting messages and fails timed-out requests. waiting: the missing servers. */
void sl_coordinator_checkpoint_request_tick(struct sl_coordinator *coordinator,
                                            const struct sl_message_waiting *waiting,
                                            uint64_t now_ns);
void sl_coordinator_checkpoint_request_fini(struct sl_coordinator *coordinator);

#endif
