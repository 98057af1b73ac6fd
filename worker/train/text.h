/* Numbers out of text, read through a bounds-checked cursor. Independent of the locale. Pure; any
 * thread. */
#ifndef SL_WORKER_TRAIN_TEXT_H
#define SL_WORKER_TRAIN_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/bytes.h"

/* The next byte without taking it, or -1 at the end. */
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

/* Takes decimal digits, at least one. False, with the cursor where it stood, when there is none or
 * the number is over 2^64 - 1. */
bool sl_text_u64(struct sl_bytes *cursor, uint64_t *out);

/* Takes 1 to 16 hexadecimal digits in either case. False likewise. */
bool sl_text_hex(struct sl_bytes *cursor, uint64_t *out);

/* Takes a decimal number, "-1", "0.25", "3e-5". False likewise, and when it is over the range of a
 * float; what is too small becomes 0. */
bool sl_text_float(struct sl_bytes *cursor, float *out);

#endif
