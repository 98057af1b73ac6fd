/* Names finds engines by the names of their segments, in a metadata store that they share, and
 * publishes this engine's record there (transfer/announcement.h). With P2PHANDSHAKE there is no
 * store: the name is the address.
 *
 * An HTTP store keeps the record of a process that was killed. So an error about an address that
 * was looked up should say how old its record is (sl_transfer_record_age).
 *
 * Owner reactor. Allocates only in create and publish. No `done` runs inside the call. */
#ifndef SL_TRANSFER_NAMES_H
#define SL_TRANSFER_NAMES_H

#include "core/list.h"
#include "metastore/address.h"
#include "reactor/reactor.h"
#include "transfer/record.h"

#define SL_NAMES_REASON_BYTES 512

struct sl_names;

/* Of a lookup: the caller's storage until `done`. */
struct sl_names_lookup {
    char name[SL_LIMIT_ENDPOINT_BYTES]; /* of the segment */
    uint64_t timeout_ns;
    void (*done)(struct sl_names_lookup *lookup); /* within timeout_ns */
    int err;                                      /* 0, or the error with the reason */
    char reason[SL_NAMES_REASON_BYTES];
    struct sl_transfer_record record; /* P2PHANDSHAKE: name, host and port; the rest is 0 */
    struct sl_names *names;           /* private, also the next two */
    struct sl_list_link link;
    struct sl_timer timer;
};

/* Opens the store at the address, which may name files for TLS that outlive the names. metastore:
 * NULL, or a store that is used instead of it; it outlives the names, and answers all requests
 * before they are destroyed. Errors: NO_MEMORY, IO. The first call of a process must come before
 * other threads start. */
int sl_names_create(struct sl_reactor *reactor, const struct sl_metastore_address *address,
                    struct sl_metastore *metastore, struct sl_names **out);

/* Answers lookups with CANCELLED, then waits up to timeout_ns for each thread of the store. Does
 * not withdraw. Owner, or any thread after the reactor was joined. Nulls *names. */
void sl_names_destroy(struct sl_names **names, uint64_t timeout_ns);

/* Publishes the record of this engine, and keeps it published. Once. Sets record->written_s. Warns
 * of an address that other hosts cannot reach. `done` runs within timeout_ns. Errors: EXISTS (the
 * name is alive elsewhere), INVALID and TOO_LARGE (the record), those of a metastore. */
void sl_names_publish(struct sl_names *names, struct sl_transfer_record *record,
                      uint64_t timeout_ns, void (*done)(void *ctx, int err, const char *reason),
                      void *ctx);

/* Removes the record, if there is one. After `done` of publish. Errors: those of a metastore. */
void sl_names_withdraw(struct sl_names *names, uint64_t timeout_ns,
                       void (*done)(void *ctx, int err, const char *reason), void *ctx);

/* Errors: NOT_FOUND (no record); PROTOCOL and TOO_LARGE (an invalid one); INVALID (the name);
 * DEADLINE; those of a metastore. */
void sl_names_lookup(struct sl_names *names, struct sl_names_lookup *lookup);

/* Ends a lookup without `done`. */
void sl_names_cancel(struct sl_names_lookup *lookup);

#endif
