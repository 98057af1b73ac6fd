/* Scans of a table's rows. Each step asks several lanes at once, a lane being a range of records of
 * one shard, so that a shard gathers rows while others are on their way. */
#include <starling_rows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/reason.h"
#include "core/struct_size.h"
#include "net/session/message_spec.h"
#include "worker/client/client_internal.h"
#include "worker/client/step_internal.h"
#include "worker/client/table_opening.h"

#define TIMEOUT_MS_DEFAULT 60000
#define LANES_MAX          4          /* asked at once */
#define REPLY_BYTES        (1U << 20) /* at most, unless a row is longer */
#define RANGE_RECORDS      (1U << 16) /* a shard with fewer records is one range */

static_assert(sizeof(struct sl_scan_mark) == sizeof(struct sl_request_scan_mark) &&
                  offsetof(struct sl_scan_mark, count) ==
                      offsetof(struct sl_request_scan_mark, count),
              "marks as on the wire");

struct lane {
    uint32_t shard;
    uint64_t next; /* record; body.end: the range is done */
    struct sl_request_scan body;
    uint8_t *reply; /* of the scan's memory */
};

struct sl_scan {
    struct sl_client *client;
    struct sl_table *table;
    struct sl_scan_options options;
    struct lane *lanes; /* of all shards, in the order in which they are asked */
    uint32_t lane_count, lanes_done;
    uint32_t asked;    /* lanes from lanes_done on whose replies have come */
    uint32_t returned; /* of them */
    uint32_t width, rows_max;
    size_t reply_bytes;
    uint8_t *replies; /* [LANES_MAX][reply_bytes] */
    int err;          /* of the scan */
    char error[SL_REASON_BYTES];
};

static int scan_fail(struct sl_scan *scan, int err)
{
    scan->err = err;
    (void)snprintf(scan->error, sizeof scan->error, "scan of table %s: %s", scan->table->spec.name,
                   sl_last_error());
    return sl_reason_report(err, "%s", scan->error);
}

/* Asks the lanes for their next rows, at most row_count each. */
static int scan_ask(struct sl_scan *scan, struct lane *lanes, uint32_t lane_count,
                    uint32_t row_count)
{
    struct sl_step *step;
    int err = sl_step_begin(scan->client, 0, &step);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; err == 0 && i < lane_count; i++) {
        const struct sl_operation operation = {
            .op = SL_REQUEST_SCAN,
            .table = scan->table,
            .shard = lanes[i].shard,
            .scan = &lanes[i].body,
            .start = lanes[i].next,
            .count = row_count,
            .width = scan->width,
            .command = scan->options.count_min,
            .values = lanes[i].reply,
        };
        err = sl_step_takes(step, scan->table, SL_TABLE_SPARSE) ? sl_step_add(step, &operation)
                                                                : sl_step_refuse(step);
    }
    err = err != 0 ? err : sl_step_submit_deferred(step, scan->options.timeout_ms);
    err = err != 0 ? err : sl_step_wait_through(step);
    sl_step_destroy(&step);
    return err;
}

static struct sl_request_scanned scan_head(const uint8_t *reply)
{
    struct sl_request_scanned head;
    memcpy(&head, reply, sizeof head);
    return head;
}

/* Divides the shards' records into ranges: several of a shard with many, if there are few shards.
 * heads: of the shards. */
static int scan_make_lanes(struct sl_scan *scan, const struct sl_request_scanned *heads)
{
    const uint32_t shards = scan->client->shard_count;
    const uint32_t ranges_max = (LANES_MAX + shards - 1) / shards;
    scan->lanes = calloc((size_t)shards * ranges_max, sizeof *scan->lanes);
    for (uint32_t range = 0; scan->lanes != NULL && range < ranges_max; range++) {
        for (uint32_t shard = 0; shard < shards; shard++) {
            const uint64_t records = heads[shard].records;
            const uint32_t ranges = records < RANGE_RECORDS ? 1 : ranges_max;
            if (range < ranges) {
                scan->lanes[scan->lane_count++] = (struct lane){
                    .shard = shard,
                    .next = records / ranges * range,
                    .body = {.copy = heads[shard].copy,
                             .since = scan->options.since,
                             .end =
                                 range + 1 == ranges ? UINT64_MAX : records / ranges * (range + 1)},
                };
            }
        }
    }
    return scan->lanes != NULL ? 0 : SL_ERR_NO_MEMORY;
}

