/* Tells on stderr how far the training is: a bar that is drawn over and over on a terminal, a plain
 * line every few seconds elsewhere. Owned by one thread; never on the path of a request. */
#ifndef SL_WORKER_TRAIN_PROGRESS_H
#define SL_WORKER_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_progress {
    FILE *to; /* NULL: quiet */
    bool terminal;
    bool drawn; /* a bar stands on the current line */
    uint32_t epochs;
    uint64_t begin_ns, next_ns;
    uint64_t first_ns;  /* the first update, from which what is left is estimated: */
    double first_share; /* a worker may begin in the middle */
};

struct sl_progress_state {
    uint32_t epoch; /* from 0 */
    double share;   /* of all epochs, 0 to 1 */
    uint64_t rows;  /* since the beginning */
    double loss;    /* recent mean */
};

/* quiet: says nothing. */
void sl_progress_begin(struct sl_progress *progress, FILE *to, bool quiet, uint32_t epochs,
                       uint64_t now_ns);

/* Says something when it is time to: to be called after every batch. */
void sl_progress_update(struct sl_progress *progress, const struct sl_progress_state *state,
                        uint64_t now_ns);

/* Leaves the terminal's cursor on a fresh line. */
void sl_progress_end(struct sl_progress *progress);

#endif
