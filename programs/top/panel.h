/* Panel is a table of one kind of objects of a job: servers with their shards, workers, tables,
 * keys, slow requests. Its rows are made from a state that sl_source_fetch gave. All text is
 * printable ASCII, as names of a job are; other bytes that a server sends become '?'. Pure. */
#ifndef SL_TOP_PANEL_H
#define SL_TOP_PANEL_H

#include <stdbool.h>
#include <stdint.h>

struct json_t;

#define SL_PANEL_COLUMNS_MAX 14
#define SL_PANEL_CELL_BYTES  128
#define SL_PANEL_LINE_BYTES  1024

enum {
    SL_PANEL_SERVERS,
    SL_PANEL_WORKERS,
    SL_PANEL_TABLES,
    SL_PANEL_KEYS,
    SL_PANEL_SLOW,
    SL_PANEL_COUNT
};

struct sl_panel_order {
    uint32_t column; /* that sorts, from 1; 0: the order of the server */
    bool is_descending;
};

struct sl_panel_row {
    const struct json_t *item, *part; /* of the state, which have the fields; NULL: the titles */
    char cells[SL_PANEL_COLUMNS_MAX][SL_PANEL_CELL_BYTES];
    char line[SL_PANEL_LINE_BYTES]; /* the cells that fit */
};

/* Column 0: the panel's own name; NULL: there is no such column. */
const char *sl_panel_title(uint32_t panel, uint32_t column);

/* Orders by the next column: numbers from the greatest, names from the first. */
void sl_panel_order_next(uint32_t panel, struct sl_panel_order *order);

/* Row 0 has the titles, `count` rows follow it, with lines of at most `width` columns. Rows without
 * the filter in a cell of text are left out, without regard to case. The caller frees the array
 * before the state. NULL: no memory. */
struct sl_panel_row *sl_panel_rows(uint32_t panel, const struct json_t *state,
                                   struct sl_panel_order order, const char *filter, int width,
                                   uint32_t *count);

/* Writes the local time of day, as 14:03:59. */
void sl_panel_time(double unix_seconds, char text[SL_PANEL_CELL_BYTES]);

/* A line each. */
struct sl_panel_summary {
    char job[SL_PANEL_LINE_BYTES], training[SL_PANEL_LINE_BYTES], totals[SL_PANEL_LINE_BYTES];
};
void sl_panel_summary(const struct json_t *state, struct sl_panel_summary *out);

#endif
