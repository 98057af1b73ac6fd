/* A shard executes requests on the tables and worker clocks that one reactor owns. It is pure:
 * request and state give a reply and a new state, without I/O, time or threads. The server passes
 * in bytes and sends the replies. Owner reactor. Allocates at create, when tables open or grow, and
 * where stated.
 *
 * Work is sliced: sl_shard_run spends at most `budget`. Costs: a key 1 per started 256 bytes of
 * its row, 1024 dense elements 16, a section 1. A sparse push of up to 1024 keys and 256 KiB always
 * runs in one slice, so small pushes never wait for working memory. A longer one, an erase, and a
 * KV push of more than 256 keys own the only large scratch until they are done; others of these get
 * AGAIN and spend nothing. A dense push needs no scratch. Sections run in order. A section that
 * must wait for clocks (BSP, SSP) parks its request; later requests of the connection may run. */
#ifndef SL_PS_SHARD_SHARD_H
#define SL_PS_SHARD_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/bytes.h"
#include "core/flags.h"
#include "core/reason.h"
#include "net/session/message.h"
#include "net/wire/request.h"
#include "ps/optimizer/optimizer.h"
#include "ps/shard/client.h"
#include "ps/shard/main_section.h"

struct sl_kv_answer;
struct sl_kv_handler;
struct sl_kv_token;
struct sl_shard;
struct sl_shard_scratch;
struct sl_shard_whole;
struct sl_shard_buffered_push;

struct sl_shard_options {
    uint32_t index, count;        /* this shard, and shards of the cluster: core/partition.h */
    size_t memory_bytes_max;      /* limit for all tables; 0: none */
    size_t push_buffer_bytes_max; /* limit for buffered BSP pushes; 0: 256 MiB */
    size_t snapshot_bytes_max;    /* limit for blocks of a snapshot; 0: 128 MiB, not counted */
    bool limit_covers_all; /* memory_bytes_max also covers the push buffer and what tables need
                              besides their values */
    const struct sl_kv_handler *kv_handler; /* starling_kv.h: handles all KV tables, outlives the
                                               shard; without `handle`, their requests wait until
                                               it is set; NULL: KV tables store arrays */
    uint64_t copy; /* names this copy of the shard in cursors of scans; no other copy has it */
};

/* Errors: NO_MEMORY. */
int sl_shard_create(const struct sl_shard_options *options, struct sl_shard **out);
void sl_shard_destroy(struct sl_shard **shard);

/* Creates or checks the table. Of a table that was loaded, another policy replaces the policy,
 * once; a snapshot in progress fails then. Errors: INVALID, NO_MEMORY, EXISTS (another
 * specification, or the name or id belongs to another table), CANCELLED (a push in progress uses
 * the old policy: open it again). reason: the difference. */
int sl_shard_table_open(struct sl_shard *shard, uint32_t table_id, const struct sl_table_spec *spec,
                        struct sl_reason *reason);

/* A request in progress. The caller provides the memory. It and the request's bytes must not move
 * until the request is done or abandoned, also while parked. */
enum sl_shard_request_flag {
    SL_SHARD_IN_SECTION = 1,    /* view is valid and partly done */
    SL_SHARD_OUT_OF_LINE = 2,   /* values do not follow the structure: sl_shard_begin_out_of_line */
    SL_SHARD_WRITES = 4,        /* contains a push or a tick */
    SL_SHARD_IN_PART = 8,       /* its push is partly applied between slices */
    SL_SHARD_READS = 16,        /* else it only writes, without a reply: sl_shard_apply_only */
    SL_SHARD_WANTS_FINITE = 32, /* some section needs sl_shard_check_finite */
    SL_SHARD_PLAIN = 64,        /* waits for no clock and needs no shared working memory */
    SL_SHARD_ASKS_AGAIN = 128,  /* KV table: the handler has returned AGAIN */
    SL_SHARD_KEPT = 256,        /* it waits for its handler's answer, and needs no bytes any more */
    SL_SHARD_KEPT_PUSH = 512,   /* the handler has got its push, which counts as done */
};

