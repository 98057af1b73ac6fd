/* A KV table stores a shard's part of one table: u64 key -> array of values. Pushes add to floats,
 * also f16 and bf16, and replace bytes. The first push of a key creates its array and sets its
 * length. An array never moves and is aligned to 64. Owner reactor.
 *
 * A push checks that it can succeed before it changes anything. First it reserves its keys, batch
 * by batch: a reservation charges the budget for missing arrays and fixes their lengths while it
 * lasts. Then the push creates the arrays. A reserved array is not visible, except that other
 * reservations must use the same length.
 *
 * Index and records are as in sparse_table.h, so the table grows without a pause. Arrays of up to
 * 32 KiB are packed into ordinary pages; a longer array has its own pages. Huge pages are not used,
 * because their first touch stalls. Memory is untouched until it is first read or written. */
#ifndef SL_PS_TABLE_KV_TABLE_H
#define SL_PS_TABLE_KV_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/precision.h"

struct sl_kv_table;

struct sl_kv_array {
    uint64_t key;
    uint8_t *values;            /* [length]; NULL: never pushed */
    uint32_t length;            /* of a reserved array: its future length */
    uint32_t initialized_count; /* floats: values from here on are untouched zeros */
    union {
        uint64_t reservation; /* without values: id of the last reservation */
        uint64_t generation;  /* with values: the table's generation at the last change */
    };
};

/* Observes arrays before a push changes them. */
struct sl_kv_table_hook {
    /* Called before `count` values of the array change, from `start` on. */
    void (*before_write)(struct sl_kv_table_hook *hook, uint32_t record, uint32_t start,
                         uint32_t count);
    /* Called after a record without an array received one. */
    void (*created)(struct sl_kv_table_hook *hook, uint32_t record);
};

/* Reservation of one push. */
struct sl_kv_reservation {
    uint64_t id;  /* 0: none */
    size_t bytes; /* charged to the budget for arrays not created yet */
};

/* value_bytes: 1 (bytes), 2 or 4 (floats); precision: of 2, F16 or BF16, else F32. bytes_max: as
 * sl_kv_table_set_bytes_max. Errors: NO_MEMORY. */
int sl_kv_table_create(uint32_t value_bytes, enum sl_precision precision, size_t bytes_max,
                       struct sl_kv_table **out);

/* Sets *table to NULL. */
void sl_kv_table_destroy(struct sl_kv_table **table);

/* Limits records, index, arrays and reservations together; 0: no limit. A limit below the present
 * size only stops growth. */
void sl_kv_table_set_bytes_max(struct sl_kv_table *table, size_t bytes_max);

/* Writes the arrays of the keys, NULL for keys never pushed. Works in batches and prefetches the
 * first values too. count: at most SL_KV_TABLE_BATCH. */
#define SL_KV_TABLE_BATCH 256
void sl_kv_table_find(const struct sl_kv_table *table, const uint64_t *keys, uint32_t count,
                      struct sl_kv_array **arrays);

/* Starts a reservation. Only the table's own reservation may last while others start and end. Every
 * other reservation ends before any other use of the table. */
void sl_kv_table_reservation_begin(struct sl_kv_table *table,
                                   struct sl_kv_reservation *reservation);
struct sl_kv_reservation *sl_kv_table_own_reservation(struct sl_kv_table *table);

/* Reserves keys: an array of lens[i] values for keys[i], or of `length` values each when lens is
 * NULL; at least 1. Keys may repeat. records[count]: record indexes, which never change. After an
 * error the caller ends the reservation. Errors: INVALID (the array of keys[*failed] has, or is
 * reserved with, the other length *failed_length), NO_MEMORY. */
int sl_kv_table_reserve(struct sl_kv_table *table, struct sl_kv_reservation *reservation,
                        const uint64_t *keys, const uint32_t *lens, uint32_t length, uint32_t count,
                        uint32_t *records, uint32_t *failed, uint32_t *failed_length);

/* Creates the missing arrays of a reservation, filled with zeros. Errors: NO_MEMORY (of the
 * system), and none of them is created. */
int sl_kv_table_make(struct sl_kv_table *table, struct sl_kv_reservation *reservation,
                     const uint32_t *records, uint32_t count);

/* Ends a reservation and returns its unused bytes to the budget. */
void sl_kv_table_reservation_end(struct sl_kv_table *table, struct sl_kv_reservation *reservation);

struct sl_kv_array *sl_kv_table_at(const struct sl_kv_table *table, uint32_t record);

/* Adds `count` floats to the array from `start` on, or replaces `count` bytes; the range is inside
 * the array (asserted). F16 and BF16: of the same precision; the f32 sum is rounded to the nearest.
 * `values` is aligned to a value and read once. */
void sl_kv_table_push(struct sl_kv_table *table, struct sl_kv_array *array, uint32_t start,
                      uint32_t count, const void *values);

/* Restores a piece of an array: `count` values from `first` on. `array` gives key, length and
 * initialized_count. Creates a missing array of zeros. The table's own reservation must not be
 * active (asserted). Errors, without effect: INVALID (the array has another length), NO_MEMORY. */
int sl_kv_table_put(struct sl_kv_table *table, const struct sl_kv_array *array, uint32_t first,
                    uint32_t count, const void *values);

/* Sets the hook for sl_kv_table_push (before it) and sl_kv_table_make (after it); NULL: no hook.
 * The caller keeps ownership of the hook. */
void sl_kv_table_set_hook(struct sl_kv_table *table, struct sl_kv_table_hook *hook);

/* Ends the current generation and returns it. Later changes have a higher one. */
uint64_t sl_kv_table_generation_end(struct sl_kv_table *table);

uint32_t sl_kv_table_value_bytes(const struct sl_kv_table *table);
uint32_t
sl_kv_table_record_count(const struct sl_kv_table *table); /* including those without an array */
uint64_t sl_kv_table_key_count(const struct sl_kv_table *table); /* only those with an array */
size_t sl_kv_table_memory_bytes(const struct sl_kv_table *table);

#endif
