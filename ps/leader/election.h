/* Who hosts the coordinator, where several processes could: each campaigns for one key of a cluster
 * store (ps/metastore/metastore.h), PREFIX/coordinator. The winner's key hangs on a lease, which it
 * keeps; its value says who he is and where. The key's revision is the term's epoch: it grows from
 * term to term, and what a winner writes to the store compares it, so that nothing of a past term
 * is written.
 *
 * A winner whose lease may have ended, by his own clock and counted from when he asked for it, has
 * lost, whatever the store would say: nobody else can have won before. Who only wants to know the
 * winner does not campaign.
 *
 * Pure but for the store: time comes by sl_election_tick and now_ns. Owner: the store's reactor.
 * Allocates nothing after create. */
#ifndef SL_PS_LEADER_ELECTION_H
#define SL_PS_LEADER_ELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"
#include "net/control/message.h"
#include "ps/metastore/metastore.h"

/* As the winner's value says. */
struct sl_election_leader {
    uint64_t term;                          /* 0: nobody is known */
    uint64_t id;                            /* of the process */
    char name[SL_MESSAGE_NAME_BYTES];       /* "ps/1", "scheduler" */
    char endpoint[SL_LIMIT_ENDPOINT_BYTES]; /* of its control connections */
};

struct sl_election_options {
    struct sl_metastore *metastore;
    const char *prefix; /* copied; without a slash at its end */
    bool campaigns;
    uint64_t id; /* of this process, random; not 0 */
    char name[SL_MESSAGE_NAME_BYTES];
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    uint32_t ttl_s; /* of the lease; at least 2 */
    uint64_t (*now_ns)(void *ctx);
    /* This process has won. */
    void (*won)(void *ctx, uint64_t epoch);
    /* It has won no more; not after sl_election_resign. */
    void (*lost)(void *ctx, const char *why);
    /* Another leader, or none, is known than before; comes before `won`, too. */
    void (*leader)(void *ctx, const struct sl_election_leader *leader);
    void *ctx;
};

struct sl_election;

/* Errors: NO_MEMORY, INVALID (the prefix is too long). */
int sl_election_create(const struct sl_election_options *options, struct sl_election **out);

/* To be called some ten times a second. */
void sl_election_tick(struct sl_election *election, uint64_t now_ns);

/* It has won, and its lease lasts. */
bool sl_election_holds(const struct sl_election *election, uint64_t now_ns);

const struct sl_election_leader *sl_election_leader(const struct sl_election *election);

/* The key that writes of a term compare, and at which revision: its epoch. */
const char *sl_election_key(const struct sl_election *election);

/* What the key has from winning on, and the lease that it hangs on: a winner may add to it. */
const char *sl_election_value(const struct sl_election *election);
uint64_t sl_election_lease(const struct sl_election *election);

/* Of a winner whose write did not hold: another has won. `lost` follows from inside. */
void sl_election_depose(struct sl_election *election, const char *why);

/* No campaign any more; a winner gives his place away. *over is set when nothing is asked of the
 * store any more; then it may be destroyed. */
void sl_election_resign(struct sl_election *election, bool *over);

/* Nothing may be under way at the store. Nulls *election. */
void sl_election_destroy(struct sl_election **election);

#endif
