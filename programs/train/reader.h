/* The reader reads this worker's share of text files, one example a line, once per epoch.
 *
 * The files count as one text of T bytes. Share s of n owns the lines whose first byte lies in [s *
 * T / n, (s + 1) * T / n). Shares are contiguous, differ by about a line, and depend only on the
 * file sizes. A share reads only its own bytes.
 *
 * Constant memory: one buffer of twice the longest line, and one row. Owned by one thread. */
#ifndef SL_PROGRAMS_TRAIN_READER_H
#define SL_PROGRAMS_TRAIN_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/reason.h"
#include "programs/models/batch.h"

#define SL_READER_LINE_BYTES  (1U << 20) /* longest line, without its end */
#define SL_READER_FAULT_BYTES 160        /* of the text of a fault */

/* Why a line is refused. */
struct sl_reader_fault {
    size_t column; /* byte of the line, from 1 */
    char text[SL_READER_FAULT_BYTES];
};

/* A format: a const type object. */
struct sl_reader_format {
    const char *name;
    const char *accepts;  /* describes a line, for error messages */
    uint32_t field_count; /* features of every row; 0: varies */
    bool has_comments;    /* a line whose first word begins with # has no row */
    /* Parses a non-empty line into *row; without a label, the label is NaN. Errors: INVALID with
     * the fault, NO_MEMORY. */
    int (*parse)(struct sl_bytes line, struct sl_reader_row *row, struct sl_reader_fault *fault);
};

extern const struct sl_reader_format sl_reader_libsvm;
extern const struct sl_reader_format sl_reader_libffm;
extern const struct sl_reader_format sl_reader_criteo;
extern const struct sl_reader_format *const sl_reader_formats[3];

/* NULL: there is none of this name; a NULL name is allowed. */
const struct sl_reader_format *sl_reader_find_format(const char *name);

/* Class of an integer in the criteo format: up to 2 the integer itself, else floor(log(x +
 * 1)^2). */
uint64_t sl_reader_criteo_class(uint64_t magnitude, bool negative);

struct sl_reader_options {
    const struct sl_reader_format *format;
    const char *const *paths; /* regular files; must outlive the reader */
    uint32_t path_count;      /* at least 1 */
    uint32_t share_index;     /* < share_count */
    uint32_t share_count;
    uint32_t features_max; /* a row with more is refused; 0: no limit */
    bool takes_unlabelled; /* a row without a label has the label NaN; else it is refused */
    bool is_silent;        /* no warnings: another reader of the files writes them */
};

struct sl_reader;

/* The caller owns *out. Errors, with the file in reason: NOT_FOUND, IO, INVALID (not a regular
 * file, compressed, or not UTF-8), NO_MEMORY. */
int sl_reader_open(const struct sl_reader_options *options, struct sl_reader **out,
                   struct sl_reason *reason);
void sl_reader_close(struct sl_reader **reader);

/* Returns 1 with *row set, valid until the next call; 0 at the end of the share; or an error, with
 * sl_reader_reason: INVALID (bad line), TOO_LARGE (line over the limit), IO, NO_MEMORY. */
int sl_reader_next(struct sl_reader *reader, const struct sl_reader_row **row);

/* Returns "FILE:LINE:COLUMN: fault; what a line is" for the last failure. */
const char *sl_reader_reason(const struct sl_reader *reader);

/* Rewinds to the share's first line. */
void sl_reader_rewind(struct sl_reader *reader);

/* Bytes of the share; bytes of it that the rows of this pass took so far. */
uint64_t sl_reader_share_bytes(const struct sl_reader *reader);
uint64_t sl_reader_done_bytes(const struct sl_reader *reader);

/* For formats */

/* Makes room for more features. Errors: NO_MEMORY. */
int sl_reader_row_grow(struct sl_reader_row *row);

/* Errors: NO_MEMORY. */
static inline int sl_reader_row_add(struct sl_reader_row *row, uint64_t key, float value)
{
    if (row->feature_count == row->feature_room) {
        int err = sl_reader_row_grow(row);
        if (err != 0) {
            return err;
        }
    }
    row->keys[row->feature_count] = key;
    row->values[row->feature_count++] = value;
    return 0;
}
void sl_reader_row_fini(struct sl_reader_row *row);

/* Fills *fault with the text and the quoted next word; returns INVALID. `line`: the whole line;
 * `tail`: its unparsed part. */
int sl_reader_refuse(struct sl_reader_fault *fault, const struct sl_bytes *line,
                     const struct sl_bytes *tail, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
