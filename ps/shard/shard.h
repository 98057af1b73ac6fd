/* A shard: the tables that one reactor owns, the workers' clocks, and what a request does to them.
 * Pure: a request and the state give a reply and a new state; no I/O, no clock, no thread. The
 * server feeds it bytes and sends what it made. Owner reactor.
 *
 * Work is sliced: sl_shard_run spends at most `key_budget` and says whether it is done. A key costs
 * 1 for every 256 bytes of its row or part of that, 1024 dense elements cost 16, a section 1. Only
 * a push of up to 1024 keys and 256 KiB is always done in one go, so that small pushes never wait
 * for working memory: a longer one that is in progress keeps the one large scratch until it is
 * done, and other long ones get AGAIN with nothing spent. A request's sections run in order; a
 * section that must wait for other workers' clocks (BSP, SSP) parks the request, and the rest of
 * that connection's requests may go on.
 *
 * Push: each record is visited once per section, with the sum of the gradients of its key. All keys
 * of a section are looked up before the first is visited: a section that fails has changed nothing
 * but created rows. Gradients that are not finite are applied as they are. A table's step is the
 * number of push sections applied to it on this shard, the one in progress included: the first push
 * has step 1.
 *
 * Consistency, by clock. Worker w's clock is the number of iterations that it has ticked; the floor
 * is the least of those that count for the table (ps/shard/clocks.h): workers 0 to worker_count -
 * 1, and whoever has joined, until they finish, leave or are lost. A pull of clock c is admitted
 * when ASP: always;  BSP: floor >= c;  SSP(s): floor + s >= c. In BSP a push of clock c is kept
 * aside and applied when the floor passes c: step by step, within a step worker by worker, and
 * within a worker in the order of arrival, so that the result does not depend on timing; it must be
 * of the worker's current clock. A push_pull waits first and then pushes; its rows do not show its
 * own push in BSP. Clients without a clock never wait, and their pushes apply at once; so it is for
 * a worker beyond the table's worker_count that has not joined. Pushes of a worker whose clock
 * counts no more apply at once too. When nobody counts, nobody waits, and everything kept aside is
 * applied. Tables may differ in mode and worker_count; clocks are the shard's.
 *
 * KV tables (ps/table/kv_table.h) wait for nobody's clock. A section that pushes finds out for all
 * of its keys whether it can, in one go for up to 256 keys, before any array is made or changed; a
 * longer one takes the large scratch for that. Long arrays are visited in slices: others may see
 * them partly done. With a handler, each section is one call of it, however long; one that says
 * AGAIN parks its request until another call has been made that does not. */
#ifndef SL_PS_SHARD_SHARD_H
#define SL_PS_SHARD_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/err.h"
#include "net/control/message.h"
#include "net/wire/request.h"
#include "ps/optimizer/optimizer.h"

struct sl_kv_handler;
struct sl_shard;
struct sl_shard_scratch;
struct sl_shard_buffered_push;

struct sl_shard_options {
    uint32_t index, count;        /* this shard among all of the cluster: core/partition.h */
    size_t memory_bytes_max;      /* of all tables; 0: no limit */
    size_t push_buffer_bytes_max; /* of BSP pushes kept aside; 0: 256 MiB */
    size_t snapshot_bytes_max;    /* of the blocks of an image in the making; 0: 128 MiB */
    bool limit_covers_all; /* memory_bytes_max covers staging too, and what a table needs beside
                            * its values */
    const struct sl_kv_handler *kv_handler; /* starling_kv.h: of all KV tables; outlives the shard;
                                             * NULL: the store */
};

/* Errors: NO_MEMORY. */
int sl_shard_create(const struct sl_shard_options *options, struct sl_shard **out);
void sl_shard_destroy(struct sl_shard **shard);

/* Creates the table or checks it. Errors: INVALID, EXISTS (another specification, or another name
 * under this id, or this name under another id; reason says in what), NO_MEMORY. */
int sl_shard_table_open(struct sl_shard *shard, uint32_t table_id, const struct sl_table_spec *spec,
                        char *reason, size_t reason_bytes);

/* Who asks. */
struct sl_shard_client {
    bool has_clock;
    uint32_t worker; /* task index, when it has a clock; below SL_LIMIT_WORKERS */
};

/* A request in progress; caller's storage, which stays where it is until the request is done or
 * abandoned; so do the request's bytes; after parking too. */
