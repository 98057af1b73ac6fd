/* The journal keeps the records of committed versions in a metastore, one key for each, where the
 * next host of the catalogue finds them. What the catalogue sends waits until all earlier changes
 * are written: nobody learns of a commit that another host would not know.
 *
 * Every write compares the key of the catalogue's host, and changes its value, which the next write
 * compares: writes of former hosts fail, and so does a write that the store carries out after a
 * later one. The value is the host's address, a NUL, and the number of the write. Writes that are
 * not answered are repeated. Owner: the metastore's reactor. Allocates; what waits is bounded
 * by the host's lease, after which the journal is destroyed. */
#ifndef SL_OBJECTS_NODE_JOURNAL_H
#define SL_OBJECTS_NODE_JOURNAL_H

#include "core/list.h"
#include "net/store/metastore.h"
#include "objects/catalogue/message.h"

struct sl_objects_journal;

struct sl_objects_journal_options {
    struct sl_metastore *metastore;
    const char *key;   /* of the host; its creation revision is `term` */
    const char *value; /* that the key has; of SL_OBJECTS_ADDRESS_BYTES at most */
    uint64_t lease;    /* of the key */
    uint64_t term;
    char prefix[SL_METASTORE_KEY_BYTES]; /* of the records' keys */
    uint64_t timeout_ns;                 /* of a request to the metastore */
    /* A record that an earlier host wrote; then, once, that there are no more. */
    void (*loaded)(void *ctx, const struct sl_objects_record *record);
    void (*marked)(void *ctx,
                   uint64_t number); /* the last one that was stored, if any; before that */
    void (*ready)(void *ctx);
    void (*send)(void *ctx, const char *address, const struct sl_objects_message *message);
    /* Another process is the host, or the records cannot be used. Nothing is sent from now on. May
     * destroy the journal. */
    void (*failed)(void *ctx, const char *why);
    void *ctx;
};

/* Begins to load. Errors: NO_MEMORY. */
int sl_objects_journal_create(const struct sl_objects_journal_options *options,
                              struct sl_objects_journal **out);

/* Sends what waits, if no request is in flight. Call several times a second, and after changes. */
void sl_objects_journal_tick(struct sl_objects_journal *journal);

/* Whether all records were loaded. NULL: no. */
bool sl_objects_journal_is_ready(const struct sl_objects_journal *journal);

/* After `ready`. record NULL: the version has ended. Without memory nothing is sent any more, and
 * the next tick fails. */
void sl_objects_journal_change(struct sl_objects_journal *journal, const char *name,
                               uint64_t version, const struct sl_objects_record *record);
/* Stores the highest number of a version that was given. */
void sl_objects_journal_mark(struct sl_objects_journal *journal, uint64_t number);
void sl_objects_journal_send(struct sl_objects_journal *journal, const char *address,
                             const struct sl_objects_message *message);

/* Messages that wait, in ascending order, until all changes up to a number are stored. */
typedef void sl_objects_journal_send_fn(void *ctx, const char *address,
                                        const struct sl_objects_message *message);

/* Appends a copy of the message. Without memory it is lost. */
void sl_objects_journal_hold(struct sl_list *held, uint64_t number, const char *address,
                             const struct sl_objects_message *message);

/* Frees the messages up to the number, after sending them, with this error if it is not 0. send
 * NULL: nothing is sent. */
void sl_objects_journal_release(struct sl_list *held, uint64_t number, int err, const char *reason,
                                sl_objects_journal_send_fn *send, void *ctx);

/* The memory is freed with the answer to the request in flight. Nulls *journal. */
void sl_objects_journal_destroy(struct sl_objects_journal **journal);

#endif
