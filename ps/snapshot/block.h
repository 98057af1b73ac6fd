/* The snapshot codec reads and writes single blocks of a snapshot stream: the whole state of a
 * shard, or the changes since another snapshot. Checkpoint files and replication use the same
 * bytes. Any thread, one at a time per block. Only sl_snapshot_block_create allocates.
 *
 * Order: a table's TABLE precedes its other blocks; its ERASED precede its ROWS, WAITING and
 * BUFFERED_PUSH; END is last; SESSIONS, which the server adds, may stand anywhere before END; the
 * rest is in any order. A later record of a key overwrites an
 * earlier one. A table without a TABLE block has not changed.
 *
 * A payload is `count` records, little-endian, each padded with zeros to a multiple of 8 bytes. No
 * record is longer than a block: KV arrays and buffered pushes are split into pieces.
 * `sl_snapshot_put_...` appends a record; when the block has no room, the caller starts another
 * block. `sl_snapshot_take_...` reads a record through a cursor over the payload and rejects
 * invalid values; its results point into the payload. */
#ifndef SL_PS_SNAPSHOT_BLOCK_H
#define SL_PS_SNAPSHOT_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/reason.h"
#include "net/session/message_spec.h"
#include "ps/optimizer/optimizer.h"

enum sl_snapshot_kind {
    SL_SNAPSHOT_TABLE = 1,
    SL_SNAPSHOT_ROWS,
    SL_SNAPSHOT_DENSE,
    SL_SNAPSHOT_KV,
    SL_SNAPSHOT_CLOCKS,
    SL_SNAPSHOT_BUFFERED_PUSH,
    SL_SNAPSHOT_SESSIONS,
    SL_SNAPSHOT_END,
    SL_SNAPSHOT_ERASED,
    SL_SNAPSHOT_WAITING,
};
#define SL_SNAPSHOT_KIND_COUNT  11 /* including 0, which is invalid */

#define SL_SNAPSHOT_BLOCK_BYTES (1U << 20) /* maximum payload */

struct sl_snapshot_block {
    struct sl_snapshot_block *next; /* for the block's owner to use */
    uint8_t kind;                   /* sl_snapshot_kind */
    uint32_t table_id;              /* below SL_LIMIT_TABLES; 0 in CLOCKS, SESSIONS and END */
    uint32_t count;                 /* records */
    uint32_t bytes, capacity;       /* of the payload: used, allocated */
    uint8_t *payload;               /* aligned to 8 */
};

/* Allocates an empty block and its payload in one piece of memory. Errors: NO_MEMORY. */
int sl_snapshot_block_create(uint32_t capacity, struct sl_snapshot_block **out);

/* Sets *block to NULL. */
void sl_snapshot_block_destroy(struct sl_snapshot_block **block);

/* Empties the block for records of this kind and table. */
void sl_snapshot_block_begin(struct sl_snapshot_block *block, enum sl_snapshot_kind kind,
                             uint32_t table_id);

/* Returns a name for messages, such as "rows"; "?" for an invalid kind. */
const char *sl_snapshot_kind_name(uint8_t kind);

/* Checks kind, table, length and count of a block header. Errors: CORRUPT, with the reason. */
int sl_snapshot_block_check(const struct sl_snapshot_block *block, struct sl_reason *reason);

/* Returns true when blocks of this kind belong to a table. */
bool sl_snapshot_kind_is_of_table(uint8_t kind);

static inline struct sl_bytes sl_snapshot_records(const struct sl_snapshot_block *block)
{
    return sl_bytes_over(block->payload, block->bytes);
}

/* TABLE: one record in a block of its own */

/* Layout: u32 length, u32 row_count, a Control message with a TableOpen (control.proto) of `length`
 * bytes, u64 step, 2 f32 of state, u64 pulled_rows, u64 pushed_rows. */
struct sl_snapshot_table {
    struct sl_table_spec spec;
    uint32_t row_count; /* rows of this shard's sparse table, approximately: a size hint for the
                           reader; 0: unknown */
    uint64_t step;      /* push sections applied */
    struct sl_optimizer_state state; /* state at that step */
    uint64_t pulled_rows, pushed_rows;
};

