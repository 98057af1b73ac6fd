/* The payload of a request and of its reply. Specified in docs/protocol.md. Pure functions.
 *
 * A request is a prefix and a sequence of sections, each an operation on one table, executed in
 * order. A reply with status 0 holds only the results of the reading sections, in their order, each
 * padded with zeros to a multiple of 8 bytes: the request determines its shape.
 *
 *   op               body of the section, each array padded to 8 bytes      returns
 *   PULL             keys u64[key_count]                                    f32[key_count][dim]
 *   PULL_POOLED      keys, then bag_ends u32[bag_count] (sums, never means) f32[bag_count][dim]
 *   PUSH             keys, then gradients f32[key_count][dim]               -
 *   PUSH_PULL        as PUSH                                                f32[key_count][dim]
 *   DENSE_PULL       -                                                      f32[count]
 *   DENSE_PUSH       gradients f32[count]                                   -
 *   DENSE_PUSH_PULL  as DENSE_PUSH                                          f32[count]
 *   TICK             -                                                      -
 *   KV_PUSH          keys, lens u32[key_count] if LENS, then values         -
 *   KV_PULL          keys, lens if LENS                                     values[count]
 *   KV_PUSH_PULL     as KV_PUSH                                             values[count]
 *   KV_LENGTHS       keys                                                   u32[key_count]
 *   ASSIGN           keys, then rows f32[key_count][dim]                    -
 *   DENSE_ASSIGN     values f32[count]                                      -
 *   ERASE            keys                                                   -
 *   FIND             keys                                                   f32[key_count][dim],
 *                                                                           u8[key_count]
 *   SCAN             struct sl_request_scan                                 see below
 *   EVICT            -                                                      u64: rows evicted
 * The f32 values that a push carries, and those that a pull returns, may have another precision
 * each (core/precision.h): the section's flags state it. Rows and bags are rows then; values of
 * dense and KV tables are an array in rows of SL_PRECISION_ARRAY_ROW, and are not returned as INT8.
 * ASSIGN, DENSE_ASSIGN, FIND and SCAN have f32.
 * In a KV table each key has an array of values; the table's dim is 1, 2 or 4, the bytes of a
 * value. A KV section has at least one key, an array at least one value and at most 2^32 - 1. A
 * section of whole arrays has `count` values in total: lens[i] for key i, or without LENS count /
 * key_count for each key; start and bag_count are 0. A chunk of an array too long for one message
 * is a section of one key without LENS: `count` values from `start` on, of bag_count values in the
 * whole array.
 *
 * A KV_PULL with LENGTHS has room for count / key_count values of each key and also returns u32
 * lengths[key_count]: 0 of a key without an array. Longer arrays and the rest of the room are
 * zeros.
 *
 * A TICK finishes the request's clock for the sender; later sections belong to the next clock.
 * ERASE removes the rows of its keys from a sparse table, at once in every consistency mode. FIND
 * is a PULL that also returns which keys have a row: 1, else 0.
 *
 * SCAN returns up to `count` rows of a sparse table, of the records from `start` on: struct
 * sl_request_scanned, keys u64[count], struct sl_request_scan_mark[count], and values
 * f32[count][bag_count], zeros behind the last row. bag_count is dim, or dim and the floats of the
 * optimizer's slots, or anything when count is 0. Only rows that were pushed `command` times or
 * more are returned.
 * EVICT judges each row of a sparse table once: `command` is the ttl_steps, bag_count the
 * count_below and start the bits of the l2_below of struct sl_policy_spec. Without any of them, the
 * thresholds of the table's policy apply.
 * All keys, and a whole dense range, belong to the shard of the connection. */
#ifndef SL_NET_WIRE_REQUEST_H
#define SL_NET_WIRE_REQUEST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/err.h"
#include "core/precision.h"
#include "core/rate.h"
#include "net/wire/frame.h"

enum sl_request_op {
    SL_REQUEST_PULL = 1,
    SL_REQUEST_PULL_POOLED = 2,
    SL_REQUEST_PUSH = 3,
    SL_REQUEST_PUSH_PULL = 4,
    SL_REQUEST_DENSE_PULL = 5,
    SL_REQUEST_DENSE_PUSH = 6,
    SL_REQUEST_DENSE_PUSH_PULL = 7,
    SL_REQUEST_TICK = 8,
    SL_REQUEST_KV_PUSH = 9,
    SL_REQUEST_KV_PULL = 10,
    SL_REQUEST_KV_PUSH_PULL = 11,
    SL_REQUEST_KV_LENGTHS = 12,
    SL_REQUEST_ASSIGN = 13,
    SL_REQUEST_DENSE_ASSIGN = 14,
    SL_REQUEST_ERASE = 15,
    SL_REQUEST_FIND = 16,
    SL_REQUEST_SCAN = 17,
    SL_REQUEST_EVICT = 18,
};

