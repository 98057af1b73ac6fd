/* Restored spec is the specification of a table of a job that was restored from a checkpoint. */
#ifndef SL_WORKER_CLIENT_RESTORED_SPEC_H
#define SL_WORKER_CLIENT_RESTORED_SPEC_H

#include <starling.h>

/* If the job was restored from a checkpoint, writes the specification that its table of this name
 * has. Blocks. Errors: NOT_FOUND, DEADLINE, CLOSED, CANCELLED, NO_MEMORY. Any thread. */
int sl_restored_spec_read(struct sl_client *client, const char *name, uint32_t timeout_ms,
                          struct sl_table_spec *out);

#endif
