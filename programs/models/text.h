/* Parses numbers through a bounds-checked cursor, independent of the locale. Pure; any thread. */
#ifndef SL_PROGRAMS_MODELS_TEXT_H
#define SL_PROGRAMS_MODELS_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/bytes.h"

/* Returns the next byte without taking it; -1 at the end. */
static inline int sl_text_peek(const struct sl_bytes *cursor)
{
    return cursor->left == 0 ? -1 : cursor->next[0];
}

/* Takes the next byte if it is `byte`. */
static inline bool sl_text_skip(struct sl_bytes *cursor, int byte)
{
    if (sl_text_peek(cursor) != byte) {
        return false;
    }
    (void)sl_bytes_take(cursor, 1);
    return true;
}

/* Takes one or more decimal digits. Returns false, with the cursor unchanged, if there is none or
 * the number exceeds 2^64 - 1. */
bool sl_text_u64(struct sl_bytes *cursor, uint64_t *out);

/* Takes 1 to 16 hexadecimal digits of either case. Returns false likewise. */
bool sl_text_hex(struct sl_bytes *cursor, uint64_t *out);

/* Takes a decimal number such as "-1", "0.25", "3e-5". Returns false likewise, or if it overflows a
 * float; underflow gives 0. */
bool sl_text_float(struct sl_bytes *cursor, float *out);

#endif