/* Section flags */
#define SL_REQUEST_FLAG_LENS      1U  /* KV: each key has its own number of values */
#define SL_REQUEST_FLAG_LENGTHS   2U  /* KV_PULL: the reply has the lengths of the arrays */
#define SL_REQUEST_FLAG_ZEROS     64U /* KV_PULL: values of a key without an array are 0 */
#define SL_REQUEST_PUSHED_SHIFT   2   /* two bits: sl_precision of the values pushed */
#define SL_REQUEST_RETURNED_SHIFT 4   /* two bits: of the values returned */

struct sl_request_prefix {
    uint32_t section_count; /* 1 to SL_LIMIT_REQUEST_SECTIONS */
    uint32_t clock;         /* iteration of the sections up to the first tick */
};
static_assert(sizeof(struct sl_request_prefix) == 8, "request prefix size");

/* The clock of a worker that will push no more. */
#define SL_REQUEST_CLOCK_FINISHED UINT32_MAX

struct sl_request_section {
    uint8_t op;        /* sl_request_op */
    uint8_t flags;     /* as above */
    uint16_t table_id; /* TICK: 0 */
    uint32_t key_count;
    uint32_t bag_count; /* PULL_POOLED: bags; KV chunk: values of the whole array; SCAN: floats of a
                           row; EVICT: count_below; else 0 */
    uint32_t command;   /* KV: passed to the request handler; sparse and dense pushes: bits of the
                           rate, core/rate.h; SCAN: least pushes of a row; EVICT: ttl_steps;
                           else 0 */
    uint64_t start;     /* dense: first element; KV chunk: first value; SCAN: record; EVICT: bits of
                           l2_below; else 0 */
    uint64_t count;     /* dense: elements; KV: values; SCAN: rows at most; else 0 */
};
static_assert(sizeof(struct sl_request_section) == 32, "request section size");
static_assert(offsetof(struct sl_request_section, start) == 16, "request section layout");

static inline enum sl_precision sl_request_pushed(const struct sl_request_section *section)
{
    return (enum sl_precision)(section->flags >> SL_REQUEST_PUSHED_SHIFT & 3);
}

static inline enum sl_precision sl_request_returned(const struct sl_request_section *section)
{
    return (enum sl_precision)(section->flags >> SL_REQUEST_RETURNED_SHIFT & 3);
}

/* Most keys of a bag that is not returned as f32: the shard sums it at once. */
#define SL_REQUEST_NARROW_BAG_KEYS_MAX 4096U

/* Most rows of a SCAN. */
#define SL_REQUEST_SCAN_ROWS_MAX       4096

/* Largest ttl_steps of an EVICT: steps are counted modulo 2^32. */
#define SL_REQUEST_EVICT_STEPS_MAX     (1U << 31)

/* Returns the l2_below of an EVICT. */
static inline float sl_request_evict_l2(const struct sl_request_section *section)
{
    const uint32_t bits = (uint32_t)section->start;
    float l2_below;
    memcpy(&l2_below, &bits, sizeof l2_below);
    return l2_below;
}

/* Body of a SCAN. */
struct sl_request_scan {
    uint64_t copy;  /* of an earlier reply: the record numbers are those of this copy; 0: any */
    uint64_t end;   /* records below */
    uint64_t since; /* rows pushed or assigned after this step of the table; 0: all */
};

struct sl_request_scanned {
    uint64_t copy;    /* of the shard; changes with a restart, a restore and a takeover */
    uint64_t next;    /* record to go on from; `end` of the request: there are no more rows */
    uint64_t records; /* of the table, also unused ones */
    uint64_t step;    /* of the table */
    uint32_t row_count;
    uint32_t width_max; /* floats of a row with its slots */
};
static_assert(sizeof(struct sl_request_scanned) == 40, "head of a scan's reply");

struct sl_request_scan_mark {
    uint32_t last_step; /* of the table at the last push or assign, modulo 2^32 */
    uint32_t count;     /* pushes */
};

/* A decoded section; the pointers are into the request, aligned to 8. */
struct sl_request_view {
    struct sl_request_section section;
    const uint64_t *keys;
    const uint32_t *bag_ends;
    const float *gradients; /* ASSIGN, DENSE_ASSIGN: the new values; NULL: encoded */
    const void *encoded;    /* pushed f32 values in another precision; else NULL */
    const uint32_t *lens;   /* KV with LENS */
    const void *values;     /* KV: pushed values; NULL: encoded */
    const struct sl_request_scan *scan;
};

/* A request whose only section is a PULL. */
struct sl_request_pull {
    const uint64_t *keys; /* in the request, aligned to 8 */
    uint32_t key_count;
    uint32_t clock;
    uint16_t table_id;
};

/* Bytes of a section's body and reply, given the table's dim (dense tables: 0); result: without the
 * padding at its end. Counts up to 2^36 and dims up to SL_LIMIT_DIM cannot overflow. */
uint64_t sl_request_body_bytes(const struct sl_request_section *section, uint32_t dim);
uint64_t sl_request_reply_bytes(const struct sl_request_section *section, uint32_t dim);
uint64_t sl_request_result_bytes(const struct sl_request_section *section, uint32_t dim);