struct sl_shard_exec {
    struct sl_bytes cursor; /* stands on the next section */
    struct sl_shard_client caller;
    struct sl_request_prefix prefix;
    uint32_t sections_left;
    bool in_section;  /* view is valid and partly done */
    bool out_of_line; /* its values are not behind its structure: sl_shard_begin_out_of_line */
    bool writes;      /* the request has a push or a tick */
    bool replayed;    /* but skips them: sl_shard_skip_writes */
    bool in_part;     /* a slice has ended with its push applied in part */
    uint32_t written_before; /* sections that have written before: sl_shard_skip_writes_before */
    bool apply_only;         /* and does nothing else: sl_shard_apply_only */
    struct sl_request_view view;
    bool plain;           /* it waits for nobody's clock and needs no working memory of others */
    uint64_t cost;        /* of the whole request, in units of key_budget */
    uint64_t push_cost;   /* of its pushes, contained in cost */
    uint64_t done;        /* keys or elements done so far in this phase of the section */
    uint64_t reply_done;  /* bytes of the reply written by the sections before */
    uint64_t reply_bytes; /* in all */
    const void *answer; /* once it is done: the reply, which lies there for good; NULL: where it was
                         * to be made */
    uint32_t parked_on; /* table id that it waits for */
    uint8_t phase;      /* of a section: shard_internal.h */
    uint32_t bags_done; /* of a pooled pull */
    /* Of a push in progress: */
    struct sl_shard_scratch *scratch;        /* that it owns */
    struct sl_shard_buffered_push *buffered; /* where it is being kept aside */
    uint32_t *records;                       /* [distinct], in the scratch or in staged */
    float *sums; /* gradients of records; NULL: no key repeats, use the view's */
    uint32_t distinct;
    uint64_t step;
    struct sl_optimizer_state state; /* as it was when the push began */
    /* Of a section of a KV table: */
    uint32_t key;          /* at work; `done` counts the values of the section */
    uint32_t key_done;     /* values of it */
    bool asks_again;       /* the handler has said AGAIN, */
    uint64_t handled_seen; /* after so many calls that did not */
};

/* Checks the whole request against the tables (every section's shape, ownership of dense ranges)
 * before anything is changed, and computes the reply's size. payload is aligned to 8. Errors:
 * PROTOCOL, NOT_FOUND (table), WRONG_SHARD, TOO_LARGE (reply over a frame's limit); reason says
 * which section and why; *out is nobody's then. */
int sl_shard_begin(struct sl_shard *shard, const struct sl_shard_client *caller,
                   const uint8_t *payload, size_t payload_bytes, struct sl_shard_exec *out,
                   char *reason, size_t reason_bytes);

/* As above, of a request of one section that pushes (sl_request_pushes), whose payload is in two
 * places: prefix, section and sl_request_structure_bytes in `structure`, the values in `values`,
 * aligned to 8 both. What is in `values` may change at any time, as memory does that the sender
 * shares: nothing there is checked, its padding not either, and nothing rests on what was read.
 * Both stay where they are until the request is done, abandoned, or its rest moved. */
int sl_shard_begin_out_of_line(struct sl_shard *shard, const struct sl_shard_client *caller,
                               const uint8_t *structure, size_t structure_bytes,
                               const uint8_t *values, size_t values_bytes,
                               struct sl_shard_exec *out, char *reason, size_t reason_bytes);

/* A request that pulls rows of one table, few of them, and could be answered now: the most frequent
 * one by far. Many such are carried out at once, so that what they miss in the caches is fetched at
 * the same time. */
struct sl_shard_pull {
    const uint64_t *keys; /* in the request's memory */
    uint32_t key_count;   /* 1 to SL_SHARD_PULL_KEYS */
    uint32_t reply_bytes; /* at most SL_SHARD_PULL_BYTES */
    uint32_t cost;        /* in units of key_budget */
    uint16_t table_id;
};
#define SL_SHARD_PULL_KEYS  64
#define SL_SHARD_PULL_BYTES SL_LIMIT_INLINE_PAYLOAD_BYTES

/* True when the request is such a pull; false: it is another, or wrong, or must wait: ask
 * sl_shard_begin. */
bool sl_shard_pull_begin(const struct sl_shard *shard, const struct sl_shard_client *caller,
                         const uint8_t *payload, size_t payload_bytes, struct sl_shard_pull *out);

