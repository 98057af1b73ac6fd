/* The payload of a request and of its reply. docs/protocol.md specifies it. Pure functions.
 *
 * A request is a prefix and a sequence of sections, each one operation on one table; the shard
 * carries them out in order. A reply with status 0 holds what the sections that read return, in the
 * order of the sections, each padded with zeros to a multiple of 8 bytes, and nothing else: its
 * shape follows from the request.
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
 *
 * A key of a KV table has an array of values, of the width that the table's dim says in bytes;
 * dim is that width, 1 or 4, wherever these functions ask for it. A section of whole arrays has
 * `count` values in all, lens[i] of key i, or without LENS count / key_count of each, and start and
 * bag_count are 0. A piece of an array too long for one message is a section of one key, without
 * LENS, with bag_count values in the whole array, of which `count` from `start` on are meant. Every
 * array has a value at least, and every section of a KV table a key; of none more than 2^32 - 1.
 *
 * A TICK says that the sender has finished the request's clock; the sections behind it are of the
 * next clock, so that one request can push, tick, and pull for the next iteration.
 *
 * All keys, and all of a dense range, belong to the shard that the connection is for. */
#ifndef SL_NET_WIRE_REQUEST_H
#define SL_NET_WIRE_REQUEST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/err.h"
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
};

/* Of a section: each key has its own number of values. */
#define SL_REQUEST_FLAG_LENS 1U

struct sl_request_prefix {
    uint32_t section_count; /* 1 to SL_LIMIT_REQUEST_SECTIONS */
    uint32_t clock;         /* the iteration of the sections up to the first tick */
};
static_assert(sizeof(struct sl_request_prefix) == 8, "request prefix size");

/* A clock that says: this worker will push no more. */
#define SL_REQUEST_CLOCK_FINISHED UINT32_MAX

struct sl_request_section {
    uint8_t op;        /* sl_request_op */
    uint8_t flags;     /* KV: SL_REQUEST_FLAG_LENS; else 0 */
    uint16_t table_id; /* TICK: 0 */
    uint32_t key_count;
    uint32_t bag_count; /* PULL_POOLED; KV: of a piece, values in the whole; else 0 */
    uint32_t command;   /* KV: what the sender wants its handler to know; else 0 */
    uint64_t start;     /* dense: first element; KV: of a piece; else 0 */
    uint64_t count;     /* dense: elements; KV: values; else 0 */
};
static_assert(sizeof(struct sl_request_section) == 32, "request section size");
static_assert(offsetof(struct sl_request_section, start) == 16, "request section layout");

/* A section taken apart; the pointers lie in the request's memory, aligned to 8. */
struct sl_request_view {
    struct sl_request_section section;
    const uint64_t *keys;
    const uint32_t *bag_ends;
    const float *gradients;
    const uint32_t *lens; /* KV, with LENS */
    const void *values;   /* KV: that are pushed */
};

/* A request of one section that is a PULL. */
struct sl_request_pull {
    const uint64_t *keys; /* in the request's memory, aligned to 8 */
    uint32_t key_count;
    uint32_t clock;
    uint16_t table_id;
};

/* Bytes of a section's body and of what it returns, given the table's dim (dense tables: 0).
 * Counts up to 2^36 and dims up to SL_LIMIT_DIM cannot overflow. */
uint64_t sl_request_body_bytes(const struct sl_request_section *section, uint32_t dim);
uint64_t sl_request_reply_bytes(const struct sl_request_section *section, uint32_t dim);

/* A section's body, cut in two: what comes before the values that it pushes, keys and lens; and the
 * values, without the padding behind them. */
uint64_t sl_request_structure_bytes(const struct sl_request_section *section);
uint64_t sl_request_values_bytes(const struct sl_request_section *section, uint32_t dim);

/* True when the operation carries values. */
bool sl_request_pushes(uint8_t op);

/* What a request costs in byte credits: the greater of its own payload and of its reply's, and a
 * frame header. Both sides compute it. */
static inline uint64_t sl_request_credit_bytes(uint64_t request_bytes, uint64_t reply_bytes)
{
    return (request_bytes > reply_bytes ? request_bytes : reply_bytes) + SL_FRAME_HEADER_BYTES;
}

/* Reads the prefix; errors: PROTOCOL. */
int sl_request_read_prefix(struct sl_bytes *cursor, struct sl_request_prefix *out);

/* Reads a section's header, checks the fields that need no table: the operation, that the fields it
 * does not use are 0, that a dense range is not empty and ends below SL_LIMIT_DENSE_ELEMENTS, that
 * a section of a KV table is one of whole arrays or a piece of one, that the table's id is below
 * SL_LIMIT_TABLES. Errors: PROTOCOL. */
int sl_request_read_section(struct sl_bytes *cursor, struct sl_request_section *out);

/* Reads the body of a section of a table with this dim (a sparse operation with dim 0, a dense one
 * with another, or one of a KV table with other than 1 and 4, is an error): counts, bag_ends
 * ascending and ending at key_count, lens of 1 at least that add up to count, padding of zeros.
 * Whether bytes are left over after the last section is for the caller to check. Errors:
 * PROTOCOL. The cursor must stand on an address that is a multiple of 8 (asserted); it does after
 * every section when the payload began on one. */
int sl_request_read_body(struct sl_bytes *cursor, const struct sl_request_section *section,
                         uint32_t dim, struct sl_request_view *out);

/* As above, of a section that pushes, where the values and their padding, the last bytes of the
 * body, stand elsewhere, in memory that may change at any time: they are not looked at. All of
 * `values` belongs to the section; aligned to 8 (asserted). */
int sl_request_read_body_out_of_line(struct sl_bytes *cursor, struct sl_bytes values,
                                     const struct sl_request_section *section, uint32_t dim,
                                     struct sl_request_view *out);

/* The most frequent request, all of it at once: true when it is a PULL alone, and as valid as the
 * functions above could find it, but for the table's kind; false: ask them. */
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
