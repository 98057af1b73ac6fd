/* The copied set tracks which records of a table a snapshot has handled: those below `at`, which
 * the walk has passed, and marked ones, copied before a change. Each record has one bit. The kernel
 * provides the pages on first write, so starting costs nothing, whatever the record count. Pages
 * behind the walk are unmapped as it advances. Owner reactor. */
#ifndef SL_PS_SNAPSHOT_COPIED_SET_H
#define SL_PS_SNAPSHOT_COPIED_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct sl_copied_set {
    uint32_t count;        /* records in the snapshot: the first `count` of the table */
    uint32_t at;           /* position of the walk, at most count */
    uint64_t *words;       /* NULL: no marks */
    size_t bytes;          /* of `words`, mapped */
    size_t unmapped_bytes; /* of them, from the start */
};

/* Allocates nothing. */
void sl_copied_set_init(struct sl_copied_set *marks, uint32_t count);
void sl_copied_set_fini(struct sl_copied_set *marks);

/* Maps the marks, before the first mark. Errors: NO_MEMORY. */
int sl_copied_set_map(struct sl_copied_set *marks);
static inline int sl_copied_set_begin(struct sl_copied_set *marks)
{
    return marks->words != NULL ? 0 : sl_copied_set_map(marks);
}

static inline bool sl_copied_set_is_set(const struct sl_copied_set *marks, uint32_t number)
{
    return marks->words != NULL && (marks->words[number / 64] >> number % 64 & 1) != 0;
}

/* Returns true when the snapshot has not handled this record yet. */
static inline bool sl_copied_set_is_pending(const struct sl_copied_set *marks, uint32_t number)
{
    return number < marks->count && number >= marks->at && !sl_copied_set_is_set(marks, number);
}

/* Marks a pending record and returns true; returns false for other records. Needs
 * sl_copied_set_begin. */
static inline bool sl_copied_set_mark(struct sl_copied_set *marks, uint32_t number)
{
    if (!sl_copied_set_is_pending(marks, number)) {
        return false;
    }
    marks->words[number / 64] |= 1ULL << number % 64;
    return true;
}

static inline bool sl_copied_set_done(const struct sl_copied_set *marks)
{
    return marks->at == marks->count;
}

/* Moves the walk forward to `at`. */
void sl_copied_set_pass(struct sl_copied_set *marks, uint32_t at);

/* Returns the mapped bytes, touched or not. */
static inline size_t sl_copied_set_memory_bytes(const struct sl_copied_set *marks)
{
    return marks->words == NULL ? 0 : marks->bytes - marks->unmapped_bytes;
}

#endif