struct sl_shard_request {
    struct sl_bytes cursor; /* at the next section */
    struct sl_shard_client caller;
    struct sl_request_prefix prefix; /* a tick advances clock */
    uint32_t sections_left;
    uint32_t flags;                   /* of enum sl_shard_request_flag */
    uint32_t write_from, write_to;    /* sections whose writes are not skipped: [from, to) */
    uint32_t effect_end, effect_left; /* end of the last section that wrote; bytes behind it */
    struct sl_request_view view;
    uint64_t cost, push_cost; /* in units of the budget: of the request, and of its pushes */
    struct sl_shard_main_section main;
    uint64_t done;                    /* keys or elements done in this phase of the section */
    uint64_t reply_done, reply_bytes; /* of earlier sections, and of the complete reply */
    const void *answer; /* after DONE: the reply, permanently valid in the handler's memory; NULL:
                           the reply is in sl_shard_run's `reply` */
    uint32_t parked_on; /* id of the table that it waits for */
    uint8_t phase;      /* of a section: sl_shard_phase in section.h */
    uint32_t bags_done; /* pooled pull; of a scan: rows */
    /* Push in progress: */
    struct {
        struct sl_shard_scratch *scratch;        /* owned by this push */
        struct sl_shard_buffered_push *buffered; /* buffer entry being filled */
        uint32_t *records;     /* [distinct] record indexes, in the scratch or the buffer entry */
        uint32_t *created_end; /* behind the scratch's notes of rows that this push has created */
        uint32_t *waiting;     /* the first of its notes of keys that wait */
        float *sums; /* gradients of records; NULL: no key repeats, so the view's gradients apply */
        uint32_t distinct;
        struct sl_optimizer_push optimizer;
    } push;
    /* Section of a KV table: */
    uint32_t key;          /* current key; `done` counts values of the section */
    uint32_t key_done;     /* values of that key done */
    uint64_t handled_seen; /* `handled` of the shard at that time */
    struct {
        struct sl_kv_token *token;         /* that the handler has kept; NULL: none */
        const struct sl_kv_answer *answer; /* to it; NULL: none yet */
        struct sl_shard_whole *whole;      /* array that the section is a chunk of; NULL: none */
    } kept;
};

/* Prepares a request. Checks form, tables, dense ranges and reply size of all its sections;
 * sl_shard_run checks the owner of keys. payload is aligned to 8. After an error *request is unused
 * and reason names the section and the cause. Errors: PROTOCOL, NOT_FOUND (table), WRONG_SHARD,
 * TOO_LARGE (reply over a frame's limit). */
int sl_shard_begin(struct sl_shard *shard, const struct sl_shard_client *caller,
                   const uint8_t *payload, size_t payload_bytes, struct sl_shard_request *request,
                   struct sl_reason *reason);

/* As above, for a single pushing section (sl_request_pushes) whose payload is in two places.
 * `structure` has prefix, section and sl_request_structure_bytes; `values` has the values; both are
 * aligned to 8. `values` may be memory shared with the sender, which may change at any time:
 * neither values nor padding are checked or trusted. Both must not move until the request is done,
 * abandoned, or moved (sl_shard_move_rest). */
int sl_shard_begin_out_of_line(struct sl_shard *shard, const struct sl_shard_client *caller,
                               const uint8_t *structure, size_t structure_bytes,
                               const uint8_t *values, size_t values_bytes,
                               struct sl_shard_request *request, struct sl_reason *reason);

/* Returns true when the reply can be made in chunks, from start to end, each just before it is
 * sent. The request has not run, and contains only a pull of at least 128 KiB: of one dense range,
 * or of one KV array or a chunk of it. In BSP, the caller must not execute the client's next tick
 * before the reply is complete. */
bool sl_shard_is_chunked(const struct sl_shard *shard, const struct sl_shard_request *request);

/* Returns true when the table of a chunked reply was dropped: it cannot be completed. */
bool sl_shard_is_dropped(const struct sl_shard *shard, const struct sl_shard_request *request);

/* Writes the next `bytes` of a chunked reply: a multiple of 8, at most the rest of
 * request->reply_bytes. The request waits for no clock. Returns the cost in units of the budget. */
