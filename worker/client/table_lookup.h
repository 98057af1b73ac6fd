/* Table lookup finds tables that exist by their names, at the coordinator: sl_client_tables and
 * sl_client_table_open_by_name of the public API. */
#ifndef SL_WORKER_CLIENT_TABLE_LOOKUP_H
#define SL_WORKER_CLIENT_TABLE_LOOKUP_H

#include <starling.h>

/* If the job was restored from a checkpoint, writes the specification that its table of this name
 * has. Blocks. Errors: NOT_FOUND, DEADLINE, CLOSED, CANCELLED, NO_MEMORY. Any thread. */
int sl_table_lookup_restored(struct sl_client *client, const char *name, uint32_t timeout_ms,
                             struct sl_table_spec *out);

#endif
