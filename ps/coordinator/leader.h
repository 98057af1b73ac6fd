/* Leader competes to host the coordinator, and runs the coordinator in the process that wins.
 * Candidates compete for the key PREFIX/coordinator (net/store/record_log.h); its value names the
 * winner and its endpoint. The winner loads the coordinator log, which is the coordinator's records
 * below PREFIX/state/, and runs the coordinator until its term ends. Then the owner disconnects all
 * members, and they look for the next leader.
 *
 * Pure except for the metastore; time comes from now_ns and sl_leader_tick. Owner: the metastore's
 * reactor, which is also that of the server with the members' connections. */
#ifndef SL_PS_COORDINATOR_LEADER_H
#define SL_PS_COORDINATOR_LEADER_H

#include "core/limits.h"
#include "net/session/message.h"
#include "net/store/metastore.h"
#include "ps/coordinator/coordinator.h"

/* The leader, as the key's value names it. */
struct sl_leader_record {
    uint64_t term;                          /* 0: no leader is known */
    uint64_t id;                            /* of the process */
    char name[SL_MESSAGE_NAME_BYTES];       /* "ps/1", "scheduler" */
    char endpoint[SL_LIMIT_ENDPOINT_BYTES]; /* for control connections */
};

struct sl_leader_options {
    struct sl_metastore *metastore;
    const char *prefix; /* key prefix of this job; copied */
    bool campaigns;     /* false: only reports the leader */
    uint64_t id;        /* of this process, random; not 0 */
    char name[SL_MESSAGE_NAME_BYTES];
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];    /* listens for control connections */
    uint32_t ttl_s;                            /* of the leader's lease; at least 2 */
    size_t coordinator_log_bytes_max;          /* of messages that wait for it; 0: 256 MiB */
    struct sl_coordinator_options coordinator; /* as without a metastore */
    uint64_t (*now_ns)(void *ctx);
    /* The coordinator runs here from now on. anew: the metastore had no records of the job. */
    void (*elected)(void *ctx, struct sl_coordinator *coordinator, bool anew);
    /* Follows `elected` when the term ends. The coordinator must not be used any more, and
     * sl_leader_gone has no effect. */
    void (*term_ended)(void *ctx, const char *why);
    /* Reports a change of leader: another process, this process, or none (term 0). */
    void (*leader)(void *ctx, const struct sl_leader_record *leader);
    /* Requests a call of sl_leader_run soon, but not from inside this callback. */
    void (*wake)(void *ctx);
    void *ctx;
};

struct sl_leader;

/* Errors: NO_MEMORY, INVALID (the prefix is too long). */
int sl_leader_create(const struct sl_leader_options *options, struct sl_leader **out);

/* Call tick about ten times a second, and run when `wake` requests it. */
void sl_leader_tick(struct sl_leader *self);
void sl_leader_run(struct sl_leader *self);

/* Drops messages held for a closed connection. Call before sl_coordinator_gone. */
void sl_leader_gone(struct sl_leader *self, sl_coordinator_peer peer);

/* Returns whether the store has not answered, or has refused, since its last answer. */
bool sl_leader_store_is_away(const struct sl_leader *self);

const struct sl_leader_record *sl_leader_leader(const struct sl_leader *self);

/* Stops in order: writes pending changes, or with `erases` removes all records because the job is
 * over; then frees the leadership. Then, or after timeout_ns, calls done(ctx); until then keep
 * calling tick and run. The coordinator must not be used after this call; `term_ended` does not
 * follow. */
void sl_leader_resign(struct sl_leader *self, bool erases, uint64_t timeout_ns,
                      void (*done)(void *ctx), void *ctx);

/* Call when no metastore request is in flight. Nulls *self. */
void sl_leader_destroy(struct sl_leader **self);

#endif
