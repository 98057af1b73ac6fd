/* Rows of tables beside pull and push: which keys have a row, scans of all rows, evictions, and the
 * end of a table. docs/embeddings.md shows the use. A server older than these calls gets none of
 * them: VERSION.
 *
 * Functions return 0 or a negative enum sl_err; sl_last_error has the reason of a failure. Outputs
 * are written only on success. */
#ifndef STARLING_ROWS_H
#define STARLING_ROWS_H

#include <starling.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds to the step a pull that also tells which keys have a row. rows[key_count][dim]: as of
 * sl_step_pull; the row of a key without one is the initializer's. found[key_count]: 1 for a key
 * with a row, else 0. No row is created, and no visit is counted. It waits for clocks as a pull
 * does. The arrays are the caller's, unchanged until the step is complete. The step's thread.
 * Errors: INVALID (not a sparse table of this client; keys, rows or found NULL), NO_MEMORY,
 * VERSION (a server is too old). */
SL_API int sl_step_find(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                        uint32_t key_count, float *rows, uint8_t *found);

/* A scan visits all rows of a table while it is in use. A row that exists from the open to the end
 * comes exactly once; one that comes or goes meanwhile comes at most once for each time that it was
 * created. Its values are of the moment of its batch. Any thread may use a scan, one at a time. */
struct sl_scan;

struct sl_scan_options {
    size_t struct_size;  /* SL_SCAN_OPTIONS_INIT sets it */
    uint32_t timeout_ms; /* of each call, up to 4,294,967; 0: 60,000 */
    uint32_t count_min;  /* rows with at least so many pushes */
    uint64_t since;      /* rows pushed or assigned after this step of their shard; 0: all */
    bool slots;          /* also what the optimizer keeps of the rows */
};
#define SL_SCAN_OPTIONS_INIT                                                                       \
    {                                                                                              \
        .struct_size = sizeof(struct sl_scan_options)                                              \
    }

struct sl_scan_mark {
    uint32_t last_step; /* of the shard at the row's last push or assign, modulo 2^32; 0: none */
    uint32_t count;     /* pushes since its creation or assign */
};

/* Rows of one shard. The arrays are the scan's, and valid until its next call. */
struct sl_scan_batch {
    uint32_t row_count;               /* 0: there are no more rows */
    uint32_t width;                   /* dim; with slots: and theirs */
    const uint64_t *keys;             /* [row_count] */
    const float *values;              /* [row_count][width] */
    const struct sl_scan_mark *marks; /* [row_count] */
    uint32_t shard;
    uint64_t step; /* of the shard: pushes and assigns of the table so far */
};

/* Begins a scan of a sparse table. options NULL: all rows. The caller closes the scan before the
 * client. Blocks for a round trip. Errors: INVALID (not a sparse table of this client; timeout_ms),
 * VERSION (a server is too old), NOT_FOUND (the table was dropped), DEADLINE, CLOSED, NO_MEMORY. */
SL_API int sl_scan_open(struct sl_client *client, struct sl_table *table,
                        const struct sl_scan_options *options, struct sl_scan **out);

/* Returns the next rows, of the shards in turn. Errors, after which the scan returns the same
 * again: CLOSED (a server was restarted, its backup took over, or the table shrank while the scan
 * rested: begin another scan; rows returned before stay valid), NOT_FOUND (the table was dropped),
 * DEADLINE, NO_MEMORY. */
SL_API int sl_scan_next(struct sl_scan *scan, struct sl_scan_batch *out);

/* Frees the scan. Sets *scan to NULL; NULL is allowed. */
SL_API void sl_scan_close(struct sl_scan **scan);

/* Thresholds of one eviction, as in struct sl_policy_spec. All 0: those of the table's policy. */
struct sl_evict_options {
    size_t struct_size;   /* SL_EVICT_OPTIONS_INIT sets it */
    uint32_t timeout_ms;  /* up to 4,294,967; 0: 60,000 */
    uint32_t ttl_steps;   /* rows of at least this age go; up to 2^31 */
    uint32_t count_below; /* rows with fewer pushes go */
    float l2_below;       /* rows with a lower Euclidean norm go; finite, not negative */
};
#define SL_EVICT_OPTIONS_INIT                                                                      \
    {                                                                                              \
        .struct_size = sizeof(struct sl_evict_options)                                             \
    }

/* Evicts rows of a sparse table now: every shard judges each of its rows once, while it serves, and
 * evicts those that a threshold selects. Rows within the protect_steps of the table's policy stay,
 * and keys that wait for admission keep waiting. Blocks until all shards are done; *evicted is how
 * many rows went. options NULL: the policy's thresholds. With a clock it waits as a pull does.
 *
 * After an error some rows may have gone. Errors: INVALID (not a sparse table of this client;
 * ttl_steps, l2_below, timeout_ms; no threshold here nor in the policy), VERSION (a server is too
 * old), NOT_FOUND (the table was dropped), CLOSED (a connection was lost meanwhile), DEADLINE (the
 * shards go on), NO_MEMORY. */
SL_API int sl_client_table_evict(struct sl_client *client, struct sl_table *table,
                                 const struct sl_evict_options *options, uint64_t *evicted);

/* Drops the table of this name, of any kind, with its rows, at every server and its backup; later
 * checkpoints do not have it. Blocks until the coordinator has forgotten the name and every shard
 * refuses the table. Requests of clients that have the table open then get NOT_FOUND. A table that
 * is opened later under the name is a new one. Each opening of a new table takes one of the 1,024
 * ids of a job, which are not used again. Errors: INVALID (the name), NOT_FOUND (no table has it),
 * VERSION (a server is too old), DEADLINE, CLOSED: if the text of these two says "is dropped", the
 * drop has happened, and the named server, which may be away, has not confirmed it in time: it
 * follows when it returns. */
SL_API int sl_client_table_drop(struct sl_client *client, const char *name, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
