/* Opens a table without blocking. */
#ifndef SL_WORKER_CLIENT_TABLE_OPENING_H
#define SL_WORKER_CLIENT_TABLE_OPENING_H

#include "worker/client/client_internal.h"

/* Opening a table: the coordinator assigns an id, then every shard creates the table. */
struct sl_table_opening {
    struct sl_client *client;
    struct sl_table_spec spec;
    struct sl_control_op coordinator;
    struct sl_control_op *shards; /* one per client_io, after the coordinator's answer */
    struct sl_control_op *ops;    /* outstanding: the coordinator's or the shards' */
    uint32_t op_count;
};

/* Checks a specification. Errors: INVALID, reported. */
int sl_table_opening_check(const struct sl_table_spec *spec);

/* Begins to open a table; never blocks. The caller owns *opening and keeps it until poll returns
 * something else than AGAIN. Errors: INVALID (a flaw of the specification is logged), NO_MEMORY. */
int sl_table_opening_begin(struct sl_table_opening *opening, struct sl_client *client,
                           const struct sl_table_spec *spec, uint32_t timeout_ms);

/* Returns AGAIN, 0 with *out, or an error: one of the coordinator or of a shard (EXISTS, TOO_LARGE,
 * DEADLINE, CLOSED), logged; or NO_MEMORY. Same thread as begin. */
int sl_table_opening_poll(struct sl_table_opening *opening, struct sl_table **out);

/* Checks that all servers know an operation. least: of SL_MESSAGE_SPEC_KNOWS. Errors: VERSION,
 * reported. Any thread. */
int sl_table_check_knows(const struct sl_table *table, uint32_t least, const char *what);

#endif
