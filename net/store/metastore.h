/* Metastore is the interface to a small key-value store (etcd) that outlives the processes that use
 * it. A write can compare a key: it must be absent, or unchanged; the write then happens completely
 * or not at all. A key can hang on a lease and is removed when the lease ends.
 *
 * Requests are asynchronous: `done` runs on the owner reactor, never inside sl_metastore_request.
 * Answers come in the order of the requests, but LEASE_RENEW may overtake other kinds, and so may
 * the end of a timeout. Every request has a timeout and is answered by then. Not on the data path:
 * a process sends a few requests a second.
 *
 * Implementations: net/store/remote_metastore.h, with etcd or, without leases and guards, over
 * HTTP; in memory, for tests: tests/support/memory_store.h.
 */
#ifndef SL_NET_STORE_METASTORE_H
#define SL_NET_STORE_METASTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define SL_METASTORE_KEY_BYTES       384
#define SL_METASTORE_VALUE_BYTES_MAX (512U << 10)
#define SL_METASTORE_CHANGES_MAX     100 /* per write; etcd allows 128 operations */
#define SL_METASTORE_REASON_BYTES    256

enum sl_metastore_kind {
    SL_METASTORE_LEASE_GRANT = 1, /* creates a lease of ttl_s: answer.lease, answer.ttl_s */
    SL_METASTORE_LEASE_RENEW,     /* extends `lease`: answer.ttl_s; NOT_FOUND: it has ended */
    SL_METASTORE_LEASE_REVOKE,    /* ends `lease` and removes its keys; no error if it has ended */
    SL_METASTORE_READ, /* the item with this key, or all items whose keys have this prefix */
    SL_METASTORE_WRITE /* applies all changes if the guard holds for `key` */
};

enum sl_metastore_guard {
    SL_METASTORE_ALWAYS,
    SL_METASTORE_ABSENT, /* the key does not exist */
    SL_METASTORE_CREATED /* the key exists, was created at `revision`, and has the value `was` */
};

struct sl_metastore_change {
    char key[SL_METASTORE_KEY_BYTES];
    bool removes;   /* removes the key; else sets it */
    bool is_prefix; /* with removes: every key with this prefix */
    uint8_t *value; /* owned by the caller, valid until `done` */
    size_t value_bytes;
    uint64_t lease; /* removed with this lease; 0: none */
};

struct sl_metastore_item {
    char key[SL_METASTORE_KEY_BYTES];
    uint8_t *value; /* a NUL follows; may contain NULs */
    size_t value_bytes;
    uint64_t created; /* creation revision; revisions grow with every write to the store; HTTP: 0 */
    uint64_t lease;   /* 0: none */
};

struct sl_metastore_answer {
    int err; /* 0; NOT_FOUND; DEADLINE, IO: unreachable, the request may or may not have happened;
                REFUSED: access denied; PROTOCOL: invalid answer; TOO_LARGE; NO_MEMORY; CANCELLED;
                UNSUPPORTED: the store cannot do it, see net/store/http_metadata.h */
    char reason[SL_METASTORE_REASON_BYTES]; /* if err is not 0: names the server and the cause */
    bool held;                              /* WRITE: the guard held, and all changes are written */
    uint64_t revision;                      /* of a WRITE that held; HTTP: 0 */
    uint64_t lease;
    uint32_t ttl_s;
    struct sl_metastore_item *pairs; /* READ: by key; WRITE whose guard failed: the current item */
    size_t item_count;
};

/* Caller's storage, from sl_metastore_request until `done`. */
struct sl_metastore_request {
    enum sl_metastore_kind kind;
    uint64_t timeout_ns;
    uint32_t ttl_s; /* LEASE_GRANT */
    uint64_t lease; /* LEASE_RENEW, LEASE_REVOKE */
    char key[SL_METASTORE_KEY_BYTES];
    bool is_prefix; /* READ */
    enum sl_metastore_guard guard;
    uint64_t revision; /* CREATED */
    const char *was;   /* CREATED; NULL: any value. Owned by the caller, valid until `done` */
    size_t was_bytes;
    struct sl_metastore_change *changes;
    size_t change_count;
    void (*done)(void *ctx, struct sl_metastore_request *ask);
    void *ctx;
    struct sl_metastore_answer answer; /* from `done` on; free with sl_metastore_answer_fini */
};

struct sl_metastore;

struct sl_metastore_ops {
    void (*ask)(struct sl_metastore *metastore, struct sl_metastore_request *ask);
};

/* First member of every implementation. */
struct sl_metastore {
    const struct sl_metastore_ops *ops;
};

/* Sends a request. Owner reactor. */
static inline void sl_metastore_request(struct sl_metastore *metastore,
                                        struct sl_metastore_request *ask)
{
    ask->answer = (struct sl_metastore_answer){0};
    metastore->ops->ask(metastore, ask);
}

/* Frees the items. */
void sl_metastore_answer_fini(struct sl_metastore_answer *answer);

/* Appends an item with room for value_bytes and a NUL. NULL: no memory. */
struct sl_metastore_item *sl_metastore_answer_add(struct sl_metastore_answer *answer,
                                                  size_t value_bytes);

/* Sets the error and its reason. */
void sl_metastore_answer_fail(struct sl_metastore_answer *answer, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
