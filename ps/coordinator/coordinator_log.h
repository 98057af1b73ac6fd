/* Coordinator log keeps the coordinator's records in the metastore (net/store/metastore.h),
 * under PREFIX/state/. At first it loads them into a new coordinator. Then it writes every changed
 * record, and holds outgoing messages, in order, until all earlier changes are written: no member
 * learns anything that the next leader would not know.
 *
 * Every write compares the term key (net/store/held_key.h), so writes of former terms fail. Every
 * write also changes that key's value, which the next write compares: an unanswered write cannot
 * take effect late and overwrite newer records. Owner: the metastore's reactor. Allocates for held
 * messages, up to bytes_max. */
#ifndef SL_PS_COORDINATOR_COORDINATOR_LOG_H
#define SL_PS_COORDINATOR_COORDINATOR_LOG_H

#include "net/store/metastore.h"
#include "ps/coordinator/coordinator.h"

struct sl_coordinator_log_options {
    struct sl_metastore *metastore;
    const char *prefix;                        /* copied */
    const char *key;                           /* the term key; copied */
    const char *value;                         /* its value, a JSON object; copied */
    uint64_t lease;                            /* the lease of the term key */
    uint64_t term;                             /* creation revision of the term key */
    uint64_t timeout_ns;                       /* of one write; loading gets ten times as much */
    size_t bytes_max;                          /* of held messages; 0: 256 MiB */
    struct sl_coordinator_options coordinator; /* as without a log; `changed` is set here */
    /* All records are loaded. Call sl_coordinator_record_end; then the coordinator takes hellos.
     * anew: there were none. */
    void (*ready)(void *ctx, bool anew);
    /* The term cannot continue: a write was rejected, a record is invalid, or memory is short.
     * Nothing is sent afterwards. Not called inside sl_coordinator_log_create. */
    void (*failed)(void *ctx, const char *why);
    /* Requests a call of sl_coordinator_log_run soon, but not from inside this callback. */
    void (*wake)(void *ctx);
    /* Returns true while the term's lease lasts, so messages may be sent. */
    bool (*may_act)(void *ctx);
    void *ctx;
};

struct sl_coordinator_log;

/* Creates the coordinator and starts loading. Errors: NO_MEMORY, INVALID (prefix too long). */
int sl_coordinator_log_create(const struct sl_coordinator_log_options *options,
                              struct sl_coordinator_log **out);

/* The coordinator, whose messages go through the log. Owned by the log. */
struct sl_coordinator *sl_coordinator_log_coordinator(struct sl_coordinator_log *log);

/* Writes changed records. */
void sl_coordinator_log_run(struct sl_coordinator_log *log);

/* Drops the messages held for a closed connection. Call before the server frees it. */
void sl_coordinator_log_gone(struct sl_coordinator_log *log, sl_coordinator_peer peer);

/* Returns true if all changes are written. */
bool sl_coordinator_log_is_clean(const struct sl_coordinator_log *log);

/* Removes all records, as the last write: the job is over. */
void sl_coordinator_log_erase(struct sl_coordinator_log *log);

/* Stops sending and writing. If a request is in flight, memory is freed when its answer arrives.
 * Nulls *log. */
void sl_coordinator_log_destroy(struct sl_coordinator_log **log);

#endif
