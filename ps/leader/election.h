/* Election chooses the process that hosts the coordinator. Candidates compete for one key of the
 * metastore (metastore/metastore.h), PREFIX/coordinator. The key hangs on a lease that the
 * winner renews; its value names the winner and its endpoint. The key's creation revision is the
 * term, which grows with every election. Every write of a leader compares it, so no write of a
 * former term succeeds.
 *
 * A winner loses when its lease may have ended by its own clock, counted from when it requested the
 * lease: until then no other process can have won. Observers (campaigns false) only read the key.
 * Pure except for the metastore; time comes from sl_election_tick and now_ns. Owner: the
 * metastore's reactor. Allocates only in create. */
#ifndef SL_PS_LEADER_ELECTION_H
#define SL_PS_LEADER_ELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"
#include "metastore/metastore.h"
#include "net/control/message.h"

/* The leader, as the key's value names it. */
struct sl_election_leader {
    uint64_t term;                          /* 0: no leader is known */
    uint64_t id;                            /* of the process */
    char name[SL_MESSAGE_NAME_BYTES];       /* "ps/1", "scheduler" */
    char endpoint[SL_LIMIT_ENDPOINT_BYTES]; /* for control connections */
};

struct sl_election_options {
    struct sl_metastore *metastore;
    const char *prefix; /* copied; without a trailing slash */
    bool campaigns;
    uint64_t id; /* of this process, random; not 0 */
    char name[SL_MESSAGE_NAME_BYTES];
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    uint32_t ttl_s; /* of the lease; at least 2 */
    uint64_t (*now_ns)(void *ctx);
    /* This process has won the term `term`. */
    void (*won)(void *ctx, uint64_t term);
    /* This process is no longer the leader. Not called after sl_election_resign. */
    void (*lost)(void *ctx, const char *why);
    /* Reports a change of leader, or that there is none. Called before `won` too. */
    void (*leader)(void *ctx, const struct sl_election_leader *leader);
    void *ctx;
};

struct sl_election;

/* Errors: NO_MEMORY, INVALID (the prefix is too long). */
int sl_election_create(const struct sl_election_options *options, struct sl_election **out);

/* Call about ten times a second. */
void sl_election_tick(struct sl_election *election, uint64_t now_ns);

/* Returns true if this process has won and its lease still lasts. */
bool sl_election_holds(const struct sl_election *election, uint64_t now_ns);

const struct sl_election_leader *sl_election_leader(const struct sl_election *election);

/* The key that every write of a term compares. Its creation revision is the term. */
const char *sl_election_key(const struct sl_election *election);

/* The initial value of the winner's key, and its lease. The winner may append to the value. */
const char *sl_election_value(const struct sl_election *election);
uint64_t sl_election_lease(const struct sl_election *election);

/* Ends the term of a winner whose write was rejected. Calls `lost`. */
void sl_election_depose(struct sl_election *election, const char *why);

/* Stops campaigning; a winner revokes its lease. Sets *over when no metastore request is in flight;
 * then destroy is allowed. */
void sl_election_resign(struct sl_election *election, bool *over);

/* No metastore request may be in flight. Nulls *election. */
void sl_election_destroy(struct sl_election **election);

#endif