/* Begins and fills a block of at least SL_SNAPSHOT_TABLE_BYTES. */
#define SL_SNAPSHOT_TABLE_BYTES 8192
void sl_snapshot_put_table(struct sl_snapshot_block *block, uint32_t table_id,
                           const struct sl_snapshot_table *table);

/* Checks the specification (sl_message_check_spec). Errors: CORRUPT with the reason, NO_MEMORY. */
int sl_snapshot_take_table(const struct sl_snapshot_block *block, struct sl_snapshot_table *out,
                           struct sl_reason *reason);

/* ROWS and DENSE: values and slots of a sparse row or a dense block */

/* Layout: u64 key, u32 last_step, u32 count, floats[float_count] of 4 bytes, as in struct sl_row:
 * f32, or what the table's layout says (struct sl_row_layout). */
struct sl_snapshot_record {
    uint64_t key;        /* DENSE: block number in the whole array */
    uint32_t last_step;  /* as in the tables */
    uint32_t count;      /* visits */
    const float *floats; /* values, then slots, as in the tables */
};

/* Returns false when there is no room. */
bool sl_snapshot_put_record(struct sl_snapshot_block *block,
                            const struct sl_snapshot_record *record, uint32_t float_count);

/* Returns false when the payload holds no valid record. */
bool sl_snapshot_take_record(struct sl_bytes *cursor, uint32_t float_count,
                             struct sl_snapshot_record *out);

static inline size_t sl_snapshot_record_bytes(uint32_t float_count)
{
    return (size_t)sl_bytes_pad8(16 + (uint64_t)float_count * sizeof(float));
}

/* WAITING: keys that wait for admission, as in ROWS with no floats; count: how often the key was
 * pushed. In a table with BLOOM: blocks of its filter, as in DENSE. Not counted in END. */

/* Returns the elements of block `number` of a dense array; 0: no such block. */
uint32_t sl_snapshot_dense_elements(uint64_t length, uint64_t number);

/* ERASED, only in incremental snapshots: keys whose rows were erased since the base, and keys that
 * wait no more */

/* Layout: u64 key. A row that was created again later follows in ROWS, and a key that waits in
 * WAITING. Not counted in END. */
bool sl_snapshot_put_erased(struct sl_snapshot_block *block, uint64_t key);
bool sl_snapshot_take_erased(struct sl_bytes *cursor, uint64_t *key);

/* KV: a piece of an array */

/* Layout: u64 key, u32 length, u32 first, u32 count, u32 initialized_count, values[count]. */
struct sl_snapshot_kv {
    uint64_t key;
    uint32_t length;            /* of the whole array, at least 1 */
    uint32_t initialized_count; /* of the whole array, as in struct sl_kv_array; at most `length` */
    uint32_t first;             /* position of the first value in this piece */
    uint32_t count;             /* values in this piece, at least 1 */
    const void *values;
};

/* Puts as many values of the piece as fit and returns their number; 0: none. value_bytes: 1, 2 or
 * 4. */
uint32_t sl_snapshot_put_kv(struct sl_snapshot_block *block, const struct sl_snapshot_kv *piece,
                            uint32_t value_bytes);
bool sl_snapshot_take_kv(struct sl_bytes *cursor, uint32_t value_bytes, struct sl_snapshot_kv *out);

/* CLOCKS: every worker whose state is not the initial one */

/* The clock of a finished worker; equals SL_REQUEST_CLOCK_FINISHED. */
#define SL_CLOCKS_FINISHED UINT32_MAX

enum sl_clocks_state {
    SL_CLOCKS_STATE_ACTIVE, /* also when not seen yet */
    SL_CLOCKS_STATE_LEFT,
    SL_CLOCKS_STATE_EXPIRED,
    SL_CLOCKS_STATE_FINISHED,
};

/* Layout: u32 worker, u32 clock, u8 state, u8 flags (seen 1, joined 2, began 4, pushed 8), u16 0,
 * u32 0. A worker without a record is in the initial state, so each worker with a non-zero field
 * besides `worker/client` needs a record. */
struct sl_clocks_worker {
    uint32_t clock;  /* finished iterations; kept when no longer active */
    uint8_t state;   /* sl_clocks_state */
    bool seen : 1;   /* its hello, tick or join has arrived */
    bool joined : 1; /* belongs to every group */
    bool began : 1;  /* has ticked or pushed since it became active */
    bool pushed : 1; /* in the current iteration */
};

