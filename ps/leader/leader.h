/* The coordinator's seat, where a cluster store says who has it (ps/leader/election.h): the process
 * that wins reads the records of the one before and runs the coordinator
 * (ps/leader/coordinator_log.h), until it has lost. Then all its members are to be disconnected:
 * they look for the next.
 *
 * Pure but for the store; time comes from now_ns, and by sl_leader_tick. Owner: the store's
 * reactor, which is that of the server that has the members' connections. */
#ifndef SL_PS_LEADER_LEADER_H
#define SL_PS_LEADER_LEADER_H

#include "ps/coordinator/coordinator.h"
#include "ps/leader/election.h"

struct sl_leader_options {
    struct sl_metastore *metastore;
    const char *prefix; /* of this job; copied */
    bool campaigns;     /* else it only says who has the seat */
    uint64_t id;        /* of this process, random; not 0 */
    char name[SL_MESSAGE_NAME_BYTES];
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];    /* where its control connections come in */
    uint32_t ttl_s;                            /* of the lease of the seat; at least 2 */
    size_t coordinator_log_bytes_max;          /* as in struct sl_coordinator_log_options */
    struct sl_coordinator_options coordinator; /* as for one without a store */
    uint64_t (*now_ns)(void *ctx);
    /* The coordinator runs here from now on. anew: the store had no records of the job. */
    void (*seated)(void *ctx, struct sl_coordinator *coordinator, bool anew);
    /* It does not any more: no call may touch it, and sl_leader_gone has no effect. Only after
     * `seated`. */
    void (*unseated)(void *ctx, const char *why);
    /* Somebody else has it, or this process, or nobody (epoch 0). */
    void (*leader)(void *ctx, const struct sl_election_leader *leader);
    /* sl_leader_run is to be called soon, but not from inside. */
    void (*wake)(void *ctx);
    void *ctx;
};

struct sl_leader;

/* Errors: NO_MEMORY, INVALID (the prefix is too long). */
int sl_leader_create(const struct sl_leader_options *options, struct sl_leader **out);

/* To be called some ten times a second; and where `wake` has asked for it. */
void sl_leader_tick(struct sl_leader *self);
void sl_leader_run(struct sl_leader *self);

/* A connection of the coordinator's server is gone; before that is told to the coordinator. */
void sl_leader_gone(struct sl_leader *self, sl_coordinator_peer peer);

const struct sl_election_leader *sl_leader_leader(const struct sl_leader *self);

/* The end, in good order: what has changed is written, or, erases, all is removed, since the job is
 * over; then the seat is free. `done(ctx)` follows when that is so, or timeout_ns has passed; until
 * then tick and run go on. The coordinator, where it was here, is gone when this returns, without a
 * word. */
void sl_leader_resign(struct sl_leader *self, bool erases, uint64_t timeout_ns,
                      void (*done)(void *ctx), void *ctx);

/* The store has answered all, or been destroyed. Nulls *seat. */
void sl_leader_destroy(struct sl_leader **self);

#endif
