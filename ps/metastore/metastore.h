/* A cluster store: a few small values under keys, which outlive every process of the cluster and
 * are the same for all of them. They change by comparison: a write may ask that a key is absent, or
 * still the one that it was, and then happens as a whole or not at all. A key may hang on a lease,
 * with whose end it vanishes.
 *
 * What is asked is answered later, in the order of asking for what one asker asks (but for KEEP,
 * which goes before the rest), by `done` on the reactor that owns the store, never from inside
 * `ask`. Every ask has a timeout, and an answer by then. Nothing here is on the data path: a job
 * asks a few times a second.
 *
 * Implementations: ps/metastore/etcd_metastore.h; one in memory for tests,
 * tests/support/memory_store.h. */
#ifndef SL_PS_METASTORE_METASTORE_H
#define SL_PS_METASTORE_METASTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define SL_METASTORE_KEY_BYTES       256
#define SL_METASTORE_VALUE_BYTES_MAX (512U << 10)
#define SL_METASTORE_CHANGES_MAX     100 /* of one write; etcd takes 128 operations */
#define SL_METASTORE_REASON_BYTES    256

enum sl_metastore_kind {
    SL_METASTORE_LEASE_GRANT = 1, /* a lease of ttl_s: answer.lease, answer.ttl_s */
    SL_METASTORE_LEASE_RENEW,     /* prolongs `lease`: answer.ttl_s; NOT_FOUND: it has ended */
    SL_METASTORE_LEASE_REVOKE, /* ends `lease`, and removes what hangs on it. No error when it has
                                  ended */
    SL_METASTORE_READ,         /* the pair under `key`, or all pairs whose keys begin with it */
    SL_METASTORE_WRITE         /* all changes, if the guard holds for `key` */
};

enum sl_metastore_guard {
    SL_METASTORE_ALWAYS,
    SL_METASTORE_ABSENT, /* there is no such key */
    SL_METASTORE_CREATED /* it is there, was created at `revision`, and still has the value `was` */
};

struct sl_metastore_change {
    char key[SL_METASTORE_KEY_BYTES];
    bool removes;   /* the key is removed; else it is set */
    bool is_prefix; /* with removes: every key that begins so */
    uint8_t *value; /* the asker's until the answer */
    size_t value_bytes;
    uint64_t lease; /* that it hangs on; 0: none */
};

struct sl_metastore_item {
    char key[SL_METASTORE_KEY_BYTES];
    uint8_t *value; /* NUL follows; may hold others inside */
    size_t value_bytes;
    uint64_t created; /* the revision: it grows with every write to the store */
    uint64_t lease;   /* that it hangs on; 0: none */
};

struct sl_metastore_answer {
    int err; /* 0; NOT_FOUND; DEADLINE, IO: the store is out of reach, and what was asked may or may
              * not have happened; REFUSED: it does not let us; PROTOCOL: what came is no answer;
              * TOO_LARGE; NO_MEMORY; CANCELLED */
    char reason[SL_METASTORE_REASON_BYTES]; /* where err is not 0: what, and of whom */
    bool held;                              /* WRITE: the guard did, and all is written */
    uint64_t revision;                      /* WRITE that held: of it */
    uint64_t lease;
    uint32_t ttl_s;
    struct sl_metastore_item
        *pairs; /* READ, by key; WRITE whose guard did not hold: what is there */
    size_t item_count;
};

/* Caller's storage from `ask` until `done`. */
struct sl_metastore_request {
    enum sl_metastore_kind kind;
    uint64_t timeout_ns;
    uint32_t ttl_s; /* GRANT */
    uint64_t lease; /* KEEP, REVOKE */
    char key[SL_METASTORE_KEY_BYTES];
    bool is_prefix; /* READ */
    enum sl_metastore_guard guard;
    uint64_t revision; /* CREATED */
    const char *was;   /* CREATED; NULL: whatever it has. The asker's until the answer */
    struct sl_metastore_change *changes;
    size_t change_count;
    void (*done)(void *ctx, struct sl_metastore_request *ask);
    void *ctx;
    struct sl_metastore_answer
        answer; /* since `done`; sl_metastore_answer_fini gives its memory back */
};

struct sl_metastore;

struct sl_metastore_ops {
    void (*ask)(struct sl_metastore *metastore, struct sl_metastore_request *ask);
};

/* Implementations begin with it. */
struct sl_metastore {
    const struct sl_metastore_ops *ops;
};

/* Owner reactor. */
static inline void sl_metastore_request(struct sl_metastore *metastore,
                                        struct sl_metastore_request *ask)
{
    ask->answer = (struct sl_metastore_answer){0};
    metastore->ops->ask(metastore, ask);
}

/* Frees the pairs. */
void sl_metastore_answer_fini(struct sl_metastore_answer *answer);

/* Makes room for one more pair, with value_bytes of value and the NUL behind it; NULL: no memory.
 */
struct sl_metastore_item *sl_metastore_answer_add(struct sl_metastore_answer *answer,
                                                  size_t value_bytes);

/* Fails it, with a reason. */
void sl_metastore_answer_fail(struct sl_metastore_answer *answer, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