/* Bytes of the two parts of a section's body: keys, bags and lens; and pushed values, without their
 * padding. */
uint64_t sl_request_structure_bytes(const struct sl_request_section *section);
uint64_t sl_request_values_bytes(const struct sl_request_section *section, uint32_t dim);

/* For statistics: what an operation does, on sparse, dense and KV tables alike. Reports carry the
 * numbers. */
enum sl_request_kind {
    SL_REQUEST_KIND_PULL,
    SL_REQUEST_KIND_PUSH,
    SL_REQUEST_KIND_PUSH_PULL,
    SL_REQUEST_KIND_ASSIGN,
    SL_REQUEST_KIND_ERASE,
    SL_REQUEST_KIND_TICK,
    SL_REQUEST_KINDS
};

/* op: a valid enum sl_request_op. */
enum sl_request_kind sl_request_kind_of(uint8_t op);

/* For statistics: the phases of a request at its server. Reports carry their times in this
 * order. */
enum sl_request_phase {
    SL_REQUEST_PHASE_ITERATION, /* waits for its turn, or is answered in a long one */
    SL_REQUEST_PHASE_CLOCK,     /* waits for clocks of other workers, or for a handler */
    SL_REQUEST_PHASE_MEMORY,    /* waits for memory for its reply */
    SL_REQUEST_PHASE_BACKUP,    /* waits for room in the log, or for the acknowledgement */
    SL_REQUEST_PHASE_WORK,      /* from its first slice to its last, with what runs in between */
    SL_REQUEST_PHASE_SEND,      /* the reply is being sent */
    SL_REQUEST_PHASES
};

/* Whether the operation carries values. */
bool sl_request_pushes(uint8_t op);

/* Whether the operation has a rate: pushes to sparse and dense tables. */
bool sl_request_takes_rate(uint8_t op);

/* Byte credits of a request: the larger of its payload and its reply's, plus a frame header. Both
 * sides compute it. */
static inline uint64_t sl_request_credit_bytes(uint64_t request_bytes, uint64_t reply_bytes)
{
    return (request_bytes > reply_bytes ? request_bytes : reply_bytes) + SL_FRAME_HEADER_BYTES;
}

/* Reads the prefix. Errors: PROTOCOL. */
int sl_request_read_prefix(struct sl_bytes *cursor, struct sl_request_prefix *out);

/* Reads a section's header and checks what does not depend on the table: a known operation; unused
 * fields 0; a valid rate; rows of a scan; thresholds of an eviction; a dense range that is not
 * empty and ends below SL_LIMIT_DENSE_ELEMENTS; a KV section of whole arrays or one chunk; table_id
 * below SL_LIMIT_TABLES. Errors: PROTOCOL. */
int sl_request_read_section(struct sl_bytes *cursor, struct sl_request_section *out);

/* Reads the body of a section and checks:
 * - the operation fits dim: sparse not 0, dense 0, KV 1, 2 or 4, and 4 with another precision;
 * - bag_ends ascend and end at key_count, and bags are not too long;
 * - lens are at least 1 and add up to count; padding is zero.
 *
 * The caller checks that no bytes follow the last section. The cursor must be at a multiple of 8
 * (asserted); a payload aligned to 8 keeps it so. Errors: PROTOCOL. */
int sl_request_read_body(struct sl_bytes *cursor, const struct sl_request_section *section,
                         uint32_t dim, struct sl_request_view *out);

/* The same for a pushing section whose values and padding, the last bytes of the body, are in
 * separate memory that may change at any time: they are not read. `values` holds exactly them,
 * aligned to 8 (asserted). */
int sl_request_read_body_out_of_line(struct sl_bytes *cursor, struct sl_bytes values,
                                     const struct sl_request_section *section, uint32_t dim,
                                     struct sl_request_view *out);

/* Fast path for the most frequent request. True: a single PULL of f32, checked like above except
 * for the table's kind. False: use the functions above. */
static inline bool sl_request_read_pull(const uint8_t *payload, size_t payload_bytes,
                                        struct sl_request_pull *out)
{
    struct {
        struct sl_request_prefix prefix;
        struct sl_request_section section;
    } head;
    struct sl_bytes cursor = sl_bytes_over(payload, payload_bytes);
    const uint8_t *at = sl_bytes_take(&cursor, sizeof head);
    if (at == NULL) {
        return false;
    }
    memcpy(&head, at, sizeof head);
    const struct sl_request_section *section = &head.section;
    const uint64_t strange = (head.prefix.section_count ^ 1U) | (section->op ^ SL_REQUEST_PULL) |
                             section->flags | section->bag_count | section->command |
                             section->start | section->count |
                             (cursor.left ^ section->key_count * (uint64_t)sizeof(uint64_t));
    if (strange != 0 || section->table_id >= SL_LIMIT_TABLES) {
        return false;
    }
    *out = (struct sl_request_pull){.keys = (const void *)cursor.next,
                                    .key_count = section->key_count,
                                    .clock = head.prefix.clock,
                                    .table_id = section->table_id};
    return true;
}

#endif
