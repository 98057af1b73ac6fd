/* The coordinator: membership, table registry, barriers. A pure state machine: a message from a
 * member, or the passing of time, gives messages to members; the server on its reactor carries
 * them. Owner reactor (reactor 0 of ps task 0).
 *
 * Membership: a member has a lease, renewed by whatever it sends. One whose connection breaks is
 * away, and the same process (its client_id) may take its place again until the lease ends. Then it
 * is lost: ps and workers are told, a ps that was away when it is back. Another process may take
 * the name of one that has left, is lost, or is away (which is lost at that moment); while the
 * first is heard it is refused. While any ps is gone, who registers waits for it; a ps that comes
 * back is told to the others.
 *
 * The job's workers are tasks 0 to worker_count - 1 and those that have joined (Hello.joins), less
 * those that have left or are lost. A barrier of count 0 is one of all of them, and is looked at
 * again when they change. Tables: a name has one id and one specification for the life of the
 * coordinator. Barriers: one of a name is complete when `count` members have come; then the name
 * may be used anew; a member that asks again under the same request id, since its connection broke
 * in between, is answered again. A member that comes again to a barrier at which it waits has given
 * up waiting before: it still counts once, and is answered under its last request. One that said
 * how long it waits is told who is missing shortly before. Allocates as members, tables and
 * barriers come, within SL_LIMIT_*; never on the data path. */
#ifndef SL_PS_COORDINATOR_H
#define SL_PS_COORDINATOR_H

#include "net/control/message.h"

/* Clients (members that are neither ps nor worker) whose connection broke, at most: there may be
 * any number of them, so the one that is away longest is forgotten for another. */
#define SL_COORDINATOR_CLIENTS_AWAY 1024

#define SL_COORDINATOR_BARRIERS     1024 /* in use at one time */

struct sl_coordinator;

/* A control connection, by a handle of the server's. */
typedef uint64_t sl_coordinator_peer;

struct sl_coordinator_options {
    uint32_t ps_count;            /* that must register before anyone is told the cluster */
    uint32_t worker_count;        /* that the job has; 0: unknown */
    uint64_t waiting_interval_ns; /* between two Waiting messages to who waits; 0: 3 s */
    uint64_t lease_ns;            /* a member that is not heard for so long is lost; 0: 10 s */
    /* Sends one message; the coordinator keeps nothing of it. */
    void (*send)(void *ctx, sl_coordinator_peer peer, const struct sl_message *message);
    /* Closes a connection whose member has another now, or is lost; `gone` may follow, and has no
     * effect, like whatever else still comes from it. NULL: such connections are left alone. */
    void (*close)(void *ctx, sl_coordinator_peer peer, const char *why);
    void *ctx;
};

/* Errors: NO_MEMORY. */
int sl_coordinator_create(const struct sl_coordinator_options *options,
                          struct sl_coordinator **out);
void sl_coordinator_destroy(struct sl_coordinator **coordinator);

/* A member said hello. Errors, which refuse it: EXISTS (another live member has that role and
 * task, and has been heard since this process first asked; until then AGAIN: it may have died),
 * INVALID (task index outside the cluster), NO_MEMORY; reason says it. */
int sl_coordinator_hello(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         const struct sl_message_hello *hello, uint64_t now_ns, char *reason,
                         size_t reason_bytes);

/* A message of a member that said hello: REGISTER, TABLE_OPEN, BARRIER, STATS_GET, HEARTBEAT,
 * GOODBYE; others are answered with an Error. */
void sl_coordinator_message(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                            const struct sl_message *message, uint64_t now_ns);

/* The connection has closed; a peer that never said hello, or was refused, is ignored. expected: we
 * closed it since we are shutting down, so that the lack of a goodbye means nothing: the member is
 * neither away nor will it be lost. */
void sl_coordinator_gone(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         bool expected, uint64_t now_ns);

/* What Welcome tells of it. */
uint64_t sl_coordinator_lease_ns(const struct sl_coordinator *coordinator);

/* To be called several times a lease: ends leases, reminds those who wait, answers those who give
 * up. A coordinator that was held up for a quarter of a lease gives every member half a lease from
 * now, since what it sent meanwhile has not been read. */
void sl_coordinator_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

#endif