/* Where the rows are of pulls of one table, whose keys, at most SL_SHARD_PULLS_KEYS, lie one behind
 * the other; those that are missing are created. False: not all of them can be carried out, or not
 * now: begin them one by one. */
#define SL_SHARD_PULLS_KEYS 256
bool sl_shard_pulls_find(struct sl_shard *shard, uint16_t table_id, const uint64_t *keys,
                         uint32_t key_count, const float **rows);

/* The reply to one of them, whose rows those are. */
void sl_shard_pull_read(struct sl_shard *shard, uint16_t table_id, const float *const *rows,
                        uint32_t key_count, uint8_t *reply);

/* A request that pulls one long range of a dense array, or one long array of a KV table, or a piece
 * of one, and nothing else: its reply can be made part by part, front to back, each where the next
 * part is wanted. Asked before it has begun. In BSP the caller's next tick must not be carried out
 * until the reply is made. */
bool sl_shard_is_chunked(const struct sl_shard *shard, const struct sl_shard_exec *work);

/* The reply's next `bytes`, a multiple of 8 and no more than are left of work->reply_bytes, of a
 * request that streams and does not wait for clocks. Returns what it spent, in units of key_budget.
 */
uint32_t sl_shard_next_chunk(struct sl_shard *shard, struct sl_shard_exec *work, uint8_t *reply,
                             uint32_t bytes);

/* The request, just begun, has been carried out before, and only its reply was lost: it will read,
 * as it did then, and neither push nor tick again; that is what its cost is from now on. Its pulls
 * see what is there now: in BSP, whole steps, of its own iteration too where that has been complete
 * meanwhile. */
void sl_shard_skip_writes(struct sl_shard_exec *work);

/* The request, just begun, has been carried out before as far as sl_shard_written said of it then,
 * and the rest was lost: of so many of its sections the pushes and ticks are skipped. */
void sl_shard_skip_writes_before(struct sl_shard_exec *work, uint32_t sections);

/* How many sections of a request in progress have written all that they write; where a push has
 * been applied in part, that one not. To be kept with an image, in which what they wrote is, and
 * the rest not (ps/shard/snapshot.h). */
uint32_t sl_shard_written(const struct sl_shard_exec *work);

/* The request, just begun, has been carried out by another shard of the same number, and is to have
 * the same effect here: its sections before `end`, at most their number, push and tick as they did
 * there. None of them reads, none waits for clocks, and there is no reply. */
void sl_shard_apply_only(struct sl_shard_exec *work, uint32_t end);

/* Nobody wants the rest of a request in progress: it will not push or tick any more, but for the
 * push that has been applied in part. True when there is none: it can be abandoned now. Else it is
 * to be run on; then ask again. */
bool sl_shard_stop_writes(struct sl_shard_exec *work);

/* True when the rest of the request would run now without parking and within `key_budget`, in one
 * call of sl_shard_run, unless that fails; but one that is a single section for a handler may still
 * be parked, and has then changed nothing. */
bool sl_shard_ready(const struct sl_shard *shard, const struct sl_shard_exec *work,
                    uint64_t key_budget);

/* True when the next thing that the request does is to wait, for clocks, or for its handler, which
 * has said AGAIN and has done nothing since; parked_on then says where.
 * Lets who holds it park it before it has begun. */
bool sl_shard_waits(const struct sl_shard *shard, struct sl_shard_exec *work);

enum sl_shard_result {
    SL_SHARD_DONE,   /* reply[work->reply_bytes] is complete */
    SL_SHARD_AGAIN,  /* the budget is used up, or something must come first: call again */
    SL_SHARD_PARKED, /* waits: call again after sl_shard_clock_moved says so */
};

/* Goes on with the request; reply is room for work->reply_bytes (NULL: 0), the same in every call.
 * Returns an sl_shard_result, or an error (negative), which ends the request: NO_MEMORY (of the
 * tables, or of staging), WRONG_SHARD (a key; the sections before this one have been done),
 * PROTOCOL (a tick or BSP push of another clock than the worker's), NOT_FOUND (a pull of a key that
 * nobody has pushed, of a KV table), INVALID (its array has another length), the handler's.
 * *keys_spent: of the budget. */
int sl_shard_run(struct sl_shard *shard, struct sl_shard_exec *work, uint8_t *reply,
                 uint32_t key_budget, uint32_t *keys_spent, char *reason, size_t reason_bytes);

