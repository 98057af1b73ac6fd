/* Directory is the engine's use of its metadata store (transfer/names.h): it publishes the engine's
 * record, and finds the addresses of segments. With P2PHANDSHAKE there is no store: the name is the
 * address. Any thread but a reactor's, except open and close; blocks. The reason of an error is in
 * sl_transfer_last_error. */
#ifndef SL_TRANSFER_DIRECTORY_H
#define SL_TRANSFER_DIRECTORY_H

#include "transfer/record.h"
#include "transfer/settings.h"

struct sl_transfer;

/* Where a segment is. */
struct sl_transfer_place {
    struct sl_endpoint endpoint;      /* of the control connection */
    bool is_stored;                   /* there is a record */
    struct sl_transfer_record record; /* incarnation 0: any */
};

/* Before the reactors start. Errors: NO_MEMORY, IO. */
int sl_transfer_directory_open(struct sl_transfer *transfer);

/* After the reactors were joined. */
void sl_transfer_directory_close(struct sl_transfer *transfer);

/* Writes the engine's record, when it listens, within the start timeout. Errors: EXISTS (the name
 * is alive elsewhere), those of a metastore. */
int sl_transfer_directory_publish(struct sl_transfer *transfer);

/* Removes the record, if there is one. A store that does not answer is logged. */
void sl_transfer_directory_withdraw(struct sl_transfer *transfer);

/* Errors: those of sl_names_lookup; INVALID: the name. */
int sl_transfer_directory_find(struct sl_transfer *transfer, const char *name, uint32_t timeout_ms,
                               struct sl_transfer_place *out);

/* Fails with the reason of the thread's last error and, if there is a record, its address and age:
 * an HTTP store keeps the record of a process that was killed. */
int sl_transfer_directory_fail(const struct sl_transfer_place *place, int err);

#endif
