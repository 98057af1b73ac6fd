/* A shard's part of one KV table: u64 key -> an array of values, floats to which pushes are added,
 * or bytes, which pushes replace. An array is made by the first push of its key, with the length
 * that this one says, and stays, at one place, aligned to 64.
 *
 * A push finds out whether it can be carried out before it changes anything: it claims its keys,
 * batch by batch, which takes the memory of those arrays that are not there out of the budget, and
 * settles their lengths for as long as the claim lasts; then it makes the arrays. Nobody sees an
 * array that is only claimed, except that others may not claim it with another length meanwhile.
 *
 * Index and records are as in table.h, so that the table grows without a pause. Values: arrays of
 * up to 32 KiB are cut from ordinary pages one behind the other, a longer one has pages of its own;
 * the first touch of a huge page would be a stall. Not touched before they are written or read.
 * Owner reactor. */
#ifndef SL_PS_TABLE_KV_TABLE_H
#define SL_PS_TABLE_KV_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct sl_kv_table;

struct sl_kv_array {
    uint64_t key;
    uint8_t *values; /* [length]; NULL: nobody has pushed the key */
    uint32_t length; /* of an array that is only claimed: the length that it shall have */
    uint32_t initialized_count; /* floats: from here on they are zeros that nobody has touched */
    union {
        uint64_t reservation; /* without values: the last that would make it */
        uint64_t generation;  /* with: the store's when it was last changed */
    };
};

/* Who wants to see arrays before pushes change them. */
struct sl_kv_table_hook {
    /* `count` values of the array, from `start` on, are about to change. */
    void (*before_write)(struct sl_kv_table_hook *hook, uint32_t record, uint32_t start,
                         uint32_t count);
    /* The record, which had no array, has got one. */
    void (*created)(struct sl_kv_table_hook *hook, uint32_t record);
};

/* Of one push. */
struct sl_kv_reservation {
    uint64_t id;  /* 0: none */
    size_t bytes; /* taken out of the budget, of arrays that are not made yet */
};

/* value_bytes: 1 or 4. Errors: NO_MEMORY. */
int sl_kv_table_create(uint32_t value_bytes, size_t bytes_max, struct sl_kv_table **out);

/* Nulls *store. */
void sl_kv_table_destroy(struct sl_kv_table **table);

/* Of records, index, arrays and claims together; 0: no limit. Less than there is: it grows no more.
 */
void sl_kv_table_set_bytes_max(struct sl_kv_table *table, size_t bytes_max);

/* The arrays of the keys, NULL where nobody has pushed it; batched with prefetch, the first values
 * too. count: at most SL_KV_TABLE_BATCH. */
#define SL_KV_TABLE_BATCH 256
void sl_kv_table_find(const struct sl_kv_table *table, const uint64_t *keys, uint32_t count,
                      struct sl_kv_array **arrays);

/* Begins a claim. One that lasts while others begin and end is the store's own, of which there is
 * one; every other ends before anything else is done with the store. */
void sl_kv_table_reservation_begin(struct sl_kv_table *table,
                                   struct sl_kv_reservation *reservation);
struct sl_kv_reservation *sl_kv_table_own_reservation(struct sl_kv_table *table);

/* Claims keys: of keys[i] an array of lens[i] values, or `length` each where lens is NULL, which
 * are 1 at least. Keys may repeat. records[count]: their numbers, for ever. Errors: INVALID (the
 * array of keys[*failed] has another length, which is *failed_length, or will have), NO_MEMORY; the
 * claim is to be ended then. */
int sl_kv_table_reserve(struct sl_kv_table *table, struct sl_kv_reservation *reservation,
                        const uint64_t *keys, const uint32_t *lens, uint32_t length, uint32_t count,
                        uint32_t *records, uint32_t *failed, uint32_t *failed_length);

/* Makes those of the claimed arrays that are not there yet, of zeros. Errors: NO_MEMORY (of the
 * system): none of these was made. */
int sl_kv_table_make(struct sl_kv_table *table, struct sl_kv_reservation *reservation,
                     const uint32_t *records, uint32_t count);

/* Gives back what is left of the claim. */
void sl_kv_table_reservation_end(struct sl_kv_table *table, struct sl_kv_reservation *reservation);

/* The array of that record. */
struct sl_kv_array *sl_kv_table_at(const struct sl_kv_table *table, uint32_t record);

/* Adds `count` floats to an array's from `start` on, or replaces so many bytes of it; both within
 * the array (asserted). `values` is aligned to a value; each is read once. */
void sl_kv_table_push(struct sl_kv_table *table, struct sl_kv_array *array, uint32_t start,
                      uint32_t count, const void *values);

/* A piece of an array as it was: `count` values from `first` on, of `length` in all; `written` as
 * in struct sl_kv_array. Makes the array where nobody has pushed the key, of zeros. Nothing may be
 * claimed. Errors: INVALID (the array has another length), NO_MEMORY; nothing has changed then. */
int sl_kv_table_put(struct sl_kv_table *table, const struct sl_kv_array *array, uint32_t first,
                    uint32_t count, const void *values);

/* From now on the watch is called ahead of each sl_kv_table_push, and behind each
 * sl_kv_table_make; NULL: no more. It stays the caller's. */
void sl_kv_table_set_hook(struct sl_kv_table *table, struct sl_kv_table_hook *hook);

/* A new epoch begins: what was changed before has a lesser one. Returns the last. */
uint64_t sl_kv_table_generation_end(struct sl_kv_table *table);

uint32_t sl_kv_table_value_bytes(const struct sl_kv_table *table);
uint32_t sl_kv_table_record_count(const struct sl_kv_table *table); /* also without an array */
uint64_t sl_kv_table_key_count(const struct sl_kv_table *table);    /* that have an array */
size_t sl_kv_table_memory_bytes(const struct sl_kv_table *table);

#endif