uint32_t sl_shard_next_chunk(struct sl_shard *shard, struct sl_shard_request *request,
                             uint8_t *reply, uint32_t bytes);

/* Finds the next values of a chunked reply of f32 or of what the table stores, of at most
 * bytes_max, in the table, where they remain until the shard runs something else. Returns the
 * number of parts, at most parts_max. Pass: the first `bytes` of them, a multiple of 8, were sent.
 * Returns the cost. */
uint32_t sl_shard_next_values(const struct sl_shard *shard, struct sl_shard_request *request,
                              uint64_t bytes_max, struct iovec *parts, uint32_t parts_max);
uint32_t sl_shard_pass_values(struct sl_shard *shard, struct sl_shard_request *request,
                              uint32_t bytes);

/* Skips all pushes and ticks of a request just prepared: it was executed before and only its
 * reply was lost. Reduces its cost accordingly. Its pulls show the present state; in BSP whole
 * iterations, including its own if that has been applied meanwhile. */
void sl_shard_skip_writes(struct sl_shard_request *request);

/* Skips pushes and ticks of the first `sections` sections of a request just prepared.
 * sl_shard_written returned that number when the request was executed before and interrupted. */
void sl_shard_skip_writes_before(struct sl_shard_request *request, uint32_t sections);

/* Returns true after sl_shard_skip_writes and sl_shard_stop_writes. */
static inline bool sl_shard_skips_writes(const struct sl_shard_request *request)
{
    return request->write_to == 0;
}

/* Returns the number of sections that have done all their writes; a partly applied push is not
 * done. Store it with a snapshot, which contains exactly those writes (ps/shard/snapshot.h). */
uint32_t sl_shard_written(const struct sl_shard_request *request);

/* Repeats the writes of a request that another copy of this shard has executed. The request is
 * just prepared. Its sections before `end` (at most their number) push and tick as they did there.
 * It reads nothing, never waits for clocks, and has no reply. */
void sl_shard_apply_only(struct sl_shard_request *request, uint32_t end);

/* Stops further pushes and ticks of a request whose client is gone, except for a partly applied
 * push. Returns true when the request can be abandoned now; false: run it on, then call again. */
bool sl_shard_stop_writes(struct sl_shard_request *request);

/* Returns true when one sl_shard_run would finish the request within `budget` without parking,
 * unless it fails. A single section for a handler may still be parked, without having changed
 * anything. */
bool sl_shard_ready(const struct sl_shard *shard, const struct sl_shard_request *request,
                    uint64_t budget);

/* Returns true when the request would next wait for clocks, or for a handler that returned AGAIN
 * and has handled nothing since. Sets parked_on. The caller can then park it at once. */
bool sl_shard_waits(const struct sl_shard *shard, struct sl_shard_request *request);

enum sl_shard_result {
    SL_SHARD_DONE,   /* reply[request->reply_bytes] is complete */
    SL_SHARD_AGAIN,  /* budget used up, or other work must come first: call again */
    SL_SHARD_PARKED, /* waiting: call again after sl_shard_take_wakeup */
};

/* Continues the request. reply has room for request->reply_bytes (0: NULL) and is the same in every
 * call. *cost: what it spent of the budget. Returns an sl_shard_result, or a negative error that
 * ends the request: NO_MEMORY (tables or push buffer), WRONG_SHARD (a key; earlier sections are
 * done), PROTOCOL (tick or BSP push of another clock than the worker's), NOT_FOUND (KV pull of a
 * key never pushed), INVALID (another array length; a precision other than f32 for a handler), or
 * the handler's error.
 *
 * Push: each record is updated once per section, with the summed gradients of its key. All keys are
 * looked up before the first update, so a failed section has only created rows. NaN and
 * infinity are applied like other values: with SL_SHARD_WANTS_FINITE the caller first calls
 * sl_shard_check_finite. An assign is a push that replaces values and resets slots, and
 * is never buffered. A table's step counts its push sections on this shard, with the current one.
 *
 * KV tables (ps/table/kv_table.h) never wait for clocks. A pushing section checks all keys before
 * it creates or changes an array: in one slice for up to 256 keys, else with the large scratch.
 * Long arrays are updated in slices, so other requests may see them partly updated. With a handler,
 * each section is one call, however long; AGAIN parks the request until another call is handled.
 * SL_KV_LATER parks a request of one section, with kept.token, until kept.answer is set. */
