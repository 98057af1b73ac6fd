/* The directory is a metadata store that engines share: an engine publishes its record there
 * (net/transfer/announcement.h), and finds the addresses of segments by their names. With
 * P2PHANDSHAKE there is no directory: the name is the address. publish and withdraw block: any
 * thread but a reactor's. check: any thread. The reason of an error is in sl_transfer_last_error.
 */
#ifndef SL_NET_TRANSFER_DIRECTORY_H
#define SL_NET_TRANSFER_DIRECTORY_H

#include "net/store/metastore.h"
#include "net/transfer/record.h"
#include "net/transfer/settings.h"

struct sl_transfer;

/* Finds an engine by its name. Caller's storage until `done`. */
struct sl_transfer_lookup {
    const char *name; /* of the segment */
    /* On the first reactor, once, within the timeout. */
    void (*done)(struct sl_transfer_lookup *lookup);
    /* 0; NOT_FOUND: no record; PROTOCOL, TOO_LARGE: an invalid one; DEADLINE; those of a metastore.
     */
    int err;
    char reason[SL_TRANSFER_REASON_BYTES]; /* if err is not 0 */
    struct sl_transfer_record record;
    struct sl_endpoint endpoint; /* of the control connection */
    struct sl_metastore_request read;
};

/* Opens the store that the settings name, or takes that of the setup. Before the reactors start.
 * Errors: NO_MEMORY, IO. */
int sl_transfer_directory_create(struct sl_transfer *transfer);

/* Waits a while for a thread of the store that hangs. After the reactors were joined. */
void sl_transfer_directory_destroy(struct sl_transfer *transfer);

/* Writes the engine's record, when it listens, within the start timeout, and keeps it. Warns of an
 * address that other hosts cannot reach. Errors: EXISTS (the name is alive elsewhere), INVALID and
 * TOO_LARGE (the record), those of a metastore. */
int sl_transfer_directory_publish(struct sl_transfer *transfer);

/* Removes the record, if there is one. A store that does not answer is logged. */
void sl_transfer_directory_withdraw(struct sl_transfer *transfer);

/* Checks the name of a segment. With P2PHANDSHAKE it is the address, *out; else out->port is 0.
 * Errors: INVALID. */
int sl_transfer_directory_check(const struct sl_transfer *transfer, const char *name,
                                struct sl_endpoint *out);

/* There is a store, and the name was checked. First reactor. */
void sl_transfer_directory_look_up(struct sl_transfer *transfer, struct sl_transfer_lookup *lookup,
                                   uint64_t timeout_ns);

/* Adds the record's address and age to the reason why its process cannot be reached: an HTTP store
 * keeps the record of a process that was killed. */
void sl_transfer_directory_explain(const struct sl_transfer_record *record,
                                   char reason[SL_TRANSFER_REASON_BYTES]);

#endif
