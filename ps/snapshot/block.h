/* The image of a shard: a sequence of blocks that says all that the shard is, or what has changed
 * in it since another image. The same bytes lie in a checkpoint's file and go over the wire. This
 * is the codec of single blocks: who makes an image puts records into blocks, who reads one takes
 * them out. Pure but for sl_snapshot_block_create and what protobuf-c allocates for a TABLE. Any
 * thread, one at a time for a block.
 *
 * Order of an image: a table's TABLE comes before any other block of the table; an END comes last;
 * SESSIONS, which are the server's, stand anywhere before it; the rest is in any order. A later
 * record of the same key overwrites the earlier one. Of a table that the image does not name,
 * nothing has changed.
 *
 * A payload is `count` records one behind the other, each a multiple of 8 bytes long,
 * little-endian, what is not used zero. No record is longer than a block: KV arrays and staged
 * pushes are cut into pieces. `sl_snapshot_put_...` appends a record, and says so when the block
 * has no room for it; then another block is to be begun. `sl_snapshot_take_...` reads one through a
 * cursor over the payload, and finds whatever is outside what is accepted: what it gives out points
 * into the payload. */
#ifndef SL_PS_SNAPSHOT_BLOCK_H
#define SL_PS_SNAPSHOT_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/err.h"
#include "net/control/message.h"
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
};
#define SL_SNAPSHOT_KIND_COUNT  9 /* 0, which is none, included */

#define SL_SNAPSHOT_BLOCK_BYTES (1U << 20) /* the longest payload */

struct sl_snapshot_block {
    struct sl_snapshot_block *next; /* for who holds it */
    uint8_t kind;                   /* sl_snapshot_kind */
    uint32_t table_id;              /* below SL_LIMIT_TABLES; 0 in CLOCKS, SESSIONS and END */
    uint32_t count;                 /* records */
    uint32_t bytes, capacity;       /* of the payload: used, and there */
    uint8_t *payload;               /* aligned to 8 */
};

/* An empty block of that capacity, its payload included in one piece of memory. Errors: NO_MEMORY.
 */
int sl_snapshot_block_create(uint32_t capacity, struct sl_snapshot_block **out);

/* Nulls *block. */
void sl_snapshot_block_destroy(struct sl_snapshot_block **block);

/* Empties the block for records of that kind and table. */
void sl_snapshot_block_begin(struct sl_snapshot_block *block, enum sl_snapshot_kind kind,
                             uint32_t table_id);

/* "rows", for messages; "?" for what is none. */
const char *sl_snapshot_kind_name(uint8_t kind);

/* Checks what a block says of itself: kind, table, length, count. Errors: CORRUPT, and reason says
 * what was wrong. */
int sl_snapshot_block_check(const struct sl_snapshot_block *block, char *reason,
                            size_t reason_bytes);

static inline struct sl_bytes sl_snapshot_records(const struct sl_snapshot_block *block)
{
    return sl_bytes_over(block->payload, block->bytes);
}

/* ---- TABLE: one record, in a block of its own ------------------------------------------------ */

/* A u32 length and u32 row_count, a Control message with a TableOpen (control.proto) of so many
 * bytes; u64 step, 2 f32 of state, u64 pulled_rows, u64 pushed_rows. */
struct sl_snapshot_table {
    struct sl_table_spec spec;
    uint32_t row_count; /* of a sparse table of this shard, about: who reads makes ready for them;
                           0: it is not known */
    uint64_t step;      /* push sections applied */
    struct sl_optimizer_state state; /* what belongs to that step */
    uint64_t pulled_rows, pushed_rows;
};

/* Fills a block of at least SL_SNAPSHOT_TABLE_BYTES, which it begins. */
#define SL_SNAPSHOT_TABLE_BYTES 1024
void sl_snapshot_put_table(struct sl_snapshot_block *block, uint32_t table_id,
                           const struct sl_snapshot_table *table);

/* The specification is checked (sl_message_check_spec). Errors: CORRUPT with the reason,
 * NO_MEMORY. */
int sl_snapshot_take_table(const struct sl_snapshot_block *block, struct sl_snapshot_table *out,
                           char *reason, size_t reason_bytes);

/* ---- ROWS and DENSE: values and slots of one sparse row, or of one block of a dense array ------
 */

/* u64 key, u32 last_step, u32 count, f32 floats[float_count]: as struct sl_row. */
struct sl_snapshot_record {
    uint64_t key;        /* DENSE: number of the block in the whole array */
    uint32_t last_step;  /* as in the stores */
    uint32_t count;      /* visits */
    const float *floats; /* the values, then the slots, as they lie in the stores */
};

/* False: no room. */
bool sl_snapshot_put_record(struct sl_snapshot_block *block,
                            const struct sl_snapshot_record *record, uint32_t float_count);

/* False: the payload has no such record. */
bool sl_snapshot_take_record(struct sl_bytes *cursor, uint32_t float_count,
                             struct sl_snapshot_record *out);

static inline size_t sl_snapshot_record_bytes(uint32_t float_count)
{
    return (size_t)sl_bytes_pad8(16 + (uint64_t)float_count * sizeof(float));
}

/* Elements of block `number` of a dense array; 0: it has no such block. */
uint32_t sl_snapshot_dense_elements(uint64_t length, uint64_t number);

/* ---- KV: a piece of an array ------------------------------------------------------------------
 */

/* u64 key, u32 length, u32 first, u32 count, u32 written, values[count]. */
struct sl_snapshot_kv {
    uint64_t key;
    uint32_t length;            /* of the whole array, 1 at least */
    uint32_t initialized_count; /* of the whole array, as in struct sl_kv_array: at most `length` */
    uint32_t first;             /* value of it that is the first here */
    uint32_t count;             /* values here, 1 at least */
    const void *values;
};

