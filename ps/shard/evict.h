/* Evicts the rows that the policies of tables select, a few at a time, between requests. Except at
 * a commit of BSP, a backup cannot make the same choice, since it depends on free memory and on
 * when the shard has time: the caller logs the keys, as an erase. Only the shard's reactor calls
 * it. Nothing allocates.
 *
 * As in the CLOCK algorithm, a hand visits each record, the place of a row, once per round, and the
 * policy decides about the row (ps/table/policy.h). It goes from the last record to the first: rows
 * only move to lower records, so none is skipped. It advances in proportion to the table's steps,
 * so an idle table costs nothing. To make room, a second hand visits the records, and rows go that
 * are worth little, compared with a sample of rows. */
#ifndef SL_PS_SHARD_EVICT_H
#define SL_PS_SHARD_EVICT_H

#include "ps/table/policy.h"

struct sl_shard;
struct sl_table_spec;
struct sl_shard_request;
struct sl_shard_slice;
struct sl_shard_table;

#define SL_SHARD_EVICT_KEYS  256

#define SL_SHARD_EVICT_MARKS 32

/* A table's state. */
struct sl_shard_eviction {
    /* For ttl_seconds: a ring of the latest seconds, each with the table's step then. */
    struct {
        uint64_t second, step;
    } marks[SL_SHARD_EVICT_MARKS];
    uint32_t mark_count;
    uint64_t old_step;             /* rows not pushed after it are too old; 0: none */
    uint64_t second, round_second; /* now, and when the round began */
    uint32_t round_steps;          /* of a round; 0: no threshold is one of steps */
    uint32_t hand;                 /* records judged in this round */
    uint32_t round_records;        /* of the table, when the round began; valid if hand > 0 */
    uint64_t round_step;           /* of the table, when the round began */
    uint64_t visits;               /* of records, for samples */
    uint64_t worth_most;           /* a row worth more than this is not evicted to make room */
    uint32_t walk_left;            /* records until the next sample */
    uint32_t room_hand;            /* index of the record that was visited last to make room */
    uint64_t barren;               /* records visited since a row was evicted to make room */
    uint32_t push_max;             /* keys of the longest push that waits for free records */
    uint64_t fruitless_end; /* no row was found to make room: search again from this step on */
    uint64_t evicted[SL_EVICTION_REASON_COUNT];
    bool is_loaded;    /* the table is from a snapshot: an open may replace the policy, once */
    uint32_t policies; /* replaced so far */
};

/* Rows that were erased. */
struct sl_shard_evicted {
    uint32_t table_id, count;
    uint64_t keys[SL_SHARD_EVICT_KEYS];
};

/* Prepares the state of a table just opened. */
void sl_shard_eviction_init(struct sl_shard_table *table);

/* Sets the present second, of any clock that only advances. For ttl_seconds. */
void sl_shard_eviction_clock(struct sl_shard *shard, uint64_t second);

/* Returns true if the table's policy may evict rows or refuse keys. */
bool sl_shard_eviction_has(const struct sl_table_spec *spec);

/* Returns true when a push may have to wait for room, or for another push (key_admission.h). */
bool sl_shard_eviction_may_await(const struct sl_shard_table *table);

/* Returns true when a push of so many keys must wait until rows have gone to make room. Notes how
 * much room it needs. */
bool sl_shard_eviction_awaited(const struct sl_shard *shard, struct sl_shard_table *table,
                               uint32_t key_count);

/* Returns true when some rows may be due to go. */
bool sl_shard_eviction_due(const struct sl_shard *shard);

/* Of tables with BSP, after the pushes of an iteration: if a multiple of a quarter of the policy's
 * steps lies between step_before and the present step, judges all rows and erases those that are
 * due. That depends on rows and steps only, so a backup does the same by itself, and nothing is
 * logged. Adds its cost to *spent, and stops soon after that reaches budget: call it again while it
 * returns false. */
bool sl_shard_evict_at_commit(struct sl_shard *shard, struct sl_shard_table *table,
                              uint64_t step_before, uint32_t budget, uint32_t *spent);

/* Erases rows of one table that are due, at a cost of about `budget`. Returns the cost; 0: none is
 * due, or a request that holds records is in progress. out->count may be 0. */
uint32_t sl_shard_evict(struct sl_shard *shard, uint32_t budget, struct sl_shard_evicted *out);

/* Begins the round of an EVICT: from now on, sl_shard_evict judges the table's records once each.
 * The shard keeps the request until it is complete or abandoned. No other round is in progress.
 * Errors: INVALID (neither the request nor the policy has a threshold). */
int sl_shard_evict_begin(struct sl_shard *shard, const struct sl_shard_table *table,
                         struct sl_shard_request *request, struct sl_shard_slice *slice);

/* AGAIN: the round is in progress. DONE: it has ended, and the reply is written. */
int sl_shard_evict_run(struct sl_shard *shard, const struct sl_shard_request *request,
                       uint8_t *reply);

#endif
