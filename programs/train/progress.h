/* Prints training progress on stderr: a bar redrawn in place on a terminal, else a line every few
 * seconds. Owned by one thread; never on the path of a request. */
#ifndef SL_PROGRAMS_TRAIN_PROGRESS_H
#define SL_PROGRAMS_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_progress {
    FILE *to; /* NULL: quiet */
    bool terminal;
    bool drawn; /* the current line shows a bar */
    uint32_t epochs;
    uint64_t begin_ns, next_ns;
    uint64_t first_ns;  /* first update: the base of the time estimate, */
    double first_share; /* because a worker may begin in the middle */
};

struct sl_progress_state {
    uint32_t epoch; /* from 0 */
    double share;   /* of all epochs, 0 to 1 */
    uint64_t rows;  /* since the start */
    double loss;    /* recent mean */
};

/* quiet: prints nothing. */
void sl_progress_begin(struct sl_progress *progress, FILE *to, bool quiet, uint32_t epochs,
                       uint64_t now_ns);

/* Prints when due. Call after every batch. */
void sl_progress_update(struct sl_progress *progress, const struct sl_progress_state *state,
                        uint64_t now_ns);

/* Moves the terminal's cursor to a new line. */
void sl_progress_end(struct sl_progress *progress);

#endif
