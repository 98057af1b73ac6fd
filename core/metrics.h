/* The registry names the cells of a process, or of a client, for readers such as Prometheus.
 *
 * A room that owns cells has a struct of cells and a constant table of rows, one row a series:
 *
 *     struct sl_server_cells { struct sl_cell pulls; struct sl_cell_histogram pull_time; };
 *
 *     static const struct sl_metrics_row rows[] = {
 *         {"requests_total", "op=\"pull\"", SL_METRICS_COUNTER, SL_METRICS_PLAIN,
 *          offsetof(struct sl_server_cells, pulls), "Requests answered, by operation."},
 *         {"request_seconds", "op=\"pull\"", SL_METRICS_HISTOGRAM, SL_METRICS_NS,
 *          offsetof(struct sl_server_cells, pull_time), "Time from arrival to the reply."},
 *     };
 *
 * Each instance of the struct is a source. A source may instead have a function that lists its
 * series, for those that come and go (one per table, one per worker). Series with the same name and
 * labels are merged over all sources, so that the sums do not depend on the number of shards. A
 * reader may instead keep the sources apart by their `detail` label.
 *
 * The registry allocates nothing: sources are storage of their owner. Its lock is held while a
 * reader walks: add, remove and walk are for any thread, but not for the data path. */
#ifndef SL_CORE_METRICS_H
#define SL_CORE_METRICS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/cell.h"
#include "core/list.h"

enum sl_metrics_kind {
    SL_METRICS_COUNTER,   /* a struct sl_cell that only grows; the name ends in _total */
    SL_METRICS_GAUGE,     /* a struct sl_cell; merged as sum */
    SL_METRICS_GAUGE_MAX, /* a struct sl_cell; merged as maximum */
    SL_METRICS_GAUGE_MIN, /* a struct sl_cell; merged as minimum */
    SL_METRICS_HISTOGRAM, /* a struct sl_cell_histogram, in SL_METRICS_NS */
};

/* The unit of a cell, and its form in the export. */
enum sl_metrics_unit {
    SL_METRICS_PLAIN, /* requests, bytes, steps: as it is */
    SL_METRICS_NS,    /* as seconds; also nanoseconds since 1970, as a Unix time */
    SL_METRICS_PPM,   /* millionths, as a ratio */
};

struct sl_metrics_row {
    const char *name; /* without "starling_", except for process_*; with the unit: "..._seconds" */
    const char *labels; /* as in the text format: op="pull",for="clock"; NULL: none */
    enum sl_metrics_kind kind;
    enum sl_metrics_unit unit;
    size_t offset;    /* of the cell or histogram in the struct of cells */
    const char *help; /* one sentence; NULL: as in another row of this name */
};

/* With NUL. Room for the name of a table, escaped, and another label. */
#define SL_METRICS_LABELS_BYTES 192

struct sl_metrics_series {
    const struct sl_metrics_row *row;
    const char *labels; /* beside those of the row; "": none */
    const char *detail; /* label of the source when it is not merged; "": none */
    uint64_t value;
    const struct sl_cell_histogram *histogram; /* instead of value, valid during the call */
};

struct sl_metrics_visitor {
    void (*visit)(struct sl_metrics_visitor *visitor, const struct sl_metrics_series *series);
};

/* All fields but the link are set by the owner before sl_metrics_add. Texts are not copied. */
struct sl_metrics_source {
    struct sl_list_link link;
    const struct sl_metrics_row *rows;
    uint32_t row_count;
    const void *cells;  /* the struct that the rows' offsets refer to */
    const char *labels; /* of all its series, such as transport="tcp"; NULL: none */
    const char *detail; /* such as shard="3"; NULL: none */
    /* A cell that is 0 while the source has no series: cells outlive what they count. NULL: the
     * source always has series. */
    const struct sl_cell *is_active;
    /* Instead of `cells`: visits all series of the source. NULL: the rows are visited. Runs on the
     * reader's thread, with the lock of the registry held. */
    void (*collect)(void *ctx, struct sl_metrics_visitor *visitor);
    void *ctx;
};

struct sl_metrics {
    pthread_mutex_t lock;
    struct sl_list sources;
};

void sl_metrics_init(struct sl_metrics *metrics);

/* All sources must have been removed, or their storage ends with the registry. */
void sl_metrics_fini(struct sl_metrics *metrics);

/* The source and all it points to stay in place until they are removed. */
void sl_metrics_add(struct sl_metrics *metrics, struct sl_metrics_source *source);

/* Afterwards no reader uses the source. No effect on a zeroed source or one that was removed. */
void sl_metrics_remove(struct sl_metrics *metrics, struct sl_metrics_source *source);

/* Visits every series of every source. */
void sl_metrics_walk(struct sl_metrics *metrics, struct sl_metrics_visitor *visitor);

/* The same for a reader that must not wait: false, and nothing is visited, if another thread uses
 * the registry. */
bool sl_metrics_try_walk(struct sl_metrics *metrics, struct sl_metrics_visitor *visitor);

/* For `collect`: visits one counter or gauge. */
void sl_metrics_visit(struct sl_metrics_visitor *visitor, const struct sl_metrics_row *row,
                      const char *labels, uint64_t value);

/* Appends name="value" to a list of labels, with a comma between, the value escaped for the text
 * format and truncated to the room. Bytes that are not ASCII become "?". */
void sl_metrics_label(char labels[SL_METRICS_LABELS_BYTES], const char *name, const char *value);

#endif