/* What a parked request has yet to read of its bytes; and moves that to `to`, room for so many
 * bytes, aligned to 8: its earlier bytes, and values that stood apart, are not needed any more. */
size_t sl_shard_rest_bytes(const struct sl_shard *shard, const struct sl_shard_exec *work);
void sl_shard_move_rest(const struct sl_shard *shard, struct sl_shard_exec *work, uint8_t *to);

/* Zeroes the padding behind values that stood apart, of a request that is one push, which lies in
 * one piece now: nobody has looked at it. */
void sl_shard_clean_padding(const struct sl_shard *shard, const struct sl_shard_exec *work,
                            uint8_t *payload, size_t payload_bytes);

/* Forgets a request that is not done: to be called when it will not be run again. A push section in
 * progress may have been applied in part. */
void sl_shard_abandon(struct sl_shard *shard, struct sl_shard_exec *work);

/* For whom, or what, a parked request waits, as text. */
void sl_shard_describe_wait(const struct sl_shard *shard, const struct sl_shard_exec *work,
                            char *text, size_t text_bytes);

/* True once after each advance of a floor, and after a handler has done something while requests
 * waited for it: parked requests may go on now, look at them. */
bool sl_shard_clock_moved(struct sl_shard *shard);

/* BSP pushes that became due are applied in slices too: while this is true,
 * sl_shard_apply_iteration must be called, and no request goes on (sl_shard_run says AGAIN).
 * Returns keys spent. */
bool sl_shard_iteration_due(const struct sl_shard *shard);
uint32_t sl_shard_apply_iteration(struct sl_shard *shard, uint32_t key_budget);

/* The least clock of all workers that this shard has heard of, or expects for some table, and that
 * have not finished, left or been lost, for the reply's header: a measurement, which goes down when
 * a worker joins behind the others. 0 before there is any; UINT32_MAX when none is left. */
uint32_t sl_shard_clock_min(const struct sl_shard *shard);

/* Where a worker stands. Its clock counts from the first while it is one of a table's worker_count,
 * until it leaves, finishes or is lost; then it may join again, at any iteration that no floor has
 * passed. While no table has a worker_count, every worker counts. worker < SL_LIMIT_WORKERS. */
struct sl_shard_worker {
    bool counts;
    uint32_t clock; /* its own where it counts; else the least at which it can join now without
                     * repeating iterations of its own, UINT32_MAX when it has finished */
};
struct sl_shard_worker sl_shard_worker_find(const struct sl_shard *shard, uint32_t worker);

/* A worker said hello: its clock is one of those of sl_shard_clock_min until it goes. */
void sl_shard_worker_seen(struct sl_shard *shard, uint32_t worker);

/* The worker counts from `clock` on for every table, also one beyond the worker_count. Accepted
 * when no floor has passed that clock, and the worker does not count, or has neither ticked nor
 * staged a push since it counts and asks for a greater clock than its own, or for just its own.
 * What it has staged of `clock` and later in an earlier life is dropped: it does that again.
 * Returns `clock` when it was accepted; else another: the clock of a worker that counts and has
 * begun, or the least at which it can join (UINT32_MAX: it has finished). Allocates. */
uint32_t sl_shard_worker_join(struct sl_shard *shard, uint32_t worker, uint32_t clock);

/* A worker has said goodbye: counts no more. What it pushed takes effect in its iteration, which
 * has ended with that: it may join behind it. No effect on a worker that is gone already; so too
 * for sl_shard_worker_expired. Requests of it that are not done should be abandoned. */
void sl_shard_worker_left(struct sl_shard *shard, uint32_t worker);

/* A worker is lost: counts no more. Of what it pushed, iterations that it did not tick here are
 * dropped whole, so that others see whole steps only. */
void sl_shard_worker_expired(struct sl_shard *shard, uint32_t worker);

/* Whether a table was opened here, or restored. */
bool sl_shard_has_tables(const struct sl_shard *shard);

/* Workers that are gone have left their job unfinished: sl_clocks_is_unfinished. */
bool sl_shard_is_unfinished(const struct sl_shard *shard);

/* To be called once a second: memory of BSP staging that has not been used for some seconds goes
 * back to the system. False: there is none to give back. */
bool sl_shard_give_back(struct sl_shard *shard);

/* Fills tables and table_count (sl_message_fini frees them). Errors: NO_MEMORY. */
int sl_shard_stats(const struct sl_shard *shard, struct sl_message_stats *out);

#endif
