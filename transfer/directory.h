/* Directory is the engine's use of its metadata store (transfer/names.h): it publishes the engine's
 * record, and finds the addresses of segments. With P2PHANDSHAKE there is no store: the name is the
 * address. publish and withdraw block: any thread but a reactor's. Check: any thread. The reason of
 * an error is in sl_transfer_last_error. */
#ifndef SL_TRANSFER_DIRECTORY_H
#define SL_TRANSFER_DIRECTORY_H

#include "transfer/record.h"
#include "transfer/settings.h"

struct sl_transfer;

/* Before the reactors start. Errors: NO_MEMORY, IO. */
int sl_transfer_directory_open(struct sl_transfer *transfer);

/* After the reactors were joined. */
void sl_transfer_directory_close(struct sl_transfer *transfer);

/* Writes the engine's record, when it listens, within the start timeout. Errors: EXISTS (the name
 * is alive elsewhere), those of a metastore. */
int sl_transfer_directory_publish(struct sl_transfer *transfer);

/* Removes the record, if there is one. A store that does not answer is logged. */
void sl_transfer_directory_withdraw(struct sl_transfer *transfer);

/* Checks the name of a segment. Without a store it is the address, *out; else out->port is 0, and
 * the engine's names have the record. Errors: INVALID. */
int sl_transfer_directory_check(const struct sl_transfer *transfer, const char *name,
                                struct sl_endpoint *out);

/* Takes the address from a record, which comes from outside. Errors: PROTOCOL, with the reason. */
int sl_transfer_directory_address(const struct sl_transfer_record *record, struct sl_endpoint *out,
                                  char reason[SL_TRANSFER_REASON_BYTES]);

/* Adds the record's address and age to the reason why its process cannot be reached: an HTTP store
 * keeps the record of a process that was killed. */
void sl_transfer_directory_explain(const struct sl_transfer_record *record,
                                   char reason[SL_TRANSFER_REASON_BYTES]);

#endif
