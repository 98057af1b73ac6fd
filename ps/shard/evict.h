/* Evicts the rows that the policies of tables select, a few at a time, between requests. The choice
 * depends on the shard's memory and on when it finds time, so a backup cannot repeat it: the caller
 * logs the keys, as an erase. Owner reactor. Nothing allocates.
 *
 * A hand walks the records and judges each once a round (ps/table/policy.h): from the last to the
 * first, as rows only move to lower records. It advances in proportion to the table's steps, so an
 * idle table costs nothing. To make room, another hand walks them and evicts those that are worth
 * little, compared with a sample of rows. */
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
    /* For ttl_seconds, the last moments: the second, and the table's step then. A ring. */
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
    uint64_t worth_most;           /* of a row that goes to make room */
    uint32_t walk_left;            /* records until the next sample */
    uint32_t room_hand;            /* the last record walked over to make room */
    uint64_t barren;               /* records since one found a row to make room */
    uint32_t push_max;             /* keys of the longest push that waits for free records */
    uint64_t fruitless_end;        /* no row is evicted for room before this step: none was found */
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

/* Says which second it is, of any clock that only advances: for ttl_seconds. */
void sl_shard_eviction_clock(struct sl_shard *shard, uint64_t second);

/* Returns true for a table of which rows may go. */
bool sl_shard_eviction_has(const struct sl_table_spec *spec);

/* Returns true when a push may have to wait for room, or for another push (key_admission.h). */
bool sl_shard_eviction_may_await(const struct sl_shard_table *table);

/* Returns true when a push of so many keys must wait until rows have gone to make room. Notes how
 * much room it needs. */
bool sl_shard_eviction_awaited(const struct sl_shard *shard, struct sl_shard_table *table,
                               uint32_t key_count);

/* Returns true when some rows may be due to go. */
bool sl_shard_eviction_due(const struct sl_shard *shard);

/* BSP: once the pushes of an iteration, which began at step_before, have crossed a quarter of the
 * threshold, judges all rows and erases those that are due. What goes depends on the rows and steps
 * only, so a backup does the same by itself, and nothing is logged. Adds to *spent, about up to
 * budget. Returns true when it is done. */
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