/* Asks every shard what it has, without rows. */
static int scan_begin(struct sl_scan *scan)
{
    const uint32_t shards = scan->client->shard_count;
    struct lane *lanes = calloc(shards, sizeof *lanes);
    struct sl_request_scanned *heads = calloc(shards, sizeof *heads);
    int err = lanes == NULL || heads == NULL ? SL_ERR_NO_MEMORY : 0;
    for (uint32_t shard = 0; err == 0 && shard < shards; shard++) {
        lanes[shard] = (struct lane){.shard = shard, .reply = (uint8_t *)&heads[shard]};
    }
    err = err != 0 ? err : scan_ask(scan, lanes, shards, 0);
    if (err == 0) {
        scan->width = scan->options.slots ? heads[0].width_max : scan->table->spec.dim;
        err = scan_make_lanes(scan, heads);
    }
    free(lanes);
    free(heads);
    return err;
}

static int scan_take_memory(struct sl_scan *scan)
{
    const size_t row_bytes =
        sizeof(uint64_t) + sizeof(struct sl_scan_mark) + scan->width * sizeof(float);
    const size_t head_bytes = sizeof(struct sl_request_scanned) + 8;
    const size_t most = scan->client->payload_bytes_max < REPLY_BYTES
                            ? scan->client->payload_bytes_max
                            : REPLY_BYTES;
    const size_t rows = (most - head_bytes) / row_bytes;
    if (rows == 0) {
        return sl_reason_report(SL_ERR_TOO_LARGE, "a row of %zu bytes does not fit into a message",
                                row_bytes);
    }
    scan->rows_max = (uint32_t)(rows < SL_REQUEST_SCAN_ROWS_MAX ? rows : SL_REQUEST_SCAN_ROWS_MAX);
    scan->reply_bytes = sl_bytes_pad8(head_bytes + scan->rows_max * row_bytes);
    scan->replies = malloc(LANES_MAX * scan->reply_bytes);
    return scan->replies != NULL ? 0 : SL_ERR_NO_MEMORY;
}

static int scan_read_options(const struct sl_scan_options *options, struct sl_scan_options *own)
{
    struct sl_reason reason;
    const struct sl_scan_options defaults = SL_SCAN_OPTIONS_INIT;
    const int err = sl_struct_size_read(options == NULL ? &defaults : options, own, sizeof *own,
                                        "SL_SCAN_OPTIONS_INIT", &reason);
    if (err != 0) {
        return sl_reason_report(err, "scan: %s", reason.text);
    }
    own->timeout_ms = own->timeout_ms == 0 ? TIMEOUT_MS_DEFAULT : own->timeout_ms;
    return 0;
}

int sl_scan_open(struct sl_client *client, struct sl_table *table,
                 const struct sl_scan_options *options, struct sl_scan **out)
{
    sl_assert(client != NULL);
    sl_assert(table != NULL);
    sl_assert(out != NULL);
    struct sl_scan_options own;
    int err = scan_read_options(options, &own);
    err = err != 0 ? err : sl_table_check_knows(table, SL_MESSAGE_SPEC_KNOWS_ROWS, "scan");
    if (err != 0) {
        return err;
    }
    struct sl_scan *scan = malloc(sizeof *scan);
    if (scan == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "scan of table %s: no memory", table->spec.name);
    }
    *scan = (struct sl_scan){.client = client, .table = table, .options = own};
    err = scan_begin(scan);
    err = err != 0 ? err : scan_take_memory(scan);
    if (err != 0) {
        err = err == SL_ERR_NO_MEMORY
                  ? sl_reason_report(err, "scan of table %s: no memory", table->spec.name)
                  : scan_fail(scan, err);
        sl_scan_close(&scan);
        return err;
    }
    *out = scan;
    return 0;
}

