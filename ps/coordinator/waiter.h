/* Waiter is a request of a member that waits for others: at a barrier, for a checkpoint, or for the
 * cluster. It gets a Waiting message from time to time, and fails shortly before its timeout with
 * the names of the tasks it waited for. Owner reactor. */
#ifndef SL_PS_COORDINATOR_WAITER_H
#define SL_PS_COORDINATOR_WAITER_H

#include "ps/coordinator/coordinator.h"

struct sl_coordinator_member;

struct sl_coordinator_waiter {
    struct sl_coordinator_member *member;
    uint64_t request;
    uint64_t remind_ns;   /* when to send the next Waiting */
    uint64_t deadline_ns; /* SL_CLOCK_NEVER: none */
    uint32_t timeout_ms;  /* 0: none */
};

void sl_coordinator_waiter_init(struct sl_coordinator_waiter *waiter,
                                const struct sl_coordinator *coordinator,
                                struct sl_coordinator_member *member, uint64_t request,
                                uint32_t timeout_ms, uint64_t now_ns);

/* Returns true if sl_coordinator_waiter_tick would send something. */
bool sl_coordinator_waiter_is_due(const struct sl_coordinator_waiter *waiter, uint64_t now_ns);

/* Sends `waiting` if a Waiting message is due. After the deadline, fails the request with a text
 * that begins with `what`, and returns true: the caller removes the waiter. */
bool sl_coordinator_waiter_tick(struct sl_coordinator_waiter *waiter,
                                struct sl_coordinator *coordinator, const char *what,
                                const struct sl_message_waiting *waiting, uint64_t now_ns);

/* Appends the task to the missing ones, of which *total were appended before. If the list is full,
 * its last entry becomes "N more". */
void sl_coordinator_list_missing(struct sl_message_waiting *waiting, uint32_t *total,
                                 const char *role, uint32_t task_index);

/* Writes the missing tasks, e.g. "ps/1, worker/3, 4 more". */
void sl_coordinator_write_missing(const struct sl_message_waiting *waiting, char *text,
                                  size_t bytes);

#endif
