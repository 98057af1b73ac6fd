/* Which records of a store a cut has passed: those below `at`, which the walk has reached, and
 * those that are marked because something was about to change them. A record has a bit, in pages
 * that the system hands out when they are first written, so that to begin costs nothing, however
 * many records there are; and pages that the walk has passed go back as it goes. Owner reactor. */
#ifndef SL_PS_SNAPSHOT_COPIED_H
#define SL_PS_SNAPSHOT_COPIED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct sl_copied {
    uint32_t count;  /* records that are in the cut: the first so many */
    uint32_t at;     /* at most count */
    uint64_t *words; /* NULL: none is marked */
    size_t bytes;    /* mapped, of `words` */
    size_t given;    /* and given back, from the beginning */
};

/* Allocates nothing. */
void sl_copied_init(struct sl_copied *marks, uint32_t count);
void sl_copied_fini(struct sl_copied *marks);

/* To be called before marks are taken. Errors: NO_MEMORY. */
int sl_copied_map(struct sl_copied *marks);
static inline int sl_copied_begin(struct sl_copied *marks)
{
    return marks->words != NULL ? 0 : sl_copied_map(marks);
}

static inline bool sl_copied_is_set(const struct sl_copied *marks, uint32_t number)
{
    return marks->words != NULL && (marks->words[number / 64] >> number % 64 & 1) != 0;
}

/* True when the cut has yet to pass this record. */
static inline bool sl_copied_is_pending(const struct sl_copied *marks, uint32_t number)
{
    return number < marks->count && number >= marks->at && !sl_copied_is_set(marks, number);
}

/* Marks the record; true when that is new, and it is in the cut. After a begin. */
static inline bool sl_copied_mark(struct sl_copied *marks, uint32_t number)
{
    if (!sl_copied_is_pending(marks, number)) {
        return false;
    }
    marks->words[number / 64] |= 1ULL << number % 64;
    return true;
}

/* The walk goes on to `at`, no less than before. */
void sl_copied_pass(struct sl_copied *marks, uint32_t at);

/* Of memory that it has mapped, written or not. */
static inline size_t sl_copied_memory_bytes(const struct sl_copied *marks)
{
    return marks->words == NULL ? 0 : marks->bytes - marks->given;
}

#endif