/* worker: below SL_LIMIT_WORKERS. */
bool sl_snapshot_put_clock(struct sl_snapshot_block *block, uint32_t worker,
                           const struct sl_clocks_worker *clock);
bool sl_snapshot_take_clock(struct sl_bytes *cursor, uint32_t *worker,
                            struct sl_clocks_worker *out);

/* BUFFERED_PUSH: a piece of a push that BSP buffers */

/* Layout: u32 worker, u32 clock, u64 count, u64 start, u64 first, u32 here, u32 rate (0: 1);
 * sparse: u64 keys[here], f32 gradients[here][dim]; dense: f32 gradients[here]. A worker's pushes
 * to a table are in order of arrival. The pieces of one push follow each other without other
 * BUFFERED_PUSH records between them. */
struct sl_snapshot_buffered_push {
    uint32_t worker, clock;
    uint64_t count; /* distinct keys, or elements, of the whole push; at least 1 */
    uint64_t start; /* dense: first element in the whole array; sparse: 0 */
    uint64_t first; /* position of this piece within `count` */
    uint32_t here;  /* keys or elements in this piece, at least 1; set by put */
    float rate;     /* of the learning rate; finite, above 0 */
};

/* Reserves as many keys or elements from `first` on as fit and returns their number n; 0: none. The
 * caller then writes keys[n] (dense: NULL) and gradients[n][dim]. dim: 0 for a dense table. */
uint32_t sl_snapshot_put_buffered_push(struct sl_snapshot_block *block,
                                       const struct sl_snapshot_buffered_push *piece, uint32_t dim,
                                       uint64_t **keys, float **gradients);
bool sl_snapshot_take_buffered_push(struct sl_bytes *cursor, uint32_t dim,
                                    struct sl_snapshot_buffered_push *out, const uint64_t **keys,
                                    const float **gradients);

/* SESSIONS: the server's records of its clients at the time of the snapshot */

#define SL_SNAPSHOT_FAILURES SL_LIMIT_CREDIT_REQUESTS /* maximum of one session */

struct sl_snapshot_failure {
    uint64_t id;
    int32_t err; /* an sl_err, negative */
};

/* Layout: u64 client_id, u8 role, u8 flags (heard 1, restored 2), u16 0, u32 task_index, u64
 * id_max, u64 last_write_id, u64 partial_id, u32 partial_sections, u32 failure_count, then { u64
 * id, i32 err, u32 0 } for each failure. */
struct sl_snapshot_session {
    uint64_t client_id;
    uint8_t role; /* sl_message_role: worker or client */
    bool heard;
    bool restored; /* for a backup: the session came from the checkpoint that the shard was restored
                      from */
    uint32_t task_index;
    uint64_t id_max, last_write_id;
    uint64_t partial_id;       /* of an unfinished write; 0: none */
    uint32_t partial_sections; /* leading sections of it that were applied */
    uint32_t failure_count;
    struct sl_snapshot_failure failures[SL_SNAPSHOT_FAILURES]; /* oldest first */
};

bool sl_snapshot_put_session(struct sl_snapshot_block *block,
                             const struct sl_snapshot_session *session);
bool sl_snapshot_take_session(struct sl_bytes *cursor, struct sl_snapshot_session *out);

/* END: record counts, which reveal a truncated stream */

/* Layout: u32 shard, u32 shard_count, u64 records[SL_SNAPSHOT_BUFFERED_PUSH + 1] by kind. SESSIONS
 * are not counted, because the shard does not make those blocks; nor are ERASED. */
struct sl_snapshot_end {
    uint32_t shard, shard_count; /* the shard of this snapshot */
    uint64_t records[SL_SNAPSHOT_BUFFERED_PUSH + 1];
};

/* Adds the block's records to the counts. */
void sl_snapshot_end_add(struct sl_snapshot_end *end, const struct sl_snapshot_block *block);

/* Begins and fills a block of at least SL_SNAPSHOT_END_BYTES. */
#define SL_SNAPSHOT_END_BYTES (8 + 8 * (SL_SNAPSHOT_BUFFERED_PUSH + 1))
void sl_snapshot_put_end(struct sl_snapshot_block *block, const struct sl_snapshot_end *end);
bool sl_snapshot_take_end(const struct sl_snapshot_block *block, struct sl_snapshot_end *out);

#endif
