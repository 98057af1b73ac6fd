#include "ps/shard/scan.h"

#include <string.h>

#include "ps/optimizer/narrow.h"

#define RECORDS_PER_COST 8 /* records of which only the header is read */

/* Pushes and evictions between two requests of a scan while which rows stay: seconds at the
 * highest rates. */
#define SCAN_REST        (1U << 18)

/* In a request, `done` is the next record, and `bags_done` counts the rows returned. */

static uint32_t width_max(const struct sl_shard_table *table)
{
    const uint32_t dim = table->spec.dim;
    return dim + (uint32_t)sl_optimizer_slot_floats(table->optimizer, dim);
}

static uint32_t row_cost(uint32_t width)
{
    return (width + SL_SHARD_ELEMENTS_PER_KEY - 1) / SL_SHARD_ELEMENTS_PER_KEY;
}

int sl_shard_scan_check(const struct sl_shard *shard, const struct sl_shard_table *table,
                        const struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    const uint32_t width = request->view.section.bag_count;
    const uint32_t dim = table->spec.dim, most = width_max(table);
    return width == dim || width == most || request->view.section.count == 0
               ? 0
               : sl_shard_fail(shard, request, slice, SL_ERR_PROTOCOL,
                               "a scan of %u floats a row: accepts %u, or %u with slots", width,
                               dim, most);
}

static uint64_t record_end(const struct sl_shard_table *table, const struct sl_request_view *view)
{
    const uint64_t records = sl_sparse_table_record_count(table->sparse);
    return view->scan->end < records ? view->scan->end : records;
}

uint64_t sl_shard_scan_cost(const struct sl_shard_table *table, const struct sl_request_view *view)
{
    const uint64_t end = record_end(table, view);
    const uint64_t records = view->section.start < end ? end - view->section.start : 0;
    return records / RECORDS_PER_COST + view->section.count * row_cost(view->section.bag_count);
}

/* Returns a number that changes when rows have other records. Names of copies are odd. */
static uint64_t copy_of(const struct sl_shard *shard, const struct sl_shard_table *table)
{
    return shard->options.copy + 2 * table->moves.count;
}

int sl_shard_scan_begin(const struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    const uint64_t copy = request->view.scan->copy;
    if (copy != 0 && copy != copy_of(shard, table)) {
        return sl_shard_fail(shard, request, slice, SL_ERR_CLOSED,
                             "the scan began at another copy of the shard, before a restart or a "
                             "takeover, or before the table shrank: begin another");
    }
    request->done = request->view.section.start;
    table->moves.rest = SCAN_REST;
    return SL_SHARD_DONE;
}

static bool is_wanted(const struct sl_shard_table *table, const struct sl_request_view *view,
                      const struct sl_row *row)
{
    const uint64_t since = view->scan->since;
    const uint32_t age = (uint32_t)table->step - row->last_step; /* modulo 2^32 */
    const bool is_new = since == 0 || (table->step > since && age < table->step - since);
    return row->count != SL_ROW_ERASED && is_new && row->count >= view->section.command;
}

/* The parts of the reply. */
struct scanned {
    uint64_t *keys;
    struct sl_request_scan_mark *marks;
    float *values;
};

static struct scanned parts_of(const struct sl_shard_request *request, uint8_t *reply)
{
    const uint64_t count = request->view.section.count;
    uint8_t *at = reply + request->reply_done + sizeof(struct sl_request_scanned);
    struct scanned parts = {.keys = (void *)at};
    at += count * sizeof *parts.keys;
    parts.marks = (void *)at;
    parts.values = (void *)(at + count * sizeof *parts.marks);
    return parts;
}

/* Rows are f32 here, whatever the table stores. */
static void put_row(const struct sl_shard_table *table, const struct scanned *parts, uint32_t at,
                    uint32_t width, const struct sl_row *row)
{
    float *values = parts->values + (size_t)at * width;
    parts->keys[at] = row->key;
    parts->marks[at] =
        (struct sl_request_scan_mark){.last_step = row->last_step, .count = row->count};
    if (width == table->spec.dim) {
        sl_sparse_table_read_values(table->sparse, row->values, values);
    } else {
        sl_narrow_read(sl_sparse_table_layout(table->sparse), row->values, values);
    }
}

/* Writes the head, and zeros behind the last row. */
static void scan_end(const struct sl_shard *shard, const struct sl_shard_table *table,
                     const struct sl_shard_request *request, uint8_t *reply)
{
    const struct sl_request_section *section = &request->view.section;
    const struct scanned parts = parts_of(request, reply);
    const uint32_t rows = request->bags_done;
    const size_t rest = section->count - rows, width = section->bag_count;
    const struct sl_request_scanned head = {
        .copy = copy_of(shard, table),
        .next = request->done,
        .records = sl_sparse_table_record_count(table->sparse),
        .step = table->step,
        .row_count = rows,
        .width_max = width_max(table),
    };
    memcpy(reply + request->reply_done, &head, sizeof head);
    memset(parts.keys + rows, 0, rest * sizeof *parts.keys);
    memset(parts.marks + rows, 0, rest * sizeof *parts.marks);
    memset(parts.values + rows * width, 0, rest * width * sizeof(float));
}

int sl_shard_scan_run(const struct sl_shard *shard, const struct sl_shard_table *table,
                      struct sl_shard_request *request, uint8_t *reply,
                      struct sl_shard_slice *slice)
{
    const struct sl_request_section *section = &request->view.section;
    const struct scanned parts = parts_of(request, reply);
    const uint64_t end = record_end(table, &request->view);
    const uint32_t left = sl_shard_slice_left(slice), cost = row_cost(section->bag_count);
    uint32_t visits = 0, spent = 0;
    while (request->done < end && request->bags_done < section->count) {
        spent = visits / RECORDS_PER_COST + spent;
        visits %= RECORDS_PER_COST;
        if (spent >= left) {
            slice->spent += spent;
            return SL_SHARD_AGAIN;
        }
        const struct sl_row *row = sl_sparse_table_record(table->sparse, (uint32_t)request->done++);
        visits++;
        if (is_wanted(table, &request->view, row)) {
            put_row(table, &parts, request->bags_done++, section->bag_count, row);
            spent += cost;
        }
    }
    slice->spent += spent + 1;
    request->done = request->done < end ? request->done : request->view.scan->end;
    scan_end(shard, table, request, reply);
    return SL_SHARD_DONE;
}