int sl_shard_run(struct sl_shard *shard, struct sl_shard_request *request, uint8_t *reply,
                 uint32_t budget, uint32_t *cost, struct sl_reason *reason);

/* Size of the request's bytes that are still needed, and their move to `to`, which has that size
 * and is aligned to 8. Afterwards the request needs neither its earlier bytes nor out-of-line
 * values. */
size_t sl_shard_rest_bytes(const struct sl_shard *shard, const struct sl_shard_request *request);
void sl_shard_move_rest(const struct sl_shard *shard, struct sl_shard_request *request,
                        uint8_t *to);

/* Zeroes the unchecked padding after the values of a single push that is now in one piece. */
void sl_shard_clean_padding(const struct sl_shard *shard, const struct sl_shard_request *request,
                            uint8_t *payload, size_t payload_bytes);

/* Releases an unfinished request that will not run again. Its current push may be partly
 * applied. */
void sl_shard_abandon(struct sl_shard *shard, struct sl_shard_request *request);

/* Describes the worker or handler that a parked request waits for. */
void sl_shard_describe_wait(const struct sl_shard *shard, const struct sl_shard_request *request,
                            char *text, size_t text_bytes);

/* Returns true once after an increase of a min_clock, and after a handler has handled a request
 * while others waited: retry parked requests. */
bool sl_shard_take_wakeup(struct sl_shard *shard);

/* Due BSP pushes are applied in slices too. While sl_shard_iteration_due is true, call
 * sl_shard_apply_iteration; sl_shard_run returns AGAIN meanwhile. Returns the cost. */
bool sl_shard_iteration_due(const struct sl_shard *shard);
uint32_t sl_shard_apply_iteration(struct sl_shard *shard, uint32_t budget);

/* Returns sl_clocks_min_of_all, for the reply header. */
uint32_t sl_shard_clock_min(const struct sl_shard *shard);

/* State of a worker: sl_clocks_is_active. worker < SL_LIMIT_WORKERS. */
struct sl_shard_worker {
    bool active;
    uint32_t clock; /* active: its own clock; else the smallest at which it can join without
                       repeating its iterations; SL_REQUEST_CLOCK_FINISHED: it has finished */
};
struct sl_shard_worker sl_shard_worker_find(const struct sl_shard *shard, uint32_t worker);

/* Records a worker's hello: sl_shard_clock_min includes it while it is active. */
void sl_shard_worker_seen(struct sl_shard *shard, uint32_t worker);

/* Activates a worker for every table, from `clock` on, also one beyond worker_count: conditions and
 * result are those of sl_clocks_join. Drops its buffered pushes of `clock` and later from before it
 * was inactive, because it will repeat them. Allocates. */
uint32_t sl_shard_worker_join(struct sl_shard *shard, uint32_t worker, uint32_t clock);

/* Deactivates a worker that left. Its pushes take effect in their iteration, which ends now; the
 * worker may join after it. No effect on an inactive worker; the same holds for
 * sl_shard_worker_expired. The caller should abandon its unfinished requests. */
void sl_shard_worker_left(struct sl_shard *shard, uint32_t worker);

/* Deactivates an expired worker. Drops its buffered pushes of iterations that it did not tick, so
 * that other workers see only whole iterations. */
void sl_shard_worker_expired(struct sl_shard *shard, uint32_t worker);

/* Returns true when a table was opened or restored. */
bool sl_shard_has_tables(const struct sl_shard *shard);

/* Returns true when departed workers left their job unfinished: sl_clocks_is_unfinished. */
bool sl_shard_is_unfinished(const struct sl_shard *shard);

/* sl_shard_push_buffer_give_back of its push buffer. */
bool sl_shard_give_back(struct sl_shard *shard);

/* Fills tables and table_count; sl_message_fini frees them. Errors: NO_MEMORY. */
int sl_shard_stats(const struct sl_shard *shard, struct sl_message_stats *out);

#endif
