/* The coordinator's memory in a cluster store (ps/metastore/metastore.h): its records, under
 * PREFIX/state/. At the beginning they are read, into a coordinator that has had no hello yet.
 * Then each that changes is written, and what the coordinator sends meanwhile is kept back, in its
 * order, until all that had changed before is written: nobody is told what the next coordinator
 * would not know. Every write compares the key of the term (ps/leader/election.h) and happens only
 * in this one; and it changes that key's value, which the next one compares: what a server of the
 * store was asked for, and did not answer, cannot happen later, over what was written since.
 *
 * Owner: the store's reactor. Allocates as messages are kept back; what waits is limited.
 */
#ifndef SL_PS_LEADER_COORDINATOR_LOG_H
#define SL_PS_LEADER_COORDINATOR_LOG_H

#include "ps/coordinator/coordinator.h"
#include "ps/metastore/metastore.h"

struct sl_coordinator_log_options {
    struct sl_metastore *metastore;
    const char *prefix;                        /* copied */
    const char *key;                           /* of the term; copied */
    const char *value;                         /* that it has: a JSON object; copied */
    uint64_t lease;                            /* that it hangs on */
    uint64_t term;                             /* the revision at which it was created */
    uint64_t timeout_ns;                       /* of one write; that of reading is ten times it */
    size_t bytes_max;                          /* of messages kept back; 0: 256 MiB */
    struct sl_coordinator_options coordinator; /* `send`, `close` and others as they are to be
                                                * called; `changed` is set here */
    /* The records are read: sl_coordinator_record_end, then the coordinator can take hellos. anew:
     * there were none. */
    void (*ready)(void *ctx, bool anew);
    /* This term is over, or cannot go on, as a write or a record says. From then on nothing is
     * sent. Not from inside sl_coordinator_log_create. */
    void (*failed)(void *ctx, const char *why);
    /* sl_coordinator_log_run is to be called soon, but not from inside. */
    void (*wake)(void *ctx);
    /* May anything be sent now? The lease of the term lasts. */
    bool (*may_act)(void *ctx);
    void *ctx;
};

struct sl_coordinator_log;

/* Makes the coordinator, and begins to read. Errors: NO_MEMORY, INVALID (the prefix is too long).
 */
int sl_coordinator_log_create(const struct sl_coordinator_log_options *options,
                              struct sl_coordinator_log **out);

/* The coordinator; its `send` goes through the ledger. Valid as long as that. */
struct sl_coordinator *sl_coordinator_log_coordinator(struct sl_coordinator_log *log);

/* Writes what has changed. */
void sl_coordinator_log_run(struct sl_coordinator_log *log);

/* The peer's connection is gone: what was kept back for it is dropped. Before the server frees it.
 */
void sl_coordinator_log_gone(struct sl_coordinator_log *log, sl_coordinator_peer peer);

/* All is written. */
bool sl_coordinator_log_is_clean(const struct sl_coordinator_log *log);

/* The job is over: the records are removed, as the last write. */
void sl_coordinator_log_erase(struct sl_coordinator_log *log);

/* Nothing is sent or written any more. With something under way at the store it is freed when that
 * has been answered. Nulls *ledger. */
void sl_coordinator_log_destroy(struct sl_coordinator_log **log);

#endif