/* Puts as many of the piece's values as there is room for; returns how many, 0: none. value_bytes:
 * 1 or 4. */
uint32_t sl_snapshot_put_kv(struct sl_snapshot_block *block, const struct sl_snapshot_kv *piece,
                            uint32_t value_bytes);
bool sl_snapshot_take_kv(struct sl_bytes *cursor, uint32_t value_bytes, struct sl_snapshot_kv *out);

/* ---- CLOCKS: every worker of which anything is known ------------------------------------------
 */

/* The clock of a worker that has finished; equals SL_REQUEST_CLOCK_FINISHED. */
#define SL_CLOCKS_FINISHED UINT32_MAX

enum sl_clocks_state {
    SL_CLOCKS_STATE_ACTIVE, /* or still expected */
    SL_CLOCKS_STATE_LEFT,
    SL_CLOCKS_STATE_EXPIRED,
    SL_CLOCKS_STATE_FINISHED,
};

/* u32 worker, u32 clock, u8 standing, u8 flags (heard 1, joined 2, began 4, pushed 8), u16 0, u32
 * 0. A worker that is not named stands as one that has never been heard of: so that every one has
 * to be for which any field here but `worker` is not 0. */
struct sl_snapshot_clock {
    uint32_t worker; /* below SL_LIMIT_WORKERS */
    uint32_t clock;
    uint8_t state; /* sl_clocks_state */
    bool seen, joined, began, pushed;
};

bool sl_snapshot_put_clock(struct sl_snapshot_block *block, const struct sl_snapshot_clock *clock);
bool sl_snapshot_take_clock(struct sl_bytes *cursor, struct sl_snapshot_clock *out);

/* ---- STAGED: a piece of a push that BSP keeps aside -------------------------------------------
 */

/* u32 worker, u32 clock, u64 count, u64 start, u64 first, u32 here, u32 0; sparse: u64 keys[here],
 * f32 gradients[here][dim]; dense: f32 gradients[here]. A worker's pushes to a table stand in the
 * order of arrival; the pieces of one follow each other, with no STAGED record between them. */
struct sl_snapshot_buffered_push {
    uint32_t worker, clock;
    uint64_t count; /* distinct keys, or elements, of the whole push; 1 at least */
    uint64_t start; /* dense: its first element in the whole array; sparse: 0 */
    uint64_t first; /* of `count` that is the first here */
    uint32_t here;  /* 1 at least; who puts a piece does not set it */
};

/* Room for as many keys or elements from `first` on as there is room for: returns how many, 0:
 * none. They are to be written to keys[n] (dense: NULL) and gradients[n][dim]. dim: of a sparse
 * table; dense: 0. */
uint32_t sl_snapshot_put_buffered_push(struct sl_snapshot_block *block,
                                       const struct sl_snapshot_buffered_push *piece, uint32_t dim,
                                       uint64_t **keys, float **gradients);
bool sl_snapshot_take_buffered_push(struct sl_bytes *cursor, uint32_t dim,
                                    struct sl_snapshot_buffered_push *out, const uint64_t **keys,
                                    const float **gradients);

/* ---- SESSIONS: what the server knows of a client, at the moment of the cut
 * ----------------------------------------------
 */

#define SL_SNAPSHOT_FAILURES SL_LIMIT_CREDIT_REQUESTS /* of one session, at most */

struct sl_snapshot_failure {
    uint64_t id;
    int32_t err; /* an sl_err, negative */
};

/* u64 client_id, u8 role, u8 flags (heard 1, restored 2), u16 0, u32 task_index, u64 id_max, u64
 * last_write_id, u64 partial_id, u32 partial_sections, u32 failure_count, { u64 id, i32 err, u32 0
 * } each. */
struct sl_snapshot_session {
    uint64_t client_id;
    uint8_t role; /* sl_message_role: a worker or a client */
    bool heard;
    bool restored; /* for a backup: the shard began from a checkpoint, which had it */
    uint32_t task_index;
    uint64_t id_max, last_write_id;
    uint64_t partial_id;       /* of a write that was not done; 0: none had begun */
    uint32_t partial_sections; /* of it, the first so many had written what they write */
    uint32_t failure_count;
    struct sl_snapshot_failure failures[SL_SNAPSHOT_FAILURES]; /* the longest known first */
};

bool sl_snapshot_put_session(struct sl_snapshot_block *block,
                             const struct sl_snapshot_session *session);
bool sl_snapshot_take_session(struct sl_bytes *cursor, struct sl_snapshot_session *out);

/* ---- END: how much the image holds, so that one which was cut short is known ------------------
 */

/* u32 shard, u32 shard_count, u64 records[SL_SNAPSHOT_BUFFERED_PUSH + 1] by kind. SESSIONS are not
 * counted: who makes the shard's blocks does not make those. */
struct sl_snapshot_end {
    uint32_t shard, shard_count; /* the shard that the image is of */
    uint64_t records[SL_SNAPSHOT_BUFFERED_PUSH + 1];
};

/* Counts the block's records. */
void sl_snapshot_end_add(struct sl_snapshot_end *end, const struct sl_snapshot_block *block);

/* Fills a block of at least SL_SNAPSHOT_END_BYTES, which it begins. */
#define SL_SNAPSHOT_END_BYTES (8 + 8 * (SL_SNAPSHOT_BUFFERED_PUSH + 1))
void sl_snapshot_put_end(struct sl_snapshot_block *block, const struct sl_snapshot_end *end);
bool sl_snapshot_take_end(const struct sl_snapshot_block *block, struct sl_snapshot_end *out);

#endif
