/* Reads this worker's share of text files, one example a line, again for every epoch.
 *
 * The files count as one long text of T bytes. Share s of n owns the lines whose first byte lies in
 * [s * T / n, (s + 1) * T / n): shares are contiguous, differ by about a line, and depend on the
 * sizes of the files only. Each share reads its own bytes and no others.
 *
 * Memory is constant: one buffer of twice the longest line, and one row. Owned by one thread. */
#ifndef SL_WORKER_TRAIN_READER_H
#define SL_WORKER_TRAIN_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/err.h"

#define SL_READER_LINE_BYTES  (1U << 20) /* the longest line, without its end */
#define SL_READER_FAULT_BYTES 160        /* of a fault's text */

/* One example. Feature i belongs to field i: its position in the row. */
struct sl_reader_row {
    float label; /* 0 or 1 */
    uint32_t feature_count;
    uint32_t feature_room;
    uint64_t *keys; /* [feature_count]; the row's own, grown by sl_reader_row_add */
    float *values;  /* likewise */
};

/* Why a line is refused. */
struct sl_reader_fault {
    size_t column; /* byte of the line, from 1 */
    char text[SL_READER_FAULT_BYTES];
};

/* A format: a const type object. */
struct sl_reader_format {
    const char *name;
    const char *accepts;  /* a line in words, for error messages */
    uint32_t field_count; /* features of every row; 0: rows differ */
    bool has_comments;    /* a line whose first word begins with # has no row */
    /* Parses a line that is not empty into *row. Errors: INVALID with the fault, NO_MEMORY. */
    int (*parse)(struct sl_bytes line, struct sl_reader_row *row, struct sl_reader_fault *fault);
};

extern const struct sl_reader_format sl_reader_libsvm;
extern const struct sl_reader_format sl_reader_libffm;
extern const struct sl_reader_format sl_reader_criteo;

/* The class that the criteo format cuts an integer to: itself up to 2, else floor(log(x + 1)^2). */
uint64_t sl_reader_criteo_class(uint64_t magnitude, bool negative);

struct sl_reader_options {
    const struct sl_reader_format *format;
    const char *const *paths; /* regular files; must outlive the reader */
    uint32_t path_count;      /* at least 1 */
    uint32_t share_index;     /* < share_count */
    uint32_t share_count;
    uint32_t features_max; /* a row with more is refused; 0: any number */
};

struct sl_reader;

/* Errors: NOT_FOUND, IO, INVALID (no regular file, compressed, or not UTF-8), NO_MEMORY, with the
 * file in reason. *out is owned by the caller. */
int sl_reader_open(const struct sl_reader_options *options, struct sl_reader **out, char *reason,
                   size_t reason_bytes);
void sl_reader_close(struct sl_reader **reader);

/* The next row of the share: 1 with *row set, valid until the next call; 0 at the end; or an error:
 * INVALID (a bad line), TOO_LARGE (a line over the limit), IO, NO_MEMORY, with sl_reader_reason. */
int sl_reader_next(struct sl_reader *reader, const struct sl_reader_row **row);

/* "FILE:LINE:COLUMN: what is wrong; what a line is", of the last failure. */
const char *sl_reader_reason(const struct sl_reader *reader);

/* Back to the share's first line. */
void sl_reader_rewind(struct sl_reader *reader);

/* Bytes of the share, and how many of them the rows so far took in this pass. */
uint64_t sl_reader_share_bytes(const struct sl_reader *reader);
uint64_t sl_reader_done_bytes(const struct sl_reader *reader);

/* ---- For formats ----------------------------------------------------------------------------- */

/* Room for more features. Errors: NO_MEMORY. */
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

/* Fills *fault with the text, the words at `rest` quoted behind it, and returns INVALID. `line` is
 * the whole line, `rest` what is left of it. */
int sl_reader_refuse(struct sl_reader_fault *fault, const struct sl_bytes *line,
                     const struct sl_bytes *tail, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
