/* A cluster store in memory (net/store/metastore.h), for several askers in one thread and a time
 * that the test makes pass: real comparisons, revisions and leases. Each asker has a handle of its
 * own, which may be cut off: what it asks then takes effect or not, as the test says, and fails. */
#ifndef SL_TESTS_SUPPORT_MEMORY_STORE_H
#define SL_TESTS_SUPPORT_MEMORY_STORE_H

#include "net/store/metastore.h"

struct memory_store;

struct memory_store *memory_store_create(void);
void memory_store_destroy(struct memory_store *memory);

/* A handle; it lives as long as the memory. */
struct sl_metastore *memory_store_handle(struct memory_store *memory);

/* Leases end by this clock. */
void memory_store_pass(struct memory_store *memory, uint64_t now_ns);

/* Carries the oldest thing that was asked out, of handles that are not held, and answers it; false:
 * there is none. */
bool memory_store_answer(struct memory_store *memory);

/* What this handle asks fails, IO, when it is answered: before it has had its effect or, `late`,
 * after it. */
void memory_store_cut(struct sl_metastore *handle, bool cut, bool late);

/* Whatever adds to it is refused, IO, to this handle: it is read and prolonged as ever. */
void memory_store_fill(struct sl_metastore *handle, bool full);

/* What this handle asks is carried out twice, and the second answer comes, as by a client that was
 * not answered at first. */
void memory_store_repeat(struct sl_metastore *handle, bool repeat);

/* A write of this handle's that happens is remembered: the first from now on. */
void memory_store_remember(struct sl_metastore *handle);

/* That one is carried out again, as by a server that was asked and did not answer, long after
 * another was; true: it happens. */
bool memory_store_play(struct memory_store *memory);

/* What this handle asks is carried out and answered later: when it is not held any more. */
void memory_store_hold(struct sl_metastore *handle, bool hold);

/* The handle's process is gone: what it has asked and was not answered is carried out, or not, and
 * answered CANCELLED; likewise what it asks then. */
void memory_store_forget(struct sl_metastore *handle, bool carries_out);

/* What this handle has asked is not carried out, and answered DEADLINE. */
void memory_store_time_out(struct sl_metastore *handle);

/* As if somebody else had written it; value NULL: it is removed. */
void memory_store_set(struct memory_store *memory, const char *key, const char *value);
void memory_store_put(struct memory_store *memory, const char *key, const void *value,
                      size_t value_bytes);

/* The value under a key; NULL: none. Valid until the next answer. */
const struct sl_metastore_item *memory_store_look(const struct memory_store *memory,
                                                  const char *key);

/* How many keys begin so. */
uint32_t memory_store_count(const struct memory_store *memory, const char *prefix);

#endif
