/* Record log keeps the records of a leader in a metastore, one key each below a prefix, where the
 * next leader finds them. The leader is the process that holds the term key (net/store/held_key.h).
 * Messages to other processes wait until all earlier changes are written: no process learns
 * anything that the next leader would not know.
 *
 * Every write compares the term key, so writes of former leaders fail. It also changes the value of
 * that key, which the next write compares: a write that the store executes late cannot overwrite
 * newer records. The value names the leader, and is followed by a NUL and the number of the write;
 * a JSON object instead gets the number as its member "turn". A write that is not answered is
 * repeated, after a pause, until the lease ends.
 *
 * A failure ends the term in the next sl_record_log_run, never inside another call. Owner: the
 * metastore's reactor. Allocates for the changes and messages that wait. */
#ifndef SL_NET_STORE_RECORD_LOG_H
#define SL_NET_STORE_RECORD_LOG_H

#include "core/list.h"
#include "net/store/held_key.h"

#define SL_RECORD_LOG_VALUE_BYTES 640 /* of the term key, with the number of the write */

struct sl_record_log_options {
    /* Its `won` calls sl_record_log_begin, its `lost` sl_record_log_end. All functions below get
     * its ctx. */
    struct sl_held_key_options key;
    char prefix[SL_METASTORE_KEY_BYTES]; /* of the records' keys */
    size_t held_bytes_max;               /* of messages that wait; 0: 256 MiB */
    /* Requests a call of sl_record_log_run soon, but not from inside this callback. */
    void (*wake)(void *ctx);
    /* Reports a record of an earlier leader. key: without the prefix. If the record cannot be used,
     * the owner may ignore it, or call sl_record_log_fail. */
    void (*loaded)(void *ctx, const char *key, const struct sl_metastore_item *item);
    /* All records are loaded: the process leads from now on. anew: there were none. */
    void (*ready)(void *ctx, bool anew);
    /* Sends a message that has waited. to: as in sl_record_log_hold. */
    void (*send)(void *ctx, uint64_t to, const uint8_t *message, size_t bytes);
    /* Encodes the record with this key, just before it is written. *value: allocated. Errors:
     * NO_MEMORY. NULL: each change has its value. */
    int (*encode)(void *ctx, const char *key, uint8_t **value, size_t *value_bytes);
};

/* A message that waits, in a list in the order of the numbers. */
struct sl_record_log_message {
    struct sl_list_link link;
    uint64_t number, to;
    size_t bytes;
    uint8_t message[];
};

/* Appends a message. Returns room for its bytes; NULL: no memory. */
uint8_t *sl_record_log_message_add(struct sl_list *messages, uint64_t number, uint64_t to,
                                   size_t bytes);

/* Removes the first message if its number is at most this one. The caller frees it. NULL: none. */
struct sl_record_log_message *sl_record_log_message_pop(struct sl_list *messages, uint64_t number);

enum sl_record_log_ending {
    SL_RECORD_LOG_OPEN,
    SL_RECORD_LOG_WRITING,
    SL_RECORD_LOG_LEAVING,
    SL_RECORD_LOG_LEFT,
    SL_RECORD_LOG_ENDED
};

/* Caller's storage. All members but `key` are private. */
struct sl_record_log {
    struct sl_record_log_options options;
    struct sl_held_key key;
    struct sl_record_log_term *term;         /* NULL: this process does not hold the key */
    char failure[SL_METASTORE_REASON_BYTES]; /* of this term; "": none */
    enum sl_record_log_ending ending;
    uint64_t ending_until_ns;
    void (*done)(void *ctx);
};

/* Copies the options. Sends nothing. */
void sl_record_log_init(struct sl_record_log *log, const struct sl_record_log_options *options);

/* Call tick several times a second, and run when `wake` requests it. */
void sl_record_log_tick(struct sl_record_log *log);
void sl_record_log_run(struct sl_record_log *log);

/* Begins to load the records, or, if err is not 0, fails: the owner could not prepare. Ends the
 * term of a key that was lost. */
void sl_record_log_begin(struct sl_record_log *log, uint64_t term, int err);
void sl_record_log_end(struct sl_record_log *log);

/* Ends the term in the next run. */
void sl_record_log_fail(struct sl_record_log *log, const char *why);

/* Returns true if this process leads: its records are loaded, its lease lasts, and it may send. */
bool sl_record_log_leads(const struct sl_record_log *log);

/* Changes a record; does nothing if the term could not begin. value NULL: `encode` will give it;
 * without `encode` the record is removed. key
 * "": all records are removed. */
void sl_record_log_change(struct sl_record_log *log, const char *key, const void *value,
                          size_t value_bytes);

/* Returns true if a message must wait for a change, or for an earlier message. */
bool sl_record_log_waits(const struct sl_record_log *log);

/* Returns room for a message that waits. NULL: no memory; the term fails. */
uint8_t *sl_record_log_hold(struct sl_record_log *log, uint64_t to, size_t bytes);

/* Drops the messages that wait for this receiver. */
void sl_record_log_drop(struct sl_record_log *log, uint64_t to);

/* Writes what has changed, gives up the key, and competes no more. Sends no message. Then, or after
 * timeout_ns, calls done(ctx); until then keep calling tick and run. */
void sl_record_log_resign(struct sl_record_log *log, uint64_t timeout_ns, void (*done)(void *ctx));

/* Ends, also after `done`, without a request or callback. The storage stays until the metastore is
 * destroyed, if a request is in flight. */
void sl_record_log_close(struct sl_record_log *log);

#endif
