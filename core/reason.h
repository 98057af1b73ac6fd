/* A reason is the text of an error: it names what failed and what the user can do about it. The
 * caller owns it; a function that takes one writes it when it returns an error. Any thread; no
 * allocation. */
#ifndef SL_CORE_REASON_H
#define SL_CORE_REASON_H

#include <stdarg.h>
#include <stddef.h>

#include "core/err.h"

/* With NUL: two paths of a file, or one and a sentence. A longer text is truncated. */
#define SL_REASON_BYTES 2048

struct sl_reason {
    char text[SL_REASON_BYTES];
};

/* Writes the text, with control characters as \xNN: a name or a quoted field must not control a
 * terminal. The arguments may not be part of *reason. NULL: the caller wants no text. */
void sl_reason_set(struct sl_reason *reason, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sl_reason_vset(struct sl_reason *reason, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* Writes the text; its value is err. A macro, so that compilers see which error is returned. */
#define sl_reason_fail(reason, err, ...) (sl_reason_set((reason), __VA_ARGS__), (err))

/* Replaces bytes other than printable ASCII by "?": a peer's text must not control a terminal. */
void sl_reason_make_printable(char *text, size_t bytes);

/* Copies a peer's text, at most text_bytes - 1 bytes of it, made printable, with a NUL. Reads
 * `from` before it looks at the bytes: the peer may change them meanwhile. bytes 0: from may be
 * NULL. */
void sl_reason_copy_printable(char *text, size_t text_bytes, const void *from, size_t bytes);

/* The reason of the calling thread's last failure in a public function: the text of sl_last_error.
 * "" before the first. Any thread. */
struct sl_reason *sl_reason_last(void);

/* The same for a public function that fails: its value is err. The arguments may not be part of
 * sl_reason_last(). */
#define sl_reason_report(err, ...) sl_reason_fail(sl_reason_last(), (err), __VA_ARGS__)

#endif
