/* Announcement keeps one record in a metastore while its process lives.
 *
 * The record hangs on a lease of SL_ANNOUNCEMENT_TTL_S, which is renewed: the record of a process
 * that has ended disappears. It is written only if its key is free. A key is also free if its
 * record has the announced record's own address, since then its former owner has ended. A store
 * without leases (HTTP) is written without comparison, and the record stays if the process is
 * killed.
 *
 * Owner reactor. No allocation. */
#ifndef SL_NET_TRANSFER_ANNOUNCEMENT_H
#define SL_NET_TRANSFER_ANNOUNCEMENT_H

#include "net/store/held_key.h"
#include "net/transfer/record.h"
#include "reactor/reactor.h"
#include "reactor/timer.h"

#define SL_ANNOUNCEMENT_TTL_S        10
#define SL_ANNOUNCEMENT_REASON_BYTES 512

/* Caller's storage. All members are private. */
struct sl_announcement {
    struct sl_reactor *reactor;
    struct sl_held_key key; /* its value is the record */
    struct sl_transfer_record record;
    struct sl_timer timer; /* of the key's next tick */
    bool is_stopping;      /* the key is given up */
    bool has_logged;       /* that the record is not in the store, or will not stay */
    /* Of start or stop, until it has ended. */
    void (*done)(void *ctx, int err, const char *reason); /* NULL: nobody waits */
    void *ctx;
    struct sl_timer deadline;
    char reason[SL_ANNOUNCEMENT_REASON_BYTES]; /* why the key is taken; "": it is not */
};

/* Writes the record and keeps it. text: the encoded record; stays the caller's until stop's `done`.
 * `done` runs once, within timeout_ns, never inside the call: 0; EXISTS: the key is alive elsewhere
 * until the timeout; an error of the metastore. After an error nothing is announced. */
void sl_announcement_start(struct sl_announcement *announcement, struct sl_reactor *reactor,
                           struct sl_metastore *metastore, const char *key,
                           const struct sl_transfer_record *record, const char *text,
                           uint64_t timeout_ns,
                           void (*done)(void *ctx, int err, const char *reason), void *ctx);

/* Removes the record. After `done` of start. `done` runs once, within timeout_ns, never inside the
 * call: 0; an error of the metastore. */
void sl_announcement_stop(struct sl_announcement *announcement, uint64_t timeout_ns,
                          void (*done)(void *ctx, int err, const char *reason), void *ctx);

/* Ends without removing the record; `done` of start or stop does not run any more. The storage must
 * stay until the metastore is destroyed, since it may still answer. */
void sl_announcement_drop(struct sl_announcement *announcement);

/* Whether an address or name is that of loopback, so that other hosts cannot reach it. */
bool sl_announcement_is_loopback(const char *host);

#endif
