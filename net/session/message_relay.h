/* Relay and RelayAnswer: small messages between the processes of a job, through the coordinator,
 * and the groups of these processes, which barriers use too. */
#ifndef SL_NET_SESSION_MESSAGE_RELAY_H
#define SL_NET_SESSION_MESSAGE_RELAY_H

#include <stdint.h>

/* Bits: groups of processes. Their ranks: 0 of the scheduler; task indices. */
#define SL_MESSAGE_GROUP_SCHEDULER  1U
#define SL_MESSAGE_GROUP_PS         2U
#define SL_MESSAGE_GROUP_WORKER     4U
#define SL_MESSAGE_GROUPS           7U /* all of them */

/* Values of sl_message_hello.beside: the process of the job that a client belongs to. 0: none. */
#define SL_MESSAGE_BESIDE_SCHEDULER 1U
#define SL_MESSAGE_BESIDE_PS        2U /* plus the task index */

#define SL_MESSAGE_RELAY_BYTES      (64U << 10) /* of a body */

/* RELAY; RELAY_ANSWER has no group, rank and timeout_ms. */
struct sl_message_relay {
    uint32_t group; /* one: to the coordinator, of the receiver; from it, of the sender */
    uint32_t rank;
    uint32_t timeout_ms; /* to the coordinator: the sender's; 0: unknown */
    uint32_t head;       /* of the application, as body */
    uint64_t token;      /* from the coordinator; the answer to it repeats it; else 0 */
    int err;             /* answer: 0, or the receiver has not taken the message */
    uint8_t *body;       /* decoded: owned by the message; NULL: none */
    uint32_t body_bytes;
};

#endif
