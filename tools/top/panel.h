/* Panel is a table of one kind of objects of a job: servers with their shards, workers, tables,
 * keys, slow requests. Rows are made from a state that sl_source_fetch gave. Pure. */
#ifndef SL_TOP_PANEL_H
#define SL_TOP_PANEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/top/format.h"

struct json_t;

#define SL_PANEL_COLUMNS_MAX 13
#define SL_PANEL_LINE_BYTES  1024

struct sl_panel_column {
    const char *title, *field;
    enum sl_format format;
    bool is_left; /* aligned */
};

struct sl_panel {
    const char *name, *answer, *list; /* a row for each item of this list in this answer, */
    const char *parts;                /* or for each part of an item; NULL: items have none */
    struct sl_panel_column columns[SL_PANEL_COLUMNS_MAX]; /* title NULL: no more */
};

enum {
    SL_PANEL_SERVERS,
    SL_PANEL_WORKERS,
    SL_PANEL_TABLES,
    SL_PANEL_KEYS,
    SL_PANEL_SLOW,
    SL_PANEL_COUNT
};

extern const struct sl_panel sl_panels[SL_PANEL_COUNT];

/* Which rows, in which order. */
struct sl_panel_choice {
    int column; /* that sorts; -1: the order of the server */
    bool is_descending;
    const char *filter; /* part of a cell of text, without regard to case; "": all rows */
};

struct sl_panel_rows {
    const struct sl_panel *panel;
    struct json_t *all;         /* owned */
    const struct json_t **rows; /* [count], borrowed from all */
    uint32_t count;
    int widths[SL_PANEL_COLUMNS_MAX];
};

/* Errors: NO_MEMORY. */
int sl_panel_rows_init(const struct sl_panel *panel, const struct json_t *state,
                       const struct sl_panel_choice *choice, struct sl_panel_rows *out);
void sl_panel_rows_fini(struct sl_panel_rows *rows);

/* Writes a row, or the titles (row -1), as a line of at most `width` columns: the columns that fit.
 */
void sl_panel_line(const struct sl_panel_rows *rows, int row, int width,
                   char line[SL_PANEL_LINE_BYTES]);

/* Writes the state of the job, and its totals, as a line each. */
void sl_panel_summary(const struct json_t *state, char job[SL_PANEL_LINE_BYTES],
                      char totals[SL_PANEL_LINE_BYTES]);

#endif