void sl_scan_close(struct sl_scan **scan)
{
    sl_assert(scan != NULL);
    if (*scan != NULL) {
        free((*scan)->replies);
        free((*scan)->lanes);
        free(*scan);
        *scan = NULL;
    }
}

/* Takes up what was asked, and moves the lanes whose range is done to the front. */
static int scan_pass(struct sl_scan *scan)
{
    const uint32_t end = scan->lanes_done + scan->asked;
    for (uint32_t i = scan->lanes_done; i < end; i++) {
        struct lane *lane = &scan->lanes[i];
        const uint64_t next = scan_head(lane->reply).next;
        if (next <= lane->next && next != lane->body.end) {
            return sl_reason_report(SL_ERR_PROTOCOL, "shard %u does not advance", lane->shard);
        }
        lane->next = next;
        if (next == lane->body.end) {
            const struct lane done = *lane;
            *lane = scan->lanes[scan->lanes_done];
            scan->lanes[scan->lanes_done++] = done;
        }
    }
    scan->asked = scan->returned = 0;
    return 0;
}

static int scan_refill(struct sl_scan *scan)
{
    int err = scan_pass(scan);
    if (err != 0) {
        return err;
    }
    const uint32_t left = scan->lane_count - scan->lanes_done;
    const uint32_t count = left < LANES_MAX ? left : LANES_MAX;
    for (uint32_t i = 0; i < count; i++) {
        scan->lanes[scan->lanes_done + i].reply = scan->replies + i * scan->reply_bytes;
    }
    err = count == 0 ? 0 : scan_ask(scan, &scan->lanes[scan->lanes_done], count, scan->rows_max);
    scan->asked = err == 0 ? count : 0;
    return err;
}

static void scan_fill(const struct sl_scan *scan, const struct lane *lane,
                      const struct sl_request_scanned *head, struct sl_scan_batch *out)
{
    const uint8_t *at = lane->reply + sizeof *head;
    *out = (struct sl_scan_batch){.row_count = head->row_count,
                                  .width = scan->width,
                                  .keys = (const void *)at,
                                  .shard = lane->shard,
                                  .step = head->step};
    at += scan->rows_max * sizeof *out->keys;
    out->marks = (const void *)at;
    out->values = (const void *)(at + scan->rows_max * sizeof *out->marks);
}

int sl_scan_next(struct sl_scan *scan, struct sl_scan_batch *out)
{
    sl_assert(scan != NULL);
    sl_assert(out != NULL);
    if (scan->err != 0) {
        return sl_reason_report(scan->err, "%s", scan->error);
    }
    for (;;) {
        while (scan->returned < scan->asked) {
            const struct lane *lane = &scan->lanes[scan->lanes_done + scan->returned++];
            const struct sl_request_scanned head = scan_head(lane->reply);
            if (head.row_count > scan->rows_max) {
                (void)sl_reason_report(SL_ERR_PROTOCOL, "shard %u returned %u rows of %u",
                                       lane->shard, head.row_count, scan->rows_max);
                return scan_fail(scan, SL_ERR_PROTOCOL);
            }
            if (head.row_count > 0) {
                scan_fill(scan, lane, &head, out);
                return 0;
            }
        }
        const int err = scan_refill(scan);
        if (err != 0) {
            return scan_fail(scan, err);
        }
        if (scan->asked == 0) {
            *out = (struct sl_scan_batch){.width = scan->width};
            return 0;
        }
    }
}
