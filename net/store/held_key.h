/* Held key competes for one key of a metastore, and holds it on a lease that it renews. The value
 * names the holder. The key's creation revision is the holder's term, which grows with every holder
 * of the key: a write that compares it (SL_METASTORE_CREATED) succeeds only in this term.
 *
 * A holder loses when its lease may have ended by its own clock, counted from when it requested the
 * lease: until then no other process can have won. A store without leases (HTTP) is written without
 * comparison, and the key stays if the process is killed; the holder reads the key as often as it
 * would renew a lease, and loses when the key is absent or has another value. After a
 * loss the process competes again, so a store that was emptied gets the key again.
 *
 * Time comes from sl_held_key_tick and now_ns. Owner: the metastore's reactor. No allocation. */
#ifndef SL_NET_STORE_HELD_KEY_H
#define SL_NET_STORE_HELD_KEY_H

#include "net/store/metastore.h"

struct sl_held_key_options {
    struct sl_metastore *metastore;
    char key[SL_METASTORE_KEY_BYTES];
    const char *value;  /* the caller's, while the key is in use */
    bool campaigns;     /* false: only reads the key */
    bool claims_unread; /* tries to write the key before it reads it for the first time */
    uint32_t ttl_s;     /* of the lease; at least 2 */
    uint64_t poll_ns;   /* between reads while another process holds the key */
    uint64_t (*now_ns)(void *ctx);
    /* This process holds the key, whose creation revision is `term` (HTTP: 0). */
    void (*won)(void *ctx, uint64_t term);
    /* It does not any more. Not called after sl_held_key_release. */
    void (*lost)(void *ctx, const char *why);
    /* The key was read: this is its item; NULL: it does not exist. */
    void (*seen)(void *ctx, const struct sl_metastore_item *item);
    /* Whether the process that wrote the item has certainly ended, so that this one may replace it
     * within the same term. NULL: never. */
    bool (*replaces)(void *ctx, const struct sl_metastore_item *item);
    /* The store has failed; once, until it answers again, which is err 0. It is tried again. */
    void (*trouble)(void *ctx, int err, const char *reason);
    void *ctx;
};

enum sl_held_key_state {
    SL_HELD_KEY_WATCHING, /* reads the key from time to time */
    SL_HELD_KEY_READING,
    SL_HELD_KEY_GRANTING,
    SL_HELD_KEY_CLAIMING,
    SL_HELD_KEY_HOLDING,
    SL_HELD_KEY_REVOKING, /* a lease that did not win, or whose term ended */
    SL_HELD_KEY_RELEASED
};

/* Caller's storage. All members but `options` are private. */
struct sl_held_key_call {
    struct sl_metastore_request request;
    bool in_flight;
    uint64_t asked_ns; /* when it was sent */
};

struct sl_held_key {
    struct sl_held_key_options options;
    enum sl_held_key_state state;
    struct sl_held_key_call ask;  /* all kinds but `keep` */
    struct sl_held_key_call keep; /* LEASE_RENEW, or READ without leases, after winning */
    bool is_unread;               /* the next attempt does not read the key first */
    bool has_no_leases;           /* the store */
    int trouble;                  /* of the store */
    struct sl_metastore_change change;
    uint64_t lease, ttl_ns;
    uint64_t replaced; /* creation revision of the item to replace; 0: none */
    uint64_t until_ns; /* the lease lasts at least until then */
    uint64_t keep_at_ns, look_at_ns;
    uint64_t pause_ns; /* before the next attempt after a revocation */
    void (*released)(void *ctx, int err, const char *reason); /* NULL: nobody waits */
    void *released_ctx;
    int release_err;
    char release_reason[SL_METASTORE_REASON_BYTES];
};

/* Copies the options. Sends nothing. */
void sl_held_key_init(struct sl_held_key *held, const struct sl_held_key_options *options);

/* Call several times a second, from the beginning on. */
void sl_held_key_tick(struct sl_held_key *held, uint64_t now_ns);

/* Returns true if this process has won and its lease still lasts. */
bool sl_held_key_holds(const struct sl_held_key *held, uint64_t now_ns);

/* For writes of the holder that are removed with its key; 0: none. */
static inline uint64_t sl_held_key_lease(const struct sl_held_key *held)
{
    return held->lease;
}

/* Ends the term of a holder whose write was rejected. Calls `lost`. */
void sl_held_key_depose(struct sl_held_key *held, const char *why);

/* Competes no more; a holder gives up its key. released(ctx) runs once, when no request is in
 * flight, perhaps inside this call. err: of that request. */
void sl_held_key_release(struct sl_held_key *held,
                         void (*released)(void *ctx, int err, const char *reason), void *ctx);

/* Ends without a request or callback. The storage stays until the metastore is destroyed, if a
 * request is in flight. */
void sl_held_key_drop(struct sl_held_key *held);

#endif
